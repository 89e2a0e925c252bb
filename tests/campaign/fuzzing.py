"""Nonsense and malice where an input is expected: recipes, --set, TOML, engines, checkpoints, safetensors.

Expected: it is accepted, or refused in our words; no traceback, no hang, no code that it names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.campaign import fuzz
from tests.campaign.case import Case, Ground, Plan

PLAN = Plan(full=400, quick=10, suite=1, limit=600.0, each=50)

KINDS: Mapping[str, tuple[Callable[[int, int], Iterator[Any]], Callable[[Any], str | None], int]] = {
    "recipes": (fuzz.recipes, fuzz.judge_recipe, 90),
    "manifests": (fuzz.recipes, fuzz.judge_manifest, 30),
    "sets": (fuzz.sets, fuzz.judge_sets, 60),
    "toml": (fuzz.toml_texts, fuzz.judge_toml, 60),
    "engines": (fuzz.engine_words, fuzz.judge_engine, 100),
    "states": (fuzz.state_words, fuzz.judge_state, 30),
    "safetensors": (fuzz.safetensors_headers, fuzz.judge_safetensors, 30),
}
"""Where inputs come from, how answers are judged, and how many cases there are."""


@dataclass(frozen=True)
class Inputs:
    """Some inputs of a kind, drawn from a seed."""

    kind: str
    seed: int

    def attack(self, ground: Ground) -> str | None:
        draw, judge, _ = KINDS[self.kind]
        for number, given in enumerate(draw(self.seed, PLAN.each)):
            if wrong := judge(given):
                return f"input {number}: {wrong}\n{given!r:.2000}"
        return None


def cases(seed: int) -> Iterator[Case]:
    """Inputs of all kinds, mixed."""
    drawn = random.Random(seed)
    found = [Inputs(kind, drawn.randrange(1 << 32)) for kind, (_, _, count) in KINDS.items() for _ in range(count)]
    drawn.shuffle(found)
    yield from found
