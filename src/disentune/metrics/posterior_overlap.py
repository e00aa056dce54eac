"""Posterior overlap: Mathieu et al., ICML 2019, section 3.1: share of codes that another image fits better.

A code is drawn from each image's posterior. It is confused when the posterior of another image has a higher density
there: then the decoder cannot know which of them it must reconstruct, and images that it confuses at little loss are
placed side by side. 0: every code tells its image; towards 1: posteriors lie on top of each other. With more images
there are more to be confused with, so compare equal `samples` only.
"""

import numpy as np
from pydantic import Field

from disentune.metrics.posteriors import blocks, drawn, own_log_densities
from disentune.plugin import Count, Frozen, Metric, Table


class Params(Frozen):
    """Images whose posteriors are compared."""

    samples: Count = Field(5_000, ge=2, le=20_000, description="images whose posteriors are compared with each other")


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, float]:
    q = drawn(table, params.samples, rng)
    own, confused = own_log_densities(q), 0
    for rows, log_q in blocks(q):
        joint = log_q.sum(axis=2)
        joint[np.arange(len(joint)), np.arange(len(q.means))[rows]] = -np.inf  # its own
        confused += int((joint.max(axis=1) > own[rows]).sum())
    return {"posterior_overlap": confused / len(own)}


METRIC = Metric(
    name="posterior_overlap",
    params=Params,
    keys=("posterior_overlap",),
    score=score,
    fast={"samples": 2_000},
    needs=("logvars",),
    rows=lambda params: 2,
    best="min",
)
