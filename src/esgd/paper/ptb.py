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
| patience            | see `Patient`                                                                         |
| single baseline     | Zolna's FD: SGD 30, batch 64, rate / 3 after 20 epochs without a new best; 574 epochs |
| momentum of ADAM    | β_1 = 0.9, as in the speech experiments; the table's column spans both optimizers     |
| row of the single   | the converged network, trained on for ESGD's epochs with a cosine: what more of the   |
| baseline            | same would give; the network itself has a row of its own                              |
| population baseline | begins at ESGD's first range and anneals by a cosine over all epochs, not by patience |
| perplexity          | of the text in 64 parallel streams, each read from its beginning without a state      |

The miniature has the 1,000 most frequent words (all others become `<unk>`, a quarter of the test text, so that its
perplexities are low and comparable with nothing but themselves), the first 100,000 tokens to train on, the first half
of the validation text as fitness, and an LSTM of 64 units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.checks import check_field, check_species
from esgd.data.places import data_folder
from esgd.data.ptb import Text, ptb
from esgd.errors import DataError
from esgd.operators import BestOf, Gaussian, Never, PerEpoch, PerGeneration, Perturbed, Roulette
from esgd.policies import Policy, check_policy
from esgd.protocols import Draw, Species
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.schedules import Constant, Cosine, CosineRun, Moment, Schedule
from esgd.species import Adam, Choice, Fixed, Inherited, Integers, Mixture, Sgd, Uniform
from esgd.species.distributions import Distribution, draw, is_distribution
from esgd.studies.study import Scale, Study
from esgd.tasks.language import LanguageModel

Range = tuple[float, float]

UNKNOWN = "<unk>"
WIDTH, BPTT, INPUT_DROPOUT, CLIP_NORM = 655, 35, 0.65, 0.25
MINI_WORDS, MINI_TOKENS, MINI_WIDTH, MINI_BPTT = 1000, 100_000, 64, 25
DROP = 1 / 3  # Zolna's: what the learning rate is multiplied by when patience has run out

SETTINGS: Mapping[str, Any] = {
    "dropout_embedding": Uniform(0.05, 0.2),
    "dropout_hidden": Uniform(0.1, 0.65),
    "dropout_weights": Uniform(0.1, 0.65),
    "dropout_model": Choice(("fraternal", "expectation_linear", "pi", "standard")),
    "batch_size": Integers(20, 64),
}
"""What the table draws beside the optimizer, for SGD and ADAM alike."""

MINI_SETTINGS: Mapping[str, Any] = {
    "dropout_embedding": Uniform(0.05, 0.15),
    "dropout_hidden": Uniform(0.2, 0.4),
    "dropout_weights": Uniform(0.0, 0.4),
    "batch_size": Integers(20, 32),
}
"""What suits 64 units: from one converged network, eight epochs of SGD 10 with a cosine lead to a perplexity of 39.9 on
the fitness text; with FD instead to 40.6, with PM to 40.7, with a hidden dropout of 0.5 to 40.5."""

PATIENCE = Integers(3, 10)
SIGMA = (0.01, 0.15)
STEADY = Constant()

_PATIENCE = "It counts epochs until the learning rate drops. Use 20 as Zolna et al. do."
_FACTOR = "The learning rate is multiplied by it at each drop, so it is in (0, 1]. Use 1/3 as Zolna et al. do."

PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "single": {"valid_ppl": 67.27, "ppl": 64.58},
    "population": {"valid_ppl": 66.58, "valid_ppl_top": (66.58, 68.04), "ppl": 63.96, "ppl_top": (63.96, 64.58)},
    "no_evolution": {"valid_ppl": 67.27, "valid_ppl_top": (67.27, 79.25), "ppl": 64.58, "ppl_top": (64.58, 76.64)},
    "esgd": {"valid_ppl": 66.29, "valid_ppl_top": (66.29, 66.30), "ppl": 63.73, "ppl_top": (63.72, 63.74)},
}
"""Table 1: perplexity on the validation text, which is the fitness, and on the test text; the best and the top 15."""


