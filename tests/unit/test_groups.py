"""Parameter groups: some parameters train with another learning rate or weight decay, as in torch."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
import tomli_w
import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Policy, Vmap
from esgd._algorithm.initialization import prepare, scored
from esgd._serialization import decode, encode
from esgd.errors import RecipeError
from esgd.groups import Change, Group, NoDecay, resolved, settled_groups
from esgd.operators import CarriedByMate, Never, RandomStart
from esgd.population import Population
from esgd.protocols import Setup, Step
from esgd.schedules import Cosine
from esgd.species import Fixed, Inherited, Mixture, Optimizer, Sgd
from esgd.testing import check_species
from esgd.testing.evidence import contents, difference
from tests.small import CLASSES, INPUTS, ask, classify

STEP = Step(k=1, epochs=2, backoff=Never(), before=0, total=4)
GROUPS = ["no_decay", {"head.*": {"lr_factor": 5.0, "weight_decay": 0.3}, "*.norm.*": {"lr_factor": 0.1}}]


class HouseNorm(nn.Module):
    """A normalisation as libraries write it themselves."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x / x.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt()


class NormalizedLinear(nn.Linear):
    """No normalisation layer, whatever its name has in it."""


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"first": nn.Linear(INPUTS, 7), "norm": nn.LayerNorm(7), "house": HouseNorm(7)})
        self.head = nn.Linear(7, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body["house"](self.body["norm"](self.body["first"](x)).tanh()))


def setup() -> Setup:
    return replace(prepare(classify(Layered), esgd.Recipe(population=2, offspring=0), 0), baggage=CarriedByMate())


def start(given: Setup, size: int) -> Population:
    with Loop(threads=1).open(given, lambda *tick: None) as loop:
        return scored(loop, RandomStart()(given.task, given.genome, loop, size, given.seeds.at("init")))


def trained(engine: Any, policies: list[Policy], generations: int = 1) -> Population:
    given = setup()
    population = start(given, len(policies))
    with engine.open(given, lambda *tick: None) as session:
        for k in range(1, generations + 1):
            population = session.train(population, policies, replace(STEP, k=k)).population
    return population


def test_biases_and_normalisations_are_known_by_name_and_by_class() -> None:
    network = nn.ModuleDict({"body": Layered(), "cell": nn.LSTM(2, 3), "mix": nn.MultiheadAttention(4, 2)})
    names = [name for name, _ in network.named_parameters()]
    spared = [
        name for name, change in zip(names, resolved((NoDecay(),), network, names), strict=True) if change != Change()
    ]
    assert spared == [
        *("body.body.first.bias", "body.body.norm.weight", "body.body.norm.bias", "body.body.house.scale"),
        *("body.head.bias", "cell.bias_ih_l0", "cell.bias_hh_l0", "mix.in_proj_bias", "mix.out_proj.bias"),
    ]


def test_a_later_group_overrides_an_earlier_one_in_what_it_says() -> None:
    network = Layered()
    names = [name for name, _ in network.named_parameters()]
    found = dict(zip(names, resolved(settled_groups(GROUPS), network, names), strict=True))
    assert found == {
        "body.first.weight": Change(),
        "body.first.bias": Change(None, 0.0),
        "body.norm.weight": Change(0.1, 0.0),
        "body.norm.bias": Change(0.1, 0.0),
        "body.house.scale": Change(None, 0.0),
        "head.weight": Change(5.0, 0.3),
        "head.bias": Change(5.0, 0.3),
    }


