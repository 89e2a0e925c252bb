"""Penn Treebank (§4.3 and supplement D): a one-layer LSTM language model, fine-tuned from a converged baseline.

"Our focus is to investigate the effect of ESGD on top of a state-of-the-art 1-layer LSTM LM training recipe": that of
Zolna et al., *Fraternal dropout* (2018). What the paper leaves open comes from there and from the code they published.

| paper silent on     | our choice                                                                            |
|---------------------|---------------------------------------------------------------------------------------|
| embedding dropout   | whole words, drawn anew for every window (Gal and Ghahramani, 2016); Zolna: 0.1       |
| hidden dropout      | what leaves the LSTM, one mask for all steps of a window (variational); Zolna: 0.4    |
| LSTM weight dropout | entries of the recurrent matrix, one mask for all steps of a window; Zolna: 0.5       |
| input dropout       | what enters the LSTM: Zolna's 0.65, which the table does not draw; 0 in the miniature |
| κ of the models     | Zolna's code: FD 0.15, ELD 0.25, PM 0.15, on the outputs before the softmax           |
| clipping, windows   | gradient norm 0.25, 35 steps; the streams of an epoch begin at a random place         |
| patience            | see `Patient` in `species/patient.py`                                                 |
| single baseline     | Zolna's FD: SGD 30, batch 64, rate / 3 after 20 epochs without a new best; 574 epochs |
| momentum of ADAM    | β_1 = 0.9, as in the speech experiments; the table's column spans both optimizers     |
| row of the single   | the converged network, trained on for ESGD's epochs with a cosine: what more of the   |
| baseline            | same would give; the network itself has a row of its own                              |
| population baseline | begins at ESGD's first range and anneals by a cosine over all epochs, not by patience |
| perplexity          | of the text in 64 parallel streams, each read from its beginning without a state      |

The miniature has the 1,000 most frequent words (all others become `<unk>`, a quarter of the test text, so that its
perplexities are low and comparable with nothing but themselves), 20,000 tokens to train on, others for every seed,
8,000 of the validation text as fitness, 20,000 of the test text, and an LSTM of 64 units.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from esgd.errors import DataError
from esgd.operators import Gaussian, Never, PerEpoch, PerGeneration, Perturbed, Roulette
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.schedules import CosineRun
from esgd.species import Fixed
from esgd.studies import Rehearsal, Scale, Study
from esgd_paper.data.folders import data_folder
from esgd_paper.data.ptb import Text, ptb
from esgd_paper.first_run import first_run
from esgd_paper.networks.tied_lstm import TiedLstm
from esgd_paper.species.patient import DROP, Patient
from esgd_paper.species.plateau import Plateau
from esgd_paper.species.treebank import mini_pool, pool, sgd
from esgd_paper.tasks.language import LanguageModel

UNKNOWN = "<unk>"
WIDTH, BPTT, INPUT_DROPOUT = 655, 35, 0.65
VOCABULARY, LENGTHS = 10_000, (929_589, 73_760, 82_430)  # words of the three texts, with the ends of sentences
MINI_WORDS, MINI_TOKENS, MINI_WIDTH, MINI_BPTT = 1000, (20_000, 8_000, 20_000), 64, 25
SIGMA = (0.01, 0.15)

PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "single": {"valid_ppl": 67.27, "ppl": 64.58},
    "population": {"valid_ppl": 66.58, "valid_ppl_top": (66.58, 68.04), "ppl": 63.96, "ppl_top": (63.96, 64.58)},
    "no_evolution": {"valid_ppl": 67.27, "valid_ppl_top": (67.27, 79.25), "ppl": 64.58, "ppl_top": (64.58, 76.64)},
    "esgd": {"valid_ppl": 66.29, "valid_ppl_top": (66.29, 66.30), "ppl": 63.73, "ppl_top": (63.72, 63.74)},
}
"""Table 1: perplexity on the validation text, which is the fitness, and on the test text; the best and the top 15."""


def study(scale: Scale, data: Path | None = None) -> Study:
    """Penn Treebank: a recurrent language model of the Wall Street Journal; in miniature a part of the text."""
    return _mini(data) if scale == "mini" else _paper(data)


# The paper's scale


def _paper(data: Path | None) -> Study:
    recipe = Recipe(
        population=100,
        offspring=400,
        mates={1, 2},
        sgd_epochs=20,
        evolution_steps=1,
        species=Patient(species=pool(gamma=0.33)),
        mutation=Gaussian(sigma=SIGMA),
        mating=Roulette(smoothing=0.5),
        backoff=PerGeneration(probability=0.7),
        elites=0.6,
        generations=15,
        start=Perturbed(network=BASELINE, sigma=SIGMA),
        immigrants=(BASELINE,),
    )
    ratios = {"dropout_embedding": 0.1, "dropout_hidden": 0.4, "dropout_weights": 0.5}
    settings = {**ratios, "dropout_model": "fraternal", "batch_size": 64}

    return Study(
        name="ptb",
        about=(
            "Penn Treebank: 929,589 words of the Wall Street Journal to train a language model on, with a vocabulary "
            "of 10,000; the validation text as fitness, and the test text, which selection never sees."
        ),
        task=lambda seed: _paper_task(_text(data_folder(data))),
        recipe=recipe,
        single=Fixed(policy=sgd(30.0, settings, schedule=CosineRun(), weight_decay=1.2e-6)),
        population=pool(gamma=1.0, heat=0.33, schedule=CosineRun()),
        baseline=first_run(
            Plateau(policy=sgd(30.0, settings, weight_decay=1.2e-6), patience=20, factor=DROP),
            generations=574,
            sgd_epochs=1,
            backoff=Never(),
        ),
        published=PUBLISHED,
        rehearsal=Rehearsal(
            about="as long a text of one word, because the real one is not here",
            task=lambda: _paper_task(_one_word()),
            share=1.0,
        ),
    )


def _paper_task(text: Text) -> LanguageModel:
    words = len(text.vocabulary)
    return LanguageModel(
        lambda: TiedLstm(words, WIDTH, dropout_input=INPUT_DROPOUT),
        vocabulary=words,
        train=text.train,
        fitness=text.valid,
        test=text.test,
        batch_size=64,
        bptt=BPTT,
    )


def _one_word() -> Text:
    """What `esgd explain` measures without the data: texts of the lengths and the vocabulary of the real ones."""
    train, valid, test = (torch.zeros(length, dtype=torch.int64) for length in LENGTHS)
    return Text(tuple(f"word {number}" for number in range(VOCABULARY)), train, valid, test)


# The miniature


def _mini(data: Path | None) -> Study:
    start = Perturbed(network=BASELINE, sigma=(0.005, 0.05))
    recipe = Recipe(
        population=6,
        offspring=12,
        mates={1, 2},
        sgd_epochs=2,
        evolution_steps=1,
        species=Patient(species=pool(gamma=0.33)),
        mutation=Gaussian(sigma=SIGMA),
        mating=Roulette(smoothing=0.5),
        backoff=PerGeneration(probability=0.7),
        elites=0.6,
        generations=3,
        start=start,
        immigrants=(BASELINE,),
    )
    ratios = {"dropout_embedding": 0.1, "dropout_hidden": 0.35, "dropout_weights": 0.2}

    def task(seed: int) -> LanguageModel:
        text = with_frequent_words(_text(data_folder(data)), words=MINI_WORDS)
        train, fitness, test = MINI_TOKENS
        first = int(torch.randint(max(1, len(text.train) - train), (), generator=Seeds(seed, ("ptb",))("first")))
        return LanguageModel(
            lambda: TiedLstm(MINI_WORDS, MINI_WIDTH, **ratios),
            vocabulary=MINI_WORDS,
            train=text.train[first : first + train],
            fitness=text.valid[:fitness],
            test=text.test[:test],
            batch_size=20,
            bptt=MINI_BPTT,
        )

    return Study(
        name="ptb",
        about=(
            f"Penn Treebank in miniature: {MINI_TOKENS[0]:,} words of the Wall Street Journal, others for every seed, "
            f"to continue to train a language model that has converged on them, with a vocabulary of {MINI_WORDS:,}, "
            f"in which a quarter of the test text is {UNKNOWN}; a part of the validation text as fitness, and one of "
            f"the test text, which selection never sees."
        ),
        task=task,
        recipe=recipe,
        single=tuple(Fixed(policy=sgd(rate, {}, schedule=CosineRun())) for rate in (5.0, 10.0, 20.0)),
        alone=sgd(5.0, {}, schedule=CosineRun()),
        population=mini_pool(CosineRun()),
        baseline=first_run(
            Plateau(policy=sgd(20.0, {}), patience=0, factor=0.5), generations=40, sgd_epochs=1, backoff=PerEpoch()
        ),
        published=PUBLISHED,
    )


@lru_cache(maxsize=1)
def _text(folder: Path) -> Text:
    """Read once in a process, for all seeds."""
    return ptb(folder)


def with_frequent_words(text: Text, *, words: int) -> Text:
    """The `words` most frequent words of the training text, numbered by frequency; all others become `<unk>`."""
    frequent = torch.bincount(text.train, minlength=len(text.vocabulary)).argsort(descending=True, stable=True)[:words]
    vocabulary = tuple(text.vocabulary[number] for number in frequent.tolist())
    if UNKNOWN not in vocabulary:
        raise DataError(
            f"{UNKNOWN} is not among the {len(vocabulary)} most frequent words of the training text, so rare words "
            f"cannot be replaced by it. Is this the Penn Treebank as Mikolov prepared it?"
        )
    numbers = torch.full((len(text.vocabulary),), vocabulary.index(UNKNOWN))
    numbers[frequent] = torch.arange(len(vocabulary))
    return Text(vocabulary, numbers[text.train], numbers[text.valid], numbers[text.test])
