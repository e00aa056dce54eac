"""A trial's config: its identity, and every mistake in it at once."""

import hashlib
import importlib
import json
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.data import DATASETS
from disentune.frameworks import FRAMEWORKS
from disentune.learn.transforms import Pixels
from disentune.metrics import METRICS, best_of
from disentune.plugin import COMPARED, wrong_names
from disentune.results.tables import FIXED
from disentune.spec import space
from disentune.spec.config import Invalid, TrialConfig, flattened, metric_keys, nested

TREE = {
    "dataset": {"name": "xysquares", "image_size": 24, "square_size": 4, "spacing": 4, "grid_size": 6},
    "model": {"name": "mlp", "width": 128, "latents": 9},
    "framework": {"name": "beta_vae", "beta": 0.001},
    "recon": {"name": "mse"},
    "training": {"steps": 1500, "batch_size": 64, "learning_rate": 0.001},
    "evaluation": {"metrics": ["mig"], "every": 300},
    "loss_scale": "mean",
    "seed": 0,
}


def changed(**changes):
    """TREE with `framework__beta=4` for framework.beta; None removes a key."""
    flat = flattened(TREE) | {key.replace("__", "."): value for key, value in changes.items()}
    return nested({key: value for key, value in flat.items() if value is not None})


def config(**changes):
    return TrialConfig.parse(changed(**changes))


def mistakes(tree):
    with pytest.raises(Invalid) as caught:
        TrialConfig.parse(tree)
    return {mistake.key: mistake.text for mistake in caught.value.mistakes}


# ---- identity


def test_the_id_is_the_hash_of_the_canonical_json_and_never_changes():
    canonical = (
        '{"dataset":{"grid_size":6,"image_size":24,"name":"xysquares","noise":0.0,"rgb":true,"spacing":4,"square_size":4,'
        '"squares":3,"statistics":"computed","transform":"standardise"},'
        '"evaluation":{"every":300,"fast_table":15000,'
        '"metrics":[{"bins":20,"codes":"mean","every":null,"name":"mig","samples":10000,"size":"full"}],"table":50000},'
        '"framework":{"beta":0.001,"name":"beta_vae"},'
        '"loss_scale":"mean",'
        '"model":{"depth":2,"latents":9,"name":"mlp","width":128},'
        '"recon":{"name":"mse"},'
        '"seed":0,'
        '"training":{"batch_size":64,"compile":false,"device":"cpu","learning_rate":0.001,"log_every":100,"steps":1500,"threads":1}}'
    )
    assert json.dumps(config().tree(), sort_keys=True, separators=(",", ":")) == canonical
    assert config().id == hashlib.sha256(canonical.encode()).hexdigest()[:16] == "1abc7dc803b16885"


LATER = {
    "irs": {"ordered": [0]},
    "axis_alignment": {"mean": "geometric"},
    "linearity": {"mean": "geometric"},
    "distances": {"ties": "exact"},
    "perceived_distances": {"ties": "exact"},
}
"""Fields that metrics have got since trials were named, with a value that is not the default."""


def test_a_field_added_later_changes_no_id_until_it_is_set():
    tree = {**TREE, "dataset": {"name": "xy_object", "spacing": 5}, "evaluation": {"metrics": [*LATER]}}
    plain = TrialConfig.parse(tree)
    assert plain.id == "7a1801c6523d9415"
    others = [{**tree, "dataset": {**tree["dataset"], "centred": False}}]
    for name, params in LATER.items():
        entries = [{"name": other, **(params if other == name else {})} for other in LATER]
        others.append({**tree, "evaluation": {"metrics": entries}})
    configs = [TrialConfig.parse(other) for other in others]
    assert len({plain.id, *(config.id for config in configs)}) == len(LATER) + 2
    assert [TrialConfig.parse(config.tree()).id for config in configs] == [config.id for config in configs]
    assert TrialConfig.parse({**tree, "dataset": {**tree["dataset"], "centred": True}}).id == plain.id


def test_the_quick_start_s_trials_keep_their_ids():
    points = space.read(Path(__file__).parents[2] / "sweeps" / "quickstart.yaml").points
    ids = sorted(point.config.id for point in points)
    assert (len(ids), ids[0]) == (18, "0e3c02f2e0dcbe37")
    assert hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16] == "a8e8abc32e8968ea"


