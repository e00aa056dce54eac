"""Sweep and search-space files that were damaged in every way: right, or refused with their line, and in no time."""

import json
import re
import shutil
from pathlib import Path
from random import Random

import pytest

from disentune.errors import ConfigError
from disentune.files import documents
from disentune.runs.preview import cost, plan_afresh
from disentune.spec import space
from disentune.spec.config import TrialConfig
from disentune.spec.sweepfile import SweepFile
from fuzz.commands import called, complaint, sheltered
from fuzz.mutations import BOMB, mutated_text, mutated_tree, spelled
from fuzz.trying import LONGEST_S, Input, inputs, wrongs

ROOT = Path(__file__).parents[2]
SWEEPS = [
    path for folder in ("sweeps", "sweeps/michlo", "sweeps/small") for path in sorted((ROOT / folder).glob("*.yaml"))
]
SPACES = sorted((ROOT / "search_spaces").glob("*.yaml"))
HEAVY = ("figure06_benchmark_grid", "tuning_lr_beta")
"""Sweeps of which reading and planning one takes a second: 160 and more trials with a dozen metrics each."""
SECONDS_A_TRIAL = 0.01
MUTANT = Path("sweeps/mutant.yaml")
LINE = re.compile(r"(sweeps/mutant|search_spaces/\w+)\.yaml:[1-9]\d*")
WHOLE = re.compile(r"(sweeps|search_spaces)/mutant\.yaml (must be a mapping|is too large)")
USER = """\
trial:
  dataset: {name: xysquares, image_size: 16, square_size: 4, grid_size: 2}
  model: {name: mlp, width: 8, latents: 3}
  framework: {name: beta_vae, beta: 1}
  recon: {name: mse}
  training: {steps: 10, batch_size: 8, learning_rate: 1e-3}
  evaluation: {metrics: [mig]}
  loss_scale: mean
arms:
  all: {search_space: mutant}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the search spaces that our sweeps use."""
    shutil.copytree(ROOT / "search_spaces", tmp_path / "search_spaces")
    (tmp_path / "sweeps").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- what may come of a file


def verdict(content: bytes) -> str:
    """What is wrong with how a sweep file was taken; nothing when it was right, or refused as it should be."""
    MUTANT.write_bytes(content)
    return refused_or_planned()


def refused_or_planned() -> str:
    try:
        asked = space.read(MUTANT)
        plan = plan_afresh(asked)
        cost(asked, plan, probe=False)
    except ConfigError as error:
        return unclear(error)
    return unsound(asked.sweep, plan.trials)


def unclear(error: ConfigError) -> str:
    """A refusal names a file and a line each time; the file alone where it is no mapping, or none at all."""
    str(error).encode()  # can be printed
    if not error.problems:
        return "" if WHOLE.match(str(error)) else f"names no line: {error}"
    strays = [problem.where for problem in error.problems if not LINE.fullmatch(problem.where)]
    empty = [problem for problem in error.problems if not problem.text.strip()]
    return f"names no line: {strays[0]}" if strays else "says nothing" if empty else ""


def unsound(sweep: SweepFile, trials: int) -> str:
    """A point of a sweep that was accepted is a trial that can be written down and read again."""
    if not trials:
        return "was accepted and has no trial"
    for arm in sweep.arms:
        config = space.trial_config(next(space.corners(sweep, arm)), sweep.seeds[0])
        if TrialConfig.parse(json.loads(json.dumps(config.tree()))).id != config.id:
            return f"arm {arm} has a trial that is another one when it is read again"
    return ""


def allowed_s(content: bytes) -> float:
    """A second; a file that is right may take longer when it asks for hundreds of trials."""
    MUTANT.write_bytes(content)
    try:
        return LONGEST_S + SECONDS_A_TRIAL * plan_afresh(space.read(MUTANT)).trials
    except ConfigError:
        return LONGEST_S


def sweep_inputs(path: Path, count: int) -> list[Input]:
    """Every other one is damaged as a text, the rest as a tree."""
    text = path.read_text()
    tree = documents.parse(text, path.name).value

    def make(rng: Random) -> bytes:
        if rng.random() < 0.5:
            return mutated_text(text, rng)
        return spelled(mutated_tree(tree, rng)).encode(errors="surrogatepass")

    return inputs(str(path.relative_to(ROOT)), count, make)


