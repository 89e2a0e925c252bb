"""Patient: the learning rate drops inside a generation whenever a drawn patience has run out."""

from __future__ import annotations

from typing import Any

import pytest

from esgd.errors import RecipeError
from esgd.policies import Policy
from esgd.schedules import Moment
from esgd.species import Fixed
from esgd_paper.species.patient import Drops, Patient
from esgd_paper.species.treebank import pool
from tests.small import ask


@pytest.mark.slow
def test_patience_divides_the_rate_by_three_again_and_again() -> None:
    assert [Drops(every=3)(Moment(epoch=epoch, epochs=9)) for epoch in (0, 2.9, 3, 5, 6)] == pytest.approx(
        [1, 1, 1 / 3, 1 / 3, 1 / 9]
    )
    species = Patient(species=pool(gamma=0.33))
    policies = [species(ask(1, j)) for j in range(300)]
    assert {policy.settings["patience"] for policy in policies} == set(range(3, 11))
    assert all(policy.schedule == Drops(every=policy.settings["patience"]) for policy in policies)
    plain = pool(gamma=0.33)
    assert all(policy.hyper == plain(ask(1, j)).hyper for j, policy in enumerate(policies))
    assert Policy.from_record(policies[0].record(), allow=["esgd_paper"]) == policies[0]


FIXED = Fixed(policy=Policy(optimizer="sgd", hyper={"lr": 8.0}))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Drops(every=0), "every=0 is below 1"),
        (lambda: Drops(every=2, factor=0), r"factor=0 is not in \(0, 1\]"),
        (lambda: Patient(species=FIXED, factor=2), r"factor=2 is not in \(0, 1\]"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        make()
