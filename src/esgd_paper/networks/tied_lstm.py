"""The language model of the Penn Treebank experiment: an LSTM whose embedding is its output layer, too."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TiedLstm(nn.Module):
    """Embedding, one LSTM layer of the same width, and the embedding again as the output layer.

    Tokens (time, streams) → outputs before the softmax (time, streams, words), and the state (h, c) of the last step.

    Dropout in training, each ratio an attribute that a policy may set. Masks are drawn once for a window, and all its
    steps share them.

    | ratio               | what is dropped                                     |
    |---------------------|-----------------------------------------------------|
    | `dropout_embedding` | words: rows of the embedding                        |
    | `dropout_input`     | units of what enters the LSTM, other ones per stream |
    | `dropout_weights`   | entries of the recurrent matrix (DropConnect)       |
    | `dropout_hidden`    | units of what leaves the LSTM, other ones per stream |
    """

    def __init__(
        self,
        words: int,
        width: int,
        *,
        dropout_embedding: float = 0.0,
        dropout_input: float = 0.0,
        dropout_weights: float = 0.0,
        dropout_hidden: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width)
        self.bias = nn.Parameter(torch.zeros(words))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.dropout_embedding, self.dropout_input = dropout_embedding, dropout_input
        self.dropout_weights, self.dropout_hidden = dropout_weights, dropout_hidden

    def forward(
        self, tokens: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        entering = self.embedding(tokens)
        if self.training and self.dropout_embedding:
            entering = entering * F.dropout(entering.new_ones(len(self.bias)), self.dropout_embedding)[tokens, None]
        hidden, state = self._recur(self._locked(entering, self.dropout_input), state)
        return F.linear(self._locked(hidden, self.dropout_hidden), self.embedding.weight, self.bias), state

    def _recur(self, entering: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The LSTM with a thinned recurrent matrix: torch's own kernel, given other weights than those of its layer."""
        weights: dict[str, Tensor] = dict(self.lstm.named_parameters())
        if self.training and self.dropout_weights:
            weights["weight_hh_l0"] = F.dropout(weights["weight_hh_l0"], self.dropout_weights)
        if state is None:
            nothing = entering.new_zeros(1, entering.shape[1], entering.shape[2])
            state = nothing, nothing
        # `train` decides whether what a gradient needs is kept: also in eval mode (expectation-linear dropout)
        h, *left = torch.lstm(
            entering, state, list(weights.values()), True, 1, 0.0, torch.is_grad_enabled(), False, False
        )
        return h, (left[0], left[1])

    def _locked(self, values: Tensor, ratio: float) -> Tensor:
        """Variational dropout: values (time, streams, width) with one mask (streams, width) for all steps."""
        return values * F.dropout(values.new_ones(values.shape[1:]), ratio) if self.training and ratio else values
