"""The family tree of the fittest: its lines are the births and SGD steps of the history."""

from __future__ import annotations

from typing import Any

from esgd.report.views import ancestry
from esgd.report.views.ancestry import family_tree


def step(id_: str, optimizer: str = "sgd", *, accepted: bool = True) -> dict[str, Any]:
    return {"id": id_, "optimizer": optimizer, "lr": 0.1, "before": 1.0, "after": 0.5, "accepted": accepted}


def birth(id_: str, *parents: str, founder: int = 0) -> dict[str, Any]:
    return {"id": id_, "parents": list(parents), "sigma": 0.0, "founder": founder}


HISTORY = [
    {
        "k": 1,
        "fitness": [0.9, 0.8],
        "births": [birth("0.0.0"), birth("1.1.3", "0.0.0", "0.0.1")],
        "policies": [step("0.0.0"), step("0.0.1", "adam", accepted=False)],
    },
    {
        "k": 2,
        "fitness": [0.5, None],
        "births": [birth("2.1.0", "1.1.3", "0.0.0"), birth("1.1.3", "0.0.0", "0.0.1")],
        "policies": [step("0.0.0", "adam"), step("1.1.3")],
    },
]


def test_ancestors_live_from_their_birth_until_they_breed() -> None:
    spans = {each["id"]: (each["born"], each["until"]) for each in family_tree(HISTORY)["individuals"]}
    assert spans == {"2.1.0": (2, 2), "1.1.3": (1, 2), "0.0.0": (0, 2), "0.0.1": (0, 1)}


def test_the_line_of_fittest_parents_is_marked() -> None:
    assert [each["id"] for each in family_tree(HISTORY)["individuals"] if each["main"]] == ["2.1.0", "1.1.3", "0.0.0"]


def test_those_who_lived_at_the_same_time_have_lanes_of_their_own() -> None:
    lanes = {each["id"]: each["lane"] for each in family_tree(HISTORY)["individuals"]}
    assert lanes["2.1.0"] == lanes["1.1.3"] == 0
    assert lanes["0.0.0"] not in (lanes["1.1.3"], lanes["0.0.1"])


def test_every_sgd_step_of_an_ancestor_is_there() -> None:
    steps = [(each["id"], each["k"], each["optimizer"], each["kept"]) for each in family_tree(HISTORY)["steps"]]
    assert steps == [
        ("0.0.0", 1, "sgd", True),
        ("0.0.1", 1, "adam", False),
        ("0.0.0", 2, "adam", True),
        ("1.1.3", 2, "sgd", True),
    ]


def test_the_tree_names_the_kind_of_an_offspring() -> None:
    first, last = HISTORY
    cooked = {**last, "births": [{**last["births"][0], "kind": "soup"}, *last["births"][1:]]}
    kinds = {each["id"]: each["kind"] for each in family_tree([first, cooked])["individuals"]}
    assert kinds == {"2.1.0": "soup", "1.1.3": "", "0.0.0": "", "0.0.1": ""}


def test_births_join_a_child_with_all_its_parents() -> None:
    tree = family_tree(HISTORY)
    lanes = {each["id"]: each["lane"] for each in tree["individuals"]}
    assert [(each["k"], each["from"], each["to"], each["main"]) for each in tree["births"]] == [
        (2, lanes["1.1.3"], lanes["2.1.0"], True),
        (2, lanes["0.0.0"], lanes["2.1.0"], False),
        (1, lanes["0.0.0"], lanes["1.1.3"], True),
        (1, lanes["0.0.1"], lanes["1.1.3"], False),
    ]


def test_a_thicket_is_cut_but_its_main_line_reaches_the_founders(monkeypatch) -> None:
    monkeypatch.setattr(ancestry, "SHOWN", 2)
    tree = family_tree(HISTORY)
    assert [each["id"] for each in tree["individuals"]] == ["2.1.0", "1.1.3", "0.0.0"]
    assert tree["cut"] == 1


def test_nobody_finite_has_no_tree() -> None:
    line = {"k": 1, "fitness": [None], "births": [birth("0.0.0")], "policies": [step("0.0.0")]}
    assert family_tree([line])["individuals"] == family_tree([])["individuals"] == []
