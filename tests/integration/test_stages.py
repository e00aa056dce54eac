"""A study in stages on a real Ray: killed in its first and in its second stage, it ends with the undisturbed table."""

from pathlib import Path

import pytest

from processes import family, kill, rows_on_disk, wait_until
from stage_examples import DONORS, STAGES, STUDY, TRIALS, table, use_driver, write_study

STEPS, EVERY = 1500, 50


def longer(text: str) -> str:
    """Long enough to be killed in the middle."""
    text = text.replace("steps: 6,", f"steps: {STEPS},").replace("log_every: 3", f"log_every: {EVERY}")
    return text.replace("epsilon: 0.3, steps: 12", f"epsilon: 0.3, steps: {STEPS}").replace(
        "every_steps: 2", "every_steps: 100"
    )


def killed_in(commands, stage: str, *arguments: str) -> None:
    """Starts a command, and kills it and all that it started while a stage is being trained."""
    run = commands.folder / "runs" / stage / "main"
    before = rows_on_disk(run)
    process = commands.start(*arguments)
    wait_until(lambda: rows_on_disk(run) > before + 1 or process.poll() is not None, f"rows of {stage}")
    processes = family(process)
    kill(processes)
    process.wait()
    assert process.returncode == -9, process.stdout.read()


def finished(storage: Path, stage: str) -> bool:
    rows = table(storage)[stage].values()
    return len(rows) == TRIALS[stage] and all(some and some[-1]["step"] == STEPS for some in rows)


@pytest.mark.ray
@pytest.mark.long
def test_a_study_killed_in_its_first_and_second_stage_has_the_table_of_the_undisturbed(
    commands, disentune, monkeypatch, tmp_path
):
    commands.environment["DISENTUNE_DATA"] = str(tmp_path / "data")
    write_study(tmp_path, longer(STUDY), longer(DONORS))
    with monkeypatch.context() as patch:  # undisturbed, in this process and without Ray
        patch.setenv("DISENTUNE_DATA", str(tmp_path / "data of the undisturbed"))
        use_driver(patch)
        code, _, said = disentune("run", "study.yaml", "--storage", "calm")
    assert code == 0, said
    calm = table(tmp_path / "calm")
    assert {name: len(trials) for name, trials in calm.items()} == TRIALS

    storage = tmp_path / "runs"
    killed_in(commands, "donors", "run", "study.yaml")
    assert not finished(storage, "donors")
    killed_in(commands, "study-manipulators", "resume", "runs/study/main")
    assert finished(storage, "donors")
    assert not finished(storage, "study-manipulators")
    code, output = commands.run("run", "study.yaml")
    assert code == 0, output
    assert "stage donors in runs/donors/main: 4 of 4 trials done" in output
    assert all(finished(storage, stage) for stage in STAGES)
    assert table(storage) == calm
    assert commands.json("results", "study") == commands.json("results", "study", "--storage", "calm")
