"""Module ⇄ row: what an individual consists of, what everybody shares, and what is refused by name."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from esgd.errors import TaskError
from esgd.genome import Genome, build, persistent_buffers
from esgd.randomness import Seeds


class Tied(nn.Module):
    """A language model's usual tie: the output layer is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.output = nn.Linear(5, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.embedding(tokens))


def adapter() -> nn.Module:
    """A frozen base in half precision with a trainable head, LoRA-style."""
    base = nn.Linear(6, 50).half().requires_grad_(False)
    return nn.Sequential(base, nn.Linear(50, 3))


class Buffers(nn.Module):
    """Every kind of buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("scale", torch.rand(4))
        self.register_buffer("seen", torch.tensor(3))
        self.register_buffer("constant", torch.rand(4), persistent=False)


def test_the_row_is_all_trainable_parameters_in_the_networks_order() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    genome = Genome.of(network)
    assert torch.equal(genome.read(network)[0], parameters_to_vector(network.parameters()).detach())
    assert genome.size == 4 * 3 + 3 + 3 * 2 + 2


@pytest.mark.parametrize(
    "make", [Tied, adapter, Buffers, lambda: nn.LSTM(3, 4, num_layers=2), lambda: nn.BatchNorm2d(3)]
)
def test_what_is_written_into_a_network_is_read_back_bit_for_bit(make: Callable[[], nn.Module]) -> None:
    genome = Genome.of(make())
    row = torch.randn(genome.size, generator=Seeds(0)("row"))
    buffers = {name: value + 1 for name, value in genome.read(make())[1].items()}
    read, found = genome.read(genome.module(row, buffers))
    assert torch.equal(read, row)
    assert all(torch.equal(found[name], value) for name, value in buffers.items())


def test_tied_weights_are_one_piece_of_the_row_and_stay_tied() -> None:
    genome = Genome.of(Tied())
    assert genome.names == ("embedding.weight",)
    assert genome.size == 35
    network = genome.module(torch.arange(35.0), {})
    assert network.output.weight is network.embedding.weight
    assert torch.equal(network.output.weight, torch.arange(35.0).view(7, 5))


def test_views_share_the_rows_memory() -> None:
    genome = Genome.of(nn.Linear(3, 2))
    row = torch.zeros(genome.size)
    genome.views(row)["weight"].fill_(1.0)
    assert row.tolist() == [1.0] * 6 + [0.0] * 2


def test_frozen_parameters_are_shared_by_everybody_and_may_have_another_dtype() -> None:
    genome = Genome.of(adapter())
    assert genome.names == ("1.weight", "1.bias")
    assert genome.dtype == torch.float32
    networks = [genome.module(torch.full((genome.size,), value), {}) for value in (1.0, 2.0)]
    assert {network[0].weight.data_ptr() for network in networks} == {genome.template[0].weight.data_ptr()}
    assert networks[0][0].weight.dtype == torch.float16
    assert networks[0][1].weight.data_ptr() != networks[1][1].weight.data_ptr()


def test_casting_a_network_that_was_handed_out_leaves_everybody_elses_base_alone() -> None:
    genome = Genome.of(adapter())
    genome.module(torch.zeros(genome.size), {}).double().requires_grad_(True)
    again = genome.module(torch.zeros(genome.size), {})
    assert again[0].weight.dtype == torch.float16
    assert not again[0].weight.requires_grad


def test_persistent_buffers_travel_and_constants_stay() -> None:
    genome = Genome.of(Buffers())
    assert set(genome.state) == {"scale", "seen"}
    network = genome.module(torch.zeros(genome.size), {"scale": torch.ones(4), "seen": torch.tensor(9)})
    assert int(network.seen) == 9
    assert network.seen.dtype == torch.int64
    assert torch.equal(network.constant, genome.template.constant)


def test_a_buffer_that_two_layers_share_is_counted_once() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    shared = torch.zeros(3)
    network[0].register_buffer("mask", shared)
    network[1].register_buffer("mask", shared)
    assert list(persistent_buffers(network)) == ["0.mask"]


def test_a_network_is_handed_out_in_eval_mode_and_on_its_own() -> None:
    genome = Genome.of(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    row = torch.zeros(genome.size)
    network = genome.module(row, {})
    assert not network.training
    with torch.no_grad():
        network[0].weight.fill_(5.0)
    assert not row.any()


def test_rows_of_a_double_network_are_double() -> None:
    genome = Genome.of(nn.Linear(3, 2).double())
    assert genome.dtype == torch.float64
    assert genome.read(genome.template)[0].dtype == torch.float64


def test_scalar_and_empty_parameters_have_their_place() -> None:
    network = nn.Linear(2, 1)
    network.gain, network.nothing = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.zeros(0))
    genome = Genome.of(network)
    assert genome.size == 4
    assert torch.equal(genome.module(*genome.read(network)).gain, network.gain)


def two_dtypes() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())


def one_complex() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.complex64))


class Remembering(nn.Linear):
    """A layer with state that is no tensor."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


