"""The documentation site builds without a warning, needs nothing from elsewhere, and reads on a phone."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chromium import chromium

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return folder


def pages(site: Path) -> Iterator[tuple[str, str]]:
    for page in sorted(site.glob("**/*.html")):
        yield page.relative_to(site).as_posix(), page.read_text()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r'(?:<(?:script|img|iframe)[^>]* src|<link[^>]* rel="(?:stylesheet|preconnect|icon)"[^>]*)="?http'
    )
    assert [name for name, html in pages(site) if loads.search(html)] == []
    assert [css for css in site.glob("**/*.css") if re.search(r"url\(['\"]?http|@import", css.read_text())] == []


def test_every_formula_is_drawn(site: Path) -> None:
    assert (site / "esgd.html").read_text().count('<svg class="formula" role="img" aria-label="') > 20
    assert [name for name, html in pages(site) if "arithmatex" in html] == []


def test_links_out_of_docs_lead_to_copies(site: Path) -> None:
    assert 'href="examples/cluster/kuberay.yaml"' in (site / "cluster.html").read_text()
    assert (site / "examples/cluster/kuberay.yaml").is_file()
    assert 'href="benchmarks.html"' in (site / "index.html").read_text()


def test_every_room_has_a_page_with_its_names(site: Path) -> None:
    for readme in ROOT.glob("src/**/README.md"):
        room = readme.parent.relative_to(ROOT / "src").as_posix().removeprefix("esgd/")
        assert "doc-heading" in (site / "reference" / f"{room}.html").read_text(), room


def test_examples_in_docstrings_are_code(site: Path) -> None:
    assert "<blockquote" not in (site / "reference" / "operators.html").read_text()


@pytest.mark.browser
def test_pages_fit_a_phone(site: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser = chromium()
    with sync_api.sync_playwright() as playwright:
        window = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = window.new_page(viewport={"width": 390, "height": 844})
        for name in (
            "index.html",
            "getting-started.html",
            "esgd.html",
            "experiments.html",
            "reference/operators.html",
        ):
            page.goto((site / name).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        window.close()
