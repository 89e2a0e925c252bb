"""README, docs, docstrings and examples are executed: what they say is what happens."""

import doctest
import importlib
import math
import pkgutil
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

import esgd
import esgd_paper
from esgd._names.entry_points import STUDIES
from esgd.cli.app import app
from tests.command import esgd as command
from tests.installed import installed
from tests.warm import python

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    module.name
    for package in (esgd, esgd_paper)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if module.name != "esgd.__main__"
)
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md"), *ROOT.glob("examples/*.md")]
)
FENCE = re.compile(r"^```python\n(.*?)^```(?:\n\n?```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
NEXT = "-- next snippet --\n"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.stem)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    done = python(script, cwd=tmp_path, preload=heavy(script.read_text()))
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if FENCE.search(page.read_text())], ids=lambda page: str(page.relative_to(ROOT))
)
def test_python_snippets_run(page: Path, tmp_path: Path) -> None:
    """The snippets of a page run in one namespace, from top to bottom; a text block after one is what it prints."""
    snippets = FENCE.findall(page.read_text())
    program = "".join(f"{code}\nprint({NEXT!r}, end='')\n" for code, _ in snippets)
    done = python("-u", "-c", program, cwd=tmp_path, together=True, preload=heavy(program))
    assert done.returncode == 0, done.stdout
    for (code, shown), printed in zip(snippets, done.stdout.split(NEXT), strict=False):
        if shown:
            assert alike(printed, shown), f"{code}\nprints\n{printed}\nbut the page shows\n{shown}"


def heavy(program: str) -> list[str]:
    """What a program imports that takes seconds, and that several programs import."""
    return [
        name
        for name in ("lightning", "peft", "transformers")
        if re.search(rf"^(?:from|import) {name}\b", program, re.M)
    ]


COMMANDS = sorted({line for page in PAGES for line in re.findall(r"^esgd .*", page.read_text(), re.MULTILINE)})


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_on_pages_are_understood(line: str) -> None:
    """Not run, some take hours; but command, arguments and options are those that there are."""
    _, name, *arguments = shlex.split(re.split(r"\s{2,}|\s+#", line)[0])
    typer.main.get_command(app).get_command(None, name).make_context(name, arguments)


def alike(printed: str, shown: str) -> bool:
    """The same words, and numbers within 2%: other processors round differently."""
    numbers = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=False)
    return NUMBER.sub("#", printed.strip()) == NUMBER.sub("#", shown.strip()) and all(
        math.isclose(float(one), float(other), rel_tol=0.02) for one, other in numbers
    )


def test_shown_output_is_compared() -> None:
    assert alike("best 0.1796  leader adam\n", "best 0.1797  leader adam")
    assert not alike("best 0.1796  leader adam", "best 0.25  leader adam")
    assert not alike("best 0.1796  leader adam", "best 0.1796  leader sgd")
    assert not alike("1 2", "1 2 3")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_room_has_a_readme() -> None:
    rooms = [path.parent for path in ROOT.glob("src/*/*/__init__.py")]
    assert [room.name for room in rooms if not (room / "README.md").is_file()] == []


@pytest.mark.parametrize("room", [ROOT / "src/esgd", ROOT / "src/esgd/engines"], ids=lambda path: path.name)
def test_every_module_and_room_has_a_place_on_the_page_of_the_architecture(room: Path) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = [each.name for each in room.glob("*.py") if not each.name.startswith("__")]
    rooms = [f"{each.parent.name}/" for each in room.glob("*/__init__.py")]
    assert [each for each in (*modules, *rooms) if f"`{each}`" not in page] == []


def test_the_algorithm_is_no_longer_than_its_pseudo_code_allows() -> None:
    """About sixty lines; a change that makes it longer deletes something else."""
    assert len((ROOT / "src/esgd/algorithm.py").read_text().splitlines()) <= 70


@pytest.mark.slow
def test_the_funnels_on_the_page_of_rules_are_the_same_in_python_and_in_toml(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/rules.md").read_text()
    files = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    namespace = dict[str, object]()
    for code, _ in FENCE.findall(page):
        if "_funnel = " in code or "\nfunnel = " in code:
            exec(f"import esgd\n{code.partition('for generation')[0]}", namespace)
    recipes = [namespace["funnel"], namespace["short_funnel"]]
    assert [esgd.Recipe.from_dict(tomllib.loads(file)["recipe"]) for file in files] == recipes
    for number, file in enumerate(files):
        (tmp_path / f"{number}.toml").write_text(file)
        words = ("--engine", "loop", "--quiet", "--set", "generations=2")
        done = command("run", f"{number}.toml", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


STUDY_PAGE = ROOT / "docs/how-to/own-study.md"


@pytest.mark.slow
def test_the_study_on_its_page_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module and the lines of pyproject.toml that the page shows make an installed package."""
    page = STUDY_PAGE.read_text()
    (module, _), *_ = FENCE.findall(page)
    (project,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    offers = tomllib.loads(project)["project"]["entry-points"]
    assert len(module.splitlines()) <= 20
    with installed(tmp_path, monkeypatch, "mylab", module, offers):
        assert list(offers[STUDIES]) == ["sine"]
        assert "sine " in command("list", cwd=tmp_path).stdout
        sizes = [word for each in ("population=2", "offspring=2", "generations=1") for word in ("--set", each)]
        done = command("run", "sine", *sizes, "--run", "run", "--engine", "loop", "--quiet", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert command("resume", "run", "--quiet", cwd=tmp_path).returncode == 0
