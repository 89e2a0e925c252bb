"""What a trained population is good for: its best networks, an ensemble of them, or their average."""

from esgd.deploy.candidates import candidates
from esgd.deploy.ensemble import Ensemble
from esgd.deploy.greedy import greedy_ensemble
from esgd.deploy.soup import Soup, greedy_soup

__all__ = ["Ensemble", "Soup", "candidates", "greedy_ensemble", "greedy_soup"]
