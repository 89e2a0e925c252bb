"""SWB300 (§4.1 and supplement B): a bidirectional LSTM that tells the state of every frame in a chunk of 21.

At the paper's scale: 140 features (40 of speech, 100 of the speaker's i-vector), four layers of 512 cells in each
direction, a linear bottleneck of 256 units, 32,000 states. The 300 hours of Switchboard are the LDC's, so users bring
frames, as files in a folder that --data names (or its folder `swb300`), in one of two forms that `data/frames.py`
describes:

    train.npz, heldout.npz, test.npz                       features (N, 140), states (N,), offsets, names
    train/feats.scp, train/pdf.scp, heldout/…, test/…      Kaldi's features and pdf-ids; .ark will do as well

`test` may be left out. A word error rate needs the lexicon and the language model of the task, so it is for the user's
own recogniser: `result.model` is an ordinary network.

| paper silent on                | our choice                                                                     |
|--------------------------------|--------------------------------------------------------------------------------|
| chunks                         | do not overlap; what is left over at the end of an utterance is not trained on |
| batch                          | 128 chunks                                                                     |
| "a small learning rate"        | of fine-tuning: γ^15 a_0, where the annealed range of SGD ends                 |
| momentum of ADAM               | the table has [0.1, 0.9] in both columns, the text fixes ADAM's β_1 = 0.9: the text |
| initial population, its scale  | independent initialisations, PyTorch's own                                     |
| share of SGD and ADAM          | equal                                                                          |

The miniature is AN4, as in `bn50`: 13 cepstra and their Δ, one layer of 40 cells in each direction, a bottleneck of 32,
102 states. 540 chunks of all speakers are trained on and 300 of the held-out speakers scored, drawn anew for every
seed; ten other speakers are for the word error rate.
"""

from __future__ import annotations

from functools import partial
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
from esgd_paper.networks.bidirectional import BidirectionalLstm
from esgd_paper.species.acoustic import competing, halving, nesterov, plain
from esgd_paper.speech.corpus import Labelled, an4_corpus
from esgd_paper.speech.features import chunked, covering
from esgd_paper.speech.scoring import Recogniser
from esgd_paper.tasks.frames import Chunks, brought, needed
from esgd_paper.tasks.recognition import Recognition
from esgd_paper.tasks.rehearsal import rehearsal
from esgd_paper.tasks.samples import some

FRAMES = 21  # "The LSTMs are unrolled 21 frames"
FEATURES, STATES = 140, 32_000
MINI_FEATURES, MINI_SIZES = 26, (540, 300)  # chunks to train on, and for the fitness
MINI_SGD, MINI_ADAM = (0.3, 2.0), (1e-3, 1e-2)

BEST = {
    "single": {"loss": 1.648, "swb_wer": 10.4, "ch_wer": 18.5},
    "population": {"loss": 1.645, "swb_wer": 10.4, "ch_wer": 18.2},
    "no_evolution": {"loss": 1.626, "swb_wer": 10.3, "ch_wer": 18.3},
    "esgd": {"loss": 1.551, "swb_wer": 10.0, "ch_wer": 18.2},
}
TOP = {
    "population": {"loss_top": (1.645, 1.666), "swb_wer_top": (10.3, 10.7), "ch_wer_top": (18.2, 18.8)},
    "no_evolution": {"loss_top": (1.626, 1.641), "swb_wer_top": (10.3, 10.7), "ch_wer_top": (18.0, 18.6)},
    "esgd": {"loss_top": (1.551, 1.557), "swb_wer_top": (10.0, 10.1), "ch_wer_top": (18.0, 18.3)},
}
PUBLISHED: dict[str, dict[str, Any]] = {arm: {**best, **TOP.get(arm, {})} for arm, best in BEST.items()}
"""Table 1: the loss on the validation set and the word error rates on the Switchboard and call-home parts of the test
set, in percent, of the best and the top 15."""


def study(scale: Scale, data: Path | None = None) -> Study:
    """Switchboard, 300 hours: a recurrent network tells the states of 21 frames; in miniature CMU's AN4."""
    return _mini(data) if scale == "mini" else _paper(data)


