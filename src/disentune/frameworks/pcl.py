"""PCL: Hyvarinen & Morioka, AISTATS 2017: distinguishes true pairs from shuffled ones by a sum over features.

Not a VAE: the features are the encoder's means, and neither the decoder nor the log-variances learn anything.
"""

from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import batch_norm, binary_cross_entropy_with_logits

from disentune.frameworks.paired import both_images
from disentune.maths.pairs import Laplace, Pairs
from disentune.plugin import AutoEncoder, Batch, Context, Framework, Frozen, Losses, Step


class Params(Frozen):
    """`normalised` features have mean 0 and variance 1 over the batch's 2n images, as in the authors' code.

    This only shifts and scales each feature, so metrics use the means as they are. `raw` features, with the weight of
    the squares fixed at 1, are the baseline on images in the first release of SlowVAE's code (Klindt et al., 2021).
    """

    features: Literal["normalised", "raw"] = Field(
        "normalised", description="normalised to mean 0 and variance 1 over the batch, as in the authors' code, or raw"
    )
    pairs: Pairs = Field(Laplace(), description="how the second image of a pair differs from the first")


class Regression(nn.Module):
    """Logit that two images are a pair: -sum_i |u_i h_i + v_i h'_i + b_i| + |a| sum_i h_i^2 + m.

    h is the feature of the later image, h' of the earlier. For AR(1) sources with Laplace innovations it would be the
    log-ratio of true to shuffled pairs if their marginals were Gaussian. The authors clamp a >= 0 after each step.
    """

    def __init__(self, features: int, learns_scale: bool):
        super().__init__()
        self.later = nn.Parameter(torch.ones(features))
        self.earlier = nn.Parameter(-torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.scale = nn.Parameter(torch.ones(())) if learns_scale else nn.Buffer(torch.ones(()))
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, later: Tensor, earlier: Tensor) -> Tensor:
        """(n, d) and (n, d) -> (n,)."""
        steps = (self.later * later + self.earlier * earlier + self.shift).abs().sum(dim=1)
        return self.scale.abs() * later.square().sum(dim=1) - steps + self.offset


def extra(setting: Context, params: Params, generator: torch.Generator, images: Any) -> Regression:
    return Regression(setting.latents, learns_scale=params.features == "normalised")


def others(n: int, rng: np.random.Generator) -> np.ndarray:
    """For each of n >= 2, the uniformly random index of another: the next on a random cycle, so never itself."""
    cycle = rng.permutation(n)
    following = np.empty(n, int)
    following[cycle] = np.roll(cycle, -1)
    return following


def loss(model: AutoEncoder, batch: Batch, params: Params, step: Step) -> Losses:
    """Binary cross-entropy over n pairs and the same n later images with another pair's earlier one."""
    h = model.encode(both_images(batch)).mean
    if params.features == "normalised":
        h = batch_norm(h, None, None, training=True)
    earlier, later = h.chunk(2)
    wrong = torch.from_numpy(others(len(earlier), step.rng)).to(h.device)
    logits = torch.stack([step.extra(later, earlier), step.extra(later, earlier[wrong])])
    truth = torch.stack([torch.ones_like(logits[0]), torch.zeros_like(logits[0])])
    contrast = binary_cross_entropy_with_logits(logits, truth)
    accuracy = ((logits > 0) == truth.bool()).to(h.dtype).mean()
    return Losses(h.new_zeros(()), contrast, {"contrast": contrast}, {"accuracy": accuracy})


def check(setting: Context, params: Params) -> None:
    if setting.batch_size < 2:
        raise ValueError("'pcl' shuffles the pairs of a batch: training.batch_size must be >= 2")


FRAMEWORK = Framework(
    name="pcl", params=Params, loss=loss, parts=("contrast",), watch=("accuracy",), extra=extra, check=check
)
