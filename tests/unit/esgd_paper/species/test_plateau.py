"""Plateau: the learning rate of a single baseline drops after epochs that were worse."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from esgd.errors import RecipeError
from esgd.policies import Policy
from esgd.protocols import Fared
from esgd_paper.species.plateau import Plateau
from tests.small import ask

FIXED = Policy(optimizer="sgd", hyper={"lr": 8.0})
START = 9.0


def kept(*after: float) -> list[Fared]:
    """Epochs without back-off: each begins where the last one ended."""
    before = (START, *after)
    return [
        Fared(k=k, policy=FIXED, before=before[k - 1], after=value, accepted=True)
        for k, value in enumerate(after, start=1)
    ]


def backed_off(*reached: float) -> list[Fared]:
    """Epochs with back-off: what is worse ends where it began, and was not accepted."""
    past, fitness = list[Fared](), START
    for k, value in enumerate(reached, start=1):
        accepted = value <= fitness
        after = value if accepted else fitness
        past.append(Fared(k=k, policy=FIXED, before=fitness, after=after, accepted=accepted))
        fitness = after
    return past


def rate(past: list[Fared], **rule: Any) -> float:
    policy = Plateau(policy=FIXED, **rule)(ask(past=past))
    assert policy.hyper["lr"] / policy.annealing == 8.0
    return float(policy.hyper["lr"])


@pytest.mark.parametrize(
    ("patience", "after", "lr"),
    [
        (0, (), 8.0),
        (0, (3.0,), 8.0),
        (0, (3.0, 2.0, 1.0), 8.0),
        (0, (3.0, 4.0, 2.0), 4.0),
        (0, (inf, 3.0), 4.0),
        (0, (nan, 3.0), 4.0),
        (2, (3.0, 4.0, 4.0), 8.0),
        (2, (3.0, 4.0, 4.0, 4.0), 4.0),
        (2, (3.0, 4.0, 4.0, 2.0, 4.0, 4.0), 8.0),
        (2, (3.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0), 2.0),
    ],
)
def test_the_rate_drops_after_more_than_so_many_epochs_that_were_worse(
    patience: int, after: tuple[float, ...], lr: float
) -> None:
    assert rate(kept(*after), patience=patience) == lr


@pytest.mark.parametrize(
    ("reached", "lr"),
    [((3.0, 4.0), 4.0), ((3.0, 4.0, 3.5), 2.0), ((3.0, 4.0, 2.0, 1.0), 4.0), ((inf, inf), 2.0), ((nan,), 4.0)],
)
def test_every_back_off_halves_the_rate(reached: tuple[float, ...], lr: float) -> None:
    assert rate(backed_off(*reached)) == lr


@pytest.mark.parametrize("patience", [0, 2])
@pytest.mark.parametrize("past", [kept, backed_off])
def test_a_tie_is_not_worse(past: Any, patience: int) -> None:
    assert rate(past(3.0, 3.0, 3.0, 3.0, 3.0), patience=patience) == 8.0


def test_the_first_epoch_is_compared_with_the_start() -> None:
    assert rate(kept(START + 1)) == rate(backed_off(START + 1)) == 4.0


@pytest.mark.parametrize(
    ("rule", "words"),
    [({"patience": -1}, "patience=-1 is below 0"), ({"factor": 2}, r"factor=2 is not in \(0, 1\]")],
)
def test_what_cannot_be_is_refused(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        Plateau(policy=FIXED, **rule)
