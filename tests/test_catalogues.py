"""File name = record's name = catalogue's name, for every plug-in."""

import importlib
import pkgutil

import pytest

from disentune.data import DATASETS
from disentune.frameworks import FRAMEWORKS
from disentune.metrics import METRICS
from disentune.models import MODELS
from disentune.plugin import summary
from disentune.recon import RECONS

CATALOGUES = {"data": DATASETS, "frameworks": FRAMEWORKS, "metrics": METRICS, "models": MODELS, "recon": RECONS}


def modules(folder):
    package = importlib.import_module(f"disentune.{folder}")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return {name: importlib.import_module(f"disentune.{folder}.{name}") for name in names}


@pytest.mark.parametrize("folder", CATALOGUES)
def test_each_file_with_a_record_bears_its_name_and_is_in_the_catalogue(folder):
    catalogue = CATALOGUES[folder]
    attribute = catalogue.record.__name__.upper()
    found = {name: getattr(module, attribute, None) for name, module in modules(folder).items()}
    records = {name: record for name, record in found.items() if record}
    assert {name: record.name for name, record in records.items()} == {name: name for name in catalogue.names()}
    assert all(catalogue[name] is record for name, record in records.items())


@pytest.mark.parametrize("folder", CATALOGUES)
def test_each_plugin_has_a_line_for_the_list(folder):
    for plugin in CATALOGUES[folder]:
        line = summary(plugin)
        assert 20 < len(line) <= 120
        assert line.endswith(".")
