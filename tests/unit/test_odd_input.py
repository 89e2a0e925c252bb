"""What no recipe can mean is refused in our own words, wherever it stands: never a traceback, a hang or a huge list."""

from __future__ import annotations

import json
from datetime import date
from math import inf, nan
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch

import pytest

from esgd import costs, work
from esgd._algorithm.steps import drawn
from esgd._serialization import decode
from esgd.errors import RecipeError
from esgd.operators import BestOf, PerEpoch, PerGeneration
from esgd.policies import Policy
from esgd.recipe import Recipe
from esgd.species import Adam, Fixed, Inherited, Mixture, Sgd
from tests.command import esgd
from tests.small import ask

POLICY = {"kind": "policy", "optimizer": "sgd", "hyper": {"lr": 0.1}}
DEEP: Any = 1
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"species": {"kind": ["sgd"], "lr": 0.1}}, "kind=['sgd'] is a list, not a name"),
        ({"species": {"kind": {"a": 1}, "lr": 0.1}}, "is a dict, not a name"),
        ({"survival": {"kind": "elitist", "rest": 3}}, "rest=3 cannot be called with (role)"),
        ({"survival": {"kind": "elitist", "rest": {"kind": "intermediate"}}}, "cannot be called with (role)"),
        ({"species": {"kind": "sgd", "lr": nan}}, "species.lr=nan is not a number. No setting of a recipe is NaN"),
        ({"species": {"kind": "sgd", "lr": inf}}, "lr=inf is not a finite number"),
        ({"species": {"kind": "sgd", "lr": -0.1}}, "lr=-0.1 is below 0"),
        ({"species": {"kind": "sgd", "lr": True}}, "lr=True is not a number"),
        ({"species": {"kind": "sgd", "lr": "fast"}}, "lr='fast' is not a number"),
        ({"species": {"kind": "sgd", "lr": {"low": 0.1}}}, "is not a number"),
        ({"species": {"kind": "sgd", "lr": 10**400}}, "species.lr=1000"),
        ({"species": {"kind": "sgd", "lr": date(2020, 1, 1)}}, "is a date or time"),
        ({"species": {"kind": "sgd", "lr": 0.1, "schedule": 3}}, "schedule=3 cannot be called with (moment)"),
        ({"species": {"kind": "sgd", "lr": 0.1, "hyper": {"weight_decay": nan}}}, "species.hyper.weight_decay=nan"),
        ({"species": {"kind": "mixture", "species": [{"lr": 0.1}]}}, "species[0]={'lr': 0.1} cannot be called"),
        ({"species": {"kind": "mixture", "species": [{"kind": "roulette"}]}}, "species[0]=Roulette("),
        ({"species": {"kind": "once", "species": 5}}, "species=5 cannot be called with (request)"),
        ({"species": {"kind": "inherited", "species": "sgd"}}, "species='sgd' cannot be called with (request)"),
        ({"species": {"kind": "fixed", "policy": {"lr": 0.1}}}, "policy={'lr': 0.1} is not a Policy"),
        ({"species": {"kind": "fixed", "policy": POLICY | {"hyper": {"lr": {}}}}}, "lr={} is not a number"),
        ({"species": {"kind": "fixed", "policy": POLICY | {"annealing": "x"}}}, "annealing='x' is not a number"),
        ({"mating": {"kind": "sgd", "lr": 0.1}}, "mating=Sgd("),
        ({"mating": {"kind": "breed"}}, "mating=<function breed"),
        ({"mates": [1, {"a": 1}]}, "does not fit population=16"),
        ({"mates": {"1": "often"}}, "does not fit population=16"),
        ({"mates": {"²": 1.0}}, "does not fit population=16"),
        ({"population": 2**63}, "population=9223372036854775808 has more digits than a machine counts with"),
        ({"early_abort": "yes"}, "early_abort='yes' is neither true nor false"),
        ({"immigrants": [3]}, "immigrants[0]=3 is not a network"),
        ({"start": {"kind": "perturbed", "network": [1]}}, "network=(1,) is not a network"),
        ({"start": {"kind": "perturbed", "network": "\0"}}, "is not a network"),
        ({"start": {"kind": "perturbed", "policy": 3}}, "policy=3 is not a Policy"),
        ({"fine_tuning": {"kind": "fine_tuning", "lr": True}}, "lr=True"),
        ({"fine_tuning": {"kind": "fine_tuning", "species": 4}}, "species=4 cannot be called"),
        ({"species": DEEP}, "species is nested too deeply"),
        ({"start": {"kind": "saved", "networks": ["\udcff"]}}, "is not text that can be written down as UTF-8"),
        ({"species": {"kind": "steps", "after": [1, 2], "factor": 1e308}}, "factor=1e+308 exceeds"),
        ({7: 1}, "7 is not an input of a recipe"),
        ([1], "[1] is not a recipe"),
        (None, "None is not a recipe"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_a_recipe_cannot_mean_is_refused(table: Any, says: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_dict(table)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 1500, "a long value is cut"


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ["0x" + "f" * 5000, "9" * 5000, "[" * 3000, "{a=" * 3000, "1e999", "nan", "2020-01-01"]
)
@pytest.mark.parametrize(
    "place", ["population", "species.species.0.lr", "species.species.0", "nowhere.at.all", "mates.²"]
)
def test_a_value_that_toml_cannot_mean_is_input_too(tmp_path: Path, place: str, value: str) -> None:
    done = esgd("explain", "digits", "--set", f"{place}={value}", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    (tmp_path / "study.toml").write_text(f"task = 'digits'\nrecipe.{place} = {value}\n")
    done = esgd("explain", "study.toml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("pool:workers=" + "9" * 5000, "too many digits"),
        ("pool:inner=0x" + "f" * 5000, "more digits than a machine counts with"),
        ("vmap:chunk=" + "[" * 3000, "nested too deeply"),
        ("vmap:chunk=[4]", "'chunk=[4]' is not a setting"),
        ("loop:device=2020-01-01", "is not a setting"),
        ("loop:device=3", "device=3 is not a name"),
        ("pool:workers=1000000000", "workers=1000000000 exceeds 4096"),
        ("loop:threads=1000000000", "threads=1000000000 exceeds 4096"),
    ],
    ids=lambda value: value[:30],
)
def test_an_engine_that_cannot_be_is_input_too(tmp_path: Path, word: str, says: str) -> None:
    done = esgd("run", "digits", "--engine", word, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_species_that_draws_no_policy_is_named() -> None:
    with pytest.raises(RecipeError, match="drew 'adam', which is no Policy"):
        drawn(lambda request: "adam", ask())  # type: ignore[arg-type,return-value]


def test_a_number_that_float32_has_not_is_refused_before_training() -> None:
    with pytest.raises(RecipeError, match=r"weight_decay=1e\+300 of a policy is too large"):
        drawn(Adam(lr=0.1, hyper={"weight_decay": 1e300}), ask())
    with pytest.raises(RecipeError, match="momentum=-1 is below 0"):
        drawn(Sgd(lr=0.1, momentum=decode({"kind": "integers", "low": -1, "high": -1}), momentum_probability=1), ask())


def test_a_policy_without_a_rate_or_annealed_to_nothing_is_drawn_afresh() -> None:
    fresh = Sgd(lr=0.1)
    for known in (Policy(optimizer="adadelta", hyper={}), Policy(optimizer="sgd", hyper={"lr": 0.0}, annealing=0.0)):
        request = ask(2, inherited=known)
        assert Inherited(species=fresh, probability=1.0)(request) == fresh(request)


def test_a_mixture_of_weights_beyond_floats_is_refused() -> None:
    with pytest.raises(RecipeError, match="do not fit 2 values"):
        Mixture(species=(Sgd(lr=0.1), Adam(lr=0.1)), weights=(1e308, 1e308))


# Numbers that are large, but can be meant

LARGE = ["generations=1000000000", "population=1000000", "sgd_epochs=1000000000", "offspring=10000000"]
LARGE += ["evolution_steps=9223372036854775807", "population=9223372036854775807"]


@pytest.mark.parametrize("word", LARGE)
def test_explain_reckons_what_nobody_could_run(tmp_path: Path, word: str) -> None:
    begun = monotonic()
    with patch.object(costs, "PROBE_SECONDS", 0.0):
        done = esgd("explain", "digits", "--set", word, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert monotonic() - begun < 60, "at once, on a machine that is busy with something else"
    value = word.partition("=")[2]
    told = json.loads(done.stdout)["cost"]
    assert max(told["sgd_epochs"], told["fitness_evaluations"]) >= int(value)


@pytest.mark.parametrize(
    ("backoff", "passes"),
    [(PerEpoch(), 10**9), (PerGeneration(), 1), (BestOf(), 10**9), (BestOf(average=3), 10**9 + 1)],
    ids=str,
)
def test_fitness_passes_of_a_very_long_sgd_step_are_those_of_its_back_off(backoff: Any, passes: int) -> None:
    assert work.measurements(backoff, 10**9) == passes


def test_a_fixed_policy_is_a_policy() -> None:
    with pytest.raises(RecipeError, match="policy='sgd' is not a Policy"):
        Fixed(policy="sgd")  # type: ignore[arg-type]
