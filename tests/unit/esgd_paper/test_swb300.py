"""SWB300: the miniature on a toy corpus, the paper's scale on frames as users bring them, and AN4 where it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import esgd
from esgd.errors import DataError
from esgd.policies import Policy
from esgd.recipe import Recipe
from esgd.studies.study import Single
from esgd.testing import check_species, check_task
from esgd_paper.networks.bidirectional import BidirectionalLstm
from esgd_paper.speech.corpus import an4_corpus
from esgd_paper.swb300 import frame_cross_entropy, mini_network, paper_network, study
from tests.real_data import half_of_an4
from tests.unit.esgd_paper.speech.synthetic import speech, write_an4

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy corpus as CMU lays AN4 out."""
    return write_an4(tmp_path_factory.mktemp("toy"), speech(utterances=12))


# The miniature


def test_the_miniature_has_the_papers_proportions() -> None:
    mini, paper = study("mini").recipe, study("paper").recipe
    assert mini.offspring_of(1) / mini.population == paper.offspring_of(1) / paper.population == 4
    for name in ("elites", "mates", "mutation", "backoff", "evolution_steps"):
        assert getattr(mini, name) == getattr(paper, name)


def test_recipes_can_be_written_down_and_read_back() -> None:
    for scale in ("mini", "paper"):
        recipe = study(scale).recipe
        assert Recipe.from_dict(recipe.to_dict(), allow=["esgd_paper"]) == recipe


def test_species_keep_their_contract() -> None:
    mini = study("mini")
    assert isinstance(mini.single, tuple)
    assert mini.population is not None
    singles = [each.species if isinstance(each, Single) else each for each in mini.single]
    for species in (mini.recipe.species, mini.population, *singles):
        check_species(species)


def test_the_miniature_is_a_task(toy: Path) -> None:
    check_task(study("mini", toy).task(0))


def test_the_miniature_has_27718_parameters() -> None:
    assert sum(parameter.numel() for parameter in mini_network().parameters()) == 27_718


def test_the_loss_is_the_mean_over_frames() -> None:
    output, target = torch.randn(3, 21, 7), torch.randint(0, 7, (3, 21))
    expected = torch.stack([F.cross_entropy(output[i, t], target[i, t]) for i in range(3) for t in range(21)]).mean()
    assert float(frame_cross_entropy(output, target)) == pytest.approx(float(expected), rel=1e-5)


def test_a_frame_is_seen_with_what_comes_before_and_after_it() -> None:
    network = BidirectionalLstm(5, layers=2, cells=4, bottleneck=3, states=6)
    frames = torch.randn(1, 21, 5)
    plain = network(frames)
    for changed in (0, 20):
        other = frames.clone()
        other[0, changed] += 1
        assert not torch.allclose(network(other)[0, 10], plain[0, 10])


def test_every_frame_of_an_utterance_is_recognised(toy: Path) -> None:
    """Also what is left over behind the last full chunk."""
    task, corpus = study("mini", toy).task(0), an4_corpus(toy)
    recognition = task._metrics.of_network["wer"]
    inputs = recognition.inputs.flatten(0, 1).numpy()
    assert any(len(each) % 21 for each in corpus.test.features)
    for places, features in zip(recognition.places, corpus.test.features, strict=True):
        assert np.array_equal(inputs[places], features[:, :26])


@pytest.mark.slow
def test_words_are_recognised_better_after_training(toy: Path) -> None:
    mini = study("mini", toy)
    task = mini.task(0)
    recipe = replace(mini.recipe, population=2, offspring=4, generations=2, sgd_epochs=5)
    *_, last = esgd.evolve(task, recipe, seed=0, engine="loop")
    untrained, trained = task.test(task.model()), task.test(last.best.module())
    assert set(trained) == {"loss", "wer"}
    assert trained["loss"] < 0.6 * untrained["loss"]
    assert trained["wer"] < min(0.5, untrained["wer"])
    assert last.guarantee == "held"


def test_every_seed_has_chunks_of_its_own_and_the_same_words(toy: Path) -> None:
    described = [study("mini", toy).task(seed).describe() for seed in (10, 10, *range(11, 18))]
    assert described[0] == described[1]
    for split in ("train", "fitness"):
        assert len({each[split]["sha256"] for each in described}) == 8
    assert len({each["test"]["sha256"] for each in described}) == 1


def test_a_task_can_be_sent_to_another_process(toy: Path) -> None:
    task = study("mini", toy).task(0)
    network = task.model()
    assert cloudpickle.loads(cloudpickle.dumps(task)).test(network) == task.test(network)


@pytest.mark.slow
def test_words_of_an4_are_recognised() -> None:
    """Eight epochs of ADAM: more than half of the words of ten unknown speakers are right."""
    task = study("mini", half_of_an4()).task(0)
    single = esgd.species.Fixed(policy=Policy(optimizer="adam", hyper={"lr": 5e-3}))
    recipe = Recipe(population=1, offspring=0, elites=1, mates=1, generations=1, sgd_epochs=8, species=single)
    *_, last = esgd.evolve(task, recipe, seed=0, engine="loop")
    found = task.test(last.best.module())
    assert last.best.fitness < 1.9
    assert 0.1 < found["wer"] < 0.5


# The paper's scale


def frames(lengths: list[int]) -> dict[str, Any]:
    """What users bring, at random: the arrays of an npz file."""
    total = sum(lengths)
    return {
        "features": RNG.normal(size=(total, 140)).astype(np.float32),
        "states": RNG.integers(0, 32_000, size=total),
        "offsets": np.cumsum([0, *lengths]),
        "names": np.array([f"utterance-{number}" for number in range(len(lengths))]),
    }


@pytest.mark.slow
def test_the_papers_network_trains_on_the_users_frames(tmp_path: Path) -> None:
    for split in ("train", "heldout", "test"):
        np.savez(tmp_path / f"{split}.npz", **frames([45, 22, 20]))
    task = study("paper", tmp_path).task(0)
    network = esgd.genome.build(task.model, esgd.randomness.Seeds(0))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    (batch,) = task.batches(esgd.randomness.Seeds(0), {})
    assert batch[0].shape == (3, 21, 140)
    assert task.batch_size == 128
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = task.loss(network, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert task.test(network)["loss"] == pytest.approx(np.log(32_000), rel=0.1)


def test_the_papers_network_is_large() -> None:
    layers = sum(2 * 4 * 512 * (inputs + 512 + 2) for inputs in (140, 1024, 1024, 1024))
    expected = layers + 1024 * 256 + 256 + 256 * 32_000 + 32_000
    assert sum(parameter.numel() for parameter in paper_network().parameters()) == expected


def test_missing_frames_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="swb300 has no train frames.*bring 140 features and one of 32,000 states"):
        study("paper", tmp_path).task(0)
