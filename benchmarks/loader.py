"""What does `Supervised(DataLoader)` cost, against the plain training loop over the same loader?

    python -m benchmarks.loader [--only mlp,cnn,dicts,processes] [--repeats 15] [--quick]

One network, one thread, a dataset that augments each image in Python. Ours is the SGD step of one individual under
`Loop`; plain is the usual loop: zero_grad, loss, backward, step. Both take the same number of batches
of the same loader, and they alternate in one process: ours, plain, plain, ours. A ratio is plain seconds over ours, so
1 is equal and less is slower. Without loader processes the ratio is also taken of processor time, which others on the
machine disturb less.

With loader processes, plain has `persistent_workers=True`, as ours has always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import esgd
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread
from esgd._initialization import prepare, scored
from esgd.operators import Never, RandomStart
from esgd.protocols import Step

TARGET, REPEATS, EPOCHS, BATCH = 0.95, 15, 2, 64
POLICY = esgd.Policy(optimizer="sgd", hyper={"lr": 0.05, "momentum": 0.9})


class Augmented(Dataset[Any]):
    """Images of 28 × 28 that are shifted and flipped at random when they are read."""

    def __init__(self, samples: int, *, dicts: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(samples, 1, 28, 28, generator=generator)
        self.labels = torch.randint(0, 10, (samples,), generator=generator).tolist()
        self.dicts = dicts

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        image = self.images[index]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        shift = int(torch.randint(-2, 3, ()))
        image = image.roll(shift, dims=-1)
        return {"image": image, "labels": self.labels[index]} if self.dicts else (image, self.labels[index])


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        second = (nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.layers = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32 * 49, 10))

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, and how its data are read."""

    about: str
    make_model: Callable[[], nn.Module]
    samples: int
    dicts: bool = False
    workers: int = 0

    def loader(self) -> DataLoader[Any]:
        dataset, more = Augmented(self.samples, dicts=self.dicts), self.workers > 0
        return DataLoader(dataset, BATCH, shuffle=True, num_workers=self.workers, persistent_workers=more)


CASES = {
    "mlp": Case(about="784-128-10, batches of tuples", make_model=Dense, samples=4096),
    "dicts": Case(about="784-128-10, batches of dicts", make_model=Dense, samples=4096, dicts=True),
    "cnn": Case(about="two convolutions, batches of tuples", make_model=Convolutional, samples=2048),
    "processes": Case(about="784-128-10, two loader processes", make_model=Dense, samples=8192, workers=2),
}


def by_hand(case: Case) -> Callable[[], object]:
    """The plain loop; its network and loader stay from round to round, as ours do."""
    model, loader = case.make_model(), case.loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)

    def train() -> None:
        model.train()
        for _ in range(EPOCHS):
            for batch in loader:
                image, labels = batch.values() if case.dicts else batch
                optimizer.zero_grad()
                F.cross_entropy(model(image), labels).backward()
                optimizer.step()

    return train


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of this process on its processor."""
    wall, spent = perf_counter(), process_time()
    work()
    return perf_counter() - wall, process_time() - spent


def measure(case: Case, repeats: int, quiet: Quiet) -> list[tuple[float, float]]:
    """Ratios of every repeat: of seconds, and of processor time."""
    fixed = torch.randn(64, 1, 28, 28), torch.zeros(64, dtype=torch.long)
    fitness: Any = {"image": fixed[0], "labels": fixed[1]} if case.dicts else fixed
    task = esgd.Supervised(case.make_model, F.cross_entropy, train=case.loader(), fitness=fitness)
    setup = prepare(task, esgd.Recipe(population=2), 0)
    with esgd.engines.Loop(threads=1).open(setup, lambda phase, done, total: None) as session:
        population = scored(session, RandomStart()(task, setup.genome, session, 1, setup.seeds.at("init")))
        ours = lambda: session.train(population, [POLICY], Step(k=1, epochs=EPOCHS, backoff=Never()))  # noqa: E731
        plain, found = by_hand(case), list[tuple[float, float]]()
        ours(), plain()  # processes are started, and memory is found
        for _ in range(repeats):
            quiet.look()
            a, b, c, d = timed(ours), timed(plain), timed(plain), timed(ours)
            found.append(((b[0] + c[0]) / (a[0] + d[0]), (b[1] + c[1]) / (a[1] + d[1])))
        return found


def main() -> None:
    given = arguments(__doc__)
    torch.set_num_threads(1)
    for name in given.only or CASES:
        case, quiet = CASES[name], Quiet()
        if given.quick:
            case = replace(case, samples=4 * BATCH)
        ratios = measure(case, given.repeats or (1 if given.quick else REPEATS), quiet)
        target: dict[str, Any] = {"target": TARGET}
        rows = [spread("plain loop over ours, seconds", [wall for wall, _ in ratios], **target)]
        if not case.workers:
            rows.append(spread("plain loop over ours, processor time", [spent for _, spent in ratios], **target))
        about = f"{case.about}, batch {BATCH}, {case.samples // BATCH} batches an epoch"
        save(given.out, "loader", name, rows, about=about, busy=quiet.worst, ratios=ratios)


if __name__ == "__main__":
    main()
