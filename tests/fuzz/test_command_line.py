"""Every option of every command with values that nobody should give, and argument lists from a grammar: a message and
exit code 0, 1 or 2, never a traceback."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from disentune.runs.archive import pack
from disentune.runs.ledger import Run
from fuzz.commands import REACHED, Option, called, complaint, options, sheltered
from fuzz.trying import scaled
from simulator import simulate, sweep_file

BASES: dict[tuple[str, ...], tuple[list[str], list[str]]] = {
    ("quickstart",): ([], ["--storage", "other_runs"]),
    ("new",): (["fresh"], []),
    ("compare",): (["tiny"], ["--by", "dataset.spacing"]),
    ("analyse",): (["tiny"], ["--analysis", "variance_explained"]),
    ("report",): (["tiny"], []),
    ("dashboard",): ([], ["--port", "99999999", "--no-browser"]),  # refused, so that no server is started
    ("inspect",): ([], ["--dataset", "xysquares", "--set", "image_size=8", "--set", "square_size=4", "--json"]),
    ("sync",): (["tiny"], []),
    ("submit",): (["tiny.yaml"], ["--storage", "/dev/null"]),
    ("list",): ([], []),
    ("plan",): (["tiny.yaml"], ["--name", "new"]),
    ("run",): (["tiny.yaml"], ["--name", "new"]),
    ("resume",): (["tiny"], []),
    ("stop",): (["tiny"], ["--wait"]),
    ("runs",): ([], []),
    ("clean",): (["tiny"], ["--pictures", "--dry-run"]),
    ("archive",): (["tiny", "tiny.tar.zst"], []),
    ("export",): (["tiny/trials/0"], ["--to", "safetensors"]),
    ("encode",): (["tiny/trials/0", "images.npz"], ["--output", "out.npz"]),
    ("restore",): (["packed.tar.zst"], ["--storage", "restored"]),
    ("status",): (["tiny"], []),
    ("results",): (["tiny"], []),
    ("score",): (["codes.npz"], ["--metrics", "mig", "--json"]),
    ("train",): (["tiny.yaml"], []),
    ("verify",): (["tiny"], []),
    ("data", "list"): ([], []),
    ("data", "prepare"): (["dsprites"], ["--root", "data"]),
    ("data", "export"): (["xy_single_square", "out.h5"], []),
    ("data", "verify"): ([], ["--root", "data"]),
    ("cluster", "check"): (["cluster.yaml"], []),
    ("cluster", "verify"): ([], []),
}  # fmt: skip
"""Of each command arguments and options that are right; whatever would be written lies below the working folder."""
VALUES = [
    "", " ", "-", "--", "-x", "--json", ".", "..", "../..", "/dev/null", "/proc/nowhere", "x" * 300, "x" * 5000, "é",
    "\u202e", "\udcff", "[/]", "[red]", "a\nb", "\x1b[31m", "{", "[", "a=b", "=", "a=", "=b", "seeds=1", "seeds=x",
    "training.steps=.nan", "arms=5", "arms.x.y=1", "training.steps={grid: [1, 2]}", "name=..", "data.root=/a",
    'data.root="/a\\0b"', "seeds=" + "[" * 200, "mig.bins=1e400", "spacing=nan", "dataset.path=1", "a:b", "nowhere:X",
    "os:system", "disentune.cli.app:app", ":", "s3:", "s3://", "s3://a b", "s3://ab/../c", "s3://u:p@ab/x?y", "ftp://x/y",
    "http://", "http://[::1", "~nobody/x", "%s", "{0}", "$HOME", "$(id)", "*", "0", "1", "-1", "1.5", "nan", "inf",
    "1e400", "9" * 30, "9" * 5000, "null", "true", "[]", "seed == 1", "seed ==", "a" + ".a" * 450, "mig", "mig,,dci",
    ",", "udr", "max", "fast", "frameworks", "dsprites", "dataset.spacing", "sweep.yaml", "tiny", "tiny/main",
    "tiny.yaml", "codes.npz", "cluster.yaml", "folder",
]  # fmt: skip
CALLS_PER_OPTION = 24


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with a sweep, a finished run, arrays and a cluster file; deep, so that `..` stays inside."""
    root = tmp_path_factory.mktemp("world") / "a" / "b" / "c"
    root.mkdir(parents=True)
    path = sweep_file(root)
    simulate(Run(root / "runs" / "tiny" / "main"), path, np.random.default_rng(0), overrides=SMALL)
    rng = np.random.default_rng(0)
    np.savez(root / "codes.npz", codes=rng.normal(size=(50, 3)), factors=rng.integers(0, 3, (50, 2)))
    np.savez(root / "images.npz", images=rng.integers(0, 256, (2, 3, 8, 8), np.uint8))
    shutil.copy(Path(__file__).parents[2] / "cluster.yaml", root)
    (root / "folder").mkdir()
    pack(Run(root / "runs" / "tiny" / "main"), root / "packed.tar.zst")
    yield root
    assert Path("/dev/null").is_char_device(), "a command has replaced the device, as root can"


