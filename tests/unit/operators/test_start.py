"""The initial population."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_model
from torch import Tensor, nn

import esgd
from esgd.errors import RecipeError, TaskError
from esgd.genome import Genome
from esgd.operators import Perturbed, RandomStart, Saved
from esgd.operators.start import loaded
from tests.small import batchnorm_mlp, classify, mlp, random_data, true_fitness

STILL = {"generations": 1, "sgd_epochs": 1, "evolution_steps": 0, "mates": 1, "species": esgd.species.Sgd(lr=0.0)}


def first_rows(start: Any, make_model: Any = mlp, *, size: int = 4, seed: int = 0, **task: Any) -> Tensor:
    """Ψ(0) as a run sees it: one generation in which nobody moves."""
    (generation,) = esgd.evolve(
        classify(make_model, **task), esgd.Recipe(population=size, start=start, **STILL), seed=seed
    )
    return generation.population.rows


def row(network: nn.Module) -> Tensor:
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach()


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return mlp()


def test_a_random_start_is_decided_by_the_seed_and_not_by_the_callers_randomness() -> None:
    torch.manual_seed(1)
    once = first_rows(RandomStart())
    torch.manual_seed(2)
    assert torch.equal(first_rows(RandomStart()), once)
    assert not torch.equal(first_rows(RandomStart(), seed=1), once)
    assert len(once.unique(dim=0)) == 4


def test_a_larger_population_begins_with_the_smaller_one() -> None:
    assert torch.equal(first_rows(RandomStart(), size=6)[:4], first_rows(RandomStart()))


def test_a_perturbed_start_is_one_network_and_its_noisy_copies() -> None:
    given = network(9)
    rows = first_rows(Perturbed(network=given, sigma=0.05), size=20)
    assert torch.equal(rows[0], row(given))
    noise = rows[1:] - rows[0]
    assert float(noise.std()) == pytest.approx(0.05, rel=0.1)
    assert len(rows.unique(dim=0)) == 20


def test_a_range_of_noise_is_drawn_for_each_individual() -> None:
    """Penn Treebank: "the first population was initialized by mutation of baseline model", σ_0 in [0.01, 0.15]."""
    rows = first_rows(Perturbed(sigma=(0.01, 0.15)), size=60)
    strengths = (rows[1:] - rows[0]).std(dim=1)
    assert float(strengths.min()) < 0.03
    assert float(strengths.max()) > 0.12
    assert float(strengths.mean()) == pytest.approx(0.08, rel=0.15)
    assert torch.equal(first_rows(Perturbed(sigma=(0.05, 0.05))), first_rows(Perturbed(sigma=0.05)))


def test_without_noise_everybody_is_the_same() -> None:
    assert len(first_rows(Perturbed(sigma=0)).unique(dim=0)) == 1


def test_a_perturbed_start_of_a_fresh_network_begins_where_the_random_start_does() -> None:
    assert torch.equal(first_rows(Perturbed())[0], first_rows(RandomStart())[0])


def test_a_warm_up_trains_the_one_network_before_it_is_copied() -> None:
    data = random_data(48)
    cold, warm = (first_rows(Perturbed(sigma=0, epochs=epochs), size=2, train=data, fitness=data) for epochs in (0, 20))
    assert len(warm.unique(dim=0)) == 1
    before, after = network(0), network(0)
    torch.nn.utils.vector_to_parameters(cold[0], before.parameters())
    torch.nn.utils.vector_to_parameters(warm[0], after.parameters())
    assert true_fitness(after, data) < true_fitness(before, data) - 0.05


def test_a_warm_up_is_on_the_ledger() -> None:
    recipe = esgd.Recipe(population=3, start=Perturbed(epochs=7), **STILL)
    (generation,) = esgd.evolve(classify(), recipe, seed=0)
    assert generation.work.sgd_backward == 48 * (7 + 3)


def test_saved_networks_are_modules_state_dicts_or_files(tmp_path: Path) -> None:
    networks = [network(seed) for seed in range(3)]
    save_model(networks[2], tmp_path / "third.safetensors")
    start = Saved(networks=[networks[0], networks[1].state_dict(), tmp_path / "third.safetensors"])
    assert torch.equal(first_rows(start, size=3), torch.stack([row(each) for each in networks]))
    as_text = Saved(networks=(str(tmp_path / "third.safetensors"),))
    assert torch.equal(first_rows(as_text, size=1)[0], row(networks[2]))


def test_more_saved_networks_than_needed_are_the_first_ones() -> None:
    networks = tuple(network(seed) for seed in range(3))
    assert torch.equal(first_rows(Saved(networks=networks), size=2), torch.stack([row(each) for each in networks[:2]]))


def test_buffers_come_along() -> None:
    given = batchnorm_mlp()
    given[1].running_mean += 3
    start, rule = Perturbed(network=given, sigma=0), esgd.operators.Averaged()
    recipe = esgd.Recipe(population=3, offspring=2, generations=1, sgd_epochs=0, start=start, buffers=rule)
    (generation,) = esgd.evolve(classify(batchnorm_mlp), recipe, seed=0)
    assert torch.equal(generation.population.buffers["1.running_mean"], torch.full((3, 7), 3.0))


def test_too_few_saved_networks_are_refused() -> None:
    with pytest.raises(RecipeError, match="2 saved networks, but population=4.*Perturbed"):
        first_rows(Saved(networks=(network(0), network(1))))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no file .*nowhere.safetensors.*Correct the path"):
        first_rows(Perturbed(network=tmp_path / "nowhere.safetensors"))


def test_a_file_that_is_no_network_is_named(tmp_path: Path) -> None:
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(RecipeError, match="junk.safetensors.*does not fit the task's network"):
        first_rows(Perturbed(network=tmp_path / "junk.safetensors"))


def test_a_state_dict_of_another_network_is_refused() -> None:
    with pytest.raises(RecipeError, match="(?s)does not fit the task's network.*one architecture"):
        first_rows(Perturbed(network=nn.Linear(2, 2).state_dict()))


def test_a_module_of_another_network_is_refused_by_the_name_of_what_differs() -> None:
    with pytest.raises(TaskError, match="no trainable parameter '0.weight' of shape"):
        first_rows(Saved(networks=(nn.Linear(2, 2),) * 4))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sigma": -1}, "sigma=-1 is below 0. It is the standard deviation.*Use 0.01, or 0 for copies"),
        ({"sigma": nan}, "sigma=nan is not a finite number"),
        ({"sigma": "x"}, "sigma='x' is not a number"),
        ({"sigma": (0.2, 0.1)}, r"low=0.2 exceeds high=0.1. sigma=\(0.2, 0.1\): It is the standard deviation"),
        ({"sigma": (-0.1, 0.1)}, "low=-0.1 is below 0"),
        ({"sigma": (0.1, 0.2, 0.3)}, r"sigma=\(0.1, 0.2, 0.3\) is not a number.*a range"),
        ({"epochs": -2}, "epochs=-2 is below 0.*Use 0 for no warm-up"),
        ({"epochs": 1.5}, "epochs=1.5 is not an int"),
    ],
)
def test_noise_or_epochs_that_cannot_be_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        Perturbed(**given)


def test_one_path_is_no_list_of_networks() -> None:
    with pytest.raises(RecipeError, match="networks='a.safetensors' is not a list.*at least μ of them"):
        Saved(networks="a.safetensors")


def on_a_base(value: float) -> nn.Module:
    """A trainable head on a frozen base, whose last bias is NaN as padding may be."""
    module = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    nn.init.constant_(module[0].weight, value)
    nn.init.constant_(module[0].bias, 0.0)
    module[0].requires_grad_(False)
    module.register_parameter("padding", nn.Parameter(torch.tensor([float("nan")]), requires_grad=False))
    return module


AS = pytest.mark.parametrize("kind", ["module", "state dict", "file"])


def saved_as(kind: str, module: nn.Module, folder: Path) -> Any:
    if kind == "file":
        save_model(module, folder / "saved.safetensors")
        return folder / "saved.safetensors"
    return module if kind == "module" else module.state_dict()


@AS
def test_a_saved_network_on_the_same_frozen_base_is_taken(kind: str, tmp_path: Path) -> None:
    genome, given = Genome.of(on_a_base(0.5)), on_a_base(0.5)
    module = loaded(genome, saved_as(kind, given, tmp_path))
    assert torch.equal(genome.read(module)[0], genome.read(given)[0])


@AS
def test_a_saved_network_on_another_frozen_base_is_refused_by_the_name_of_what_differs(
    kind: str, tmp_path: Path
) -> None:
    given = saved_as(kind, on_a_base(0.25), tmp_path)
    with pytest.raises(
        RecipeError, match="frozen parameter '0.weight'.*make_model makes.*all individuals share.*Load the"
    ):
        loaded(Genome.of(on_a_base(0.5)), given)


def test_the_same_base_in_another_precision_is_the_same_base() -> None:
    other = on_a_base(0.5)
    other[0].double()
    assert loaded(Genome.of(on_a_base(0.5)), other) is other


def test_a_frozen_parameter_that_only_one_of_them_has_is_named() -> None:
    other = on_a_base(0.5)
    del other.padding
    with pytest.raises(RecipeError, match="frozen parameter 'padding'"):
        loaded(Genome.of(on_a_base(0.5)), other)


def test_an_immigrant_on_another_frozen_base_is_refused_in_a_run() -> None:
    recipe = esgd.Recipe(population=2, generations=1, sgd_epochs=1, immigrants=(on_a_base(0.25),))
    with pytest.raises(RecipeError, match="frozen parameter '0.weight'"):
        next(esgd.evolve(classify(lambda: on_a_base(0.5)), recipe, seed=0))


def test_a_start_of_another_size_is_refused() -> None:
    (generation,) = esgd.evolve(classify(), esgd.Recipe(population=3, **STILL), seed=0)
    with pytest.raises(
        RecipeError, match="the start has 3 individuals, but generation 1 of this recipe trains 5.*set population=3"
    ):
        next(esgd.evolve(classify(), esgd.Recipe(population=5), seed=0, resume=generation.population))
