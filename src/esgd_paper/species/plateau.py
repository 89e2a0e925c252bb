"""How a single baseline's learning rate is annealed: by what its last epochs did to the fitness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from esgd._validation import check_field
from esgd.policies import Policy, check_policy
from esgd.protocols import Draw

_PATIENCE = "It counts epochs until the learning rate drops. Use 0 to drop it at once, 20 as Zolna et al. do."
_FACTOR = "The learning rate is multiplied by it at each drop. Use 0.5 as §4.1 does, 1/3 as Zolna et al. do."


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """One policy, whose learning rate drops by `factor` after more than `patience` epochs in a row that were worse.

    An epoch is worse if it was backed off, diverged, or ended above the best fitness so far; the first one is compared
    with the start. A tie is not worse: neither is the rate annealed nor the model backed off.

    For a population of one and generations of one epoch. With `patience=0` and the back-off `PerEpoch` this is "the
    learning rate is annealed by 2x every time the loss on the validation set of the current epoch is worse than the
    previous epoch and meanwhile the model is backed off" (§4.1): after a back-off the previous epoch is the best one.
    """

    policy: Policy
    patience: int = 0
    factor: float = 0.5

    def __post_init__(self) -> None:
        check_policy(self.policy, with_rate=True)
        check_field(self, "patience", at_least=0, whole=True, meaning=_PATIENCE)
        check_field(self, "factor", above=0, at_most=1, meaning=_FACTOR)

    def __call__(self, request: Draw) -> Policy:
        best, waited, drops = inf, 0, 0
        for epoch in request.past:
            best = min(best, epoch.before)
            worse = not epoch.accepted or not epoch.after <= best or epoch.after == inf
            waited = waited + 1 if worse else 0
            best = min(best, epoch.after)
            if waited > self.patience:
                waited, drops = 0, drops + 1
        annealing = self.factor**drops
        hyper = {**self.policy.hyper, "lr": self.policy.hyper["lr"] * annealing}
        return replace(self.policy, hyper=hyper, annealing=annealing)
