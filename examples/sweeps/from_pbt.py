"""From Ray Tune's PopulationBasedTraining to a population, step by step: three programs for one network.

    python examples/sweeps/from_pbt.py

1. PBT with Tune: a trial is a network, the scheduler copies and perturbs.
2. PBT with esgd: the population is in one process, and the rules are a recipe.
3. Populations as trials of Tune, where several are compared.

All have the same data, 8 networks, 6 intervals of 2 epochs, and the same space of learning rates. Needs esgd[tune].
"""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.integrations.tune import species, trainable
from esgd.species import Inherited

POPULATION, INTERVALS, EPOCHS, BATCH = 8, 6, 2, 32
SPACE = {"lr": tune.loguniform(1e-3, 1.0), "momentum": tune.uniform(0.1, 0.95)}

generator = torch.Generator().manual_seed(0)
x = torch.randn(1200, 8, generator=generator)
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
TRAIN, FITNESS, TEST = (x[:600], y[:600]), (x[600:900], y[600:900]), (x[900:], y[900:])


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))


def loss_of(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    with torch.no_grad():
        return float(F.cross_entropy(model(data[0]), data[1]))


def trial(config: dict[str, Any]) -> None:
    """One network of Tune's population: it saves and loads what the scheduler copies."""
    torch.set_num_threads(1)
    model = make_model()
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    while True:
        for _ in range(EPOCHS):
            for chosen in torch.randperm(len(TRAIN[0])).split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(model(TRAIN[0][chosen]), TRAIN[1][chosen]).backward()
                optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            save_file(model.state_dict(), Path(folder) / "model.safetensors")
            numbers = {"fitness": loss_of(model, FITNESS), "test": loss_of(model, TEST)}
            tune.report(numbers, checkpoint=tune.Checkpoint.from_directory(folder))


def tuned(run: Any, space: dict[str, Any], place: str, samples: int, **settings: Any) -> tune.ResultGrid:
    return tune.Tuner(
        tune.with_resources(run, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(metric="fitness", mode="min", num_samples=samples, **settings),
        run_config=tune.RunConfig(storage_path=place, verbose=0, stop={"training_iteration": INTERVALS}),
    ).fit()


def with_tune(place: str) -> float:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_mutations=SPACE
    )
    grid = tuned(trial, SPACE, place, POPULATION, scheduler=scheduler, reuse_actors=True)
    return grid.get_best_result().metrics["test"]


def population(config: dict[str, Any]) -> tuple[esgd.Supervised, esgd.Recipe]:
    """PBT as a recipe: its sizes are Tune's, and its species draws from Tune's space."""
    task = esgd.Supervised(make_model, F.cross_entropy, train=TRAIN, fitness=FITNESS, test=TEST, batch_size=BATCH)
    rules = esgd.rules.pbt(task, work=1e6, population=POPULATION, generations=INTERVALS)
    drawn = Inherited(species=species("sgd", SPACE), probability=0.75, factors=(0.8, 1.2), offspring_only=True)
    return task, replace(rules, sgd_epochs=EPOCHS, species=drawn)


def with_esgd(place: str) -> float:
    task, recipe = population({})
    return esgd.fit(task, recipe, seed=0, run=Path(place) / "run", progress=False).test["loss"]


def with_both(place: str) -> float:
    """Two seeds as two trials; a comparison of networks or recipes has other keys in its space."""
    grid = tuned(trainable(population), {"seed": tune.grid_search([0, 1])}, place, 1)
    return grid.get_best_result().metrics["test/loss"]


if __name__ == "__main__":
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        _node_ip_address="127.0.0.1",  # for this machine alone
    )
    try:
        for name, run in {"Tune's PBT": with_tune, "esgd": with_esgd, "esgd in Tune": with_both}.items():
            begun = perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                loss = partial(run, folder)()
            print(f"{name:12} test loss {loss:.3f}   {perf_counter() - begun:.1f} s", flush=True)
    finally:
        ray.shutdown()