POLICIES = [
    Policy(optimizer="sgd", hyper={"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}, groups=GROUPS),
    Policy(optimizer="adamw", hyper={"lr": 0.01, "weight_decay": 0.1}, schedule=Cosine(warmup=0.3), groups=GROUPS),
    Policy(optimizer="rmsprop", hyper={"lr": 0.002, "weight_decay": 0.1}, groups=GROUPS),
    Policy(optimizer="adam", hyper={"lr": 0.01}, groups={"body.*": {"weight_decay": 0.2}}),
]


def test_every_step_is_that_of_torch_with_the_same_groups() -> None:
    population, given = trained(Loop(threads=1), POLICIES), setup()
    begin = start(given, len(POLICIES))
    classes = {name.lower(): cls for name, cls in vars(torch.optim).items()}
    for j, policy in enumerate(POLICIES):
        network = given.genome.module(begin.rows[j], {}).train()
        hyper, changes = dict(policy.hyper), {}
        if len(policy.groups) > 1:
            spared = {"weight_decay": 0.0}
            changes = {
                "body.first.bias": spared,
                "body.norm.weight": {**spared, "lr": 0.1},
                "body.norm.bias": {**spared, "lr": 0.1},
                "body.house.scale": spared,
                "head.weight": {"weight_decay": 0.3, "lr": 5.0},
                "head.bias": {"weight_decay": 0.3, "lr": 5.0},
            }
        else:
            changes = {name: {"weight_decay": 0.2} for name in given.genome.names if name.startswith("body.")}
        factors = [changes.get(name, {}).get("lr", 1.0) for name in given.genome.names]
        plain = classes[policy.optimizer](
            [
                {"params": [parameter], **{k: v for k, v in changes.get(name, {}).items() if k != "lr"}}
                for name, parameter in network.named_parameters()
            ],
            **hyper,
        )
        for s in range(2):
            for number, (x, y) in enumerate(given.task.batches(given.seeds.at("sgd", 1, j, "data", s), {})):
                moment = esgd.schedules.Moment(epoch=s + number / 3, epochs=2, before=0, total=4)
                for group, factor in zip(plain.param_groups, factors, strict=True):
                    group["lr"] = hyper["lr"] * factor * policy.schedule(moment)
                plain.zero_grad()
                F.cross_entropy(network(x), y).backward()
                plain.step()
        torch.testing.assert_close(population.rows[j], given.genome.read(network)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_many_networks_at_once_have_the_groups_of_each() -> None:
    """Rows with other groups, or none, side by side; and what is carried into the next generation."""
    policies = [*POLICIES, replace(POLICIES[0], groups=()), replace(POLICIES[1], groups="no_decay", clip_norm=0.5)]
    ours, loops = (trained(engine, policies, 2) for engine in (Vmap(chunk=6, threads=1), Loop(threads=1)))
    assert difference(contents(ours), contents(loops), tolerance=1e-4) == ""
    one_family = [POLICIES[1], replace(POLICIES[1], groups=()), POLICIES[3]]  # in one recorded step
    ours, loops = (trained(engine, one_family) for engine in (Vmap(chunk=3, threads=1), Loop(threads=1)))
    assert difference(contents(ours), contents(loops), tolerance=1e-4) == ""


@pytest.mark.parametrize("policy", POLICIES[:2], ids=str)
def test_carried_state_finds_its_parameter_whatever_the_groups(policy: Policy) -> None:
    """Groups that change nothing, but reorder torch's parameters, leave every bit and all optimizer state as it was."""
    idle = replace(
        policy,
        groups={"head.*": {"lr_factor": 1.0}, "*.norm.*": {"lr_factor": 1}, "body.first.bias": {"lr_factor": 1.0}},
    )
    plain = replace(policy, groups=())
    mixed, straight = (trained(Loop(threads=1), [each], 1) for each in (idle, plain))
    text = difference(contents(replace(mixed, policies=straight.policies)), contents(straight))
    assert text == ""
    given = setup()
    with Loop(threads=1).open(given, lambda *tick: None) as session:
        after = [session.train(one, [each], replace(STEP, k=2)) for one, each in ((mixed, plain), (straight, idle))]
    assert torch.equal(after[0].population.rows, after[1].population.rows)


def test_a_factor_of_nothing_keeps_a_layer_where_it_is() -> None:
    policy = Policy(optimizer="sgd", hyper={"lr": 0.1}, groups={"body.*": {"lr_factor": 0.0}})
    population, given = trained(Loop(threads=1), [policy]), setup()
    before, after = (given.genome.views(rows[0]) for rows in (start(given, 1).rows, population.rows))
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"head.weight", "head.bias"}


def test_species_take_every_form_and_go_through_toml() -> None:
    pool = Optimizer(name="adamw", lr=0.1, groups=GROUPS)
    assert pool.groups == (
        NoDecay(),
        Group(names="head.*", lr_factor=5.0, weight_decay=0.3),
        Group(names="*.norm.*", lr_factor=0.1),
    )
    recipe = esgd.Recipe(species=Mixture(species=(pool, Sgd(lr=0.1, groups="no_decay"), Sgd(lr=0.1))))
    assert decode(tomllib.loads(tomli_w.dumps(encode(recipe)))) == recipe
    spelt = 'kind = "adam"\nlr = 0.1\ngroups = "no_decay"\n'
    assert decode(tomllib.loads(spelt)).groups == (NoDecay(),)
    spelt = 'kind = "sgd"\nlr = 0.1\n[groups."head.*"]\nlr_factor = 2.0\n'
    assert decode(tomllib.loads(spelt)) == Sgd(lr=0.1, groups={"head.*": {"lr_factor": 2.0}})
    policy = pool(ask())
    assert decode(tomllib.loads(tomli_w.dumps({"value": encode(policy)})))["value"] == policy
    assert Policy.from_record(policy.record()) == policy
    inherited = Inherited(species=Sgd(lr=0.1), probability=1.0)(ask(k=2, inherited=policy))
    assert inherited.groups == policy.groups
    check_species(Optimizer(name="adamw", lr=0.1, groups="no_decay"))


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ("no_decya", "groups='no_decya' is not known. Did you mean 'no_decay'"),
        (3, "groups=3 is no group of parameters.*Use 'no_decay'"),
        ({"head.*": 10.0}, r"groups has 'head.\*': 10.0, which is no mapping"),
        ({"head.*": {"lr": 10.0}}, r"groups\['head.\*'\] has lr=10.0.*a group multiplies it. Use lr_factor"),
        ({"head.*": {"weight_deacy": 0}}, "Did you mean 'weight_decay'"),
        ({"head.*": {}}, "the group 'head.*' changes nothing"),
        ({"head.*": {"lr_factor": -1}}, "lr_factor=-1 is not in"),
        ({"head.*": {"weight_decay": "x"}}, "weight_decay='x' is not a number"),
        ({3: {"lr_factor": 1.0}}, "names=3 is no pattern"),
    ],
    ids=str,
)
def test_what_is_no_group_is_refused_where_it_is_written(groups: Any, says: str) -> None:
    for make in (lambda: Sgd(lr=0.1, groups=groups), lambda: Policy(optimizer="sgd", hyper={}, groups=groups)):
        with pytest.raises(RecipeError, match=says):
            make()


