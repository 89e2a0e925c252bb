"""Every built-in species conforms, and every sentence of `check_species` is earned."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from esgd import species
from esgd.policies import Policy
from esgd.protocols import Draw
from esgd.schedules import Cosine, CosineRun, Linear, Steps, Tail
from esgd.species import (
    Adam,
    Choice,
    Fixed,
    Inherited,
    Integers,
    Ladder,
    LogUniform,
    Mixture,
    Once,
    Optimizer,
    Sgd,
    Uniform,
)
from esgd.testing import check_species

SGD, ADAM = Sgd(lr=(0.01, 0.5)), Adam(lr=LogUniform(1e-4, 1e-2), gamma=0.9)
SPECIES = [
    SGD,
    Sgd(lr=0.1, momentum=0.9, hyper={"weight_decay": LogUniform(1e-5, 1e-3)}, schedule=Cosine(), clip_norm=1.0),
    Sgd(lr=0.0, gamma=1.0, schedule=Steps(after=(2, 5))),
    ADAM,
    Adam(
        lr=0.01, hyper={"amsgrad": Choice((True, False)), "betas": Choice(((0.9, 0.99), (0.8, 0.9)))}, schedule=Tail()
    ),
    Optimizer(name="adamw", lr="auto"),
    Adam(lr=0.01, settings={"batch_size": Integers(8, 64), "dropout": Uniform(0.0, 0.5)}, schedule=Linear()),
    Optimizer(name="rmsprop", lr=(1e-4, 1e-2), hyper={"alpha": Uniform(0.9, 0.99)}, schedule=CosineRun()),
    Optimizer(name="lbfgs", lr=0.5, hyper={"line_search_fn": Choice(("strong_wolfe", None))}),
    Optimizer(name="adamw", lr=1e-3),
    Mixture(species=(SGD, ADAM), weights=(3.0, 1.0)),
    Once(species=Mixture(species=(SGD, ADAM))),
    Fixed(policy=Policy(optimizer="adagrad", hyper={"lr": 0.05}), gamma=0.8),
    Ladder(species=ADAM, factors=(1, 4, 0.25)),
    Inherited(species=Mixture(species=(SGD, ADAM)), clip=(1e-4, 1.0)),
]


def test_no_species_is_left_out() -> None:
    distributions = {"AutoRate", "Choice", "Integers", "LogUniform", "Uniform"}
    assert {type(each).__name__ for each in SPECIES} == set(species.__all__) - distributions


@pytest.mark.parametrize("each", SPECIES, ids=lambda each: type(each).__name__)
def test_built_in_species_conform(each: Any) -> None:
    check_species(each)


def a_third_party(draw: Draw) -> Policy:
    rate = 0.1 * float(torch.rand((), generator=draw.seeds("my rate")))
    return Policy(optimizer="sgd", hyper={"lr": rate})


def test_a_plain_function_is_a_species() -> None:
    check_species(a_third_party)


def sgd(**hyper: Any) -> Policy:
    return Policy(optimizer="sgd", hyper={"lr": 0.1, **hyper})


@dataclass
class Counts:
    numbers: Any = field(default_factory=count)

    def __call__(self, draw: Draw) -> Policy:
        return sgd(lr=0.1 + 0.01 * next(self.numbers))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Counts(), "asked in another order"),
        (lambda draw: sgd(lr=random.random()), "moved the global random generator of random"),
        (lambda draw: sgd(lr=float(np.random.rand())), "moved the global random generator of NumPy"),  # noqa: NPY002
        (lambda draw: sgd(lr=float(torch.rand(()))), "moved the global random generator of torch"),
        (lambda draw: {"lr": 0.1}, "instead of an esgd.Policy"),
        (lambda draw: sgd(lr=float("nan")), "no policy can be drawn: lr=nan"),
        (lambda draw: sgd(lr=0.1 * (2 - draw.k)), "in generation 3 no policy can be drawn: lr=-0.1"),
        (lambda draw: sgd(lr=torch.tensor(0.1)), "is not a number"),
        (lambda draw: Policy(optimizer="adam", hyper={}), "is None"),
        (lambda draw: Policy(optimizer="adam", hyper={"lr": 0.1}, annealing=0.0), "the annealing of"),
        (lambda draw: Policy(optimizer="adam", hyper={"lr": 0.1}, schedule=lambda moment: -1.0), "It multiplies lr"),
        (lambda draw: Policy(optimizer="adam", hyper={"lr": 0.1}, schedule=lambda moment: 1.0), "cannot be written"),
        (lambda draw: Policy(optimizer="adam", hyper={"lr": 0.1, "betas": [0.9, 0.99]}), "comes back from its history"),
        (lambda draw: sgd(weigth_decay=0.1), "nothing can be trained with"),
        (lambda draw: Policy(optimizer="sdg", hyper={"lr": 0.1}), "Did you mean 'sgd'?"),
    ],
)
def test_a_broken_species_is_caught(broken: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_species(broken)
