"""The analyses of a study as figures."""

import pytest

from conftest import RunMaker
from disentune.analysis import ANALYSES
from disentune.analysis.runs import score_table
from disentune.report import canvas
from disentune.report.analysis import KIND, LAYOUTS
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import AnalysisFigure
from disentune.spec.settings import Objective
from run_examples import methods_study


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    maker = RunMaker(tmp_path_factory.mktemp("study") / "runs" / "demo" / "main")
    methods_study(maker)
    return RunScores(read(maker.run), Objective(metric="mig", mode="max"))


def drawn(scores, **spec):
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, scores, AnalysisFigure(**spec))
        canvas.png(figure)
    return figure, caption


def test_a_study_of_three_methods_shows_its_analyses_unasked(scores):
    chosen = [spec.analysis for spec in KIND.choose(scores)]
    assert chosen == ["variance_explained", "agreement", "transfer", "selection", "total_correlation"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_cells_show_the_numbers_of_the_analysis(scores, name):
    figure, caption = drawn(scores, analysis=name)
    rows = ANALYSES[name].rows(score_table(scores.results)[0], None)
    rows = rows[rows["metric"].notna()] if name == "downstream" else rows
    written = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {text.split("\n")[0] for text in written} == {f"{value:.2f}" for value in rows["value"]}
    assert "n = " in caption.text
    assert ANALYSES[name].question.startswith(caption.question)
    assert caption.question.endswith("?")


def test_the_table_of_selection_has_its_intervals(scores):
    figure, caption = drawn(scores, analysis="selection")
    rows = ANALYSES["selection"].rows(score_table(scores.results)[0], None)
    written = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert written == {f"{row.value:.2f}\n{row.low:.2f} to {row.high:.2f}" for row in rows.itertuples()}
    assert "with its 95 % interval over seeds" in caption.text


def test_lines_show_the_mean_of_each_strength(scores):
    figure, _ = drawn(scores, analysis="total_correlation")
    rows = ANALYSES["total_correlation"].rows(score_table(scores.results)[0], None)
    heights = {round(float(y), 9) for axes in figure.axes for line in axes.lines for y in line.get_ydata()}
    assert {round(value, 9) for value in rows["value"]} <= heights


def test_what_an_analysis_lacks_is_reported(scores):
    with pytest.raises(NothingToDraw, match="unknown metric 'dci'"):
        drawn(scores, analysis="agreement", metrics=["dci", "mig"])