def test_defaults_written_out_give_the_same_id():
    assert TrialConfig.parse(config().tree()).id == config().id
    assert config(training__threads=1, dataset__transform="standardise", evaluation__table=50_000).id == config().id
    assert config(evaluation__metrics=[{"name": "mig"}]).id == config().id


def test_spellings_of_a_number_give_the_same_id():
    assert config(framework__beta=1).id == config(framework__beta=1.0).id
    assert config(training__steps=1e5).id == config(training__steps=100000).id
    assert config(training__learning_rate=1e-3).id == config(training__learning_rate=0.001).id


def test_minus_zero_is_zero():
    assert config(framework__beta=-0.0).id == config(framework__beta=0.0).id


@given(st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_order_of_keys_does_not_matter(random):
    flat = list(flattened(TREE).items())
    random.shuffle(flat)
    assert TrialConfig.parse(nested(dict(flat))).id == config().id


def test_every_key_changes_the_id():
    other = {
        "dataset.spacing": 2, "dataset.transform": "unit", "dataset.rgb": False, "model.latents": 8, "model.width": 64,
        "framework.name": "ada_gvae", "framework.beta": 0.002, "recon.name": "bce", "training.steps": 1501,
        "training.batch_size": 65, "training.learning_rate": 0.002, "training.log_every": 10, "training.threads": 2,
        "training.compile": True,
        "evaluation.every": 100, "evaluation.metrics": ["dci"], "evaluation.table": 100, "loss_scale": "sum", "seed": 1,
    }  # fmt: skip
    unit = {"dataset.transform": "unit"}  # so that bce may be among them
    ids = [TrialConfig.parse(nested(flattened(TREE) | unit | {key: value})).id for key, value in other.items()]
    assert len({*ids, config().id}) == len(other) + 1


# ---- mistakes


def test_a_mistake_in_every_section_is_found_at_once():
    wrong = {
        "dataset__square_size": "four", "model__latents": 0, "framework__name": "betavae", "recon__name": "mes",
        "training__steps": 1.5, "training__batchsize": 3, "training__device": "gpu", "evaluation__every": -1,
        "loss_scale": "sums", "seed": -1, "dataset__transform": "none", "optimiser__name": "adam",
    }  # fmt: skip
    found = mistakes(changed(**wrong))
    assert found.keys() == {
        "dataset.square_size", "model.latents", "framework.name", "recon.name", "training.steps", "training.batchsize",
        "training.device", "evaluation.every", "loss_scale", "seed", "dataset.transform", "optimiser",
    }  # fmt: skip
    assert found["framework.name"] == (
        f"unknown framework 'betavae'. Did you mean 'beta_vae'? Known: {', '.join(FRAMEWORKS.names())}"
    )
    assert found["training.batchsize"].startswith(
        "unknown key. Did you mean 'batch_size'? Known: batch_size, clip, compile, device"
    )
    assert found["dataset.square_size"] == "must be a whole number"


def test_an_empty_tree_names_everything_that_is_required():
    assert mistakes({}).keys() == {
        "dataset.name", "model.name", "framework.name", "recon.name", "training.steps", "training.batch_size",
        "training.learning_rate", "loss_scale", "seed",
    }  # fmt: skip


@pytest.mark.parametrize("section", ["dataset", "model", "framework", "recon", "training", "evaluation"])
@pytest.mark.parametrize("wrong", [5, "text", [1], None, True])
def test_a_section_that_is_not_a_mapping_is_a_mistake(section, wrong):
    assert section in {key.split(".")[0] for key in mistakes(TREE | {section: wrong})}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("framework.beta", -1, "must be >= 0"),
        ("framework.beta", "1", "must be a number"),
        ("framework.beta", True, "must be a number"),
        ("framework.beta", float("nan"), "must be a finite number"),
        ("framework.beta", float("inf"), "must be a finite number"),
        ("training.learning_rate", 0, "must be > 0"),
        ("training.steps", True, "must be a whole number"),
        ("training.steps", 0, "must be >= 1"),
        ("dataset.rgb", "yes", "must be true or false"),
        ("evaluation.metrics", "mig", "must be a list"),
        ("framework.name", 5, "must be a string"),
        ("model.latents", None, "is required but not set"),
        ("dataset.grid_size", 7, "must be 1 to 6, as many as fit with image_size 24, square_size 4 and spacing 4"),
        ("dataset.square_size", 30, "must be 1 to 24, the image_size"),
    ],
)
def test_a_wrong_value_is_worded_by_what_must_hold(key, value, words):
    tree = changed(**{key.replace(".", "__"): value})
    assert words in mistakes(tree)[key]


