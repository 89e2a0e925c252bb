"""How values are spelt in TOML and JSON, and read back."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import esgd
from esgd import Policy, groups, operators, schedules, sizes, species
from esgd._serialization import decode, digest, encode
from esgd.errors import RecipeError
from esgd.groups import Group, NoDecay
from esgd.operators import (
    Anchor,
    Averaged,
    BestOf,
    BestOfLooks,
    Carried,
    CarriedByMate,
    Cloned,
    Elitist,
    Extrapolated,
    Fresh,
    FromFittest,
    Gaussian,
    GreedySoup,
    Inverse,
    LoraProduct,
    Mated,
    MeanOfElites,
    Never,
    OffspringKind,
    PerEpoch,
    PerGeneration,
    Perturbed,
    Raced,
    RandomStart,
    Rank,
    Reestimated,
    RelativeGaussian,
    Replacement,
    Rescaled,
    Roulette,
    Saved,
    Softmax,
    Truncation,
    Uninterrupted,
    anyone,
    intermediate,
    parents_only,
    trajectories,
)
from esgd.schedules import Constant, Cosine, CosineRun, Linear, Steps, Swa, Tail
from esgd.sizes import Each, Earned, Funnel, InTheLast, PerIndividual, Shared, Spending, Timed
from esgd.species import (
    Adam,
    AutoRate,
    Choice,
    Fixed,
    Inherited,
    Integers,
    Ladder,
    LogUniform,
    Mixture,
    Once,
    Optimizer,
    Sgd,
    Uniform,
)

probability = st.floats(0.01, 1)
positive = st.floats(1e-6, 1e6)
ranges = st.tuples(positive, positive).map(lambda pair: (min(pair), max(pair)))
floors = st.floats(0, 1)
breadths = st.one_of(st.none(), st.floats(1, 1e6)).map(lambda breadth: AutoRate(breadth=breadth))
counts = st.integers(0, 10**6)

any_schedule = st.one_of(
    st.just(Constant()),
    st.builds(Cosine, floor=floors, warmup=floors),
    st.builds(Linear, floor=floors, warmup=floors),
    st.builds(Tail, floor=floors, warmup=floors),
    st.builds(CosineRun, floor=floors, warmup=floors),
    st.builds(Swa, start=probability, floor=floors, warmup=floors),
    st.builds(Steps, after=st.lists(counts, max_size=3), factor=positive, warmup=floors),
)
any_distribution = st.one_of(
    ranges.map(lambda range_: Uniform(*range_)),
    ranges.map(lambda range_: LogUniform(*range_)),
    st.builds(lambda low, width: Integers(low, low + width), counts, counts),
    st.lists(st.floats(0, 1) | st.text(max_size=3) | st.booleans(), min_size=1, max_size=3).map(Choice),
    st.just(Choice((1, 2), (0.25, 0.75))),
)
keywords = st.dictionaries(st.sampled_from(["weight_decay", "foreach"]), positive | any_distribution, max_size=2)
settings = st.dictionaries(st.sampled_from(["batch_size", "dropout"]), positive | any_distribution, max_size=2)
any_group = st.just(NoDecay()) | st.builds(
    Group, names=st.text(max_size=3), lr_factor=floors, weight_decay=st.none() | positive
)
any_policy = st.builds(
    Policy,
    optimizer=st.sampled_from(["sgd", "adam"]),
    hyper=st.fixed_dictionaries({"lr": positive}),
    schedule=any_schedule,
)
common: dict[str, Any] = {
    "lr": positive | ranges | ranges.map(lambda range_: LogUniform(*range_)) | breadths,
    "gamma": st.none() | probability,
    "hyper": keywords,
    "settings": settings,
    "schedule": any_schedule,
    "clip_norm": st.none() | positive,
    "accumulate": st.integers(1, 9) | st.just(Choice((1, 2))),
    "groups": st.lists(any_group, max_size=2),
}
any_pool = st.one_of(
    st.builds(
        Sgd,
        **common,
        momentum=probability | ranges.map(lambda range_: Uniform(*range_)),
        momentum_probability=floors,
        nesterov_probability=floors,
    ),
    st.builds(Adam, **common),
    st.builds(Optimizer, name=st.sampled_from(["adamw", "rmsprop", "torch.optim:SGD"]), **common),
    st.builds(Fixed, policy=any_policy, gamma=probability),
)
any_species = st.recursive(
    any_pool,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda each: Mixture(species=each)),
        st.tuples(inner, inner).map(lambda pair: Mixture(species=pair, weights=(0.8, 0.2))),
        inner.map(lambda each: Once(species=each)),
        st.builds(Ladder, species=inner, factors=st.lists(positive, min_size=1, max_size=3).map(tuple)),
        st.builds(
            Inherited,
            species=inner,
            probability=floors,
            jitter=st.floats(0, 50),
            clip=st.none() | ranges,
            offspring_only=st.booleans(),
            returned=st.booleans(),
        ),
    ),
    max_leaves=4,
)
sigmas = st.floats(0, 10) | ranges
smoothing = st.floats(0, 5)
any_operator = st.one_of(
    st.builds(PerEpoch, probability=probability),
    st.builds(PerGeneration, probability=probability),
    st.builds(BestOf, average=st.integers(2, 9) | st.just(0)),
    st.builds(
        BestOfLooks,
        looks=st.lists(probability, max_size=3).map(tuple),
        mean=floors,
        every=st.integers(1, 9),
        ema=st.none() | positive,
    ),
    st.just(Never()),
    st.builds(Truncation, share=probability),
    st.builds(Raced, sets=st.integers(1, 9), mating=st.builds(Rank, smoothing=smoothing)),
    st.builds(Anchor, strength=probability, every=st.integers(1, 99), after=st.integers(0, 9)),
    st.builds(Extrapolated, alpha=smoothing, share=positive),
    st.builds(GreedySoup, most=st.integers(2, 9)),
    st.builds(Rescaled, step=st.floats(0.01, 1.0), most=st.integers(2, 9)),
    st.sampled_from([Uninterrupted(), Replacement(), MeanOfElites(), Mated(), Cloned(share=0.5)]),
    st.builds(Funnel, st.integers(1, 99), st.integers(1, 99)),
    st.builds(Each, st.lists(floors, min_size=1, max_size=3).map(tuple)),
    st.builds(Shared, positive),
    st.builds(PerIndividual, floors),
    st.builds(InTheLast, st.integers(1, 9)),
    st.builds(Earned, st.integers(1, 4), st.integers(4, 99)),
    st.builds(
        Timed,
        seconds=st.floats(10, 1e6),
        shares=st.lists(st.floats(1e-3, 1), min_size=1, max_size=3).map(tuple),
        pace=st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=3).map(tuple),
        rest=st.lists(st.floats(0, 1e3), min_size=1, max_size=3).map(tuple),
        start=st.floats(0, 4),
        apart=st.floats(0, 4),
    ),
    st.builds(
        Spending,
        epochs=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=3).map(tuple),
        sgd=st.lists(st.floats(1, 1e9), min_size=1, max_size=3).map(tuple),
        rest=st.lists(st.floats(0, 1e9), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Roulette, floor=positive, smoothing=smoothing),
    st.builds(Inverse, smoothing=smoothing),
    st.builds(Rank, smoothing=smoothing),
    st.builds(Softmax, temperature=positive, smoothing=smoothing),
    st.builds(Gaussian, sigma=sigmas),
    st.builds(RelativeGaussian, sigma=sigmas),
    st.builds(Elitist, rest=st.sampled_from([anyone, parents_only, trajectories]), ranked=st.booleans()),
    st.sampled_from([Fresh(), Carried(), CarriedByMate(), Averaged(), FromFittest(), RandomStart(), intermediate]),
    st.builds(Reestimated, samples=st.integers(2, 10**6)),
    st.builds(
        Perturbed,
        sigma=st.floats(0, 1),
        epochs=st.integers(0, 9),
        policy=any_policy,
        network=st.none() | st.just("a/b"),
    ),
    st.lists(st.just("runs/a.safetensors"), max_size=2).map(lambda names: Saved(networks=tuple(names))),
)
anything = st.one_of(any_schedule, any_distribution, any_policy, any_species, any_operator)


@given(anything)
def test_every_strategy_goes_through_toml_and_json_and_comes_back(value: Any) -> None:
    table = {"value": encode(value)}
    assert decode(tomllib.loads(tomli_w.dumps(table)))["value"] == value
    assert decode(json.loads(json.dumps(table)))["value"] == value


def test_no_strategy_is_left_out_of_the_round_trip() -> None:
    public = {getattr(room, name) for room in (operators, species, schedules, groups, sizes) for name in room.__all__}
    public -= {OffspringKind}  # a protocol
    spelt = {thing for thing in public if isinstance(thing, type)}
    covered = {
        *(PerEpoch, PerGeneration, BestOf, Never, Roulette, Inverse, Rank, Softmax, Gaussian, RelativeGaussian),
        *(Elitist, Fresh, Carried, CarriedByMate, Averaged, FromFittest, RandomStart, Reestimated, Perturbed, Saved),
        *(Constant, Cosine, Linear, Tail, CosineRun, Steps, Uniform, LogUniform, Integers, Choice, AutoRate),
        *(Sgd, Adam, Optimizer, Fixed, Mixture, Once, Inherited, Ladder, Uninterrupted, Replacement, Truncation),
        *(
            Raced,
            Swa,
            BestOfLooks,
            Anchor,
            Mated,
            Cloned,
            Extrapolated,
            MeanOfElites,
            GreedySoup,
            LoraProduct,
            Rescaled,
        ),
        *(Funnel, Each, Shared, PerIndividual, InTheLast, Earned, Spending, Timed, Group, NoDecay),
    }
    assert spelt == covered


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Sgd(lr=0.1), "sgd"),
        (LogUniform(1, 2), "log_uniform"),
        (PerGeneration(), "per_generation"),
        (CarriedByMate(), "carried_by_mate"),
        (esgd.FineTuning(lr=0.1), "fine_tuning"),
        (Policy(optimizer="sgd", hyper={}), "policy"),
        (trajectories, "trajectories"),
        (intermediate, "intermediate"),
    ],
)
def test_built_ins_go_by_short_names(value: Any, kind: str) -> None:
    assert encode(value)["kind"] == kind


def test_defaults_are_spelt_out_so_that_a_run_keeps_them() -> None:
    assert encode(Roulette()) == {"kind": "roulette", "floor": 0.01, "smoothing": 1.0}
    assert "gamma" not in encode(Sgd(lr=0.1)), "TOML has no None"


@dataclass(frozen=True, kw_only=True)
class Own:
    """A strategy of a user's own."""

    strength: float = 1.0
    inner: Any = None


