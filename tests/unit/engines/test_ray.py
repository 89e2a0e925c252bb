"""Ray: the bits of Loop on a cluster, what moves over its network, and nothing left behind. Faults: test_ray_faults."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Ray, Vmap
from esgd._serialization import decode, encode
from esgd.engines.cluster.job_queue import BRIEF, FEW, JobDurations, JobQueue
from esgd.engines.cluster.serialized import Serialized
from esgd.engines.jobs import Train
from esgd.engines.pickling import LARGE
from esgd.engines.worker_error import InWorkerError
from esgd.errors import EngineError, MissingExtraError, RecipeError, TaskError
from esgd.testing.evidence import contents, difference
from tests import warm
from tests.command import esgd as command
from tests.funnel import FUNNEL
from tests.small import CLASSES, INPUTS, classify, mlp, random_data
from tests.unit.engines.clusters import (
    PATIENCE,
    PLAIN,
    RECIPE,
    descendants,
    quiet,
    rays_of,
    rich_mlp,
    run,
    the_task,
    until,
    workers_of,
)
from tests.unit.engines.scribble import Scribble

ray = pytest.importorskip("ray")
LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at processes through /proc")


def on_cluster(test: Any) -> Any:
    """Workers are started for it, which takes seconds."""
    return pytest.mark.slow(pytest.mark.usefixtures("cluster")(test))


@pytest.fixture(scope="module")
def cluster(warm_ray_workers: None) -> Iterator[None]:
    """A Ray that this process has connected: engines use it, and leave it alone."""
    from esgd.engines.cluster.connection import connected
    from esgd.engines.cluster.resources import WorkerResources

    with connected(None, WorkerResources(cpus=1, gpus=0), 2):
        yield
        assert until(lambda: not workers_of()), "workers outlived their run"
    assert until(lambda: not rays_of())


# Parcels


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.empty(0, 7),
        torch.tensor([True, False]),
        torch.randn(3, 4),
        torch.randn(300, 400),
        torch.randn(300, 400).t(),
        torch.randn(300, 400)[::2, 1:300:3],
        torch.randn(300, 400).bfloat16(),
        torch.randn(1, 400).expand(300, 400),
        torch.randn(300, 400, dtype=torch.complex64),
        torch.randn(300, 400).to_sparse(),
        nn.Parameter(torch.randn(300, 400)),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_a_tensor_comes_out_of_a_parcel_as_it_went_in(tensor: Tensor) -> None:
    sent = pickle.loads(pickle.dumps(Serialized.of({"x": [tensor]})))
    for found in (sent.read()["x"][0], sent.take()["x"][0]):
        assert type(found) is type(tensor)
        assert (found.dtype, found.shape, found.requires_grad) == (tensor.dtype, tensor.shape, tensor.requires_grad)
        assert torch.equal(found.to_dense(), tensor.to_dense())


def test_of_a_large_tensor_only_what_is_looked_at_travels_and_only_once() -> None:
    whole = torch.randn(1_000_000)
    part = whole[1000 : 1000 + LARGE]
    serialized = Serialized.of([part, part.view(2, -1), {"again": part}])
    assert part.nbytes <= serialized.nbytes < part.nbytes + 2000


def test_large_arrays_lie_beside_the_pickle_and_small_ones_in_it() -> None:
    small, large = np.arange(10), np.arange(LARGE)
    serialized = Serialized.of([small, large])
    assert [each.nbytes for each in serialized.buffers] == [large.nbytes]
    assert all(np.array_equal(a, b) for a, b in zip(serialized.read(), (small, large), strict=True))


def test_what_is_taken_from_a_parcel_can_be_written_into_and_does_not_need_it() -> None:
    x = torch.zeros(LARGE)
    serialized = Serialized.of(x)
    for each in serialized.spans:
        each.flags.writeable = False  # as in Ray's object store
    with warnings.catch_warnings(action="error"):
        read, taken = serialized.read(), serialized.take()
    taken += 1
    assert read.data_ptr() == x.data_ptr()
    assert not x.any()


def test_of_what_is_taken_only_data_lie_where_they_were_sent() -> None:
    x, scratch, array, kept = torch.zeros(LARGE), torch.zeros(LARGE), np.zeros(LARGE), np.zeros(LARGE)
    serialized = Serialized.of([x, scratch, array, kept, x[7:]], data={"x": [x], "kept": kept})
    own = serialized.take()
    for each in own[1:3]:
        each += 1
    assert not scratch.any()
    assert not array.any()
    assert [own[0].data_ptr(), own[3].ctypes.data] == [x.data_ptr(), kept.ctypes.data]
    assert own[4].data_ptr() != x[7:].data_ptr(), "a part of the data that somebody has for another purpose"


# The queue


def job(number: int) -> Train:
    nowhere: Any = None
    return Train(
        numbers=(number,),
        start=nowhere,
        fitness=(0.0,),
        optimizer_states=(None,),
        policies=(esgd.Policy(optimizer="sgd", hyper={}),),
        step=nowhere,
        into=nowhere,
    )


def known(seconds: float) -> JobDurations:
    durations = JobDurations()
    for _ in range(FEW):
        durations.note([job(0)], seconds)
    return durations


def test_short_jobs_go_together_and_long_ones_alone() -> None:
    jobs = [job(number) for number in range(100)]
    assert JobQueue(jobs, JobDurations()).take() == jobs[:1], "it is not known yet how long they take"
    assert JobQueue(jobs, known(2 * BRIEF)).take() == jobs[:1]
    assert JobQueue(jobs, known(BRIEF / 10)).take() == jobs[:10]
    assert JobQueue(jobs, known(0.0)).take() == jobs


def test_a_job_is_asked_for_only_when_somebody_takes_it() -> None:
    """Because a fitness that is known by then lets an evaluation stop earlier."""
    asked = []
    queue = JobQueue((asked.append(number) or job(number) for number in range(3)), JobDurations())
    queue.take()
    assert asked == [0]


def test_lost_jobs_are_done_again_before_others_and_one_by_one() -> None:
    jobs = [job(number) for number in range(4)]
    queue = JobQueue(jobs, known(BRIEF / 2))
    first = queue.take()
    assert first == jobs[:2]
    queue.retry_lost(first, "a", done_elsewhere=())
    taken = [queue.take() for _ in range(4)]
    assert taken == [jobs[:1], jobs[1:2], jobs[2:], []]
    queue.retry_lost(jobs[2:3], "b", done_elsewhere=jobs)
    assert queue.take() == [], "somebody else is at it"
    assert [queue.losses[each] for each in jobs] == [["a"], ["a"], ["b"], []]
    for each in jobs:
        assert not queue.is_done
        assert queue.open([each]) == [each]
        queue.close(each)
    assert queue.is_done
    assert queue.open(jobs) == []


@pytest.mark.parametrize(
    ("lost_on", "is_hopeless"),
    [("aa", False), ("aab", True), ("axy", False), ("aaxyb", True), ("xyzxyzxyz", False), ("xyzxyzxyzx", True)],
)
def test_only_losses_on_nodes_that_are_still_there_are_held_against_a_job(
    lost_on: str, is_hopeless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esgd.engines.cluster import failures

    monkeypatch.setattr(failures, "living", lambda: {"a", "b"})
    monkeypatch.setattr(failures, "SETTLED", 0.0)
    assert failures.must_give_up(list(lost_on)) is is_hopeless


# Bits


@on_cluster
def test_a_whole_run_has_the_bits_of_loop() -> None:
    """BatchNorm, dropout, carried optimizer state, settings that differ."""
    assert difference(run(Ray(workers=2)), quiet()) == ""


@on_cluster
@pytest.mark.parametrize("rule", ["weight", "select"])
def test_weighted_losses_and_selection_by_a_metric_have_the_bits_of_loop(rule: str) -> None:
    data = {"train": random_data(48), "fitness": random_data(250, seed=1), "batch_size": 16}
    if rule == "weight":
        loss = nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0]), ignore_index=1)
        task = esgd.Supervised(rich_mlp, loss, **data)
    else:
        most = {"metrics": {"accuracy": accuracy}, "select": "accuracy", "mode": "max"}
        task = esgd.Supervised(rich_mlp, F.cross_entropy, **data, **most)  # type: ignore[arg-type]
    assert difference(run(Ray(workers=2), task=task), run(esgd.Loop(threads=1), task=task)) == ""


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(dim=1) == target).double().mean()


@on_cluster
def test_vmaps_on_a_cluster_have_the_bits_of_one_vmap() -> None:
    alone = run(Vmap(chunk=2, threads=1))
    assert difference(run(Ray(inner=Vmap(chunk=2), workers=2)), alone) == ""


@on_cluster
def test_a_population_of_one_without_offspring_and_without_buffers() -> None:
    recipe = esgd.Recipe(population=1, mates=1, offspring=0, generations=1, sgd_epochs=1, elites=1)
    both = [run(engine, recipe, classify(mlp)) for engine in (Ray(workers=2), Loop(threads=1))]
    assert difference(*both) == ""


class Half(nn.Module):
    """A network in bfloat16 with a buffer that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(INPUTS, CLASSES).bfloat16()
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return self.inner(x.bfloat16()).float()