@pytest.mark.parametrize("metrics", [["mgi"], [{"name": "mgi"}], [5], [None], [["mig"]], [{"bins": 3}]])
def test_an_unknown_metric_is_a_mistake(metrics):
    assert any(key.startswith("evaluation.metrics") for key in mistakes(changed(evaluation__metrics=metrics)))


@pytest.mark.parametrize("other", [{"every": 0}, {"table": "all"}, {"tables": 5}])
def test_an_unknown_metric_is_found_beside_a_mistake_in_another_key_of_the_evaluation(other):
    found = mistakes(changed(evaluation={"metrics": ["mig", "mgi"], **other}))
    assert found.keys() == {"evaluation.metrics.name", f"evaluation.{next(iter(other))}"}


@pytest.mark.parametrize("value", [[1, 2, 4], {"grd": [1, 2, 4]}])
def test_a_misspelt_domain_is_found_below_a_misspelt_plugin(value):
    found = mistakes(changed(dataset={"name": "xysquare", "spacing": value, "square_sise": 3, "grid_size": -1}))
    assert found.keys() == {"dataset.name", "dataset.spacing"}


@pytest.mark.parametrize("second", [{"name": "mig"}, {"name": "mig", "every": 7}, {"name": "mig", "codes": "both"}])
def test_a_metric_twice_is_a_mistake(second):
    found = mistakes(changed(evaluation__metrics=["mig", second]))
    assert found == {"evaluation.metrics": "'mig' is listed twice in the same size; keep one"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"size": "small"}, "must be one of 'full', 'fast' or 'both'"),
        ({"codes": "means"}, "must be one of 'mean', 'sampled', 'both' or 'normal'"),
        ({"every": 0}, "must be a number of steps >= 1, or end, got 0"),
        ({"every": "ends"}, "must be a number of steps >= 1, or end, got 'ends'"),
        ({"evry": 3}, "Did you mean 'every'?"),
        ({"bins": 1}, "must be >= 2"),
        ({"binz": 3}, "Did you mean 'bins'?"),
    ],
)
def test_what_is_beside_a_metrics_name_is_checked(entry, words):
    found = mistakes(changed(evaluation__metrics=[{"name": "mig", **entry}]))
    assert [words in text for text in found.values()] == [True]


# ---- which metrics, on what, when


def labels(**changes):
    return {scored.label: scored for scored in config(**changes).metrics}


def test_a_metric_in_both_sizes_is_fast_during_training_and_full_at_its_end():
    found = labels(evaluation__metrics=["mig"], evaluation__every=300, evaluation__size="both", training__steps=1000)
    assert {label: (scored.size, scored.every) for label, scored in found.items()} == {
        "mig_fast": ("fast", 300),
        "mig": ("full", 0),
    }
    assert (found["mig_fast"].metric.params.samples, found["mig"].metric.params.samples) == (2_000, 10_000)
    trial = config(evaluation__metrics=["mig"], evaluation__every=300, evaluation__size="both", training__steps=1000)
    assert trial.metric_keys() == ["mig_fast", "mig"]
    assert [[scored.label for scored in trial.due(step)] for step in (299, 300, 1000)] == [
        [], ["mig_fast"], ["mig_fast", "mig"],
    ]  # fmt: skip
    assert (trial.reporting_interval("mig_fast"), trial.reporting_interval("mig")) == (300, 1000)


def test_a_metric_of_the_list_may_have_its_own_size_codes_steps_and_parameters():
    own = {"name": "dci", "size": "fast", "codes": "both", "every": 700, "test": 50}
    found = labels(evaluation__metrics=["mig", own], evaluation__every=100)
    assert list(found) == ["mig", "dci_fast", "dci_sampled_fast"]
    dci = found["dci_sampled_fast"]
    assert (dci.every, dci.metric.params.train, dci.metric.params.test) == (700, 1_000, 50)
    assert dci.keys[0] == "dci_disentanglement_sampled_fast"
    assert (found["mig"].size, found["mig"].codes, found["mig"].every) == ("full", "mean", 100)


