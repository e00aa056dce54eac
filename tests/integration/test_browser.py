"""The report page in a real browser: Debian's Chromium, opened from the file as a user opens it."""

import re
from datetime import UTC, datetime

import pytest

from chromium import ATTACK, NEEDS_CHROMIUM, patient
from conftest import RunMaker
from disentune.report import page
from disentune.results.tables import read
from processes import patience_s
from run_examples import forged, quick_trial, study

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}

pytestmark = [pytest.mark.browser, pytest.mark.slow, NEEDS_CHROMIUM]


# ---- browser and pages


@pytest.fixture
def opened(browser):
    """`opened(file)` gives its page; at the end nothing may have been complained of or asked from elsewhere."""
    contexts, complaints = [], []

    def open_(path, viewport=DESK, **settings):
        context = patient(browser.new_context(viewport=viewport, **settings))
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        tab.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        tab.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        tab.on("request", lambda request: _note_foreign(request.url, complaints))
        tab.goto(path.as_uri())
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def _note_foreign(url, complaints):
    if not url.startswith(("file:", "data:")):
        complaints.append(f"asked for {url}")


def made(folder, fill, name="main"):
    maker = RunMaker(folder / "runs" / "demo" / name)
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    fill(maker)
    return page.write(read(maker.run), "runs/my run", datetime(2026, 1, 1, tzinfo=UTC)).page


@pytest.fixture(scope="module")
def study_page(tmp_path_factory):
    """192 trials with every usual figure, and two that failed."""

    def fill(maker):
        study(maker)
        for seed in (50, 51):
            cause = "RuntimeError: out of memory\nTraceback (most recent call last):\n  deep inside"
            quick_trial(maker, [], "plain", "failed", cause, seed=seed)

    return made(tmp_path_factory.mktemp("study"), fill, "spaces & Größe #1 100%")


@pytest.fixture(scope="module")
def strange_page(tmp_path_factory):
    def fill(maker):
        maker.sweep(question=ATTACK, objective={"metric": "mig", "mode": "max"})
        for seed in range(4):
            row = {"step": 1, "mig": 0.1 * seed, ATTACK: 1.0}
            trial = quick_trial(maker, [row], ATTACK, "failed" if seed == 3 else "done", ATTACK, seed=seed)
            name = f"{ATTACK}{seed % 2}"
            forged(maker.run.trial(trial), lambda tree, name=name: tree["model"].update(name=name))

    return made(tmp_path_factory.mktemp("strange"), fill)


def column(tab, title):
    """Texts of a column of the trials that are shown, from top to bottom."""
    return tab.evaluate(
        """title => {
            const table = document.getElementById("trial-table");
            const place = [...table.tHead.rows[0].cells].findIndex((th) => th.textContent.trim() === title);
            const shown = [...table.tBodies].filter((body) => body.rows[0].offsetParent !== null);
            return shown.map((body) => body.rows[0].cells[place].textContent.trim());
        }""",
        title,
    )


def header(tab, title):
    return tab.locator("#trial-table thead th").filter(has_text=re.compile(rf"^{re.escape(title)}$"))


def colour(tab, selector, what):
    """(r, g, b) as the browser computes it."""
    text = tab.locator(selector).first.evaluate(f"element => getComputedStyle(element).{what}")
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def inks_of_figures(tab):
    found = tab.evaluate(
        """() => [...document.querySelectorAll("figure svg [style*='--ink']")].slice(0, 50).map((one) =>
            getComputedStyle(one)[one.style.fill.includes("--ink") ? "fill" : "stroke"].match(/\\d+/g))"""
    )
    return {tuple(int(part) for part in rgb) for rgb in found}


def contrast(one, other):
    """Of WCAG 2: 4.5 is enough for text."""

    def luminance(rgb):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in rgb)]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


# ---- facts


