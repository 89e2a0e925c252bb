"""The family tree of the fittest individual: its mates, and which optimizers trained its ancestors."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from esgd.report.arms import History, finite
from esgd.run.line import born

SHOWN = 240  # individuals; a tree of more is a thicket


@dataclass(frozen=True)
class Ancestor:
    """An individual and the generations in which it mattered: from its birth until it bred, or until the end.

    | field     | meaning                                                              |
    |-----------|----------------------------------------------------------------------|
    | `born`    | the generation it was born in; 0 for a founder                       |
    | `until`   | the last generation in which it was trained as an ancestor           |
    | `parents` | their ids, the fittest first                                         |
    """

    id: str
    born: int
    until: int
    parents: tuple[str, ...]


def family_tree(history: History) -> dict[str, Any]:
    """Ancestors in lanes, their SGD steps and the births that join them, as plain JSON.

    A lane is a row of the picture; where it is free, a child continues the lane of its fittest parent. `main` marks
    the line of descent from a founder, through fittest mates, to the fittest individual.
    """
    births = {birth["id"]: birth for line in history for birth in line.get("births", ())}
    fittest = _fittest(history)
    descent = set(_descent(fittest, births))
    ancestors, cut = _ancestors(fittest, history[-1]["k"] if history else 0, births, descent)
    lanes = _lanes(sorted(ancestors, key=lambda each: each.id not in descent))
    known = {each.id: each for each in ancestors}
    return {
        "individuals": [
            {
                "id": a.id,
                "born": a.born,
                "kind": str(births.get(a.id, {}).get("kind", "")),
                "until": a.until,
                "lane": lanes[a.id],
                "main": a.id in descent,
            }
            for a in ancestors
        ],
        "births": [
            {"k": a.born, "from": lanes[parent], "to": lanes[a.id], "main": i == 0 and a.id in descent}
            for a in ancestors
            for i, parent in enumerate(dict.fromkeys(a.parents))
            if parent in lanes
        ],
        "steps": [
            {
                "id": each["id"],
                "k": line["k"],
                "lane": lanes[each["id"]],
                "optimizer": each["optimizer"],
                "lr": finite(each.get("lr")),
                "fitness": finite(each.get("after")),
                "kept": bool(each.get("accepted")),
            }
            for line in history
            for each in line.get("policies", ())
            if each["id"] in known and line["k"] <= known[each["id"]].until
        ],
        "cut": cut,
    }


def _ancestors(
    fittest: str, k: int, births: Mapping[str, Mapping[str, Any]], descent: Set[str]
) -> tuple[list[Ancestor], int]:
    """Youngest first, and how many branches are cut: beyond SHOWN only the line of descent is followed."""
    found, cut = list[Ancestor](), 0
    until = {fittest: k} if fittest else {}
    waiting = [(_age(id_), id_) for id_ in until]
    while waiting:
        _, id_ = heappop(waiting)
        if len(found) >= SHOWN and id_ not in descent:
            cut += 1
            continue
        parents = tuple(births.get(id_, {}).get("parents", ()))
        found.append(Ancestor(id_, born(id_)[0], until[id_], parents))
        for parent in dict.fromkeys(parents):
            if parent not in until:
                heappush(waiting, (_age(parent), parent))
            until[parent] = max(until.get(parent, 0), born(id_)[0])
    return found, cut


def _descent(id_: str, births: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """An individual, its fittest parent, that one's fittest parent, and so on."""
    while id_ in births:
        yield id_
        id_ = next(iter(births[id_]["parents"]), "")
    if id_:
        yield id_


def _fittest(history: History) -> str:
    """The id of θ_1:μ after the last generation; nothing where no fitness is finite, or births are not recorded."""
    last: Mapping[str, Any] = history[-1] if history else {}
    ranked = sorted((f, i) for i, f in enumerate(map(finite, last.get("fitness", ()))) if f is not None)
    return last["births"][ranked[0][1]]["id"] if ranked and last.get("births") else ""


def _age(id_: str) -> tuple[int, ...]:
    """A key that sorts the youngest first; parents are always older than their children."""
    return tuple(-part for part in born(id_))


def _lanes(ancestors: list[Ancestor]) -> dict[str, int]:
    """A lane for each, in this order: that of its heir where it is free, or else the first that is."""
    taken: list[list[tuple[int, int]]] = []
    lanes: dict[str, int] = {}
    heirs = {each.parents[0]: each.id for each in reversed(ancestors) if each.parents}
    for each in ancestors:
        span = (each.born, each.until)
        heir = lanes.get(heirs.get(each.id, ""))
        wished = [*([] if heir is None else [heir]), *range(len(taken))]
        lane = next((number for number in wished if _free(taken[number], span)), len(taken))
        if lane == len(taken):
            taken.append([])
        insort(taken[lane], span)
        lanes[each.id] = lane
    return lanes


def _free(spans: list[tuple[int, int]], span: tuple[int, int]) -> bool:
    """Whether a span only touches those of a lane, which are in order: a parent ends where its child begins.

    >>> _free([(0, 3), (5, 8)], (3, 5)), _free([(0, 3), (5, 8)], (2, 4))
    (True, False)
    """
    ended = bisect_right(spans, span[0], key=lambda each: each[1])
    begun = bisect_left(spans, span[1], key=lambda each: each[0])
    return begun <= ended
