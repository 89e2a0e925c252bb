"""What engines ask of a device beside the CPU. `tests/counted_device.py` is one: it counts what would make the host
wait for a GPU, and computes what the CPU computes."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from esgd._algorithm.initialization import prepare
from esgd.engines.device_memory import device_need
from esgd.policies import Policy
from esgd.tasks import Supervised
from esgd.tasks.scaled import scaled
from esgd.testing.miniature import RECIPE, SEED, miniature, perceptron
from tests.warm import python

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("counted_steps.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
META = torch.device("meta")


@pytest.fixture(scope="module")
def counts() -> Any:
    done = python(SCRIPT, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_no_sgd_step_makes_the_host_wait(counts: Any) -> None:
    assert {name: step["waits"] for name, step in counts["steps"].items() if step["waits"]} == {}
    assert {name: step["waits"] for name, step in counts["on the host"].items() if step["waits"]} == {}


@pytest.mark.slow
def test_a_loss_that_reads_a_number_is_counted(counts: Any) -> None:
    assert counts["a loss that reads"]["numbers read"] == 2  # one for each individual


@pytest.mark.slow
def test_data_on_the_device_are_not_copied_again(counts: Any) -> None:
    orders, columns = 2 / 3, 3  # an order for each individual and epoch of three steps; numbers of ADAM that change
    assert all(step["copies to the device"] <= orders + columns for step in counts["steps"].values())
    assert counts["steps"]["Loop, dropout, sgd"]["copies to the device"] == pytest.approx(orders)
    assert counts["on the host"]["Loop"]["copies to the device"] == 4  # inputs and targets of two individuals


@pytest.mark.slow
def test_a_part_of_a_fitness_is_read_once(counts: Any) -> None:
    assert counts["parts"] == {"Loop": 2.0, "Vmap": 1.0}  # for two individuals: one after the other, or at once


@pytest.mark.slow
def test_the_tensors_of_a_batched_step_stay_where_they_are(counts: Any) -> None:
    assert not counts["moved"]


@pytest.mark.slow
def test_engines_on_a_device_conform() -> None:
    done = python(SCRIPT, "conformance", env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


def supervised(loss: Any, y: torch.Tensor) -> Supervised:
    x = torch.randn(8, 3)
    return Supervised(lambda: nn.Linear(3, 2), loss, train=(x, y), fitness=(x, y), batch_size=4)


def test_data_that_fit_are_moved_once_and_others_stay() -> None:
    task = supervised(F.cross_entropy, torch.zeros(8, dtype=torch.long))
    bytes_ = 2 * 8 * (3 * 4 + 8)
    moved = task.on_device(META, bytes_)
    assert {t.device.type for split in moved.data() for t in split} == {"meta"}
    assert moved._train is moved._calibration
    assert {t.device.type for split in task.data() for t in split} == {"cpu"}
    stays = task.on_device(META, bytes_ - 1)
    assert {t.device.type for split in stays.data() for t in split} == {"cpu"}


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(torch.ones(2)), partial(F.cross_entropy, weight=torch.ones(2))])
def test_the_weights_of_a_loss_follow_the_data(loss: Any) -> None:
    moved = supervised(loss, torch.zeros(8, dtype=torch.long)).on_device(META, 0)
    module = nn.Linear(3, 2, device="meta")
    batch = torch.empty(4, 3, device="meta"), torch.zeros(4, dtype=torch.long, device="meta")
    assert moved.loss(module, batch).device.type == "meta"
    assert moved.fitness(module, batch).device.type == "meta"


def test_the_scales_of_a_loss_follow_the_data() -> None:
    moved = scaled(supervised(F.mse_loss, torch.randn(8, 2))).on_device(META, 1 << 20)
    assert {each.device.type for each in (moved._loss.statistics.mean, moved._loss.statistics.deviation)} == {"meta"}


def test_the_memory_of_an_individual_is_known_before_a_run() -> None:
    setup = prepare(miniature(perceptron), RECIPE, SEED)  # 6-8-3: 83 parameters of four bytes
    small, large = (
        device_need(setup, Policy(optimizer="sgd", hyper={"lr": 0.1}, settings={"batch_size": n})) for n in (20, 40)
    )
    inputs, hidden, outputs, targets = 6 * 4, 8 * 4, 3 * 4, 8
    assert small.rows == 7 * 4 * 83
    assert large.activations - small.activations == 20 * (inputs + hidden + outputs + targets)
    assert small.fit(10 * small.bytes + 1) == 10