def test_a_metric_only_at_the_end():
    trial = config(evaluation__metrics=[{"name": "mig", "every": "end"}], evaluation__every=100, training__steps=250)
    assert [bool(trial.due(step)) for step in (100, 200, 250)] == [False, False, True]
    assert trial.evaluates_at(100)


def test_a_metric_with_its_own_interval_makes_an_evaluation():
    trial = config(evaluation__metrics=[{"name": "mig", "every": 70}], evaluation__every=None, training__steps=200)
    assert [step for step in range(1, 201) if trial.evaluates_at(step)] == [70, 140, 200]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"metrics": ["mig"], "size": "both"},
            {"metrics": [{"name": "mig", "size": "fast"}, {"name": "mig", "every": "end"}]},
        ),
        ({"metrics": ["mig"], "size": "fast"}, {"metrics": [{"name": "mig", "size": "fast"}]}),
        ({"metrics": ["mig"], "codes": "sampled"}, {"metrics": [{"name": "mig", "codes": "sampled"}]}),
        ({"metrics": ["mig"]}, {"metrics": [{"name": "mig", "every": 100}]}),
    ],
)
def test_two_ways_to_say_the_same_are_one_trial(one, other):
    first, second = ({f"evaluation__{key}": value for key, value in way.items()} for way in (one, other))
    assert config(evaluation__every=100, **first).id == config(evaluation__every=100, **second).id


def test_a_users_own_metric_must_not_use_the_key_of_another(own_module):
    found = mistakes(changed(evaluation__metrics=["mig", "my_vae_1:METRIC"]))
    assert found == {"evaluation.metrics": "'my_vae_1:METRIC' and 'mig' both report 'mig'; rename it in one of them"}


def test_sections_that_do_not_go_together_are_mistakes():
    found = mistakes(changed(recon__name="bce"))
    assert found == {"recon.name": "'bce' needs targets in [0, 1]: set dataset.transform: unit"}
    assert config(recon__name="bce", dataset__transform="unit").recon.name == "bce"
    found = mistakes(changed(model={"name": "conv64", "latents": 9}, model__width=None, model__name="conv64"))
    assert found == {
        "model.name": "conv64 needs a height and width that are multiples of 16, but these are 24x24; "
        "the nearest supported size is 32x32; mlp supports any size"
    }


# ---- a user's own plug-in


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """`my_vae_1:FRAMEWORK` and a few that are wrong."""
    source = """
        from pydantic import Field
        from disentune.frameworks import beta_vae
        from disentune.plugin import Framework, Frozen, Metric

        class Params(Frozen):
            gamma: float = Field(ge=1)

        FRAMEWORK = Framework(name="mine", params=Params, loss=beta_vae.loss)
        METRIC = Metric(name="mine", params=Frozen, keys=("mig",), score=lambda *_: {})
        RECORD = "not a record"
    """
    (tmp_path / "my_vae_1.py").write_text(textwrap.dedent(source))
    (tmp_path / "my_broken_vae_1.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_vae_1", None)


def with_framework(name, **params):
    return TREE | {"framework": {"name": name, **params}}


def test_an_own_plugin_is_named_by_its_import_path_and_checked_as_strictly(own_module):
    own = TrialConfig.parse(with_framework("my_vae_1:FRAMEWORK", gamma=2))
    assert own.tree()["framework"] == {"name": "my_vae_1:FRAMEWORK", "gamma": 2.0}
    assert TrialConfig.parse(own.tree()).id == own.id
    assert mistakes(with_framework("my_vae_1:FRAMEWORK", gamma=0))["framework.gamma"].startswith("must be >= 1")
    assert mistakes(with_framework("my_vae_1:FRAMEWORK"))["framework.gamma"] == "is required but not set"
    assert "unknown key" in mistakes(with_framework("my_vae_1:FRAMEWORK", gamma=1, beta=3))["framework.beta"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_vae_1:RECORD", "'my_vae_1:RECORD' must be a Framework, got a str"),
        ("my_vae_1:NOTHING", "cannot import 'my_vae_1:NOTHING': AttributeError"),
        ("my_vae_1:", "cannot import 'my_vae_1:': AttributeError"),
        (":FRAMEWORK", "cannot import ':FRAMEWORK': ValueError"),
        ("my_broken_vae_1:FRAMEWORK", "cannot import 'my_broken_vae_1:FRAMEWORK': ZeroDivisionError"),
        ("no_such_module_1:FRAMEWORK", "cannot import 'no_such_module_1:FRAMEWORK': ModuleNotFoundError"),
        ("disentune.recon.mse:RECON", "must be a Framework, got a Recon"),
        ("my_vae_1.FRAMEWORK", "unknown framework 'my_vae_1.FRAMEWORK'"),
    ],
)
def test_a_wrong_import_path_is_refused_by_name(own_module, name, words):
    assert words in mistakes(with_framework(name))["framework.name"]


