"""The files of the page keep to its own policy: texts are never markup, and nothing comes from elsewhere."""

import re
from pathlib import Path

import pytest

import disentune.dashboard
from disentune.dashboard.figures import DARK
from disentune.report import SHARED_STYLE, canvas

PAGE = Path(disentune.dashboard.__file__).parent / "page"
SCRIPTS = sorted(PAGE.glob("*.js"))
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|setHTML|import\("
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_a_text(path):
    assert SINKS.findall(path.read_text()) == []


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_no_file_names_another_server(path):
    addresses = re.findall(r"(?:https?:)?//[a-z0-9.]+\.[a-z]+[^\s\"']*", path.read_text())
    assert [address for address in addresses if "www.w3.org" not in address] == []


def test_the_page_has_no_script_or_style_of_its_own():
    text = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_import_is_a_file_of_the_page_that_exports_the_name(path):
    for names, file in re.findall(r'import \{([^}]+)\} from "\./([^"]+)"', path.read_text()):
        source = (PAGE / file).read_text()
        for name in (part.strip() for part in names.split(",")):
            assert re.search(rf"export const {name}\b", source), f"{path.name} imports {name} from {file}"


def test_figures_and_page_have_the_colours_of_the_report():
    css = SHARED_STYLE.read_text()
    for place, colour in enumerate(canvas.PALETTE):
        assert f"--c{place}: light-dark({colour.lower()}, {DARK[colour]})" in css
    assert '"/page/colours.css"' in (PAGE / "index.html").read_text()
    for own in (PAGE / "style.css", SHARED_STYLE.with_name("page.css")):
        defined = set(re.findall(r"^ *(--[\w-]+):", own.read_text(), re.MULTILINE))
        assert not defined & set(re.findall(r"^ *(--[\w-]+):", css, re.MULTILINE))


def test_the_server_serves_exactly_the_files_of_the_page(make_run, tmp_path, dashboard):
    make_run()
    client = dashboard(tmp_path / "runs")
    for path in [SHARED_STYLE, *PAGE.iterdir()]:
        assert client.ask(f"/page/{path.name}").content == path.read_bytes()
    for path in ("/page/", "/page/../app.py", "/page/..%2fapp.py", "/page/none.js", "/app.py"):
        assert client.ask(path).status_code == 404
