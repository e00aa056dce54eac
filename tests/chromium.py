"""Debian's Chromium, for tests of pages as a user sees them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from processes import patience_s

CHROMIUM = shutil.which("chromium")
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, on Debian: apt-get install chromium")
ATTACK = "<script>window.hit=1</script>\"'><img src=x onerror=window.hit=1></pre>{{ 7*7 }}javascript:window.hit=1"
"""A text that shows itself where a page does not treat it as text."""


def patient(opened: Any) -> Any:
    """A page, or a context with all its pages, that waits longer while others use the machine's cores too."""
    opened.set_default_timeout(1000 * patience_s(30))
    return opened


@contextmanager
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: make setup")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=1000 * patience_s(30))
        yield browser
        browser.close()
