"""Notebooks: a real kernel runs a cell, and its outputs are looked at."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]
SETUP = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
FIT = """
import esgd
from tests.small import classify

recipe = esgd.Recipe(population=3, offspring=4, generations=2, sgd_epochs=1)
result = esgd.fit(classify(), recipe, seed=0, engine="loop")
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # between Jupyter's own parts
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[nbformat.NotebookNode]]:
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    kernel = tmp_path / "JUPYTER_DATA_DIR" / "kernels" / "this"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "this"}))

    def run(*cells: str) -> list[nbformat.NotebookNode]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        NotebookClient(notebook, timeout=200, kernel_name="this").execute()
        return [output for cell in notebook.cells for output in cell.outputs]

    return run


def html(outputs: list[nbformat.NotebookNode]) -> list[str]:
    return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def test_a_figure_grows_in_the_cell(run: Callable[..., list[nbformat.NotebookNode]]) -> None:
    outputs = run(SETUP, FIT, "result")
    figure, result = html(outputs)
    assert figure.count("<svg") == 1, "one figure, drawn anew, not one for each generation"
    assert "k=2" in figure
    assert "Result" in result
    assert "<svg" in result


def test_without_matplotlib_there_are_lines(run: Callable[..., list[nbformat.NotebookNode]]) -> None:
    (lines,) = html(run(SETUP, f"sys.modules['matplotlib'] = None\n{FIT}"))
    assert "<svg" not in lines
    assert re.findall(r"^(?:<.*>)?k=(\d)", lines, re.MULTILINE) == ["1", "2"]
