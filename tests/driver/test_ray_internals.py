"""Ray's private parts: that the installed Ray has them, and what happens with a Ray that does not."""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import ray
from ray._private.node import Node
from ray.autoscaler._private import resource_demand_scheduler
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial

import disentune
from disentune.driver import placement, ray_internals
from disentune.driver.ray_internals import CHECKS, OPTIONAL, PENDING, VARIABLES, Message, Part, RayChanged, Word
from disentune.errors import ConfigError

ROOT = Path(disentune.__file__).parent
HERE = "driver/ray_internals.py"
FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}


@pytest.mark.parametrize(("name", "why", "check"), CHECKS, ids=[name for name, _, _ in CHECKS])
def test_the_installed_ray_has_it(name, why, check):
    check()


def test_no_two_checks_have_one_name():
    names = [name for name, _, _ in CHECKS]
    assert len(set(names)) == len(names)
    assert set(names) >= OPTIONAL


def message(check) -> str:
    with pytest.raises(RayChanged) as caught:
        check()
    assert isinstance(caught.value, ConfigError), "no traceback for whoever has another Ray"
    return str(caught.value)


def test_what_is_missing_is_named_with_its_reason_and_what_to_do(monkeypatch):
    monkeypatch.delattr(Trial, "handle_error")
    assert message(ray_internals.HANDLE_ERROR.get) == (
        f"Ray {ray.__version__} has no ray.tune.experiment.Trial.handle_error(self, exc); disentune needs it to know "
        "why a worker ended without unpickling a file that others may have written; install ray==2.60.* or report this"
    )


def test_other_parameters_are_a_change(monkeypatch):
    monkeypatch.setattr(Node, "start_monitor", lambda self, quickly: None)
    assert "has no ray._private.node.Node.start_monitor(self);" in message(ray_internals.assert_lean_start)


@pytest.mark.parametrize(
    ("check", "named"),
    [
        (Part("ray.no_such_module:Thing", "x"), "ray.no_such_module.Thing"),
        (Part("ray._private.node:Node", "x", ("self",)), "ray._private.node.Node(self)"),
        (Part("ray._private.worker:SCRIPT_MODE", "x", ()), "ray._private.worker.SCRIPT_MODE()"),
        (Part("ray._private.worker:SCRIPT_MODE", "x", value=-1), "ray._private.worker.SCRIPT_MODE = -1"),
        (Word("ray.tune.tune", "NO_SUCH_VARIABLE", "x"), "NO_SUCH_VARIABLE in ray.tune.tune"),
        (Word("ray.no_such_module", "A", "x"), "A in ray.no_such_module"),
        (Message("_raylet.so", "no such words", "x"), "the words 'no such words' in ray/_raylet.so"),
        (Message("no_such_file", "words", "x"), "the words 'words' in ray/no_such_file"),
    ],
)
def test_every_kind_of_part_names_what_is_missing(check, named):
    assert message(check.get).startswith(f"Ray {ray.__version__} has no {named}; disentune needs it to x;")


@pytest.mark.parametrize(
    ("owner", "name", "use"),
    [
        (Trial, "handle_error", lambda: ray_internals.heard_errors(print).__enter__()),
        (class_cache, "DEFAULT_ENV_VARS", lambda: ray_internals.give_workers_no_keys(local=True)),
        (class_cache, "ENV_VARS_TO_PROPAGATE", lambda: ray_internals.give_workers_no_keys(local=True)),
        (resource_demand_scheduler, "_resource_based_utilization_scorer", ray_internals.utilization_scorer),
    ],
)
def test_what_a_sweep_depends_on_is_refused_where_it_is_missing(monkeypatch, owner, name, use):
    monkeypatch.delattr(owner, name)
    assert name in message(use)


def test_a_variable_that_ray_no_longer_reads_is_refused(monkeypatch):
    monkeypatch.setattr(ray_internals, "NEEDED_VARIABLES", (Word("ray.tune.tune", "NO_SUCH_VARIABLE", "stop"),))
    assert "has no NO_SUCH_VARIABLE in ray.tune.tune; disentune needs it to stop" in message(
        ray_internals.assert_variables
    )


