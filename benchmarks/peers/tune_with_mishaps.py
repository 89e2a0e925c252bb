"""Ray Tune's population-based training on two workers, with a mishap.

python -m benchmarks.peers.tune_with_mishaps none|kill|diverge [--quick]      (a child; `mishaps.py` starts it)
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from functools import partial
from math import isfinite
from pathlib import Path
from secrets import token_hex
from time import perf_counter
from typing import Any

import numpy as np
import ray
import torch
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining
from torch import nn

from benchmarks.children import Answer, serve
from benchmarks.peers.ray_side import QUIET, STORE
from benchmarks.workloads import EPOCHS, HOT, KILLED_AT, MISHAP_RATES, digits, fatal

# What a user writes, imports aside


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


class Trial(tune.Trainable):
    def setup(self, config: dict[str, Any], x: Any, y: Any, loss: Any) -> None:
        torch.set_num_threads(1)
        self.x, self.y, self.loss = x, y, loss
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"], momentum=0.9)

    def step(self) -> dict[str, float]:
        self.model.train()
        for _ in range(EPOCHS):
            for batch in torch.randperm(1280).split(32):
                self.optimizer.zero_grad()
                self.loss(self.model(self.x[batch]), self.y[batch]).backward()
                self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            return {"fitness": float(self.loss(self.model(self.x[1280:]), self.y[1280:]))}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        weights = {f"w{i}": p.detach().numpy() for i, p in enumerate(self.model.parameters())}
        momenta = {f"m{i}": s["momentum_buffer"].numpy() for i, s in self.optimizer.state_dict()["state"].items()}
        np.savez(Path(checkpoint_dir) / "state.npz", **weights, **momenta)

    def load_checkpoint(self, checkpoint: str) -> None:
        with np.load(Path(checkpoint) / "state.npz", allow_pickle=False) as saved:
            for i, parameter in enumerate(self.model.parameters()):
                parameter.data.copy_(torch.from_numpy(saved[f"w{i}"]))
                self.optimizer.state[parameter]["momentum_buffer"] = torch.from_numpy(saved[f"m{i}"])


def train(x: Any, y: Any, loss: Any, rates: list[float], folder: str) -> Any:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": tune.loguniform(1e-3, 1e-1)},
    )
    trainable = tune.with_resources(tune.with_parameters(Trial, x=x, y=y, loss=loss), {"cpu": 1})
    tuner = tune.Tuner(
        trainable,
        param_space={"lr": tune.grid_search(rates)},
        tune_config=tune.TuneConfig(scheduler=scheduler, metric="fitness", mode="min"),
        run_config=tune.RunConfig(stop={"training_iteration": 3}, storage_path=folder, verbose=0),
    )
    return tuner.fit()


# Until here


class Tuned:
    def __init__(self, mishap: str) -> None:
        self.mishap = mishap

    def open(self) -> None:
        """A run is opened and ended in its round."""

    def round(self) -> Answer:
        logging.getLogger("ray").setLevel(logging.ERROR)
        os.environ |= QUIET | {"RAY_AUTH_TOKEN": token_hex(32)}
        rates = [HOT, *MISHAP_RATES[1:]] if self.mishap == "diverge" else list(MISHAP_RATES)
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            mark = Path(folder) / "killed" if self.mishap == "kill" else None
            loss = partial(fatal, mark=mark, calls=[0], at=KILLED_AT)
            begun = perf_counter()
            ray.init(
                _node_ip_address="127.0.0.1",
                _temp_dir=folder,
                num_cpus=2,
                object_store_memory=STORE,
                include_dashboard=False,
                configure_logging=False,
                log_to_driver=False,
            )
            try:
                results = train(*digits(1792), loss, rates, f"{folder}/results")
            finally:
                ray.shutdown()
            seconds = perf_counter() - begun
            written = sum(file.stat().st_size for file in Path(folder, "results").rglob("*") if file.is_file())
        reported = [(result.metrics or {}).get("fitness", float("nan")) for result in results]
        known = [fitness for fitness in reported if isfinite(fitness)]
        failed = len(results.errors)
        outcome = f"{len(results) - failed} of {len(results)} trials at the end"
        outcome += f"; {failed} ended in an error, and nobody took its place" if failed else ""
        outcome += f"; {len(reported) - len(known)} without a finite fitness" if len(known) < len(reported) else ""
        return {"seconds": seconds, "written": written, "fitness": min(known), "outcome": outcome}


if __name__ == "__main__":
    serve(lambda: Tuned(sys.argv[1]))
