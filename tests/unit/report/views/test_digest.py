"""What the views get is what the history says."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import files

from esgd import evolve
from esgd.report.views import embed, run_digest
from tests.funnel import FUNNEL
from tests.small import classify


def test_a_digest_has_the_numbers_of_the_history(histories) -> None:
    history = histories["esgd"][0]
    digest = run_digest("mine", {"seed": 0, "recipe": {"population": 4, "generations": 3}}, history)
    assert [line["best"] for line in digest["lines"]] == [line["best"] for line in history]
    assert [line["diversity"] for line in digest["lines"]] == [line["diversity"] for line in history]
    assert [len(line["points"]) for line in digest["lines"]] == [4, 4, 4]
    id_, optimizer, rate, fitness, kept = digest["lines"][1]["points"][2]
    policy = history[1]["policies"][2]
    assert (id_, optimizer, kept) == (policy["id"], policy["optimizer"], policy["accepted"])
    assert abs(rate - policy["lr"]) <= 1e-5 * rate
    assert abs(fitness - policy["after"]) <= 1e-5 * abs(fitness)


def test_the_sizes_of_a_funnel_are_shown() -> None:
    history = [generation.record() for generation in evolve(classify(), FUNNEL, seed=3, engine="loop")]
    digest = run_digest("mine", {"seed": 3, "recipe": FUNNEL.to_dict()}, history)
    assert digest["population"] == 6
    assert [line["trained"] for line in digest["lines"]] == [6, 4, 3, 2]


def test_a_planned_fine_tuning_is_one_more_generation(histories) -> None:
    recipe = {"generations": 3, "fine_tuning": {"kind": "fine_tuning"}}
    assert run_digest("mine", {"recipe": recipe}, histories["esgd"][0])["generations"] == 4


def test_a_line_of_an_older_version_has_nulls(make_line) -> None:
    line = make_line(1, [0.5, None])
    line.pop("diversity", None)
    (shown,) = run_digest("old", {}, [line])["lines"]
    assert shown["diversity"] is None
    json.dumps(shown, allow_nan=False)


def test_data_cannot_end_the_script_element() -> None:
    text = "</script><script>alert(1)</script><!--"
    data = embed({"name": text}).data
    assert "<" not in data
    assert json.loads(data) == {"name": text}


def test_the_charting_library_is_the_publishers_file() -> None:
    """As in the npm package echarts 6.1.0, dist/echarts.common.min.js."""
    library = files("esgd.report.views").joinpath("echarts/echarts.common.min.js").read_bytes()
    assert sha256(library).hexdigest() == "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"