def test_without_a_preference_for_nodes_trials_run_anywhere(monkeypatch):
    assert ray_internals.preferring("a") == {"strategy": "STRICT_PACK", "_soft_target_node_id": "a"}
    monkeypatch.delattr(import_module("ray.util.placement_group"), "placement_group")
    assert ray_internals.preferring("a") == {}


def test_what_an_unknown_autoscaler_can_add_is_not_known(monkeypatch):
    monkeypatch.delenv("RAY_CLUSTER_NAME", raising=False)
    monkeypatch.setattr(placement.ray, "get_runtime_context", lambda: type("Context", (), {"gcs_address": "x"}))
    assert placement.growth_of_this_machine() == []
    monkeypatch.delattr("ray._private.services.start_monitor")
    assert placement.growth_of_this_machine() is None


def test_the_variables_of_the_user_are_kept(monkeypatch):
    for name in (*VARIABLES, PENDING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", "7")
    ray_internals.set_variables(pending=2)
    found = {name: ray_internals.os.environ[name] for name in VARIABLES}
    assert found == VARIABLES | {"TUNE_GLOBAL_CHECKPOINT_S": "7"}
    assert ray_internals.os.environ[PENDING] == "2"


@pytest.mark.parametrize(
    ("owner", "name", "code"), [(None, "", 0), (Node, "start_monitor", 0), (Trial, "handle_error", 1)]
)
def test_the_list_says_what_holds_and_fails_for_what_is_needed(monkeypatch, capsys, owner, name, code):
    if owner:
        monkeypatch.delattr(owner, name)
    assert ray_internals.main() == code
    lines = capsys.readouterr().out.splitlines()
    missing = [line for line in lines if line.startswith("MISSING")]
    assert [f".{name}(" in line for line in missing] == [True] * bool(owner)
    assert lines[0].startswith(f"Ray {ray.__version__}, Python")
    assert lines[-1] == f"{len(CHECKS) - len(missing)} of {len(CHECKS)} found; needed but missing: {code}"


# ---- one file


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.expr) -> str:
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_private(name: str) -> bool:
    """By its underscore, or because Ray documents none of that package."""
    undocumented = ("ray.air", "ray.autoscaler", "ray.tune.execution", "ray.tune.experiment")
    parts = name.split(".")
    return parts[0] == "ray" and (any(re.match("_[^_]", part) for part in parts) or name.startswith(undocumented))


def private_parts(path: Path) -> set[str]:
    used = {dotted(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    return {name for name in imported(path) | used if is_private(name)}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from ray._private import node", {"ray._private.node"}),
        ("import ray\nray._private.worker._global_node", {"ray._private", "ray._private.worker",
                                                          "ray._private.worker._global_node"}),
        ("def f():\n    from ray.tune.execution import class_cache", {"ray.tune.execution.class_cache"}),
        ("import ray\nray.init()\nprint(ray.__version__)", set()),
    ],
)  # fmt: skip
def test_private_parts_are_found_in_code(tmp_path, code, found):
    (tmp_path / "code.py").write_text(code)
    assert private_parts(tmp_path / "code.py") == found


def test_no_other_file_touches_rays_private_parts():
    assert {name: found for name, path in FILES.items() if name != HERE and (found := private_parts(path))} == {}


def test_no_other_file_sets_rays_variables():
    variables = (*VARIABLES, PENDING, ray_internals.PREEMPTION.text, ray_internals.TARGET)
    others = {name: path.read_text() for name, path in FILES.items() if name != HERE}
    assert [(name, word) for name, text in others.items() for word in variables if word in text] == []


def test_it_imports_nothing_that_another_environment_may_lack():
    found = {name.split(".")[0] for name in imported(FILES[HERE])} - sys.stdlib_module_names
    assert found <= {"disentune", "ray"}
    assert {name for name in imported(FILES[HERE]) if name.startswith("disentune")} == {"disentune.errors.ConfigError"}
