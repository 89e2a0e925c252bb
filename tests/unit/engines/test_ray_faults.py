"""Faults, really injected into a cluster of several nodes on this machine: whatever is lost, the bits are Loop's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import esgd
from esgd import Loop, Ray
from esgd.engines.cluster import executor, failures
from esgd.engines.cluster.connection import connected
from esgd.engines.cluster.resources import WorkerResources
from esgd.errors import EngineError
from esgd.testing.evidence import contents, difference
from tests.small import CLASSES, INPUTS, mlp, random_data
from tests.unit.engines.clusters import PATIENCE, PLAIN, RECIPE, quiet, rich_mlp, run, the_task, until, workers_of

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at processes through /proc"),
    pytest.mark.filterwarnings("default:a worker was lost:RuntimeWarning"),
]

STORE = 80_000_000  # bytes of each node's object store; Ray allows no less than 75 MB
SMALL = {"object_store_memory": STORE, "include_log_monitor": False}


class Nodes:
    """A cluster whose head does no work, so that every other node can be lost."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, **SMALL}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = list[Any]()

    def add(self, cpus: int = 1) -> str:
        self.nodes.append(self.cluster.add_node(num_cpus=cpus, **SMALL))
        return str(self.nodes[-1].node_id)

    def remove(self, identity: str = "") -> None:
        """Without grace: all processes of this node, or of the oldest one, are killed."""
        node = next(node for node in self.nodes if identity in ("", node.node_id))
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def just(self, count: int) -> None:
        while len(self.nodes) < count:
            self.add()
        while len(self.nodes) > count:
            self.remove()
        assert until(lambda: sum(node["Alive"] for node in ray.nodes()) == count + 1)


@pytest.fixture(scope="module")
def cluster(warm_ray_workers: None) -> Iterator[Nodes]:
    nodes = Nodes()
    with connected(nodes.cluster.address, WorkerResources(cpus=1, gpus=0), None):
        yield nodes
    nodes.cluster.shutdown()


@pytest.fixture
def nodes(cluster: Nodes) -> Iterator[Nodes]:
    """Two nodes for a worker each, and after every test nobody at work there."""
    cluster.just(2)
    yield cluster
    assert until(lambda: not workers_of()), "workers outlived their run"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is blamed sooner: no node is taken away here, and Ray need not be given the time to notice it."""
    monkeypatch.setattr(failures, "SETTLED", 1.0)


def once(path: Path) -> bool:
    """Whether this is the first time, of all processes."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def task_with(loss: Callable[[Tensor, Tensor], Tensor]) -> esgd.Supervised:
    data = {"train": random_data(48), "fitness": random_data(250, seed=1), "test": random_data(20, seed=2)}
    return esgd.Supervised(rich_mlp, loss, **data, batch_size=16, nonnegative=True)


def during(phase: str, act: Callable[[], Any]) -> Callable[[str, int, int], None]:
    """A tick that acts once, when the first individual of a phase is done."""
    acted = []

    def tick(now: str, done: int, total: int) -> None:
        if now == phase and done == 1 < total and not acted:
            acted.append(act())

    return tick


# Workers


def test_workers_killed_in_training_in_evaluation_and_between_generations_are_replaced(
    nodes: Nodes, recwarn: pytest.WarningsRecorder
) -> None:
    killed = []

    def kill_one(when: str) -> None:
        if when not in killed:
            killed.append(when)
            os.kill(workers_of()[0], signal.SIGKILL)

    def tick(phase: str, done: int, total: int) -> None:
        if done == 1 < total:
            kill_one(phase)

    found = []
    for generation in esgd.evolve(the_task(), RECIPE, seed=3, engine=Ray(workers=2), tick=tick):
        found.append(contents(generation.population))
        kill_one("between generations")
    assert killed == ["sgd", "evolution", "between generations"]
    said = [str(each.message) for each in recwarn if each.category is RuntimeWarning]
    assert said, "nobody was told"
    assert all("a worker was lost in " in each and "another one does it again" in each for each in said)
    assert difference(found, [each[0] for each in quiet()]) == ""


def test_workers_that_die_in_the_middle_of_training_and_of_a_fitness_are_replaced(nodes: Nodes, tmp_path: Path) -> None:
    """One dies at its fourth gradient, and one at its fourth fitness; what they had half done is done again."""
    calls: list[bool] = []

    def loss(output: Tensor, target: Tensor) -> Tensor:
        training = torch.is_grad_enabled()
        calls.append(training)
        if calls.count(training) == 4 and once(tmp_path / f"died {training}"):
            os.kill(os.getpid(), signal.SIGKILL)
        return F.cross_entropy(output, target)

    with pytest.warns(RuntimeWarning, match="a worker was lost in .*; another one does it again"):
        found = run(Ray(workers=1), task=task_with(loss))
    assert {path.name for path in tmp_path.iterdir()} == {"died True", "died False"}
    assert difference(found, run(Loop(threads=1), task=task_with(loss))) == "", "the snapshots are there: Loop survives"


