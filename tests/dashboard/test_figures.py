"""Figures of the report, drawn on demand."""

import json

import pytest

from disentune.dashboard import figures
from disentune.report import canvas
from disentune.report.kinds import KINDS
from run_examples import quick_trial, study


@pytest.fixture
def studied(make_run, followed):
    maker = make_run()
    study(maker, seeds=1, betas=(1e-3, 1e-1))
    return followed(maker.run)


def test_every_kind_is_offered_and_those_that_suit_come_first(studied):
    found = figures.offered(studied)
    assert {one["spec"]["name"] for one in found["figures"]} == set(KINDS)
    suits = [one["suits"] for one in found["figures"]]
    assert suits == sorted(suits, reverse=True)
    assert "framework.beta" in {one["key"] for one in found["keys"]}
    assert [one["key"] for one in found["metrics"]] == ["mig", "dci_disentanglement", "sap"]


@pytest.mark.slow
def test_a_figure_follows_its_rows_and_its_choices(studied):
    book, spec = figures.album(), json.dumps({"name": "trend", "x": "framework.beta", "metric": "sap"})
    first = figures.drawn(book, studied, spec, [])
    assert first["reason"] == ""
    assert "SAP" in first["title"]
    assert figures.drawn(book, studied, spec, [])["key"] == first["key"]
    id = next(iter(studied.feed.lines))
    assert figures.drawn(book, studied, spec, [id])["key"] != first["key"]
    studied.run.trial(id).update_status(state="running")
    studied.run.trial(id).append_row({"step": 2000, "metrics": {"sap": 1.0}})
    studied.look_at_rows()
    assert figures.drawn(book, studied, spec, [])["key"] != first["key"]


def test_a_figure_that_cannot_be_drawn_says_why(make_run, followed):
    maker = make_run()
    quick_trial(maker, [{"step": 50, "mig": 0.5}])
    found = figures.drawn(figures.album(), followed(maker.run), '{"name": "violins", "metric": "sap"}', [])
    assert found["reason"] == "no trial has reported sap yet"


@pytest.mark.slow
def test_the_dark_theme_has_none_of_the_light_inks(studied):
    book = figures.album()
    key = figures.drawn(book, studied, '{"name": "summary"}', [])["key"]
    light, dark = (figures.svg(book.get(key), is_dark).decode().lower() for is_dark in (False, True))
    assert canvas.INK in light
    assert not any(colour.lower() in dark for colour in (canvas.INK, *canvas.PALETTE))


@pytest.mark.slow
def test_a_drawing_is_served_as_a_picture_in_which_nothing_runs(dashboard, studied):
    client = dashboard(studied.run.path.parent.parent)
    key = client.get("figure", run="demo/main", spec='{"name": "summary"}')["key"]
    for kind, begins in (("svg", b"<svg"), ("png", b"\x89PNG")):
        found = client.ask("/api/drawing", {"key": key, "as": kind})
        assert found.content.startswith(begins)
    assert "sandbox" in client.ask("/api/drawing", {"key": key}).headers["content-security-policy"]
    assert client.refused("drawing", key="none")[0] == 404


def test_old_drawings_make_room():
    book = figures.album()
    for number in range(figures.KEPT + 5):
        book.keep(str(number), figures.Drawing("trend", "", ""))
    assert len(book.drawn) == figures.KEPT
    assert "0" not in book.drawn
