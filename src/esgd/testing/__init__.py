"""Conformance suites for your own plug-ins: each `check_*` raises an AssertionError that says what is broken."""

from esgd.testing.backoff_checks import check_backoff
from esgd.testing.engine_checks import check_engine
from esgd.testing.mating_checks import check_mating
from esgd.testing.mutation_checks import check_mutation
from esgd.testing.recombination_checks import check_recombination
from esgd.testing.species_checks import check_species
from esgd.testing.survival_checks import check_survival
from esgd.testing.task_checks import check_task

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
