"""Penn Treebank: the network and its dropout, the miniature's vocabulary, the species, and both scales as studies."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, log
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd.data.ptb import Text
from esgd.errors import DataError, RecipeError
from esgd.operators import Never, PerEpoch, Perturbed
from esgd.paper.ptb import Drops, Patient, Plateau, TiedLstm, pool, shortened, study
from esgd.policies import Policy
from esgd.protocols import Fared
from esgd.randomness import Seeds, global_randomness
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.schedules import Constant, CosineRun, Moment
from esgd.species import Fixed
from esgd.tasks.language import LanguageModel, Streams
from tests.real_data import real_data
from tests.small import ask

WORDS = WIDTH = 12
TOKENS = torch.randint(WORDS, (9, 5), generator=Seeds(0)("tokens"))  # (time, streams)


def lstm(**ratios: float) -> TiedLstm:
    with global_randomness(0):
        return TiedLstm(WORDS, WIDTH, **ratios)


def transparent(**ratios: float) -> TiedLstm:
    """An LSTM whose outputs are its hidden units as they are."""
    network = lstm(**ratios)
    with torch.no_grad():
        network.embedding.weight.copy_(torch.eye(WIDTH))
    return network


def outputs(network: TiedLstm, tokens: Tensor = TOKENS, *, seed: int = 1) -> Tensor:
    with global_randomness(seed):
        found: Tensor = network(tokens)[0]
    return found


# The network


def test_without_dropout_it_is_torchs_lstm() -> None:
    network = lstm()
    state = torch.randn(1, 5, WIDTH), torch.randn(1, 5, WIDTH)
    for given in (None, state):
        for training in (True, False):
            found, left = network.train(training)(TOKENS, given)
            hidden, expected = network.lstm(network.embedding(TOKENS), given)
            assert torch.equal(found, F.linear(hidden, network.embedding.weight, network.bias))
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(left, expected, strict=True))


def test_its_gradients_are_torchs() -> None:
    network, seed = lstm(), torch.randn(9, 5, WORDS)
    found = torch.autograd.grad((network(TOKENS)[0] * seed).sum(), list(network.parameters()))
    hidden, _ = network.lstm(network.embedding(TOKENS))
    expected = (F.linear(hidden, network.embedding.weight, network.bias) * seed).sum()
    for ours, theirs in zip(found, torch.autograd.grad(expected, list(network.parameters())), strict=True):
        torch.testing.assert_close(ours, theirs)


ALL = {"dropout_embedding": 0.5, "dropout_input": 0.5, "dropout_weights": 0.5, "dropout_hidden": 0.5}


@pytest.mark.parametrize("name", ALL)
def test_a_ratio_is_of_training_only_and_is_decided_by_the_global_generator(name: str) -> None:
    network = lstm(**{name: 0.5})
    assert torch.equal(outputs(network), outputs(network))
    assert not torch.equal(outputs(network, seed=1), outputs(network, seed=2))
    assert torch.equal(outputs(network.eval()), outputs(lstm()))


def test_hidden_dropout_has_one_mask_for_all_steps_and_other_ones_for_other_streams() -> None:
    dropped, kept = outputs(transparent(dropout_hidden=0.4)), outputs(transparent())
    mask = dropped != 0
    assert (mask == mask[0]).all()
    assert len(mask[0].unique(dim=0)) > 1
    torch.testing.assert_close(dropped[mask], kept[mask] / 0.6)
    masks = torch.stack([outputs(transparent(dropout_hidden=0.4), seed=seed)[0] != 0 for seed in range(100)])
    assert float(masks.double().mean()) == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_weight_dropout_thins_the_recurrent_matrix_with_one_mask_for_all_steps(p: float) -> None:
    network = lstm(dropout_weights=p)
    with global_randomness(1):
        network(TOKENS)[0].square().sum().backward()
    untouched = network.lstm.weight_hh_l0.grad == 0  # an entry that was dropped at every step
    assert float(untouched.double().mean()) == pytest.approx(p, abs=0.05)
    assert not (network.lstm.weight_ih_l0.grad[:, TOKENS.unique()] == 0).all()
    thinned = lstm()
    with torch.no_grad():
        thinned.lstm.weight_hh_l0 *= ~untouched / (1 - p)
    torch.testing.assert_close(outputs(network), outputs(thinned))


def test_weight_dropout_leaves_the_weights_themselves_alone() -> None:
    network = lstm(dropout_weights=0.5)
    before = network.lstm.weight_hh_l0.clone()
    outputs(network)
    assert torch.equal(network.lstm.weight_hh_l0, before)
    assert dict(network.named_parameters()).keys() == dict(lstm().named_parameters()).keys()


def test_embedding_dropout_drops_a_word_everywhere() -> None:
    same = torch.full((4, 3), 7)
    network, nothing, scaled = transparent(dropout_embedding=0.3), transparent(), transparent()
    with torch.no_grad():
        nothing.lstm.weight_ih_l0[:, 7] = 0  # as if word 7 were not there
        scaled.lstm.weight_ih_l0[:, 7] /= 0.7
    seen = [outputs(network, same, seed=seed) for seed in range(200)]
    dropped = [torch.allclose(each, outputs(nothing, same)) for each in seen]
    kept = [torch.allclose(each, outputs(scaled, same)) for each in seen]
    assert all(one != other for one, other in zip(dropped, kept, strict=True))
    assert sum(dropped) / 200 == pytest.approx(0.3, abs=0.08)


def test_input_dropout_has_one_mask_for_all_steps_and_other_ones_for_other_streams() -> None:
    """Of one unit: word 7 enters as that unit alone, so a stream either hears it at every step or never."""
    same = torch.full((4, 40), 7)
    network, nothing, scaled = transparent(dropout_input=0.5), transparent(), transparent()
    with torch.no_grad():
        nothing.lstm.weight_ih_l0[:, 7] = 0
        scaled.lstm.weight_ih_l0[:, 7] /= 0.5
    found, silent, loud = outputs(network, same), outputs(nothing, same), outputs(scaled, same)
    dropped = torch.isclose(found, silent).all(dim=2).all(dim=0)
    kept = torch.isclose(found, loud).all(dim=2).all(dim=0)
    assert (dropped != kept).all()
    assert 5 < int(dropped.sum()) < 35


def test_all_ratios_together_can_be_trained() -> None:
    network = lstm(**ALL)
    with global_randomness(0):
        F.cross_entropy(network(TOKENS[:-1])[0].flatten(0, 1), TOKENS[1:].flatten()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_the_embedding_is_the_output_layer_and_counted_once() -> None:
    assert sum(p.numel() for p in TiedLstm(1000, 64).parameters()) == 98_280
    assert esgd.genome.Genome.of(TiedLstm(1000, 64)).size == 98_280


# The miniature's text


def test_frequent_words_are_numbered_by_frequency_and_rare_ones_are_unknown() -> None:
    vocabulary = ("rare", "the", "<unk>", "of", "never")
    train = torch.tensor([0, 1, 1, 1, 2, 2, 3, 3, 1])
    short = shortened(Text(vocabulary, train, torch.tensor([0, 1, 4]), torch.tensor([3, 4, 2])), words=3, tokens=6)
    assert short.vocabulary == ("the", "<unk>", "of")
    assert short.train.tolist() == [1, 0, 0, 0, 1, 1]
    assert short.valid.tolist() == [1, 0, 1]
    assert short.test.tolist() == [2, 1, 1]


def test_a_text_without_unknown_words_is_refused() -> None:
    tokens = torch.tensor([0, 1, 1])
    with pytest.raises(DataError, match="<unk> is not among the 2 most frequent words"):
        shortened(Text(("a", "b"), tokens, tokens, tokens), words=2, tokens=2)


# Species


def test_patience_divides_the_rate_by_three_again_and_again() -> None:
    assert [Drops(every=3)(Moment(epoch=epoch, epochs=9)) for epoch in (0, 2.9, 3, 5, 6)] == pytest.approx(
        [1, 1, 1 / 3, 1 / 3, 1 / 9]
    )
    species = Patient(species=pool(gamma=0.33))
    policies = [species(ask(1, j)) for j in range(300)]
    assert {policy.settings["patience"] for policy in policies} == set(range(3, 11))
    assert all(policy.schedule == Drops(every=policy.settings["patience"]) for policy in policies)
    plain = pool(gamma=0.33)
    assert all(policy.hyper == plain(ask(1, j)).hyper for j, policy in enumerate(policies))
    assert Policy.from_record(policies[0].record()) == policies[0]


FIXED = Policy(optimizer="sgd", hyper={"lr": 8.0})


def fared(*after: float) -> list[Fared]:
    return [Fared(k=k, policy=FIXED, before=9.0, after=value, accepted=True) for k, value in enumerate(after, start=1)]


@pytest.mark.parametrize(
    ("patience", "after", "lr"),
    [
        (0, (), 8.0),
        (0, (3.0,), 8.0),
        (0, (3.0, 2.0, 1.0), 8.0),
        (0, (3.0, 3.0), 4.0),  # backed off: where it was
        (0, (3.0, 3.0, 3.0), 2.0),
        (0, (3.0, 4.0, 2.0), 4.0),
        (2, (3.0, 4.0, 4.0), 8.0),
        (2, (3.0, 4.0, 4.0, 4.0), 4.0),
        (2, (3.0, 4.0, 4.0, 2.0, 4.0, 4.0), 8.0),
        (2, (3.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0), 2.0),
        (0, (float("inf"), 3.0), 4.0),
    ],
)
def test_a_plateau_lowers_the_rate(patience: int, after: tuple[float, ...], lr: float) -> None:
    policy = Plateau(policy=FIXED, patience=patience, factor=0.5)(ask(past=fared(*after)))
    assert policy.hyper["lr"] == lr
    assert policy.hyper["lr"] / policy.annealing == 8.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Drops(every=0), "every=0 is below 1"),
        (lambda: Drops(every=2, factor=0), r"factor=0 is not in \(0, 1\]"),
        (lambda: Plateau(policy=FIXED, patience=-1), "patience=-1 is below 0"),
        (lambda: Plateau(policy=FIXED, patience=1, factor=2), r"factor=2 is not in \(0, 1\]"),
        (lambda: Patient(species=Fixed(policy=FIXED), factor=2), r"factor=2 is not in \(0, 1\]"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        make()


# Both scales


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_a_study_needs_no_data_until_its_task_is_asked_for(scale: Any) -> None:
    found = study(scale)
    assert found.name == "ptb"
    recipes = [found.recipe, found.baseline, *([found.ours] if found.ours else [])]
    for recipe in recipes:
        assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_the_baseline_comes_first_and_every_arm_begins_with_it(scale: Any) -> None:
    found = study(scale)
    assert found.baseline is not None
    assert found.baseline.population == 1
    assert found.recipe.immigrants == (BASELINE,)
    assert isinstance(found.recipe.start, Perturbed)
    assert found.recipe.start.network == BASELINE


def test_our_rules_begin_where_the_papers_do_and_train_as_long() -> None:
    found = study("mini")
    assert found.ours is not None
    assert found.ours.start == found.recipe.start
    assert found.ours.population == found.recipe.population == 6
    assert found.ours.total_epochs == found.recipe.total_epochs == 8
    assert found.ours.backoff.certain
    assert not found.recipe.backoff.certain


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
    species = [found.recipe.species, found.population, found.baseline.species, *singles]
    for each in (*species, *([found.ours.species] if found.ours else ())):
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
    assert (described["train"]["tokens"], described["vocabulary"]) == (100_000, 1000)
    assert described["fitness"]["tokens"] == 36_880
    assert described["test"]["tokens"] == 82_430
    targets = torch.cat([window.targets.flatten() for window in miniature.calibration(20_000)])
    assert len(targets.unique()) > 900


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
