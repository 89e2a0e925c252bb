"""Several networks as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from esgd.errors import TaskError, did_you_mean, shown
from esgd.protocols import Average


class Ensemble(nn.Module):
    """Several networks as one: every input goes through all of them, and their outputs are averaged.

    | `average`   | the networks' outputs are    | what is averaged                | the ensemble's outputs are        |
    |-------------|------------------------------|---------------------------------|-----------------------------------|
    | `"softmax"` | logits or log-probabilities  | probabilities of the classes,   | logits: log-probabilities         |
    |             | of classes in dimension 1    | softmax of the outputs          |                                   |
    | `"sigmoid"` | logits of yes or no          | probabilities, sigmoid of them  | logits                            |
    | `"outputs"` | anything else                | the outputs as they are         | as those of one network           |

    The same loss and metrics that take the output of one network take that of the ensemble, and `softmax` or `sigmoid`
    of it are the mean probabilities. A forward pass costs as much as one of each network: `len(ensemble)` of them.
    `fitness` is that on the split which the networks were chosen by; None for networks of your own choice.

    >>> two = Ensemble([nn.Linear(3, 2), nn.Linear(3, 2)], average="softmax")
    >>> len(two), two(torch.zeros(5, 3)).exp().sum(dim=1).allclose(torch.ones(5))
    (2, True)
    """

    def __init__(self, networks: Iterable[nn.Module], *, average: Average = "outputs") -> None:
        super().__init__()
        if average not in list(_AVERAGES):
            known = ", ".join(repr(each) for each in get_args(Average))
            raise TaskError(
                f"average={shown(average)} is no way to average outputs. {did_you_mean(str(average), _AVERAGES)} It "
                f"says what the outputs of the networks are: one of {known}."
            )
        self.networks = nn.ModuleList(networks)
        if not len(self.networks):
            raise TaskError("an ensemble of no networks has no output. Give it at least one.")
        self.average: Average = average
        self.fitness: float | None = None

    def __len__(self) -> int:
        return len(self.networks)

    def extra_repr(self) -> str:
        return f"mean of {self.average} of {len(self)} networks"

    def forward(self, *inputs: Any, **named: Any) -> Any:
        outputs = [network(*inputs, **named) for network in self.networks]
        if self.average != "outputs" and not isinstance(outputs[0], Tensor):
            raise TaskError(
                f"the networks return a {type(outputs[0]).__name__}, and average={self.average!r} is for one tensor. "
                f"Use average='outputs', which averages every tensor in it, or wrap the networks."
            )
        return pytree.tree_map(lambda *each: _AVERAGES[self.average](each), *outputs)


def _softmax(outputs: Sequence[Tensor]) -> Tensor:
    """log of the mean of softmax(o); the sum is taken among logarithms, so that small probabilities do not vanish."""
    logs = torch.stack([F.log_softmax(output, dim=1) for output in outputs])
    return logs.logsumexp(dim=0) - log(len(outputs))


def _sigmoid(outputs: Sequence[Tensor]) -> Tensor:
    """log(p / (1 − p)) for the mean p of sigmoid(o)."""
    stacked = torch.stack(list(outputs))
    return F.logsigmoid(stacked).logsumexp(dim=0) - F.logsigmoid(-stacked).logsumexp(dim=0)


def _outputs(outputs: Sequence[Any]) -> Any:
    """The mean of tensors of numbers; what is none, such as a length, must be the same for all."""
    first = outputs[0]
    if isinstance(first, Tensor) and (first.is_floating_point() or first.is_complex()):
        return torch.stack(list(outputs)).mean(dim=0)
    return first


_AVERAGES: dict[str, Callable[[Sequence[Any]], Any]] = {"softmax": _softmax, "sigmoid": _sigmoid, "outputs": _outputs}
