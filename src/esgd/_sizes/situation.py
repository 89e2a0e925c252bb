"""What the sizes of a generation may depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a size may depend on.

    | field         | meaning                                                                    |
    |---------------|----------------------------------------------------------------------------|
    | `k`           | the generation, from 1                                                     |
    | `generations` | K                                                                          |
    | `population`  | μ_k, the individuals that are trained in it; of μ itself, 0                |
    | `history`     | the history lines of the generations before it, for λ and for a K_s that   |
    |               | is `Timed` or `Spending`; None where a run is planned                      |
    | `last`        | of λ, whether the generation is expected to be the run's last one          |
    """

    k: int
    generations: int
    population: int = 0
    history: Sequence[Mapping[str, Any]] | None = None
    last: bool = False
