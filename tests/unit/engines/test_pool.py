"""The pool: the bits of Loop, whatever happens to its processes, and nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool, Vmap
from esgd._serialization import decode, encode
from esgd.engines.processes import executor
from esgd.engines.worker_error import InWorkerError
from esgd.errors import EngineError, RecipeError, TaskError
from esgd.operators import CarriedByMate
from esgd.protocols import Draw
from esgd.testing.evidence import contents, difference
from tests import warm
from tests.command import esgd as command
from tests.small import CLASSES, INPUTS, classify, mlp, random_data

PATIENCE = 60.0  # seconds until something that must happen is given up on
LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks at processes through /proc")
pytestmark = LINUX


def rich_mlp() -> nn.Module:
    """BatchNorm and dropout in one network."""
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.3), nn.Linear(7, CLASSES))


def varied(draw: Draw) -> esgd.Policy:
    """Another batch size, dropout, optimizer and length of an epoch for each individual."""
    settings = {"batch_size": (8, 16, 48)[draw.j % 3], "dropout": 0.1 * (draw.j % 4)}
    if draw.j % 2:
        return esgd.Policy(optimizer="adam", hyper={"lr": 0.01}, settings=settings)
    return esgd.Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9}, settings=settings)


RECIPE = esgd.Recipe(
    population=5, offspring=9, generations=2, sgd_epochs=1, species=varied, baggage=CarriedByMate(), elites=2
)

PLAIN = esgd.Recipe(population=3, offspring=3, generations=1, sgd_epochs=1)


def the_task(**changes: Any) -> esgd.Supervised:
    return classify(rich_mlp, fitness=random_data(250, seed=1), test=random_data(20, seed=2), **changes)


def no_tick(phase: str, done: int, total: int) -> None:
    pass


def run(engine: Any, recipe: esgd.Recipe = RECIPE, task: Any = None, tick: Any = no_tick) -> list[Any]:
    """Everything that a run yields, as values that can be compared."""
    generations = esgd.evolve(task or the_task(), recipe, seed=3, engine=engine, tick=tick)
    return [[contents(each.population), each.before, each.accepted, each.guarantee] for each in generations]


@cache
def quiet() -> list[Any]:
    return run(Loop(threads=1))


def workers_of(pid: int) -> list[int]:
    """The worker processes that `pid` has started, and nobody else's."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes()
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        if parent == pid and b"esgd.engines.processes.worker" in command:
            found.append(int(stat.parent.name))
    return sorted(found)


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def until(condition: Callable[[], bool]) -> bool:
    """Whether something comes true in good time."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def gone(pids: list[int]) -> bool:
    return not any(b"esgd.engines.processes.worker" in _command(pid) for pid in pids)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def shared_files() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()} if Path("/dev/shm").is_dir() else set()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """After every test here, however it ends: no process, and no file in /dev/shm that a worker could have made."""
    before = shared_files()
    yield
    assert until(lambda: not workers_of(os.getpid())), "workers outlived their pool"
    mine = str(os.getpid())
    assert not [name for name in shared_files() - before if "esgd" in name or mine in name]


STARTED: list[warm.Process] = []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[warm.Process]:
    """The warm workers of the test's pools, in the order in which they were started."""

    def start(channel: int, lifeline: int) -> warm.Process:
        STARTED.append(warm.worker(channel, lifeline))
        return STARTED[-1]

    STARTED.clear()
    monkeypatch.setattr(executor, "_started", start)
    return STARTED


