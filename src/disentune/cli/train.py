"""`disentune train`: trains one trial in this process, or repeats a recorded trial and compares it bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from disentune.cli.options import AsJson, Only, Sets
from disentune.cli.terminal import err, out
from disentune.environment import cleaned_values
from disentune.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disentune.files.storage import Place
    from disentune.runs.ledger import Run
    from disentune.runs.trial_folder import Status
    from disentune.spec.config import TrialConfig
    from disentune.spec.settings import Settings
    from disentune.spec.space import SweepPoints

Row = dict[str, Any]
"""A line of rows.jsonl."""


def train(
    what: Annotated[
        str, typer.Argument(metavar="SWEEP|TRIAL", help="The sweep file, or a trial's folder: runs/x/main/trials/ID.")
    ],
    set_: Sets = None,
    only: Only = None,
    as_json: AsJson = False,
) -> None:
    """Trains one trial here, without Ray and without writing files.

    Given a sweep, it trains the first trial that --only selects. Given a trial's folder, it trains
    that trial again and compares its rows, bit for bit, with the recorded ones.

    Examples:
    disentune train sweeps/quickstart.yaml --only "arm == 'rescued'" --set training.steps=300
    disentune train runs/quickstart/main/trials/0123456789ab
    """
    from disentune.files.storage import assert_reachable, place
    from disentune.spec import space

    path = place(what)
    assert_reachable(path)
    if not isinstance(path, Path) or path.is_dir() or path.name == "config.json":
        _repeat(path.parent if path.name == "config.json" else path, set_, only, as_json)
        return
    asked = space.read(path, set_ or ())
    _, diverged = _trained(_first_selected(asked, only), asked.sweep.settings, as_json)
    raise typer.Exit(1 if diverged else 0)


def _first_selected(asked: SweepPoints, only: str | None) -> TrialConfig:
    """The first point, or corner of a model-based search, that the expression selects."""
    from disentune.runs.choice import selected_by
    from disentune.spec import space

    corners = (space.Point(config.with_seed(asked.sweep.seeds[0]), (arm,)) for arm, config in asked.unseeded)
    points = asked.points or tuple(corners)
    selected = selected_by(asked.sweep, only or None)
    for point in points:
        if selected is None or selected({**point.config.tree(), "arm": point.arms}):
            return point.config
    raise ConfigError(f"--only {only!r}: selects none of the {len(points)} trials")


def _trained(
    config: TrialConfig, settings: Settings, as_json: bool, contents: list[str] | None = None
) -> tuple[list[Row], str]:
    """Trains to the end, or until the loss diverges; returns the rows, and how it diverged."""
    from disentune.data.prepared.store import use_root
    from disentune.learn import process
    from disentune.learn.training import Training
    from disentune.runs.segment import divergence

    use_root(settings.data.root)
    _assert_device(config)
    process.prepare(config.training.threads, config.training.device)
    err.print(f"trial {config.id}: {config.training.steps} steps", markup=False)
    training, rows = Training(config, None, settings.data.on_device), list[Row]()
    if contents and contents != training.contents:
        text = (
            f"trial {config.id} was trained on different contents of '{config.dataset.name}' than those prepared here"
        )
        raise ConfigError(f"{text}; prepare the original contents again to repeat it")
    for progress in training.run():
        if progress.row is None:
            continue
        _show_row(progress.row, as_json)
        if cause := divergence(progress.row, settings.stop.divergence):
            err.print(f"diverged: {cause}", markup=False)
            return rows, cause
        rows.append(progress.row)
    return rows, ""


def _show_row(row: Row, as_json: bool) -> None:
    if as_json:
        print(json.dumps(cleaned_values(row)), flush=True)  # noqa: T201
    else:
        numbers = "  ".join(f"{key} {value:.4g}" for key, value in row["metrics"].items())
        out.print(f"step {row['step']:>6}  {numbers}", markup=False)


def _assert_device(config: TrialConfig) -> None:
    from disentune.learn import process

    device = config.training.device
    if not process.has(device):
        raise ConfigError(f"trial {config.id} needs a GPU (training.device: {device}), but this machine has none")


# ---- repeating a trial


def _repeat(path: Place, sets: list[str] | None, only: str | None, as_json: bool) -> None:
    """Trains a recorded trial again; exits with 1 if any result differs, or if the loss diverges."""
    from disentune.runs.ledger import trial_at
    from disentune.spec.settings import Settings

    if sets:
        raise ConfigError(f"--set {sets[0]}: a recorded trial cannot be changed; give the sweep file instead of {path}")
    if only is not None:
        raise ConfigError(f"--only {only}: selects trials of a sweep, but {path} is a single trial; omit it")
    folder, run = trial_at(path)
    config, recorded, status = folder.config(), folder.rows(), folder.status()
    _refuse_population(run, folder.id, recorded)
    settings = run.sweep().settings if run.exists() else Settings()
    rows, diverged = _trained(config, settings, as_json, status.contents)
    difference = _first_difference(rows, recorded) or _other_ending(status, diverged)
    (err if as_json else out).print(difference or _agreement(rows, recorded, status), markup=False)
    if difference:
        _show_other_environment(run, config)
    raise typer.Exit(1 if difference or diverged else 0)


def _refuse_population(run: Run, trial_id: str, recorded: Sequence[Row]) -> None:
    steps = [row["step"] for row in recorded if row.get("overrides")]
    steps += [generation["step"] for generation in run.generations() if trial_id in generation["moves"]]
    if steps:
        raise ConfigError(
            f"trial {trial_id} cannot be repeated by itself: at step {min(steps)} population based training gave "
            "it the weights of another trial and changed its values; repeat the whole run instead"
        )


def _first_difference(rows: Sequence[Row], recorded: Sequence[Row]) -> str:
    """The first difference between computed and recorded rows; empty if all are equal."""
    here, there = ({row["step"]: _numbers(row) for row in some} for some in (rows, recorded))
    for step in sorted(here.keys() | there.keys()):
        if step > max(there, default=0):
            break
        if step not in here or step not in there:
            where = "here" if step in here else "in the record"
            return f"differs first at step {step}: the row exists only {where}"
        for key in here[step] | there[step]:
            mine, theirs = here[step].get(key, "nothing"), there[step].get(key, "nothing")
            if mine != theirs:
                return f"differs first at step {step}: {key} is {mine:.60} here, but {theirs:.60} is recorded"
    return ""


def _numbers(row: Row) -> dict[str, str]:
    """Every measured number in full precision, as rows are written; durations are excluded."""
    details = {f"details.{key}": value for key, value in row.get("details", {}).items()}
    return {key: json.dumps(value) for key, value in (row["metrics"] | details).items()}


def _other_ending(status: Status, diverged: str) -> str:
    """How its divergence differs from the record; empty if it does not. Other endings are compared by rows."""
    if status.state != "diverged" or status.cause == diverged:
        return ""
    return f"differs at its end: {diverged or 'the loss did not diverge'} here, but '{status.cause}' is recorded"


def _agreement(rows: Sequence[Row], recorded: Sequence[Row], status: Status) -> str:
    ending = "; it diverged as recorded" if status.state == "diverged" else ""
    if not recorded:
        return f"there are no recorded rows to compare with{ending}"
    if len(recorded) == len(rows):
        return f"all {len(rows)} rows equal the recorded ones, bit for bit{ending}"
    last = recorded[-1]["step"]
    return (
        f"{len(recorded)} of {len(rows)} rows equal the recorded ones, bit for bit; none is recorded after step {last}"
    )


def _show_other_environment(run: Run, config: TrialConfig) -> None:
    from disentune.environment import differences
    from disentune.runs.ledger import environment_with
    from disentune.spec.config import own_plugins

    here = environment_with(own_plugins(config.tree()))
    if changed := dict.fromkeys(text for then in run.environments() for text in differences(then, here)):
        err.print(f"note: the run was started in a different environment: {', '.join(changed)}", markup=False)
