"""Studies: the arms to compare, and the built-in tasks to compare them on."""

from esgd.deploy.soup import Soup, greedy_soup
from esgd.studies.arms import arms
from esgd.studies.compare import begin, compare, founded
from esgd.studies.contest import compete
from esgd.studies.datasets import download
from esgd.studies.finding import find_study
from esgd.studies.study import Rehearsal, Scale, Single, Study, by_rules, with_rules

__all__ = [
    "Rehearsal",
    "Scale",
    "Single",
    "Soup",
    "Study",
    "arms",
    "begin",
    "by_rules",
    "compare",
    "compete",
    "download",
    "find_study",
    "founded",
    "greedy_soup",
    "with_rules",
]
