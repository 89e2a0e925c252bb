"""What is read from a file names our own values, and code of packages that the caller allows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import esgd
from esgd._names.trust import packages
from esgd._serialization import decode
from esgd.errors import ForeignCodeError, RecipeError
from esgd.policies import Policy
from esgd.recipe import Recipe
from esgd.sizes import Each
from esgd.species import Optimizer, Sgd
from tests.small import RECORDING_SGD

PAYLOAD = """
from dataclasses import dataclass
from os import system
from pathlib import Path
from subprocess import run
Path(__file__).with_name("canary").touch()

@dataclass(frozen=True, kw_only=True)
class Strategy:
    strength: float = 1.0

class Plain:
    def __init__(self, **arguments):
        Path(__file__).with_name("called").touch()

def function(**arguments):
    Path(__file__).with_name("called").touch()
"""


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `payload` that leaves a file when it is imported."""
    (tmp_path / "payload.py").write_text(PAYLOAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "canary"
    sys.modules.pop("payload", None)


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "subprocess:Popen", "posix:system", "runpy:run_path"])
@pytest.mark.parametrize("allow", [[], ["os", "builtins", "subprocess", "posix", "runpy"]], ids=["", "allowed"])
def test_code_of_python_itself_is_never_named(name: str, allow: list[str]) -> None:
    with pytest.raises(ForeignCodeError, match=f"'{name}' names code of Python itself"):
        decode({"kind": name, "command": "exit 1"}, allow=allow)


def test_a_foreign_name_is_refused_before_anything_is_imported(canary: Path) -> None:
    with pytest.raises(ForeignCodeError, match=r"package 'payload'.*--allow-code payload.*allow=\['payload'\]"):
        decode({"kind": "payload:Strategy"})
    assert not canary.exists()
    assert decode({"kind": "payload:Strategy", "strength": 2.0}, allow=["payload"]).strength == 2.0
    assert canary.exists()


@pytest.mark.parametrize(
    ("spelt", "says"),
    [
        ({"kind": "payload:function", "path": "x"}, "Strategies are dataclasses, or functions without settings"),
        ({"kind": "payload:Plain"}, "Strategies are dataclasses"),
        ({"kind": "payload:run", "args": "x"}, "'subprocess:run' names code of Python itself"),
        ({"kind": "payload:system"}, "is named as a strategy, but it is a builtin_function"),
        ({"kind": "payload:Path"}, "'pathlib:Path' names code of Python itself"),
    ],
)
def test_reading_calls_no_function_also_of_an_allowed_package(canary: Path, spelt: Any, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        decode(spelt, allow=["payload"])
    assert not canary.with_name("called").exists()


@pytest.mark.parametrize(
    "name", ["esgd.__main__:main", "esgd.cli.app:run", "esgd.run.files:remove", "esgd._export:export", "torch:load"]
)
def test_of_our_own_code_only_strategies_may_be_named(name: str) -> None:
    with pytest.raises(ForeignCodeError, match="names code of the package"):
        decode({"kind": name})


@pytest.mark.parametrize("allow", ["payloa", "payload.inner", "loads"])
def test_a_package_is_allowed_by_its_whole_name(canary: Path, allow: str) -> None:
    with pytest.raises(ForeignCodeError):
        decode({"kind": "payload:Strategy"}, allow=[allow])
    assert not canary.exists()


@pytest.mark.parametrize(
    "table",
    [
        {"species": "payload:Best"},
        {"species": {"kind": "optimizer", "name": "payload:Best", "lr": 0.1}},
        {"species": {"kind": "fixed", "policy": {"kind": "policy", "optimizer": "payload:Best", "hyper": {"lr": 0.1}}}},
        {"species": {"kind": "sgd", "lr": 0.1, "schedule": {"kind": "payload:function"}}},
        {"species": {"kind": "mixture", "species": [{"kind": "sgd", "lr": {"kind": "payload:Plain"}}]}},
        {"start": {"kind": "perturbed", "policy": {"kind": "policy", "optimizer": "payload:Best", "hyper": {}}}},
        {"immigrants": [{"kind": "payload:Strategy"}]},
        {"mates": {"kind": "payload:Strategy"}},
    ],
)  # fmt: skip
def test_no_place_in_a_recipe_lets_foreign_code_in(canary: Path, table: dict[str, Any]) -> None:
    with pytest.raises(ForeignCodeError, match="'payload:"):
        Recipe.from_dict(table)
    assert not canary.exists()


def test_a_policys_record_may_not_bring_an_optimizer_along(canary: Path) -> None:
    for record in ({"optimizer": "payload:Best"}, {"optimizer": "sgd", "schedule": {"kind": "payload:function"}}):
        with pytest.raises(ForeignCodeError):
            Policy.from_record({"lr": 0.1, **record})
    assert not canary.exists()


def test_optimizers_of_torch_need_no_word(canary: Path) -> None:
    assert Policy.from_record({"optimizer": "torch.optim:NAdam", "lr": 0.1}).optimizer == "torch.optim:NAdam"


@dataclass(frozen=True, kw_only=True)
class Own:
    inner: Any = None


def own(moment: Any) -> float:
    return 1.0


def test_by_passing_a_value_its_packages_are_allowed() -> None:
    here = __name__.partition(".")[0]
    assert packages(Recipe()) == set()
    assert packages(Sgd(lr=0.1, schedule=own)) == {here}
    assert packages({"a": [Own(inner=Optimizer(name=RECORDING_SGD, lr=0.1))]}) == {here, "tests"}


def test_deep_tables_are_refused_in_words() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecipeError, match="nested too deeply"):
        decode(deep)


def test_the_public_error_is_an_esgd_error() -> None:
    assert issubclass(ForeignCodeError, esgd.EsgdError)


def test_sizes_are_ours_and_a_recipe_allows_no_code_of_ours_that_makes_no_value() -> None:
    assert packages(esgd.Recipe(population=Each((4, 2)), elites=1.0)) == set()
    with pytest.raises(ForeignCodeError):
        decode({"kind": "esgd.run.files:remove"}, allow=packages(esgd.Recipe(population=Each((4, 2)), elites=1.0)))