SMALL = ["seeds=3", "arms.near.framework.beta=1", "arms.far.framework.beta=1"]


@pytest.fixture
def shell(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    sheltered(monkeypatch)


def line_with(option: Option, value: str) -> list[str]:
    arguments, given = BASES[option.command]
    if option.name is None:
        return [*option.command, value, *given]
    return [*option.command, *arguments, *given, option.name, *([] if option.is_flag else [value])]


def refusals(lines: list[list[str]]) -> list[str]:
    """What is wrong with how each of these ended, with the line to call it by."""
    found = []
    for line in lines:
        made = called(*line)
        if said := complaint(made):
            found.append(f"{said}: {line!r:.400}\n{made.err[-1500:]}")
    return found


def test_every_command_has_a_line_here() -> None:
    assert {option.command for option in options()} == BASES.keys()


@pytest.mark.parametrize("command", BASES, ids=" ".join)
def test_the_bases_are_right(shell: None, command: tuple[str, ...]) -> None:
    """All that is given is taken: a command ends well, or where it would begin."""
    arguments, given = BASES[command]
    made = called(*command, *arguments, *given)
    assert complaint(made) == ""
    reached = [REACHED, "needs a key", "fresh.yaml already exists", "exists already", "less than or equal to 65535"]
    assert made.code == 0 or any(text in made.err for text in reached) or "errors:" in made.out


@pytest.mark.parametrize("option", options(), ids=lambda option: " ".join([*option.command, option.name or "ARGUMENT"]))
def test_a_wrong_value_is_refused_in_words(shell: None, option: Option) -> None:
    count = 1 if option.is_flag else min(scaled(CALLS_PER_OPTION), len(VALUES))
    values = random.Random(f"{option}").sample(VALUES, count)
    assert refusals([line_with(option, value) for value in values]) == []


def random_line(seed: int) -> list[str]:
    """A command, and options of it or of another, in any order and number."""
    rng = random.Random(seed)
    known = options()
    command = rng.choice(list(BASES))
    arguments, given = BASES[command]
    line = [*(arguments if rng.random() < 0.7 else [rng.choice(VALUES)]), *(given if rng.random() < 0.7 else [])]
    for _ in range(rng.randint(0, 4)):
        own = [option for option in known if option.command == command] if rng.random() < 0.8 else known
        option = rng.choice(own)
        line += [option.name] if option.name else []
        line += [] if option.is_flag and rng.random() < 0.9 else [rng.choice(VALUES)]
    if rng.random() < 0.2:
        rng.shuffle(line)
    return [*command, *line] if rng.random() < 0.95 else line


@pytest.mark.parametrize("block", range(12))
def test_any_line_of_arguments_ends_as_a_command_may(shell: None, block: int) -> None:
    count = scaled(30)
    assert refusals([random_line(seed) for seed in range(count * block, count * block + count)]) == []


ONCE = [
    ["data", "list", "--root", "[/]"],
    ["plan", "tiny.yaml", "--storage", "\udcff"],
    ["plan", "tiny.yaml", "--set", "resources.cpu=5e-324"],
    ["inspect", "--dataset", "xysquares", "--lines", "9" * 30],
    ["cluster", "check", "cluster.yaml", "--sweep", "9" * 5000],
    ["plan", "tiny.yaml", "--only", "a" + ".a" * 490],
    ["plan", "tiny.yaml", "--set", 'data.root="/a\\0b"'],
]


@pytest.mark.parametrize("line", ONCE, ids=lambda line: " ".join(line)[:60])
def test_what_once_crashed_ends_as_a_command_may(shell: None, line: list[str]) -> None:
    assert refusals([line]) == []