@on_cluster
def test_bfloat16_rows_and_buffers_without_a_dimension_travel() -> None:
    both = [run(engine, PLAIN, classify(Half)) for engine in (Ray(workers=1), Loop(threads=1))]
    assert both[0][-1][0]["rows"].dtype == torch.bfloat16
    assert both[0][-1][0]["buffers"]["calls"].shape == (3,)
    assert difference(*both) == ""


@on_cluster
@pytest.mark.filterwarnings("default:a worker was lost:RuntimeWarning")
def test_an_answer_that_is_lost_on_its_way_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a node dies between having done a job and having sent what came of it."""
    lost, real = list[Any](), ray.get

    def get(reference: Any) -> Any:
        reply = real(reference)
        if isinstance(reply, Serialized) and reply.nbytes > 1000 and len(lost) < 2:
            lost.append(reference)
            raise ray.exceptions.ObjectLostError(reference.hex(), reference.owner_address(), "")
        return reply

    monkeypatch.setattr(ray, "get", get)
    assert difference(run(Ray(workers=1)), quiet()) == ""
    assert len(lost) == 2


@on_cluster
def test_many_small_individuals_go_in_few_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    from esgd.engines.cluster import executor

    sent = list[int]()
    real = executor.serialized_jobs
    monkeypatch.setattr(executor, "serialized_jobs", lambda jobs: (sent.append(len(jobs)), real(jobs))[1])
    recipe = esgd.Recipe(population=60, offspring=60, generations=2, sgd_epochs=1)
    assert difference(run(Ray(workers=1), recipe, classify()), run(Loop(threads=1), recipe, classify())) == ""
    assert max(sent) > 1
    assert sum(sent) >= 2 * 60 + 2 * 60


# Bytes


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 2000), nn.ReLU(), nn.Linear(2000, CLASSES))


@on_cluster
@pytest.mark.parametrize("offspring", [4, 64])
def test_bytes_moved_are_those_of_a_few_populations_whatever_the_number_of_offspring(offspring: int) -> None:
    """Rows go out for the SGD step and come back, go to the node as parents, and come back as survivors; in the first
    generation they also go out to be scored, come back, and are parents of the one that is scored twice."""
    recipe = esgd.Recipe(population=8, offspring=offspring, generations=2, sgd_epochs=1)
    never = Ray(workers=1, slow=1e6)  # what is begun twice moves twice
    result = esgd.fit(classify(wide), recipe, seed=0, engine=never, progress=False)
    population, records = result.population.rows.nbytes, 2000 * (8 + offspring)
    first, second = (line["bytes_moved"] for line in result.history)
    assert 5 * population <= first <= 7 * population + records
    assert 2 * population <= second <= 4 * population + records


def test_nothing_moves_in_one_process() -> None:
    result = esgd.fit(classify(), PLAIN, seed=0, engine=Loop(threads=1), progress=False)
    assert [line["bytes_moved"] for line in result.history] == [0]


# The user's code


class OwnError(Exception):
    """An exception whose arguments are not what its constructor takes."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"code {code}: {hint}")


