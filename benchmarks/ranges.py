"""Learning rates that are found, against a grid: do default rules keep up on data that are not scaled?

    python -m benchmarks.ranges [--seeds 0,1,2] [--tasks "points;digits"] [--json ranges.json]

For ten tasks, four of them with data of unusual scales: our rules with the ranges of the range test, our rules with
fixed ranges, and a grid of nine ADAM rates. All spend the same work: a network of the grid has a ninth. The test loss
of the network that is fittest on the fitness split counts, averaged over seeds. All was tuned on seeds from 100 on.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import rules
from esgd.ledger import passes
from esgd.policies import Policy
from esgd.protocols import Draw
from esgd.schedules import CosineRun
from esgd.tasks import Supervised

RATES = tuple(10.0 ** (halves / 2) for halves in range(-8, 1))  # 1e-4 to 1
GRID = tuple(Policy(optimizer="adam", hyper={"lr": lr}, schedule=CosineRun()) for lr in RATES)
CLOSE = 1.05  # times the test loss of the grid
EPOCHS = 120  # of one network, that every arm may spend: a quarter of what default rules spend
LONG = {"(d) LSTM, first word": 480}  # with less, its loss stays at chance, and no rule can tell networks apart
SPLITS = (600, 300, 600)
FEATURES, WORDS, LENGTH = 8, 4, 12


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    rows = []
    for name in options.tasks.split(";") if options.tasks else TASKS:
        arms = {arm: [trained(name, arm, int(seed)) for seed in options.seeds.split(",")] for arm in ARMS}
        rows.append({"task": name, **arms})
        print(line(rows[-1]), flush=True)
    close = sum(mean(row["found"]) <= CLOSE * mean(row["grid"]) for row in rows)
    print(f"within {CLOSE - 1:.0%} of the grid, or better: {close} of {len(rows)}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def trained(name: str, arm: str, seed: int) -> dict[str, Any]:
    """One run: the test loss of its fittest network, what it spent, and what the range test found."""
    task = TASKS[name](seed)
    work = 3.0 * LONG.get(name, EPOCHS) * SPLITS[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = esgd.fit(task, ARMS[arm](task, work), seed=seed, engine="loop:threads=1", progress=False)
    return {
        "test": result.test["loss"],
        "spent": sum(passes(each["ledger"]) for each in result.history) / work,
        "found": {each["optimizer"]: each["top"] for each in result.history[0].get("ranges", ())},
        "notes": [note["kind"] for each in result.history for note in each["notes"]],
    }


def line(row: Mapping[str, Any]) -> str:
    """A row of the table in Markdown."""
    losses = [f"{mean(row[arm]):.4g}" for arm in ARMS]
    found = ", ".join(f"{name} {top:.2g}" for name, top in row["found"][0]["found"].items())
    ratio = mean(row["found"]) / mean(row["grid"])
    return f"| {row['task']} | {' | '.join(losses)} | {ratio:.2f} | {found} |"


def mean(runs: list[dict[str, Any]]) -> float:
    return fmean(run["test"] for run in runs)


def grid(task: Supervised, work: float) -> esgd.Recipe:
    """Nine networks, one for each rate, each with a ninth of the work; their averages count."""
    return replace(rules.single(task, work / len(GRID)), population=len(GRID), species=_by_place)


def _by_place(request: Draw) -> Policy:
    return GRID[request.j % len(GRID)]


ARMS: Mapping[str, Callable[[Supervised, float], esgd.Recipe]] = {
    "found": lambda task, work: rules.ours(task, work, rates=rules.FOUND),
    "fixed": lambda task, work: rules.ours(task, work, rates=rules.RATES),
    "grid": grid,
}


def supervised(make_model: Callable[[], nn.Module], loss: Any, x: Tensor, y: Tensor) -> Supervised:
    train, fitness, test = zip(x.split(SPLITS), y.split(SPLITS), strict=True)
    return Supervised(make_model, loss, train=train, fitness=fitness, test=test, batch_size=32)


def perceptron(inputs: int, outputs: int, *, hidden: int = 32, depth: int = 1, norm: bool = False) -> nn.Module:
    layers = list[nn.Module]()
    for number in range(depth):
        layers.append(nn.Linear(hidden if number else inputs, hidden))
        layers += [nn.BatchNorm1d(hidden)] * norm + [nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


class Recurrent(nn.Module):
    """An LSTM that answers after the last word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(WORDS, 12), nn.LSTM(12, 24, batch_first=True)
        self.output = nn.Linear(24, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        answer: Tensor = self.output(self.recurrent(self.embedding(words))[0][:, -1])
        return answer


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64, 10)),
        )

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layers(images)
        return scores


def points(seed: int) -> tuple[Tensor, Tensor]:
    """Standardised inputs, two classes, and noise: a product decides."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(SPLITS), FEATURES, generator=generator)
    noise = 0.3 * torch.randn(len(x), generator=generator)
    return x, (x[:, 0] * x[:, 1] + 0.5 * x[:, 2] + noise > 0).long()


def scaled_points(scale: float | Tensor, seed: int, **shape: Any) -> Supervised:
    x, y = points(seed)
    return supervised(lambda: perceptron(FEATURES, 2, **shape), F.cross_entropy, x * scale, y)


def values(seed: int, *, mean: float = 0.0, spread: float = 1.0) -> Supervised:
    """A regression; `mean` and `spread` are those of the targets."""
    x, _ = points(seed)
    y = mean + spread * torch.tanh(x[:, 0] + x[:, 1] * x[:, 2])[:, None]
    return supervised(lambda: perceptron(FEATURES, 1), F.mse_loss, x, y)


def recall(seed: int) -> Supervised:
    """Which word was the first? The loss stays at chance for a long time."""
    words = torch.randint(WORDS, (sum(SPLITS), LENGTH), generator=torch.Generator().manual_seed(seed))
    return supervised(Recurrent, F.cross_entropy, words, words[:, 0])


def digits(seed: int, *, scale: float = 1.0, images: bool = False) -> Supervised:
    """Pixels from 0 to `scale`."""
    data = load_digits()
    order = torch.randperm(len(data.data), generator=torch.Generator().manual_seed(seed))[: sum(SPLITS)]
    x, y = torch.tensor(data.data, dtype=torch.float32)[order] * (scale / 16), torch.tensor(data.target)[order]
    if images:
        return supervised(Convolutional, F.cross_entropy, x.view(-1, 1, 8, 8), y)
    return supervised(lambda: perceptron(64, 10, hidden=48), F.cross_entropy, x, y)


TASKS: Mapping[str, Callable[[int], Supervised]] = {
    "(a) features 0.01 … 3e4": lambda seed: scaled_points(torch.logspace(-2, 4.5, FEATURES), seed),
    "(b) features × 1e-3": lambda seed: scaled_points(1e-3, seed),
    "(c) targets 2e5 ± 1e5": lambda seed: values(seed, mean=2e5, spread=1e5),
    "(d) LSTM, first word": recall,
    "points": lambda seed: scaled_points(1.0, seed),
    "points, deep, BatchNorm": lambda seed: scaled_points(1.0, seed, depth=3, norm=True),
    "regression": values,
    "digits": digits,
    "digits, 0 … 255": lambda seed: digits(seed, scale=255.0),
    "digits, convolutional": lambda seed: digits(seed, images=True),
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--tasks", default="", help="names, separated by semicolons; all of them by default")
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
