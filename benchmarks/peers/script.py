"""The same population with Ray Tune's PBT: network, loss and data aside, this is all that a user writes.

    python -m benchmarks.peers.script      (`mishaps.py` counts its lines and lets things go wrong in it)

As Ray's own examples of PBT have it: a function that reports a checkpoint with every result, and actors that are
reused. A trial that fails is tried again from its last checkpoint, which is not Tune's default.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining
from safetensors.torch import load_file, save_file

from benchmarks.faults import MOMENTUM, RATES, population, rates
from benchmarks.workloads import FULL_FITNESS, GENERATIONS, Workload


def trial(config: dict[str, Any], workload: Workload, data: Any) -> None:
    torch.set_num_threads(1)
    (x, y), (fitness_x, fitness_y) = data
    model = workload.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=MOMENTUM)
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = load_file(Path(folder) / "state.safetensors")
        for name, weights in model.named_parameters():
            optimizer.state[weights]["momentum_buffer"] = state.pop(f"momentum of {name}")
        model.load_state_dict(state)
    while True:
        model.train()
        for _ in range(workload.epochs):
            for chosen in torch.randperm(len(x)).split(workload.batch):
                optimizer.zero_grad()
                workload.loss(model(x[chosen]), y[chosen]).backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            fitness = float(workload.loss(model(fitness_x), fitness_y))
        with tempfile.TemporaryDirectory() as folder:
            state = {f"momentum of {n}": optimizer.state[w]["momentum_buffer"] for n, w in model.named_parameters()}
            save_file({**model.state_dict(), **state}, Path(folder) / "state.safetensors")
            tune.report({"fitness": fitness}, checkpoint=tune.Checkpoint.from_directory(folder))


def train(workload: Workload, folder: str, rates: list[float]) -> tune.ResultGrid:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": tune.loguniform(*RATES)},
    )
    trainable = tune.with_parameters(trial, workload=workload, data=workload.data(FULL_FITNESS))
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={"lr": tune.grid_search(rates)},
        tune_config=tune.TuneConfig(scheduler=scheduler, metric="fitness", mode="min", reuse_actors=True),
        run_config=tune.RunConfig(
            stop={"training_iteration": GENERATIONS},
            failure_config=tune.FailureConfig(max_failures=3),
            storage_path=folder,
            verbose=0,
        ),
    )
    return tuner.fit()


if __name__ == "__main__":
    print(train(population(), str(Path("runs/script").absolute()), rates(population())).get_best_result())
