"""Pages name what is there, links lead somewhere, generated pages are fresh, and commands that pages show work."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from disentune.report.kinds import KINDS
from disentune.spec.figures import FIGURES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LOADED = r"""<(?:script|link|img|iframe)[^>]*?(?:src|href)=["']((?:https?:)?//[^"']+)"""
README = (ROOT / "README.md").read_text()


def loaded(name):
    """A script of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


check = loaded("check")
PAGES = check.pages()
MARKED = {page: list(check.blocks(page)) for page in PAGES}


def shown(page):
    return str(page.relative_to(ROOT))


# ---- generated pages


def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_stale_page_is_named_with_the_first_line_that_differs(tmp_path):
    generate = loaded("generate")
    page = tmp_path / "page.md"
    page.write_text("one\ntwo\nold\n")
    assert generate.stale({page: "one\ntwo\nnew\n"}) == {page: 3}
    assert generate.stale({page: "one\ntwo\nold\n"}) == {}
    assert generate.stale({tmp_path / "missing.md": "one\n"}) == {tmp_path / "missing.md": 1}


def test_the_guide_has_every_kind_of_figure_with_its_question_and_keys():
    text = (DOCS / "guides" / "results.md").read_text()
    rows = {row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| ([^|]*?\?)[^|]*\| ([^|]*?) ?\|", text, re.MULTILINE)}
    assert {name: row[0] for name, row in rows.items()} == {name: kind.question for name, kind in KINDS.items()}
    shared = {"name", "title", "only"}
    for name, params in FIGURES.items():
        known = set(params.model_fields) - shared
        assert known == set(re.findall(r"`(\w+)`", rows[name][1])) - {"best", "worst", "both"}


@pytest.mark.parametrize("page", ["reference/sweep.md", "reference/frameworks.md", "reference/metrics.md"])
def test_every_key_of_the_reference_has_a_description(page):
    rows = re.findall(r"^\| `\w+` \|.*$", (DOCS / page).read_text(), re.MULTILINE)
    assert len(rows) > 20
    assert [row for row in rows if row.endswith("|  |")] == []


@pytest.mark.long
def test_the_gallery_shows_every_kind_of_figure():
    """On failure: `make gallery`."""
    from disentune.spec.figures import FIGURES

    assert re.findall("^## (.*)$", (DOCS / "gallery.md").read_text(), re.MULTILINE) == list(FIGURES)


def test_the_yaml_of_the_gallery_can_be_copied_into_a_sweep():
    import yaml

    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "gallery.md").read_text(), re.DOTALL)
    assert len(blocks) > 15
    for block in blocks:
        assert [figure["name"] for figure in yaml.safe_load(block)["figures"]], block


def test_the_reference_has_every_key_of_a_sweep_file():
    from disentune.spec.sweepfile import SWEEP_KEYS

    keys = re.findall(
        r"^\| `(\w+)` \|", (DOCS / "reference/sweep.md").read_text().partition("## trial and arms")[0], re.M
    )
    assert set(keys) == set(SWEEP_KEYS)


# ---- links and names


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_files_and_links_that_a_page_names_exist(page):
    assert [*check.wrong_links(page), *check.wrong_names(page)] == []


def test_a_broken_link_is_named_with_file_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n[one](gone.md) and [two](#title) and [three](#other)\n\n```\n[code](gone.md)\n```\n[up](..)\n"
    )
    assert list(check.wrong_links(page)) == [
        f"{page}:3: broken link: gone.md",
        f"{page}:3: broken link: #other: no such heading",
        f"{page}:8: broken link: ..: is a folder, which the site does not have",
    ]


def test_a_file_that_is_not_there_is_named_with_file_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("see\n`sweeps/quickstart.yaml` and `sweeps/gone.yaml`\n")
    assert list(check.wrong_names(page)) == [f"{page}:2: no such file: sweeps/gone.yaml"]


def test_the_navigation_names_every_page():
    nav = (ROOT / "mkdocs.yml").read_text().split("nav:\n  - Home")[1]
    named = {"index.md"} | set(re.findall(r"[\w/]+[\w-]*\.md", nav))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert named - {"contributing.md", "changelog.md", "reporting.md"} == pages


BUILD = re.search(r"python -m (mkdocs build .*)", (ROOT / "Makefile").read_text())[1].split()


def built(source, folder):
    return subprocess.run(
        [sys.executable, "-m", *BUILD, "--site-dir", folder], cwd=source, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip


@pytest.mark.long
def test_the_site_is_built_without_a_warning_and_asks_no_other_host(tmp_path):
    done = built(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    assert len(pages) > 40
    asked = {(page.name, url) for page, text in pages.items() for url in re.findall(LOADED, text)}
    assert asked == set()


@pytest.mark.long
def test_a_page_that_the_site_cannot_build_fails_the_build_by_name(tmp_path):
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "images"))
    for name in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / name, tmp_path)
    page = tmp_path / "docs/reference/python.md"
    page.write_text(page.read_text().replace("::: disentune.load", "::: disentune.laod"))
    done = built(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert "disentune.laod" in done.stderr
    assert "reference/python.md" in done.stderr


def test_the_readme_is_short_and_narrow():
    lines = README.splitlines()
    assert len(lines) <= 125
    assert [line for line in lines if len(line) > 120] == []


def in_workspace(folder, *arguments):
    command = [sys.executable, "-m", "disentune.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=check.environment(folder), capture_output=True, text=True)


def test_the_sweep_and_the_plugin_of_the_readme_work(tmp_path):
    check.workspace(tmp_path)
    blocks = dict(re.findall(r"^```(yaml|python)\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
    (tmp_path / "sweeps/my_study.yaml").write_text(blocks["yaml"])
    (tmp_path / "my_vae.py").write_text(blocks["python"])  # the last block of Python
    name = 'trial.framework={name: "my_vae:FRAMEWORK", beta: 2}'
    train = ["train", "sweeps/my_study.yaml", "--only", "arm == 'plain'", "--set", name, "--set", "training.steps=20"]
    for arguments in (["plan", "sweeps/my_study.yaml"], train):
        done = in_workspace(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr


WRONG_SWEEP = """trial:
  dataset: {name: xysquares}
  model: {name: mlp, latents: 9}
  framework: {name: betavae}
  recon: {name: mse}
  training: {steps: 10, batch_size: 8, learning_rate: 1e-3}
  loss_scale: mean
arms:
  unknown: {}
  negative: {framework.name: beta_vae, search_space: demo}
"""


def test_the_mistakes_of_the_readme_are_reported_as_shown(tmp_path):
    check.workspace(tmp_path)
    (tmp_path / "sweeps/demo.yaml").write_text(WRONG_SWEEP)
    (tmp_path / "search_spaces/demo.yaml").write_text("# a grid\nframework.beta: {grid: [-1, 1]}\n")
    done = in_workspace(tmp_path, "plan", "sweeps/demo.yaml")
    expected = re.search(r"^(sweeps/demo.yaml cannot run:\n.*?)```", README, re.MULTILINE | re.DOTALL)
    assert done.returncode == 2
    assert check.agrees(expected[1].splitlines(), done.stderr.splitlines())


# ---- commands


def marked_page(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.ray])])
@pytest.mark.parametrize("page", [page for page in PAGES if MARKED[page]], ids=shown)
def test_commands_of_a_page_run_as_shown(page, long):
    if not any(block.long == long and block.kind == "run" for block in MARKED[page]):
        pytest.skip("shows no such command")
    assert list(check.run_page(page, long)) == []


def test_a_command_that_fails_is_named_with_file_and_line(tmp_path):
    page = marked_page(tmp_path, "# Title\n\n<!-- run -->\n```console\n$ true\n$ echo no; exit 3\n```\n")
    assert list(check.run_page(page)) == [f"{page}:6: exit code 3 instead of 0: echo no; exit 3\nno\n"]


def test_a_command_that_prints_something_else_is_named_with_file_and_line(tmp_path):
    page = marked_page(tmp_path, "<!-- run -->\n```console\n$ echo one 0.25; echo two\none 0.75\n2\n```\n")
    assert list(check.run_page(page)) == [f"{page}:3: prints something else: echo one 0.25; echo two\none 0.25\ntwo\n"]


def test_a_block_can_be_a_file_of_a_later_command(tmp_path):
    file = "<!-- file: a/b.txt -->\n```text\nhello\n```\n"
    run = "<!-- run: exit 1 -->\n```console\n$ cat a/b.txt\nhello\n$ false\n```\n"
    assert list(check.run_page(marked_page(tmp_path, file + run))) == []


def test_a_mark_without_a_block_is_refused(tmp_path):
    page = marked_page(tmp_path, "<!-- run -->\n\n```console\n$ true\n```\n")
    assert list(check.run_page(page)) == [f"{page}:1: a mark must be on the line before a code block"]


def test_a_block_that_is_not_closed_is_refused(tmp_path):
    page = marked_page(tmp_path, "# Title\n\n<!-- run -->\n```console\n$ true\n")
    assert list(check.run_page(page)) == [f"{page}:4: the code block is not closed"]


@pytest.mark.parametrize("mark", ["<!-- run: exit two -->", "<!-- run: slow -->", "<!-- file -->"])
def test_a_mark_that_is_not_understood_is_refused(tmp_path, mark):
    page = marked_page(tmp_path, f"# Title\n\n{mark}\n```console\n$ true\n```\n")
    assert list(check.run_page(page)) == [f"{page}:3: not understood: {mark}; see docs/check.py --help"]


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (["a  1.5"], ["a 2.25"], True),
        (["a", "...", "z"], ["a", "b", "c", "z"], True),
        (["a ... z"], ["a b z"], True),
        (["18 trials"], ["17 trials"], False),
        (["a"], ["a", "b"], False),
    ],
)
def test_output_agrees_up_to_decimals_spaces_and_dots(expected, printed, same):
    assert check.agrees(expected, printed) is same


# ---- the walks of architecture.md

ARCHITECTURE = (DOCS / "architecture.md").read_text()
WALKS = ARCHITECTURE[ARCHITECTURE.index("## From a sweep file") : ARCHITECTURE.index("## A run on disk")]
HOPS = sorted(set(re.findall(r"`([a-z]+\.[a-z_]+\.[A-Za-z_.]+)`", WALKS)))


def test_every_step_of_the_walks_names_a_function():
    steps = re.findall(r"^[0-9]+\. .*", WALKS, re.MULTILINE)
    assert len(steps) > 20
    assert [step for step in steps if not any(f"`{hop}`" in step for hop in HOPS)] == []


@pytest.mark.parametrize("hop", HOPS)
def test_what_the_walks_name_exists(hop):
    package, module, *attributes = hop.split(".")
    found = importlib.import_module(f"disentune.{package}.{module}")
    for name in attributes:
        found = getattr(found, name)
    assert callable(found)
