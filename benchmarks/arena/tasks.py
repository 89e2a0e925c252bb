"""The tasks of the arena. The seed of each decides which samples it has, and in which split they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from benchmarks.arena.pictures import fashion_cnn, fashion_mlp, photographs, tuned_photographs
from benchmarks.arena.sequences import frames, text, utterances
from benchmarks.arena.tables import TABLES, table
from esgd.protocols import Task
from esgd.studies.digits import task as digits


@dataclass(frozen=True)
class Contest:
    """A task by seed, and the short budget: epochs of one network. The long one is four times that."""

    task: Callable[[int], Task]
    epochs: float


CONTESTS: Mapping[str, Contest] = {
    "digits": Contest(digits, 160),
    **{name: Contest(partial(table, name), 160) for name in TABLES},
    "fashion-mlp": Contest(fashion_mlp, 120),
    "fashion-cnn": Contest(fashion_cnn, 40),
    "cifar-cnn": Contest(photographs, 40),
    "cifar-tuned": Contest(tuned_photographs, 60),
    "an4-frames": Contest(frames, 100),
    "an4-bilstm": Contest(utterances, 60),
    "treebank": Contest(text, 40),
}
"""Many short epochs, where networks converge, and few, where they do not."""
