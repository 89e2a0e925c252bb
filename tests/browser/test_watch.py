"""`esgd watch` in a real browser: the numbers of runs while they are written, whatever happens to them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page, expect

from esgd.watch import Runs, ServerAddress, open_server
from tests.unit.odd_files import a_file_without_end, a_link_to_a_device, a_pipe, put
from tests.unit.watch.histories import line, write_run

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOSTILE = "<img src=x onerror=alert(1)>..%2f.."


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("esgd.watch.runs.EVERY", 0.2)
    with open_server(Runs([tmp_path]), ServerAddress.at("127.0.0.1", 0)) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server.address.url
        server.shutdown()


def add(folder: Path, text: str) -> None:
    with (folder / "history.jsonl").open("a") as file:
        file.write(text)


def test_the_page_shows_a_run_and_what_is_added_to_it(page: Page, url: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", generations=2)
    page.goto(url)
    table = page.get_by_role("region", name="The runs")
    expect(table).to_contain_text("2 of 5 · running")
    expect(table).to_contain_text("held 2 of 2")
    for name in ("fitness", "points", "share", "tree", "diversity", "founders", "refused", "time"):
        expect(page.locator(f"#view-{name} canvas")).to_be_visible()
    add(folder, json.dumps(line(3, best=0.0625)) + "\n")
    expect(table).to_contain_text("3 of 5")
    expect(table).to_contain_text("0.0625")
    expect(page.locator("#view-fitness .chart")).to_have_attribute("aria-label", "Fitness. mine: from 1 to 0.0625.")


def test_a_population_that_shrinks_is_shown_shrinking(page: Page, url: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", generations=1)
    page.goto(url)
    expect(page.locator("#view-fitness canvas")).to_be_visible()
    expect(page.locator("#view-population")).to_be_hidden()
    fewer = line(2)
    fewer["policies"] = fewer["policies"][:1]
    add(folder, json.dumps(fewer) + "\n")
    expect(page.locator("#view-population .chart")).to_have_attribute("aria-label", re.compile("mine: from [2-9] to 1"))


def test_a_killed_run_and_its_half_written_line_do_no_harm(page: Page, url: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", generations=2)
    add(folder, json.dumps(line(3))[:60])
    page.goto(url)
    table = page.get_by_role("region", name="The runs")
    expect(table).to_contain_text("2 of 5")
    aside = folder / "aside"  # as a resumed run mends its history
    aside.write_text("".join(json.dumps(line(k)) + "\n" for k in (1, 2, 3, 4)))
    aside.replace(folder / "history.jsonl")
    expect(table).to_contain_text("4 of 5")


def test_a_damaged_line_is_named(page: Page, url: str, tmp_path: Path) -> None:
    add(write_run(tmp_path / "mine", generations=2), "no JSON\n" + json.dumps(line(4)) + "\n")
    page.goto(url)
    expect(page.get_by_role("status")).to_contain_text("Line 3 of mine/history.jsonl is no record of its generation")
    expect(page.get_by_role("region", name="The runs")).to_contain_text("2 of 5")


@pytest.mark.parametrize("newest", ["", "no JSON\n"], ids=["in its first generation", "damaged"])
def test_a_run_without_a_generation_hides_no_other(page: Page, url: str, tmp_path: Path, newest: str) -> None:
    write_run(tmp_path / "mine", generations=2)
    add(write_run(tmp_path / "newest", generations=0), newest)
    page.goto(url)
    expect(page.get_by_role("list", name="Runs").get_by_role("listitem")).to_have_count(2)
    expect(page.locator("#view-fitness canvas")).to_be_visible()
    expect(page.locator("#view-tree h3")).to_have_text("How the fittest came to be: mine")


def test_an_empty_folder_waits_for_a_run(page: Page, url: str, tmp_path: Path) -> None:
    page.goto(url)
    expect(page.get_by_role("status")).to_contain_text("No run here yet")
    write_run(tmp_path / "late", generations=1)
    expect(page.get_by_role("region", name="The runs")).to_contain_text("late")


def test_a_name_with_markup_is_text(page: Page, url: str, tmp_path: Path) -> None:
    write_run(tmp_path / HOSTILE, generations=2)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(url)
    expect(page.get_by_role("region", name="The runs")).to_contain_text(HOSTILE)
    page.locator("#view-fitness canvas").hover(position={"x": 300, "y": 150})
    expect(page.locator("#views img")).to_have_count(0)


def test_fifty_runs_are_listed_filtered_and_compared_by_keyboard(page: Page, url: str, tmp_path: Path) -> None:
    for number in range(50):
        write_run(tmp_path / f"sweep/run-{number:02}", generations=2, seed=number)
    page.goto(url)
    rows = page.get_by_role("region", name="The runs").locator("tbody tr")
    expect(rows).to_have_count(6)
    expect(page.get_by_role("list", name="Runs").get_by_role("listitem")).to_have_count(50)
    page.get_by_role("searchbox").fill("run-4")
    shown = page.get_by_role("list", name="Runs").get_by_role("checkbox", checked=False)
    expect(shown.last).to_be_visible()
    shown.last.focus()
    page.keyboard.press("Space")
    expect(rows).to_have_count(7)


def test_generations_are_walked_through_with_the_arrow_keys(page: Page, url: str, tmp_path: Path) -> None:
    write_run(tmp_path / "mine", generations=3)
    page.goto(url)
    expect(page.locator("#view-points output")).to_have_text("generation 3 of 3")
    page.get_by_role("slider", name="Generation").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#view-points output")).to_have_text("generation 2 of 3")


def test_a_server_that_ended_is_said_so(browser: Browser, tmp_path: Path) -> None:
    write_run(tmp_path / "mine", generations=2)
    page = browser.new_page()
    with open_server(Runs([tmp_path]), ServerAddress.at("127.0.0.1", 0)) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        page.goto(server.address.url)
        expect(page.get_by_role("region", name="The runs")).to_contain_text("mine")
        server.shutdown()
    page.route("**/api/*", lambda route: route.abort())  # connections that are open would still be answered
    expect(page.get_by_role("status")).to_contain_text("The server does not answer")
    expect(page.get_by_role("region", name="The runs")).to_contain_text("mine")
    page.close()


def test_an_answer_after_a_silence_takes_the_words_back(browser: Browser, url: str, tmp_path: Path) -> None:
    write_run(tmp_path / "mine", generations=5)
    page = browser.new_page()
    page.goto(url)
    expect(page.get_by_role("region", name="The runs")).to_contain_text("finished")
    page.route("**/api/*", lambda route: route.abort())
    expect(page.get_by_role("status")).to_contain_text("The server does not answer")
    page.unroute("**/api/*")
    expect(page.locator(".said")).to_have_text("")
    page.close()


def test_a_run_that_vanishes_leaves_the_list(page: Page, url: str, tmp_path: Path) -> None:
    for name in ("stays/one", "goes/other"):
        write_run(tmp_path / name, generations=2)
    page.goto(url)
    listed = page.get_by_role("list", name="Runs").get_by_role("listitem")
    expect(listed).to_have_count(2)
    shutil.rmtree(tmp_path / "stays")
    expect(listed).to_have_count(0)
    expect(page.get_by_role("region", name="The runs")).to_contain_text("other")


def test_whoever_looks_at_the_end_follows_the_run(page: Page, url: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", generations=3)
    page.goto(url)
    page.get_by_role("slider", name="Generation").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    page.get_by_text("Who led").focus()
    add(folder, json.dumps(line(4)) + "\n")
    expect(page.locator("#view-points output")).to_have_text("generation 4 of 4")
    expect(page.locator(".leaders summary")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(browser: Browser, url: str, tmp_path: Path, scheme: str) -> None:
    write_run(tmp_path / "a-run-with-quite-a-long-name-that-has-no-end", generations=3)
    write_run(tmp_path / "another", generations=3)
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    phone = context.new_page()
    phone.goto(url)
    expect(phone.locator("#view-time canvas")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


def test_bad_runs_are_bad_rows_and_the_others_go_on(page: Page, url: str, tmp_path: Path) -> None:
    good = write_run(tmp_path / "good", generations=2)
    put(write_run(tmp_path / "device", generations=1) / "history.jsonl", a_link_to_a_device)
    put(write_run(tmp_path / "pipe", generations=1) / "history.jsonl", a_pipe)
    put(write_run(tmp_path / "sparse", generations=1) / "history.jsonl", a_file_without_end)
    (write_run(tmp_path / "deep", generations=1) / "history.jsonl").write_text("[" * 100_000 + "\n")
    page.goto(url)
    rows = page.get_by_role("list", name="Runs").get_by_role("listitem")
    expect(rows).to_have_count(5)
    for name, state in {
        "device": "cannot be read",
        "pipe": "cannot be read",
        "sparse": "damaged",
        "deep": "damaged",
    }.items():
        expect(rows.filter(has_text=name)).to_contain_text(f"0 of 5 · {state}")
    expect(page.get_by_role("status")).to_contain_text("pipe/history.jsonl is a link, a folder or a device")
    table = page.get_by_role("region", name="The runs")
    expect(table).to_contain_text("2 of 5")
    add(good, json.dumps(line(3)) + "\n")
    expect(table).to_contain_text("3 of 5")


def test_a_phase_may_have_any_name(page: Page, url: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", generations=1)
    add(folder, json.dumps({**line(2), "seconds": dict.fromkeys(("constructor", "__proto__", "toString"), 1.0)}) + "\n")
    page.goto(url)
    expect(page.get_by_role("region", name="The runs")).to_contain_text("2 of 5")
    expect(page.locator("#view-time canvas")).to_be_visible()
    names = page.evaluate("""() => {
      const chart = echarts.getInstanceByDom(document.querySelector('#view-time .chart'));
      return chart.getOption().series.map((each) => each.name);
    }""")
    assert {"constructor", "toString"} <= set(names)


def test_of_many_faults_a_few_are_told(page: Page, url: str, tmp_path: Path) -> None:
    for number in range(40):
        (write_run(tmp_path / f"bad-{number:02}", generations=1) / "history.jsonl").write_text("no JSON\n")
    page.goto(url)
    said = page.get_by_role("status")
    expect(said).to_contain_text("Line 1 of bad-02/history.jsonl")
    expect(said).to_contain_text("So it is with 37 more.")
    expect(said).not_to_contain_text("bad-03")
