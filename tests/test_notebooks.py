"""Notebooks are short, were executed from top to bottom before they were kept, and still run."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from processes import patience_s

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST_BYTES = 100_000
LONGEST_CELL = 30

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 7


@every_notebook
def test_a_notebook_begins_with_a_title_and_what_it_teaches(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    first = notebook.cells[0].source
    assert first.startswith("# ")
    assert "ou will learn" in first


@every_notebook
def test_cells_are_short_and_outputs_small(path):
    assert path.stat().st_size < LARGEST_BYTES
    assert max(len(cell.source.splitlines()) for cell in code_cells(path)) <= LONGEST_CELL


@every_notebook
def test_kept_outputs_are_of_one_run_without_errors_or_paths_of_the_machine(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
    texts = [output.get("text") or output.data.get("text/plain", "") for output in outputs]
    assert [text for text in texts if re.search(r"/tmp/|/home/|/root/|\x1b", text)] == []


@pytest.mark.long
@pytest.mark.ray  # the first one runs a sweep
@every_notebook
def test_a_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=int(patience_s(600)), kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
