"""Ray Tune's population-based training (PBT): the population-based trainer that people have.

    python -m benchmarks.peers.ray_side WORKLOAD [--quick]      (a child; `against_ray.py` starts it)

The same number of networks for the same epochs: a trial is a network in plain torch on one thread, and as many run at
a time as there are cores. An iteration is as many epochs as a generation of ours; after it a trial reports its fitness
and is perturbed, paused or continued as the scheduler decides, with the checkpoints that PBT exploits.

Kind to it: Ray has been started before the clock starts; actors are reused instead of started for every trial; the data
lie in its object store. `seconds` is the whole experiment; `net` is from the beginning of the first epoch to the end of
the last, without the start of actors and the bookkeeping after.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from time import perf_counter, time
from typing import Any

import numpy as np
import ray
import torch
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

from benchmarks.children import Answer, serve
from benchmarks.workloads import (
    FULL_FITNESS,
    GENERATION_EPOCHS,
    GENERATIONS,
    MOMENTA,
    RATES,
    Workload,
    asked_for,
)

STORE = 200 * 2**20  # bytes
TOKEN = token_hex(32)  # one for the process: Ray reads it once, and refuses a second cluster that has another
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0"}


class Trial(tune.Trainable):
    """One network; an iteration trains it for a generation's epochs."""

    def setup(self, config: dict[str, Any], workload: Workload, data: Any) -> None:
        torch.set_num_threads(1)
        self.workload, (self.train_data, self.fitness_data) = workload, data
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """A reused actor becomes another trial."""
        self.model = self.workload.make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=new_config["lr"], momentum=new_config["momentum"])
        return True

    def step(self) -> dict[str, float]:
        begun, loss_of, (x, y) = time(), self.workload.loss, self.train_data
        self.model.train()
        for _ in range(GENERATION_EPOCHS):
            for chosen in torch.randperm(len(x)).split(self.workload.batch):
                self.optimizer.zero_grad()
                loss_of(self.model(x[chosen]), y[chosen]).backward()
                self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            fitness = float(loss_of(self.model(self.fitness_data[0]), self.fitness_data[1]))
        return {"fitness": fitness, "begun": begun, "ended": time()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        weights = {f"model/{name}": value.numpy() for name, value in self.model.state_dict().items()}
        velocities = self.optimizer.state_dict()["state"]
        momenta = {f"momentum/{i}": state["momentum_buffer"].numpy() for i, state in velocities.items()}
        np.savez(Path(checkpoint_dir) / "state.npz", **weights, **momenta)

    def load_checkpoint(self, checkpoint: str) -> None:
        """Weights and momentum from the checkpoint; learning rate and momentum factor stay this trial's own."""
        with np.load(Path(checkpoint) / "state.npz", allow_pickle=False) as saved:
            tensors = {name: torch.from_numpy(saved[name]) for name in saved.files}
        groups = [{**group} for group in self.optimizer.state_dict()["param_groups"]]
        velocities = {
            int(name.partition("/")[2]): {"momentum_buffer": value}
            for name, value in tensors.items()
            if name.startswith("momentum/")
        }
        weights = {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith("model/")}
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict({"state": velocities, "param_groups": groups})


class Clock(tune.Callback):
    """When every iteration began and ended."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.ended: list[float] = []

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **rest: Any
    ) -> None:
        self.begun.append(result["begun"])
        self.ended.append(result["ended"])


@contextmanager
def ray_of_its_own(cpus: int | None = None) -> Iterator[None]:
    """A quiet cluster of this machine alone, which no other machine can reach and which leaves nothing behind."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ |= QUIET | {"RAY_AUTH_TOKEN": TOKEN}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        ray.init(
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            num_cpus=cpus or os.cpu_count(),
            object_store_memory=STORE,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
        )
        try:
            yield
        finally:
            ray.shutdown()


class Pbt:
    def __init__(self, workload: Workload) -> None:
        self.workload, self.data = workload, workload.data(FULL_FITNESS)

    def open(self) -> None:
        """Every round starts its own Ray: even an idle one would take a tenth of the machine from the other side."""

    def round(self) -> Answer:
        clock = Clock()
        scheduler = PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=1,
            hyperparam_mutations={"lr": tune.loguniform(*RATES), "momentum": tune.uniform(*MOMENTA)},
        )
        with ray_of_its_own(), tempfile.TemporaryDirectory() as folder:
            tuner = tune.Tuner(
                tune.with_resources(tune.with_parameters(Trial, workload=self.workload, data=self.data), {"cpu": 1}),
                param_space={"lr": tune.loguniform(*RATES), "momentum": tune.uniform(*MOMENTA)},
                tune_config=tune.TuneConfig(
                    scheduler=scheduler,
                    metric="fitness",
                    mode="min",
                    num_samples=self.workload.individuals,
                    reuse_actors=True,
                ),
                run_config=tune.RunConfig(
                    stop={"training_iteration": GENERATIONS}, storage_path=folder, verbose=0, callbacks=[clock]
                ),
            )
            begun = perf_counter()
            results = tuner.fit()
            seconds = perf_counter() - begun
        if results.errors:
            raise RuntimeError(f"{len(results.errors)} of {len(results)} trials failed: {results.errors[0]}")
        return {
            "seconds": seconds,
            "net": max(clock.ended) - min(clock.begun),
            "iterations": len(clock.ended),
            "fitness": results.get_best_result().metrics["fitness"],
        }


if __name__ == "__main__":
    serve(lambda: Pbt(asked_for()))