def test_the_page_opens_from_its_file_with_every_figure(opened, study_page):
    tab = opened(study_page)
    assert tab.url.startswith("file://")
    figures = tab.locator("figure > svg")
    assert figures.count() >= 7
    for i in range(figures.count()):
        box = figures.nth(i).bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
    assert tab.locator("figure.absent").count() == 0


@pytest.mark.long
def test_a_figure_opens_in_full_size_on_a_phone_and_closes(opened, study_page):
    tab = opened(study_page, PHONE)
    small = tab.locator("figure > svg").first.bounding_box()["width"]
    tab.locator("figure .enlarge").first.click()
    assert tab.locator("#enlarged svg").bounding_box()["width"] > 2 * small
    tab.locator("#enlarged .close").click()
    assert not tab.locator("#enlarged").is_visible()


@pytest.mark.long
def test_two_narrow_figures_stand_in_a_row_on_a_desk_and_one_on_a_phone(opened, study_page):
    for viewport, expected in ((DESK, 2), (PHONE, 1)):
        boxes = [one.bounding_box() for one in opened(study_page, viewport).locator("figure:not(.wide)").all()[:2]]
        assert (2 if boxes[0]["y"] == boxes[1]["y"] else 1) == expected


def test_a_click_on_a_header_sorts_numbers_as_numbers_with_missing_ones_last(opened, study_page):
    tab = opened(study_page)
    assert header(tab, "MIG").get_attribute("aria-sort") == "descending"
    for order in ("ascending", "descending"):
        header(tab, "beta").get_by_role("button").click()
        assert header(tab, "beta").get_attribute("aria-sort") == order
        assert header(tab, "MIG").get_attribute("aria-sort") == "none"
        numbers = [float(text) for text in column(tab, "beta")]
        assert numbers == sorted(numbers, reverse=order == "descending")
        assert len(set(numbers)) == 4
    for order in ("ascending", "descending"):
        header(tab, "MIG").get_by_role("button").click()
        *present, last, very_last = column(tab, "MIG")
        assert (last, very_last) == ("–", "–")
        numbers = [float(text) for text in present]
        assert numbers == sorted(numbers, reverse=order == "descending")
    header(tab, "latents").get_by_role("button").click()
    assert list(dict.fromkeys(column(tab, "latents"))) == ["9", "25"]  # as texts they would stand the other way
    header(tab, "step").get_by_role("button").click()
    assert column(tab, "step")[:3] == ["0/1500", "0/1500", "1500/1500"]


@pytest.mark.long
def test_a_click_on_a_header_sorts_texts(opened, study_page):
    tab = opened(study_page)
    header(tab, "framework.name").get_by_role("button").click()
    texts = column(tab, "framework.name")
    assert texts == sorted(texts)
    assert len(set(texts)) == 2


@pytest.mark.long
def test_details_stay_with_their_trial_when_the_table_is_sorted(opened, study_page):
    tab = opened(study_page)
    header(tab, "trial").get_by_role("button").click()
    ids = tab.evaluate(
        """() => [...document.getElementById("trial-table").tBodies].map((body) => [
            body.rows[0].cells[0].textContent.trim(), body.rows[1].querySelector("code").textContent])"""
    )
    assert len(ids) == 194
    assert all(command.rstrip("'").endswith(f"/trials/{trial}") for trial, command in ids)
    assert [trial for trial, _ in ids] == sorted(trial for trial, _ in ids)


@pytest.mark.long
def test_every_word_of_the_filter_must_match(opened, study_page):
    tab = opened(study_page)
    assert tab.locator("#count").inner_text() == "194 of 194 trials"
    tab.fill("#filter", "ADA_gvae xy_object")
    assert tab.locator("#count").inner_text() == "48 of 194 trials"
    assert set(column(tab, "framework.name")) == {"ada_gvae"}
    assert set(column(tab, "dataset.name")) == {"xy_object"}
    tab.fill("#filter", "ada_gvae nowhere")
    assert column(tab, "trial") == []
    tab.fill("#filter", "")
    assert len(column(tab, "trial")) == 194


