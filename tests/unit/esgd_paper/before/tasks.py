"""The tasks of the run folders in this fixture, in double precision: the rounding of another processor is small."""

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.operators import PerEpoch
from esgd.policies import Policy
from esgd.species import Adam, Mixture, Sgd
from esgd_paper.networks.tied_lstm import TiedLstm
from esgd_paper.species.acoustic import HandedDown
from esgd_paper.species.patient import Patient
from esgd_paper.species.plateau import Plateau
from esgd_paper.tasks.language import LanguageModel

TEXT = torch.randint(7, (400,), generator=torch.Generator().manual_seed(0)).sort().values.view(20, 20).T.reshape(-1)
X = torch.randn(96, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = (X[:, 0] > 0).long()

language = LanguageModel(
    lambda: TiedLstm(7, 4).double(), vocabulary=7, train=TEXT, fitness=TEXT[:200], batch_size=5, bptt=6
)
classes = esgd.Supervised(
    lambda: nn.Linear(6, 2).double(), F.cross_entropy, train=(X[:64], Y[:64]), fitness=(X[64:], Y[64:]), batch_size=8
)

pools = Mixture(species=(Sgd(lr=(0.1, 3.0)), Adam(lr=(1e-3, 1e-2))))
patient = esgd.Recipe(
    population=3,
    offspring=4,
    generations=4,
    sgd_epochs=3,
    species=HandedDown(species=Patient(species=pools, patience=2), ranges={"sgd": (0.1, 3.0)}),
)
single = esgd.Recipe(
    population=1,
    elites=1,
    mates=1,
    offspring=0,
    evolution_steps=0,
    generations=8,
    sgd_epochs=1,
    backoff=PerEpoch(),
    species=Plateau(policy=Policy(optimizer="sgd", hyper={"lr": 30.0}), patience=0, factor=0.5),
)