@pytest.mark.usefixtures("soon")
def test_an_individual_that_kills_every_worker_ends_the_run_and_is_named(nodes: Nodes) -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            os.kill(os.getpid(), signal.SIGKILL)
        return F.cross_entropy(output, target)

    who = "the SGD step of individual 0 in generation 1"
    with (
        pytest.warns(RuntimeWarning, match=f"a worker was lost in {who}; another one does it again"),
        pytest.raises(EngineError, match=f"3 workers were lost over {who}. .*or engine='loop'"),
    ):
        run(Ray(workers=1), PLAIN, task_with(loss))


def test_a_worker_that_dies_whenever_it_gets_ready_ends_the_run(nodes: Nodes) -> None:
    driver = os.getpid()

    def make_model() -> torch.nn.Module:
        return mlp()

    class Deadly:
        def __reduce__(self) -> Any:
            return _die_unless, (driver,)

    task = esgd.Supervised(make_model, F.cross_entropy, train=random_data(48), fitness=random_data(70))
    task.ballast = Deadly()  # type: ignore[attr-defined]
    with (
        pytest.warns(RuntimeWarning, match="a worker was lost in starting up"),
        pytest.raises(EngineError, match="3 workers were lost over starting up"),
    ):
        run(Ray(workers=1), PLAIN, task)


def _die_unless(pid: int) -> None:
    if os.getpid() != pid:
        os.kill(os.getpid(), signal.SIGKILL)


def test_an_exception_on_one_worker_stops_the_run_which_can_be_resumed(nodes: Nodes, tmp_path: Path) -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        done = (tmp_path / "run" / "history.jsonl").exists()  # in the second generation
        if torch.is_grad_enabled() and done and once(tmp_path / "raised"):
            raise ZeroDivisionError("one of them")
        return F.cross_entropy(output, target)

    def fit() -> esgd.Result:
        return esgd.fit(
            task_with(loss), RECIPE, seed=3, engine=Ray(workers=2), run=tmp_path / "run", progress=False, report=False
        )

    with pytest.raises(ZeroDivisionError, match="one of them") as caught:
        fit()
    assert any("the SGD step of individual" in note and "generation 2" in note for note in caught.value.__notes__)
    assert until(lambda: not workers_of())
    resumed, loops = fit(), run(Loop(threads=1), task=task_with(loss))
    assert difference(contents(resumed.population), loops[-1][0]) == ""


# Nodes


def test_nodes_that_are_lost_without_grace_and_others_that_join_change_nothing(nodes: Nodes, tmp_path: Path) -> None:
    """One in the middle of a gradient, and one in the middle of a fitness."""
    for phase in ("training", "evaluation"):
        (tmp_path / phase).mkdir()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        folder = tmp_path / ("training" if torch.is_grad_enabled() else "evaluation")
        if len(list(folder.glob("call *"))) >= 12 and once(folder / "snapshot"):
            (folder / "written").write_text(ray.get_runtime_context().get_node_id())
            (folder / "written").rename(folder / "node")
            time.sleep(PATIENCE)
        else:
            (folder / f"call {time.monotonic_ns()}").touch()
        return F.cross_entropy(output, target)

    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(run, Ray(workers=2), task=task_with(loss))
        lost = set[Path]()
        while len(lost) < 2:
            assert until(lambda: set(tmp_path.glob("*/node")) - lost)
            for each in set(tmp_path.glob("*/node")) - lost:
                nodes.remove(each.read_text())
                nodes.add()
                lost.add(each)
        assert difference(found.result(), run(Loop(threads=1), task=task_with(loss))) == ""


def test_a_node_that_is_lost_while_its_workers_get_ready_ends_nothing(nodes: Nodes, tmp_path: Path) -> None:
    """All three of them at once, and nobody is ready elsewhere."""
    nodes.just(0)
    large = nodes.add(cpus=3)
    task = the_task()
    task.ballast = Slow(tmp_path)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(run, Ray(workers=3), task=task)
        assert until(lambda: len(list(tmp_path.iterdir())) == 3)
        nodes.remove(large)
        nodes.add()
        assert difference(found.result(), quiet()) == ""