# ---- sweeps


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_sweeps_are_right_before_they_are_damaged(folder: Path, path: Path) -> None:
    assert verdict(path.read_bytes()) == ""
    space.read(MUTANT)


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_damaged_sweep_is_right_or_refused_with_its_line(folder: Path, path: Path) -> None:
    found = wrongs(sweep_inputs(path, 10 if path.stem in HEAVY else 90), verdict, allowed_s)
    assert not found, found


@pytest.mark.parametrize("path", [path for path in SWEEPS if path.stem not in HEAVY], ids=lambda path: path.stem)
def test_the_command_says_no_less(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan` also shows what it has found, perceived distances among it."""
    sheltered(monkeypatch)

    def planned(content: bytes) -> str:
        MUTANT.write_bytes(content)
        return complaint(called("plan", str(MUTANT)))

    tried = [one._replace(origin=f"plan of {one.origin}") for one in sweep_inputs(path, 3)]
    found = wrongs(tried, planned, lambda content: 5 * LONGEST_S)
    assert not found, found


# ---- search spaces


def space_verdict(content: bytes) -> str:
    Path("search_spaces/mutant.yaml").write_bytes(content)
    return refused_or_planned()


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_a_damaged_search_space_is_right_or_refused_with_its_line(folder: Path, path: Path) -> None:
    MUTANT.write_text(USER)
    found = wrongs(sweep_inputs(path, 60), space_verdict)
    assert not found, found


# ---- once


OPTUNA = "search: {name: optuna, points: 4}\nobjective: {metric: mig, mode: max}\n"
NAMES = f"{{grid: [{', '.join(f'n{number}' for number in range(1000))}]}}"
ONCE = {
    "half a character": 'question: "\\ud800"\n',
    "half a character as a key": 'wandb: {"\\udfff": 1}\n',
    "no path has this": 'data: {root: "/a\\0b"}\n',
    "a key of 5000 digits": f'wandb:\n  ? "{"9" * 5000}"\n  : 1\n',
    "an endless filter": f"figures: [{{name: violins, only: 'a{'.a' * 490} == 1'}}]\n",
    "a million names to combine": f"{OPTUNA}arms: {{a: {{framework.name: {NAMES}, model.name: {NAMES}}}}}\n",
    "a thousand search spaces": f"arms: {{a: {{search_space: [{'beta, ' * 500}]}}}}\n",
    "a network that no machine holds": "arms: {a: {model.width: 60000}}\n",
    "a network without end": "arms: {a: {model.depth: 1000000}}\n",
    "points without end": "arms: {a: {dataset: {name: pinwheel, points: 1e9}}}\n",
    "an infinite number of steps": "arms: {a: {evaluation.metrics: [{name: mig, every: .inf}]}}\n",
    "a number that no table holds": "arms: {a: {training.log_every: 1e30}}\n",
}


@pytest.mark.parametrize("extra", ONCE.values(), ids=ONCE)
def test_what_once_failed_or_took_for_ever_is_refused_at_once(folder: Path, extra: str) -> None:
    text = USER.partition("arms:")[0] + extra
    MUTANT.write_text(text)
    with pytest.raises(ConfigError):
        cost(space.read(MUTANT), plan_afresh(space.read(MUTANT)), probe=False)
    found = wrongs([Input("once", 0, text.encode())], verdict)
    assert not found, found


@pytest.mark.parametrize(
    "text",
    ["[" + "1, " * 5000, "\n".join(f"k{n}: 1" for n in range(2500)), "a: " + "x " * 50_000, "a: |\n" + "  x\n" * 25_000,
     "# x\n" * 25_000, "\n" * 100_000, "%A b\n" * 20_000, "a: &" + "x" * 99_000, '"' + "x" * 99_000, "- " * 50_000,
     "{a: " * 25_000, "a: '" + "''" * 49_000, "\t" * 99_000, "a: 1" + "_" * 99_000, "!" + "%41" * 33_000, BOMB],
    ids=lambda text: f"{text[:8]!r}",
)  # fmt: skip
def test_a_hundred_kilobytes_of_anything_take_less_than_a_second(folder: Path, text: str) -> None:
    """Of a tenth of the largest file; the time grows with the length and no faster."""
    found = wrongs([Input("long", 0, text.encode())], verdict)
    assert not found, found
