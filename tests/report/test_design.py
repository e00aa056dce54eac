"""The design is read off the trials: what differs, where, and what a group may pool."""

import itertools

import numpy as np
import pandas as pd
import pytest

from disentune.report.canvas import MISSING
from disentune.report.design import Layout, crossed, design_of, filled, lay_out, swept


def trials_of(*arms):
    """`(arm, {key: value or list of values})`: the product of the lists, with a row for each."""
    rows = []
    for arm, keys in arms:
        lists = {key: value if isinstance(value, list) else [value] for key, value in keys.items()}
        rows += [{"arm": arm, **dict(zip(lists, point, strict=True))} for point in itertools.product(*lists.values())]
    frame = pd.DataFrame(rows)
    frame.insert(0, "trial_id", [f"t{i:03}" for i in range(len(frame))])
    return frame


def design(*arms):
    frame = trials_of(*arms)
    varying = [key for key in frame if "." in key and frame[key].nunique(dropna=False) > 1]
    return design_of(frame, varying)


NAMES = ["ada_gvae", "beta_vae"]
QUICK_START = (
    ("overlapping", {"dataset.spacing": 1, "recon.name": "mse", "framework.name": NAMES, "seed": [0, 1, 2]}),
    ("adversarial", {"dataset.spacing": 4, "recon.name": "mse", "framework.name": NAMES, "seed": [0, 1, 2]}),
    ("rescued", {"dataset.spacing": 4, "recon.name": "overlap", "framework.name": NAMES, "seed": [0, 1, 2]}),
)
GRID = ("all", {"framework.beta": [1, 4, 16], "model.latents": [3, 6], "seed": [0, 1, 2]})


# ---- the design


def test_of_a_union_of_arms_the_keys_that_arms_fix_are_confounded_with_the_arm():
    found = design(*QUICK_START)
    assert found.keys == ("arm", "framework.name")
    assert found.by_arm == ("dataset.spacing", "recon.name")
    assert found.within == {"framework.name": ("overlapping", "adversarial", "rescued")}
    assert found.groups().value_counts().tolist() == [3] * 6


def test_of_one_arm_the_swept_keys_tell_groups_apart():
    found = design(GRID)
    assert found.keys == ("framework.beta", "model.latents")
    assert (found.by_arm, found.sampled) == ((), ())
    assert found.groups().value_counts().tolist() == [3] * 6


def test_seeds_only_are_one_group():
    found = design(("all", {"framework.beta": 1, "seed": [0, 1, 2, 3]}))
    assert found.keys == ()
    assert found.groups().nunique() == 1
    assert found.hidden([]) == []


def test_a_key_is_swept_only_inside_the_arms_where_it_differs():
    found = design(("a", {"framework.beta": [1, 2], "seed": 0}), ("b", {"framework.beta": 1, "seed": 0}))
    assert found.within == {"framework.beta": ("a",)}


def test_a_key_that_follows_from_another_is_not_named_twice():
    frame = trials_of(("all", {"recon.name": ["mse", "overlap"], "seed": [0, 1]}))
    frame["recon.radius"] = np.where(frame["recon.name"] == "overlap", 3.0, np.nan)
    found = design_of(frame, ["recon.name", "recon.radius"])
    assert found.keys == ("recon.name",)


def test_numbers_of_a_random_search_are_sampled_and_a_fine_grid_is_not():
    rng = np.random.default_rng(0)
    points = [("all", {"framework.beta": rng.uniform(), "training.learning_rate": rng.uniform(), "seed": [0, 1],
                       "model.latents": int(rng.choice([4, 6]))}) for _ in range(12)]  # fmt: skip
    found = design(*points)
    assert found.sampled == ("framework.beta", "training.learning_rate")
    assert set(found.hidden(["framework.beta"])) == {"training.learning_rate", "model.latents"}
    assert design(("all", {"framework.beta": [float(i) for i in range(20)], "seed": [0]})).sampled == ()
    assert design(GRID).sampled == ()


# ---- what a mean would mix


@pytest.mark.parametrize(("shown", "hidden"), [
    ((), ["arm", "framework.name"]),
    (("arm",), ["framework.name"]),
    (("arm", "framework.name"), []),
    (("dataset.spacing",), ["arm", "framework.name"]),  # two arms have spacing 4
    (("dataset.spacing", "recon.name", "framework.name"), []),  # together they say the arm
    (("recon.name", "framework.name"), ["arm"]),
    (("dataset.never",), ["arm", "framework.name"]),
])  # fmt: skip
def test_hidden_keys_are_those_that_differ_inside_a_group(shown, hidden):
    assert design(*QUICK_START).hidden(shown) == hidden


