"""One page that needs nothing but itself, shows the numbers of the data, and executes nothing."""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import unquote

import pytest

from esgd.errors import MissingExtraError
from esgd.report import as_csv, as_latex, as_markdown, comparison_page, leaders, ledger_table, run_page, table_1

VOID = {"meta", "br", "link", "img", "input", "hr"}
HOSTILE = "<script>alert('x')</script>\"onload=\"<img src=x>"


class Outline(HTMLParser):
    """Elements, attributes and text of a page; complains about what is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(filter(None, self.words)))

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(comparison, histories):
    return comparison_page(comparison, histories, manifest={"versions": {"torch": "2.13.0"}, "python": "3.11.2"})


@pytest.mark.slow
def test_the_page_shows_every_cell_of_its_tables(page, comparison, histories):
    text = Outline(page).text
    for table in (table_1(comparison), ledger_table(comparison), leaders(histories["esgd"][0])):
        for row in table.rows:
            for cell in row:
                assert cell in text


def test_the_page_states_the_guarantee_the_notes_and_the_versions(page, histories):
    text = Outline(page).text
    assert "held in 6 of 6 generations" in text
    said = [(seed, line["k"], n["text"]) for seed, h in histories["esgd"].items() for line in h for n in line["notes"]]
    assert said, "a run this short has at least the note that its generations are short"
    seed, k, words = said[0]
    assert words in text
    assert f"seed {seed}, generation {k}" in text
    assert "torch 2.13.0" in text
    assert "60 points to train on, with noisy labels." in text


def test_a_page_loads_nothing(page):
    for tag, attributes in Outline(page).tags:
        for name, value in attributes.items():
            if not name.startswith("xmlns"):
                assert "://" not in (value or ""), (tag, name, value)
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith(("#", "data:text/plain"))
            assert not name.startswith("on")
    assert "url(http" not in page
    assert "@import" not in page


def test_a_page_runs_its_own_scripts_and_no_others(page):
    (policy,) = [a["content"] for a in Outline(page).named("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    allowed = dict(rule.split(" ", 1) for rule in policy.split("; "))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert allowed["script-src"].split() == [f"'sha256-{each}'" for each in hashes]
    assert allowed["default-src"] == allowed["connect-src"] == "'none'"


def test_names_with_markup_are_shown_not_executed(comparison, histories, make_line):
    hostile = {**comparison, "task": HOSTILE, "about": HOSTILE, "recipe": {"population": 4, HOSTILE: HOSTILE}}
    history = [make_line(1, [0.5], test={HOSTILE: 1.0}, notes=[{"kind": "x", "text": HOSTILE}])]
    history[0]["leader"] = {"optimizer": HOSTILE, "lr": 0.1}
    ordinary = len(Outline(comparison_page(comparison, histories)).named("script"))
    for page in (comparison_page(hostile, histories), run_page(HOSTILE, {"engine": HOSTILE}, history)):
        outline = Outline(page)
        assert "img" not in {tag for tag, _ in outline.tags}
        assert len(outline.named("script")) == ordinary
        assert HOSTILE in outline.text
        assert json.loads(re.search(r'<script type="application/json" id="runs">(.*?)</script>', page, re.DOTALL)[1])


def test_tables_can_be_saved_in_three_forms(page, comparison):
    copies = {a["download"]: unquote(a["href"].partition(",")[2]) for a in Outline(page).named("a")}
    ledger = ledger_table(comparison)
    assert copies["ledger.csv"] == as_csv(ledger)
    assert copies["ledger.md"] == as_markdown(ledger)
    assert copies["ledger.tex"] == as_latex(ledger)


def test_the_page_is_the_same_twice(comparison, histories):
    assert comparison_page(comparison, histories) == comparison_page(comparison, histories)


def test_the_page_can_be_read_without_seeing_it(page):
    outline = Outline(page)
    assert outline.named("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert len(outline.named("caption")) == len(outline.named("table"))
    assert all(attributes.get("scope") in ("col", "row") for attributes in outline.named("th"))
    figures = [attributes for attributes in outline.named("div") if attributes.get("role") == "img"]
    assert len(figures) == len(outline.named("figure")) == 2
    assert all(attributes["aria-label"] for attributes in figures)


def test_no_id_occurs_twice(page):
    ids = [attributes["id"] for _, attributes in Outline(page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_alternative_text_tells_where_the_curves_end(page, histories):
    (label,) = [a["aria-label"] for a in Outline(page).named("div") if "Best fitness" in (a.get("aria-label") or "")]
    ends = [line["best"] for line in (h[-1] for h in histories["single"].values())]
    assert f"to {sum(ends) / len(ends):.4f}" in label


def test_the_paper_s_symbols_have_real_subscripts(page):
    assert "θ<sub>1:μ</sub>" in page
    assert "K<sub>s</sub>" in page


def test_a_run_shows_its_fitness_metrics_costs_and_recipe(histories, comparison):
    history = histories["esgd"][1]
    text = Outline(run_page("mine", {"seed": 1, "recipe": comparison["recipe"]}, history)).text
    assert f"has a fitness of {history[-1]['best']:.4f}" in text
    assert f"loss {history[-1]['test']['loss']:.4f}" in text
    assert "held in 3 of 3 generations" in text
    assert f"SGD backward {sum(line['ledger']['sgd_backward'] for line in history):,}" in text
    assert "μ population 4" in text
    assert "seed 1" in text


def test_unusual_comparisons_have_a_page_too(make_comparison, make_line):
    diverged = {"single": {0: [make_line(1, [None])]}, "esgd": {0: [make_line(1, [None, None], leader=None)]}}
    page = comparison_page(make_comparison(single=[(None, None)], esgd=[(None, None)]), diverged)
    assert "diverged on every seed" in Outline(page).text
    without_histories = comparison_page(make_comparison(single=[(0.5, 0.5)], esgd=[(0.4, 0.4)]), {})
    assert "lower than the single baseline on 1 of 1 seeds" in Outline(without_histories).text


def test_without_jinja2_the_error_names_the_extra(comparison, histories, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"Writing the page needs jinja2.*pip install 'esgd\[report\]'"):
        comparison_page(comparison, histories)
