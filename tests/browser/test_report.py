"""report.html in a real browser, opened as a file: the same views, and everything can be saved."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from esgd.report import write_run, write_runs
from tests.unit.watch.histories import line
from tests.unit.watch.histories import write_run as written

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_report_shows_the_views_and_asks_nobody(page: Page, tmp_path: Path) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    report = write_run(written(tmp_path / "mine", generations=3))
    page.goto(report.as_uri())
    expect(page.get_by_role("region", name="The runs")).to_contain_text("held 3 of 3")
    expect(page.locator("#view-tree canvas")).to_be_visible()
    assert requests == [report.as_uri()]


def test_figures_can_be_saved(page: Page, tmp_path: Path) -> None:
    page.goto(write_run(written(tmp_path / "mine", generations=3)).as_uri())
    for figure in ("#view-fitness", "#view-tree", "figure:not(.view)"):
        for kind, head in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
            with page.expect_download() as saved:
                page.locator(figure).first.get_by_role("button", name=kind, exact=True).click()
            data = Path(saved.value.path()).read_bytes()
            assert data.startswith(head), f"{figure} as {kind}"
            if kind == "PNG":
                assert int.from_bytes(data[16:20], "big") >= 1500, f"{figure} is not wide enough for print"


def test_a_table_can_be_saved(page: Page, tmp_path: Path) -> None:
    page.goto(write_run(written(tmp_path / "mine", generations=3)).as_uri())
    with page.expect_download() as saved:
        page.get_by_role("link", name="LaTeX").first.click()
    assert Path(saved.value.path()).read_text().startswith(r"\begin{table}")


def test_the_generations_play(page: Page, tmp_path: Path) -> None:
    page.goto(write_run(written(tmp_path / "mine", generations=3)).as_uri())
    shown = page.locator("#view-points output")
    expect(shown).to_have_text("generation 3 of 3")
    page.get_by_role("button", name="Play the generations").click()
    expect(shown).to_have_text("generation 2 of 3")
    expect(shown).to_have_text("generation 3 of 3")


def test_runs_stand_side_by_side(page: Page, tmp_path: Path) -> None:
    folders = [written(tmp_path / name, generations=3, seed=seed) for seed, name in enumerate(("one", "two"))]
    page.goto(write_runs(folders, tmp_path / "out").as_uri())
    rows = page.get_by_role("region", name="The runs").locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("checkbox").last.uncheck()
    expect(rows).to_have_count(1)


def test_a_table_that_is_saved_as_csv_has_no_formula(page: Page, tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://evil.example","prize")'
    folder = written(tmp_path / "mine", generations=1)
    leader = {"optimizer": formula, "lr": 0.5}
    (folder / "history.jsonl").write_text(json.dumps({**line(1), "leader": leader}) + "\n")
    page.goto(write_run(folder).as_uri())
    section = page.get_by_role("region", name="Who led").last
    expect(section).to_contain_text(formula)
    with page.expect_download() as saved:
        section.get_by_role("link", name="CSV").click()
    with Path(saved.value.path()).open(encoding="utf-8", newline="") as file:
        _, row = csv.reader(file)
    assert row == ["1", f"'{formula}, lr=0.5", "1.000"]


def test_a_run_of_very_many_generations_can_be_drawn(page: Page, tmp_path: Path) -> None:
    page.goto(write_run(written(tmp_path / "mine", generations=1)).as_uri())
    drawn = page.evaluate("""() => {
      const lines = Array.from({ length: 300_000 }, (_, i) => ({ k: i + 1, share: 50 }));
      return esgdCharts.share({ palette: 'light' }, [{ lines, place: 0, label: 'long' }]).xAxis.max;
    }""")
    assert drawn == 300_000
