"""An anchor: a gentle pull in the SGD step towards where the individuals of a generation began. Not in the paper."""

from __future__ import annotations

from dataclasses import dataclass

from esgd._validation import check_field

_STRENGTH = "It is the part of the way to the anchor that one pull goes. Use 0.01, as PAPA does."
_EVERY = "It is the number of SGD steps from one pull to the next. Use 10, as PAPA does."
_AFTER = "So many generations have none. Use 1: the individuals of a random start have nothing in common."


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """Every `every` steps θ ← θ + strength (anchor − θ), from generation `after` + 1 on.

    The anchor of a generation is the mean of where its individuals begin to train, but for those that have diverged,
    and stays fixed in it: so workers need not wait for one another. In PAPA (Jolicoeur-Martineau et al., 2023) it is
    the mean at that moment.
    """

    strength: float = 0.01
    every: int = 10
    after: int = 1

    def __post_init__(self) -> None:
        check_field(self, "strength", above=0, at_most=1, meaning=_STRENGTH)
        check_field(self, "every", at_least=1, whole=True, meaning=_EVERY)
        check_field(self, "after", at_least=0, whole=True, meaning=_AFTER)
