"""What a species may look at when it draws: the place, what was inherited, and how every policy has fared."""

from __future__ import annotations

import pytest

import esgd
from esgd.protocols import Draw
from esgd.randomness import Seeds
from esgd.schedules import Cosine
from esgd.species import Adam, Mixture, Sgd
from tests.small import ask, classify

POOL = Mixture(species=(Sgd(lr=(0.01, 3.0), schedule=Cosine(), clip_norm=1.0), Adam(lr=(1e-3, 1.0))))


def requests_of_a_run() -> tuple[list[Draw], list[esgd.Generation]]:
    seen: list[Draw] = []

    def watching(request: Draw) -> esgd.Policy:
        seen.append(request)
        return POOL(request)

    recipe = esgd.Recipe(population=3, generations=3, sgd_epochs=1, species=watching)
    return seen, list(esgd.evolve(classify(), recipe, seed=0))


def test_every_individual_of_every_generation_is_asked_for_once() -> None:
    seen, _ = requests_of_a_run()
    assert [(request.k, request.j) for request in seen] == [(k, j) for k in (1, 2, 3) for j in range(3)]
    assert {request.generations for request in seen} == {3}
    assert {request.stream for request in seen} == {Seeds(0, ("policy",))}


def test_the_past_tells_how_every_policy_fared() -> None:
    seen, generations = requests_of_a_run()
    assert list(seen[0].past) == []
    past = list(seen[-1].past)
    assert [fared.k for fared in past] == [1, 1, 1, 2, 2, 2]
    assert [fared.policy for fared in past] == [policy for each in generations[:2] for policy in each.policies]
    assert [fared.before for fared in past] == [fitness for each in generations[:2] for _, fitness in each.before]
    assert [fared.after for fared in past] == [fitness for each in generations[:2] for fitness in each.after]
    assert [fared.accepted for fared in past] == [accepted for each in generations[:2] for accepted in each.accepted]
    assert len({fared.accepted for fared in past}) == 2, "all fared alike, so nothing is compared"


def test_what_is_inherited_is_the_policy_of_the_same_place_in_the_population() -> None:
    seen, generations = requests_of_a_run()
    for k in (2, 3):
        asked = [request.inherited for request in seen if request.k == k]
        assert asked == list(generations[k - 2].population.policies)
    assert {request.inherited for request in seen if request.k == 1} == {None}


def test_a_draw_as_in_another_generation_has_its_random_numbers_and_keeps_its_place() -> None:
    now, then = ask(5, 2), ask(1, 2)
    assert now.as_in(1).seeds == then.seeds != now.seeds
    assert (now.as_in(1).k, now.as_in(1).j) == (5, 2)


@pytest.mark.parametrize("name", ["momentum", "lr"])
def test_a_name_asked_for_gives_a_stream_of_its_own(name: str) -> None:
    assert ask(2, 1).seeds(name).initial_seed() == Seeds(0)("policy", 2, 1, name).initial_seed()