def own_function(moment: Any) -> float:
    return 0.5


def test_a_users_own_strategies_go_by_their_full_names_and_come_back() -> None:
    spelt = encode(Own(strength=2.0, inner=Constant()))
    assert spelt == {"kind": f"{__name__}:Own", "strength": 2.0, "inner": {"kind": "constant"}}
    own = [__name__.partition(".")[0]]
    assert decode(spelt, allow=own) == Own(strength=2.0, inner=Constant())
    assert encode(own_function) == {"kind": f"{__name__}:own_function"}
    assert decode(encode(own_function), allow=own) is own_function
    assert decode(encode(Sgd(lr=0.1, schedule=own_function)), allow=own) == Sgd(lr=0.1, schedule=own_function)


def test_plain_values_are_spelt_plainly() -> None:
    assert encode({"a": (1, 2.5), "b": {"c": True}, "d": frozenset({2, 1}), "e": Path("x") / "y"}) == {
        "a": [1, 2.5],
        "b": {"c": True},
        "d": [1, 2],
        "e": "x/y",
    }
    assert decode({"a": [1, [2]], "b": {"c": True}}) == {"a": (1, (2,)), "b": {"c": True}}


def test_a_network_in_memory_is_named_by_what_it_is() -> None:
    network = nn.Linear(2, 2)
    same = nn.Linear(2, 2)
    same.load_state_dict(network.state_dict())
    assert encode(network) == encode(same) == encode(network.state_dict())
    assert digest(network.state_dict()) in encode(network)
    with torch.no_grad():
        same.weight[0, 0] += 1e-6
    assert encode(network) != encode(same)


