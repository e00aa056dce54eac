"""The page's table of differences."""

from disentune.report.differences import differences
from disentune.report.page import differences_of
from disentune.results.tables import objective_or_default


def test_it_compares_the_arms(studied):
    results = studied()
    found = differences(results, objective_or_default(results))
    assert found.by == "arm"
    assert len(found.table) == 1
    assert {"a", "b", "95 % interval", "p holm", "verdict"} <= set(found.table)


def test_one_seed_has_no_differences(studied):
    results = studied(seeds=1)
    assert differences(results, objective_or_default(results)) is None
    assert differences_of(results, objective_or_default(results)) is None
