"""The language model of the Penn Treebank experiment: torch's LSTM, its dropout, and weights that are tied."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import esgd
from esgd.randomness import Seeds, global_randomness
from esgd_paper.networks.tied_lstm import TiedLstm

WORDS = WIDTH = 12
TOKENS = torch.randint(WORDS, (9, 5), generator=Seeds(0)("tokens"))  # (time, streams)
ALL = {"dropout_embedding": 0.5, "dropout_input": 0.5, "dropout_weights": 0.5, "dropout_hidden": 0.5}


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
