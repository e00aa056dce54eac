import base64
import hashlib
import html
import json
import math
import re
import shlex
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.image import imread

from conftest import TRIAL
from disentune.files import documents
from disentune.report import canvas, page
from disentune.report.kind import Caption, Kind
from disentune.report.kinds import KINDS
from disentune.report.scores import RunScores
from disentune.report.summary import layout_of
from disentune.results.tables import objective_or_default, read
from disentune.runs.json_files import write_json
from disentune.runs.trial_folder import Status
from disentune.spec.figures import FIGURES
from disentune.spec.settings import Objective
from run_examples import forged, quick_trial, study

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
EVIL = (
    "<script>window.hit=1</script>\"'><img src=x onerror=window.hit=1>{{ 7*7 }}{% x %}</pre>javascript:hit() \x1b[31m"
)
CATALOGUE = dict(KINDS)
VOID = {"meta", "input", "img", "br", "link"}


# ---- reading a page


class Parsed(HTMLParser):
    """Elements in order: (tag, attributes, own text), each with the tags it stands in."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.stack = [], []
        self.feed(text)
        assert not self.stack

    def handle_starttag(self, tag, attributes):
        element = SimpleNamespace(tag=tag, attributes=dict(attributes), text="", inside=[one.tag for one in self.stack])
        self.elements.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append(SimpleNamespace(tag=tag, attributes=dict(attributes), text="", inside=[]))

    def handle_endtag(self, tag):
        assert self.stack.pop().tag == tag

    def handle_data(self, data):
        for element in self.stack:
            element.text += data

    def all(self, tag, **attributes):
        """Elements by tag and attributes; `class_` by one of its words."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        return [one for one in self.elements if one.tag == tag and all(_has(one, *pair) for pair in wanted.items())]


def _has(element, key, value):
    found = element.attributes.get(key) or ""
    return value in found.split() if key == "class" else found == value


def squeezed(text):
    return " ".join(text.split())


def trial_rows(parsed):
    """{column's title: text} of each trial, in the order of the page."""
    start = parsed.elements.index(parsed.all("table", id="trial-table")[0])
    after = parsed.elements[start:]
    heads = [squeezed(one.text) for one in after if one.tag == "th" and one.attributes.get("scope") == "col"]
    bodies, rows = [i for i, one in enumerate(after) if one.tag == "tbody"], []
    for first, last in zip(bodies, [*bodies[1:], len(after)], strict=True):
        cells = [one for one in after[first:last] if one.tag == "td" or one.attributes.get("scope") == "row"]
        rows.append(dict(zip(heads, (squeezed(one.text) for one in cells), strict=False)))
    return rows


# ---- making one


def bars(figure, scores, spec):
    frame = scores.scored(spec.metric, ["arm"])
    axes = figure.subplots()
    axes.plot(frame["value"], color=canvas.GREY, label="<script>x</script>")
    axes.set_xlabel("trial <b>")
    axes.legend(frameon=False)
    canvas.tidy(axes)
    return Caption("Made <i>title</i>", "Made <i>caption</i>.")


def mark(figure, scores, spec):
    """The same without axes, whose layout takes most of the time."""
    scores.scored(spec.metric, ["arm"])
    figure.set_size_inches(1, 1)
    figure.text(0.1, 0.5, "<script>x</script> trial <b>", color=canvas.GREY)
    return Caption("Made <i>title</i>", "Made <i>caption</i>.")


def broken(figure, scores, spec):
    raise ZeroDivisionError("of <b>nothing</b>")


def kind(name, draw, specs=1):
    return Kind(name, "What is drawn?", lambda scores: [FIGURES[name]() for _ in range(specs)], draw)


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    """Two kinds of our own instead of the catalogue's: this file is about the page."""
    for name in list(KINDS):
        monkeypatch.delitem(KINDS, name)
    monkeypatch.setitem(KINDS, "violins", kind("violins", mark))
    monkeypatch.setitem(KINDS, "curves", kind("curves", mark))
    return KINDS


@pytest.fixture
def with_axes(kinds, monkeypatch):
    for name in ("violins", "curves"):
        monkeypatch.setitem(kinds, name, kind(name, bars))


def written(run, where="runs/demo/main"):
    return page.write(read(run), where, NOW)


def parsed(run, where="runs/demo/main"):
    return Parsed(written(run, where).page.read_text())


def scores_of(run):
    results = read(run)
    return RunScores(results, objective_or_default(results))


def rows(mig, *steps):
    return [{"step": step, "loss": 1.0, "loss_sum": 3.0, "mig": mig} for step in steps or (500, 1500)]


@pytest.fixture
def small(make_run):
    """Two betas, two seeds, one failure with a traceback."""
    maker = make_run()
    maker.sweep(question="Does beta matter?", objective={"metric": "mig", "mode": "max"})
    maker.ids = {
        (beta, seed): quick_trial(maker, rows(score), framework__beta=beta, seed=seed)
        for (beta, seed), score in {(1.0, 0): 0.2, (1.0, 1): 0.4, (4.0, 0): 0.5, (4.0, 1): 0.9}.items()
    }
    cause = 'ValueError: no luck\nTraceback (most recent call last):\n  File "a.py", line 1'
    maker.failed = quick_trial(maker, [], status="failed", cause=cause, framework__beta=9.0)
    return maker