def nothing_to_train() -> nn.Module:
    return nn.Linear(2, 2).requires_grad_(False)


class Locked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (two_dtypes, ["'1.weight' is torch.float64", "'0.weight' is torch.float32", "one floating dtype"]),
        (
            lambda: nn.Linear(2, 2, dtype=torch.complex64),
            ["'weight' is torch.complex64. An individual is a real", "view_as_complex"],
        ),
        (one_complex, ["'1.weight' is torch.complex64. An", "real-valued vector"]),
        (Remembering, ["state dict has '_extra_state', a dict", "register_buffer"]),
        (lambda: nn.Sequential(Remembering()), ["state dict has '0._extra_state'"]),
        (nothing_to_train, ["Linear has no trainable parameters", "Unfreeze at least one"]),
        (lambda: nn.Sequential(nn.LazyLinear(3)), ["'0.weight' has no shape yet", "Run one batch"]),
        (Locked, ["Locked cannot be copied", "cannot pickle"]),
    ],
    ids=[
        "two dtypes",
        "complex",
        "one complex",
        "extra state",
        "extra state of a layer",
        "all frozen",
        "lazy",
        "uncopyable",
    ],
)
def test_a_network_without_a_genome_is_refused_by_name(make: Callable[[], nn.Module], words: list[str]) -> None:
    with pytest.raises(TaskError) as error:
        Genome.of(make())
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_network_or_layer_is_refused_by_name() -> None:
    with pytest.raises(TaskError, match="is a torch.jit.ScriptModule.*Return the nn.Module from make_model"):
        Genome.of(torch.jit.script(nn.Linear(2, 2)))
    with pytest.raises(TaskError, match="layer '1' is a torch.jit.ScriptModule"):
        Genome.of(nn.Sequential(nn.Linear(2, 2), torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))))


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
def test_old_style_weight_norm_is_refused_with_the_name_of_the_new_one() -> None:
    network = nn.utils.weight_norm(nn.Linear(2, 2))
    network(torch.zeros(1, 2))
    with pytest.raises(TaskError, match="parametrizations.weight_norm"):
        Genome.of(network)


def test_new_style_parametrizations_round_trip() -> None:
    network = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    genome = Genome.of(network)
    assert torch.equal(genome.module(*genome.read(network)).weight, network.weight)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (nn.Linear(3, 5), r"no trainable parameter 'weight' of shape \(2, 3\)"),
        (nn.Linear(3, 2, bias=False), r"no trainable parameter 'bias' of shape \(2,\)"),
    ],
)
def test_a_network_of_another_layout_is_refused_with_the_first_difference(other: nn.Module, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        Genome.of(nn.Linear(3, 2)).read(other)


def test_a_network_with_one_parameter_more_is_refused() -> None:
    with pytest.raises(TaskError, match="'bias' that the population lacks"):
        Genome.of(nn.Linear(3, 2, bias=False)).read(nn.Linear(3, 2))


def test_initial_weights_depend_on_the_address_alone_and_the_caller_notices_nothing() -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first = build(lambda: nn.Linear(3, 2), Seeds(0, ("init", 1)))
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(10)
    again, other = (
        build(lambda: nn.Linear(3, 2), Seeds(0, ("init", 1))),
        build(lambda: nn.Linear(3, 2), Seeds(0, ("init", 2))),
    )
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)


def test_make_model_must_return_a_network() -> None:
    with pytest.raises(TaskError, match="make_model returned NoneType, not an nn.Module"):
        build(lambda: None, Seeds(0))