@pytest.mark.parametrize(
    ("spelt", "says"),
    [
        ({"kind": "rouletta"}, "kind='rouletta' is not one of ours. Did you mean 'roulette'.*package.module:Class"),
        ({"kind": "xyzxyz"}, "kind='xyzxyz' is not one of ours. Known: .*roulette"),
        ({"kind": "roulette", "flor": 1}, "'flor' is not a field of 'roulette'. Did you mean 'floor'"),
        ({"kind": "sgd"}, r"'sgd' cannot be made from \{\}: .*lr"),
        ({"kind": "no.such.module:Thing"}, "'no.such.module:Thing' cannot be imported.*set PYTHONPATH"),
        ({"kind": "tests.small:nothing"}, "'tests.small:nothing' cannot be imported: module .* no attribute 'nothing'"),
        ({"kind": "roulette", "floor": -1}, "floor=-1 is not above 0"),
        ({"kind": ["os:system"]}, r"kind=\['os:system'\] is a list, not a name"),
        ({"kind": {"kind": "sgd"}}, "is a dict, not a name"),
        ({"kind": "sgd", "lr": [0.1, 0.2], "hyper": 3}, "hyper=3 is not a mapping"),
        ({"kind": "intermediate", "x": 1}, "with settings, but it is a function"),
    ],
)
def test_a_misspelt_table_is_explained(spelt: Any, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        decode(spelt, allow=["tests", "no"])


def test_what_cannot_be_written_is_refused_with_its_value_and_type() -> None:
    with pytest.raises(RecipeError, match="of type dtype cannot be written to TOML or JSON. Strategies are frozen"):
        encode(torch.float32)
    with pytest.raises(RecipeError, match="<lambda> has no importable name.*top level of a module"):
        encode(lambda moment: 1.0)


@pytest.mark.parametrize("kind", [":thing", ".relative:thing", "package.module:"])
def test_a_name_that_cannot_be_imported_is_explained(kind: str) -> None:
    with pytest.raises(RecipeError, match="cannot be imported.*Names of your own are 'package.module:thing'"):
        decode({"kind": kind}, allow=["", "package"])


def test_a_name_that_is_no_strategy_is_explained() -> None:
    with pytest.raises(RecipeError, match="'tests.small:RECORDING_SGD' is named as a strategy, but it is a str"):
        decode({"kind": "tests.small:RECORDING_SGD"}, allow=["tests"])
