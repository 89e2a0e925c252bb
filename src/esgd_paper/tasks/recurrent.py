"""The state that a recurrent network carries from window to window while it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from esgd.errors import TaskError
from esgd_paper.tasks.dropout import DROPOUT_MODELS, DropoutModel

State = Any
"""What a recurrent network hands on: tensors, or tuples of them; None at the beginning."""


@dataclass
class Luggage:
    """What a network has with it while it is trained, and nowhere else.

    `states` holds what the last window began with and what it ended with, so that an optimizer may look at a window
    more than once. `ratios` are the dropout ratios that make_model chose.
    """

    ratios: dict[str, float]
    dropout_model: DropoutModel = DROPOUT_MODELS["standard"]
    states: dict[int, State] = field(default_factory=dict)

    def entering(self, number: int) -> State:
        if number == 0:
            return None
        if number not in self.states:
            raise TaskError(
                f"window {number} of an epoch came without the one before, so there is no state to begin with. Windows "
                f"are trained one after the other, as batches() deals them."
            )
        return self.states[number]


def luggage_of(module: nn.Module) -> Luggage:
    """What a network has with it, now and from now on."""
    ratios = {name: value for name, value in vars(module).items() if name.startswith("dropout_")}
    luggage: Luggage = module.__dict__.setdefault("luggage", Luggage(ratios))
    return luggage


def detached(state: State) -> State:
    """The state without its gradient."""
    return state.detach() if isinstance(state, Tensor) else tuple(detached(each) for each in state)
