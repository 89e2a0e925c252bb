"""Where the machine has too little of something, the message is ours: what happened, what is safe, what to do."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional as F

import esgd as library
from esgd import _limits as limits
from esgd._limits import available_memory, shortage, within_limits
from esgd.engines.processes import worker
from esgd.engines.processes.messages import Channel
from esgd.errors import EngineError, RecipeError, RunError
from esgd.progress.remaining import Remaining
from esgd.run import checkpoint
from tests.command import esgd
from tests.small import mlp, random_data

ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "688000320 bytes. Error code 12 (Cannot allocate memory)"
)
MEMORY = "no memory left for .*Use a smaller population or batch, fewer workers"
RECIPE = library.Recipe(population=2, offspring=2, generations=3, sgd_epochs=1)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError(ALLOCATOR), "there is no memory left for another 688 MB"),
        (MemoryError(), "there is no memory left for what is to be done"),
        (MemoryError("std::bad_alloc"), "there is no memory left"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "there is no memory left"),
        (SafetensorError("Error while serializing: I/O error: (os error 12)"), "there is no memory left"),
        (ImportError("x.so: failed to map segment from shared object"), "there is no memory left"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), "there is no memory left"),
        (OSError(errno.EMFILE, "Too many open files"), "may not open more files (its limit, ulimit -n, is "),
        (SafetensorError("I/O error: Too many open files (os error 24)"), "Raise the limit (ulimit -n 4096)"),
        (RuntimeError("can't start new thread"), "starts no more threads or processes here"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "Use fewer workers or engine='loop:thr"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
                      "workers are out of shared memory."), "Enlarge /dev/shm"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_what_the_machine_refuses_is_said_with_a_remedy(error: Exception, says: str) -> None:
    assert says in shortage(error)
    error.add_note("This was individual 3.")
    with pytest.raises(EngineError) as caught, within_limits():
        raise error
    assert says in str(caught.value)
    assert caught.value.__notes__ == ["This was individual 3."]
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.ENOSPC, "full"), RecipeError("out of memory")])
def test_other_errors_are_left_as_they_are(error: Exception) -> None:
    assert shortage(error) == ""
    with pytest.raises(type(error)) as caught, within_limits():
        raise error
    assert caught.value is error


# How much there is


def test_memory_is_what_is_left_below_a_limit_of_the_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = limits._left_to_process()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 42, hard))
    try:
        assert 0 < limits._left_to_process() < 1 << 42
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert before == limits._left_to_process() == inf or soft >= 0
    assert available_memory() > 0


@pytest.mark.parametrize(("limit", "left"), [("1000", 1000 - 700 + 200), ("max", inf), ("odd", inf)])
@pytest.mark.parametrize("where", ["", "own/group"])
def test_memory_is_what_is_left_below_a_limit_of_the_container(
    tmp_path: Path, limit: str, left: float, where: str
) -> None:
    folder = tmp_path / where
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text("700\n")
    (folder / "memory.stat").write_text("anon 500\ninactive_file 200\n")
    (tmp_path / "mine").write_text("0::/own/group\n")
    assert limits._left_to_group(tmp_path, tmp_path / "mine") == left
    assert limits._left_to_group(tmp_path / "nowhere", tmp_path / "mine") == inf


# In a run


def task_with(loss: Callable[[Tensor, Tensor], Tensor]) -> library.Supervised:
    return library.Supervised(mlp, loss, train=random_data(24), fitness=random_data(24, seed=1), batch_size=8)


def short(*, training: bool) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled() == training:
            raise RuntimeError(ALLOCATOR)
        return F.cross_entropy(output, target)

    return loss


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("engine", ["loop:threads=1", "vmap:threads=1", "pool:workers=1"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "fitness"])
def test_a_task_is_not_blamed_for_memory(engine: str, training: bool) -> None:
    with pytest.raises(EngineError, match=MEMORY):
        list(library.evolve(task_with(short(training=training)), RECIPE, seed=0, engine=engine))


@pytest.mark.parametrize("recipe", [{"population": 10**12}, {"offspring": 10**15}, {"population": 2**63 - 1}])
def test_what_memory_cannot_hold_is_refused_before_it_is_begun(recipe: dict[str, int]) -> None:
    with pytest.raises(EngineError, match=r"needs [\d,.]+ GB of memory, and [\d,.]+ GB are free here.*Use a smaller"):
        list(library.evolve(task_with(F.cross_entropy), library.Recipe(**recipe), seed=0, engine="loop"))


def test_where_sgd_stands_needs_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    row = 4 * sum(parameter.numel() for parameter in task_with(F.cross_entropy).model().parameters())
    monkeypatch.setattr("esgd._algorithm.initialization.available_memory", lambda: 2.5 * 100 * row)
    recipe = library.Recipe(population=100, offspring=0, mates=1, generations=1, sgd_epochs=1)
    list(library.evolve(task_with(F.cross_entropy), recipe, seed=0, engine="loop"))
    continued = replace(recipe, baggage=library.operators.Uninterrupted())
    with pytest.raises(EngineError, match="GB of memory"):
        list(library.evolve(task_with(F.cross_entropy), continued, seed=0, engine="loop"))


def test_ends_that_compete_need_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    row = 4 * sum(parameter.numel() for parameter in task_with(F.cross_entropy).model().parameters())
    monkeypatch.setattr("esgd._algorithm.initialization.available_memory", lambda: 4.5 * 100 * row)
    recipe = library.Recipe(population=100, offspring=0, mates=1, generations=1, sgd_epochs=1)
    competing = replace(recipe, survival=library.operators.Elitist(rest=library.operators.trajectories))
    with pytest.raises(EngineError, match="GB of memory"):
        list(library.evolve(task_with(F.cross_entropy), competing, seed=0, engine="loop"))
    list(library.evolve(task_with(F.cross_entropy), replace(competing, evolution_steps=0), seed=0, engine="loop"))


OWN = """
import os, signal
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
import esgd

x = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()

def loss(output, target):
    if torch.is_grad_enabled() and Path("r/history.jsonl").exists():
        if Path("memory is short").exists():
            raise MemoryError
        if Path("it is terminated").exists():
            os.kill(os.getpid(), signal.SIGTERM)
    return F.cross_entropy(output, target)

task = esgd.Supervised(lambda: nn.Linear(4, 2), loss, train=(x, y), fitness=(x, y), batch_size=8)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def run(home: Path, *more: str) -> Any:
    sets = ["--set", "population=2", "--set", "generations=3", "--set", "sgd_epochs=1"]
    return esgd("run", "own:task", "--run", "r", "--engine", "loop:threads=1", *sets, *more, cwd=home)


def test_a_run_that_is_out_of_memory_says_what_is_saved_and_how_to_continue(home: Path) -> None:
    (home / "memory is short").touch()
    stopped = run(home)
    assert stopped.returncode == 2
    assert "error: there is no memory left for what is to be done" in stopped.stderr
    assert "1 generation is saved in r. To continue: esgd resume r --allow-code own" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    (home / "memory is short").unlink()
    assert esgd("resume", "r", "--allow-code", "own", cwd=home).returncode == 0


def test_a_run_that_is_terminated_says_what_is_saved_and_how_to_continue(home: Path) -> None:
    (home / "it is terminated").touch()
    stopped = run(home)
    assert stopped.returncode == 143
    assert "1 generation is saved in r. To continue: esgd resume r --allow-code own" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    (home / "it is terminated").unlink()
    assert esgd("resume", "r", "--allow-code", "own", cwd=home).returncode == 0


def test_a_checkpoint_that_memory_has_no_room_for_harms_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_file", refuse)
        with pytest.raises(RunError, match="Saving generation 1 in .* failed: there is no memory left.*run the same"):
            library.fit(
                task_with(F.cross_entropy), RECIPE, seed=0, run=home / "r", engine="loop", progress=False, report=False
            )
    whole = library.fit(
        task_with(F.cross_entropy), RECIPE, seed=0, run=home / "r", engine="loop", progress=False, report=False
    )
    assert len(whole.history) == 3


# Workers


def test_files_that_cannot_be_opened_are_not_waited_for() -> None:
    left, right = (Channel(end) for end in socket.socketpair())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = list[int]()
    left.send(b"x", [0, 1, 2])
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))  # noqa: PTH208
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        os.close(opened.pop())  # one of three finds room
        with pytest.raises(OSError, match="Too many open files"):
            right.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in opened:
            os.close(descriptor)
        left.close()
        right.close()


def test_a_worker_that_cannot_start_its_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    near, far = socket.socketpair()
    read, write = os.pipe()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(sys, "argv", ["worker", str(far.detach()), str(read)])
    worker.main()
    channel = Channel(near)
    failure = worker.unpack(channel.receive()[0], worker.MappedSegments())
    with pytest.raises(RuntimeError, match="can't start new thread"):
        failure.raise_again()
    channel.close()
    os.close(read)
    os.close(write)


COMMAND = "ulimit {limit}; exec {python} -m esgd run own:task --run r {rest}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "rest", "says"),
    [
        ("-n 10", "--engine pool:workers=2", "this process may not open more files (its limit, ulimit -n, is 10)"),
        ("-n 16", "--engine pool:workers=9", "this process may not open more files (its limit, ulimit -n, is 16)"),
        ("-v 2500000", "--engine loop:threads=1 --set population=900000000", "GB of memory, and "),
    ],
    ids=["ten files", "sixteen files", "memory"],
)
def test_real_limits_are_named_by_a_real_process(home: Path, limit: str, rest: str, says: str) -> None:
    command = COMMAND.format(limit=limit, python=sys.executable, rest=rest)
    done = subprocess.run(["bash", "-c", command], cwd=home, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pool:workers=1"])
def test_a_pool_needs_no_shared_memory_of_the_system(home: Path, engine: str) -> None:
    mount = "mount -t tmpfs -o size=16k none /dev/shm"
    if subprocess.run(["unshare", "-m", "bash", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("a small /dev/shm has to be mounted, which needs the rights of root")
    command = f"{mount}; exec {sys.executable} -m esgd run own:task --run r --engine {engine} --set generations=1"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", command], cwd=home, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr


# Long runs


def test_a_billion_generations_are_not_listed() -> None:
    remaining = Remaining(library.Recipe(generations=10**9).stages(), now=iter(range(100)).__next__)
    remaining.tick("sgd", 1, 2)
    estimate = remaining.estimate
    assert estimate is not None
    assert not estimate.whole, "a lower bound"


@pytest.mark.slow
@pytest.mark.parametrize("progress", ["json", "plain"])
def test_generations_without_an_sgd_step_are_reported(tmp_path: Path, progress: str) -> None:
    small = ["--set", "population=4", "--set", "elites=2", "--set", "generations=2", "--set", "start.epochs=0"]
    done = esgd("run", "digits", *small, "--set", "sgd_epochs=0", "--progress", progress, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
