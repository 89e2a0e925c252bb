"""The names of the package, which are imported when they are used."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

import esgd


def test_every_public_name_is_there() -> None:
    for name in esgd.__all__:
        assert getattr(esgd, name) is not None
        assert name in dir(esgd)


@pytest.mark.parametrize("name", ["fit", "load"])
def test_a_function_stays_one_after_its_module_was_imported(name: str) -> None:
    module = import_module(f"esgd.{name}")
    setattr(esgd, name, module)  # what Python does after it has imported the module
    assert getattr(esgd, name) is getattr(module, name)


def test_a_public_module_needs_no_import_of_its_own() -> None:
    assert esgd.testing.check_task is sys.modules["esgd.testing"].check_task


@pytest.mark.parametrize("name", ["recipes", "_nothing"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'esgd' has no attribute '{name}'"):
        getattr(esgd, name)