def alive() -> list[warm.Process]:
    """Those that have not ended. A metric may call it: it is pickled by its name, and not with the processes."""
    return [each for each in STARTED if not each.has_ended()]


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("workers", [1, 3])  # and two of them in most tests below
def test_a_whole_run_has_the_bits_of_loop_for_any_number_of_workers(workers: int) -> None:
    assert difference(run(Pool(workers=workers)), quiet()) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_pool_of_vmaps_has_the_bits_of_one_vmap_for_any_number_of_workers() -> None:
    """Also with dropout, and although each worker records its functions at another moment."""
    alone = run(Vmap(chunk=2, threads=1))
    assert difference(run(Pool(inner=Vmap(chunk=2), workers=2)), alone) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_one_worker_looks_at_the_samples_that_loop_looks_at() -> None:
    """Early abort depends on what is known by then, and one worker knows what Loop knows; it can do without a queue."""
    recipe = esgd.Recipe(population=1, mates=1, offspring=9, generations=1, sgd_epochs=1, elites=1)
    ours, loops = (
        [each.work.samples for each in esgd.evolve(the_task(), recipe, seed=0, engine=engine)]
        for engine in (Pool(workers=1), Loop(threads=1))
    )
    assert ours == loops


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_population_smaller_than_the_pool_and_no_offspring_at_all() -> None:
    recipe = esgd.Recipe(population=1, mates=1, offspring=0, generations=1, sgd_epochs=1, elites=1)
    assert difference(run(Pool(workers=2), recipe), run(Loop(threads=1), recipe)) == ""


# Death


@pytest.mark.slow
@pytest.mark.usefixtures("started")
@pytest.mark.filterwarnings("default:a worker ended by SIGKILL:RuntimeWarning")
def test_workers_killed_in_training_in_evaluation_and_between_generations_are_replaced(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """The fittest of all are those of a run in which nobody died."""
    killed = []

    def kill_one(when: str) -> None:
        if when not in killed:
            killed.append(when)
            alive()[0].kill()

    def tick(phase: str, done: int, total: int) -> None:
        if done == 1 < total:
            kill_one(phase)

    found = []
    for generation in esgd.evolve(the_task(), RECIPE, seed=3, engine=Pool(workers=2), tick=tick):
        found.append(contents(generation.population))
        kill_one("between generations")
    assert killed == ["sgd", "evolution", "between generations"]
    said = [str(each.message) for each in recwarn if each.category is RuntimeWarning]
    assert len(said) == 3
    assert all("a worker ended by SIGKILL in " in each and "another one does it again" in each for each in said)
    assert difference(found, [each[0] for each in quiet()]) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_workers_that_die_in_the_middle_of_training_and_of_a_fitness_are_replaced(tmp_path: Path) -> None:
    """One dies at its fourth gradient, and one at its fourth fitness; what they had half done is done again."""
    calls: list[bool] = []

    def loss(output: Tensor, target: Tensor) -> Tensor:
        training = torch.is_grad_enabled()
        calls.append(training)
        if calls.count(training) == 4:
            try:
                os.close(os.open(tmp_path / f"died {training}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return F.cross_entropy(output, target)

    def task() -> esgd.Supervised:
        data = {"train": random_data(48), "fitness": random_data(250, seed=1)}
        return esgd.Supervised(rich_mlp, loss, **data, batch_size=16, nonnegative=True)

    with pytest.warns(RuntimeWarning, match="a worker ended by SIGKILL in .*; another one does it again"):
        found = run(Pool(workers=1), task=task())
    assert {path.name for path in tmp_path.iterdir()} == {"died True", "died False"}
    assert difference(found, run(Loop(threads=1), task=task())) == "", "the snapshots are there, so Loop survives"


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_an_individual_that_kills_every_worker_ends_the_run_and_is_named(tmp_path: Path) -> None:
    """However they die; the third death over the same job is one too many."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            deaths = len(list(tmp_path.iterdir()))
            (tmp_path / str(deaths)).touch()
            if deaths == 1:
                os._exit(7)
            os.kill(os.getpid(), signal.SIGKILL)
        return F.cross_entropy(output, target)

    task = esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70))
    who = "the SGD step of individual 0 in generation 1"
    with (
        pytest.warns(RuntimeWarning, match=f"a worker ended by SIGKILL in {who}; another one does it again"),
        pytest.warns(RuntimeWarning, match=f"a worker ended with exit code 7 in {who}"),
        pytest.raises(EngineError, match=f"3 workers have died over {who}, the last one by SIGKILL.*or engine='loop'"),
    ):
        run(Pool(workers=1), PLAIN, task)


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a Python whose packages are broken; the task is larger than what a socket takes at once."""
    ballast = bytes(4_000_000)
    task = esgd.Supervised(
        lambda: (len(ballast), mlp())[1], F.cross_entropy, train=random_data(48), fitness=random_data(70)
    )
    before = open_files()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        pytest.warns(RuntimeWarning, match="with exit code 1 in starting up"),
        pytest.raises(EngineError, match="3 workers have died over starting up"),
    ):
        run(Pool(workers=2), PLAIN, task)
    assert open_files() <= before


# What is left behind


@pytest.mark.slow
def test_nothing_is_open_any_more_after_a_run_and_after_an_error() -> None:
    def task(fails: bool) -> esgd.Supervised:
        def loss(output: Tensor, target: Tensor) -> Tensor:
            if fails and torch.is_grad_enabled():
                raise ZeroDivisionError("in the middle")
            return F.cross_entropy(output, target)

        return esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70))

    counted = []
    for fails in (False, True):
        if fails:
            with pytest.raises(ZeroDivisionError, match="in the middle"):
                run(Pool(workers=1), PLAIN, task(fails))
        else:
            run(Pool(workers=1), PLAIN, task(fails))
        assert not workers_of(os.getpid())
        counted.append(open_files())
    assert counted[0] == counted[1], "a second run leaves more open than the first"


