"""BN50: the miniature on a toy corpus, the paper's scale on frames as users bring them, and AN4 where it is at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn

import esgd
from esgd.errors import DataError
from esgd.policies import Policy
from esgd.recipe import Recipe
from esgd.schedules import CosineRun
from esgd.studies.study import Single
from esgd.testing import check_species, check_task
from esgd_paper.bn50 import mini_network, paper_network, study
from tests.real_data import half_of_an4
from tests.small import ask
from tests.unit.esgd_paper.speech.synthetic import speech, write_an4

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy corpus as CMU lays AN4 out."""
    return write_an4(tmp_path_factory.mktemp("toy"), speech())


def fitness(task: Any, network: nn.Module) -> float:
    with torch.no_grad():
        parts = [(float(task.fitness(network.eval(), batch)), task.size(batch)) for _, batch in task.parts()]
    return sum(total for total, _ in parts) / sum(size for _, size in parts)


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


def test_the_population_baseline_is_annealed_over_the_whole_run() -> None:
    population = study("mini").population
    assert population is not None
    for j in range(20):
        policy = population(ask(7, j))
        assert (policy.annealing, policy.schedule) == (1.0, CosineRun())


def test_the_miniature_is_a_task(toy: Path) -> None:
    check_task(study("mini", toy).task(0))


def test_the_miniature_has_48102_parameters() -> None:
    assert sum(parameter.numel() for parameter in mini_network().parameters()) == 48_102


def test_words_are_recognised_better_after_training(toy: Path) -> None:
    mini = study("mini", toy)
    task = mini.task(0)
    recipe = replace(mini.recipe, population=3, offspring=4, generations=4, sgd_epochs=20)
    *_, last = esgd.evolve(task, recipe, seed=0, engine="loop")
    untrained, trained = task.test(task.model()), task.test(last.best.module())
    assert set(trained) == {"loss", "wer"}
    assert trained["loss"] < 0.5 * untrained["loss"]
    assert trained["wer"] < min(0.3, untrained["wer"])
    assert last.guarantee == "held"


def test_every_seed_has_frames_of_its_own_and_the_same_words(toy: Path) -> None:
    first, again, second = (study("mini", toy).task(seed).describe() for seed in (0, 0, 1))
    assert first == again
    assert first["train"] != second["train"]
    assert first["fitness"] != second["fitness"]
    assert first["test"] == second["test"]
    assert first["wer"]["utterances"] == 8


def test_a_task_can_be_sent_to_another_process(toy: Path) -> None:
    task = study("mini", toy).task(0)
    network = task.model()
    assert cloudpickle.loads(cloudpickle.dumps(task)).test(network) == task.test(network)


@pytest.mark.slow
def test_words_of_an4_are_recognised() -> None:
    """Sixteen epochs of ADAM: more than half of the words of ten unknown speakers are right."""
    task = study("mini", half_of_an4()).task(0)
    single = esgd.species.Fixed(policy=Policy(optimizer="adam", hyper={"lr": 2e-3}))
    recipe = Recipe(population=1, offspring=0, elites=1, mates=1, generations=1, sgd_epochs=16, species=single)
    *_, last = esgd.evolve(task, recipe, seed=0, engine="loop")
    found = task.test(last.best.module())
    assert last.best.fitness < 1.65
    assert found["loss"] < 1.7
    assert 0.1 < found["wer"] < 0.45


# The paper's scale


def frames(*, dimension: int = 40, states: int = 5000, utterances: int = 3) -> dict[str, Any]:
    """What users bring, at random: the arrays of an npz file."""
    lengths = RNG.integers(20, 60, size=utterances)
    total = int(lengths.sum())
    return {
        "features": RNG.normal(size=(total, dimension)).astype(np.float32),
        "states": RNG.integers(0, states, size=total),
        "offsets": np.cumsum([0, *lengths]),
        "names": np.array([f"utterance-{number}" for number in range(utterances)]),
    }


def bring(folder: Path, **splits: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, arrays in splits.items():
        np.savez(folder / f"{split}.npz", **arrays)
    return folder


def test_the_papers_network_has_7657864_parameters() -> None:
    assert sum(parameter.numel() for parameter in paper_network().parameters()) == 7_657_864


@pytest.mark.slow
@pytest.mark.parametrize("place", ["bn50", "."])
def test_the_papers_network_trains_on_the_users_frames(place: str, tmp_path: Path) -> None:
    bring(tmp_path / place, train=frames(), heldout=frames(), test=frames())
    task = study("paper", tmp_path).task(0)
    network = esgd.genome.build(task.model, esgd.randomness.Seeds(0))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    (batch, *_) = task.batches(esgd.randomness.Seeds(0), {})
    assert batch[0].shape[1] == 360
    assert task.batch_size == 128
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = task.loss(network, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert fitness(task, network) == pytest.approx(np.log(5000), rel=0.1)
    assert task.test(network)["loss"] == pytest.approx(np.log(5000), rel=0.1)


def test_a_test_split_may_be_left_out(tmp_path: Path) -> None:
    task = study("paper", bring(tmp_path, train=frames(), heldout=frames())).task(0)
    assert task.test(task.model()) == {}


def test_missing_frames_are_named_with_where_they_were_looked_for_and_how_to_get_them(tmp_path: Path) -> None:
    bring(tmp_path, train=frames())
    with pytest.raises(DataError) as caught:
        study("paper", tmp_path).task(0)
    for part in ("no heldout frames", "heldout.npz", "heldout/feats.scp", str(tmp_path / "bn50"), "LDC", "--data"):
        assert part in str(caught.value)


def test_kaldis_archives_are_what_npz_files_are(tmp_path: Path) -> None:
    io = pytest.importorskip("kaldi_native_io", reason="the extra `speech` is not installed")
    given = {split: frames() for split in ("train", "heldout")}
    bring(tmp_path / "npz", **given)
    for split, arrays in given.items():
        folder = tmp_path / "kaldi" / split
        folder.mkdir(parents=True)
        cuts = arrays["offsets"][1:-1]
        rows = zip(arrays["names"], np.split(arrays["features"], cuts), np.split(arrays["states"], cuts), strict=True)
        with (
            io.FloatMatrixWriter(f"ark:{folder / 'feats.ark'}") as feats,
            io.Int32VectorWriter(f"ark:{folder / 'pdf.ark'}") as pdf,
        ):
            for name, features, states in rows:
                feats.write(str(name), features)
                pdf.write(str(name), states.tolist())
    first, second = (study("paper", tmp_path / form).task(0).describe() for form in ("npz", "kaldi"))
    assert first == second


def test_half_of_kaldis_files_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "feats.scp").touch()
    with pytest.raises(DataError, match="feats.scp is there, but no .*pdf.scp"):
        study("paper", tmp_path).task(0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"states": np.full(7, 5000), "features": np.zeros((7, 40), np.float32)}, "'utterance-0' has the state 5000"),
        ({"states": np.zeros(7, int), "features": np.zeros((7, 39), np.float32)}, "'utterance-0' has 39 features"),
    ],
    ids=["a state too many", "a feature too few"],
)
def test_frames_that_do_not_fit_the_network_are_named(wrong: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    arrays = {**wrong, "offsets": np.array([0, 7]), "names": np.array(["utterance-0"])}
    with pytest.raises(DataError, match=sentence):
        study("paper", bring(tmp_path, train=arrays, heldout=frames())).task(0)
