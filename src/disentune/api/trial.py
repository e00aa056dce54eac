"""A trial in Python: its config, rows, data set and trained model."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from disentune.api.arguments import Location, arguments
from disentune.api.wording import in_python
from disentune.plugin import Frozen
from disentune.results.tables import Record, Results
from disentune.runs.ledger import Run

if TYPE_CHECKING:
    import pandas as pd

    from disentune.plugin import FactorImages
    from disentune.results.trained import TrainedModel


class _Exporting(Frozen):
    output: Location | None


@dataclass(frozen=True, repr=False, eq=False)
class Trial:
    """One trial of a run."""

    run: Run
    record: Record
    trust: bool = False
    """Whether code that the trial names may be imported."""

    @property
    def id(self) -> str:
        return self.record.trial_id

    @property
    def status(self) -> str:
        return self.record.status

    @property
    def seed(self) -> int:
        seed: int = self.record.config["seed"]
        return seed

    @property
    def config(self) -> dict[str, Any]:
        """Everything that decides the trial's numbers, as nested plain values."""
        return self.record.config

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per report."""
        return Results(self.run, (self.record,)).rows

    @property
    def metrics(self) -> dict[str, Any]:
        """The last value of each metric."""
        metrics: dict[str, Any] = self.record.last()["metrics"]
        return metrics

    @cached_property
    def dataset(self) -> FactorImages:
        """The opened data set: `.images(indices)` gives uint8 (n, channels, height, width), `.factor_names` and
        `.factor_sizes` its factors."""
        from disentune.data.prepared.store import use_root
        from disentune.files.earlier import storage_known
        from disentune.results.trained import assert_trusted

        folder = self.run.trial(self.id)
        assert_trusted(folder, self.trust)
        use_root(self.run.sweep().settings.data.root)
        with storage_known(self.run.path.parent.parent):
            dataset = folder.config().dataset
            found: FactorImages = dataset.plugin.open(dataset.params)
            return found

    @cached_property
    def model(self) -> TrainedModel:
        """The model of the newest intact checkpoint."""
        from disentune.results.trained import model_of

        return model_of(self.run, self.id, self.trust)

    def export(self, to: Literal["safetensors", "torch", "onnx"], output: str | Path | None = None) -> list[Path]:
        """Writes the model to a file that loads without disentune, and gives the files; by default in the working
        folder, named after the trial. ONNX has a second file for the decoder."""
        from disentune.results.exporting import exported

        path = arguments(_Exporting, "the model cannot be exported", output=output).output
        with in_python():
            return exported(self.model, self.record, self.run, to, None if path is None else Path(path))

    def __repr__(self) -> str:
        names = ", ".join(self.config[key]["name"] for key in ("dataset", "framework", "model"))
        return f"Trial({self.id}: {names}, seed {self.seed}, {self.status} at step {self.record.last()['step']:,})"

    def _repr_html_(self) -> str:
        import pandas as pd

        table = pd.DataFrame([self.metrics]).to_html(index=False, float_format="{:.4g}".format)
        return f"<p>{html.escape(repr(self))}</p>{table}"
