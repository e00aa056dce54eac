"""Statistics of stored images against NumPy."""

import numpy as np
import pytest

from disentune.data.prepared.measuring import Measuring


@pytest.mark.parametrize("chunks", [1, 3, 50])
def test_they_are_means_over_images_of_mean_and_unbiased_deviation(chunks):
    images = np.random.default_rng(0).integers(256, size=(50, 3, 6, 5), dtype=np.uint8)
    measuring = Measuring()
    for chunk in np.array_split(images, chunks):
        measuring.add(chunk)
    mean, std = measuring.statistics()
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 2, 3)), rtol=1e-14)
    np.testing.assert_allclose(std, (images / 255).std(axis=(2, 3), ddof=1).mean(axis=0), rtol=1e-13)


def test_chunks_do_not_change_a_bit():
    images = np.random.default_rng(0).integers(256, size=(50, 1, 6, 5), dtype=np.uint8)

    def measured(chunks):
        measuring = Measuring()
        for chunk in np.array_split(images, chunks):
            measuring.add(chunk)
        return measuring.statistics()

    assert measured(1) == measured(7) == measured(50)


def test_the_deviation_of_nearly_white_images_is_exact():
    """What a difference of squares in float32 would lose."""
    images = np.full((2, 1, 64, 64), 255, np.uint8)
    images[:, :, 0, 0] = 254
    measuring = Measuring()
    measuring.add(images)
    assert measuring.statistics().std[0] == pytest.approx(1 / 255 / 64, rel=1e-12)


def test_a_channel_that_never_changes_has_deviation_one():
    measuring = Measuring()
    measuring.add(np.full((3, 2, 4, 4), 7, np.uint8))
    assert measuring.statistics() == ((7 / 255,) * 2, (1.0, 1.0))
