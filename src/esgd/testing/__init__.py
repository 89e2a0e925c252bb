"""Conformance suites for your own plug-ins: each `check_*` raises an AssertionError that says what is broken."""

from esgd.testing.backoff import check_backoff
from esgd.testing.engine import check_engine
from esgd.testing.mating import check_mating
from esgd.testing.mutation import check_mutation
from esgd.testing.recombination import check_recombination
from esgd.testing.species import check_species
from esgd.testing.survival import check_survival
from esgd.testing.task import check_task

__all__ = [
    "check_backoff",
    "check_engine",
    "check_mating",
    "check_mutation",
    "check_recombination",
    "check_species",
    "check_survival",
    "check_task",
]
