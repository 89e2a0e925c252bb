"""Two runs in threads of one process, as with Optuna's n_jobs=2: each has the bits of a run alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread, get_ident
from typing import Any

import pytest
import torch

import esgd
from esgd import randomness
from esgd.randomness import brief_randomness, global_randomness
from tests.small import classify, dropout_mlp

RECIPE = esgd.Recipe(population=3, offspring=3, generations=2, sgd_epochs=2)


def fit(seed: int, engine: Any = None) -> torch.Tensor:
    """Dropout draws from the global generator of the process."""
    engine = engine or esgd.Loop(threads=1 + seed % 2)
    return esgd.fit(classify(dropout_mlp), RECIPE, seed=seed, engine=engine, progress=False).population.rows


def together(work: Any, count: int = 4) -> list[Any]:
    begin = Barrier(count)

    def begun(number: int) -> Any:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begun, range(count)))


@pytest.mark.parametrize("engine", [None, esgd.Vmap()])
def test_runs_in_threads_have_the_bits_of_runs_alone(engine: Any) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    alone = [fit(seed, engine) for seed in range(2)]
    beside = together(lambda seed: fit(seed, engine), 2)
    assert all(torch.equal(one, other) for one, other in zip(alone, beside, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_loops_of_ones_own_in_threads_have_the_bits_of_loops_alone() -> None:
    def last(seed: int) -> torch.Tensor:
        run = esgd.evolve(classify(dropout_mlp), RECIPE, seed=seed, engine=esgd.Loop(threads=1))
        return [generation.population.rows for generation in run][-1]

    alone = [last(seed) for seed in range(2)]
    assert all(torch.equal(*pair) for pair in zip(alone, together(last, 2), strict=True))


def test_two_loops_in_one_thread_may_alternate() -> None:
    runs = [esgd.evolve(classify(dropout_mlp), RECIPE, seed=seed, engine=esgd.Loop(threads=1)) for seed in (0, 1)]
    pairs = list(zip(*runs, strict=True))
    assert [torch.equal(pairs[-1][seed].population.rows, fit(seed, esgd.Loop(threads=1))) for seed in (0, 1)] == [
        True
    ] * 2


def test_randomness_that_is_lent_is_lent_to_one_thread_at_a_time() -> None:
    def draw(seed: int) -> list[float]:
        with global_randomness(seed):
            return [float(torch.rand(())) for _ in range(50)]

    assert together(draw) == [draw(seed) for seed in range(4)]


class WatchedTurn:
    """The real lock; says when a second thread asks for it."""

    def __init__(self, turn: Any) -> None:
        self.turn, self.owner, self.asked = turn, get_ident(), Event()

    def __enter__(self) -> None:
        if get_ident() != self.owner:
            self.asked.set()
        self.turn.acquire()

    def __exit__(self, *error: object) -> None:
        self.turn.release()


def test_a_brief_loan_of_another_thread_waits_until_this_ones_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either event wakes the first thread: a wrong loan that has begun, or a right one that asks for its turn."""
    turn, drawn, over = WatchedTurn(randomness.TURN), list[float](), Event()
    monkeypatch.setattr(randomness, "TURN", turn)

    def beside() -> None:
        with brief_randomness(5):
            turn.asked.set()
            assert over.wait(60)
            drawn.append(float(torch.rand(())))

    thread = Thread(target=beside)
    with global_randomness(1):
        thread.start()
        assert turn.asked.wait(60)
        first = float(torch.rand(()))
    over.set()
    thread.join()
    with global_randomness(1):
        assert first == float(torch.rand(()))
    with global_randomness(5):
        assert drawn == [float(torch.rand(()))]