# ---- names that a plug-in may not give to its numbers

NAMES = """
    from disentune.frameworks import beta_vae
    from disentune.metrics import mig
    from disentune.plugin import Framework, Metric

    def metric(keys, details=()):
        return Metric(name="mine", params=mig.Params, keys=keys, score=mig.score, details=details)

    def framework(parts=("kl",), watch=()):
        return Framework(name="mine", params=beta_vae.Params, loss=beta_vae.loss, parts=parts, watch=watch)

"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """`plugin("metric(('a',))")` gives the import path of that plug-in."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def make(source):
        made.append(f"own_names_{len(made)}")
        importlib.invalidate_caches()
        (tmp_path / f"{made[-1]}.py").write_text(f"{textwrap.dedent(NAMES)}PLUGIN = {source}\n")
        return f"{made[-1]}:PLUGIN"

    yield make
    for name in made:
        sys.modules.pop(name, None)


RESERVED = [
    *((name, "is a column of every table") for name in (*FIXED, "loss_scale")),
    *((name, "is a column of the tables that `compare` and `analyse` make") for name in COMPARED),
    ("mine_scored", "ends with _scored"),
    ("framework.beta", "has a dot"), ("my.score", "has a dot"), ("clock/seconds", "has a slash"),
    ("loss", "is a loss of every row"), ("recon", "is a loss of every row"), ("latent", "is a loss of every row"),
    ("mine_sum", "ends with _sum"), ("watch_beta", "begins with watch_"), ("mine_max", "ends with _max"),
    ("mine_fast", "ends with _fast"), ("mine_sampled", "ends with _sampled"), ("_step", "begins with _"),
    ("udr", "is a score that compares the trials of a run"), ("", "is not a name"), (7, "is not a name"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reason"), RESERVED)
@pytest.mark.parametrize("where", ["keys", "details"])
def test_a_metric_may_not_take_the_name_of_another_column(plugin, name, reason, where):
    path = plugin(f"metric({(name,)!r})" if where == "keys" else f"metric(('mine',), {(name,)!r})")
    found = mistakes(changed(evaluation__metrics=["mig", path]))
    assert list(found) == ["evaluation.metrics.name"]
    assert found["evaluation.metrics.name"].startswith(f"'{path}' cannot be used: {name!r} of its {where} {reason}")
    assert found["evaluation.metrics.name"].endswith("; rename it")


@pytest.mark.parametrize(("name", "reason"), RESERVED)
def test_a_framework_may_not_name_a_loss_as_another_column(plugin, name, reason):
    path = plugin(f"framework(parts={(name,)!r})")
    found = mistakes(with_framework(path, beta=1))["framework.name"]
    assert found.startswith(f"'{path}' cannot be used: {name!r} of its parts {reason}")


def test_what_a_framework_watches_has_a_prefix_so_only_its_spelling_is_checked(plugin):
    assert TrialConfig.parse(with_framework(plugin("framework(watch=('step', 'loss'))"), beta=1))
    path = plugin("framework(watch=('a.b',))")
    assert "'a.b' of its watch has a dot" in mistakes(with_framework(path, beta=1))["framework.name"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("metric(('a', 'b', 'a'))", "'a' occurs twice in its keys and details; rename one"),
        ("metric(('a', 'b'), ('b',))", "'b' occurs twice in its keys and details; rename one"),
        ("metric('mine')", "its keys must be a tuple of names, such as ('mine',), got 'mine'"),
    ],
)
def test_names_of_one_metric_are_distinct_and_in_a_tuple(plugin, source, words):
    assert mistakes(changed(evaluation__metrics=[plugin(source)]))["evaluation.metrics.name"].endswith(words)


def test_a_metric_and_a_framework_may_not_share_a_name(plugin):
    own = plugin("metric(('tc',))")
    found = mistakes(changed(evaluation__metrics=[own]))["evaluation.metrics"]
    assert (
        found
        == f"'tc' is a key of '{own}' and also a loss of the framework 'beta_tc_vae'; rename it in your own plug-in"
    )
    framework = plugin("framework(parts=('kl', 'mig'))")
    found = mistakes(changed(evaluation__metrics=["mig"]) | {"framework": {"name": framework, "beta": 1}})
    assert found == {
        "evaluation.metrics": f"'mig' is a key of 'mig' and also a loss of the framework '{framework}'; "
        "rename it in your own plug-in"
    }


def test_two_metrics_may_not_share_a_detail(plugin):
    own = plugin("metric(('mine',), ('sap_matrix',))")
    found = mistakes(changed(evaluation__metrics=["sap", own]))["evaluation.metrics"]
    assert found == f"'{own}' and 'sap' both report 'sap_matrix'; rename it in one of them"


def test_ordinary_names_are_free(plugin):
    path = plugin("metric(('mine', 'mine-2', 'summary', 'maximum', 'steps'), ('matrix',))")
    assert config(evaluation__metrics=["mig", path]).metric_keys()[1:] == [
        "mine", "mine-2", "summary", "maximum", "steps",
    ]  # fmt: skip


@pytest.mark.parametrize("one", [*METRICS, *FRAMEWORKS], ids=lambda one: one.name)
def test_our_own_plugins_keep_to_these_rules(one):
    assert not wrong_names(one)


def test_no_metric_of_ours_shares_a_name_with_a_loss_of_ours():
    parts = {part for framework in FRAMEWORKS for part in framework.parts}
    assert not parts & {key for metric in METRICS for key in (*metric.keys, *metric.details)}


@pytest.mark.parametrize(
    ("metrics", "keys"),
    [
        ([], []),
        (["mig", "sap"], ["mig", "sap"]),
        ([{"name": "mig", "size": "both", "codes": "both"}], ["mig_fast", "mig_sampled_fast", "mig", "mig_sampled"]),
        (["mig", "no_such_module_1:METRIC"], None),
        ([{"name": "no_such_module_1:METRIC"}], None),
    ],
)
def test_what_metrics_report_is_known_from_their_section_unless_one_is_the_users_own(metrics, keys):
    assert metric_keys({"metrics": metrics}) == keys
    if keys is not None:
        assert config(evaluation__metrics=metrics).metric_keys() == keys


def test_a_section_of_metrics_that_is_wrong_is_refused():
    with pytest.raises(Invalid, match="unknown metric 'migg'"):
        metric_keys({"metrics": ["migg"]})
    with pytest.raises(Invalid, match="must be a list"):
        metric_keys({"metrics": "no_such_module_1:METRIC"})


# ---- small facts


def test_evaluations_are_at_multiples_of_every_and_at_the_end():
    every = config(training__steps=1000, evaluation__every=300)
    assert [step for step in range(1, 1001) if every.evaluates_at(step)] == [300, 600, 900, 1000]
    end = config(training__steps=1000, evaluation__every=None)
    assert [step for step in range(1, 1001) if end.evaluates_at(step)] == [1000]


names = st.text("abcdef_", min_size=1, max_size=5)
trees = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2) | names,
    lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, trees, max_size=4))
