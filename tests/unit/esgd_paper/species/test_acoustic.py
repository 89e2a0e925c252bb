"""What the speech experiments draw from, and what is handed down."""

from __future__ import annotations

import numpy as np
import pytest

from esgd.policies import Policy
from esgd_paper.species.acoustic import HandedDown, competing
from tests.small import ask

HANDED_DOWN = HandedDown(
    species=competing((0.1, 1.5), (3e-4, 4e-3), gamma=0.7),
    ranges={"sgd": (0.1 / 0.7, 1.5 / 0.7), "adam": (3e-4 / 0.7, 4e-3 / 0.7)},
)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.9, 0.7])
def test_the_first_generation_has_the_range_that_was_measured(gamma: float) -> None:
    """The tables anneal by γ^k from k = 1; the measured ranges are those of generation 1."""
    pools = competing((0.1, 1.5), (3e-4, 4e-3), gamma=gamma).species
    for pool, (low, high) in zip(pools, ((0.1, 1.5), (3e-4, 4e-3)), strict=True):
        first = [pool(ask(1, j)).hyper["lr"] for j in range(500)]
        assert low <= min(first) < 1.2 * low + 0.01 * high
        assert 0.98 * high < max(first) <= high * (1 + 1e-12)
        assert [pool(ask(3, j)).annealing for j in range(2)] == pytest.approx([gamma**3] * 2)


@pytest.mark.slow
def test_what_is_handed_down_stays_in_the_range_of_its_own_optimizer() -> None:
    species = HANDED_DOWN
    for optimizer, high in (("sgd", 1.5), ("adam", 4e-3)):
        top = Policy(optimizer=optimizer, hyper={"lr": high, "weight_decay": 0.5}, annealing=0.7)
        drawn = [species(ask(2, j, inherited=top)) for j in range(300)]
        kept = [policy for policy in drawn if "weight_decay" in policy.hyper]
        rates = [policy.hyper["lr"] / 0.7 for policy in kept]
        assert len(kept) > 150
        assert max(rates) == pytest.approx(high)
        assert min(rates) == pytest.approx(high * np.exp(-0.4), rel=0.05)
        assert np.mean(np.isclose(rates, high)) == pytest.approx(0.5, abs=0.1)


def test_without_an_ancestor_everything_is_drawn_afresh() -> None:
    species = HANDED_DOWN
    assert [species(ask(1, j)) for j in range(20)] == [species.species(ask(1, j)) for j in range(20)]
