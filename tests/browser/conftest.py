"""A real Chromium, where there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.chromium import chromium

expect.set_options(timeout=60_000)  # on a busy machine, too


@pytest.fixture(scope="module")  # closed with its file: others in the same process start a Playwright of their own
def browser() -> Iterator[Browser]:
    found = chromium()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1200 × 900; an error in a script fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    opened, faults = context.new_page(), list[str]()
    opened.set_default_timeout(60_000)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    assert faults == []