def test_nested_is_the_inverse_of_flattened(tree):
    assert nested(flattened(tree)) == tree


def test_nothing_can_stand_below_a_single_value():
    with pytest.raises(Invalid, match="'b' is a single value, so it cannot have keys below it"):
        nested({"a.b": 1, "a.b.c": 2})


def test_nested_leaves_the_mappings_it_is_given_alone():
    below = {"name": "overlap"}
    assert nested({"recon": below, "recon.alpha": 3}) == {"recon": {"name": "overlap", "alpha": 3}}
    assert below == {"name": "overlap"}


# ---- schedules

RAMP = {"schedule": "linear", "initial": 0, "final": 4, "begin": 10, "end": 20}


def test_a_scheduled_number_is_part_of_the_identity():
    tree = changed() | {"framework": {"name": "beta_vae", "beta": RAMP}}
    scheduled = TrialConfig.parse(tree)
    assert scheduled.tree()["framework"]["beta"] == {**RAMP, "initial": 0.0, "final": 4.0}
    assert TrialConfig.parse(scheduled.tree()).id == scheduled.id != config().id
    assert scheduled.id != config(framework__beta=0).id


def test_framework_params_follow_the_schedule_and_count_updates_already_made():
    scheduled = TrialConfig.parse(changed() | {"framework": {"name": "beta_vae", "beta": RAMP}})
    assert [scheduled.framework_params(step).beta for step in (1, 11, 16, 21, 1500)] == [0, 0, 2, 4, 4]
    assert config().framework_params(7).beta == 0.001


