"""Trees of one trial, as they stand in files, runs and jobs: a TrialConfig or Invalid, nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import trial_config
from disentune.data import DATASETS
from disentune.metrics import METRICS
from disentune.parameters import worded
from disentune.spec import space
from disentune.spec.config import Invalid, TrialConfig
from framework_examples import EXAMPLES
from fuzz.mutations import mutated_tree
from fuzz.trying import inputs, wrongs

USUAL = trial_config().tree()
ROOT = Path(__file__).parents[2]


def with_dataset(name: str) -> dict[str, Any]:
    own = {
        "grid_file": {"path": "/x", "factor_names": ["a"], "factor_sizes": [2], "image_shape": [1, 8, 8]},
        "manipulated": {"base": {"name": "xysquares"}, "donors": "donors", "epsilon": 0.1, "steps": 10},
    }
    return {**USUAL, "dataset": {"name": name, **own.get(name, {})}}


def with_metrics() -> dict[str, Any]:
    every = [{"name": name, "size": "both", "codes": "both", "every": 100} for name in METRICS.names()]
    return {**USUAL, "evaluation": {**USUAL["evaluation"], "metrics": every}}


def of_sweep(path: Path) -> dict[str, Any]:
    sweep = space.read(path).sweep
    return space.trial_config(next(space.corners(sweep, list(sweep.arms)[-1])), 0).tree()


TREES: dict[str, dict[str, Any]] = {
    "metrics": with_metrics(),
    **{f"dataset {name}": with_dataset(name) for name in DATASETS.names()},
    **{f"framework {name}": {**USUAL, "framework": {"name": name, **found[0]}} for name, found in EXAMPLES.items()},
    **{path.stem: of_sweep(path) for path in sorted((ROOT / "sweeps" / "small").glob("*.yaml"))},
}


def verdict(tree: dict[str, Any]) -> str:
    try:
        config = TrialConfig.parse(tree)
    except Invalid as invalid:
        texts = [worded(mistake) for mistake in invalid.mistakes]
        return "" if texts and all(texts) else "says nothing"
    again = TrialConfig.parse(json.loads(json.dumps(config.tree())))
    return "" if again.id == config.id else "is another trial when it is read again"


@pytest.mark.parametrize("origin", TREES)
def test_any_tree_is_a_trial_or_invalid(origin: str) -> None:
    found = wrongs(inputs(origin, 60, lambda rng: mutated_tree(TREES[origin], rng)), verdict)
    assert not found, found


ONCE = [
    {"evaluation": {"metrics": [{"name": "mig", "every": float("inf")}]}},
    {"evaluation": {"metrics": [{"name": "mig", "every": 10**400}]}},
    {"training": {"steps": 10, "batch_size": 8, "learning_rate": 1e-3, "log_every": 10**30}},
    {"model": {"name": "mlp", "latents": 3, "depth": 10**6}},
    {"dataset": {"name": "pinwheel", "points": 10**9}},
    {"framework": {"name": "factor_vae", "gamma": 1, "depth": 10**6}},
    {"framework": {"name": "decomposition_vae", "beta": 1, "prior": {"name": "anisotropic", "images": 10**9}}},
    {"dataset": {"name": "grid_file", "path": "/a\0b", "factor_names": ["a"], "factor_sizes": [2],
                 "image_shape": [1, 8, 8]}},
]  # fmt: skip


@pytest.mark.parametrize("change", ONCE, ids=str)
def test_what_once_was_no_invalid_or_took_all_memory_is_invalid_now(change: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        TrialConfig.parse({**USUAL, **change})


def test_a_module_that_ends_the_process_when_it_is_imported_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Invalid, match="cannot import 'leaving:FRAMEWORK'"):
        TrialConfig.parse({**USUAL, "framework": {"name": "leaving:FRAMEWORK"}})
