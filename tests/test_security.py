"""What the sources never do, where keys never come to stand, and that every package is the one that was tested."""

import ast
import errno
import importlib.metadata
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
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
from conftest import TRIAL
from disentune import load
from disentune.cluster import submission
from disentune.driver.search import words
from disentune.environment import SHORTEST_SECRET, without_secrets
from disentune.errors import ConfigError, without_keys
from disentune.files import documents
from disentune.runs.ledger import Run
from disentune.spec.space import check, read
from disentune.spec.sweepfile import read_sweep
from disentune.tracking import sending, streaming
from processes import little_memory, patience_s
from simulator import Death, simulate, sweep_file

ROOT = Path(disentune.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# ---- what the sources never do

UNPICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec", "builtins.compile", "os.system",
    "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell",
    "tempfile.mktemp", "shutil.unpack_archive", "pandas.read_pickle", "ssl._create_unverified_context",
    "importlib.import_module", "pkgutil.resolve_name", "runpy.run_path", "runpy.run_module", "torch.jit.load",
    "torch.hub.load",
    "torch.package.PackageImporter", "torch.serialization.load", "markupsafe.Markup", "jinja2.Markup", "ssl.CERT_NONE",
}  # fmt: skip
FAMILIES = re.compile(r"os\.(exec|spawn|posix_spawn)\w*")
METHODS = {
    "extractall", "extract", "unpack_archive", "read_pickle", "load_module", "exec_module", "unsafe_load", "full_load",
    "load_all",
}  # fmt: skip
LOADERS = {"numpy.load": 2, "torch.load": 1}
"""And how many of their arguments may come without a name."""
ALLOWED = {
    ("__init__.py", "importlib.import_module"): "the four names of the Python API, constants of that file",
    ("runs/suggest.py", "pickle"): "Optuna's state of CMA-ES, of which nothing but numbers and the optimiser is made",
    ("plugin.py", "importlib.import_module"): "a user's own plug-in by its import path, and the docstrings of ours",
    ("driver/ray_internals.py", "pkgutil.resolve_name"): "parts of Ray by names that are constants of that file",
    ("report/page.py", "markupsafe.Markup"): "figures of our own making, and our own style sheet and script",
    (
        "cluster/check/reading.py",
        "yaml",
    ): "Ray reads cluster files as YAML 1.1; composed by SafeLoader, nothing is made",
    ("files/documents.py", "ruamel"): "our one reader of YAML, of which only scalars, lists and mappings come",
}
"""Where one of these stands, and why it may."""


def imported(tree: ast.AST) -> dict[str, str]:
    """What each name that a file imports stands for: `np` for numpy, `system` for os.system."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name.split(".")[0]: one.name if one.asname else one.name.split(".")[0]
                      for one in node.names}  # fmt: skip
        if isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def resolved(node: ast.AST, names: dict[str, str]) -> str:
    """`os.system`, also where it has another name; of a method of something made on the spot only its name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{resolved(node.value, names)}.{node.attr}"
    return ""


def given(node: ast.Call, name: str) -> Any:
    """A keyword's constant; ... when it is there and no constant, None without it."""
    values = [keyword.value for keyword in node.keywords if keyword.arg == name]
    return None if not values else values[0].value if isinstance(values[0], ast.Constant) else ...


def dangers_of_call(node: ast.Call, name: str) -> Iterator[str]:
    if name.rpartition(".")[2] in METHODS:
        yield name
    if name in LOADERS and (len(node.args) > LOADERS[name] or any(one.arg is None for one in node.keywords)):
        yield f"{name} with arguments that are not seen"
    if name == "torch.load" and (given(node, "weights_only") is not True or given(node, "pickle_module") is not None):
        yield "torch.load without weights_only=True"
    for keyword in ("allow_pickle", "shell"):
        if given(node, keyword) not in (None, False):
            yield keyword
    for keyword in ("verify", "autoescape"):
        if given(node, keyword) is False:
            yield f"{keyword}=False"
    if name.endswith("YAML") and given(node, "typ") not in ("safe", "rt"):
        yield "YAML that constructs objects"
    if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        yield from (name for name in FORBIDDEN if name.rpartition(".")[2] == node.args[1].value)


