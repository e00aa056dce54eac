"""The learned kernel of the overlap loss: its objective is the order of `inspect`, and what it finds is better."""

import numpy as np
import pytest
import torch

from disentune.errors import DataError
from disentune.learn import kernels
from disentune.learn.image_distances import look, opened
from disentune.recon.overlap import Params, blur_matrix, one_side
from disentune.results.inspection import world_asked

SMALL = ["image_size=12", "square_size=2", "spacing=2", "grid_size=5", "squares=2"]
RADIUS, ALPHA, LINES = 5, 121.0, 6


def world(*sets: str, dataset: str = "xysquares", recon: str = "overlap"):
    return opened(world_asked(dataset, recon, [*SMALL, *sets] if dataset == "xysquares" else sets).config)


@pytest.fixture(scope="module")
def found():
    return kernels.learned(world(), RADIUS, ALPHA, LINES)


def order_by_inspect(learned, *sets: str) -> float:
    """The order that `disentune inspect` gives on the same lines, by the loss itself instead of by our formula."""
    keys = [f"radius={RADIUS}", f"alpha={ALPHA}", "recon.kernel=learned", f"recon.taps={learned.taps}"]
    return look(world(*sets, *keys), LINES).order


def test_the_order_it_reports_is_the_one_that_inspect_measures(found):
    assert order_by_inspect(found) == pytest.approx(found.after, abs=1e-9)
    box = look(world(f"radius={RADIUS}", f"alpha={ALPHA}"), LINES).order
    assert box == pytest.approx(found.before, abs=1e-9)


def test_it_orders_better_than_the_box_that_it_starts_from(found):
    assert found.after > found.before + 0.01


def test_it_orders_lines_that_it_has_not_seen(found):
    box = look(world(f"radius={RADIUS}", f"alpha={ALPHA}"), None).order
    keys = [f"radius={RADIUS}", f"alpha={ALPHA}", "recon.kernel=learned", f"recon.taps={found.taps}"]
    assert look(world(*keys), None).order > box


def test_its_weights_are_positive_and_sum_to_one(found):
    assert min(found.taps) > 0
    assert found.taps[0] + 2 * sum(found.taps[1:]) == pytest.approx(1, abs=1e-12)


def test_the_same_world_gives_the_same_kernel(found):
    assert kernels.learned(world(), RADIUS, ALPHA, LINES) == found


def test_more_steps_change_the_order_in_the_third_digit_at_most(found):
    longer = kernels.learned(world(), RADIUS, ALPHA, LINES, steps=2 * kernels.STEPS)
    assert found.after <= longer.after < found.after + 0.01


def test_the_gradient_is_that_of_finite_differences():
    images = torch.from_numpy(np.random.default_rng(0).random((3, 4, 1, 6, 5)))
    logits = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: kernels._order(images, kernels.normalised(x), 9.0), logits)


def test_its_blur_is_that_of_the_loss():
    taps = kernels.normalised(torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64))
    params = Params(kernel="learned", radius=2, alpha=1, taps=taps.tolist())
    np.testing.assert_allclose(kernels._blur(7, taps), blur_matrix(7, one_side(params)), rtol=1e-15)


def test_a_world_without_an_order_is_refused():
    with pytest.raises(DataError, match="no kernel can be learned"):
        kernels.learned(world("grid_size=2"), RADIUS, ALPHA, LINES)
