"""W&B reports: the specification without a server, and the same report saved by the real client."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from disentune.analysis import ANALYSES
from disentune.analysis.comparison import compare, line
from disentune.analysis.runs import compared_trials, score_table
from disentune.report.page import Drawing
from disentune.results.tables import read
from disentune.spec.figures import FIGURES
from disentune.spec.settings import Wandb
from disentune.tracking import reports, summary
from disentune.tracking.connection import connection
from run_examples import course, methods_study, quick_trial, study
from wandb_server import ENTITY, WandbServer, forget_client

pytestmark = [
    pytest.mark.wandb,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnhandledThreadExceptionWarning", "ignore:subprocess:ResourceWarning"
    ),
]


@pytest.fixture
def away(monkeypatch, tmp_path):
    """Nobody has logged in."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


@pytest.fixture
def server(monkeypatch, tmp_path):
    found = WandbServer()
    for name, value in {**found.environment(), "WANDB_CONFIG_DIR": str(tmp_path / "config")}.items():
        monkeypatch.setenv(name, value)
    yield found
    forget_client()
    found.close()


@pytest.fixture
def maker(make_run):
    made = make_run()
    study(made, seeds=1)
    return made


def place_of(maker):
    sweep = maker.run.sweep()
    return connection(Wandb(project="demo"), sweep.name, maker.run.name)


def texts(block):
    """Every text below a block of a specification."""
    if isinstance(block, dict):
        own = [block["text"]] if isinstance(block.get("text"), str) else []
        return own + [text for value in block.values() for text in texts(value)]
    return [text for item in block for text in texts(item)] if isinstance(block, list) else []


def grid(spec):
    return next(block for block in spec["blocks"] if block["type"] == "panel-grid")["metadata"]


def test_without_a_server_the_specification_is_written(away, maker):
    made = reports.make(read(maker.run), place_of(maker))
    assert made.url == ""
    assert made.reason.startswith("no key; set WANDB_API_KEY")
    written = json.loads((maker.run.report_folder / "wandb_report.json").read_text())
    assert made.file == str(maker.run.report_folder / "wandb_report.json")
    assert "Does the loss decide?" in texts(written["spec"])
    assert written["project"] == "demo"


@pytest.mark.slow
def test_runs_are_those_of_the_group(away, maker):
    spec = reports.specification(read(maker.run), place_of(maker))["spec"]
    (runs,) = grid(spec)["runSets"]
    (condition,) = runs["filters"]["filters"]
    assert (condition["key"], condition["op"], condition["value"]) == (
        {"section": "run", "name": "group"}, "=", "demo/main"
    )  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_every_kind_of_figure_has_a_panel(away, maker, name):
    with open(maker.run.sweep_path, "a") as file:
        file.write(f"figures: [{name}]\n")
    spec = reports.specification(read(maker.run), place_of(maker))["spec"]
    assert len(grid(spec)["panelBankSectionConfig"]["panels"]) >= 1


def test_a_panel_shows_the_keys_that_the_figure_names(away, maker):
    with open(maker.run.sweep_path, "a") as file:
        file.write("figures: [{name: trend, metric: sap, x: framework.beta}]\n")
    spec = reports.specification(read(maker.run), place_of(maker))["spec"]
    (panel,) = grid(spec)["panelBankSectionConfig"]["panels"]
    config = panel["config"]
    assert (config["xAxis"], config["yAxis"]) == ("config:framework.value.beta", "summary:sap")
    assert config["xAxisLogScale"]


def test_the_best_trials_stand_first_in_the_table(away, make_run):
    maker = make_run()
    ids = {
        score: quick_trial(maker, course(score, np.random.default_rng(0)), seed=int(score * 10)) for score in (0.2, 0.9)
    }
    table = reports._best_table(reports.RunScores(read(maker.run), reports.objective_or_default(read(maker.run))))
    rows = table.splitlines()
    assert ids[0.9] in rows[2]
    assert ids[0.2] in rows[3]


@pytest.mark.parametrize("text", ["a|b", "[x](javascript:alert(1))", "<script>", "`code`"])
def test_a_cell_is_text_and_nothing_else(text):
    assert reports._cell(text).replace("\\", "") == text
    assert "|" not in reports._cell(text).replace("\\|", "")
    assert "<" not in reports._cell(text).replace("\\<", "")


@pytest.mark.parametrize("trials", ["none", "failed", "one"])
def test_odd_runs_have_a_report_too(away, make_run, trials):
    maker = make_run()
    if trials == "failed":
        quick_trial(maker, [], status="failed", cause="boom")
    if trials == "one":
        quick_trial(maker, course(0.5, np.random.default_rng(0)))
    assert reports.specification(read(maker.run), place_of(maker))["spec"]["blocks"]


