"""The page's table of differences."""

from datetime import UTC, datetime

from disentune.report.differences import differences
from disentune.report.page import differences_of, html, looked_at
from disentune.report.scores import RunScores
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


def test_two_seeds_have_no_columns_of_p(studied):
    results = studied(seeds=2)
    found = differences_of(results, objective_or_default(results))
    titles = [column.title for column in found["columns"]]
    assert titles == ["a", "b", "n", "a - b", "95 % interval", "verdict"]
    where, scores = "runs/demo/main", RunScores(results, objective_or_default(results))
    page = html(scores, [], where, datetime(2026, 1, 2, tzinfo=UTC), looked_at(results, where))
    assert "with its 95 % t interval" in page
    assert "p holm" not in page
