"""Words as a test of an acoustic network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from esgd_paper.speech.scoring import Recogniser

PIECE = 2048  # inputs that go through a network at once when words are recognised


@dataclass(frozen=True, eq=False)
class Recognition:
    """The word error rate as a metric of a network: whole utterances, and what recognises the words in its answer.

    The network makes (n, states) or (n, frames, states) of `inputs`. Flattened to rows of frames, `places` says which
    rows are the frames of each utterance.
    """

    inputs: Tensor
    places: tuple[NDArray[np.int64], ...]
    recogniser: Recogniser

    def __call__(self, network: nn.Module) -> float:
        """The share of wrong words; the network is in eval mode, and gradients are off."""
        device = next(network.parameters()).device
        answers = [F.log_softmax(network(piece.to(device)), dim=-1).cpu() for piece in self.inputs.split(PIECE)]
        rows = torch.cat(answers).flatten(0, -2).float().numpy()
        return self.recogniser.word_error_rate([rows[place] for place in self.places])

    def describe(self) -> dict[str, Any]:
        judge = self.recogniser
        scales = {"scale": judge.scale, "prior_weight": judge.prior_weight}
        return {"utterances": len(judge.references), "words": sum(map(len, judge.references)), **scales}
