"""Notebooks: a real kernel runs a cell, and its outputs are looked at."""

import json
import re
import sys
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


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The HTML that each cell of a notebook shows, after the first one: a run without matplotlib, one with it, and its
    result. All in one kernel, because it takes seconds to start."""
    home = tmp_path_factory.mktemp("jupyter")
    kernel = home / "JUPYTER_DATA_DIR" / "kernels" / "this"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "this"}))
    sources = [SETUP, f"sys.modules['matplotlib'] = None\n{FIT}", f"del sys.modules['matplotlib']\n{FIT}", "result"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(home / name))
        NotebookClient(notebook, timeout=600, kernel_name="this").execute()
    return [html(cell.outputs) for cell in notebook.cells[1:]]


def html(outputs: list[nbformat.NotebookNode]) -> list[str]:
    return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def test_a_figure_grows_in_the_cell(cells: list[list[str]]) -> None:
    (figure,), (result,) = cells[1:]
    assert figure.count("<svg") == 1, "one figure, drawn anew, not one for each generation"
    assert "k=2" in figure
    assert "Result" in result
    assert "<svg" in result


def test_without_matplotlib_there_are_lines(cells: list[list[str]]) -> None:
    (lines,) = cells[0]
    assert "<svg" not in lines
    assert re.findall(r"^(?:<.*>)?k=(\d)", lines, re.MULTILINE) == ["1", "2"]
