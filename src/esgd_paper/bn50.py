"""BN50 (§4.1 and supplement B): a fully connected network that tells the state of a frame from its neighbourhood.

At the paper's scale: 9 frames of 40 features, hidden layers of 1024 × 5 and 512 units, ReLU in the bottom three and
sigmoid above, 5,000 states. The 50 hours of Broadcast News are the LDC's, so users bring frames, as files in a folder
that --data names (or its folder `bn50`), in one of two forms that `data/frames.py` describes:

    train.npz, heldout.npz, test.npz                       features (N, 40), states (N,), offsets, names
    train/feats.scp, train/pdf.scp, heldout/…, test/…      Kaldi's features and pdf-ids; .ark will do as well

`test` may be left out. Frames are spliced here. A word error rate needs the lexicon and the language model of the task,
so it is for the user's own recogniser: `result.model` is an ordinary network.

| paper silent on                | our choice                                                                     |
|--------------------------------|--------------------------------------------------------------------------------|
| "a small learning rate"        | of fine-tuning: γ^15 a_0, where the annealed range of SGD ends                 |
| momentum of ADAM               | the table has [0.1, 0.9] in both columns, the text fixes ADAM's β_1 = 0.9: the text |
| initial population, its scale  | independent initialisations, PyTorch's own                                     |
| share of SGD and ADAM          | equal                                                                          |

The miniature is AN4 with the whole pipeline around it: 13 cepstra × 11 frames, 128 ReLU and 128 sigmoid units, 102
states from a forced alignment; the frames of eight held-out speakers as fitness; ten other speakers for the word error
rate. 4,700 frames of all speakers are trained on and 2,200 scored, drawn anew for every seed.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.operators import Gaussian, PerEpoch, Perturbed, RandomStart
from esgd.randomness import Seeds
from esgd.recipe import FineTuning, Recipe
from esgd.schedules import CosineRun
from esgd.species import Adam, Fixed, Mixture, Sgd, Uniform
from esgd.studies import Scale, Study
from esgd.tasks import Supervised
from esgd_paper.networks.fully_connected import fully_connected
from esgd_paper.species.acoustic import competing, halving, nesterov, plain
from esgd_paper.speech.corpus import Labelled, an4_corpus
from esgd_paper.speech.features import spliced
from esgd_paper.tasks.frames import Spliced, brought, needed
from esgd_paper.tasks.recognition import Recognition
from esgd_paper.tasks.rehearsal import rehearsal
from esgd_paper.tasks.samples import some

FEATURES, CONTEXT, STATES = 40, 4, 5000
INPUTS = FEATURES * (2 * CONTEXT + 1)  # 9 consecutive frames
MINI_FEATURES, MINI_CONTEXT = 13, 5
MINI_SIZES = (4700, 2200)  # frames to train on, and for the fitness
MINI_SGD, MINI_ADAM = (0.1, 1.5), (3e-4, 4e-3)

PUBLISHED: dict[str, dict[str, Any]] = {
    "single": {"loss": 2.082, "wer": 17.4},
    "population": {"loss": 2.029, "loss_top": (2.029, 2.062), "wer": 17.1, "wer_top": (16.9, 17.6)},
    "no_evolution": {"loss": 2.036, "loss_top": (2.036, 2.075), "wer": 17.4, "wer_top": (17.1, 17.7)},
    "esgd": {"loss": 1.916, "loss_top": (1.916, 1.920), "wer": 16.4, "wer_top": (16.2, 16.4)},
}
"""Table 1: the loss on the validation set and the word error rate in percent, of the best and the top 15."""


def study(scale: Scale, data: Path | None = None) -> Study:
    """Broadcast News, 50 hours: a fully connected network tells the state of a frame; in miniature CMU's AN4."""
    return _mini(data) if scale == "mini" else _paper(data)


# The paper's scale