def test_a_constant_schedule_is_the_number_itself():
    constant = TrialConfig.parse(
        changed() | {"framework": {"name": "beta_vae", "beta": {"schedule": "constant", "value": 4}}}
    )
    assert constant.id == config(framework__beta=4).id


@pytest.mark.parametrize(
    ("beta", "key", "words"),
    [
        ({**RAMP, "final": -1}, "framework.beta.final", "must be >= 0"),
        ({**RAMP, "initial": -1}, "framework.beta.initial", "must be >= 0"),
        ({**RAMP, "schedule": "liner"}, "framework.beta.schedule",
         "must be one of 'constant', 'linear', 'cosine', 'cyclic', got 'liner'. Did you mean 'linear'?"),
        ({"schedule": "linear", "final": 1}, "framework.beta.initial", "is required but not set"),
        ({**RAMP, "finale": 1}, "framework.beta.finale",
         "unknown key. Did you mean 'final'? Known: begin, end, final, initial, schedule"),
        ({**RAMP, "end": 5}, "framework.beta.end", "must be after begin, 10, but is 5"),
        ({**RAMP, "initial": "low"}, "framework.beta.initial", "must be a number"),
        ({"schedule": "cyclic", "initial": 0, "final": 1, "period": 0}, "framework.beta.period", "must be >= 1"),
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_named(beta, key, words):
    assert mistakes(changed() | {"framework": {"name": "beta_vae", "beta": beta}}) == {key: words}


def test_what_is_not_a_number_cannot_be_scheduled():
    found = mistakes(changed() | {"framework": {"name": "ada_gvae", "beta": 1, "pairs": RAMP}})
    assert "cannot follow a schedule" in found["framework.pairs"]
    assert "framework.betta" in mistakes(changed() | {"framework": {"name": "beta_vae", "beta": 1, "betta": RAMP}})


def ramp(initial, final, begin, end):
    return {"schedule": "linear", "initial": initial, "final": final, "begin": begin, "end": end}


def test_schedules_that_clash_at_some_step_are_refused():
    """Both weights are sound at the start and at the end, but alpha falls before lambda_z rises."""
    clash = {"name": "info_vae", "alpha": ramp(0, -5, 0, 2), "lambda_z": ramp(1, 6, 4, 6)}
    found = mistakes(changed() | {"framework": clash})
    assert [text.split(":")[0] for text in found.values()] == ["at step 2"]
    together = {"name": "info_vae", "alpha": ramp(0, -5, 0, 2), "lambda_z": ramp(1, 6, 0, 2)}
    assert TrialConfig.parse(changed() | {"framework": together}).framework_params(2).mmd_weight == pytest.approx(0)


def test_what_is_read_once_cannot_be_scheduled():
    section = {"name": "factor_vae", "gamma": 1, "helper_learning_rate": ramp(1e-4, 1e-3, 0, 5)}
    assert "read once" in mistakes(changed() | {"framework": section})["framework.helper_learning_rate"]


def test_a_named_choice_may_be_spelled_short():
    short = TrialConfig.parse(changed() | {"framework": {"name": "ada_gvae", "beta": 1, "pairs": "original"}})
    long = TrialConfig.parse(changed() | {"framework": {"name": "ada_gvae", "beta": 1, "pairs": {"name": "original"}}})
    assert short.id == long.id
    assert short.tree()["framework"]["pairs"] == {"name": "original"}


@pytest.mark.parametrize(
    ("pairs", "key", "words"),
    [
        ("orginal", "framework.pairs.name", "must be one of"),
        ({"name": "laplace", "rate": 0}, "framework.pairs.rate", "must be > 0"),
        ({"name": "fixed_k"}, "framework.pairs.k", "is required but not set"),
        ("fixed_k", "framework.pairs.k", "is required but not set"),
        ({"name": "laplace", "rat": 1}, "framework.pairs.rat", "unknown key. Did you mean 'rate'? Known: name, rate"),
        ({}, "framework.pairs.name", "is required but not set"),
        (3, "framework.pairs", "must be a mapping"),
    ],
)
def test_a_wrong_choice_is_named_where_it_stands(pairs, key, words):
    found = mistakes(changed() | {"framework": {"name": "ada_gvae", "beta": 1, "pairs": pairs}})
    assert found.keys() == {key}
    assert found[key].startswith(words)


def test_a_schedule_in_the_wrong_place_is_reported():
    found = mistakes(changed() | {"training": {**TREE["training"], "learning_rate": RAMP}})
    assert found["training.learning_rate"].endswith("a schedule; learning_rate_schedule multiplies this one)")


def test_a_batch_that_cannot_serve_the_framework_is_refused():
    tree = changed(training__batch_size=1) | {"framework": {"name": "dip_vae_i", "lambda_od": 1}}
    assert "batch_size must be >= 2" in mistakes(tree)["framework"]


def test_a_pair_law_that_cannot_serve_the_factors_is_refused():
    tree = changed() | {"framework": {"name": "ada_gvae", "beta": 1, "pairs": {"name": "fixed_k", "k": 7}}}
    assert mistakes(tree) == {"framework.pairs": "k must be <= 6, the number of factors with two values or more, got 7"}


def test_loss_keys_are_those_of_the_framework():
    keys = config().loss_keys()
    assert keys == ["loss", "recon", "kl", "loss_sum", "recon_sum", "kl_sum"]
    control = TrialConfig.parse(changed() | {"framework": {"name": "control_vae", "kl_target": 3}})
    assert "watch_beta" in control.loss_keys()


# ---- what becomes of a data set's images


def test_a_misspelt_key_of_every_data_set_is_recognised():
    found = mistakes(changed(dataset__nois=0.1))
    assert found["dataset.nois"].startswith("unknown key. Did you mean 'noise'? Known: grid_size, image_size")
    assert found["dataset.nois"].endswith("transform, statistics, noise, law, held_out")


def test_noise_is_a_share_of_the_range():
    assert config(dataset__noise=0.1).pixels.noise == 0.1
    assert mistakes(changed(dataset__noise=1.5)) == {"dataset.noise": "must be <= 1"}
    assert config(dataset__noise=0).id == config().id


def test_noise_changes_the_trial():
    assert config(dataset__noise=0.1).id != config().id


def test_points_have_no_pixels():
    points = {"name": "pinwheel", "noise": 0.1, "transform": "unit"}
    found = mistakes(TREE | {"dataset": points, "recon": {"name": "bce"}})
    assert found["dataset.noise"] == "is added to pixels, but 'pinwheel' holds points; omit it"
    assert found["recon.name"] == "'bce' needs targets in [0, 1], but 'pinwheel' holds points"


def test_published_constants_must_exist():
    found = mistakes(TREE | {"dataset": {"name": "sprites2d", "statistics": "published"}})
    text = "must be computed: no published constants of 'sprites2d' with these parameters are known"
    assert found["dataset.statistics"] == text


def test_no_data_set_has_a_parameter_of_a_name_that_all_have():
    for dataset in DATASETS:
        assert not set(dataset.params.model_fields) & set(Pixels.model_fields)


# ---- codes that are mapped from the prior to N(0, 1)


def test_mapped_codes_need_a_prior_that_can_be_mapped():
    metrics = [{"name": "mig", "codes": "normal"}]
    found = mistakes(changed(evaluation__metrics=metrics))
    assert "set framework.prior.name: student_t of decomposition_vae, or omit codes" in found["evaluation.metrics"]
    other = {"name": "decomposition_vae", "beta": 1, "prior": "mixture"}
    assert (
        "'decomposition_vae' has no such prior"
        in mistakes(changed(evaluation__metrics=metrics, framework=other, model__latents=2))["evaluation.metrics"]
    )


def test_mapped_codes_have_keys_of_their_own_and_direction():
    framework = {"name": "decomposition_vae", "beta": 1, "prior": {"name": "student_t", "nu": 3}}
    entries = ["mig", {"name": "mig", "codes": "normal", "size": "fast"}]
    config = TrialConfig.parse(changed(evaluation__metrics=entries, framework=framework))
    assert config.metric_keys() == ["mig", "mig_normal_fast"]
    assert best_of("kl_per_latent_normal_fast") == best_of("kl_per_latent") == "min"
