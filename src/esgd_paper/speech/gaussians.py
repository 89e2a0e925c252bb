"""One Gaussian for every state: the model that finds the first alignment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esgd_paper.speech.features import Features
from esgd_paper.speech.viterbi import Scores, States

VARIANCE_FLOOR = 0.05  # of features with variance 1: a state seen a few times only stays wide enough to be seen again


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Means and variances, (states, d). A state that was never seen looks like speech as a whole."""

    means: NDArray[np.float64]
    variances: NDArray[np.float64]

    @staticmethod
    def fitted(features: Features, states: States, *, count: int) -> Gaussians:
        """The most likely ones for frames (n, d) of states (n,), with variances no smaller than a floor."""
        seen = np.bincount(states, minlength=count)

        def averaged(values: NDArray[np.float64]) -> NDArray[np.float64]:
            sums = [np.bincount(states, weights=column, minlength=count) for column in values.T]
            overall = values.mean(axis=0)
            return np.where(seen[:, None] > 0, np.stack(sums, axis=1) / np.maximum(seen, 1)[:, None], overall)

        wide = features.astype(np.float64, order="F")  # columns are added up one by one
        means = averaged(wide)
        return Gaussians(means, np.maximum(averaged(wide**2) - means**2, VARIANCE_FLOOR))

    def log_likelihoods(self, features: Features) -> Scores:
        """log N(x; mean, variance) of each frame and state: (frames, states). A square written out as two products."""
        wide, precisions = features.astype(np.float64), 1 / self.variances
        constant = (self.means**2 * precisions + np.log(2 * np.pi * self.variances)).sum(axis=1)
        scores: Scores = wide @ (self.means * precisions).T - 0.5 * (wide**2 @ precisions.T + constant)
        return scores