# ---- runs that did not go well


def test_an_unfinished_run_says_which_share_of_its_steps_is_done(small):
    quick_trial(small, rows(0.1, 750), status="pending", framework__beta=1.0, seed=7)
    trials = page.trials_of(read(small.run), "runs/demo/main", live=False)
    # four whole trials and one half of 1500 steps; the failed one asks for none
    assert page.budget_of(small.run, trials)["percent"] == int(100 * (4 * 1500 + 750) / (5 * 1500))
    assert "% of those asked for)" in written(small.run).page.read_text()


@pytest.mark.slow
def test_the_log_of_a_failed_trial_is_linked_if_there_is_one(small):
    link = f"../trials/{small.failed}/errors.log"
    assert link not in written(small.run).page.read_text()
    small.run.trial(small.failed).errors_path.write_text("Traceback")
    assert link in written(small.run).page.read_text()


def test_the_best_trial_names_the_key_whose_other_values_all_failed(make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    quick_trial(maker, rows(0.3), framework__beta=1.0)
    quick_trial(maker, [], status="failed", cause="ValueError", framework__beta=9.0)
    scores = scores_of(maker.run)
    best = page.best_trial(scores, page.trials_of(scores.results, "runs/demo/main", live=False))
    assert ("beta", "1") in best["keys"]
    assert layout_of(scores, scores.scored_design(None)).x == "framework.beta"


def test_groups_of_one_trial_have_no_columns_of_spread(make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    for beta in (1.0, 2.0):
        quick_trial(maker, rows(beta / 4), framework__beta=beta)
    results = read(maker.run)
    assert [column.title for column in page.groups_of(results, objective_or_default(results))] == ["beta", "mean", "n"]


def test_a_group_without_a_score_has_a_dash_for_its_interval(make_run):
    maker = make_run()
    for seed in range(2):
        quick_trial(maker, rows(0.1 * seed), framework__beta=1.0, seed=seed)
    quick_trial(maker, [], framework__beta=2.0, status="failed")
    columns = {one.title: one for one in page.groups_of(read(maker.run), Objective(metric="mig", mode="max"))}
    assert [cell.text for cell in columns["95 % interval"].cells][1:] == ["–"]


# ---- the page as a whole


def test_the_page_is_one_file_that_loads_nothing(small):
    found = parsed(small.run)
    assert not [one for one in found.elements if one.tag in ("link", "iframe", "object", "embed", "base", "form")]
    addresses = [value for one in found.elements for key, value in one.attributes.items() if key in ("src", "srcset")]
    assert addresses == []
    references = {
        one.attributes[key] for one in found.elements for key in ("href", "xlink:href") if key in one.attributes
    }
    assert all(one.startswith(("#", "../trials/", "figures/", "data:image/png;base64,")) for one in references)


def test_the_policy_allows_only_the_style_and_script_of_the_page(small):
    found = parsed(small.run)
    (policy,) = [one.attributes["content"] for one in found.all("meta", http_equiv="Content-Security-Policy")]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    for tag in ("style", "script"):
        (block,) = found.all(tag)
        digest = base64.b64encode(hashlib.sha256(block.text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == [f"'sha256-{digest}'"]
    assert rules["default-src"] == ["'none'"]
    assert rules["img-src"] == ["data:"]
    assert rules["base-uri"] == rules["form-action"] == ["'none'"]


def test_no_element_has_an_event_handler_and_no_id_occurs_twice(small):
    found = parsed(small.run)
    assert not [key for one in found.elements for key in one.attributes if key.startswith("on")]
    ids = [one.attributes["id"] for one in found.elements if "id" in one.attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("with_axes")
def test_every_reference_inside_the_page_has_its_target(small):
    text = written(small.run).page.read_text()
    found = Parsed(text)
    ids = {one.attributes["id"] for one in found.elements if "id" in one.attributes}
    wanted = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    labelled = {one.attributes["aria-labelledby"] for one in found.elements if "aria-labelledby" in one.attributes}
    assert wanted | labelled <= ids
    assert any(one.startswith("f2-") for one in wanted)


def test_equal_rows_give_equal_pages(small):
    first = written(small.run).page.read_bytes()
    assert written(small.run).page.read_bytes() == first


# ---- header


def test_the_header_says_question_run_state_and_time(small):
    found = parsed(small.run)
    assert [squeezed(one.text) for one in found.all("h1")] == ["Does beta matter?"]
    assert [one.text for one in found.all("p", class_="run")] == ["demo/main"]
    status = squeezed(found.all("p", class_="status")[0].text)
    assert status == "finished 5 trials: 4 done, 1 failed · as of 16 November 2026, 09:30 UTC"
    assert found.all("time")[0].attributes["datetime"] == NOW.isoformat()
    (note, _) = found.all("p", class_="note")  # the last one says how the page is made
    assert "1 trial failed" in note.text
    assert "disentune resume runs/demo/main --retry-failed" in note.text


def test_without_a_question_the_run_is_the_title(make_run):
    assert [one.text for one in parsed(make_run().run).all("h1")] == ["demo/main"]


def test_a_run_that_is_going_says_so_and_how_to_make_the_page_again(small):
    quick_trial(small, rows(0.1, 500), status="running", seed=7)
    with small.run.locked():
        found = parsed(small.run, "runs/my run/ü")
    assert "running now" in found.all("p", class_="status")[0].text
    assert "1 running" in found.all("p", class_="status")[0].text
    (note, _) = found.all("p", class_="note")
    assert "still training" in note.text
    assert "disentune report 'runs/my run/ü'" in note.text
    assert found.all("h3")[0].text == "Best trial so far"


def test_states_are_of_the_time_of_the_tables_however_long_the_figures_take(make_run, monkeypatch):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"}, seeds=3)
    running = quick_trial(maker, [{"step": 500, "mig": 0.1}], status="running")

    def slowly(*arguments):
        maker.run.trial(running).set_status(Status(state="done", step=1500))
        quick_trial(maker, [{"step": 500, "mig": 0.2}], status="running", seed=1)
        return []

    monkeypatch.setattr(page, "drawings", slowly)
    with maker.run.locked():
        page.write(read(maker.run), "runs/demo/main", NOW)
    parsed = Parsed(maker.run.report_page.read_text())
    (line,) = parsed.all("p", class_="status")
    assert "3 trials: 1 running, 2 not begun" in " ".join(line.text.split())


def test_a_killed_run_is_interrupted_and_its_running_trials_wait(small):
    quick_trial(small, rows(0.1, 500), status="running", seed=7)
    found = parsed(small.run, "runs/a b")
    said = squeezed(found.all("p", class_="status")[0].text)
    assert said.startswith("interrupted 6 trials: 4 done, 1 pending, 1 failed")
    assert "1 trial has not ended. Continue with disentune resume 'runs/a b'" in squeezed(
        found.all("p", class_="note")[0].text
    )


def test_trials_that_the_sweep_asks_for_but_never_began_are_counted(make_run):
    maker = make_run()
    maker.sweep(seeds=3)
    quick_trial(maker, rows(0.1), seed=0)
    state = page.state_of_run(read(maker.run), page.trials_of(read(maker.run), "x", False), False)
    assert (state["word"], state["counts"], state["waiting"]) == ("interrupted", {"done": 1, "not begun": 2}, 2)


def test_trials_of_plug_ins_that_nobody_can_import_are_counted_too(make_run):
    maker = make_run()
    trial = {key: value for key, value in TRIAL.items() if key != "seed"}
    maker.sweep(["a", "b"], seeds=3, trial=trial | {"framework.name": "nowhere:FRAMEWORK"})
    assert page._asked_for(maker.run) == 3  # both arms ask for the same


def test_a_model_based_search_asks_for_its_points_times_seeds_in_each_arm(make_run):
    maker = make_run()
    maker.sweep(["a", "b"], seeds=3, search={"name": "optuna", "points": 5}, objective={"metric": "mig", "mode": "max"})
    assert page._asked_for(maker.run) == 2 * 5 * 3


def test_the_best_trial_is_shown_with_what_it_is(small):
    (card,) = parsed(small.run).all("div", class_="best")
    text = squeezed(card.text)
    assert text.startswith("Best trial 0.9 MIG, at the last step (higher is better)")
    assert re.search(r"seed ?1 ?beta ?4", text)
    assert f"disentune train runs/demo/main/trials/{small.ids[4.0, 1]}" in text


@pytest.mark.parametrize(("mode", "at", "expected"), [("max", "last", 0.4), ("min", "last", 0.1), ("max", "best", 0.8)])
def test_the_best_trial_is_best_in_the_objectives_own_sense(make_run, mode, at, expected):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": mode, "at": at})
    for seed, course in enumerate([(0.3, 0.4), (0.8, 0.1)]):
        quick_trial(maker, [{"step": step, "mig": mig} for step, mig in zip((1, 2), course, strict=True)], seed=seed)
    quick_trial(maker, [{"step": 1, "mig": -1.0}, {"step": 2, "mig": 9.0}], seed=5, status="diverged")
    scores = scores_of(maker.run)
    best = page.best_trial(scores, page.trials_of(scores.results, "x", False))
    assert best["value"].text == str(expected)


def test_the_budget_is_the_sum_over_trials(small):
    """Each of four trials reports 75 s and 1500 steps, the failed one 60 s and none: 6 min and 6,000 steps."""
    (card,) = [one for one in parsed(small.run).all("div", class_="card") if "Spent" in one.text]
    assert "6 min 00 s of device time" in squeezed(card.text)
    assert "6,000" in card.text


def test_the_environment_is_shown_and_a_damaged_one_costs_nothing_else(small):
    write_json(small.run.path / "environment.json",
               {"python": "3.11.9", "packages": {"torch": "2.13.0", "ray": None}, "commit": "abc123", "cpu": "Xeon",
                "cores": 8, "gpus": ["H100", "H100"], "system": "Linux"})  # fmt: skip
    shown = page.environment_of(small.run)
    assert shown == {"commit": "abc123", "processor": "Xeon", "cores": "8", "GPUs": "H100, H100", "system": "Linux",
                     "Python": "3.11.9", "packages": "torch 2.13.0"}  # fmt: skip
    (small.run.path / "environment.json").write_text("{")
    assert "is damaged" in parsed(small.run).all("section", id="made-with")[0].text


# ---- tables


def test_groups_have_mean_sd_and_n(small):
    """beta 4: 0.5 and 0.9, mean 0.7, sample sd 0.4 / sqrt(2); beta 1: 0.2 and 0.4."""
    columns = page.groups_of(read(small.run), Objective(metric="mig", mode="max"))
    found = {column.title: [one.text for one in column.cells] for column in columns}
    assert found["beta"] == ["4", "1", "9"]
    assert found["mean"] == ["0.7", "0.3", page.MISSING]
    assert found["sd"] == [f"{0.4 / math.sqrt(2):.4g}", f"{0.2 / math.sqrt(2):.4g}", page.MISSING]
    assert found["n"] == ["2", "2", "0"]
    assert found["failed"] == ["0", "0", "1"]


def test_groups_have_the_means_of_other_metrics_and_an_arm_only_among_several(make_run):
    maker = make_run()
    maker.sweep(["a"], objective={"metric": "mig", "mode": "max"})
    for beta, sap in ((1.0, 0.1), (2.0, 0.3)):
        for seed in (0, 1):
            quick_trial(maker, [{"step": 1500, "mig": beta, "sap": sap + seed}], "a", framework__beta=beta, seed=seed)
    columns = page.groups_of(read(maker.run), Objective(metric="mig", mode="max"))
    found = {column.title: [one.text for one in column.cells] for column in columns}
    assert "arm" not in found
    assert found["SAP (mean)"] == ["0.8", "0.6"]
    quick_trial(maker, [{"step": 1500, "mig": 0.0}], "b", framework__beta=9.0)
    assert page.groups_of(read(maker.run), Objective(metric="mig", mode="max"))[0].title == "arm"


def test_groups_beyond_the_first_twenty_fold(make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    for i in range(23):
        quick_trial(maker, rows(i / 100), framework__beta=float(i + 1))
    found = parsed(maker.run)
    assert [one.text for one in found.all("summary")] == ["The other 3 groups"]
    inside = [one for one in found.elements if one.tag == "tr" and "details" in one.inside and "tbody" in one.inside]
    assert len(inside) == 3


def test_trials_stand_best_first_and_broken_ones_last(small):
    quick_trial(small, rows(0.95), status="diverged", cause="loss is nan", seed=8)
    found = trial_rows(parsed(small.run))
    assert [row["MIG"] for row in found] == ["0.9", "0.5", "0.4", "0.2", "0.95", "–"]
    assert found[-1]["status"] == "failed"


def test_a_row_has_what_a_trial_is_and_its_numbers_with_the_objective_first(small):
    first = trial_rows(parsed(small.run))[0]
    expected = {
        "trial": small.ids[4.0, 1], "seed": "1", "status": "done", "step": "1500/1500",
        "time": "1 min 15 s", "beta": "4", "MIG": "0.9", "loss": "1", "loss sum": "3", "MIG max": "0.9", "cause": "–",
    }  # fmt: skip
    assert list(first.items()) == list(expected.items())


def test_numbers_are_sorted_by_all_their_digits_and_missing_ones_by_none(make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    for seed, value in enumerate([0.123456789, math.inf, math.nan]):
        quick_trial(maker, rows(value), seed=seed)
    scores = scores_of(maker.run)
    columns = page.trial_columns(scores, page.trials_of(scores.results, "x", False))
    column = next(one for one in columns if one.key == "mig")
    assert column.numeric
    assert {one.text: one.order for one in column.cells} == {"0.1235": "0.123456789", "inf": "Infinity", "–": ""}


def test_an_objective_at_its_best_step_has_a_column_beside_the_last_value(make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max", "at": "best"})
    quick_trial(maker, [{"step": 1, "mig": 0.8}, {"step": 2, "mig": 0.1}])
    (row,) = trial_rows(parsed(maker.run))
    assert (row["mig (best step)"], row["MIG"]) == ("0.8", "0.1")


@pytest.mark.parametrize(("at", "expected"), [("last", "0.4"), ("best", "0.8")])
def test_groups_take_the_number_that_counts(make_run, at, expected):
    maker = make_run()
    quick_trial(maker, [{"step": step, "mig": mig} for step, mig in ((1, 0.1), (2, 0.8), (3, 0.4))])
    columns = page.groups_of(read(maker.run), Objective(metric="mig", mode="max", at=at))
    assert [column.cells[0].text for column in columns if column.key == "mean"] == [expected]


def test_keys_that_would_read_the_same_are_written_whole():
    assert page.in_words(["recon.name", "recon", "framework.beta"]) == ["recon.name", "recon", "beta"]


@pytest.mark.parametrize(
    ("value", "text", "order"),
    [(True, "true", ""), (None, "–", ""), (pd.NA, "–", ""), (12, "12", "12"), (-math.inf, "-inf", "-Infinity"),
     (1 / 3, "0.3333", repr(1 / 3)), ("a", "a", "")],
)  # fmt: skip
def test_a_cell_shows_a_value_briefly_and_sorts_by_all_of_it(value, text, order):
    assert page.cell(value) == page.Cell(text, order)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")])
def test_durations_are_worded(seconds, text):
    assert page.duration(seconds) == text


def test_sums_and_maxima_wait_until_all_numbers_are_asked_for(small):
    scores = scores_of(small.run)
    found = page.trial_columns(scores, page.trials_of(scores.results, "x", False))
    assert [one.key for one in found if one.extra] == ["loss_sum", "mig_max"]


def test_details_have_the_command_as_a_shell_takes_it_and_the_whole_cause(small):
    found = parsed(small.run, "my runs/ü'x")
    commands = [one.text for one in found.all("code") if " train " in one.text]
    assert ["disentune", "train", f"my runs/ü'x/trials/{small.failed}"] in [shlex.split(one) for one in commands]
    assert len(commands) == 6  # a trial each, and the best again
    (cause,) = [one.text for one in found.all("pre")]
    assert cause.startswith("ValueError: no luck\nTraceback")
    assert trial_rows(found)[-1]["cause"] == "ValueError: no luck"


def test_a_trial_that_a_population_changed_offers_no_command(small):
    with open(small.run.trial(small.ids[4.0, 1]).rows_path, "a") as file:
        file.write(json.dumps({"step": 1600, "metrics": {"mig": 0.9}, "overrides": {"framework.beta": 5.0}}) + "\n")
    found = parsed(small.run)
    assert not [one for one in found.all("code") if small.ids[4.0, 1] in one.text]
    assert "cannot be repeated by itself" in squeezed(found.all("section", id="trials")[0].text)


def test_links_lead_to_the_trials_folders(small):
    report = written(small.run)
    links = [one.attributes["href"] for one in Parsed(report.page.read_text()).all("a")]
    folders = [one for one in links if one.startswith("../trials/") and one.endswith("/")]
    assert len(set(folders)) == 5
    assert all((report.page.parent / one).is_dir() for one in folders)


def test_metrics_without_a_score_are_named(small):
    with open(small.run.trial(small.ids[1.0, 0]).rows_path, "a") as file:
        file.write(json.dumps({"step": 1600, "metrics": {}, "notes": {"sap": "one factor alone"}}) + "\n")
    notes = [squeezed(one.text) for one in parsed(small.run).all("p", class_="note")]
    assert "sap has no score in 1 of 5 trials: one factor alone" in notes


# ---- figures


@pytest.mark.usefixtures("with_axes")
def test_figures_are_shown_with_title_caption_and_files(small):
    report = written(small.run)
    found = Parsed(report.page.read_text())
    assert [one.file for one in report.drawings] == ["01-violins", "02-curves"]
    assert [one.text for one in found.all("h3") if "figure" in one.inside] == ["Made <i>title</i>"] * 2
    assert ["Made <i>caption</i>." in one.text for one in found.all("figcaption")] == [True, True]
    assert [one.text for one in found.all("p", class_="lead")] == ["What is drawn?"] * 2
    for one in report.drawings:
        assert imread(report.figure(one, "png")).shape[1] == 1050  # 7 inches at 150 dots
        assert ET.parse(report.figure(one, "svg")).getroot().tag.endswith("svg")
        assert found.all("a", href=f"figures/{one.file}.png")
        assert found.all("a", href=f"figures/{one.file}.svg")


def test_figures_of_the_sweep_come_in_its_order_with_its_titles_and_trials(small, kinds, monkeypatch):
    seen = []

    def noted(figure, scores, spec):
        seen.append(len(scores.results.records))
        return mark(figure, scores, spec)

    monkeypatch.setitem(kinds, "curves", kind("curves", noted))
    figures = [
        {"name": "curves", "title": "Mine", "only": "framework.beta == 4"},
        {"name": "violins"},
        {"name": "curves"},
    ]
    small.sweep(objective={"metric": "mig", "mode": "max"}, figures=figures)
    assert [(one.file, one.title) for one in written(small.run).drawings] == [
        ("01-curves", "Mine"),
        ("02-violins", "Made <i>title</i>"),
        ("03-curves", "Made <i>title</i>"),
    ]
    assert seen == [2, 5]


def test_a_figure_that_cannot_be_drawn_is_replaced_by_its_reason(small):
    small.sweep(figures=[{"name": "violins", "metric": "udr"}, {"name": "curves", "only": "seed > 99"},
                         {"name": "importance", "title": "Which"}, {"name": "violins"}])  # fmt: skip
    report = written(small.run)
    assert [one.reason for one in report.drawings] == [
        "no trial has reported udr yet",
        "only: seed > 99 selects no trial",
        "this version cannot draw it",
        "",
    ]
    absent = Parsed(report.page.read_text()).all("figure", class_="absent")
    assert [squeezed(one.text) for one in absent][1:] == [
        "Curvesonly: seed > 99 selects no trial",
        "Whichthis version cannot draw it",
    ]
    assert sorted(path.name for path in (report.page.parent / "figures").iterdir()) == [
        "04-violins.png",
        "04-violins.svg",
    ]


def test_a_mistake_inside_one_figure_does_not_cost_the_others(small, kinds, monkeypatch):
    monkeypatch.setitem(kinds, "violins", kind("violins", broken))
    report = written(small.run)
    text = "could not be drawn: ZeroDivisionError: of <b>nothing</b>"
    assert [one.reason for one in report.drawings] == [text, ""]
    (absent,) = Parsed(report.page.read_text()).all("figure", class_="absent")
    assert text in absent.text


def test_a_mistake_in_choosing_does_not_cost_the_others(small, kinds, monkeypatch):
    def choose(scores):
        raise KeyError("arm")

    monkeypatch.setitem(kinds, "violins", replace(kinds["violins"], choose=choose))
    assert [one.reason for one in written(small.run).drawings] == ["could not be drawn: KeyError: 'arm'", ""]


def test_figures_of_an_earlier_report_go_and_files_of_the_user_stay(small, kinds, monkeypatch):
    folder = written(small.run).page.parent / "figures"
    (folder / "mine.png").write_bytes(b"mine")
    (folder / ".01-violins.png.0123abcd").write_bytes(b"of a killed writer")
    monkeypatch.delitem(kinds, "curves")
    written(small.run)
    assert sorted(path.name for path in folder.iterdir()) == ["01-violins.png", "01-violins.svg", "mine.png"]


@pytest.mark.parametrize("size", [(14, 5), (7, 9)])
def test_wide_and_high_figures_take_a_whole_row(small, kinds, monkeypatch, size):
    def large(figure, scores, spec):
        caption = mark(figure, scores, spec)
        figure.set_size_inches(size)
        return caption

    monkeypatch.setitem(kinds, "violins", kind("violins", mark, specs=2))
    monkeypatch.setitem(kinds, "curves", kind("curves", large))
    assert [one.wide for one in written(small.run).drawings] == [False, False, True]
    assert len(parsed(small.run).all("figure", class_="wide")) == 1


def test_a_narrow_figure_without_a_neighbour_takes_a_whole_row(small, kinds, monkeypatch):
    monkeypatch.setitem(kinds, "violins", kind("violins", mark, specs=2))
    assert [one.wide for one in written(small.run).drawings] == [False, False, True]


@pytest.mark.usefixtures("with_axes")
def test_colours_of_figures_follow_the_theme_and_the_files_keep_theirs(small, kinds, monkeypatch):
    def colourful(figure, scores, spec):
        caption = bars(figure, scores, spec)
        for colour in canvas.PALETTE:
            figure.axes[0].plot([0, 1], color=colour)
        return caption

    monkeypatch.setitem(kinds, "violins", kind("violins", colourful))
    report = written(small.run)
    text = report.page.read_text()
    drawn = text[text.index("<figure") : text.rindex("</figure>")]
    for colour, variable in page.COLOURS.items():
        assert colour.lower() not in drawn.lower()
        assert variable in drawn
        assert colour.lower() in report.drawings[0].svg
    assert "<style" not in drawn


def test_ids_of_inlined_figures_are_their_own_and_still_meet():
    svg = '<svg width="1"><style>*{}</style><clipPath id="p1"/><g clip-path="url(#p1)"/><use xlink:href="#p1"/></svg>'
    found = page.inlined(svg, "f7")
    assert found.count('id="f7-p1"') == 1
    assert "url(#f7-p1)" in found
    assert 'xlink:href="#f7-p1"' in found
    assert "<style" not in found


def test_a_sign_that_the_font_lacks_is_no_mistake(small, kinds, monkeypatch):
    def draw(figure, scores, spec):
        figure.subplots().set_xlabel("解")
        return Caption("title", "text")

    monkeypatch.setitem(kinds, "violins", kind("violins", draw))
    assert written(small.run).drawings[0].reason == ""


def test_drawing_tells_how_far_it_is(small):
    said = []
    page.write(read(small.run), "x", NOW, lambda *progress: said.append(progress))
    assert said == [("drawing figures", 0, 2), ("drawing figures", 1, 2), ("drawing figures", 2, 2)]


def test_every_figure_that_a_sweep_may_name_has_its_kind():
    assert CATALOGUE.keys() == FIGURES.keys()


@pytest.mark.slow
def test_the_catalogue_draws_a_study(make_run, kinds, monkeypatch):
    for name, each in CATALOGUE.items():
        monkeypatch.setitem(kinds, name, each)
    maker = make_run()
    study(maker, seeds=1)
    found = written(maker.run).drawings
    assert [one for one in found if one.reason] == []
    assert {one.name for one in found} >= {"summary", "strength", "scatter", "curves", "correlations", "parallel"}


# ---- odd runs


def odd_runs():
    """Rows, state and number of trials."""
    return {
        "empty": ([], "pending", 0),
        "begun": ([], "running", 3),
        "one": (rows(0.5), "done", 1),
        "failed": ([], "failed", 12),
        "diverged": (rows(math.nan), "diverged", 12),
        "nan": (rows(math.nan), "done", 12),
        "infinite": (rows(math.inf), "done", 12),
        "equal": (rows(0.5), "done", 12),
        "one step": (rows(0.5, 1), "done", 12),
    }


@pytest.mark.parametrize("odd", odd_runs())
@pytest.mark.parametrize("asked", [False, True])
def test_no_kind_of_the_catalogue_stumbles_over_an_odd_run(make_run, kinds, monkeypatch, odd, asked):
    for name, each in CATALOGUE.items():
        monkeypatch.setitem(kinds, name, each)
    course, state, count = odd_runs()[odd]
    maker = make_run()
    figures = {"figures": [{"name": name} for name in FIGURES]} if asked else {}
    maker.sweep(objective={"metric": "mig", "mode": "max"}, **figures)
    for seed in range(count):
        quick_trial(maker, course, status=state, seed=seed % 3, framework__beta=1.0 + seed // 3)
    found = written(maker.run).drawings
    assert [one.reason for one in found if one.reason.startswith("could not be drawn")] == []
    assert len(found) == len(FIGURES) or not asked
    assert asked or not [one for one in found if one.reason]


def test_an_empty_run_has_a_page(make_run):
    report = written(make_run().run)
    found = Parsed(report.page.read_text())
    assert not found.all("table")
    assert squeezed(found.all("p", class_="status")[0].text).startswith("interrupted 1 trial: 1 not begun")
    assert [one.reason for one in report.drawings] == ["no trial has reported loss yet"] * 2
    assert "No trial has a number of loss yet." in found.all("div", class_="best")[0].text


def test_one_trial_has_a_page(make_run):
    maker = make_run()
    quick_trial(maker, rows(0.25))
    found = parsed(maker.run)
    (row,) = trial_rows(found)
    assert row["MIG"] == "0.25"
    assert "0.25" in found.all("div", class_="best")[0].text


@pytest.mark.parametrize("state", ["failed", "diverged"])
def test_a_run_whose_trials_all_broke_has_a_page(make_run, state):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    for seed in range(3):
        quick_trial(maker, rows(0.5, 500) if seed else [], status=state, cause="out of luck", seed=seed)
    report = written(maker.run)
    found = Parsed(report.page.read_text())
    assert "No trial has a number of MIG." in found.all("div", class_="best")[0].text
    assert [row["cause"] for row in trial_rows(found)] == ["out of luck"] * 3
    assert {one.reason for one in report.drawings} == {"no trial has reported mig yet"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_scores_that_are_not_numbers_have_a_page(make_run, value):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    quick_trial(maker, rows(value), seed=0)
    quick_trial(maker, rows(0.5), seed=1)
    assert "0.5" in parsed(maker.run).all("div", class_="best")[0].text


def test_a_trial_that_has_begun_and_has_no_row_yet_has_its_line(make_run):
    maker = make_run()
    trial = quick_trial(maker, [], status="running")
    maker.run.trial(trial).set_status(Status(state="running", step=120))
    with maker.run.locked():
        (row,) = trial_rows(parsed(maker.run))
    assert (row["status"], row["step"]) == ("running", "120/1500")


def test_a_run_folder_may_have_spaces_and_any_letters(make_run):
    maker = make_run("Größe 解 & <b>")
    quick_trial(maker, rows(0.5))
    report = written(maker.run, "runs/demo/Größe 解 & <b>")
    found = Parsed(report.page.read_text())
    assert found.all("p", class_="run")[0].text == "demo/Größe 解 & <b>"
    assert found.all("title")[0].text == "demo/Größe 解 & <b> · disentune"
    link = next(one.attributes["href"] for one in found.all("a") if one.attributes["href"].startswith("../trials"))
    assert (report.page.parent / link).is_dir()


def test_letters_that_no_file_can_hold_do_not_cost_the_page(make_run):
    maker = make_run()
    quick_trial(maker, [], status="failed", cause="torn \ud800 letter")
    assert "torn \\ud800 letter" in written(maker.run).page.read_text()


@pytest.mark.long
def test_a_thousand_trials_make_a_page(make_run):
    maker = make_run()
    study(maker, seeds=16)
    found = parsed(maker.run)
    assert len(trial_rows(found)) == len(found.all("tbody", data_status="done")) == 1024


# ---- strings of strangers


@pytest.fixture
def strange(make_run):
    """Every string that a trial, a sweep or a machine brings is an attack."""
    maker = make_run("<img src=x>")
    maker.sweep(question=EVIL, objective={"metric": "mig", "mode": "max"},
                figures=[{"name": "violins", "title": EVIL}, {"name": "curves", "only": "seed > 9"}])  # fmt: skip
    for seed in range(2):
        trial = quick_trial(maker, rows(0.5), EVIL, "failed" if seed else "done", EVIL, seed=seed)
        folder = forged(maker.run.trial(trial), lambda tree, seed=seed: tree["model"].update(name=f"{EVIL}{seed}"))
        line = {"step": 1600, "metrics": {"mig": 0.5, EVIL: 1.0}, "notes": {EVIL: EVIL}}
        folder.rows_path.write_text(folder.rows_path.read_text() + json.dumps(line) + "\n")
    write_json(maker.run.path / "environment.json", {"packages": {EVIL: EVIL}, "commit": EVIL, "gpus": [EVIL]})
    return maker


def test_strings_of_strangers_stay_text(strange, small):
    """The elements and attributes are those of a harmless page: only text and what it names differ."""
    found, harmless = Parsed(written(strange.run, EVIL).page.read_text()), parsed(small.run)
    assert {one.tag for one in found.elements} <= {one.tag for one in harmless.elements}
    names = {key for one in harmless.elements for key in one.attributes}
    assert {key for one in found.elements for key in one.attributes} <= names
    assert [one.text for one in found.all("script")] == [one.text for one in harmless.all("script")]
    assert not [one for one in found.all("a") if not one.attributes["href"].startswith(("#", "../trials/", "figures/"))]


def test_strings_of_strangers_are_shown_as_they_are(strange):
    text = written(strange.run, "x").page.read_text()
    assert [squeezed(one.text) for one in Parsed(text).all("h1")] == [squeezed(EVIL.removesuffix("\x1b[31m"))]
    # question, figure's title, arms, values, metric's name, causes, notes, commit, packages
    assert text.count(html.escape("<script>window.hit=1</script>")) > 15
    assert "\x1b" not in text


# ---- the command


def test_the_command_writes_the_page_and_says_where(small, disentune):
    code, output, _ = disentune("report", "demo")
    assert code == 0
    assert output.splitlines() == [
        "page:    runs/demo/main/report/index.html",
        "figures: runs/demo/main/report/figures (2 figures, PNG and SVG)",
        "         chosen from the design of the sweep",
    ]
    text = (small.run.report_folder / "index.html").read_text()
    assert f"disentune train runs/demo/main/trials/{small.failed}" in text


def test_the_command_tells_programs_what_it_wrote_and_what_it_left_out(small, disentune, kinds, monkeypatch, tmp_path):
    monkeypatch.setitem(kinds, "violins", kind("violins", broken))
    code, output, _ = disentune("report", small.run.path, "--json")
    assert code == 0
    found = json.loads(output)
    assert found == {
        "page": "runs/demo/main/report/index.html",
        "source": "chosen from the design of the sweep",
        "figures": [
            {
                "name": "curves",
                "title": "Made <i>title</i>",
                "png": "runs/demo/main/report/figures/02-curves.png",
                "svg": "runs/demo/main/report/figures/02-curves.svg",
            }
        ],
        "left_out": [{"name": "violins", "reason": "could not be drawn: ZeroDivisionError: of <b>nothing</b>"}],
    }
    assert all((tmp_path / found["figures"][0][end]).is_file() for end in ("png", "svg"))


def test_the_command_names_figures_that_it_left_out(small, disentune, kinds, monkeypatch):
    monkeypatch.setitem(kinds, "violins", kind("violins", broken))
    _, output, _ = disentune("report", "demo/main")
    assert "note: Violins: could not be drawn: ZeroDivisionError: of <b>nothing</b>" in output
    assert "(1 figure, PNG and SVG)" in output


def test_the_command_finds_runs_in_another_storage_and_refuses_what_is_none(small, disentune, tmp_path):
    (tmp_path / "runs").rename(tmp_path / "my runs")
    assert disentune("report", "demo", "--storage", "my runs")[0] == 0
    assert (tmp_path / "my runs/demo/main/report/index.html").is_file()
    code, _, complaint = disentune("report", "nothing")
    assert code == 2
    assert "no run 'nothing'" in complaint
    assert "Traceback" not in complaint


# ---- where figures come from

FIGURES_FILE = """figures:
  - {name: violins, title: Asked for, only: "mig > 0.3"}
"""


def test_figures_of_a_file_are_drawn_with_the_trials_that_they_discard(small, disentune, tmp_path):
    (tmp_path / "mine.yaml").write_text(FIGURES_FILE)
    code, output, _ = disentune("report", "demo", "--figures", "mine.yaml")
    assert (code, output.splitlines()[-1].strip()) == (0, "from mine.yaml")
    text = (small.run.report_folder / "index.html").read_text()
    assert "Asked for" in text
    assert "Only trials with mig &gt; 0.3; 2 of 5 are excluded." in text  # 0.2, and one without a score


@pytest.mark.parametrize(("content", "message"), [
    ("arms: {}", "must have the key `figures`"),
    ("figures: [violin]", r"mine.yaml:1 +figures.0.name: must be one of .* got 'violin'. Did you mean 'violins'"),
    ("figures: [{name: violins, xx: arm}]", "xx: unknown key"),
])  # fmt: skip
def test_a_file_without_sound_figures_is_refused(small, disentune, tmp_path, content, message):
    (tmp_path / "mine.yaml").write_text(content)
    code, _, complaint = disentune("report", "demo", "--figures", "mine.yaml")
    assert code == 2
    assert re.search(message, complaint)


@pytest.mark.parametrize(("change", "source", "count"), [
    ({"figures": ["curves"]}, "from sweeps/mine/sweep.yaml, changed since the run", 1),
    ({"figures": ["curves"], "seeds": 9},
     "chosen from the design of the sweep; sweeps/mine/sweep.yaml has others, but describes other trials", 2),
    ({}, "chosen from the design of the sweep", 2),
])  # fmt: skip
def test_new_figures_of_the_sweeps_file_are_used_if_it_asks_for_the_same_trials(
    small, disentune, tmp_path, change, source, count
):
    recorded = documents.read(small.run.sweep_path).value
    (tmp_path / "sweeps" / "mine").mkdir(parents=True)
    with open(tmp_path / "sweeps" / "mine" / f"{small.run.sweep().name}.yaml", "w") as file:
        documents.dump({**recorded, **change}, file)
    code, output, _ = disentune("report", "demo", "--json")
    found = json.loads(output)
    assert (code, found["source"], len(found["figures"])) == (0, source, count)


def test_the_page_of_a_selection_has_only_its_trials(small, disentune):
    code, _, note = disentune("report", "demo", "--only", "mig > 0.3")
    assert code == 0
    assert "--only keeps 3 of 5 trials" in note
    assert len(trial_rows(Parsed((small.run.report_folder / "index.html").read_text()))) == 3


def test_a_selection_without_a_trial_is_refused(small, disentune):
    code, _, err = disentune("report", "demo", "--only", "seed == 99")
    assert code == 2
    assert "--only 'seed == 99': keeps none of the 5 trials of demo" in err