def study(scale: Scale, data: Path | None = None) -> Study:
    """The experiment at the paper's scale, or in miniature."""
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

    def task(seed: int) -> LanguageModel:
        text = _text(data_folder(data))
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

    return Study(
        name="ptb",
        about=(
            "Penn Treebank: 929,589 words of the Wall Street Journal to train a language model on, with a vocabulary "
            "of 10,000; the validation text as fitness, and the test text, which selection never sees."
        ),
        task=task,
        recipe=recipe,
        single=Fixed(policy=sgd(30.0, settings, schedule=CosineRun(), weight_decay=1.2e-6)),
        population=pool(gamma=1.0, heat=0.33, schedule=CosineRun()),
        baseline=Recipe(
            population=1,
            elites=1,
            mates=1,
            offspring=0,
            evolution_steps=0,
            generations=574,
            sgd_epochs=1,
            backoff=Never(),
            species=Plateau(policy=sgd(30.0, settings, weight_decay=1.2e-6), patience=20, factor=DROP),
        ),
        published=PUBLISHED,
    )


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
        generations=4,
        start=start,
        immigrants=(BASELINE,),
    )
    ours = replace(
        recipe,
        offspring=24,
        mates={2, 3, 4},
        sgd_epochs=4,
        species=Inherited(species=mini_pool(Cosine()), probability=0.7),
        mutation=Gaussian(sigma=0.01),
        mating=Roulette(),
        backoff=BestOf(),
        generations=2,
    )
    settings = {"dropout_embedding": 0.1, "dropout_hidden": 0.35, "batch_size": 20}
    thinned = {**settings, "dropout_weights": 0.2}

    def task(seed: int) -> LanguageModel:
        text = shortened(_text(data_folder(data)), words=MINI_WORDS, tokens=MINI_TOKENS)
        return LanguageModel(
            lambda: TiedLstm(MINI_WORDS, MINI_WIDTH),
            vocabulary=MINI_WORDS,
            train=text.train,
            fitness=text.valid[: len(text.valid) // 2],
            test=text.test,
            batch_size=20,
            bptt=MINI_BPTT,
        )

    return Study(
        name="ptb",
        about=(
            f"Penn Treebank in miniature: {MINI_TOKENS:,} words of the Wall Street Journal to train a language model "
            f"on, with a vocabulary of {MINI_WORDS:,}, in which a quarter of the test text is {UNKNOWN}; half of the "
            f"validation text as fitness, and the whole test text, which selection never sees."
        ),
        task=task,
        recipe=recipe,
        single=tuple(Fixed(policy=sgd(rate, thinned, schedule=CosineRun())) for rate in (5.0, 10.0, 20.0)),
        ours=ours,
        population=mini_pool(CosineRun()),
        baseline=Recipe(
            population=1,
            elites=1,
            mates=1,
            offspring=0,
            evolution_steps=0,
            generations=40,
            sgd_epochs=1,
            backoff=PerEpoch(),
            species=Plateau(policy=sgd(20.0, settings), patience=0, factor=0.5),
        ),
        published=PUBLISHED,
        thorough=True,
    )


@lru_cache(maxsize=1)
def _text(folder: Path) -> Text:
    """Read once in a process, for all seeds."""
    return ptb(folder)


def shortened(text: Text, *, words: int, tokens: int) -> Text:
    """The `words` most frequent words of the training text, numbered by frequency; all others become `<unk>`. Of the
    training text, the first `tokens` are kept."""
    frequent = torch.bincount(text.train, minlength=len(text.vocabulary)).argsort(descending=True, stable=True)[:words]
    vocabulary = tuple(text.vocabulary[number] for number in frequent.tolist())
    if UNKNOWN not in vocabulary:
        raise DataError(
            f"{UNKNOWN} is not among the {len(vocabulary)} most frequent words of the training text, so rare words "
            f"cannot be replaced by it. Is this the Penn Treebank as Mikolov prepared it?"
        )
    numbers = torch.full((len(text.vocabulary),), vocabulary.index(UNKNOWN))
    numbers[frequent] = torch.arange(len(vocabulary))
    return Text(vocabulary, numbers[text.train[:tokens]], numbers[text.valid], numbers[text.test])


# Optimizers


def pool(
    *,
    gamma: float,
    rates: Range = (1, 60),
    adam_rates: Range = (1e-6, 1e-3),
    heat: float = 1.0,
    settings: Mapping[str, Any] = SETTINGS,
    schedule: Schedule = STEADY,
) -> Mixture:
    """SGD and ADAM in equal shares, with the ranges [heat · a_0, heat · b_0]: the table's, unless others are given."""
    sgd_range, adam_range = (Uniform(heat * low, heat * high) for low, high in (rates, adam_rates))
    hyper = {"weight_decay": Uniform(0.0, 1.2e-5)}
    return Mixture(
        species=(
            Sgd(
                lr=sgd_range,
                gamma=gamma,
                momentum_probability=0.8,
                nesterov_probability=0.5,
                momentum=Uniform(0.1, 0.9),
                hyper=hyper,
                settings=settings,
                schedule=schedule,
                clip_norm=CLIP_NORM,
            ),
            Adam(
                lr=adam_range,
                gamma=gamma,
                hyper=hyper,
                settings=settings,
                schedule=schedule,
                clip_norm=CLIP_NORM,
            ),
        )
    )


def mini_pool(schedule: Schedule) -> Mixture:
    """Ranges that suit the miniature, the same in every generation: for our rules and for the population baseline."""
    return pool(gamma=1.0, rates=(4, 20), adam_rates=(1e-3, 4e-3), settings=MINI_SETTINGS, schedule=schedule)


def sgd(rate: float, settings: Mapping[str, Any], *, schedule: Schedule = STEADY, weight_decay: float = 0.0) -> Policy:
    """Plain SGD, as the single baselines use it."""
    hyper = {"lr": rate, "weight_decay": weight_decay}
    return Policy(optimizer="sgd", hyper=hyper, settings=settings, schedule=schedule, clip_norm=CLIP_NORM)


@dataclass(frozen=True, kw_only=True)
class Patient:
    """Another species, whose learning rate drops by `factor` whenever a drawn `patience` has run out.

    Paper silent on what its patience of [3, 10] does. In the recipe that it builds on, patience counts the epochs
    without a new best on the validation text, and then the rate is divided by 3. An SGD step of the paper restarts a
    converged network at a high rate, where there is no new best until the rate has come down; so an individual's rate
    is divided by 3 after every `patience` epochs of a generation. (γ = 0.33 is the same division, from generation to
    generation.)
    """

    species: Species
    patience: int | Distribution = PATIENCE
    factor: float = DROP

    def __post_init__(self) -> None:
        check_species("species", self.species)
        if not is_distribution(self.patience):
            check_field(self, "patience", at_least=1, whole=True, meaning=_PATIENCE)
        check_field(self, "factor", above=0, at_most=1, meaning=_FACTOR)

    def __call__(self, request: Draw) -> Policy:
        policy, patience = self.species(request), draw(self.patience, request.seeds("patience"))
        settings = {**policy.settings, "patience": patience}
        return replace(policy, settings=settings, schedule=Drops(every=patience, factor=self.factor))


@dataclass(frozen=True, kw_only=True)
class Drops:
    """A schedule: multiply by `factor` after every so many epochs of a generation.

    >>> [Drops(every=3, factor=0.5)(Moment(epoch=epoch, epochs=7)) for epoch in range(7)]
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]
    """

    every: int
    factor: float = DROP

    def __post_init__(self) -> None:
        check_field(self, "every", at_least=1, whole=True, meaning=_PATIENCE)
        check_field(self, "factor", above=0, at_most=1, meaning=_FACTOR)

    def __call__(self, moment: Moment) -> float:
        return float(self.factor ** (moment.epoch // self.every))


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """One policy, whose learning rate drops by `factor` after more than `patience` generations without a new best.

    For a population of one with generations of one epoch: how single baselines are trained. With `patience=0` and
    back-off this is "annealed … every time the loss on the validation set of the current epoch is worse than the
    previous epoch and meanwhile the model is backed off".
    """

    policy: Policy
    patience: int
    factor: float = DROP

    def __post_init__(self) -> None:
        check_policy(self.policy, with_rate=True)
        check_field(self, "patience", at_least=0, whole=True, meaning=_PATIENCE)
        check_field(self, "factor", above=0, at_most=1, meaning=_FACTOR)

    def __call__(self, request: Draw) -> Policy:
        best, waited, drops = float("inf"), 0, 0
        for fared in request.past:
            waited = 0 if fared.after < best else waited + 1
            best = min(best, fared.after)
            if waited > self.patience:
                waited, drops = 0, drops + 1
        annealing = self.factor**drops
        hyper = {**self.policy.hyper, "lr": self.policy.hyper["lr"] * annealing}
        return replace(self.policy, hyper=hyper, annealing=annealing)


# The network


class TiedLstm(nn.Module):
    """Embedding, one LSTM layer of the same width, and the embedding again as the output layer.

    Tokens (time, streams) → outputs before the softmax (time, streams, words), and the state (h, c) of the last step.

    Dropout in training, each ratio an attribute that a policy may set. Masks are drawn once for a window, and all its
    steps share them.

    | ratio               | what is dropped                                     |
    |---------------------|-----------------------------------------------------|
    | `dropout_embedding` | words: rows of the embedding                        |
    | `dropout_input`     | units of what enters the LSTM, other ones per stream |
    | `dropout_weights`   | entries of the recurrent matrix (DropConnect)       |
    | `dropout_hidden`    | units of what leaves the LSTM, other ones per stream |
    """

    def __init__(
        self,
        words: int,
        width: int,
        *,
        dropout_embedding: float = 0.0,
        dropout_input: float = 0.0,
        dropout_weights: float = 0.0,
        dropout_hidden: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width)
        self.bias = nn.Parameter(torch.zeros(words))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.dropout_embedding, self.dropout_input = dropout_embedding, dropout_input
        self.dropout_weights, self.dropout_hidden = dropout_weights, dropout_hidden

    def forward(
        self, tokens: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        entering = self.embedding(tokens)
        if self.training and self.dropout_embedding:
            entering = entering * F.dropout(entering.new_ones(len(self.bias)), self.dropout_embedding)[tokens, None]
        hidden, state = self._recur(self._locked(entering, self.dropout_input), state)
        return F.linear(self._locked(hidden, self.dropout_hidden), self.embedding.weight, self.bias), state

    def _recur(self, entering: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The LSTM with a thinned recurrent matrix: torch's own kernel, given other weights than those of its layer."""
        weights: dict[str, Tensor] = dict(self.lstm.named_parameters())
        if self.training and self.dropout_weights:
            weights["weight_hh_l0"] = F.dropout(weights["weight_hh_l0"], self.dropout_weights)
        if state is None:
            nothing = entering.new_zeros(1, entering.shape[1], entering.shape[2])
            state = nothing, nothing
        # `train` decides whether what a gradient needs is kept: also in eval mode (expectation-linear dropout)
        h, *left = torch.lstm(
            entering, state, list(weights.values()), True, 1, 0.0, torch.is_grad_enabled(), False, False
        )
        return h, (left[0], left[1])

    def _locked(self, values: Tensor, ratio: float) -> Tensor:
        """Variational dropout: values (time, streams, width) with one mask (streams, width) for all steps."""
        return values * F.dropout(values.new_ones(values.shape[1:]), ratio) if self.training and ratio else values
