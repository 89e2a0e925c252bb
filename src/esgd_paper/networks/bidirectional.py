"""The bidirectional LSTM of SWB300."""

from __future__ import annotations

from torch import Tensor, nn


class BidirectionalLstm(nn.Module):
    """LSTM layers, a linear bottleneck and a softmax that the loss has.

    (chunks, frames, features) → (chunks, frames, states)
    """

    def __init__(self, features: int, *, layers: int, cells: int, bottleneck: int, states: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, cells, num_layers=layers, batch_first=True, bidirectional=True)
        self.bottleneck = nn.Linear(2 * cells, bottleneck)
        self.output = nn.Linear(bottleneck, states)

    def forward(self, frames: Tensor) -> Tensor:
        hidden, _ = self.lstm(frames)
        states: Tensor = self.output(self.bottleneck(hidden))
        return states
