"""The stages of a study on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from disentune.cli.session import Terminal, command_again
from disentune.cli.terminal import out
from disentune.errors import DONE, INTERRUPTED, SOME_FAILED, ConfigError, Problem, collected
from disentune.sessions import study as studies
from disentune.sessions.session import Wanted, is_budget

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from disentune.runs.ledger import Run
    from disentune.runs.preview import Plan
    from disentune.runs.stages import Progress, Stage
    from disentune.sessions.study import Looks, Study
    from disentune.spec.sweepfile import SweepFile


def read_chain(sweep: SweepFile) -> list[Stage]:
    """Raises one ConfigError with every problem of every stage."""
    return studies.read_chain(sweep, Terminal())


def read_stages(path: Path, sets: Sequence[str], name: str, only: str | None) -> list[Stage]:
    """The stages of a sweep file. Raises one ConfigError with every problem of the files and of these options."""
    from disentune.spec.selection import assert_possible
    from disentune.spec.space import read_file

    wrong: list[Problem] = []
    with collected(wrong, f"--name {name!r}"):
        studies.assert_run_name(name)
    if only is not None:
        with collected(wrong, f"--only {only!r}"):
            assert_possible(only)
    try:
        stages = read_chain(read_file(path, sets))
    except ConfigError as error:
        if error.problems and wrong:
            raise ConfigError(error.subject, [*error.problems, *wrong]) from None
        raise
    if len(wrong) > 1:
        raise ConfigError(f"{path} cannot run", wrong)
    return stages


def study_of(run: Run, stages: list[Stage], wanted: Wanted) -> Study:
    return studies.Study(run, stages, Terminal(command_again(run, wanted)), wanted)


def carry_out_study(study: Study) -> None:
    """Ends the command with its exit code."""
    try:
        ending = studies.carry_out_study(study)
    except studies.StageFailed as failed:
        out.print(str(failed), markup=False)
        raise typer.Exit(SOME_FAILED) from None
    if ending.interrupted:
        raise typer.Exit(DONE if is_budget(ending) else INTERRUPTED)
    raise typer.Exit(SOME_FAILED if ending.failed else DONE)


def show_stages(found: list[Progress], study: Study) -> None:
    """A line for each stage before the study."""
    from disentune.runs.stages import failure
    from disentune.sessions.study import line

    for number, stage in enumerate(found, start=1):
        out.print(f"stage {number} of {len(found) + 1}: {line(stage)}", markup=False)
        if stage.failed:
            out.print(f"note: {failure(stage, study.run)}", markup=False)
    out.print(f"stage {len(found) + 1} of {len(found) + 1}, the study:", markup=False)


def stages_json(study: Study, looks: Looks, planned: Plan) -> dict[str, Any]:
    """The key `stages` for other programs; nothing for a sweep that needs no other."""
    from disentune.runs.stages import Progress

    last = Progress(study.sweep.name, study.run, planned)
    return {"stages": [one.as_json() for one in (*looks.before, last)]} if study.has_needs else {}
