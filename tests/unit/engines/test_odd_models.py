"""Odd networks: each is trained with the same result by every engine, or refused by name before it is trained."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import esgd
from esgd import Loop, Pool, Vmap
from esgd.errors import EsgdError
from esgd.testing.evidence import contents, difference
from tests.campaign.odd_models import ODD, WORKS, Odd
from tests.unit.engines.inline import Inline, through_ray

LOOP, VMAP = Loop(threads=1), Vmap(chunk=2, threads=1)
RECIPE = esgd.Recipe(population=3, offspring=4, generations=2, sgd_epochs=1)

BATCHED_QUICKLY = {
    *("parameters: transposed", "buffers: integer and boolean", "attributes: counter with a threshold"),
    *("attributes: written before it is read", "forward: writes into its input", "tasks: passes batches twice"),
}
"""Networks that `Vmap` trains here: each takes seconds, until its steps are recorded. The campaign has all of them."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning"),
]


def result(odd: Odd, engine: Any) -> Any:
    """All that came of a run, or the sentence that refuses it."""
    try:
        generations = list(esgd.evolve(odd.task(), RECIPE, seed=0, engine=engine))
    except EsgdError as error:
        return str(error)
    return [[contents(each.population), each.guarantee, each.record()["ledger"]] for each in generations]


def fitnesses(found: Any) -> torch.Tensor:
    return torch.stack([population["fitness"] for population, _, _ in found])


@pytest.mark.parametrize("name", ODD)
def test_an_odd_network_is_trained_by_every_worker_as_by_loop_or_refused_by_name(name: str) -> None:
    odd = ODD[name]
    loops = result(odd, LOOP)
    if odd.expected == WORKS:
        assert not isinstance(loops, str), loops
        assert [guarantee for _, guarantee, _ in loops] == ["held"] * 2
    else:
        assert isinstance(loops, str)
        assert re.search(odd.expected, loops), loops
    for engine in (Inline(workers=2), Inline(workers=3, travel=through_ray)):
        ours = result(odd, engine)
        assert difference([each[:2] for each in ours], [each[:2] for each in loops]) == ""


@pytest.mark.parametrize(
    "name", [name for name in ODD if ODD[name].expected_of_vmap != WORKS or name in BATCHED_QUICKLY]
)
def test_vmap_trains_an_odd_network_as_loop_does_or_names_what_it_cannot_batch(name: str) -> None:
    odd = ODD[name]
    ours = result(odd, VMAP)
    if odd.expected_of_vmap != WORKS:
        assert isinstance(ours, str)
        assert re.search(odd.expected_of_vmap, ours), ours
        return
    assert not isinstance(ours, str), ours
    if odd.near:
        loops = result(odd, LOOP)
        torch.testing.assert_close(fitnesses(ours), fitnesses(loops), rtol=1e-4, atol=1e-4)
        assert [ledger for _, _, ledger in ours] == [ledger for _, _, ledger in loops]
    again = result(odd, Inline(inner=VMAP))
    assert difference([each[:2] for each in again], [each[:2] for each in ours]) == ""


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("name", ["parameters: transposed", "attributes: generator", "layers: spectral norm"])
def test_a_real_pool_trains_an_odd_network_as_loop_does(name: str) -> None:
    loops, pools = (result(ODD[name], engine) for engine in (LOOP, Pool(workers=2)))
    assert difference([each[:2] for each in pools], [each[:2] for each in loops]) == ""
