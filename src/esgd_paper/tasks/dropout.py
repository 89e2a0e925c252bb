"""Dropout models of a language model: what is minimised in an epoch, beside the cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class DropoutModel:
    """What is minimised in an epoch: cross-entropy + κ · mean (z − z')², with z and z' the outputs before the softmax
    of two passes over the same window.

    | field     | meaning                                                                       |
    |-----------|-------------------------------------------------------------------------------|
    | `twin`    | the second pass: none, one with dropout masks of its own, or one without      |
    | `both`    | whether both passes predict the targets, each for half of the cross-entropy   |
    | `penalty` | κ                                                                             |
    """

    twin: Literal["none", "dropped", "clean"] = "none"
    both: bool = False
    penalty: float = 0.0


DROPOUT_MODELS: Mapping[str, DropoutModel] = {
    "standard": DropoutModel(),
    "fraternal": DropoutModel(twin="dropped", both=True, penalty=0.15),
    "expectation_linear": DropoutModel(twin="clean", penalty=0.25),
    "pi": DropoutModel(twin="dropped", penalty=0.15),
}
"""Fraternal dropout (Zolna et al., 2018), expectation-linear dropout (Ma et al., 2017), the Π-model (Laine and Aila,
2017). Each κ is the one that Zolna et al. publish with their code for the one-layer LSTM."""