class Slow:
    """Takes the first three workers long to get."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.driver = folder, os.getpid()

    def __reduce__(self) -> Any:
        return _slowly, (self.folder, self.driver)


def _slowly(folder: Path, driver: int) -> None:
    if os.getpid() != driver:
        is_early = len(list(folder.iterdir())) < 3
        (folder / str(os.getpid())).touch()
        if is_early:
            time.sleep(PATIENCE)


def test_nodes_that_are_taken_away_are_not_the_jobs_fault(nodes: Nodes, tmp_path: Path) -> None:
    """One individual loses three nodes, one after another."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        snapshots = len(list(tmp_path.iterdir()))
        if torch.is_grad_enabled() and snapshots < 3:
            (tmp_path / f"{snapshots} {ray.get_runtime_context().get_node_id()}").touch()
            time.sleep(PATIENCE)
        return F.cross_entropy(output, target)

    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(run, Ray(workers=1), task=task_with(loss))
        for lost in range(3):
            assert until(lambda lost=lost: any(tmp_path.glob(f"{lost} *")))
            nodes.remove(next(tmp_path.glob(f"{lost} *")).name.partition(" ")[2])
            nodes.add()
        assert difference(found.result(), run(Loop(threads=1), task=task_with(loss))) == ""


def test_all_workers_may_be_gone_for_a_while(nodes: Nodes) -> None:
    gone = threading.Event()

    def lose_all() -> None:
        nodes.remove()
        nodes.remove()
        gone.set()

    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(run, Ray(workers=2), tick=during("sgd", lose_all))
        assert gone.wait(PATIENCE)
        time.sleep(3)
        nodes.add()
        assert difference(found.result(), quiet()) == ""


def test_workers_follow_the_cluster(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node, then two, then another one alone: nobody says how many workers there are."""
    monkeypatch.setattr(executor, "CENSUS", 0.1)
    nodes.just(1)
    recipe = esgd.Recipe(population=5, offspring=9, generations=4, sgd_epochs=1, elites=2)
    found, expected = [], [1, 2, 1, 1]
    for generation in esgd.evolve(the_task(), recipe, seed=3, engine=Ray()):
        found.append(contents(generation.population))
        assert until(lambda: len(workers_of()) == expected[len(found) - 1]), f"after generation {generation.k}"
        if generation.k == 1:
            nodes.add()
        elif generation.k == 2:
            nodes.remove()
        time.sleep(0.2)
    assert difference(found, [each[0] for each in run(Loop(threads=1), recipe)]) == ""


def test_what_no_node_can_hold_is_explained_in_bounded_time(nodes: Nodes) -> None:
    begun = time.monotonic()
    with pytest.raises(EngineError, match=r"no worker could be placed .* in 3 s") as caught:
        run(Ray(workers=1, cpus_per_worker=2, patience=3), PLAIN)
    assert time.monotonic() - begun < 20
    assert "asks one node for 2 CPU" in str(caught.value)
    assert "2 × (1 CPU)" in str(caught.value)
    with pytest.raises(EngineError, match="asks one node for 1 CPU, 1 GPU; the nodes are"):
        run(Ray(gpus_per_worker=1, patience=1), PLAIN)


# Memory


def test_a_population_larger_than_the_object_stores_finds_room(nodes: Nodes) -> None:
    def wide() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(INPUTS, 100_000), torch.nn.ReLU(), torch.nn.Linear(100_000, CLASSES))

    task = esgd.Supervised(wide, F.cross_entropy, train=random_data(16), fitness=random_data(16), batch_size=16)
    recipe = esgd.Recipe(population=24, offspring=12, generations=1, sgd_epochs=1)
    found = run(Ray(workers=2), recipe, task)
    assert found[0][0]["rows"].nbytes > STORE
    assert difference(found, run(Loop(threads=1), recipe, task)) == ""


# Stragglers


def test_a_straggler_is_overtaken(nodes: Nodes, tmp_path: Path) -> None:
    """The first process that gets there sleeps for a minute; the others do its work, and its own result is ignored."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled() and len(list(tmp_path.glob("step *"))) > 20 and once(tmp_path / "asleep"):
            time.sleep(60)
        if torch.is_grad_enabled():
            (tmp_path / f"step {time.monotonic_ns()}").touch()
        return F.cross_entropy(output, target)

    begun = time.monotonic()
    found = run(Ray(workers=2, slow=2), task=task_with(loss))
    assert time.monotonic() - begun < 50
    assert (tmp_path / "asleep").exists()
    assert difference(found, run(Loop(threads=1), task=task_with(loss))) == ""
