"""What the sources never do, where keys never come to stand, and that every package is the one that was tested."""

import ast
import importlib.metadata
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import disentune
from disentune import streaming, submission
from disentune.environment import SHORTEST_SECRET, without_secrets
from disentune.ledger import Run
from disentune.search import words
from disentune.space import read
from disentune.sweepfile import read_sweep
from simulator import simulate, sweep_file

ROOT = Path(disentune.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# ---- what the sources never do

UNPICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp", "shutil.unpack_archive",
    "pandas.read_pickle", "pd.read_pickle", "ssl._create_unverified_context", "importlib.import_module",
    "runpy.run_path", "runpy.run_module", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter",
}  # fmt: skip
METHODS = {"extractall", "unpack_archive", "read_pickle", "load_module", "unsafe_load", "full_load", "load_all"}
ALLOWED = {
    ("plugin.py", "importlib.import_module"): "a user's own plug-in by its import path, and the docstrings of ours",
    ("clusterfile/reading.py", "yaml"): "Ray reads cluster files as YAML 1.1; composed by SafeLoader, nothing is made",
    ("documents.py", "ruamel"): "our one reader of YAML, of which only scalars, lists and mappings come",
}
"""Where one of these stands, and why it may."""


def called(node: ast.Call) -> str:
    """`os.system` of `os.system("x")`; of a method of something made on the spot only its name."""
    return ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""


def given(node: ast.Call, name: str) -> Any:
    """A keyword's constant; ... when it is there and no constant, None without it."""
    values = [keyword.value for keyword in node.keywords if keyword.arg == name]
    return None if not values else values[0].value if isinstance(values[0], ast.Constant) else ...


def dangers_of_call(node: ast.Call) -> Iterator[str]:
    name = called(node)
    if name in FORBIDDEN:
        yield name
    if name.rpartition(".")[2] in METHODS:
        yield name
    if name == "torch.load" and given(node, "weights_only") is not True:
        yield "torch.load without weights_only=True"
    if given(node, "allow_pickle") not in (None, False):
        yield "allow_pickle"
    if given(node, "shell") not in (None, False):
        yield "shell=True"
    if given(node, "verify") is False:
        yield "verify=False"
    if name.endswith("YAML") and given(node, "typ") not in ("safe", "rt"):
        yield "YAML that constructs objects"


def dangers(source: str) -> set[str]:
    """Ways to run code of a file, of a text or of a stranger."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            found |= set(dangers_of_call(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            modules += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            tops = {module.split(".")[0] for module in modules}
            found |= {top for top in tops if top in UNPICKLERS or top in ("yaml", "ruamel")}
    return found


def test_no_source_runs_what_it_reads_but_for_what_is_said_here() -> None:
    found = {(str(path.relative_to(ROOT)), what) for path in FILES for what in dangers(path.read_text())}
    assert found == ALLOWED.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "from ray import cloudpickle", "import joblib", "import shelve",
        "import marshal as m", "def f():\n    import dill", "torch.load(x)", "torch.load(x, weights_only=False)",
        "torch.load(x, weights_only=y)", "np.load(x, allow_pickle=True)", "np.load(x, allow_pickle=y)", "eval('1')",
        "exec(x)", "os.system('x')", "subprocess.run(x, shell=True)", "subprocess.Popen(x, shell=y)",
        "tempfile.mktemp()", "requests.get(x, verify=False)", "archive.extractall()", "tarfile.open(x).extractall(y)",
        "import yaml", "from ruamel.yaml import YAML", "YAML(typ='unsafe')", "YAML()", "pd.read_pickle(x)",
        "__import__(x)",
    ],
)  # fmt: skip
def test_each_of_these_would_be_found(source: str) -> None:
    assert dangers(source)


@pytest.mark.parametrize(
    "source",
    ["model.eval()", "torch.load(x, weights_only=True)", "np.load(x)", "np.load(x, allow_pickle=False)",
     "json.loads(x)", "subprocess.run([x])", "tempfile.mkdtemp()", "requests.get(x)", "YAML(typ='safe')",
     "re.compile(x)"],
)  # fmt: skip
def test_none_of_these_is_a_danger(source: str) -> None:
    assert not dangers(source)


# ---- keys


KEYS = ("WANDB_API_KEY", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY")
TALKATIVE = """
import os
from disentune.frameworks import beta_vae
from disentune.plugin import Framework

def loss(*arguments):
    raise RuntimeError(f"here is all: {dict(os.environ)}")

FRAMEWORK = Framework(name="talkative", params=beta_vae.Params, loss=loss)
"""


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Keys of this machine's owner, as long as real ones."""
    found = [secrets.token_hex(20) for _ in KEYS]
    for name, key in zip(KEYS, found, strict=True):
        monkeypatch.setenv(name, key)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


