"""Data sets: images on a full grid of factors."""

from typing import Any

from disentune.data import xysquares
from disentune.parameters import chosen
from disentune.plugin import Catalogue, Dataset, FactorImages

DATASETS = Catalogue("data set", Dataset, [xysquares.DATASET])


def load(name: str, /, **params: Any) -> FactorImages:
    """An opened data set; ConfigError lists every wrong parameter."""
    dataset, checked = chosen(DATASETS, name, params)
    return dataset.open(checked)