def _paper(data: Path | None) -> Study:
    recipe = Recipe(
        population=100,
        offspring=400,
        mates=2,
        sgd_epochs=1,
        evolution_steps=1,
        species=Mixture(species=(Sgd(lr=Uniform(1e-4, 2e-3), gamma=0.9), Adam(lr=Uniform(1e-4, 1e-3), gamma=0.9))),
        mutation=Gaussian(sigma=0.01),
        elites=0.6,
        generations=15,
        fine_tuning=FineTuning(lr=0.9**15 * 1e-4, epochs=5),
        backoff=PerEpoch(),
        start=RandomStart(),
    )
    return Study(
        name="bn50",
        about=(
            "Broadcast News, 50 hours: 9 frames of 40 features, 5,000 states; the user's frames to train on, held-out "
            "ones as fitness, and others that selection never sees."
        ),
        task=partial(_paper_task, data),
        recipe=recipe,
        single=halving(0.001),
        published=PUBLISHED,
        rehearsal=rehearsal(paper_network, F.cross_entropy, hours=45, inputs=(INPUTS,)),
    )


def _paper_task(data: Path | None, seed: int) -> Supervised:
    size = {"dimension": FEATURES, "states": STATES}
    train, fitness = (Spliced(needed("bn50", split, data, **size), CONTEXT) for split in ("train", "heldout"))
    test = brought("bn50", "test", data, **size)
    return Supervised(
        paper_network,
        F.cross_entropy,
        train=train,
        fitness=fitness,
        test=None if test is None else Spliced(test, CONTEXT),
        batch_size=128,
    )


# The miniature


def _mini(data: Path | None) -> Study:
    recipe = Recipe(
        population=8,
        offspring=32,
        mates=2,
        sgd_epochs=3,
        evolution_steps=1,
        species=competing(MINI_SGD, MINI_ADAM, gamma=0.9),
        mutation=Gaussian(sigma=0.01),
        elites=0.6,
        generations=8,
        backoff=PerEpoch(),
        start=Perturbed(sigma=0.01),
    )
    return Study(
        name="bn50",
        about=(
            "BN50 in miniature is CMU's AN4, spelled names, numbers and dates: 13 cepstra × 11 frames, 102 states from "
            "a forced alignment; 4,700 frames of 66 speakers to train on, others for every seed, 2,200 of 8 held-out "
            "speakers as fitness, and the words of 10 that no model has heard."
        ),
        task=partial(_mini_task, data),
        recipe=recipe,
        single=(
            halving(1.0),
            Fixed(policy=plain(0.5, CosineRun())),
            Fixed(policy=plain(1.0, CosineRun())),
            Fixed(policy=nesterov(0.03, CosineRun())),
        ),
        alone=plain(0.5, CosineRun()),
        population=competing(MINI_SGD, MINI_ADAM, gamma=1.0, schedule=CosineRun()),
        published=PUBLISHED,
    )


def _mini_task(data: Path | None, seed: int) -> Supervised:
    """Other frames of the same speakers for every seed; see `esgd_paper.speech.corpus`."""
    corpus, seeds = an4_corpus(data), Seeds(seed, ("bn50",))
    test = _tensors(corpus.test)
    ends = np.cumsum([0, *map(len, corpus.test.states)])
    places = tuple(np.arange(first, last) for first, last in pairwise(ends))
    return Supervised(
        partial(mini_network, corpus.lexicon.states),
        F.cross_entropy,
        train=some(_tensors(corpus.train), MINI_SIZES[0], seeds("train")),
        fitness=some(_tensors(corpus.held_out), MINI_SIZES[1], seeds("fitness")),
        test=test,
        batch_size=128,
        metrics={"wer": Recognition(test[0], places, corpus.recogniser(corpus.test))},
    )


def _tensors(labelled: Labelled) -> tuple[Tensor, Tensor]:
    """Spliced cepstra, without Δ and ΔΔ, and states."""
    inputs: list[NDArray[np.float32]] = [spliced(each[:, :MINI_FEATURES], MINI_CONTEXT) for each in labelled.features]
    x, y = np.concatenate(inputs), np.concatenate(labelled.states)
    return torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(np.ascontiguousarray(y))


# Networks


def paper_network() -> nn.Module:
    """360-1024-1024-1024-1024-1024-512-5000; 7,657,864 parameters."""
    return fully_connected(INPUTS, (1024,) * 5 + (512,), STATES, rectified=3)


def mini_network(states: int = 102) -> nn.Module:
    """143-128-128-102; 48,102 parameters."""
    return fully_connected(MINI_FEATURES * (2 * MINI_CONTEXT + 1), (128, 128), states, rectified=1)