@pytest.mark.slow
def test_the_real_client_saves_the_report(server, maker):
    made = reports.make(read(maker.run), place_of(maker))
    assert made.reason == "", server.unknown
    assert made.url.startswith(f"{server.url}/{ENTITY}/demo/reports/")
    (view,) = server.views
    assert view["projectName"] == "demo"
    assert "Does the loss decide?" in texts(json.loads(view["spec"]))


def drawing(name="01-summary"):
    pixels = io.BytesIO()
    Image.new("RGB", (4, 3)).save(pixels, "PNG")
    return Drawing("summary", name, "What came out", png=pixels.getvalue())


@pytest.mark.slow
def test_the_group_has_a_summary_run_with_the_comparison_and_the_figures(server, maker):
    missing = Drawing("trend", "02-trend", "A trend", reason="no number")
    made = reports.make(read(maker.run), place_of(maker), [drawing(), missing])
    assert made.reason == "", server.unknown
    ((_, name),) = server.runs
    run = server.run(name)
    assert name == summary.id_of(maker.run)
    assert (run.about["groupName"], run.about["jobType"]) == ("demo/main", "summary")
    shown = {key: value["_type"] for row in run.rows for key, value in row.items() if isinstance(value, dict)}
    assert shown["figures/01-summary"] == "image-file"
    assert "figures/02-trend" not in shown
    grids = [
        block["metadata"] for block in json.loads(server.views[0]["spec"])["blocks"] if block["type"] == "panel-grid"
    ]
    (condition,) = grids[-1]["runSets"][0]["filters"]["filters"]
    assert (condition["key"]["name"], condition["value"]) == ("name", name)
    (panel,) = grids[-1]["panelBankSectionConfig"]["panels"]
    assert panel["config"]["mediaKeys"] == ["figures/01-summary"]


@pytest.mark.slow
def test_a_second_report_continues_the_summary_run(server, maker):
    for _ in range(2):
        assert reports.make(read(maker.run), place_of(maker), [drawing()]).reason == ""
    ((_, name),) = server.runs
    assert [row["_step"] for row in server.run(name).rows] == [0, 1]


def test_the_comparison_is_that_of_compare(away, make_run):
    maker, rng = make_run(), np.random.default_rng(0)
    for beta in (0.2, 0.8):
        for seed in range(3):
            quick_trial(maker, course(beta, rng), seed=seed, framework__beta=beta)
    results = read(maker.run)
    (table,) = summary.tables_of(reports._scores(results))
    objective = reports.objective_or_default(results)
    trials, _ = compared_trials([results], objective.metric, objective)
    expected = compare(trials, "framework.beta", objective.metric, mode=objective.mode)
    assert (table.key, len(table.frame)) == ("comparison", 1)
    assert table.frame.to_dict("records") == [line(pair) for pair in expected.pairs]
    spec = reports.specification(results, place_of(maker))["spec"]
    (_, compared) = [block["content"] for block in spec["blocks"] if block["type"] == "markdown-block"]
    assert compared.startswith("| a | b | n |")
    assert "| 0.8 | 0.2 | 3 paired" in compared


@pytest.mark.slow
def test_the_analyses_of_a_study_are_tables_of_the_summary_run_and_of_the_report(away, make_run):
    maker = make_run()
    methods_study(maker)
    results = read(maker.run)
    tables = summary.tables_of(reports._scores(results))
    assert [table.key for table in tables][:3] == ["comparison", "analysis/variance_explained", "analysis/agreement"]
    agreement = next(table.frame for table in tables if table.key == "analysis/agreement")
    expected = ANALYSES["agreement"].rows(score_table(results)[0], None)
    assert agreement["value"].tolist() == expected["value"].dropna().tolist()
    blocks = reports.specification(results, place_of(maker))["spec"]["blocks"]
    contents = [block["content"] for block in blocks if block["type"] == "markdown-block"]
    lines = [len(content.splitlines()) - 2 for content in contents[1:]]
    assert lines == [min(len(table.frame), reports.MOST_ROWS) for table in tables]


def test_a_long_table_is_cut_and_the_report_says_so():
    table = summary.SummaryTable("comparison", "Title", pd.DataFrame({"a": range(31)}), ("a note",))
    _, shown, *notes = reports._table_blocks(table)
    assert shown.text.splitlines()[-1] == "| 29 |"
    assert [note.text for note in notes] == ["a note", "30 of 31 rows; the summary run has all."]


def test_a_summary_table_holds_no_secret(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "topsecretvalue")
    plain = summary._plain(pd.DataFrame({"a": ["x topsecretvalue", None], "b": [1.0, 2.0]}))
    assert "topsecretvalue" not in plain.to_csv()
    assert plain["b"].tolist() == [1.0, 2.0]


def test_a_server_that_is_away_leaves_the_specification(server, maker):
    with server.failing(404):
        made = reports.make(read(maker.run), place_of(maker))
    assert made.url == ""
    assert made.file.endswith("wandb_report.json")
    assert made.reason