def holders(folder: Path, keys: list[str]) -> list[Path]:
    """Files in which a key stands."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if any(key.encode() in path.read_bytes() for key in keys)]


def told(keys: list[str], *texts: str) -> list[str]:
    return [key for key in keys if any(key in text for text in texts)]


def test_no_key_of_the_environment_comes_to_stand_in_a_run_or_on_a_screen(
    planted: list[str], tmp_path: Path, disentune: Callable[..., tuple[int, str, str]]
) -> None:
    path = sweep_file(tmp_path, extra="wandb: {project: demo}\npictures: last")
    simulate(Run(tmp_path / "runs" / "tiny" / "main"), path, np.random.default_rng(0), overrides=["seeds=1"])
    said = [
        disentune("plan", path), disentune("status", "tiny"), disentune("results", "tiny"), disentune("report", "tiny"),
        disentune("resume", "nothing"), disentune("plan", path, "--set", "training.stps=1"),
        disentune("train", path, "--set", "training.steps=2"),
    ]  # fmt: skip
    assert [code for code, _, _ in said] == [0, 0, 0, 0, 2, 2, 0]
    assert told(planted, *(out + err for _, out, err in said)) == []
    assert holders(tmp_path, planted) == []


def test_an_error_that_tells_the_whole_environment_is_kept_without_its_keys(
    planted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disentune: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    monkeypatch.syspath_prepend(tmp_path)
    path = sweep_file(tmp_path)
    own = ["seeds=1", "framework={name: 'talkative:FRAMEWORK', beta: 1}"]
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0), overrides=own)
    sys.modules.pop("talkative")
    assert "here is all" in run.trials()[0].status().cause
    assert "here is all" in run.trials()[0].errors_path.read_text()
    assert holders(tmp_path, planted) == []
    sets = [part for change in own for part in ("--set", change)]
    said = [disentune("status", "tiny"), disentune("train", path, *sets), disentune("plan", path, *sets, "--probe")]
    assert [code for code, _, _ in said] == [0, 70, 2]  # a user's own code that fails in `train` is met as it is
    assert "here is all" in said[1][2]
    assert told(planted, *(out + err for _, out, err in said)) == []


def test_what_ray_says_of_an_error_is_passed_on_without_keys(planted: list[str]) -> None:
    assert words(RuntimeError(f"refused {planted[0]} and {planted[1]}")) == "refused *** and ***"


def test_a_path_and_a_short_word_are_no_secrets() -> None:
    variables = {
        "SSH_KEY_FILE": "/home/me/.ssh/key",
        "MY_KEY": "a" * (SHORTEST_SECRET - 1),
        "EDITOR": "longer-than-eight",
    }
    text = " ".join(variables.values())
    assert without_secrets(text, variables) == text
    assert without_secrets("x hush-hush-hush y", {"db_password": "hush-hush-hush"}) == "x *** y"


def test_no_key_is_sent_with_a_job(planted: list[str], tmp_path: Path) -> None:
    """Whoever sees the dashboard sees a job's command, its settings and its files."""
    sweep = read(sweep_file(tmp_path))
    sent: dict[str, Any] = {}

    def submit_job(**what: Any) -> str:
        sent.update(what, found=holders(Path(what["runtime_env"]["working_dir"]), planted))
        return "job"

    client = SimpleNamespace(list_jobs=list, submit_job=submit_job)
    assert submission.submit(client, submission.Job(sweep, "main", "/shared", ["--only", "seed == 0"])) == "job"
    assert sent["found"] == []
    assert told(planted, repr(sent)) == []


def test_no_key_stands_in_the_command_of_a_child(planted: list[str], tmp_path: Path, make_run: Callable) -> None:
    """Every user of a machine may read the commands of its processes; the environment of a process its owner alone."""
    maker = make_run()
    maker.sweep(wandb={"project": "demo"})
    maker.trial([{"step": 300, "loss": 1.0, "mig": 0.1}])
    child = streaming._started(maker.run)
    assert child.stdin is not None
    child.stdin.close()
    seen = ""
    while child.poll() is None:
        seen += commands_of(child.pid)
        time.sleep(0.02)
    assert child.returncode == 0, maker.run.tracking_log.read_text()
    assert "disentune.tracking" in seen
    assert "wandb-core" in seen, "W&B's own process is among them"
    assert told(planted, seen) == []
    assert holders(maker.run.path, planted) == []


def commands_of(pid: int) -> str:
    """Of a process and of all that it has started."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return " ".join(word for one in [process, *process.children(recursive=True)] for word in one.cmdline())
    return ""


def test_a_refused_key_in_a_sweep_is_not_repeated(planted: list[str], tmp_path: Path) -> None:
    path = sweep_file(tmp_path, extra=f"wandb: {{api_key: {planted[0]}}}")
    with pytest.raises(Exception, match="a key is never read from a file") as caught:
        read_sweep(path)
    assert told(planted, str(caught.value)) == []


# ---- packages

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def pinned() -> dict[str, str]:
    """Versions by canonical name. Every line that is no comment is one."""
    found = {}
    for line in CONSTRAINTS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, version = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", line).groups()  # type: ignore[union-attr]
            assert canonicalize_name(name) not in found, f"{name} stands there twice"
            found[canonicalize_name(name)] = version
    return found


def needed(name: str, extras: frozenset[str], known: dict[str, set[str]]) -> dict[str, set[str]]:
    """A package and all that it needs here, by canonical name, with the extras that are asked of each."""
    asked = known.setdefault(canonicalize_name(name), set())
    if extras <= asked and asked:
        return known
    asked |= extras or {""}
    for text in importlib.metadata.distribution(name).requires or ():
        requirement = Requirement(text)
        worlds = [{"extra": extra} for extra in extras or {""}]
        if requirement.marker is None or any(requirement.marker.evaluate(world) for world in worlds):
            needed(requirement.name, frozenset(requirement.extras), known)
    return known


def test_every_package_that_is_needed_is_pinned_to_the_version_that_is_installed() -> None:
    names = needed("disentune", frozenset({"dev"}), {}).keys() - {"disentune"}
    assert len(names) > 100
    installed = {name: Version(importlib.metadata.version(name)).public for name in names}  # 2.13.0 of 2.13.0+cpu
    assert {name: pinned().get(name) for name in names} == installed


def test_every_line_of_the_constraints_is_a_pin() -> None:
    assert len(pinned()) >= 140