def test_an_optimizer_without_weight_decay_cannot_have_another_one() -> None:
    Optimizer(name="rprop", lr=0.1, groups={"*": {"lr_factor": 0.5}})
    with pytest.raises(RecipeError, match="has a weight decay, but optimizer='rprop' takes no 'weight_decay'"):
        Optimizer(name="rprop", lr=0.1, groups="no_decay")


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("head", r"Did you mean 'head.\*'"),
        ("norm.*", r"Did you mean '\*.norm.\*'"),
        ("haed.weight", "Did you mean 'head.weight'"),
        ("zzz", "Known: body.first.bias, "),
    ],
)
def test_a_pattern_that_fits_no_parameter_is_refused_before_anything_is_trained(pattern: str, hint: str) -> None:
    """Also in a species that may never be drawn, and in one inside a policy."""
    wrong = {pattern: {"lr_factor": 2.0}}
    for species in (
        Mixture(species=(Sgd(lr=0.1), Sgd(lr=0.1, groups=wrong)), weights=(1.0, 0.0)),
        Fixed(policy=Policy(optimizer="sgd", hyper={"lr": 0.1}, groups=wrong)),
    ):
        with pytest.raises(RecipeError, match=f"names no trainable parameter of this network.*{hint}"):
            esgd.evolve(classify(Layered), esgd.Recipe(species=species), seed=0)


def test_a_layer_of_weights_that_is_called_normalized_decays() -> None:
    network = nn.Sequential(NormalizedLinear(2, 2), nn.BatchNorm1d(2), HouseNorm(2))
    names = [name for name, _ in network.named_parameters()]
    assert list(NoDecay().changes(network, names)) == ["0.bias", "1.weight", "1.bias", "2.scale"]
