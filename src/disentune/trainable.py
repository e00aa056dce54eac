"""Ray's edge in the worker: a Tune Trainable that carries segments out, one after another in the same process."""

import gc
import json
import time
from collections.abc import Iterator
from typing import Any

from ray import tune

from disentune.segment import Report, Segment, work

SLICE_S = 1.0
"""How long a worker trains before it answers the driver; its rows, checkpoints and stop signs do not wait for that."""


class SegmentTrainable(tune.Trainable):
    """State lives in the ledger, so Ray's own checkpoints are not used, and a reused worker starts clean."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        resources = json.loads(config["segment"])["settings"]["resources"]
        return tune.PlacementGroupFactory([{"CPU": resources["cpu"], "GPU": resources["gpu"]}])

    def setup(self, config: dict[str, Any]) -> None:
        self._reports: Iterator[Report] = work(Segment(**json.loads(config["segment"])))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        began, rows = time.monotonic(), []
        for report in self._reports:
            if report.row is not None:
                rows.append(report.row)
            if report.outcome is not None or time.monotonic() - began > SLICE_S:
                break
        return {
            "at_step": report.step,
            "rows": rows,
            "outcome": report.outcome,
            tune.result.DONE: report.outcome is not None,
        }

    def cleanup(self) -> None:
        """Frees the trial's memory before the next one is built."""
        self._reports = iter(())
        gc.collect()
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()
