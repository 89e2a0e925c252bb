"""A policy: an optimizer with everything that was drawn for it."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esgd import Policy
from esgd.errors import RecipeError
from esgd.operators import Perturbed
from esgd.policies import check_trainable, optimizer_class
from esgd.schedules import Constant, Cosine, Steps, Tail
from tests.small import RECORDING_SGD, RecordingSgd

numbers = st.floats(allow_nan=False, allow_infinity=False)
values = numbers | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5) | st.tuples(numbers, numbers)
names = st.sampled_from(["lr", "momentum", "nesterov", "betas", "weight_decay", "eps"])
policies = st.builds(
    Policy,
    optimizer=st.sampled_from(["sgd", "adam", "adamw", RECORDING_SGD]),
    hyper=st.dictionaries(names, values).map(lambda hyper: {**hyper, "lr": 0.1} if "lr" in hyper else hyper),
    settings=st.dictionaries(st.sampled_from(["batch_size", "dropout", "model"]), values),
    schedule=st.sampled_from([Constant(), Cosine(), Tail(floor=0.5), Steps(after=(80, 121))]),
    annealing=st.floats(0.001, 1),
    clip_norm=st.none() | st.floats(0.1, 10),
)


@given(policies)
def test_a_record_is_one_json_object_and_loses_nothing(policy: Policy) -> None:
    line = json.dumps(policy.record(), allow_nan=False)
    assert Policy.from_record(json.loads(line), allow=["tests"]) == policy


def test_a_record_is_flat_and_names_only_what_is_set() -> None:
    policy = Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9})
    assert policy.record() == {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9}
    annealed = Policy(optimizer="sgd", hyper={"lr": 0.1}, annealing=0.5, clip_norm=1.0, settings={"batch_size": 8})
    assert annealed.record() == {
        "optimizer": "sgd",
        "lr": 0.1,
        "settings": {"batch_size": 8},
        "annealing": 0.5,
        "clip_norm": 1.0,
    }


def test_a_policy_prints_as_the_papers_table_of_leaders_does() -> None:
    assert str(Policy(optimizer="adam", hyper={"lr": 2.68e-4})) == "adam lr=0.000268"
    sgd = Policy(optimizer="sgd", hyper={"nesterov": False, "lr": 3.61e-4, "momentum": 0.0})
    assert str(sgd) == "sgd nesterov=False lr=0.000361 momentum=0"
    assert str(Policy(optimizer="sgd", hyper={"lr": 1.0}, settings={"batch_size": 20})) == "sgd lr=1 batch_size=20"


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("sgd", torch.optim.SGD),
        ("SGD", torch.optim.SGD),
        ("rmsprop", torch.optim.RMSprop),
        ("torch.optim:NAdam", torch.optim.NAdam),
        (RECORDING_SGD, RecordingSgd),
    ],
)
def test_an_optimizer_is_named_by_its_class(name: str, cls: type) -> None:
    assert optimizer_class(name) is cls


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("adm", "optimizer='adm' is not in torch.optim. Did you mean 'adam'.*For a class of your own write"),
        ("zzz", "optimizer='zzz' is not in torch.optim. Known: .*adamw"),
        ("nowhere.at.all:Best", "'nowhere.at.all:Best' cannot be imported.*set PYTHONPATH"),
        ("torch.optim:Nothing", "'torch.optim:Nothing' cannot be imported"),
        ("torch:Tensor", "'torch:Tensor' is <class 'torch.Tensor'>, not a torch.optim.Optimizer class"),
        ("math:pi", "'math:pi' is 3.14.*not a torch.optim.Optimizer class"),
    ],
)
def test_an_unknown_optimizer_is_explained(name: str, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        optimizer_class(name)


@pytest.mark.parametrize(
    ("hyper", "sentence"),
    [
        ({"lr": 0.1, "momentum": 0.9, "nesterov": "yes"}, "nesterov='yes' of 'sgd' is neither true nor false"),
        ({"lr": 0.1, "maximize": 1}, "maximize=1 of 'sgd' is neither true nor false"),
        ({"lr": 0.1, "momentum": 0.9, "dampening": "none"}, "dampening='none' of 'sgd' is not a number"),
    ],
)
def test_what_torch_would_refuse_in_its_first_step_is_refused_before(hyper: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        check_trainable(Policy(optimizer="sgd", hyper=hyper))
    with pytest.raises(RecipeError, match=sentence):
        Perturbed(policy=Policy(optimizer="sgd", hyper=hyper))


def test_optimizers_of_ones_own_take_what_they_like() -> None:
    check_trainable(Policy(optimizer=RECORDING_SGD, hyper={"lr": 0.1, "nesterov": "yes"}))
