"""The names of the package, which are imported when they are used."""

from __future__ import annotations

import sys

import pytest

import esgd


def test_every_public_name_is_there() -> None:
    for name in esgd.__all__:
        assert getattr(esgd, name) is not None
        assert name in dir(esgd)


def test_fit_is_the_function_also_after_its_module_was_imported() -> None:
    setattr(esgd, "fit", sys.modules["esgd.fit"])  # noqa: B010  # what Python does after it has imported the module
    assert esgd.fit is sys.modules["esgd.fit"].fit


def test_a_public_module_needs_no_import_of_its_own() -> None:
    assert esgd.testing.check_task is sys.modules["esgd.testing"].check_task


@pytest.mark.parametrize("name", ["recipes", "_nothing"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'esgd' has no attribute '{name}'"):
        getattr(esgd, name)
