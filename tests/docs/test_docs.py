"""README, docs, docstrings and examples are executed: what they say is what happens."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import esgd

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(esgd.__path__, "esgd.") if module.name != "esgd.__main__"
)
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md"), *ROOT.glob("examples/*.md")]
)
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("script", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.stem)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "page", [page for page in PAGES if FENCE.search(page.read_text())], ids=lambda page: str(page.relative_to(ROOT))
)
def test_python_snippets_run(page: Path, tmp_path: Path) -> None:
    """The snippets of a page run in one namespace, from top to bottom."""
    program = "\n".join(FENCE.findall(page.read_text()))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_room_has_a_readme() -> None:
    rooms = [path for path in (ROOT / "src" / "esgd").iterdir() if (path / "__init__.py").is_file()]
    assert [room.name for room in rooms if not (room / "README.md").is_file()] == []


def test_the_algorithm_is_no_longer_than_its_pseudo_code_allows() -> None:
    """About sixty lines; a change that makes it longer deletes something else."""
    assert len((ROOT / "src/esgd/algorithm.py").read_text().splitlines()) <= 70
