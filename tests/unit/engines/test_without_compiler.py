"""An SGD step does what torch's optimizers do, and does not import torch's compiler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from esgd.engines.without_compiler import MARK, MARKED, plain_step, without_compiler

SCRIPT = """
import sys, torch, esgd
from torch import nn
from torch.nn import functional as F
x, y = torch.zeros(8, 2), torch.zeros(8, dtype=torch.long)
task = esgd.Supervised(lambda: nn.Linear(2, 2), F.cross_entropy, train=(x, y), fitness=(x, y))
recipe = esgd.Recipe(population=2, generations=2, sgd_epochs=1, elites=1, baggage=esgd.operators.Carried())
for engine in ("loop", "auto"):
    list(esgd.evolve(task, recipe, seed=0, engine=engine))
print("torch._dynamo" in sys.modules)
"""
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def test_a_run_does_not_import_the_compiler() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "False"


def test_torch_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    for method in MARKED:
        monkeypatch.delattr(method, MARK, raising=False)
    with without_compiler():
        assert all(getattr(method, MARK) is method for method in MARKED)
    assert not any(hasattr(method, MARK) for method in MARKED)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_that_of_torch(name: str) -> None:
    def trained(by: Callable[[torch.optim.Optimizer], Callable[[Any], object]]) -> Tensor:
        weight = nn.Parameter(torch.linspace(-1, 1, 6))
        optimizer = OPTIMIZERS[name]([weight])

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = (weight - torch.arange(6)).cosh().log().sum()
            loss.backward()
            return loss

        for _ in range(5):
            by(optimizer)(closure)
        return weight.detach()

    assert torch.equal(trained(plain_step), trained(lambda optimizer: optimizer.step))


class Own(torch.optim.SGD):
    """An optimizer that is not torch's."""


def test_optimizers_of_ones_own_and_those_with_hooks_are_called_as_they_are() -> None:
    weight = nn.Parameter(torch.ones(2))
    own = Own([weight], lr=0.1)
    assert plain_step(own) == own.step
    with_hook, plain = torch.optim.SGD([weight], lr=0.1), torch.optim.SGD([weight], lr=0.1)
    seen = list[str]()
    with_hook.register_step_post_hook(lambda *_: seen.append("its own"))
    weight.grad = torch.ones(2)
    plain_step(with_hook)(None)
    for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
        handle = register(lambda *_: seen.append("of all"))
        plain_step(plain)(None)
        handle.remove()
    assert seen == ["its own", "of all", "of all"]
    assert plain_step(plain) != plain.step
