"""The dashboard in a real browser: Debian's Chromium, with a server of this process."""

import re
import socket
import threading
import time
from contextlib import contextmanager
from urllib.parse import quote

import numpy as np
import pytest
import uvicorn

from chromium import ATTACK, NEEDS_CHROMIUM, patient
from conftest import RunMaker
from dashboard_client import TOKEN
from disentune.dashboard.app import app
from disentune.dashboard.desk import Desk
from disentune.dashboard.shelf import opened
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from processes import patience_s
from run_examples import forged, quick_trial, study
from simulator import simulate, sweep_file

NAME = "<img src=x onerror=window.hit=1>"
"""What a folder may be called."""
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1400, "height": 900}

pytestmark = [pytest.mark.browser, pytest.mark.slow, NEEDS_CHROMIUM]


# ---- servers and pages


@contextmanager
def served(storage):
    """The address of a dashboard of this storage."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        desk = Desk(opened(storage))
        config = uvicorn.Config(app(desk, TOKEN), log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(patience_s())
            desk.close()


@pytest.fixture
def shown(browser):
    """`shown(storage, "/run/...")` gives a page; at the end nothing may have been complained of or asked elsewhere."""
    cleanups, complaints = [], []

    def show(storage, path="/", viewport=DESK, expected=(), **settings):
        server = served(storage)
        address = server.__enter__()
        context = patient(browser.new_context(viewport=viewport, **settings))
        cleanups.extend([lambda: server.__exit__(None, None, None), context.close])
        tab = context.new_page()
        said = lambda text: None if any(part in text for part in expected) else complaints.append(text)  # noqa: E731
        tab.on("console", lambda message: said(f"console {message.type}: {message.text}"))
        tab.on("pageerror", lambda error: said(f"error: {error}"))
        tab.on("request", lambda request: request.url.startswith((address, "data:")) or said(f"asked {request.url}"))
        tab.goto(f"{address}?token={TOKEN}")
        tab.goto(f"{address}#{path}")
        return tab

    yield show
    for clean in reversed(cleanups):
        clean()
    assert complaints == []


def run_path(name, **params):
    query = "&".join(f"{key}={value}" for key, value in params.items())
    return f"/run/{quote(name, safe='')}?{query}"


def trial_path(run, id):
    return f"/trial/{quote(run, safe='')}/{id}"


def column(tab, title):
    """Texts of a column of the trials in sight."""
    return tab.evaluate(
        """title => {
            const table = document.querySelector("table.trials");
            const place = [...table.tHead.rows[0].cells].findIndex((th) => th.textContent === title);
            return [...table.querySelectorAll("tr[data-id]")].map((row) => row.cells[place].textContent);
        }""",
        title,
    )


def eventually(ask, expected):
    """Waits for what the page shows in its own time."""
    deadline = time.monotonic() + patience_s(20)
    while (found := ask()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


# ---- facts


def test_a_running_sweep_is_shown_live_while_its_rows_grow(shown, tmp_path):
    maker = RunMaker(tmp_path / "runs" / "demo" / "main")
    maker.sweep(seeds=2, objective={"metric": "mig", "mode": "max"}, question="Does it grow?")
    ids = [quick_trial(maker, [{"step": 20, "mig": 0.1}], status="running", seed=seed) for seed in range(2)]
    with maker.run.locked():
        tab = shown(tmp_path / "runs", run_path("demo/main"))
        tab.locator("h1 .badge", has_text="running").wait_for()
        tab.locator(".tile", has_text="Time left").locator(".big", has_text=re.compile(r"\d (s|min|h)")).wait_for()
        tab.locator(".chart .dot").wait_for()
        line = tab.locator(".chart path.line")
        lengths = [len(line.get_attribute("d"))]
        for step in (40, 60):
            for id in ids:
                maker.run.trial(id).append_row(
                    {"step": step, "metrics": {"mig": step / 100}, "clock": {"seconds": step}}
                )
            eventually(lambda: len(line.get_attribute("d")) > lengths[-1], True)
            lengths.append(len(line.get_attribute("d")))
        tab.get_by_role("tab", name="Trials").click()
        assert column(tab, "MIG") == ["0.6", "0.6"]
        tab.evaluate("window.same = document.querySelector('table.trials')")
        maker.run.trial(ids[0]).append_row({"step": 80, "metrics": {"mig": 0.9}})
        eventually(lambda: sorted(column(tab, "MIG")), ["0.6", "0.9"])
        assert tab.evaluate("window.same === document.querySelector('table.trials')")  # the page was not loaded again
        maker.run.trial(ids[1]).set_status(Status("failed", 60, "RuntimeError: out of memory"))
        tab.locator(".tile.bad", has_text="Faults").wait_for()
    eventually(lambda: sorted(column(tab, "state")), ["failed", "pending"])
    tab.get_by_role("tab", name="Overview").click()
    tab.get_by_text("RuntimeError: out of memory").first.wait_for()


def test_a_slider_moves_the_decoded_image_by_mouse_and_by_keyboard(shown, trained):
    folder = trained.trials()[0]
    tab = shown(trained.path.parents[1], trial_path("tiny/main", folder.id))
    latents = tab.locator(".slider[data-latent]")
    tab.locator(".view img").nth(2).and_(tab.locator("[src]")).wait_for()
    nats = [float(re.search(r"[\d.e-]+", text)[0]) for text in latents.locator(".kl").all_inner_texts()]
    assert len(nats) == 3
    assert nats == sorted(nats, reverse=True)
    decoded, given = tab.locator(".view img").nth(1), tab.locator(".view img").nth(0)
    before, image = decoded.get_attribute("src"), given.get_attribute("src")
    latents.first.locator("input").focus()
    for _ in range(40):
        tab.keyboard.press("ArrowRight")
    eventually(lambda: decoded.get_attribute("src") != before, True)
    assert given.get_attribute("src") == image
    tab.get_by_label("factor", exact=False).first.fill("2")
    eventually(lambda: given.get_attribute("src") != image, True)
    assert tab.locator(".view img").nth(2).evaluate("image => image.naturalWidth") == 8
    assert "difference" in tab.locator(".view").nth(2).inner_text()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    run = Run(folder / "runs" / "tiny" / "main")
    simulate(run, sweep_file(folder), np.random.default_rng(0))
    return run


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """Two runs; three seeds of each setting. Tests only read them."""
    folder = tmp_path_factory.mktemp("studied") / "runs"
    for name in ("main", "other"):
        study(RunMaker(folder / "demo" / name), betas=(1e-3, 1e-1))
    return folder


@pytest.mark.long
def test_trials_and_runs_that_are_checked_are_compared_with_intervals(shown, studied):
    tab = shown(studied, run_path("demo/main", tab="trials"))
    tab.fill("input[type=search]", "dataset.name=xy_object beta=0.001 latents=9 arm=plain")
    eventually(lambda: tab.locator("output").inner_text(), "6 of 96 trials")
    tab.get_by_label("Choose all trials that are listed").check()
    tab.locator("#compare", has_text="Compare 6").click()
    tab.locator(".side").wait_for()
    tab.get_by_label("compare the values of").select_option("framework.name")
    tab.locator("#differences .interval").wait_for()
    assert "ada_gvae" in tab.locator("#differences table").inner_text()
    assert tab.locator(".side thead a").count() == 6
    tab.get_by_role("button", name="Clear").click()
    for name in ("main", "other"):
        tab.get_by_label(f"Choose demo/{name} for a comparison").check()
    tab.locator("#compare", has_text="Compare 2").click()
    tab.locator("#differences .interval").wait_for()
    assert "demo/other" in tab.locator("#differences table").inner_text()


@pytest.mark.long
def test_every_figure_that_suits_is_drawn_in_both_themes(shown, studied):
    tab = shown(studied, run_path("demo/main", tab="figures"))
    image = tab.locator(".paper img")
    image.wait_for()
    eventually(lambda: image.evaluate("image => image.complete && image.naturalWidth > 300"), True)
    before = image.get_attribute("src")
    tab.click("#theme")
    eventually(lambda: tab.locator(".paper img").get_attribute("src") != before, True)
    tab.get_by_role("option", name="Curves").click()
    tab.locator(".paper h3", has_text="MIG").wait_for()
    tab.get_by_label("metric").last.select_option("sap")
    tab.locator(".paper h3", has_text="SAP").wait_for()


@pytest.mark.long
def test_strings_of_strangers_do_nothing(shown, tmp_path):
    maker = RunMaker(tmp_path / "runs" / NAME / NAME)
    maker.sweep([ATTACK], question=ATTACK, objective={"metric": "mig", "mode": "max"})
    for seed in range(4):
        row = {"step": 1, "mig": 0.1 * seed, ATTACK: 1.0}
        id = quick_trial(maker, [row], ATTACK, "failed" if seed == 3 else "done", f"{ATTACK}\n{ATTACK}", seed=seed)
        maker.run.trial(id).add_error(ATTACK)
        folder = forged(maker.run.trial(id), lambda tree, seed=seed: tree["model"].update(name=f"{ATTACK}{seed % 2}"))
    name = f"{NAME}/{NAME}"
    tab = shown(tmp_path / "runs", "/", expected=("400",))
    tab.locator(".run-card .states").wait_for()
    address = tab.url.split("#")[0]
    tabs = [run_path(name, tab=tab) for tab in ("overview", "trials", "figures", "about")]
    for path in (*tabs, trial_path(name, folder.id), f"/compare?chosen={quote(name, safe='')}:{folder.id}"):
        tab.goto(f"{address}#{path}")
        tab.reload()
        tab.locator("main h1").wait_for()
        tab.wait_for_timeout(1500)
        assert tab.evaluate("window.hit") is None
        assert tab.locator("main script, main img[src=x]").count() == 0
    tab.goto(f"{address}#{run_path(name, tab='trials')}")
    eventually(lambda: len(column(tab, "state")), 4)
    assert set(column(tab, "model.name")) == {f"{ATTACK}0", f"{ATTACK}1"}


def test_marks_that_turn_a_text_around_are_spelled_out(shown, tmp_path):
    maker = RunMaker(tmp_path / "runs" / "demo" / "main")
    maker.sweep(question="\u202etxet")
    tab = shown(tmp_path / "runs", run_path("demo/main"))
    eventually(lambda: tab.locator(".question").inner_text(), "\\u202etxet")


def test_an_unknown_run_is_one_sentence_until_it_is_there(shown, tmp_path):
    RunMaker(tmp_path / "runs" / "demo" / "main").sweep()
    tab = shown(tmp_path / "runs", run_path("later/main"), expected=("404",))
    eventually(lambda: "no run 'later/main'" in tab.locator("#trouble").inner_text(), True)
    assert tab.locator("main").inner_text() == ""
    RunMaker(tmp_path / "runs" / "later" / "main").sweep()
    tab.locator("main h1").wait_for()
    eventually(lambda: tab.locator("#trouble").is_hidden(), True)


@pytest.mark.long
def test_thousands_of_trials_are_painted_sorted_and_updated_at_once(shown, tmp_path):
    maker = RunMaker(tmp_path / "runs" / "demo" / "main")
    study(maker, seeds=197)
    began = time.monotonic()
    tab = shown(tmp_path / "runs", run_path("demo/main", tab="trials"))
    tab.locator("tr[data-id]").first.wait_for()
    assert time.monotonic() - began < patience_s(2)
    eventually(lambda: tab.locator("output").inner_text(), "12,608 trials")
    assert tab.locator("table.trials tr").count() < 100
    times = tab.evaluate(
        """() => [2, 4, 7].map((place) => {
            const start = performance.now();
            document.querySelectorAll(".sort")[place].click();
            const filter = document.querySelector("input[type=search]");
            filter.value = `seed=${place}`;
            filter.dispatchEvent(new Event("input"));
            document.body.getBoundingClientRect();
            return performance.now() - start;
        })"""
    )
    assert max(times) < 1000 * patience_s(0.3)
    tab.fill("input[type=search]", "")
    tab.locator(".scroller").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    eventually(lambda: tab.locator("tr[data-id]").last.get_attribute("aria-rowindex"), "12608")
    id = quick_trial(maker, [{"step": 500, "mig": 0.999}], "plain", "running", seed=500)
    tab.fill("input[type=search]", id)
    eventually(lambda: column(tab, "trial"), [id])
    ask = """async () => {
        const start = performance.now();
        await (await fetch("/api/run?run=demo/main")).json();
        return performance.now() - start;
    }"""
    assert min(tab.evaluate(ask) for _ in range(3)) < 1000 * patience_s(0.3)


@pytest.mark.long
def test_a_storage_that_vanishes_is_said_and_its_last_picture_stays(shown, tmp_path):
    maker = RunMaker(tmp_path / "runs" / "demo" / "main")
    maker.sweep()
    quick_trial(maker, [{"step": 50, "mig": 0.5}])
    tab = shown(tmp_path / "runs", run_path("demo/main", tab="trials"))
    eventually(lambda: column(tab, "MIG"), ["0.5"])
    (tmp_path / "runs").rename(tmp_path / "away")
    tab.locator("#trouble", has_text="showing what was last read").wait_for()
    assert column(tab, "MIG") == ["0.5"]
    (tmp_path / "away").rename(tmp_path / "runs")
    tab.locator("#trouble").wait_for(state="hidden")


@pytest.mark.long
def test_a_server_that_ended_is_said(shown, tmp_path, browser):
    RunMaker(tmp_path / "runs" / "demo" / "main").sweep()
    with served(tmp_path / "runs") as address:
        tab = patient(browser.new_page())
        tab.goto(f"{address}?token={TOKEN}")
        tab.locator("#link.live").wait_for()
    tab.locator("#trouble", has_text="Start it again with: disentune dashboard").wait_for()
    tab.close()


def last_line_at_the_end(tab):
    """Scrolls down, again if the page was drawn anew meanwhile, as it is while it opens."""
    tab.locator(".scroller").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    return tab.locator("tr[data-id]").last.get_attribute("aria-rowindex")


@pytest.mark.long
def test_the_table_is_operated_by_keyboard_alone(shown, studied):
    tab = shown(studied, run_path("demo/main", tab="trials"))
    eventually(lambda: len(column(tab, "trial")) > 10, True)
    eventually(lambda: last_line_at_the_end(tab), "96")
    tab.keyboard.press("/")
    tab.keyboard.type("ada_gvae seed=1 latents=9 beta=0.1 arm=plain")
    eventually(lambda: len(column(tab, "trial")), 2)  # also when fewer lines are left than were scrolled past
    tab.fill("input[type=search]", "ada_gvae")
    eventually(lambda: tab.locator("output").inner_text(), "48 of 96 trials")
    tab.locator(".scroller").focus()
    ids = column(tab, "trial")
    for key in ("ArrowDown", "ArrowDown", "Space"):
        tab.keyboard.press(key)
    assert tab.locator("tr.chosen").get_attribute("data-id") == ids[2]
    tab.keyboard.press("Enter")
    tab.locator("h1", has_text=ids[2]).wait_for()
    assert tab.get_by_label("choose for a comparison").is_checked()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_every_page_in_one_direction_only(shown, studied, trained, scheme):
    id = sorted((studied / "demo" / "main" / "trials").iterdir())[0].name
    paths = ["/", run_path("demo/main"), run_path("demo/main", tab="trials"), trial_path("demo/main", id),
             "/compare?chosen=demo/main,demo/other"]  # fmt: skip
    tab = shown(studied, "/", PHONE, color_scheme=scheme)
    address = tab.url.split("#")[0]
    for path in paths:
        tab.goto(f"{address}#{path}")
        tab.wait_for_timeout(1500)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        paper, ink = (tab.evaluate(f"getComputedStyle(document.body).{what}") for what in ("backgroundColor", "color"))
        luminance = [sum(map(int, re.findall(r"\d+", text)[:3])) for text in (paper, ink)]
        assert (luminance[0] < luminance[1]) == (scheme == "dark")
