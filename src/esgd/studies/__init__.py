"""Studies: the arms to compare, and the built-in tasks to compare them on."""

from esgd.studies.arms import arms
from esgd.studies.compare import compare
from esgd.studies.soup import Soup, greedy_soup
from esgd.studies.study import Study, find_study

__all__ = ["Soup", "Study", "arms", "compare", "find_study", "greedy_soup"]
