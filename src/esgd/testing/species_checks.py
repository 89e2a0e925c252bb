"""Does a species draw policies as Algorithm 1's "pick an optimizer, select hyper-parameters" asks?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite

import torch
from torch import nn

from esgd.engines.optimizers import build_optimizer
from esgd.policies import Policy
from esgd.protocols import Draw, Fared, Species
from esgd.randomness import Seeds
from esgd.schedules import Moment
from esgd.testing.evidence import expect, leaves_global_randomness_alone, passing_on_errors

INDIVIDUALS = 6


def check_species(species: Species, *, generations: int = 4) -> None:
    """The same draw must give the same policy, in any order; every policy must be able to train and to be written down.

    >>> from esgd.species import Adam
    >>> check_species(Adam(lr=(1e-4, 1e-2)))
    """
    past: list[Fared] = []
    parents: list[Policy | None] = [None] * INDIVIDUALS
    for k in range(1, generations + 1):
        draws = [
            Draw(k=k, j=j, generations=generations, stream=Seeds(0, ("policy",)), inherited=parents[j], past=past[:])
            for j in range(INDIVIDUALS)
        ]
        with (
            leaves_global_randomness_alone("the species"),
            passing_on_errors(f"in generation {k} no policy can be drawn"),
        ):
            policies = [species(draw) for draw in draws]
        for policy in policies:
            _check_policy(policy, f"generation {k}")
        _check_order(species, draws, policies)
        past += [Fared(k=k, policy=policy, before=1.0, after=0.9, accepted=True) for policy in policies]
        parents = list(policies)


def _check_order(species: Species, draws: Sequence[Draw], policies: Sequence[Policy]) -> None:
    for draw, policy in reversed(list(zip(draws, policies, strict=True))):
        again = species(draw)
        expect(
            again == policy,
            f"for k={draw.k}, j={draw.j} the species drew {policy} and, asked in another order, {again}. A draw must "
            f"depend on nothing but its argument: take randomness from draw.seeds and keep no state.",
        )


def _check_policy(policy: Policy, where: str) -> None:
    expect(isinstance(policy, Policy), f"the species returned {policy!r} instead of an esgd.Policy.")
    lr = policy.hyper.get("lr")
    expect(
        isinstance(lr, float | int) and isfinite(lr) and lr >= 0,
        f"in {where} the learning rate of {policy} is {lr!r}. The one that is applied is recorded: put a finite number "
        f"≥ 0 into hyper['lr'].",
    )
    expect(
        isfinite(policy.annealing) and policy.annealing > 0,
        f"in {where} the annealing of {policy} is {policy.annealing}. It is the factor γ^k inside lr: above 0.",
    )
    expect(
        policy.clip_norm is None or policy.clip_norm > 0,
        f"in {where} clip_norm of {policy} is {policy.clip_norm}. It is the largest gradient norm: above 0, or None.",
    )
    for epoch in (0.0, 0.5, 1.0, 2.9):
        factor = policy.schedule(Moment(epoch=epoch, epochs=3, before=3, total=9))
        expect(
            isfinite(factor) and factor >= 0,
            f"in {where} the schedule {policy.schedule} is {factor} at epoch {epoch} of 3. It multiplies lr: a finite "
            f"number ≥ 0.",
        )
    with passing_on_errors(f"in {where} {policy} cannot be written down"):
        read = Policy.from_record(json.loads(json.dumps(policy.record())))
    expect(
        read == policy,
        f"in {where} {policy} comes back from its history line as {read}. A resumed run would continue with another "
        f"policy. Use plain numbers, strings and tuples, and frozen dataclasses or module-level functions.",
    )
    _check_trainable(policy)


def _check_trainable(policy: Policy) -> None:
    """The optimizer can be built, and takes a step."""
    network = nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.1)
    with passing_on_errors(f"nothing can be trained with {policy}"):
        optimizer = build_optimizer(list(network.parameters()), policy)

    def closure() -> float:
        optimizer.zero_grad()
        loss = network(torch.ones(4, 3)).square().mean()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
