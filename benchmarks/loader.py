"""What does `Supervised(DataLoader)` cost, against the plain training loop over the same loader?

    python -m benchmarks.loader [--only mlp,cnn,dicts,processes,decoded,larger] [--repeats 15] [--quick]

One network, one thread, a dataset that augments each image in Python. Ours is the SGD step of one individual under
`Loop`; plain is the usual loop: zero_grad, loss, backward, step. Both take the same number of batches
of the same loader, and they alternate in one process: ours, plain, plain, ours. A ratio is plain seconds over ours, so
1 is equal and less is slower. Without loader processes the ratio is also taken of processor time, which others on the
machine disturb less.

With loader processes, plain has `persistent_workers=True`, as ours has always.

In *decoded* and *larger*, images of 32 × 32 and of 64 × 64 are decompressed and normalised when they are read, and
nothing is random. A population of four is trained in each round by a task that has read nothing yet: ours keeps samples
once they were the same twice, plain decodes them each time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import esgd
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread
from esgd._algorithm.initialization import prepare, scored
from esgd.operators import Never, RandomStart
from esgd.protocols import Step

TARGET, REPEATS, EPOCHS, BATCH = 0.95, 15, 2, 64
DECODED_TARGET, DECODED_EPOCHS = 1.5, 4
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


class Compressed(Dataset[Any]):
    """Images of three colours and `side` × `side` bytes that are decompressed and normalised when they are read."""

    def __init__(self, samples: int, side: int) -> None:
        self.side = side
        smooth = np.random.default_rng(0).integers(0, 256, (samples, 3, side // 4, side // 4), dtype=np.uint8)
        self.images = [zlib.compress(image.repeat(4, axis=1).repeat(4, axis=2).tobytes()) for image in smooth]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = np.frombuffer(zlib.decompress(self.images[index]), dtype=np.uint8).reshape(3, self.side, self.side)
        return (torch.from_numpy(pixels.astype(np.float32)) / 255 - 0.5) / 0.25, index % 10


class Dense(nn.Module):
    def __init__(self, inputs: int = 784, pooled: int = 1) -> None:
        super().__init__()
        small = nn.AvgPool2d(pooled) if pooled > 1 else nn.Identity()
        self.layers = nn.Sequential(small, nn.Flatten(), nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 10))

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
    side: int | None = None  # of compressed images
    epochs: int = EPOCHS
    individuals: int = 1

    @property
    def target(self) -> float:
        return DECODED_TARGET if self.side else TARGET

    def loader(self) -> DataLoader[Any]:
        dataset: Dataset[Any] = (
            Compressed(self.samples, self.side) if self.side else Augmented(self.samples, dicts=self.dicts)
        )
        more = self.workers > 0
        return DataLoader(dataset, BATCH, shuffle=True, num_workers=self.workers, persistent_workers=more)


CASES = {
    "mlp": Case(about="784-128-10, batches of tuples", make_model=Dense, samples=4096),
    "dicts": Case(about="784-128-10, batches of dicts", make_model=Dense, samples=4096, dicts=True),
    "cnn": Case(about="two convolutions, batches of tuples", make_model=Convolutional, samples=2048),
    "processes": Case(about="784-128-10, two loader processes", make_model=Dense, samples=8192, workers=2),
    "decoded": Case(
        about=f"four of 3072-128-10 for {DECODED_EPOCHS} epochs, compressed images of 32 × 32",
        make_model=partial(Dense, 3072),
        samples=1024,
        side=32,
        epochs=DECODED_EPOCHS,
        individuals=4,
    ),
    "larger": Case(
        about=f"four of 3072-128-10 for {DECODED_EPOCHS} epochs, compressed images of 64 × 64, halved by the network",
        make_model=partial(Dense, 3072, 2),
        samples=1024,
        side=64,
        epochs=DECODED_EPOCHS,
        individuals=4,
    ),
}


def by_hand(case: Case) -> Callable[[], object]:
    """The plain loop; its networks and loader stay from round to round, as ours do."""
    models, loader = [case.make_model() for _ in range(case.individuals)], case.loader()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True) for model in models]

    def train() -> None:
        for model, optimizer in zip(models, optimizers, strict=True):
            model.train()
            for _ in range(case.epochs):
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


@contextmanager
def by_engine(case: Case, loader: DataLoader[Any]) -> Iterator[Callable[[], object]]:
    """Ours: the SGD step of the same individuals, without evolution."""
    shape = (3, case.side, case.side) if case.side else (1, 28, 28)
    fixed = torch.randn(64, *shape), torch.zeros(64, dtype=torch.long)
    fitness: Any = {"image": fixed[0], "labels": fixed[1]} if case.dicts else fixed
    task = esgd.Supervised(case.make_model, F.cross_entropy, train=loader, fitness=fitness)
    setup, count = prepare(task, esgd.Recipe(population=2), 0), case.individuals
    with esgd.engines.Loop(threads=1).open(setup, lambda phase, done, total: None) as session:
        population = scored(session, RandomStart()(task, setup.genome, session, count, setup.seeds.at("init")))
        step = Step(k=1, epochs=case.epochs, backoff=Never())
        yield lambda: session.train(population, [POLICY] * count, step)


def measure(case: Case, repeats: int, quiet: Quiet) -> list[tuple[float, float]]:
    """Ratios of every repeat: of seconds, and of processor time."""
    loader = case.loader()
    with by_engine(case, loader) as ours:
        plain, found = by_hand(case), list[tuple[float, float]]()
        ours(), plain()  # processes are started, and memory is found
        for _ in range(repeats):
            quiet.look()
            with ExitStack() as exits:
                fresh = [exits.enter_context(by_engine(case, loader)) if case.side else ours for _ in range(2)]
                a, b, c, d = timed(fresh[0]), timed(plain), timed(plain), timed(fresh[1])
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
        target: dict[str, Any] = {"target": case.target}
        rows = [spread("plain loop over ours, seconds", [wall for wall, _ in ratios], **target)]
        if not case.workers:
            rows.append(spread("plain loop over ours, processor time", [spent for _, spent in ratios], **target))
        about = f"{case.about}, batch {BATCH}, {case.samples // BATCH} batches an epoch"
        save(given.out, "loader", name, rows, about=about, busy=quiet.worst, ratios=ratios)


if __name__ == "__main__":
    main()
