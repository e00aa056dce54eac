"""Every wrong input gets one message and exit code 2; other endings have their own codes."""

import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from disentune.cli.app import help_text
from disentune.errors import CRASHED, DONE, INTERRUPTED, SOME_FAILED, UNAVAILABLE, WRONG_INPUT, Unavailable
from processes import patience_s
from simulator import sweep_file

QUICKSTART = Path(__file__).parents[2] / "sweeps" / "quickstart.yaml"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["resume", "nothing"], "no run 'nothing'"),
        (["results", "../../etc"], "no run"),
        (["status", "nothing"], "There are no runs in 'runs' yet; start one with: disentune run SWEEP"),
        (["list", "framework"], "Did you mean 'frameworks'?"),
        (["run", str(QUICKSTART), "--name", "../escape"], "--name '../escape'"),
        (["run", str(QUICKSTART), "--storage", "ftp://host/runs"], "ftp:// is not supported; must be a folder"),
        (["run", str(QUICKSTART), "--set", "training.steps"], "must be key=value"),
        (["run", str(QUICKSTART), "--set", "training.step=3"], "Did you mean 'steps'?"),
        (["run", str(QUICKSTART), "--only", "framework.nam == 1"], "framework.nam"),
        (["run", str(QUICKSTART), "--only", "import os"], "cannot be read"),
        (["plan", str(QUICKSTART), "--set", "search=gird"], "must be one of grid, random, optuna"),
        (["train", str(QUICKSTART), "--only", "seed == 99"], "none of the 18 trials"),
    ],
)
def test_wrong_arguments_are_refused_in_one_message(disentune, arguments, expected):
    code, out, err = disentune(*arguments)
    assert code == 2
    assert expected in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize("command", ["plan", "run"])
def test_mistakes_of_the_options_come_in_the_round_of_those_in_the_file(disentune, tmp_path, command):
    wrong = ["--set", "training.lr=1", "--set", "nonsense", "--set", "arms.b.seed=1", "--set", "stop.step=5"]
    options = [*wrong, "--name", "a b", "--only", "beta == 32"]
    (tmp_path / "demo.yaml").write_text(QUICKSTART.read_text().replace("latents: 9", "latents: nine"))
    code, out, err = disentune(command, "demo.yaml", *options)
    assert (code, out) == (2, "")
    subject, *lines = err.splitlines()
    assert subject == "demo.yaml cannot run:"
    assert [re.split(" {2,}", line.strip())[0] for line in lines] == [
        "--name 'a b'", "--only 'beta == 32'", "--set arms.b.seed", "--set nonsense", "--set stop.step",
        "--set training.lr", "demo.yaml:8",
    ]  # fmt: skip
    texts = [
        "must have only letters, digits",
        "unknown key 'beta'. Did you mean 'framework.beta'?",
        "unknown arm 'b'. Known: adversarial, overlapping, rescued",
        "must be key=value, for example --set training.steps=100",
        "stop.step: unknown key. Did you mean 'steps'?",
        "training.lr: unknown key. Did you mean 'learning_rate'?",
        "model.latents: must be a whole number, got 'nine'",
    ]
    assert [text in line for text, line in zip(texts, lines, strict=True)] == [True] * 7


def test_two_wrong_options_of_a_right_file_come_in_one_round(disentune):
    code, _, err = disentune("plan", str(QUICKSTART), "--name", "a b", "--only", "seed <")
    assert code == 2
    assert re.findall("^  --(name|only) ", err, re.MULTILINE) == ["name", "only"]


def test_a_filter_by_a_key_that_only_an_own_plugin_may_have_is_not_refused_before_the_file_is_read(disentune, tmp_path):
    (tmp_path / "demo.yaml").write_text(QUICKSTART.read_text().replace("seeds: 3", "seeds: three"))
    code, _, err = disentune("plan", "demo.yaml", "--only", "framework.mine == 1")
    assert code == 2
    assert "seeds: must be" in err
    assert "--only" not in err


def test_the_version_names_what_bugs_depend_on_and_loads_none_of_it():
    code = (
        "import sys; from disentune.cli.app import main; sys.argv = ['disentune', '--version']\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, sorted({'torch', 'ray', 'numpy', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patience_s(120))
    found = {name: version(name) for name in ("disentune", "ray", "torch")}
    ours = "disentune {disentune} (Python {python}, ray {ray}, torch {torch})\n"
    assert done.stdout == ours.format(python=platform.python_version(), **found) + "0 []\n"


def test_prose_of_help_is_one_line_per_paragraph_and_lists_keep_their_lines():
    prose, table, examples = "Runs\na sweep.", "\b\none  1\ntwo  2", "Examples:\ndisentune list\ndisentune plan"
    assert help_text("\n\n".join([prose, table, examples])).split("\n\n") == ["Runs a sweep.", table, examples]


def test_help_groups_the_commands_and_names_every_exit_code(disentune):
    code, out, _ = disentune("--help")
    panels = ["Start", "Run", "Look at results", "Cluster, data and W&B"]
    places = [out.index(f"─ {panel} ─") for panel in panels]
    assert code == 0
    assert places == sorted(places)
    assert "─ Commands ─" not in out  # where a command without a panel would be
    codes = [int(found) for found in re.findall(r"(\d+) (?:[a-z])", " ".join(out[out.index("Exit codes") :].split()))]
    assert codes == [DONE, SOME_FAILED, WRONG_INPUT, CRASHED, UNAVAILABLE, INTERRUPTED]


@pytest.mark.slow
def test_a_full_disk_behind_standard_output_is_not_called_the_storage(finished):
    command = [sys.executable, "-m", "disentune.cli", "results", str(finished.path)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command, "--csv"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=patience_s(120)
        )
    assert (done.returncode, done.stderr) == (2, "standard output cannot be written: No space left on device\n")


def test_a_ray_that_does_not_answer_ends_with_75(disentune, monkeypatch, tmp_path):
    def launch(*_):
        raise Unavailable("a local Ray could not be started (took too long); 3 attempts failed")

    monkeypatch.setattr("disentune.driver.sweep.launch", launch)
    code, _, err = disentune("run", sweep_file(tmp_path))
    assert code == 75
    assert "a local Ray could not be started" in err
