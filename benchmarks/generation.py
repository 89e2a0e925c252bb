"""Where the time of a generation goes, and what ESGD costs beyond bare SGD and the fitness passes it needs.

Both sides are measured interleaved in one process, several times, and reported as a ratio with its spread:
    python benchmarks/generation.py
"""

from statistics import median
from time import perf_counter

import torch
from torch import nn
from torch.nn import functional as F

import esgd

REPEATS, POPULATION, EPOCHS, BATCH = 7, 16, 3, 128


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def bare_seconds(x: torch.Tensor, y: torch.Tensor) -> float:
    """The same SGD epochs in the plainest PyTorch: one network after another, fused SGD, no library."""
    begun = perf_counter()
    for _ in range(POPULATION):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(len(x)).split(BATCH):
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(model(x[chosen]), y[chosen]).backward()
                optimizer.step()
    return perf_counter() - begun


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3000, 784, generator=generator), torch.randint(0, 10, (3000,), generator=generator)
    task = esgd.Supervised(make_model, F.cross_entropy, train=(x, y), fitness=(x[:1000], y[:1000]), batch_size=BATCH)
    policy = esgd.Policy(optimizer="sgd", hyper={"lr": 0.05, "momentum": 0.9})
    recipe = esgd.Recipe(population=POPULATION, sgd_epochs=EPOCHS, generations=REPEATS, species=lambda draw: policy)
    ratios, shares = [], []
    for generation in esgd.evolve(task, recipe, seed=0, engine=esgd.Loop(threads=1)):
        bare, work = bare_seconds(x, y), generation.work
        ratios.append(work.seconds_sgd / bare)
        known = work.seconds_sgd + work.seconds_fitness + work.seconds_evolution
        shares.append((work.seconds_sgd, work.seconds_fitness, work.seconds_evolution, generation.seconds - known))
    print(
        f"SGD in esgd / bare SGD: {median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f}, {REPEATS} repeats)"
    )
    for name, column in zip(("SGD", "fitness", "evolution", "everything else"), zip(*shares, strict=True), strict=True):
        print(f"{name:<16}{median(column):7.3f} s a generation")


if __name__ == "__main__":
    main()