def dangers(source: str) -> set[str]:
    """Ways to run code of a file, of a text or of a stranger."""
    tree, found = ast.parse(source), set[str]()
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = resolved(node, names)
            found |= {name} if name in FORBIDDEN or FAMILIES.fullmatch(name) else set()
        if isinstance(node, ast.Attribute) and node.attr == "verify" and isinstance(node.ctx, ast.Store):
            found.add("verify")
        if isinstance(node, ast.Call):
            found |= set(dangers_of_call(node, resolved(node.func, names)))
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [one.name for one in node.names] + (
                [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            )
            found |= {part for module in modules for part in module.split(".") if part in UNPICKLERS}
            found |= {module.split(".")[0] for module in modules if module.split(".")[0] in ("yaml", "ruamel")}
    return found


def test_no_source_runs_what_it_reads_except_for_the_listed_cases() -> None:
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
        "from os import system\nsystem('x')", "from torch import load\nload(x)",
        "import importlib as i\ni.import_module(x)", "from importlib import import_module\nimport_module(x)",
        "import ray.cloudpickle", "import numpy as np\nnp.load(x, 'r', True)", "import numpy as np\nnp.load(x, **y)",
        "os.execv(x, y)", "import torch\ntorch.load(x, weights_only=True, pickle_module=p)",
        "torch.serialization.load(x)", "archive.extract(x)", "import builtins\nbuiltins.eval(x)",
        "getattr(os, 'system')(x)", "f = eval", "subprocess.getoutput(x)", "loader.exec_module(x)",
        "session.verify = False", "context.verify_mode = ssl.CERT_NONE", "from markupsafe import Markup\nMarkup(x)",
        "Environment(autoescape=False)", "map(os.system, x)", "import yaml", "from ruamel.yaml import YAML",
        "YAML(typ='unsafe')", "YAML()", "import pandas as pd\npd.read_pickle(x)", "frame.read_pickle(x)",
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


@pytest.mark.slow
def test_no_key_of_the_environment_appears_in_a_run_or_on_a_screen(
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


def test_an_error_that_contains_the_whole_environment_is_stored_without_its_keys(
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


STORED = """
import errno
import os
from disentune.frameworks import beta_vae
from disentune.plugin import Framework

def loss(*arguments):
    raise OSError(errno.EIO, f"here is all: {dict(os.environ)}", os.environ["WANDB_API_KEY"])

FRAMEWORK = Framework(name="stored", params=beta_vae.Params, loss=loss)
"""


def test_what_a_worker_raises_to_ray_reveals_no_key(
    planted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray writes the error and its traceback to files that every user of the machine may read."""
    (tmp_path / "stored.py").write_text(STORED)
    monkeypatch.syspath_prepend(tmp_path)
    own = ["seeds=1", "framework={name: 'stored:FRAMEWORK', beta: 1}"]
    with pytest.raises(OSError, match="here is all") as caught:
        simulate(
            Run(tmp_path / "runs" / "tiny" / "main"), sweep_file(tmp_path), np.random.default_rng(0), overrides=own
        )
    sys.modules.pop("stored")
    assert caught.value.errno == errno.EIO
    assert told(planted, "".join(traceback.format_exception(caught.value)), repr(caught.value.args)) == []


def test_what_an_older_version_kept_with_its_keys_is_shown_without(
    planted: list[str], make_run: Callable, disentune: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    maker = make_run()
    folder = maker.run.trial(maker.trial([{"step": 300, "loss": 1.0}], status="failed"))
    folder.update_status(cause=f"RuntimeError: {planted[0]}\n{planted[1]}")
    folder.append_row({"step": 600, "metrics": {"loss": 1.0}, "notes": {"mig": f"refused {planted[2]}"}})
    lines = [["status"], ["status", "--json"], ["status", "--watch"], ["status", "--watch", "--json"], ["results"],
             ["report"]]  # fmt: skip
    said = [disentune(line[0], maker.run.path, *line[1:]) for line in lines]
    assert [code for code, _, _ in said] == [0] * len(lines)
    assert told(planted, *(out + err for _, out, err in said)) == []
    page = (maker.run.report_folder / "index.html").read_text()
    assert "RuntimeError: ***" in page
    assert told(planted, page) == []


def test_a_number_in_the_environment_changes_no_digit_of_a_result(
    monkeypatch: pytest.MonkeyPatch, make_run: Callable, disentune: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setenv("MAX_TOKENS", "0.391938")
    monkeypatch.setenv("KEY_RATIO", "39193812")
    monkeypatch.setenv("A_TOKEN", '"metrics":')  # JSON's own signs are no text either
    maker = make_run()
    maker.trial([{"step": 1500, "loss": 1.0, "mig": 0.3919381234567, "dci": 1.5e-12}])
    code, out, _ = disentune("results", maker.run.path, "--json")
    assert (code, json.loads(out)[0]["metrics"]["mig"]) == (0, 0.3919381234567)
    assert "0.391938" in disentune("results", maker.run.path, "--csv")[1]
    assert "***" not in disentune("results", maker.run.path)[1]


def test_what_ray_says_of_an_error_is_passed_on_without_keys(planted: list[str]) -> None:
    assert words(RuntimeError(f"refused {planted[0]} and {planted[1]}")) == "refused *** and ***"


def test_a_path_and_a_short_word_are_not_secrets(tmp_path: Path) -> None:
    variables = {"SSH_KEY_FILE": str(tmp_path), "MY_KEY": "a" * (SHORTEST_SECRET - 1), "EDITOR": "longer-than-eight"}
    text = " ".join(variables.values())
    assert without_secrets(text, variables) == text


@pytest.mark.parametrize(
    "secret", ["hush-hush-hush", "/hush/hush+hush", "quo\"te\\and'slash", "line of a key\nanother line\n", "~hush-hush"]
)
@pytest.mark.parametrize("spelled", [str, repr, json.dumps, lambda secret: str({"X": secret}), str.strip])
def test_a_secret_is_hidden_however_it_is_spelled(secret: str, spelled: Callable[[str], str]) -> None:
    said = without_secrets(f"x {spelled(secret)} y", {"db_password": secret})
    assert "***" in said
    assert not any(line in said for line in secret.split("\n") if line)


def test_a_password_in_an_address_is_hidden() -> None:
    text = "no answer from http://me:hunter2@proxy:80/x, nor from s3://bucket/x or git@host:x"
    assert without_secrets(text, {}) == "no answer from http://***@proxy:80/x, nor from s3://bucket/x or git@host:x"


OTHERS = """
import os
from disentune.errors import DataError
from disentune.frameworks import beta_vae
from disentune.metrics import mig
from disentune.plugin import Framework, Metric

def refuse(*arguments):
    raise PermissionError(f"here is all: {dict(os.environ)}")

def complain(*arguments):
    raise DataError(f"here is all: {dict(os.environ)}")

FRAMEWORK = Framework(name="refusing", params=beta_vae.Params, loss=refuse)
METRIC = Metric(name="refusing", params=mig.Params, score=refuse, keys=("refusing",), needs=mig.METRIC.needs)
COMPLAINT = Metric(name="complaint", params=mig.Params, score=complain, keys=("complaint",))
"""


@pytest.mark.slow
def test_whatever_fails_reveals_no_key(
    planted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disentune: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "refusing.py").write_text(OTHERS)
    (tmp_path / "broken.py").write_text("import os\nraise RuntimeError(f'here is all: {dict(os.environ)}')\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = sweep_file(tmp_path)
    metrics = "['refusing:METRIC', 'refusing:COMPLAINT']"
    own = ["seeds=1", f"evaluation.metrics={metrics}", "objective=null", "search={name: grid}"]
    simulate(Run(tmp_path / "runs" / "tiny" / "main"), path, np.random.default_rng(0), overrides=own)
    np.savez(tmp_path / "codes.npz", codes=np.eye(4), factors=np.arange(4)[:, None])
    loss = "framework={name: 'refusing:FRAMEWORK', beta: 1}"
    said = [
        disentune("results", "tiny"), disentune("report", "tiny"), disentune("train", path, "--set", loss),
        disentune("score", "codes.npz", "--metrics", "refusing:METRIC"),
        disentune("score", "codes.npz", "--metrics", "refusing:METRIC,refusing:COMPLAINT", "--json"),
        disentune("plan", path, "--set", "framework={name: 'broken:X'}", "--json"),
        disentune("train", path, "--set", f"evaluation.metrics={metrics}", "--set", "objective=null", "--json"),
    ]  # fmt: skip
    for name in ("refusing", "broken"):
        sys.modules.pop(name, None)
    assert sum("here is all" in out + err for _, out, err in said) >= 5
    notes = Run(tmp_path / "runs" / "tiny" / "main").trials()[0].rows()[-1]["notes"]
    assert all("here is all" in notes[f"refusing:{name}"] for name in ("METRIC", "COMPLAINT"))
    assert told(planted, *(out + err for _, out, err in said)) == []
    assert holders(tmp_path, planted) == []


def test_no_key_is_sent_with_a_job(planted: list[str], tmp_path: Path) -> None:
    """Whoever sees the dashboard sees a job's command, its settings and its files."""
    sweep = read(sweep_file(tmp_path)).sweep
    sent: dict[str, Any] = {}

    def submit_job(**what: Any) -> str:
        sent.update(what, found=holders(Path(what["runtime_env"]["working_dir"]), planted))
        return "job"

    client = SimpleNamespace(list_jobs=list, submit_job=submit_job)
    assert submission.submit(client, submission.Job(sweep, "main", "/shared", ["--only", "seed == 0"])) == "job"
    assert sent["found"] == []
    assert told(planted, repr(sent)) == []


@pytest.mark.slow
def test_no_key_is_in_the_command_of_a_child(planted: list[str], tmp_path: Path, make_run: Callable) -> None:
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


def test_the_key_is_sent_only_to_the_configured_server_whatever_is_in_the_working_folder(
    planted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W&B's client reads ./wandb/settings, which may have come with someone else's files."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:1\n")
    monkeypatch.chdir(tmp_path)
    assert sending._settings("https://api.wandb.ai").base_url == "https://api.wandb.ai"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(["list", "models"], marks=pytest.mark.long),
        pytest.param(["data", "list"], marks=pytest.mark.long),
        ["results", "nothing"],
    ],
    ids=" ".join,
)
def test_a_file_in_the_working_folder_is_not_imported_unless_a_plug_in_is_named(tmp_path: Path, line) -> None:
    for name in ("pytz", "simplejson", "netrc", "wandb", "yaml"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n")
    command = Path(sys.executable).with_name("disentune")
    subprocess.run([command, *line], cwd=tmp_path, capture_output=True, timeout=patience_s(120))
    assert list(tmp_path.glob("*.ran")) == []


def test_a_refused_key_in_a_sweep_is_not_repeated(planted: list[str], tmp_path: Path) -> None:
    path = sweep_file(tmp_path, extra=f"wandb: {{api_key: {planted[0]}}}")
    with pytest.raises(Exception, match="key is never read from a file") as caught:
        read_sweep(path)
    assert told(planted, str(caught.value)) == []


MISPLACED = [
    "wandb: !KEY x", "wandb: {project: !!KEY x}", "wandb: {KEY: x}", "wandb: {api_key: *KEY}", "KEY: x", "KEY: {x: 1}",
    "KEY: 1\nKEY: 2", "training: {KEY: 1}", "stop: {KEY: 1}", "figures: [{name: violins, KEY: 1}]", "figures: [KEY]",
    "arms: {x: {KEY: 1}}", "arms: {x: {training.KEY: 1}}", "arms: {x: {training.KEY: {uniform: [0, 1]}}}",
    "arms: {x: {search_space: KEY}}", "objective: {metric: KEY, mode: max}", "search: KEY", "seeds: KEY", "!KEY!x a: 1",
]  # fmt: skip


@pytest.mark.parametrize("text", MISPLACED)
@pytest.mark.parametrize("key", ["{}", "sk-proj-{}", "hf_{}-x"])
def test_a_key_in_the_wrong_place_of_a_sweep_is_not_repeated(
    text: str, key: str, tmp_path: Path, disentune: Callable[..., tuple[int, str, str]]
) -> None:
    """Nothing but its looks tells it, for it is in no variable."""
    secret = secrets.token_hex(20)
    with open(tmp_path / "x.yaml", "w") as file:
        documents.dump({"trial": {name: value for name, value in TRIAL.items() if name != "seed"}}, file)
        file.write(text.replace("KEY", key.format(secret)))
    for more in ((), ("--json",)):
        code, out, err = disentune("plan", "x.yaml", *more)
        assert code == 2
        assert told([secret, secret[8:]], out, err) == []


@pytest.mark.parametrize(
    "word",
    ["training.batchsize", "dci_disentanglement_sampled_fast_max", "xysquares8_ada_gvae_b4_z25_s3_again",
     "0123456789abcdef", "ConnectionRefusedError", "12345678901234567890123", "learningRateOfTheVariational"],
)  # fmt: skip
def test_what_people_write_is_repeated_whole(word: str) -> None:
    assert without_keys(f"'{word}': unknown key") == f"'{word}': unknown key"


# ---- what others hand us


def test_commands_to_the_terminal_are_spelled_out(
    disentune: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text('"\\e]0;title\\a": 1\n"\\u202e": 1\n')
    code, out, err = disentune("plan", "x.yaml")
    assert code == 2
    assert "\\x1b]0;title\\x07" in err
    assert "\\u202e" in err
    assert not any(char in out + err for char in "\x1b\x07\u202e")


@pytest.mark.parametrize("place", ["driver.lock", "report", "trials/ID", "trials/ID/rows.jsonl", "study.journal"])
@pytest.mark.parametrize("command", ["status", "resume", "report", "score"])
def test_a_link_in_a_run_is_refused_before_anything_is_written(
    make_run: Callable, disentune: Callable[..., tuple[int, str, str]], tmp_path: Path, place: str, command: str
) -> None:
    maker = make_run()
    trial = maker.trial([{"step": 300, "loss": 1.0}])
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = maker.run.path / place.replace("ID", trial)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    code, out, err = disentune(command, maker.run.path)
    assert (code, out) == (2, "")
    assert f"{path.name} is a link, but a run must have its own files" in err
    assert victim.read_text() == "mine"


LOCKS = ["study.journal.lock", "study.journal.lock1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed.rename"]
"""As Optuna names its lock, a link, and the same while it is given back."""


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("target", ["study.journal", "../../../victim", "../../.."])
@pytest.mark.parametrize("command", ["status", "results"])
def test_the_lock_of_a_killed_search_does_not_prevent_looking_and_is_not_followed(
    make_run: Callable,
    disentune: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    name: str,
    target: str,
    command: str,
) -> None:
    maker = make_run()
    maker.trial([{"step": 300, "loss": 1.0}])
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "victim")  # met by whatever follows the lock to the folder above
    (maker.run.path / name).symlink_to(target)
    code, _, err = disentune(command, maker.run.path)
    assert (code, err) == (0, "")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (maker.run.path / name).is_symlink(), "only the driver of the run clears it"


@pytest.mark.parametrize(
    "place", ["trials/ID/study.journal.lock", "trials/study.journal.lock", "study.journal.lock.yaml", "a.journal.lock"]
)
def test_a_link_elsewhere_is_refused_even_if_it_is_named_like_a_lock(
    make_run: Callable, disentune: Callable[..., tuple[int, str, str]], tmp_path: Path, place: str
) -> None:
    maker = make_run()
    trial = maker.trial([{"step": 300, "loss": 1.0}])
    (maker.run.path / place.replace("ID", trial)).symlink_to(tmp_path / "victim")
    code, _, err = disentune("status", maker.run.path)
    assert code == 2
    assert "is a link, but a run must have its own files" in err


def test_a_link_that_vanishes_during_a_look_does_not_end_it(
    make_run: Callable, disentune: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = make_run()
    maker.trial([{"step": 300, "loss": 1.0}])
    passing = maker.run.path / "passing"
    passing.symlink_to("sweep.yaml")
    real = os.scandir

    def scandir(folder: Any) -> Any:
        entries = list(real(folder))
        passing.unlink(missing_ok=True)
        return iter(entries) if isinstance(folder, str) else nullcontext(iter(entries))  # pathlib wants to close it

    monkeypatch.setattr(os, "scandir", scandir)
    assert disentune("status", maker.run.path)[0] == 0


def test_a_run_that_is_a_link_as_a_whole_is_taken(
    make_run: Callable, disentune: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    make_run().trial([{"step": 300, "loss": 1.0}])
    (tmp_path / "linked").symlink_to(tmp_path / "runs" / "demo" / "main")
    assert disentune("status", "linked")[0] == 0


HUGE_BYTES, LITTLE_BYTES = 40 * 10**9, 4 * 10**9
REFUSED = {
    "sweep.yaml": "too large", "scores.json": "larger than 1 GB", "trials/ID/rows.jsonl": "larger than 1 GB",
    "trials/ID/config.json": "larger than 1 GB", "trials/ID/status.json": "larger than 1 GB",
    "trials/ID/end.json": "larger than 1 GB",
}  # fmt: skip
UNREAD = (
    "environment.json", "results.parquet", "study.journal", "run.log", "trials/ID/errors.log",
    "trials/ID/checkpoints/step-0000000300.ckpt", "trials/ID/pictures/step-0000000300.npz",
)  # fmt: skip
HUGE = [
    *((command, place) for command in ("results", "verify") for place in (*REFUSED, *UNREAD)),
    *(("report", place) for place in ("trials/ID/rows.jsonl", "trials/ID/errors.log", UNREAD[-1])),
]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "place"), HUGE)
def test_a_file_of_many_gigabytes_takes_no_memory(
    make_run: Callable, disentune: Callable[..., tuple[int, str, str]], command: str, place: str
) -> None:
    maker = make_run()
    trial = maker.trial([{"step": 300, "loss": 1.0, "mig": 0.5}])
    maker.trial([{"step": 300, "loss": 1.0, "mig": 0.5}], seed=1)
    path = maker.run.path / place.replace("ID", trial)
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(HUGE_BYTES)  # takes no disk
    with little_memory(LITTLE_BYTES):
        code, out, err = disentune(command, maker.run.path)
    if command == "verify":
        assert code in (0, 1, 2), err
    else:
        assert code == (2 if place in REFUSED else 0), err
    if place in REFUSED:
        assert str(path.relative_to(maker.run.path)) in out + err
        assert REFUSED[place] in out + err


@pytest.mark.parametrize("key", ["framework.name", "recon.name", "evaluation.metrics", "dataset.name", "model.name"])
def test_rows_name_no_plug_in(make_run: Callable, key: str) -> None:
    maker = make_run()
    folder = maker.run.trial(maker.trial([]))
    folder.rows_path.write_text(json.dumps({"step": 1, "metrics": {}, "overrides": {key: "evil:X"}}) + "\n")
    with pytest.raises(ConfigError, match="is damaged"):
        folder.rows()


OWN = """
import pathlib
from disentune.frameworks import beta_vae
from disentune.metrics import mig
from disentune.plugin import Framework, Metric

pathlib.Path(__file__).with_suffix(".ran").touch()

def score(table, rng, params):
    return {"mine": mig.score(table, rng, params)["mig"]}

FRAMEWORK = Framework(name="mine", params=beta_vae.Params, loss=beta_vae.loss)
METRIC = Metric(name="mine", params=mig.Params, keys=("mine",), score=score)
"""
LOOKS = [
    ["status", "tiny"], ["status", "tiny", "--json"], ["status", "tiny", "--watch"], ["results", "tiny"],
    ["results", "tiny", "--json"], ["results", "tiny", "--csv"], ["results", "tiny", "--trials"],
    ["results", "tiny", "--parquet"], ["report", "tiny"], ["report", "tiny", "--wandb", "--json"], ["sync", "tiny"],
]  # fmt: skip


def _steady(said: list[tuple[int, str, str]]) -> list[tuple[int, str, list[str]]]:
    """Without lines on progress: how many there are depends on the time, see `_Lines` of cli/terminal.py."""
    return [
        (code, out, [line for line in err.splitlines() if not line.startswith("drawing figures: ")])
        for code, out, err in said
    ]


def _written_report(run: Run) -> Any:
    """W&B's report as the command wrote it. What the command prints has nothing random, but in the file each panel has
    an `__id__` and each run set an `id` by `_generate_name` of wandb_workspaces/reports/v2/internal.py, which calls
    `random.random()`: `_id` of `Panel` and `Runset` in reports/v2/interface.py."""
    report = json.loads(run.wandb_report_path.read_text())
    grids = [block["metadata"] for block in report["spec"]["blocks"] if "metadata" in block]
    panels = [panel for grid in grids for panel in grid["panelBankSectionConfig"]["panels"]]
    removed = [panel.pop("__id__") for panel in panels] + [kept.pop("id") for grid in grids for kept in grid["runSets"]]
    assert panels
    assert len(set(removed)) == len(removed)
    return report


@pytest.mark.slow
@pytest.mark.parametrize("objective", [pytest.param("null", marks=pytest.mark.long), "{metric: mine, mode: max}"])
def test_looking_at_a_run_executes_none_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disentune: Callable[..., tuple[int, str, str]], objective: str
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.syspath_prepend(tmp_path)  # it could be imported, by whoever would
    module, mark = tmp_path / "watchful.py", tmp_path / "watchful.ran"
    module.write_text(OWN)
    own = ["framework.name='watchful:FRAMEWORK'", "evaluation.metrics=['watchful:METRIC']", f"objective={objective}"]
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    with pytest.raises(Death):
        simulate(run, path, np.random.default_rng(0), dies_after=40, overrides=own)
    asked = len(check(read_sweep(path, own)).points)
    sys.modules.pop("watchful")
    mark.unlink()
    said = [disentune(*line) for line in LOOKS]
    rows = load("runs/tiny/main").rows
    report = _written_report(run)
    assert [code for code, _, _ in said] == [*[0] * 10, 2]  # there is no key to sync with
    done, begun = sum(folder.status().state == "done" for folder in run.trials()), len(run.trials())
    assert 0 < done < begun < asked
    assert f"not running; {done} done, {asked - done} pending" in said[0][1]
    assert "best mine (last value) " in said[0][1]
    assert f"{done}/{asked} ended" in said[2][1]
    page = (run.report_folder / "index.html").read_text()
    assert f"{asked - begun} not begun" in page
    assert not mark.exists()
    module.unlink()
    assert _steady([disentune(*line) for line in LOOKS]) == _steady(said)
    assert _written_report(run) == report
    assert load("runs/tiny/main").rows.equals(rows)
    assert not mark.exists()


def test_planning_a_sweep_imports_the_plug_ins_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disentune: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "watchful.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = sweep_file(tmp_path)
    assert disentune("plan", path, "--set", "framework.name='watchful:FRAMEWORK'")[0] == 0
    sys.modules.pop("watchful")
    assert (tmp_path / "watchful.ran").exists()


def test_links_to_hidden_places_are_not_sent_with_a_job(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id").write_text("secret")
    folder = tmp_path / "work"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "notes").symlink_to(tmp_path / ".ssh" / "id")
    with pytest.raises(ConfigError, match=r"notes links to the hidden file "):
        submission._copy(folder, tmp_path / "sent")
    assert not (tmp_path / "sent").exists()


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
