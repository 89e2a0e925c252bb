"""Hostile texts in names, notes and recipes, shown in a real browser: by `esgd watch`, and as report.html.

Expected: they are text. No script runs, no dialog opens, nothing is asked of another site, no element comes to be.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign import reference
from tests.campaign.case import Case, Ground, Plan, Unavailable
from tests.campaign.page import served
from tests.campaign.victim import esgd
from tests.chromium import NAMES
from tests.unit.watch.histories import line, write_run

PLAN = Plan(full=60, quick=4, suite=0, limit=180.0)

CANARY = "window.__canary=1"
ELSEWHERE = "http://canary.invalid"
TEXTS: Mapping[str, str] = {
    "script": f"<script>{CANARY}</script>",
    "end of script": f"</script><script>{CANARY}</script><!--<script>",
    "image": f'"><img src=x onerror="{CANARY}">',
    "drawing": f"<svg/onload={CANARY}>",
    "attribute": f'\' onmouseover=\'{CANARY}\' x="" onfocus="{CANARY}" autofocus',
    "address": f"javascript:{CANARY}",
    "link": f'<a href="javascript:{CANARY}" id=planted>x</a>',
    "frame": f'<iframe srcdoc="<script>parent.{CANARY}</script>"></iframe>',
    "picture of another site": f"<img src={ELSEWHERE}/x>",
    "style of another site": f"<link rel=stylesheet href={ELSEWHERE}/x><style>@import '{ELSEWHERE}/y'</style>",
    "refresh": f'<meta http-equiv=refresh content="0;url={ELSEWHERE}"><base href={ELSEWHERE}/>',
    "form": f"<form action={ELSEWHERE}><button autofocus>x</button></form>",
    "template": "{{ 7*191 }}{% for x in y %}${7*191}#{7*191}<%= 7*191 %>",
    "format": "{b}{a|x}{@[1]}%s%n{value}",
    "prototype": "__proto__",
    "constructor": "constructor",
    "controls": "a\x00b\x07c\x1b[31md\x7f\r\n\t",
    "lines": "a\u2028b\u2029c\u0085d",
    "direction": "\u202egnp.exe\u2066\u2069\u200f",
    "half a character": "\ud800x\udfff",
    "long": "A" * 200_000,
    "marks": "Z\u0351\u036b\u0343\u036a" * 400,
    "formula": "$\\href{javascript:x}{y}$ \\input{/etc/passwd} =cmd|' /C calc'!A0",
}

Change = Callable[[dict[str, Any], str], object]
IN_LINES: Mapping[str, Change] = {
    "notes": lambda line, text: line.update(notes=[{"kind": text, "text": text}]),
    "leader": lambda line, text: line.update(leader={"optimizer": text, "lr": 0.01, text: text}),
    "policies": lambda line, text: [each.update(optimizer=text, id=text) for each in line["policies"]],
    "births": lambda line, text: [each.update(id=text, parents=[text]) for each in line["births"]],
    "metric": lambda line, text: line.update(test={text: 0.5}),
    "ledger": lambda line, text: line["ledger"].update({text: 1}),
    "seconds": lambda line, text: line["seconds"].update({text: 1.0}),
    "stage": lambda line, text: line.update(stage=text, guarantee=text, waiver=text),
}
IN_MANIFEST: Mapping[str, Change] = {
    "recipe": lambda manifest, text: manifest["recipe"].update({"species": text, text: text, "mating": {text: text}}),
    "manifest": lambda manifest, text: manifest.update(
        engine_because=text, origin=text, versions={text: text}, data={text: text}, network={"layers": text}, begun=text
    ),
}
NAME = "name"


@dataclass(frozen=True)
class Inject:
    """Put a text in a place of a run, and look at it, in `watch` or in its `report`."""

    text: str
    place: str
    where: str

    def attack(self, ground: Ground) -> str | None:
        text = TEXTS[self.text]
        if self.where == "report":
            run = self._planted(ground, ground.folder, text)
            made = esgd("report", run, cwd=ground.folder)
            if made.code == 3:
                return None  # a line that no run writes is refused, by name
            if made.code != 0:
                return str(made)
            with opened((run / "report.html").as_uri()) as page:
                return page.wrong()
        with served(ground) as server:
            self._planted(ground, ground.folder / "runs", text)
            with opened(f"http://127.0.0.1:{server.port}/") as page:
                return page.wrong() or server.wrong()

    def _planted(self, ground: Ground, home: Path, text: str) -> Path:
        run = home / (_as_name(text) if self.place == NAME else "planted")
        write_run(run, generations=3)
        manifest = json.loads((reference.finished(ground.root) / "manifest.json").read_text())
        lines = [line(k) for k in (1, 2, 3)]
        if self.place in IN_MANIFEST:
            IN_MANIFEST[self.place](manifest, text)
        for each in lines if self.place in IN_LINES else ():
            IN_LINES[self.place](each, text)
        (run / "manifest.json").write_text(json.dumps(manifest))
        (run / "history.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
        return run


def _as_name(text: str) -> str:
    """As near to the text as a file's name can be."""
    return text.replace("/", "\u2215").replace("\0", "").encode(errors="replace")[:200].decode(errors="ignore")


class Page:
    """A page in a browser, and what it did that it should not have done."""

    def __init__(self, page: Any, url: str) -> None:
        self._page, self._faults, own = page, list[str](), url.partition("//")[2].partition("/")[0]
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self._faults.append(f"an error in a script: {error}"))
        page.on("dialog", lambda dialog: self._faults.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda request: self._note(request.url, own))
        page.goto(url)

    def _note(self, url: str, own: str) -> None:
        if not url.startswith(("data:", "blob:", f"http://{own}/", "file:///")):
            self._faults.append(f"it asks for {url}")

    def wrong(self) -> str | None:
        """Look at everything as a reader does; returns what happened that should not have."""
        page = self._page
        page.locator("canvas").first.wait_for()
        for canvas in page.locator("canvas").all():
            if canvas.is_visible():
                box = canvas.bounding_box()
                for part in (0.1, 0.3, 0.5, 0.7, 0.9):
                    canvas.hover(position={"x": box["width"] * part, "y": box["height"] * 0.5}, force=True)
        if page.evaluate("window.__canary") is not None:
            self._faults.append("a script ran")
        planted = "iframe, #planted, form, base, a[href^='javascript:'], img[src='x'], link[href*='canary']"
        if count := page.locator(planted).count():
            self._faults.append(f"{count} elements were planted")
        return "; ".join(self._faults) or None


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """A page in a browser of its own."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Unavailable("playwright is not installed") from None
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise Unavailable("no browser is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        try:
            yield Page(browser.new_page(), url)
        finally:
            browser.close()


def cases(seed: int) -> Iterator[Case]:
    """Every text in every place, mixed."""
    places = (NAME, *IN_LINES, *IN_MANIFEST)
    found = [Inject(text, place, where) for text in TEXTS for place in places for where in ("watch", "report")]
    random.Random(seed).shuffle(found)
    yield from found