@pytest.mark.slow
def test_a_run_that_is_left_early_takes_its_workers_along() -> None:
    generations = esgd.evolve(the_task(), RECIPE, seed=3, engine=Pool(workers=1))
    next(generations)
    assert workers_of(os.getpid())
    generations.close()
    assert not workers_of(os.getpid())


@pytest.mark.slow
def test_rows_are_readable_after_the_pool_is_closed(started: list[warm.Process]) -> None:
    result = esgd.fit(the_task(), RECIPE, seed=3, engine=Pool(workers=1), progress=False)
    assert len(started) == 1
    assert not alive()
    assert difference(contents(result.population), quiet()[-1][0]) == ""
    assert result.model(torch.zeros(1, INPUTS)).isfinite().all()
    further = esgd.Recipe(population=5, offspring=2, generations=1, sgd_epochs=1, elites=2)
    assert list(esgd.evolve(the_task(), further, seed=0, engine="loop", resume=result.population))


SCRIPT = """
import os, sys, time
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
import esgd

x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
MODE = sys.argv[1] if len(sys.argv) > 1 else ""  # a worker has arguments of its own
SLOW = MODE == "slow"

class Refusal(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.two = two
    def __reduce__(self):
        return Refusal, ("one", self.two)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def forward(self, x):
        return self.inner(x)

def loss(output, target):
    if SLOW and torch.is_grad_enabled():
        Path("begun").touch()
        time.sleep(0.05)
    if MODE == "refuse" and torch.is_grad_enabled():
        print("hello from a worker", flush=True)
        raise Refusal("one", 2)
    return F.cross_entropy(output, target)

def run(engine, make_model):
    task = esgd.Supervised(make_model, loss, train=(x, y), fitness=(x, y), batch_size=8)
    recipe = esgd.Recipe(population=3, offspring=3, generations=2 if not SLOW else 99, sgd_epochs=1)
    return esgd.fit(task, recipe, seed=0, engine=engine, progress=False)
"""
BOTH = """
width = 4
make_model = lambda: nn.Sequential(nn.Linear(4, width), Net())
ours, loops = run(esgd.Pool(workers=1), make_model), run(esgd.Loop(threads=1), make_model)
assert torch.equal(ours.population.rows, loops.population.rows)
assert type(ours.model[1]) is Net
print("the same")
"""
WARM = """
from esgd.engines.processes import executor
from tests import warm
executor._started = warm.worker
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "-c", "stdin"])
def test_a_script_without_a_main_guard_works_with_its_own_lambdas_and_classes(tmp_path: Path, how: str) -> None:
    """That of standard input has a process and a worker that nothing has prepared."""
    if how == "file":
        (tmp_path / "script.py").write_text(SCRIPT + WARM + BOTH)
        done = warm.python("script.py", cwd=tmp_path, env=warm.environment())
    elif how == "-c":
        done = warm.python("-c", SCRIPT + WARM + BOTH, cwd=tmp_path, env=warm.environment())
    else:
        done = subprocess.run([sys.executable, "-"], cwd=tmp_path, capture_output=True, text=True, input=SCRIPT + BOTH)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "the same", "")


@pytest.mark.slow
def test_a_script_sees_what_a_worker_prints_and_catches_its_own_exceptions(tmp_path: Path) -> None:
    catching = """