def raising(error: Callable[[], BaseException]) -> esgd.Supervised:
    def loss_of_mine(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise error()
        return F.cross_entropy(output, target)

    return esgd.Supervised(mlp, loss_of_mine, train=random_data(48), fitness=random_data(70))


@on_cluster
def test_an_error_of_the_users_code_is_raised_as_it_was_with_the_workers_traceback() -> None:
    with pytest.raises(LookupError, match="no such word") as caught:
        run(Ray(workers=1), PLAIN, raising(lambda: LookupError("no such word")))
    assert type(caught.value) is LookupError
    cause = caught.value.__cause__
    assert isinstance(cause, InWorkerError)
    assert "in loss_of_mine" in str(cause)
    assert "raise error()" in str(cause)
    assert any("the SGD step of individual" in note and "in generation 1" in note for note in caught.value.__notes__)


@on_cluster
def test_an_error_that_cannot_travel_is_told_in_words() -> None:
    with pytest.raises(EngineError, match="a worker failed: .*OwnError: code 3: turn it off") as caught:
        run(Ray(workers=1), PLAIN, raising(lambda: OwnError(3, hint="turn it off")))
    assert "in loss_of_mine" in str(caught.value.__cause__)


@on_cluster
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_would_end_a_worker_is_no_lost_worker(error: BaseException) -> None:
    with pytest.raises(EngineError, match=f"a worker failed: {type(error).__name__}") as caught:
        run(Ray(workers=1), PLAIN, raising(lambda: error))
    assert "in loss_of_mine" in str(caught.value.__cause__)


@on_cluster
def test_a_network_that_cannot_be_scored_is_explained_as_with_loop() -> None:
    narrow = classify(lambda: nn.Linear(INPUTS - 1, CLASSES))
    messages = []
    for engine in (Ray(workers=1), Loop(threads=1)):
        with pytest.raises(TaskError, match="a freshly built network cannot be scored: RuntimeError") as caught:
            run(engine, task=narrow)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_task_that_cannot_be_pickled_is_refused_before_anything_is_started() -> None:
    lock = threading.Lock()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        with lock:
            return F.cross_entropy(output, target)

    with pytest.raises(EngineError, match="cannot be sent to other machines: .*lock.*use engine='loop' or 'vmap'"):
        run(Ray(workers=1), task=esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70)))