def frame_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """The mean over all frames: output (chunks, frames, states), target (chunks, frames)."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


# The paper's scale


def _paper(data: Path | None) -> Study:
    recipe = Recipe(
        population=100,
        offspring=400,
        mates=2,
        sgd_epochs=1,
        evolution_steps=1,
        species=Mixture(species=(Sgd(lr=Uniform(1e-2, 3e-2), gamma=0.9), Adam(lr=Uniform(5e-5, 1e-3), gamma=0.9))),
        mutation=Gaussian(sigma=0.01),
        elites=0.6,
        generations=15,
        fine_tuning=FineTuning(lr=0.9**15 * 1e-2, epochs=5),
        backoff=PerEpoch(),
        start=RandomStart(),
    )
    return Study(
        name="swb300",
        about=(
            "Switchboard, 300 hours: chunks of 21 frames with 140 features, 32,000 states; the user's frames to train "
            "on, held-out ones as fitness, and others that selection never sees."
        ),
        task=partial(_paper_task, data),
        recipe=recipe,
        single=halving(0.025),
        published=PUBLISHED,
        rehearsal=rehearsal(paper_network, frame_cross_entropy, hours=300, inputs=(FRAMES, FEATURES)),
    )


def _paper_task(data: Path | None, seed: int) -> Supervised:
    size = {"dimension": FEATURES, "states": STATES}
    train, fitness = (Chunks(needed("swb300", split, data, **size), FRAMES) for split in ("train", "heldout"))
    test = brought("swb300", "test", data, **size)
    return Supervised(
        paper_network,
        frame_cross_entropy,
        train=train,
        fitness=fitness,
        test=None if test is None else Chunks(test, FRAMES),
        batch_size=128,
        nonnegative=True,
    )


# The miniature


def _mini(data: Path | None) -> Study:
    recipe = Recipe(
        population=6,
        offspring=24,
        mates=2,
        sgd_epochs=3,
        evolution_steps=1,
        species=competing(MINI_SGD, MINI_ADAM, gamma=0.9),
        mutation=Gaussian(sigma=0.01),
        elites=0.6,
        generations=6,
        backoff=PerEpoch(),
        start=Perturbed(sigma=0.01),
    )
    return Study(
        name="swb300",
        about=(
            "SWB300 in miniature is CMU's AN4, spelled names, numbers and dates: chunks of 21 frames with 26 features, "
            "102 states from a forced alignment; 540 chunks of 66 speakers to train on, others for every seed, 300 of "
            "8 held-out speakers as fitness, and the words of 10 that no model has heard."
        ),
        task=partial(_mini_task, data),
        recipe=recipe,
        single=(
            halving(2.0),
            Fixed(policy=plain(1.0, CosineRun())),
            Fixed(policy=plain(2.0, CosineRun())),
            Fixed(policy=nesterov(0.2, CosineRun())),
        ),
        alone=plain(1.0, CosineRun()),
        population=competing(MINI_SGD, MINI_ADAM, gamma=1.0, schedule=CosineRun()),
        published=PUBLISHED,
    )


def _mini_task(data: Path | None, seed: int) -> Supervised:
    """Other chunks of the same speakers for every seed; see `esgd_paper.speech.corpus`."""
    corpus, seeds = an4_corpus(data), Seeds(seed, ("swb300",))
    return Supervised(
        partial(mini_network, corpus.lexicon.states),
        frame_cross_entropy,
        train=some(_tensors(corpus.train), MINI_SIZES[0], seeds("train")),
        fitness=some(_tensors(corpus.held_out), MINI_SIZES[1], seeds("fitness")),
        test=_tensors(corpus.test),
        batch_size=16,
        metrics={"wer": _recognition(corpus.test, corpus.recogniser(corpus.test))},
        nonnegative=True,
    )


def _tensors(labelled: Labelled) -> tuple[Tensor, Tensor]:
    """Chunks of cepstra and Δ, and of states."""
    x = np.concatenate([chunked(each[:, :MINI_FEATURES], FRAMES) for each in labelled.features])
    y = np.concatenate([chunked(each, FRAMES) for each in labelled.states])
    return torch.from_numpy(x), torch.from_numpy(y)


def _recognition(spoken: Labelled, recogniser: Recogniser) -> Recognition:
    """Chunks in which every frame is found, whatever is left over at the end of an utterance."""
    inputs, places, seen = list[NDArray[np.float32]](), list[NDArray[np.int64]](), 0
    for features in spoken.features:
        rows, frames = covering(len(features), FRAMES)
        inputs.append(features[rows][:, :, :MINI_FEATURES])
        places.append(frames + seen)
        seen += rows.size
    return Recognition(torch.from_numpy(np.concatenate(inputs)), tuple(places), recogniser)


# Networks


def paper_network() -> nn.Module:
    """140 → four layers of 512 + 512 cells → 256 → 32,000."""
    return BidirectionalLstm(FEATURES, layers=4, cells=512, bottleneck=256, states=STATES)


def mini_network(states: int = 102) -> nn.Module:
    """26 → 40 + 40 cells → 32 → 102; 27,718 parameters."""
    return BidirectionalLstm(MINI_FEATURES, layers=1, cells=40, bottleneck=32, states=states)
