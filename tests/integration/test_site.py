"""The documentation site, built and opened from its files as a reader opens it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chromium import NEEDS_CHROMIUM, patient
from processes import patience_s

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    assert [str(page) for page in pages if LOADED.search(page.read_text())] == []


def test_files_of_the_repository_that_pages_link_to_are_in_the_site(site):
    assert (site / "repository/cluster.yaml").read_text() == (ROOT / "cluster.yaml").read_text()


def test_the_changelog_is_a_page_of_the_site(site):
    assert "Unreleased" in (site / "changelog.html").read_text()


@pytest.mark.browser
@NEEDS_CHROMIUM
def test_the_search_works_from_a_file_without_a_network(site, browser):
    tab, asked = patient(browser.new_page()), []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((site / "index.html").as_uri())
    tab.locator(".md-search__input").click()
    tab.keyboard.type("loss scale")
    tab.wait_for_selector(".md-search-result__item", timeout=1000 * patience_s(120))
    titles = tab.locator(".md-search-result__item h1").all_inner_texts()
    assert "Loss scale" in titles
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