@on_cluster
def test_what_a_workers_code_writes_into_the_task_only_that_worker_sees(tmp_path: Path) -> None:
    scribble = Scribble(tmp_path)
    run(Ray(workers=2, slow=1e6), scribble.recipe, scribble.task())
    scribble.check()


@pytest.mark.parametrize("task", [the_task(train=random_data(5_000)), the_task()], ids=["large", "small"])
def test_data_of_a_task_are_read_where_ray_has_them_and_nothing_else_is(task: esgd.Supervised) -> None:
    from esgd._algorithm.initialization import prepare

    serialized = Ray()._serialized(prepare(task, PLAIN, 0))
    outside = [*serialized.spans, *serialized.buffers]
    lying = sum(outside[number].nbytes for number in serialized.data)
    assert lying == sum(x.nbytes for x in task.data()[0] if x.nbytes >= LARGE)


@on_cluster
def test_a_session_continues_after_an_error(tmp_path: Path) -> None:
    """What was under way when it was raised is not taken for something else."""
    from esgd._algorithm.initialization import prepare, scored
    from esgd.operators import PerEpoch, RandomStart
    from esgd.protocols import Step

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not (tmp_path / "raised").exists():
            (tmp_path / "raised").touch()
            raise LookupError("once")
        return F.cross_entropy(output, target)

    task = esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70), nonnegative=True)
    setup = prepare(task, PLAIN, 0)
    policies, step = [esgd.Policy(optimizer="sgd", hyper={"lr": 0.1})] * 3, Step(k=1, epochs=1, backoff=PerEpoch())
    found = []
    for engine in (Ray(workers=2), Loop(threads=1)):
        with engine.open(setup, lambda *tick: None) as session:
            start = scored(session, RandomStart()(task, setup.genome, session, 3, setup.seeds.at("init")))
            if isinstance(engine, Ray):
                with pytest.raises(LookupError, match="once"):
                    session.train(start, policies, step)
            found.append(contents(session.train(start, policies, step).population))
    assert difference(*found) == ""


