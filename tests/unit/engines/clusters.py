"""What the tests of the Ray engine share: a small run with everything in it, and a look at processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

import esgd
from esgd.operators import CarriedByMate
from esgd.protocols import Draw
from esgd.testing.evidence import contents
from tests.small import CLASSES, INPUTS, classify, random_data

PATIENCE = 400.0  # seconds until something that must happen is given up on


def rich_mlp() -> nn.Module:
    """BatchNorm and dropout in one network."""
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.3), nn.Linear(7, CLASSES))


def varied(draw: Draw) -> esgd.Policy:
    """Another batch size, dropout, optimizer and length of an epoch for each individual."""
    settings = {"batch_size": (8, 16, 48)[draw.j % 3], "dropout": 0.1 * (draw.j % 4)}
    if draw.j % 2:
        return esgd.Policy(optimizer="adam", hyper={"lr": 0.01}, settings=settings)
    return esgd.Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9}, settings=settings)


RECIPE = esgd.Recipe(
    population=5, offspring=9, generations=2, sgd_epochs=1, species=varied, baggage=CarriedByMate(), elites=2
)
PLAIN = esgd.Recipe(population=3, offspring=3, generations=1, sgd_epochs=1)


def the_task(**changes: Any) -> esgd.Supervised:
    return classify(rich_mlp, fitness=random_data(250, seed=1), test=random_data(20, seed=2), **changes)


def no_tick(phase: str, done: int, total: int) -> None:
    pass


def run(engine: Any, recipe: esgd.Recipe = RECIPE, task: Any = None, tick: Any = no_tick) -> list[Any]:
    """Everything that a run yields, as values that can be compared."""
    generations = esgd.evolve(task or the_task(), recipe, seed=3, engine=engine, tick=tick)
    return [[contents(each.population), each.before, each.accepted, each.guarantee] for each in generations]


@cache
def quiet() -> list[Any]:
    """The run in which nothing happens."""
    return run(esgd.Loop(threads=1))


def descendants(pid: int) -> dict[int, str]:
    """The processes that `pid` has started, and those that they have, with their commands."""
    parents, commands = dict[int, int](), dict[int, str]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, parent = int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])
            commands[number] = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        parents[number] = parent
    found, generation = set[int](), {pid}
    while generation := {number for number, parent in parents.items() if parent in generation}:
        found |= generation
    return {number: commands[number] for number in found if commands[number]}


def workers_of(pid: int | None = None) -> list[int]:
    """The actors of this process, or of another."""
    return sorted(n for n, command in descendants(pid or os.getpid()).items() if command.startswith("ray::Actor"))


def rays_of(pid: int | None = None) -> list[str]:
    """Whatever belongs to a Ray that this process, or another, has started."""
    return [command for command in descendants(pid or os.getpid()).values() if "ray" in command and "raylet" in command]


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether something comes true in good time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