def test_only_a_balanced_product_is_a_full_crossing():
    assert design(GRID).is_crossing(["framework.beta"], ["model.latents"])
    lacking = trials_of(GRID)[:-1]
    assert not design_of(lacking, ["framework.beta", "model.latents"]).is_crossing(
        ["framework.beta"], ["model.latents"]
    )


def test_arms_are_never_a_crossing_to_average_over():
    arms = [(arm, {"recon.name": loss, "framework.beta": [1, 2], "seed": 0}) for arm, loss in (("a", "x"), ("b", "y"))]
    found = design(*arms)
    assert not found.is_crossing(["framework.beta"], ["arm"])
    assert lay_out(found, "framework.beta", "seed").averaged == ()


# ---- where keys go


def test_every_key_that_would_be_mixed_becomes_part_of_the_series():
    assert lay_out(design(*QUICK_START), "arm") == Layout("arm", ("framework.name",))
    assert lay_out(design(*QUICK_START), "dataset.spacing") == Layout("dataset.spacing", ("arm", "framework.name"))
    assert lay_out(design(GRID), "framework.beta") == Layout("framework.beta", ("model.latents",))


def test_what_colours_cannot_tell_gets_panels_the_fewest_possible():
    keys = {"dataset.name": ["a", "b", "c"], "framework.name": ["u", "v", "w", "x"], "framework.beta": [1, 2, 3]}
    found = lay_out(design(("all", {**keys, "seed": [0, 1]})), "framework.beta")
    assert found == Layout("framework.beta", ("framework.name",), ("dataset.name",))


def test_a_named_series_is_a_marginal_only_in_a_full_crossing():
    grid = ("all", {"framework.beta": [1, 4], "model.latents": [3, 6], "model.name": ["a", "b"], "seed": [0, 1]})
    assert lay_out(design(grid), "framework.beta", "model.name").averaged == ("model.latents",)
    frame = trials_of(grid)[:-1]
    uneven = design_of(frame, ["framework.beta", "model.latents", "model.name"])
    found = lay_out(uneven, "framework.beta", "model.name")
    assert (found.averaged, found.series) == ((), ("model.name", "model.latents"))


def test_without_room_every_trial_is_for_itself():
    many = {"model.latents": list(range(10)), "training.batch_size": list(range(10)), "framework.beta": [1, 2]}
    found = lay_out(design(("all", {**many, "seed": 0})), "framework.beta")
    assert found.mixed == ("model.latents", "training.batch_size")
    assert found.series == ()


@pytest.mark.parametrize("arms", [QUICK_START, (GRID,)])
def test_groups_of_a_layout_hold_replicates_only(arms):
    """The independent statement of the rule: inside x, series and panels nothing but the seed differs."""
    found, frame = design(*arms), trials_of(*arms)
    for x in found.keys:
        layout = lay_out(found, x)
        for _, group in frame.groupby(list(layout.shown)):
            assert group["seed"].is_unique
            assert group.drop(columns=["trial_id", "seed"]).nunique(dropna=False).max() == 1


# ---- keys of a table


def test_a_key_that_another_one_decides_is_not_crossed_with_it():
    frame = pd.DataFrame({"arm": ["a", "a", "b"], "loss": ["x", "x", "y"], "beta": [1, 2, 1], "radius": [None, 3, 4]})
    assert not crossed(frame, "loss", "arm")
    assert crossed(frame, "beta", "arm")
    assert crossed(frame, "radius", "arm")  # to have none is a value too
    assert not crossed(frame, "beta", "absent")


def test_a_default_that_each_plug_in_has_is_not_swept():
    frame = pd.DataFrame({"dataset.name": ["a", "a", "b"], "dataset.size": [1, 1, 2], "dataset.spacing": [1, 2, 2]})
    assert not swept(frame, "dataset.size")
    assert swept(frame, "dataset.spacing")
    assert swept(frame, "dataset.name")
    assert swept(frame.drop(columns="dataset.name"), "dataset.size")
    assert not swept(frame[:2], "dataset.size")


def test_missing_values_are_a_word():
    assert filled(pd.Series([1, None, 3], dtype="Int64")).tolist() == [1, MISSING, 3]
