"""The plain loop: how the public implementations of ESGD train a population.

    python -m benchmarks.sides.plain WORKLOAD [--quick]      (a child; `speed.py` starts it)

One individual after another, torch's default threads, `torch.optim.SGD` as it comes; zero_grad, loss, backward, step.
Batches are made by indexing tensors, which is kinder to it than the usual DataLoader. Every round begins at the same
weights, copied outside the clock, and ends with the fitness of each individual on a few samples, as ours does.
"""

from __future__ import annotations

import copy
from time import perf_counter

import torch
from torch import nn

from benchmarks.children import Answer, serve
from benchmarks.workloads import Workload, asked_for


class Plain:
    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.train_data, self.fitness_data = workload.data()
        torch.manual_seed(0)
        self.population = [workload.make_model() for _ in range(workload.individuals)]

    def open(self) -> None:
        """There is nothing to open."""

    def round(self) -> Answer:
        models = copy.deepcopy(self.population)
        begun = perf_counter()
        for model, (lr, momentum) in zip(models, self.workload.hyper(), strict=True):
            self.train(model, lr, momentum)
        return {"seconds": perf_counter() - begun}

    def train(self, model: nn.Module, lr: float, momentum: float) -> float:
        loss_of, (x, y), (fitness_x, fitness_y) = self.workload.loss, self.train_data, self.fitness_data
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        model.train()
        for _ in range(self.workload.epochs):
            for chosen in torch.randperm(len(x)).split(self.workload.batch):
                optimizer.zero_grad()
                loss = loss_of(model(x[chosen]), y[chosen])
                loss.backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            return float(loss_of(model(fitness_x), fitness_y))


if __name__ == "__main__":
    serve(lambda: Plain(asked_for()))
