"""A user's own arrays: which metrics they suffice for, and what is asked of them."""

from dataclasses import replace

import numpy as np
import pytest

from disentune.errors import ConfigError
from disentune.metrics import METRICS
from disentune.results import arrays
from disentune.results.arrays import asked, read_arrays

# ---- which metrics


def test_metrics_are_taken_in_order_and_once_with_their_parameters():
    found = asked(["mig", "dci", "mig"], ["mig.bins=30"], "fast")
    assert [one.name for one in found] == ["mig", "dci"]
    assert found[0].params.model_dump() == {**METRICS["mig"].params().model_dump(), **METRICS["mig"].fast, "bins": 30}
    assert found[1].params == METRICS["dci"].params(**METRICS["dci"].fast)
    assert asked(["dci"], [], "full")[0].params == METRICS["dci"].params()


def test_a_given_parameter_is_stronger_than_the_fast_size():
    assert asked(["mig"], ["mig.samples=77"], "fast")[0].params.samples == 77


def test_a_users_own_metric_is_found_by_its_import_path():
    path = "disentune.metrics.mig:METRIC"
    found = asked([path], [f"{path}.bins=9"], "full")
    assert (found[0].name, found[0].params.bins) == (path, 9)


@pytest.mark.parametrize(
    ("names", "sets", "texts"),
    [
        (["migg"], [], ["unknown metric 'migg'. Did you mean 'mig'?", "udr_spearman"]),
        (["udr"], [], ["udr compares trained models: give a run instead of arrays"]),
        (["nowhere:METRIC"], [], ["cannot import 'nowhere:METRIC'"]),
        (["mig"], ["mig.binz=3"], ["--set mig.binz  unknown key. Did you mean 'bins'?"]),
        (["mig"], ["mig.bins=many"], ["--set mig.bins  must be a whole number, got 'many'"]),
        (["mig"], ["mig.bins=1"], ["--set mig.bins  must be >= 2, got 1"]),
        (["mig"], ["dci.train=9"], ["--set dci.train  'dci' is not one of the metrics to score"]),
        ([], ["mig.bins=9"], ["Metrics to score: none; name them with --metrics, for example --metrics mig"]),
        (["mig"], ["bins=9"], ["--set bins=9  must be metric.parameter=value"]),
        (["mig"], ["mig.bins"], ["--set mig.bins  must be metric.parameter=value"]),
        (["mig"], ["mig.=3"], ["must be metric.parameter=value"]),
        (["mig", "migg"], ["mig.bins=1"], ["unknown metric 'migg'", "must be >= 2"]),  # all at once
    ],
)
def test_wrong_metrics_and_parameters_are_refused(names, sets, texts):
    with pytest.raises(ConfigError) as error:
        asked(names, sets, "full")
    for text in texts:
        assert text in str(error.value)


# ---- arrays


def test_arrays_become_a_table(tmp_path):
    rng = np.random.default_rng(0)
    codes, factors = rng.normal(size=(30, 4)).astype(np.float32), rng.integers(0, 3, (30, 2))
    path = tmp_path / "all.npz"
    np.savez(path, codes=codes, factors=factors, logvars=codes / 2, images=factors[:, :, None])
    table, names = read_arrays(path)
    assert sorted(names) == ["codes", "factors", "images", "logvars"]
    np.testing.assert_array_equal(table.codes, codes)
    np.testing.assert_array_equal(table.logvars, codes / 2)
    assert table.distance(np.array([0]), np.array([0])) == 0
    np.savez_compressed(path, codes=codes)
    assert read_arrays(path)[1] == ["codes"]


def test_metrics_that_the_arrays_do_not_suffice_for_are_left_out_with_what_they_need(monkeypatch):
    mig = METRICS["mig"]
    plugins = {
        "mig": mig,
        "spread": replace(mig, name="spread", needs=()),
        "sure": replace(mig, name="sure", needs=("logvars",)),
        "seen": replace(mig, name="seen", needs=("factors", "distance")),
        "made": replace(mig, name="made", needs=("reconstruction",)),
        "downstream": replace(mig, name="downstream"),
    }
    monkeypatch.setattr(METRICS, "plugins", plugins)
    assert arrays.sufficient(["codes"]) == (
        ["spread"],
        {
            "downstream": "needs factors",
            "made": "needs a trained model: disentune score RUN",
            "mig": "needs factors",
            "seen": "needs factors and images",
            "sure": "needs logvars",
        },
    )
    scorable, left_out = arrays.sufficient(arrays.ARRAYS)
    assert scorable == ["mig", "seen", "spread", "sure"]
    assert left_out["downstream"] == "slow; compute it with --metrics downstream"