@pytest.mark.long
@pytest.mark.parametrize("word", ["seed=2", "SEED=2"])
def test_a_word_with_a_key_means_that_column_and_the_whole_number(opened, study_page, word):
    tab = opened(study_page)
    tab.fill("#filter", word)
    assert set(column(tab, "seed")) == {"2"}
    tab.fill("#filter", "seed=5")
    assert column(tab, "seed") == []  # not 50 or 51
    tab.fill("#filter", "framework.name=beta model.latents=9")
    assert set(column(tab, "framework.name")) == {"beta_vae"}
    assert set(column(tab, "latents")) == {"9"}


@pytest.mark.long
def test_the_filter_finds_words_of_a_cause_and_the_state(opened, study_page):
    tab = opened(study_page)
    tab.fill("#filter", "deep inside")
    assert tab.locator("#count").inner_text() == "2 of 194 trials"
    tab.fill("#filter", "")
    tab.select_option("#status", "failed")
    assert set(column(tab, "status")) == {"failed"}
    assert tab.locator("#count").inner_text() == "2 of 194 trials"
    tab.fill("#filter", "seed=50")
    assert tab.locator("#count").inner_text() == "1 of 194 trials"
    header(tab, "seed").get_by_role("button").click()
    assert column(tab, "seed") == ["50"]


@pytest.mark.long
def test_details_open_and_their_command_is_copied(opened, study_page):
    tab = opened(study_page, permissions=["clipboard-read", "clipboard-write"])
    tab.select_option("#status", "failed")
    body = tab.locator("#trial-table tbody:not(.filtered)").first
    assert not body.locator(".detail").is_visible()
    body.locator(".open").click()
    assert body.locator(".open").get_attribute("aria-expanded") == "true"
    assert body.locator("pre").inner_text().startswith("RuntimeError: out of memory\nTraceback")
    body.locator(".copy").click()
    body.locator(".copy", has_text="Copied").wait_for()
    trial = body.locator("th a").inner_text()
    assert tab.evaluate("navigator.clipboard.readText()") == f"disentune train 'runs/my run/trials/{trial}'"
    body.locator(".open").click()
    assert not body.locator(".detail").is_visible()


@pytest.mark.long
def test_all_numbers_are_shown_when_asked_for(opened, study_page):
    tab = opened(study_page)
    assert not header(tab, "loss sum").is_visible()
    tab.check("#all-numbers")
    assert header(tab, "loss sum").is_visible()


@pytest.mark.long
def test_a_trials_link_opens_its_folder(browser, study_page):
    """In the browser's own listing, which may complain as it likes."""
    tab = patient(browser.new_page())
    tab.goto(study_page.as_uri())
    trial = tab.locator("#trial-table tbody th a").first
    name = trial.inner_text()
    trial.click()
    assert tab.url.endswith(f"/trials/{name}/")
    assert "config.json" in tab.content()
    tab.close()


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_the_page_follows_the_systems_theme_and_its_button(opened, study_page, scheme):
    tab = opened(study_page, color_scheme=scheme)
    themes = {}
    for _ in range(3):
        paper, ink = colour(tab, "body", "backgroundColor"), colour(tab, "body", "color")
        themes[scheme] = paper
        assert (sum(paper) < 200) == (scheme == "dark")
        assert contrast(paper, ink) > 7
        assert inks_of_figures(tab) == {ink}
        tab.click("#theme")
        scheme = "light" if scheme == "dark" else "dark"
    assert len(set(themes.values())) == 2


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_text_has_enough_contrast(opened, study_page, scheme):
    tab = opened(study_page, color_scheme=scheme)
    papers = [colour(tab, paper, "backgroundColor") for paper in ("body", ".card")]
    for selector in ("small", ".hint", "a", "figcaption", ".badge.done", ".badge.failed", "dt", "thead th"):
        ink = colour(tab, selector, "color")
        assert min(contrast(ink, paper) for paper in papers) >= 4.5, selector


