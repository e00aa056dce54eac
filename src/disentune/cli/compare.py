"""`disentune compare`: is one value of a key better than another, or is the difference due to the seeds?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import AsJson, OnlyTrials, Storage
from disentune.cli.terminal import err, out, print_json
from disentune.errors import ConfigError
from disentune.files.storage import DEFAULT_STORAGE

if TYPE_CHECKING:
    from disentune.analysis.comparison import Comparison
    from disentune.results.tables import Results


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs: folder, sweep/run, or the sweep's name.")],
    by: Annotated[str, typer.Option(help="The key whose values are compared, such as framework.name, arm or run.")],
    metric: Annotated[str | None, typer.Option(help="Metric to compare by; default: the runs' objective.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Compare every other value with this one, instead of all pairs.")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Compare each value at its best setting instead of the mean over settings.")
    ] = False,
    only: OnlyTrials = None,
    as_json: AsJson = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Compares the values of a key: differences with 95 % intervals and exact tests over seeds.

    Seeds are the replicates: all scores of a value with the same seed are averaged.
    Values that share seeds are compared pairwise; the correlation over seeds
    shows whether pairing helps. p is exact (permutations, or sign flips of pairs);
    p holm is corrected for the number of pairs. P(better) is the probability that
    a random seed of the first beats one of the second. Seeds needed is how many
    per value would show such a difference in 80 % of repetitions. With fewer than
    three seeds there is no verdict.

    Examples:
    disentune compare quickstart --by framework.name --metric mig
    disentune compare a b --by run --metric mig --baseline a/main
    """
    from disentune.analysis.runs import compared

    loaded = [_loaded(run, only, storage) for run in dict.fromkeys(runs)]
    found = compared(loaded, by, metric, baseline, best)
    if only is not None and re.search(rf"\b{re.escape(found.metric)}\b", only):
        err.print(f"note: {_selected_by(found.metric)}", markup=False)
    for note in found.notes:
        err.print(f"note: {note}", markup=False)
    if as_json:
        print_json(found.as_json())
    else:
        _show(found)


def _selected_by(metric: str) -> str:
    return f"--only selects trials by {metric} itself, so differences and p-values are biased"


def _loaded(run: str, only: str | None, storage: str) -> Results:
    from disentune.results import tables
    from disentune.runs.ledger import find_run

    every = tables.read(find_run(run, storage))
    kept = tables.only(every, only)
    for note in kept.notes:
        err.print(f"note: {note}", markup=False)
    if only is not None:
        err.print(f"note: --only keeps {len(kept.records)} of {len(every.records)} trials of {run}", markup=False)
        if not kept.records:
            raise ConfigError(f"--only {only!r}: selects no trial of {run}")
    return kept


def _show(found: Comparison) -> None:
    from disentune.cli.display import frame_table

    out.print(f"[bold]{found.metric}[/] by {found.by}, difference of means (a - b) with its 95 % interval:")
    out.print(frame_table(found.table))
