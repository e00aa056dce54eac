"""Wrong parameters are all named at once, in words."""

import pytest
from pydantic import Field

from disentune.errors import ConfigError
from disentune.parameters import chosen
from disentune.plugin import Catalogue, Count, Frozen, Metric


class Params(Frozen):
    bins: Count = Field(20, ge=2)
    kind: float


METRICS = Catalogue("metric", Metric, {"mine": Metric("mine", Params, ("mine",), lambda *_: {})})


def message(name="mine", **values):
    with pytest.raises(ConfigError) as raised:
        chosen(METRICS, name, values)
    return str(raised.value)


def test_good_parameters_come_back_checked():
    plugin, params = chosen(METRICS, "mine", {"kind": 1, "bins": 1e1})
    assert plugin.name == "mine"
    assert params == Params(kind=1.0, bins=10)


def test_an_unknown_name_is_answered_with_the_nearest():
    assert "unknown metric 'mien'. Did you mean 'mine'?" in message("mien")


def test_every_problem_is_listed():
    lines = message(bin=3, bins=1).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["bin", "bins", "kind"]


def test_each_problem_says_what_must_hold_and_what_came():
    text = message(bin=3, bins=1)
    assert "unknown key. Did you mean 'bins'? Known: bins, kind" in text
    assert "must be >= 2, got 1" in text
    assert "is required but not set" in text


def test_words_are_not_pydantics():
    text = message(bins=2.5, kind="a")
    assert "must be a whole number, got 2.5" in text
    assert "Input" not in text
    assert "pydantic" not in text
