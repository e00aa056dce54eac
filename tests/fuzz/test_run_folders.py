"""Files of a run folder that someone or something has changed: read as they are, or a ConfigError that names the file,
by the functions and by the commands."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from conftest import RunMaker
from disentune.analysis.runs import compared_trials
from disentune.driver.sweep import Ending
from disentune.environment import differences, environment
from disentune.errors import ConfigError
from disentune.files import documents
from disentune.results import tables
from disentune.runs.ledger import Run
from disentune.runs.suggest import rehearsal
from disentune.spec.settings import Objective
from fuzz.commands import called, complaint, sheltered
from fuzz.mutations import mutated_bytes, mutated_text, mutated_tree, spelled
from fuzz.trying import inputs, wrongs
from processes import unblocked
from run_examples import forged, search

NAMES = {
    "config.json": 70,
    "status.json": 70,
    "rows.jsonl": 70,
    "end.json": 20,
    "sweep.yaml": 150,
    "population.json": 30,
    "environment.json": 20,
    "study.journal": 70,
    "sessions.json": 20,
}
"""Of each file, how many."""
COMMANDS = [
    ["status", "demo"], ["status", "demo", "--json"], ["status", "demo", "--watch"], ["results", "demo"],
    ["results", "demo", "--json"], ["results", "demo", "--csv"], ["results", "demo", "--trials", "--at", "max"],
    ["results", "demo", "--parquet"], ["results", "demo", "--by", "framework.beta"], ["resume", "demo"],
    ["plan", "runs/demo/main/sweep.yaml"], ["train", "TRIAL"], ["score", "demo"], ["inspect", "TRIAL"],
    ["sync", "demo"], ["verify", "demo"], ["verify", "demo", "--repair"],
]  # fmt: skip
READERS_OF_JOURNALS = [["resume", "demo"], ["plan", "runs/demo/main/sweep.yaml"], ["status", "demo"]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Run:
    """Three trials with rows, all that a finished sweep has but checkpoints; the working folder is above."""
    monkeypatch.chdir(tmp_path)
    sheltered(monkeypatch)
    maker = RunMaker(Path("runs/demo/main"))
    if "study.journal" in request.node.name:
        return searched_run(maker)
    maker.sweep(objective={"metric": "mig", "mode": "max"}, seeds=3)
    for seed in range(3):
        maker.trial([{"step": 300, "mig": 0.1, "loss": 1.0}, {"step": 1500, "mig": 0.3, "loss": 0.5}], seed=seed)
    trial = maker.run.trials()[0]
    trial.write_end({"step": 1500, "metrics": {"sap": 0.2}, "scored": {"sap": {"bins": 20}}})
    trial.update_status(cause="stop.plateau: none", seconds=1.5, node="n", faults={"lost": 1}, contents=["ab"])
    moves = {"0123456789abcdef": {"source": trial.id, "values": {"framework.beta": 1.0}}}
    maker.run.add_generation({"population": "a", "step": 300, "moves": moves})
    versions = {"python": "3", "packages": {"torch": "1"}, "gpus": [], "commit": "ab", "source": "a"}
    versions["plugins"] = {"x": "b"}
    (maker.run.path / "environment.json").write_text(json.dumps(versions))
    (maker.run.path / "sessions.json").write_text(json.dumps([{**versions, "source": "b", "after": {trial.id: 300}}]))
    return maker.run


def searched_run(maker: RunMaker) -> Run:
    """A search by Optuna with three of its five points done."""
    asked = {"name": "optuna", "points": 5, "in_flight": 2}
    maker.sweep(name="demo", objective={"metric": "mig", "mode": "max"}, search=asked)
    text = maker.run.sweep_path.read_text()
    maker.run.sweep_path.write_text(text.replace("framework.beta: 0.001", "framework.beta: {log_uniform: [1e-4, 1]}"))
    search(maker.run, maker.run.sweep(), trials=3)
    return maker.run


def file_of(run: Run, name: str) -> Path:
    in_trial = name in ("config.json", "status.json", "rows.jsonl", "end.json")
    return Path(str((run.trials()[0].path if in_trial else run.path) / name))


def damage(content: bytes, name: str) -> Callable[[Random], bytes]:
    """Mostly of what the file means, so that the damage is not seen at its first byte."""

    def make(rng: Random) -> bytes:
        if rng.random() < 0.2:
            return mutated_bytes(content, rng)
        if name == "sweep.yaml":
            tree = documents.parse(content.decode(), name).value
            changed = spelled(mutated_tree(tree, rng)).encode(errors="surrogatepass")
            return changed if rng.random() < 0.6 else mutated_text(content.decode(), rng)
        if name in ("rows.jsonl", "study.journal"):
            lines = content.splitlines()
            at = rng.randrange(len(lines))
            lines[at] = json.dumps(mutated_tree(json.loads(lines[at]), rng)).encode()
            return b"\n".join(lines) + b"\n"
        return json.dumps(mutated_tree(json.loads(content), rng)).encode()

    return make


# ---- by the functions


def readings(run: Run, name: str) -> list[Callable[[], Any]]:
    trial = run.trials()[0]
    return {
        "config.json": [trial.config, trial.tree, trial.arms, lambda: read_tables(run)],
        "status.json": [trial.status, lambda: read_tables(run)],
        "rows.jsonl": [trial.rows, lambda: read_tables(run)],
        "end.json": [trial.end, lambda: read_tables(run)],
        "sweep.yaml": [run.sweep],
        "population.json": [run.generations],
        "environment.json": [run.environment],
        "study.journal": [lambda: rehearsal(run.journal_path)],
        "sessions.json": [lambda: [differences(one, environment()) for one in run.environments()]],
    }[name]


def read_tables(run: Run) -> None:
    loaded = tables.read(run)
    assert len(loaded.rows) >= len(loaded.trials) - 1
    json.dumps(tables.as_json(loaded), allow_nan=False).encode()


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_file_is_read_or_named(run: Run, name: str) -> None:
    path = file_of(run, name)

    def verdict(content: bytes) -> str:
        path.write_bytes(content)
        for read in readings(run, name):
            try:
                read()
            except ConfigError as error:
                if str(path) not in str(error):
                    return f"names no file: {error}"
                str(error).encode()
        return ""

    found = wrongs(inputs(name, NAMES[name], damage(path.read_bytes(), name)), verdict)
    assert not found, found


@pytest.mark.parametrize("name", ["config.json", "population.json", "rows.jsonl"])
def test_a_flipped_bit_is_named_and_never_another_table(run: Run, name: str) -> None:
    path = file_of(run, name)
    sound = path.read_bytes()

    def flipped(rng: Random) -> bytes:
        at = rng.randrange(len(sound) - 1)  # a last row without its end is one that is being written
        return sound[:at] + bytes([sound[at] ^ (1 << rng.randrange(8))]) + sound[at + 1 :]

    def told() -> Any:
        return tables.as_json(tables.read(run)), [trial.arms() for trial in run.trials()], run.generations()

    expected = told()

    def verdict(content: bytes) -> str:
        path.write_bytes(content)
        try:
            is_noted = any(path.parent.name in note for note in tables.read(run).notes)
            return "" if is_noted or told() == expected else "gives another table in silence"
        except ConfigError as error:
            return "" if str(path) in str(error) else f"names no file: {error}"

    found = wrongs(inputs(f"{name} flipped", 300, flipped), verdict)
    assert not found, found


# ---- by the commands


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_a_changed_file_or_names_it(run: Run, name: str) -> None:
    path = file_of(run, name)
    trial = str(run.trials()[0].path)

    def verdict(content: tuple[bytes, list[str]]) -> str:
        path.write_bytes(content[0])
        return complaint(called(*(trial if part == "TRIAL" else part for part in content[1])))

    make = damage(path.read_bytes(), name)
    commands = READERS_OF_JOURNALS if name == "study.journal" else COMMANDS
    tried = inputs(f"{name} by commands", NAMES[name] // 2, lambda rng: (make(rng), rng.choice(commands)))
    found = wrongs(tried, verdict, lambda content: 5.0)
    assert not found, found


@pytest.mark.parametrize("command", [["resume", "demo"], ["plan", "runs/demo/main/sweep.yaml"]])
@pytest.mark.parametrize("name", ["study.journal"])
def test_damage_to_a_journal_is_refused_with_what_to_do(run: Run, name: str, command: list[str]) -> None:
    data = file_of(run, name).read_bytes()
    file_of(run, name).write_bytes(data[:500] + bytes([data[500] ^ 1]) + data[501:])
    made = called(*command)
    assert made.code == 2
    assert f"{name}:" in made.err
    assert "is damaged" in made.err
    assert "remove it" in made.err
    assert len(made.err.strip().splitlines()) == 1


# ---- once


ONCE: list[tuple[str, bytes]] = [
    ("config.json", b'{"arms": ["all"], "config": {}}'), ("config.json", b'{"arms": [5], "config": {"seed": 0}}'),
    ("status.json", b'{"state": "done", "cause": 5}'), ("status.json", b'{"state": "done", "faults": {"lost": "x"}}'),
    ("status.json", b'{"state": "done", "seconds": NaN}'),
    ("status.json", b'{"state": "done", "step": 1' + b"0" * 30 + b"}"),
    ("rows.jsonl", b'{"step": 1, "metrics": {"mig": "x"}}\n'),
    ("rows.jsonl", b'{"step": 1, "metrics": {"mig": 1' + b"0" * 400 + b"}}\n"),
    ("rows.jsonl", b'{"step": 1, "metrics": {}, "overrides": 5}\n'), ("population.json", b"[5]"),
    ("population.json", b'[{"population": "a", "step": 1}]'), ("environment.json", b'{"packages": [1]}'),
    ("environment.json", b'{"commit": 5}'), ("sessions.json", b"[5]"), ("sessions.json", b'[{"plugins": [1]}]'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), ONCE, ids=str)
def test_what_once_was_read_and_failed_later_is_named(run: Run, name: str, content: bytes) -> None:
    path = file_of(run, name)
    path.write_bytes(content)
    reads = {"config.json": "tree", "status.json": "status", "rows.jsonl": "rows"}
    read = getattr(run.trials()[0], reads[name]) if name in reads else None
    with pytest.raises(ConfigError, match="is damaged") as caught:
        (read or (run.generations if name == "population.json" else run.environments))()
    assert str(path) in str(caught.value)


def test_half_a_character_is_spelled_out(run: Run) -> None:
    file_of(run, "status.json").write_bytes(b'{"state": "failed", "cause": "no \\ud800"}')
    file_of(run, "rows.jsonl").write_bytes(b'{"step": 1, "metrics": {"\\udfff": 1}, "notes": {"x": ["\\uDC00"]}}\n')
    folder = run.trials()[0]
    assert folder.status().cause == "no \\ud800"
    assert folder.rows() == [{"step": 1, "metrics": {"\\udfff": 1}, "notes": {"x": ["\\udc00"]}}]
    assert called("results", "demo", "--trials").code == 0


def test_a_metric_whose_name_looks_like_markup_is_shown_as_it_is(run: Run) -> None:
    file_of(run, "rows.jsonl").write_text('{"step": 1500, "metrics": {"[/]": 1.0, "[red]": 2.0}}\n')
    made = called("results", "demo", "--metric", "[/]")
    assert made.code == 0, made.err
    assert "[/], last value of each trial" in made.out


def test_a_number_that_no_table_holds_is_shown_as_text(run: Run) -> None:
    folder = forged(run.trials()[0], lambda tree: tree["training"].update(log_every=10**30))
    table = tables.read(run).trials.set_index("trial_id")
    assert table["training.log_every"][folder.id] == str(10**30)


# ---- what is no file of a run


@pytest.mark.parametrize("name", [*NAMES, "driver.lock"])
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(run: Run, name: str) -> None:
    path, trial = file_of(run, name), str(run.trials()[0].path)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with unblocked(path):
        for command in [one for one in COMMANDS if one[0] != "plan" or name == "sweep.yaml"]:
            made = called(*(trial if part == "TRIAL" else part for part in command))
            assert made.code == 2, (command, made)
            assert str(path) in made.out + made.err or "no run 'demo'" in made.err or trial in made.err, (command, made)
            assert "Traceback" not in made.err
        listed = called("runs")
        assert listed.code == 0
        assert "sweep.yaml" in name or path.name in listed.out + listed.err, listed


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_thirty_gigabytes_is_named_and_not_read(run: Run, name: str) -> None:
    path, trial = file_of(run, name), str(run.trials()[0].path)
    with open(path, "wb") as file:
        file.truncate(30 * 10**9)  # takes no disk
    for command in COMMANDS:
        made = called(*(trial if part == "TRIAL" else part for part in command))
        assert complaint(made) == "", (command, made)
        assert made.code != 2 or len(made.err.splitlines()) <= 2, (command, made.err)
    with pytest.raises((ConfigError, OSError), match=str(path)):
        readings(run, name)[0]()


def test_a_file_of_arrays_that_is_a_pipe_is_refused(run: Run) -> None:
    os.mkfifo("codes.npz")
    with unblocked(Path("codes.npz")):
        made = called("score", "codes.npz")
    assert (made.code, made.err) == (2, "codes.npz must be a file, but is a pipe, a socket or a device\n")


def test_a_folder_whose_name_is_not_text_is_read_and_resumed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disentune.driver.sweep.launch", lambda *arguments, **named: Ending("", 0))
    strange = os.fsdecode(b"runs/demo/a\xffb")
    os.rename("runs/demo/main", strange)
    for command in (["status"], ["results"], ["results", "--csv"], ["results", "--parquet"], ["verify"], ["resume"]):
        made = called(command[0], strange, *command[1:])
        assert made.code == 0, (command, made.err)
    assert Run(Path(strange)).name == "demo/a\\udcffb"
    trials, _ = compared_trials([tables.read(Run(Path(strange)))], "mig", Objective(metric="mig", mode="max"))
    assert set(trials["run"]) == {"demo/a\\udcffb"}


# ---- names that a run brings


def test_csv_spells_out_what_would_command_a_terminal(run: Run) -> None:
    file_of(run, "rows.jsonl").write_text('{"step": 1500, "metrics": {"\\u001b[31mred": 1.0, "two\\nlines": 2.0}}\n')
    made = called("results", "demo", "--csv")
    assert made.code == 0
    assert "\x1b" not in made.out
    header = next(csv.reader(io.StringIO(made.out)))
    assert "\\x1b[31mred" in header
    assert "two\nlines" in header


def test_a_key_to_group_by_that_is_given_twice_counts_once(run: Run) -> None:
    twice = called("results", "demo", "--by", "seed", "--by", "seed")
    assert twice.code == 0, twice.err
    assert twice.out == called("results", "demo", "--by", "seed").out


def test_many_metrics_are_listed_by_one_pass_over_the_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {f"m{number}": float(number) for number in range(300)}
    for trial in run.trials():
        trial.rows_path.write_text(json.dumps({"step": 1500, "metrics": {"mig": 0.5, **metrics}}) + "\n")
    looks, config_keys = [], tables.config_keys
    monkeypatch.setattr(tables, "config_keys", lambda frame: (looks.append(1), config_keys(frame))[1])
    made = called("results", "demo")
    assert made.code == 0
    assert "m299" in made.out
    assert len(looks) < 30, "not again for every metric"


def test_status_does_not_rank_by_the_loss_when_the_objective_cannot_be_read(run: Run) -> None:
    assert "best mig (last value)" in called("status", "demo").out
    file_of(run, "sweep.yaml").write_text("arms: {")
    made = called("status", "demo")
    assert made.code == 0
    assert "(last value)" not in made.out
    assert "note: the sweep cannot be read; the objective is unknown, so no trial is ranked best: " in made.out
