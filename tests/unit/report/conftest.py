"""Real histories of a tiny task for the usual case, hand-made lines for the unusual ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import esgd
from esgd.operators import Never
from esgd.species import Fixed, Once

SEEDS = (0, 1)
GENERATIONS = 3


@pytest.fixture(scope="session")
def histories() -> dict[str, dict[int, list[dict[str, Any]]]]:
    """The four arms, two seeds, three generations: four linear classifiers on 60 points."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator)
    y = (x[:, 0] + 0.5 * torch.randn(120, generator=generator) > 0).long()
    task = esgd.Supervised(
        lambda: nn.Linear(4, 2),
        F.cross_entropy,
        train=(x[:60], y[:60]),
        fitness=(x[60:90], y[60:90]),
        test=(x[90:], y[90:]),
        metrics={"error": lambda output, target: (output.argmax(1) != target).float().mean()},
    )
    common: dict[str, Any] = dict(population=4, offspring=8, generations=GENERATIONS, sgd_epochs=1)
    alone = dict(population=1, mates=1, elites=1)
    policy = esgd.Policy(optimizer="sgd", hyper={"lr": 0.1})
    recipes = {
        "single": esgd.Recipe(**common | alone, evolution_steps=0, backoff=Never(), species=Fixed(policy=policy)),
        "population": esgd.Recipe(
            **common, evolution_steps=0, backoff=Never(), species=Once(species=esgd.Recipe().species)
        ),
        "no_evolution": esgd.Recipe(**common, evolution_steps=0),
        "esgd": esgd.Recipe(**common),
    }
    return {
        arm: {seed: [g.record() | {"notes": g.state.history[-1]["notes"]} for g in esgd.evolve(task, recipe, seed=seed)]
              for seed in SEEDS}
        for arm, recipe in recipes.items()
    }  # fmt: skip


@pytest.fixture(scope="session")
def comparison(histories: dict[str, dict[int, list[dict[str, Any]]]]) -> dict[str, Any]:
    """What `esgd compare` would print of these histories."""
    arms = {
        arm: [_entry(arm, seed, history) for seed, history in by_seed.items()] for arm, by_seed in histories.items()
    }
    return {
        "task": "points",
        "about": "60 points to train on, with noisy labels.",
        "recipe": esgd.Recipe(population=4, offspring=8, generations=GENERATIONS, sgd_epochs=1).to_dict(),
        "seeds": list(SEEDS),
        "arms": arms,
        "soup": [{**entry, "top": None, "models": 2} for entry in arms["no_evolution"]],
    }


def _entry(arm: str, seed: int, history: list[dict[str, Any]]) -> dict[str, Any]:
    best = min(history, key=lambda line: line["best"])
    entry = {
        "seed": seed,
        "fitness": best["best"],
        "top": None if arm == "single" else [min(best["fitness"]), max(best["fitness"])],
        "test": best["test"],
        "ledger": {name: sum(line["ledger"][name] for line in history) for name in best["ledger"]},
        "seconds": sum(sum(line["seconds"].values()) for line in history),
    }
    last = {"last": {"fitness": history[-1]["best"], "test": history[-1]["test"]}}
    return {**entry, **last} if arm == "population" else entry


@pytest.fixture
def make_line() -> Callable[..., dict[str, Any]]:
    """A history line made by hand."""

    def make(k: int, fitness: list[float | None], **changes: Any) -> dict[str, Any]:
        known = sorted(f for f in fitness if f is not None)
        return {
            "k": k,
            "stage": "evolution",
            "best": known[0] if known else None,
            "elite_mean": known[0] if known else None,
            "fitness": fitness,
            "elites": 1,
            "offspring_among_elites": 0.5,
            "backed_off": 1,
            "checked": 4,
            "leader": {"optimizer": "adam", "lr": 2.68e-4, "betas": [0.9, 0.999]},
            "test": {},
            "ledger": dict(sgd_forward=10, sgd_backward=10, fitness_sgd=5, fitness_evolution=0, fitness_saved=0),
            "seconds": {"sgd": 1.5, "fitness": 0.25},
            "guarantee": "held",
            "waiver": "",
            "notes": [],
            **changes,
        }

    return make


@pytest.fixture
def make_comparison() -> Callable[..., dict[str, Any]]:
    """A comparison made by hand: for every arm, the fitness and the test loss of each seed."""

    def make(**arms: list[tuple[float | None, float | None]]) -> dict[str, Any]:
        ledger = dict(sgd_forward=100, sgd_backward=100, fitness_sgd=50, fitness_evolution=50, fitness_saved=0)
        entries = {
            arm: [
                {"seed": seed, "fitness": f, "top": [f, f], "test": {"loss": loss}, "ledger": ledger, "seconds": 1.0}
                for seed, (f, loss) in enumerate(results)
            ]
            for arm, results in arms.items()
        }
        seeds = list(range(max(map(len, arms.values()))))
        return {"task": "t", "about": "", "recipe": {"population": 100}, "seeds": seeds, "arms": entries, "soup": []}

    return make
