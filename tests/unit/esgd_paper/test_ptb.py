"""Penn Treebank: the miniature's vocabulary, and both scales as studies."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, log
from typing import Any

import pytest
import torch
from torch import nn

import esgd
from esgd.errors import DataError
from esgd.operators import Never, PerEpoch, Perturbed
from esgd.randomness import Seeds, global_randomness
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.schedules import Constant, CosineRun
from esgd_paper.data.ptb import Text
from esgd_paper.networks.tied_lstm import TiedLstm
from esgd_paper.ptb import study, with_frequent_words
from esgd_paper.species.plateau import Plateau
from esgd_paper.tasks.language import LanguageModel
from esgd_paper.tasks.texts import Streams
from tests.real_data import real_data
from tests.small import ask

WORDS = WIDTH = 12


def lstm(**ratios: float) -> TiedLstm:
    with global_randomness(0):
        return TiedLstm(WORDS, WIDTH, **ratios)


# The miniature's text


def test_frequent_words_are_numbered_by_frequency_and_rare_ones_are_unknown() -> None:
    vocabulary = ("rare", "the", "<unk>", "of", "never")
    train = torch.tensor([0, 1, 1, 1, 2, 2, 3, 3, 1])
    short = with_frequent_words(Text(vocabulary, train, torch.tensor([0, 1, 4]), torch.tensor([3, 4, 2])), words=3)
    assert short.vocabulary == ("the", "<unk>", "of")
    assert short.train.tolist() == [1, 0, 0, 0, 1, 1, 2, 2, 0]
    assert short.valid.tolist() == [1, 0, 1]
    assert short.test.tolist() == [2, 1, 1]


def test_a_text_without_unknown_words_is_refused() -> None:
    tokens = torch.tensor([0, 1, 1])
    with pytest.raises(DataError, match="<unk> is not among the 2 most frequent words"):
        with_frequent_words(Text(("a", "b"), tokens, tokens, tokens), words=2)


# Both scales


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_a_study_needs_no_data_until_its_task_is_asked_for(scale: Any) -> None:
    found = study(scale)
    assert found.name == "ptb"
    for recipe in (found.recipe, found.baseline):
        assert Recipe.from_dict(recipe.to_dict(), allow=["esgd_paper"]) == recipe


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_the_baseline_comes_first_and_every_arm_begins_with_it(scale: Any) -> None:
    found = study(scale)
    assert found.baseline is not None
    assert found.baseline.population == 1
    assert found.recipe.immigrants == (BASELINE,)
    assert isinstance(found.recipe.start, Perturbed)
    assert found.recipe.start.network == BASELINE


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_baselines_anneal_over_the_whole_run(scale: Any) -> None:
    found = study(scale)
    singles: Any = found.single if isinstance(found.single, tuple) else (found.single,)
    for species in (*singles, found.population):
        policies = [species(ask(k, j)) for k in (1, 2) for j in range(20)]
        assert {policy.schedule for policy in policies} == {CosineRun()}
        assert {policy.annealing for policy in policies} == {1.0}


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_whatever_is_drawn_can_be_applied(scale: Any) -> None:
    text = torch.arange(2000) % WORDS
    task = LanguageModel(lstm, vocabulary=WORDS, train=text, fitness=text, bptt=5)
    found, network = study(scale), lstm()
    singles: Any = found.single if isinstance(found.single, tuple) else (found.single,)
    for each in (found.recipe.species, found.population, found.baseline.species, *singles):
        for j in range(50):
            policy = each(ask(1, j))
            task.prepare(network, policy.settings)
            assert policy.clip_norm == 0.25


# Real text


@pytest.fixture(scope="module")
def miniature() -> LanguageModel:
    task: Any = study("mini", real_data("ptb")).task(0)
    return task


def test_the_miniature_is_what_it_says(miniature: LanguageModel) -> None:
    described = miniature.describe()
    assert (described["train"]["tokens"], described["vocabulary"]) == (20_000, 1000)
    assert described["fitness"]["tokens"] == 8_000
    assert described["test"]["tokens"] == 20_000
    targets = torch.cat([window.targets.flatten() for window in miniature.calibration(20_000)])
    assert len(targets.unique()) > 900
    other: Any = study("mini", real_data("ptb")).task(1)
    assert other.describe()["train"] != described["train"]
    assert other.describe()["fitness"] == described["fitness"]


@pytest.mark.slow
def test_an_epoch_of_the_miniature_learns(miniature: LanguageModel) -> None:
    baseline = study("mini").baseline
    assert baseline is not None
    (generation,) = esgd.evolve(miniature, replace(baseline, generations=1), seed=0, engine=esgd.Loop(threads=1))
    assert generation.test["ppl"] < 250


@pytest.mark.slow
def test_the_papers_network_trains_and_is_scored() -> None:
    """10,000 words, 655 units: two real steps of the single baseline, and some of the validation text."""
    found = study("paper", real_data("ptb"))
    task: Any = found.task(0)
    network: nn.Module = task.model()
    assert sum(p.numel() for p in network.parameters()) == 9_997_440
    assert task.vocabulary == 10_000
    part = next(iter(task.parts()))[1]
    some = Streams(part.tokens[:70], part.targets[:70])

    def score() -> float:
        with torch.no_grad():
            return float(task.fitness(network.eval(), some)) / task.size(some)

    assert score() == pytest.approx(log(10_000), rel=0.01)
    policy = found.baseline.species(ask())
    task.prepare(network, policy.settings)
    optimizer, losses = torch.optim.SGD(network.parameters(), **policy.hyper), []
    with global_randomness(0):
        for _, batch in zip(range(2), task.batches(Seeds(0), policy.settings), strict=False):
            assert batch.tokens.shape[1] == 64
            optimizer.zero_grad()
            loss = task.loss(network.train(), batch)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), policy.clip_norm)
            optimizer.step()
            losses.append(float(loss.detach()))
    assert losses[1] < losses[0]
    assert isfinite(score())


def test_the_baselines_are_the_recipes() -> None:
    """Halving with back-off in the miniature; a rate divided by 3 when patience runs out at the paper's scale."""
    mini, paper = study("mini").baseline, study("paper").baseline
    assert mini is not None
    assert paper is not None
    assert (mini.backoff, paper.backoff) == (PerEpoch(), Never())
    assert isinstance(mini.species, Plateau)
    assert isinstance(paper.species, Plateau)
    assert (mini.species.patience, mini.species.factor) == (0, 0.5)
    assert (paper.species.patience, paper.species.factor) == (20, pytest.approx(1 / 3))
    assert paper.species.policy.schedule == Constant()
