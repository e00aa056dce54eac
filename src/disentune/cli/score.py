"""`disentune score`: metrics of your own arrays, or of the checkpoints of a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import AsJson, Storage
from disentune.cli.terminal import err, out, print_json
from disentune.errors import ConfigError
from disentune.files.storage import DEFAULT_STORAGE

if TYPE_CHECKING:
    from disentune.metrics import Size as SizeName


class Size(StrEnum):
    full = "full"
    fast = "fast"


def score(
    what: Annotated[str, typer.Argument(metavar="CODES.npz|RUN", help="A file of arrays, or a run as for `results`.")],
    metrics: Annotated[
        str | None,
        typer.Option(help="Names separated by commas. Default: every metric that the arrays allow; for a run, udr."),
    ] = None,
    size: Annotated[Size, typer.Option(help="Published sizes of the metrics, or smaller ones.")] = Size.full,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter: mig.bins=30. May be repeated.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the metrics; default: 0, or for a run the seed of each trial.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="For UDR: compare trials that agree in this key (all: all trials); default: in all except the seed."
        ),
    ] = None,
    as_json: AsJson = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Computes metrics of your own arrays, or of the last checkpoints of a run's trials.

    Arrays: create the file with np.savez("codes.npz", codes=codes, factors=factors).
    codes (rows, latents) are required; integer factors (rows, factors),
    logvars (rows, latents) and images (rows, ...) are used by metrics that need them.
    Codes of vectors (rows, latents, size) are reduced to first principal components.

    Run: nothing is trained. The scores are stored in the run, where results, report
    and compare use them as columns; scoring a metric again replaces them. In addition to
    all metrics there are udr and udr_spearman, which measure how well trials agree with
    each other and need no factors.

    Examples:
    disentune score codes.npz
    disentune score codes.npz --metrics mig,dci --set mig.bins=30 --json
    disentune score quickstart --metrics udr,mig
    disentune score quickstart --by dataset.spacing
    """
    by = None if by is None else list(dict.fromkeys(by))
    names = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    if names == []:
        raise ConfigError(f"--metrics '{metrics}': must name a metric, for example --metrics mig,dci")
    path = Path(what)
    if path.suffix in (".npz", ".npy") or path.is_file():
        if by:
            raise ConfigError(f"--by {by[0]}: groups the trials of a run, but {what} holds arrays; omit it")
        _score_arrays(path, names, set_ or [], seed or 0, size.value, as_json)
        return
    if seed is not None:
        raise ConfigError(f"--seed {seed}: a run's trials are scored with their own seeds; omit it")
    _score_run(what, storage, names or ["udr"], set_ or [], size.value, by, as_json)


def _score_arrays(
    path: Path, names: list[str] | None, sets: list[str], seed: int, size: SizeName, as_json: bool
) -> None:
    from disentune.cli.display import score_lines
    from disentune.results import arrays

    table, names_there = arrays.read_arrays(path)
    sufficient, left_out = arrays.sufficient(names_there) if names is None else (names, {})
    asked = arrays.asked(sufficient, sets, size)
    keys = [key for one in asked for key in one.metric.keys]
    widths = max((len(one.name) for one in asked), default=0), max((len(key) for key in keys), default=0)
    outcomes = []
    for outcome in arrays.scores_of_arrays(asked, table, names_there, seed):
        outcomes.append(outcome)
        if not as_json:
            name = outcome.asked.name
            out.print(score_lines(name, outcome.numbers, outcome.reason, outcome.seconds, widths), markup=False)
            out.file.flush()
    if as_json:
        print_json(arrays.arrays_as_json(outcomes, left_out, len(table.codes), seed, size))
    elif left_out:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
        out.print(f"left out: {reasons}", markup=False)
    scored = any(outcome.numbers for outcome in outcomes)
    failed = names is not None and any(outcome.reason for outcome in outcomes)
    raise typer.Exit(0 if scored and not failed else 1)


def _score_run(
    what: str, storage: str, names: list[str], sets: list[str], size: SizeName, by: list[str] | None, as_json: bool
) -> None:
    from disentune.cli.display import frame_table
    from disentune.cli.progress import followed
    from disentune.results import arrays, rescore
    from disentune.runs.ledger import find_run

    found, notes = find_run(what, storage), list[str]()
    compared = [name for name in dict.fromkeys(names) if name in arrays.UDR]
    asked = arrays.asked([name for name in names if name not in arrays.UDR], sets, size)
    if by and not compared:
        raise ConfigError(f"--by {by[0]}: only used by udr; add udr to --metrics, or omit --by")
    scores = rescore.scores_of_run(
        found, asked, compared, [] if by == ["all"] else by, say=notes.append,
        follow=lambda trials: followed(err, trials, "scoring trials"),
    )  # fmt: skip
    try:
        rescore.keep_scores(found, scores, asked, compared, by, size)
    except OSError as error:
        notes.append(f"the scores were not saved: {found.scores_path} cannot be written: {error.strerror}")
    notes += [f"{one.trial_id}, {name}: {reason}" for one in scores.trials for name, reason in one.reasons.items()]
    if as_json:
        print_json(rescore.run_as_json(scores, asked, notes, size))
    else:
        out.print(frame_table(scores.frame, list(scores.frame.columns)))
        for note in notes:
            out.print(f"note: {note}", markup=False)
    failed = any(trial.reasons for trial in scores.trials) or not set(compared) <= set(scores.numbers)
    raise typer.Exit(0 if scores.numbers and not failed else 1)