try:
    run(esgd.Pool(workers=1), Net)
except Refusal as refusal:
    print(refusal, refusal.two, type(refusal.__cause__).__name__)
"""
    (tmp_path / "script.py").write_text(SCRIPT + catching)
    done = warm.python("script.py", "refuse", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines) == (0, ["hello from a worker", "one and 2 2 InWorkerError"]), done.stderr


def begun(tmp_path: Path) -> tuple[warm.Piped, list[int]]:
    """A script in the middle of its training, and its workers."""
    (tmp_path / "script.py").write_text(SCRIPT + "\nrun(esgd.Pool(workers=1), Net)\n")
    process = warm.Piped("script.py", "slow", cwd=tmp_path, process_group=True)
    assert until((tmp_path / "begun").exists), "the script never began"
    workers = workers_of(process.pid)
    assert len(workers) == 1
    return process, workers


@pytest.mark.slow
def test_after_ctrl_c_no_worker_is_left_and_none_complains(tmp_path: Path) -> None:
    """A terminal sends SIGINT to all processes of the group."""
    process, workers = begun(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert said.count("KeyboardInterrupt") == 1
    assert "esgd.engines.processes.worker" not in said
    assert until(lambda: gone(workers))


@pytest.mark.slow
def test_ctrl_c_while_the_workers_are_still_starting_is_no_drama(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + "\nrun(esgd.Pool(workers=1), Net)\n")
    process = warm.Piped("script.py", "slow", cwd=tmp_path, process_group=True)
    assert until(lambda: len(workers_of(process.pid)) == 1)
    workers = workers_of(process.pid)
    time.sleep(0.3)  # inside Python by now, and torch takes longer to import
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert said.count("KeyboardInterrupt") == 1, said
    assert until(lambda: gone(workers))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
@pytest.mark.slow
def test_workers_end_with_a_script_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    before = shared_files()
    process, workers = begun(tmp_path)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -number
    assert until(lambda: gone(workers)), "workers outlived their script"
    pids = [str(pid) for pid in (process.pid, *workers)]
    assert not [name for name in shared_files() - before if "esgd" in name or any(pid in name for pid in pids)]


# Errors of the user's code


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


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_an_error_of_the_users_code_is_raised_as_it_was_with_the_workers_traceback() -> None:
    with pytest.raises(LookupError, match="no such word") as caught:
        run(Pool(workers=1), PLAIN, raising(lambda: LookupError("no such word")))
    assert type(caught.value) is LookupError
    cause = caught.value.__cause__
    assert isinstance(cause, InWorkerError)
    assert "in loss_of_mine" in str(cause)
    assert "raise error()" in str(cause)
    assert any("the SGD step of individual" in note and "in generation 1" in note for note in caught.value.__notes__)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_an_error_that_cannot_travel_is_told_in_words() -> None:
    with pytest.raises(EngineError, match="a worker failed: .*OwnError: code 3: turn it off") as caught:
        run(Pool(workers=1), PLAIN, raising(lambda: OwnError(3, hint="turn it off")))
    assert "in loss_of_mine" in str(caught.value.__cause__)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_would_end_a_worker_is_no_dead_worker(error: BaseException) -> None:
    with pytest.raises(EngineError, match=f"a worker failed: {type(error).__name__}") as caught:
        run(Pool(workers=1), PLAIN, raising(lambda: error))
    assert "in loss_of_mine" in str(caught.value.__cause__)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_network_that_cannot_be_scored_is_explained_as_with_loop() -> None:
    narrow = classify(lambda: nn.Linear(INPUTS - 1, CLASSES))
    messages = []
    for engine in (Pool(workers=1), Loop(threads=1)):
        with pytest.raises(TaskError, match="a freshly built network cannot be scored: RuntimeError") as caught:
            run(engine, task=narrow)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_task_that_cannot_be_pickled_is_refused_with_what_to_do(tmp_path: Path) -> None:
    lock = threading.Lock()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        with lock:
            return F.cross_entropy(output, target)

    with pytest.raises(EngineError, match="cannot be sent to worker processes: .*lock.*use engine='loop' or 'vmap'"):
        run(Pool(workers=1), task=esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70)))
    with (tmp_path / "log").open("w") as log:

        def logging(output: Tensor, target: Tensor) -> Tensor:
            log.write("…")
            return F.cross_entropy(output, target)

        with pytest.raises(EngineError, match="cannot be sent to worker processes: .*Build them inside make_model"):
            run(Pool(workers=1), task=esgd.Supervised(mlp, logging, train=random_data(48), fitness=random_data(70)))
    assert not workers_of(os.getpid())


# Settings


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_a_number_of_workers_that_cannot_be_is_refused(workers: Any) -> None:
    with pytest.raises(RecipeError, match=f"workers={workers!r} is not 1 or more"):
        Pool(workers=workers)


@pytest.mark.parametrize("inner", [Pool(workers=2), "loop", Loop, None], ids=str)
def test_what_cannot_work_in_a_worker_is_refused(inner: Any) -> None:
    with pytest.raises(RecipeError, match=r"inner=.* cannot work in a worker, .* Use Pool\(inner=Loop"):
        Pool(inner=inner)


@pytest.mark.parametrize(
    "pool", [Pool(), Pool(workers=3), Pool(inner=Vmap(chunk=4, precision="bf16"), workers=2)], ids=str
)
def test_a_pool_is_spelt_in_a_manifest_and_read_back(pool: Pool) -> None:
    assert decode(json.loads(json.dumps(encode(pool)))) == pool
    assert pickle.loads(pickle.dumps(pool)) == pool


@pytest.mark.slow
@pytest.mark.usefixtures("started")
def test_a_resumed_run_goes_on_with_the_pool_it_began_with(tmp_path: Path) -> None:
    """Stopped in its second generation and begun again with engine="auto": the recorded Pool, and the same bits."""

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
        esgd.fit(task(True), RECIPE, seed=3, engine=Pool(workers=1), run=tmp_path / "run", progress=False)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert decode(manifest["engine"]) == Pool(workers=1)
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 1
    seen = []

    def look(network: nn.Module) -> float:
        seen.append(len(alive()))
        return 0.0

    resumed = esgd.fit(
        the_task(metrics={"mine": look}), RECIPE, seed=3, run=tmp_path / "run", progress=False, report=False
    )
    assert seen == [1], "one generation was left, and it was made by a worker"
    assert difference(contents(resumed.population), quiet()[-1][0]) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_the_command_line_runs_a_pool(tmp_path: Path) -> None:
    small = ["population=4", "offspring=4", "elites=2", "generations=1", "sgd_epochs=1"]
    sets = [word for each in small for word in ("--set", each)]
    done = command("run", "digits", "--engine", "pool:workers=2", *sets, "--run", "r", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["guarantee_held"] == 1
    assert decode(json.loads((tmp_path / "r" / "manifest.json").read_text())["engine"]) == Pool(workers=2)