@pytest.mark.parametrize("name", ["study_page", pytest.param("strange_page", marks=pytest.mark.long)])
def test_a_phone_scrolls_the_page_in_one_direction_only(opened, request, name):
    tab = opened(request.getfixturevalue(name), PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    for button in tab.locator(".open").all()[:2]:
        button.click()
    tab.fill("#filter", "done")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.long
def test_the_header_of_the_table_stays_while_its_box_scrolls(opened, study_page):
    tab = opened(study_page)
    box = tab.locator(".box.tall")
    box.scroll_into_view_if_needed()
    before = tab.locator("#trial-table thead").bounding_box()["y"]
    box.evaluate("element => { element.scrollTop = 1500; element.scrollLeft = 200 }")
    assert tab.locator("#trial-table thead th").nth(3).bounding_box()["y"] == pytest.approx(before, abs=2)  # a border


@pytest.mark.long
def test_print_has_every_trial_no_button_and_light_colours(opened, study_page):
    tab = opened(study_page, color_scheme="dark")
    tab.fill("#filter", "nothing fits this")
    tab.click("#theme")
    tab.click("#theme")
    tab.emulate_media(media="print")
    assert len(column(tab, "trial")) == 194
    assert colour(tab, "body", "backgroundColor") == (255, 255, 255)
    assert tab.locator("button:visible:not(.sort)").count() == 0
    assert header(tab, "MIG").is_visible()
    assert tab.locator("figure").first.evaluate("element => getComputedStyle(element).breakInside") == "avoid"


@pytest.mark.long
def test_the_page_prints_to_pdf_with_a_page_more_for_more_trials(opened, study_page, strange_page):
    counts = {}
    for name, path in (("study", study_page), ("strange", strange_page)):
        data = opened(path).pdf(prefer_css_page_size=True)
        assert data.startswith(b"%PDF")
        counts[name] = len(re.findall(rb"/Type\s*/Page\b", data))
    assert counts["study"] > counts["strange"] + 5 > 6


@pytest.mark.long
def test_strings_of_strangers_do_nothing(opened, strange_page):
    tab = opened(strange_page)
    for button in tab.locator(".open").all():
        button.click()
    tab.fill("#filter", ATTACK)
    tab.fill("#filter", "")
    header(tab, "trial").get_by_role("button").click()
    tab.wait_for_timeout(300)
    assert tab.evaluate("window.hit") is None
    assert tab.locator("img").count() == 0
    assert tab.locator("script").count() == 1
    assert tab.locator("h1").inner_text() == ATTACK


@pytest.mark.long
def test_the_policy_stops_what_is_not_ours(browser, study_page):
    """The last line of defence, tried: a script and a handler that got into the page do not run."""
    tab = patient(browser.new_page())
    tab.goto(study_page.as_uri())
    tab.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hit = 1";
            document.body.append(script);
            const picture = document.createElement("img");
            picture.setAttribute("onerror", "window.hit = 1");
            picture.src = "nowhere.png";
            document.body.append(picture);
        }"""
    )
    tab.wait_for_timeout(300)
    assert tab.evaluate("window.hit") is None
    tab.close()


@pytest.mark.long
def test_an_empty_run_opens(opened, tmp_path):
    tab = opened(made(tmp_path, lambda maker: None))
    assert tab.get_by_text("No trials yet.").count() > 0
    tab.click("#theme")


@pytest.mark.long
def test_a_thousand_trials_stay_responsive(opened, tmp_path):
    """Far above the 0.1 s that the browser takes alone: this machine is shared."""
    tab = opened(made(tmp_path, lambda maker: study(maker, seeds=16)))
    times = tab.evaluate(
        """() => ["1", "5", "9"].map((place) => {
            const start = performance.now();
            document.querySelectorAll("#trial-table .sort")[place].click();
            const filter = document.getElementById("filter");
            filter.value = place;
            filter.dispatchEvent(new Event("input"));
            document.body.getBoundingClientRect();
            return performance.now() - start;
        })"""
    )
    assert max(times) < 1000 * patience_s(3)
