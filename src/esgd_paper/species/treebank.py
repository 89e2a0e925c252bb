"""What the Penn Treebank experiment draws from (supplement D)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from esgd.policies import Policy
from esgd.schedules import Constant, Schedule
from esgd.species import Adam, Choice, Integers, Mixture, Sgd, Uniform

Range = tuple[float, float]
STEADY = Constant()
CLIP_NORM = 0.25

SETTINGS: Mapping[str, Any] = {
    "dropout_embedding": Uniform(0.05, 0.2),
    "dropout_hidden": Uniform(0.1, 0.65),
    "dropout_weights": Uniform(0.1, 0.65),
    "dropout_model": Choice(("fraternal", "expectation_linear", "pi", "standard")),
    "batch_size": Integers(20, 64),
}
"""What the table draws beside the optimizer, for SGD and ADAM alike."""

MINI_SETTINGS: Mapping[str, Any] = {
    "dropout_embedding": Uniform(0.05, 0.15),
    "dropout_hidden": Uniform(0.2, 0.4),
    "dropout_weights": Uniform(0.0, 0.4),
    "batch_size": Integers(20, 32),
}
"""What suits 64 units: less dropout than the table has, and no dropout model. On 100,000 words, FD, PM and more hidden
dropout were each worse by 0.6 to 0.8 of perplexity."""


def pool(
    *,
    gamma: float,
    rates: Range = (1, 60),
    adam_rates: Range = (1e-6, 1e-3),
    heat: float = 1.0,
    settings: Mapping[str, Any] = SETTINGS,
    schedule: Schedule = STEADY,
) -> Mixture:
    """SGD and ADAM in equal shares, with the ranges [heat · a_0, heat · b_0]: the table's, unless others are given."""
    sgd_range, adam_range = (Uniform(heat * low, heat * high) for low, high in (rates, adam_rates))
    hyper = {"weight_decay": Uniform(0.0, 1.2e-5)}
    return Mixture(
        species=(
            Sgd(
                lr=sgd_range,
                gamma=gamma,
                momentum_probability=0.8,
                nesterov_probability=0.5,
                momentum=Uniform(0.1, 0.9),
                hyper=hyper,
                settings=settings,
                schedule=schedule,
                clip_norm=CLIP_NORM,
            ),
            Adam(
                lr=adam_range,
                gamma=gamma,
                hyper=hyper,
                settings=settings,
                schedule=schedule,
                clip_norm=CLIP_NORM,
            ),
        )
    )


def mini_pool(schedule: Schedule) -> Mixture:
    """Ranges that suit the miniature, the same in every generation: for the population baseline, and for rules."""
    return pool(gamma=1.0, rates=(4, 20), adam_rates=(1e-3, 4e-3), settings=MINI_SETTINGS, schedule=schedule)


def sgd(rate: float, settings: Mapping[str, Any], *, schedule: Schedule = STEADY, weight_decay: float = 0.0) -> Policy:
    """Plain SGD, as the single baselines use it."""
    hyper = {"lr": rate, "weight_decay": weight_decay}
    return Policy(optimizer="sgd", hyper=hyper, settings=settings, schedule=schedule, clip_norm=CLIP_NORM)