# Settings


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"workers": 0}, "workers=0 is not a whole number from 1"),
        ({"workers": True}, "workers=True is not a whole number from 1"),
        ({"workers": 1.5}, "workers=1.5 is not a whole number from 1"),
        ({"workers": 10**9}, "workers=1000000000 is not a whole number from 1 to 100,000"),
        ({"cpus_per_worker": -1}, "cpus_per_worker=-1 is not a number, 0 or more"),
        ({"gpus_per_worker": "all"}, "gpus_per_worker='all' is not a number"),
        ({"patience": 0}, "patience=0 is not a number, 1 or more"),
        ({"slow": float("nan")}, "slow=nan is not a number, 1 or more"),
        ({"cpus_per_worker": 0}, "asks for no CPU and no GPU"),
        ({"cpus_per_worker": 1e-9}, "cpus_per_worker=1e-09 is not 0, nor from 0.0001 on"),
        ({"cpus_per_worker": float("inf")}, "cpus_per_worker=inf is not 0, nor from 0.0001 on"),
        ({"gpus_per_worker": 1.5}, "gpus_per_worker=1.5 is neither whole nor a share of one GPU"),
        ({"inner": esgd.Pool()}, "inner=Pool.* cannot work in a worker, which is one process"),
        ({"inner": Ray()}, "inner=Ray.* cannot work in a worker, which is one process"),
        ({"inner": "loop"}, "inner='loop' cannot work in a worker"),
        ({"inner": Loop}, "inner=Loop cannot work in a worker"),
        ({"inner": None}, "inner=None cannot work in a worker"),
        ({"address": "ray://head:10001"}, "address='ray://head:10001' leads through a proxy"),
        ({"address": 6379}, "address=6379 is not an address. Write 'host:6379'"),
        ({"address": ""}, "address='' is not an address"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        Ray(**settings)


@pytest.mark.parametrize(
    "engine", [Ray(), Ray(workers=3, address="auto"), Ray(inner=Vmap(chunk=4), gpus_per_worker=0.5)], ids=str
)
def test_an_engine_is_spelt_in_a_manifest_and_read_back(engine: Ray) -> None:
    assert decode(json.loads(json.dumps(encode(engine)))) == engine
    assert pickle.loads(pickle.dumps(engine)) == engine


def test_where_ray_is_not_installed_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("esgd.engines.cluster.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"engine='ray' needs Ray.*pip install 'esgd\[ray\]'"):
        run(Ray(workers=1), PLAIN)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process were part of no cluster, whatever other tests have connected."""
    from esgd.engines.cluster import connection

    monkeypatch.setattr(connection, "_connection", connection.ClusterConnection())
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379", "nonsense"])
def test_where_there_is_no_cluster_that_is_said_at_once(address: str) -> None:
    begun = time.monotonic()
    with pytest.raises(EngineError, match=f"there is no Ray cluster at address='{address}': .*`ray start --head`"):
        run(Ray(address=address), PLAIN)
    assert time.monotonic() - begun < 60


@pytest.mark.usefixtures("outside")
def test_something_else_that_answers_at_an_address_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from esgd.engines.cluster import addresses

    monkeypatch.setattr(addresses, "JOINS", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as server:  # it never says anything
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(EngineError, match=f"no Ray cluster at address='{address}': .*not let us join in 5 s"):
            run(Ray(address=address), PLAIN)


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("engine", [Ray(), Ray(address="auto")], ids=str)
def test_a_proxy_in_the_environment_is_refused(engine: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(EngineError, match="RAY_ADDRESS='ray://head:10001' leads through a proxy"):
        run(engine, PLAIN)


@pytest.mark.usefixtures("outside")
def test_a_ray_that_cannot_be_started_is_not_taken_for_one_that_cannot_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(*arguments: Any, **settings: Any) -> None:
        raise ValueError("there is too little memory.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(
        EngineError, match="a Ray could not be started on this machine: there is too little memory. Use"
    ):
        run(Ray(workers=1), PLAIN)


@pytest.mark.usefixtures("outside")
def test_a_ray_that_could_not_be_kept_from_the_network_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import ray_constants

    monkeypatch.delattr(ray_constants, "ENABLE_RAY_CLUSTER")
    with pytest.raises(EngineError, match="has no ray._private.ray_constants.ENABLE_RAY_CLUSTER"):
        run(Ray(workers=1), PLAIN)


@on_cluster
def test_an_address_of_another_cluster_than_the_one_that_was_joined_is_refused() -> None:
    with pytest.raises(EngineError, match="address='127.0.0.1:1' is not that of the Ray which .* joined already"):
        run(Ray(address="127.0.0.1:1"), PLAIN)
    at = ray.get_runtime_context().gcs_address
    assert run(Ray(address=at, workers=1), PLAIN)


@pytest.mark.parametrize(
    ("cpus", "gpus", "held"),
    [(1, 0, 16), (0.1, 0, 160), (0.01, 0.4, 8), (1, 0.1, 16), (0, 2, 2), (1, 3, 1), (32, 0, 0)],
)
def test_a_node_holds_as_many_workers_as_ray_places_there(cpus: float, gpus: float, held: int) -> None:
    """A share of a GPU is of one and the same: 0.4 fits twice into each."""
    from esgd.engines.cluster.resources import WorkerResources

    assert WorkerResources(cpus=cpus, gpus=gpus).on({"CPU": 16.0, "GPU": 4.0}) == held


# Runs


@on_cluster
@pytest.mark.parametrize(
    ("recipe", "resumed_with"), [(FUNNEL, Ray(workers=1)), (RECIPE, Loop(threads=1))], ids=["a funnel, ray", "loop"]
)
def test_a_run_begun_on_two_workers_is_resumed_on_something_else_with_the_same_bits(
    recipe: esgd.Recipe, resumed_with: Any, tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    def task(stops: bool) -> esgd.Supervised:
        metrics = []

        def metric(network: nn.Module) -> float:
            metrics.append(1)
            if stops and len(metrics) == 2:  # taken in this process, at the end of every generation
                raise StopError
            return 0.0

        return the_task(metrics={"mine": metric})

    with pytest.raises(StopError):
        esgd.fit(task(True), recipe, seed=3, engine=Ray(workers=2), run=tmp_path / "run", progress=False)
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 1
    resumed = esgd.fit(
        task(False), recipe, seed=3, engine=resumed_with, run=tmp_path / "run", progress=False, report=False
    )
    undisturbed = run(Loop(threads=1), recipe, task(False))
    assert difference(contents(resumed.population), undisturbed[-1][0]) == ""


@on_cluster
def test_a_run_that_is_left_early_takes_its_workers_along() -> None:
    generations = esgd.evolve(the_task(), RECIPE, seed=3, engine=Ray(workers=1))
    next(generations)
    assert workers_of()
    generations.close()
    assert until(lambda: not workers_of())
    assert ray.is_initialized(), "it was there before"


# A Ray of its own

SCRIPT = """
import sys, time
from pathlib import Path
import torch
from torch import nn
import esgd
import beside

x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
MODE = sys.argv[1] if len(sys.argv) > 1 else ""

class Refusal(Exception):
    pass

def loss(output, target):
    if torch.is_grad_enabled():
        Path("begun").touch()  # a relative path means the script's folder
        if MODE == "slow":
            time.sleep(0.05)
        if MODE == "refuse":
            raise Refusal("not this one")
    return beside.loss(output, target)

def task():
    return esgd.Supervised(lambda: nn.Linear(4, 2), loss, train=(x, y), fitness=(x, y), batch_size=8)

recipe = esgd.Recipe(population=3, offspring=3, generations=99 if MODE == "slow" else 2, sgd_epochs=1)

def run(engine):
    return esgd.fit(task(), recipe, seed=0, engine=engine, progress=False)
"""
BESIDE = "from torch.nn.functional import cross_entropy as loss\n"
BOTH = """
import signal
before = signal.getsignal(signal.SIGTERM)
ours, loops = run(esgd.Ray(workers=1)), run(esgd.Loop(threads=1))
assert torch.equal(ours.population.rows, loops.population.rows)
assert signal.getsignal(signal.SIGTERM) is before
import ray
assert not ray.is_initialized()
MODE = "refuse"
try:
    run(esgd.Ray(workers=1))
except Refusal as refusal:
    print(refusal, type(refusal.__cause__).__name__)
assert not ray.is_initialized()
"""


INTERRUPTED = """
import os, signal, threading
from pathlib import Path

before, started = signal.getsignal(signal.SIGTERM), set()

def children():
    return {int(p) for t in Path("/proc/self/task").iterdir() for p in (t / "children").read_text().split()}

def interrupt():
    while not children():
        time.sleep(0.01)
    started.update(children())
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    run(esgd.Ray(workers=1))
except KeyboardInterrupt:
    print(*started)
assert signal.getsignal(signal.SIGTERM) is before
assert not children()
"""
TWO = """
import ray
first, second = (esgd.evolve(task(), recipe, seed=0, engine=esgd.Ray(workers=1)) for _ in range(2))
next(first), next(second)
first.close()
(last,) = second
assert torch.equal(last.population.rows, run(esgd.Loop(threads=1)).population.rows)
assert not ray.is_initialized()
third = esgd.evolve(task(), recipe, seed=0, engine=esgd.Ray(workers=1))
next(third)
ray.shutdown()
try:
    next(third)
except esgd.errors.EngineError as error:
    print(error)
assert not ray.is_initialized()
try:
    run(esgd.Ray(workers=1, gpus_per_worker=100))
except esgd.errors.EngineError as error:
    print(error)
"""


def script(tmp_path: Path, *arguments: str, then: str) -> warm.Piped:
    (tmp_path / "script.py").write_text(SCRIPT + then)
    (tmp_path / "beside.py").write_text(BESIDE)
    alone = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return warm.Piped("script.py", *arguments, cwd=tmp_path, process_group=True, env=alone)


@LINUX
@pytest.mark.slow
def test_a_script_with_its_own_classes_and_modules_starts_a_ray_and_ends_it_without_a_word(tmp_path: Path) -> None:
    process = script(tmp_path, then=BOTH)
    said, complained = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said.strip(), complained) == (0, "not this one InWorkerError", "")


@pytest.mark.slow
def test_two_runs_share_a_ray_until_the_last_one_ends_and_none_starts_another(tmp_path: Path) -> None:
    process = script(tmp_path, then=TWO)
    said, complained = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complained) == (0, "")
    gone, unmet = said.splitlines()
    assert gone.startswith("Ray has been shut down while a run was using it.")
    assert unmet.startswith("no worker could be placed on the cluster. Each asks one node for 1 CPU, 100 GPU"), (
        "at once"
    )


@LINUX
@pytest.mark.slow
def test_an_interrupt_while_ray_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    process = script(tmp_path, then=INTERRUPTED)
    said, complained = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complained) == (0, "")
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in said.split())), "something of Ray is left"


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_ray_of_ones_own_listens_here_only_and_leaves_nothing_running_after_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A terminal sends SIGINT to all processes of the group. After SIGKILL two of Ray's agents stay for a minute."""
    process = script(tmp_path, "slow", then="\nrun(esgd.Ray(workers=1))\n")
    assert until((tmp_path / "begun").exists), "the script never began"
    agents, family = ("Agent",) if number is signal.SIGKILL else (), descendants(process.pid)
    assert listening({process.pid, *family}) <= {"127.0.0.1"}, "no other machine can reach it"
    started = [pid for pid, what in family.items() if not what.endswith(agents)]
    os.killpg(process.pid, number) if number is signal.SIGINT else process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    if number is signal.SIGINT:
        assert said.count("KeyboardInterrupt") == 1, said
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started)), "something of Ray is left"


def listening(pids: set[int]) -> set[str]:
    """The addresses at which these processes wait for TCP connections."""
    inodes = set[str]()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set[str]()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                last = bytes.fromhex(words[1].partition(":")[0])[-4:]  # of an IPv6 address that stands for an IPv4 one
                found.add(".".join(str(byte) for byte in last[::-1]))
    return found


@on_cluster
def test_the_command_line_runs_on_ray(tmp_path: Path) -> None:
    small = ["population=4", "offspring=4", "elites=2", "generations=1", "sgd_epochs=1"]
    sets = [word for each in small for word in ("--set", each)]
    done = command("run", "digits", "--engine", "ray:workers=2", *sets, "--run", "r", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["guarantee_held"] == 1
    assert decode(json.loads((tmp_path / "r" / "manifest.json").read_text())["engine"]) == Ray(workers=2)
