"""Memory that processes share, and the messages between them: once there, never copied, gone with its last user."""

from __future__ import annotations

import gc
import os
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool
from esgd._algorithm.initialization import prepare
from esgd.engines.processes import memory as memory_module
from esgd.engines.processes.memory import ARENA, MappedSegments, SharedMemory
from esgd.engines.processes.messages import LARGE, Channel, Message, pack, unpack
from esgd.errors import EngineError
from esgd.testing.evidence import contents, difference
from tests.small import classify, random_data
from tests.unit.engines.scribble import Scribble

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files through /proc")
DTYPES = [
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64),
]


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def received(serialized: Message, memory: SharedMemory) -> Any:
    """What a worker would have, in this process: it maps the same segments a second time."""
    mappings = MappedSegments()
    for number in serialized.segments:
        mappings.add(number, os.dup(memory.alive()[number].descriptor))
    return unpack(serialized.content, mappings, serialized.buffers)


def sent(value: Any, *, share: bool = True) -> Any:
    memory = SharedMemory()
    return received(pack(value, memory, share=share), memory)


# Pieces


@pytest.mark.slow
@given(sizes=st.lists(st.sampled_from([0, 1, 63, 1000, ARENA // 3, ARENA, ARENA + 8]), min_size=1, max_size=12))
def test_tensors_never_overlap(sizes: list[int]) -> None:
    memory = SharedMemory()
    tensors = [memory.empty(size, dtype=torch.uint8).fill_(number) for number, size in enumerate(sizes)]
    assert all((tensor == number).all() for number, tensor in enumerate(tensors))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_any_dtype_is_reachable_and_keeps_its_shape(dtype: torch.dtype) -> None:
    memory, tensor = SharedMemory(), torch.ones(3, 0, dtype=dtype)
    assert memory.shared(tensor) is tensor
    whole = torch.arange(24).reshape(3, 8).to(dtype)
    tensor, expected = whole[:, ::2], whole[:, ::2].clone()
    assert memory.address(tensor) is None
    assert memory.shared(tensor) is tensor
    assert memory.address(tensor) is not None
    assert torch.equal(tensor, expected)
    assert tensor.data_ptr() % 64 == 0
    assert memory.address(whole) is None
    assert torch.equal(whole[:, ::2], expected)


@pytest.mark.slow
def test_memory_goes_when_the_last_tensor_that_lies_there_goes() -> None:
    before, memory = open_files(), SharedMemory()
    tensor = memory.empty(ARENA, dtype=torch.uint8)
    row, used = tensor.view(2, -1)[1], open_files()
    assert used > before
    del tensor
    assert open_files() == used, "a view keeps it"
    del row
    assert open_files() == before
    assert not memory.alive()


@pytest.mark.slow
def test_small_tensors_do_not_use_up_open_files() -> None:
    before, memory = open_files(), SharedMemory()
    tensors = [memory.empty(10, dtype=torch.float32) for _ in range(1000)]
    assert open_files() <= before + 2
    del tensors, memory
    assert open_files() == before


def test_rows_outlive_the_memory_they_came_from() -> None:
    memory = SharedMemory()
    rows = memory.empty(4, ARENA, dtype=torch.float32).fill_(3.0)
    del memory
    gc.collect()
    assert float(rows.sum()) == 12.0 * ARENA


def test_memory_that_is_not_to_be_had_is_refused_in_words() -> None:
    """The limit stands in for a full machine: on a real one the kernel ends whoever it likes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ARENA, hard))
    try:
        with pytest.raises(EngineError, match="no 34 MB of memory left.*Use a smaller population, or engine='loop'"):
            SharedMemory().empty(8 * ARENA, dtype=torch.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# Messages


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [0, 5, LARGE], ids=["empty", "small", "large"])
def test_tensors_arrive_as_they_were(dtype: torch.dtype, size: int) -> None:
    tensor = torch.arange(size).remainder(2).to(dtype)
    arrived = sent({"tensor": tensor, "again": tensor})
    assert torch.equal(arrived["tensor"], tensor)
    assert arrived["tensor"].dtype == dtype
    arrived["tensor"].fill_(1)
    assert torch.equal(arrived["again"], arrived["tensor"]), "one tensor is still one tensor"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor(3.0),
        lambda: torch.randn(300, 400).T,
        lambda: torch.randn(5, 4).T,
        lambda: torch.randn(300, 400)[::2, 7:],
        lambda: torch.randn(1).expand(300, 400),
        lambda: torch.randn(8, 3, 64, 64).contiguous(memory_format=torch.channels_last),
        lambda: torch.randn(200, 300, dtype=torch.complex64).conj(),
        lambda: torch.randn(4, requires_grad=True),
        lambda: nn.Parameter(torch.randn(200, 300)),
        lambda: torch.eye(300).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
    ],
    ids=["scalar", "T", "small T", "strided", "expanded", "image", "conj", "grad", "parameter", "sparse", "csr"],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_views_and_odd_tensors_arrive_as_they_were(make: Callable[[], Tensor]) -> None:
    tensor = make()
    arrived = sent(tensor)
    assert type(arrived) is type(tensor)
    assert arrived.layout == tensor.layout
    assert arrived.requires_grad == tensor.requires_grad
    assert torch.equal(arrived.to_dense(), tensor.to_dense())


def test_large_data_are_shared_and_not_copied() -> None:
    """What the pool writes after it was sent is what the worker reads: there is one copy."""
    memory, tensor, array = SharedMemory(), torch.zeros(LARGE), np.zeros(LARGE)
    serialized = pack({"tensor": tensor, "view": tensor[10:20], "array": array}, memory, share=True)
    assert len(serialized.content) < 4096
    one, two = received(serialized, memory), received(serialized, memory)
    one["tensor"][12] = 5.0
    assert float(two["tensor"][12]) == float(two["view"][2]) == 5.0
    one["array"][3] = 7.0
    assert two["array"][3] == 7.0
    assert float(tensor.sum()) == float(array.sum()) == 0.0, "the caller's own data are never written to"


def test_small_data_travel_inside_the_message() -> None:
    memory = SharedMemory()
    serialized = pack({"tensor": torch.ones(3), "array": np.ones(3)}, memory, share=True)
    assert not serialized.segments
    assert not memory.alive()


def test_rows_in_shared_memory_travel_as_addresses_also_without_sharing_more() -> None:
    memory = SharedMemory()
    rows, other = memory.empty(3, LARGE, dtype=torch.float32).zero_(), torch.zeros(LARGE)
    serialized = pack((rows, rows[1], other), memory)
    arrived, second, copied = received(serialized, memory)
    arrived[1, 5] = 2.0
    copied.fill_(9.0)
    assert float(rows[1, 5]) == float(second[5]) == 2.0
    assert float(other.sum()) == 0.0


def test_a_storage_that_many_tensors_view_is_shared_once() -> None:
    memory, base = SharedMemory(), torch.randn(64, LARGE // 16)
    serialized = pack(list(base), memory, share=True)
    assert len(serialized.segments) == 1
    assert len(memory.alive()) == 1
    assert all(torch.equal(row, arrived) for row, arrived in zip(base, received(serialized, memory), strict=True))


def test_a_frozen_base_is_shared_by_all_workers() -> None:
    def adapter() -> nn.Module:
        base = nn.Linear(300, 300).requires_grad_(False)
        return nn.Sequential(base, nn.Linear(300, 3))

    task = esgd.Supervised(
        adapter, F.cross_entropy, train=(torch.randn(8, 300), torch.zeros(8).long()), fitness=random_data(4)
    )
    memory = SharedMemory()
    serialized = pack(prepare(task, esgd.Recipe(), 0), memory, share=True)
    assert len(serialized.content) < 60_000, "a base of 360 kB is not in the message"


def test_lambdas_and_local_classes_arrive() -> None:
    class Local(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.inner = nn.Linear(width, width)

    factor = 3
    function, network = sent((lambda x: factor * x, Local(4)))
    assert function(2) == 6
    assert network.inner.weight.shape == (4, 4)


@pytest.mark.slow
def test_a_message_with_open_files_arrives_whole() -> None:
    before = open_files()
    left, right = (Channel(end) for end in socket.socketpair())
    read, write = os.pipe()
    left.send(b"x" * 1000, [read])
    left.send(b"")
    content, (descriptor,) = right.receive()
    assert content == b"x" * 1000
    os.write(write, b"!")
    assert os.read(descriptor, 1) == b"!"
    assert right.receive() == (b"", [])
    for each in (read, write, descriptor):
        os.close(each)
    left.close()
    with pytest.raises(EOFError):
        right.receive()
    right.close()
    assert open_files() == before


@pytest.mark.timeout(60)
def test_open_files_of_a_process_that_has_died_are_not_waited_for() -> None:
    left, right = (Channel(end) for end in socket.socketpair())
    left.connection.send_bytes((1).to_bytes(4) + b"x")  # one open file is to follow
    left.close()
    with pytest.raises(EOFError):
        right.receive()
    right.close()


# In a run


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_what_a_workers_code_writes_into_the_task_only_that_worker_sees(tmp_path: Path) -> None:
    scribble = Scribble(tmp_path)
    list(esgd.evolve(scribble.task(), scribble.recipe, seed=0, engine=Pool(workers=2)))
    scribble.check()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_the_tasks_data_are_in_memory_once_however_many_workers_read_them(tmp_path: Path) -> None:
    """Of 80 MB of data none is a worker's own, as the kernel counts it."""
    x = torch.randn(200_000, 100)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            (tmp_path / f"{os.getpid()}").write_text(Path("/proc/self/smaps").read_text())
        return F.cross_entropy(output, target)

    small = (x[:8], torch.zeros(8).long())
    task = esgd.Supervised(lambda: nn.Linear(100, 3), loss, train=(x, torch.zeros(200_000).long()), fitness=small)
    recipe = esgd.Recipe(population=2, offspring=0, generations=1, sgd_epochs=1, elites=1)
    task.batch_size = 200_000
    list(esgd.evolve(task, recipe, seed=0, engine=Pool(workers=1)))
    (smaps,) = (path.read_text() for path in tmp_path.iterdir())
    own = [entry for entry in smaps.split("VmFlags")[:-1] if "memfd:esgd" in entry]
    dirty = sum(int(line.split()[1]) for entry in own for line in entry.splitlines() if line.startswith("Anonymous"))
    assert own
    assert dirty < 1000, "kilobytes"


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_many_generations_do_not_use_up_memory_or_open_files() -> None:
    """Rows of a megabyte: a segment of shared memory each time, and each is given back."""

    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 20_000), nn.ReLU(), nn.Linear(20_000, 3))

    recipe = esgd.Recipe(population=2, offspring=1, generations=6, sgd_epochs=1, elites=1)
    task = classify(wide, train=random_data(16), fitness=random_data(16))
    counted, last = [], {}
    for generation in esgd.evolve(task, recipe, seed=0, engine=Pool(workers=1)):
        last = contents(generation.population)
        del generation
        counted.append(open_files())
    assert counted[-1] <= counted[1]
    *_, plain = esgd.evolve(task, recipe, seed=0, engine=Loop(threads=1))
    assert difference(last, contents(plain.population)) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_the_population_before_the_last_is_in_no_process_when_the_next_one_gets_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large, mapped = set[int](), list[int]()

    def file(size: int) -> int:
        mapped.append(len(large & inodes_mapped()))
        descriptor = anonymous_file(size)
        large.add(os.fstat(descriptor).st_ino)
        return descriptor

    anonymous_file = memory_module._anonymous_file
    task = classify(lambda: nn.Sequential(nn.Linear(6, 60_000), nn.Linear(60_000, 3)))  # four rows exceed an arena
    recipe = esgd.Recipe(population=4, offspring=2, generations=4, sgd_epochs=1)
    for generation in esgd.evolve(task, recipe, seed=0, engine=Pool(workers=2)):
        if generation.k == 1:  # data and the first population are where they stay
            monkeypatch.setattr(memory_module, "_anonymous_file", file)
        del generation
    assert len(mapped) >= 6
    assert max(mapped[2:]) <= 1, "beside the population that is being trained or united"


def inodes_mapped() -> set[int]:
    """Memory without a name that is mapped by any process."""
    found = set[int]()
    for path in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            found |= {int(line.split()[4]) for line in path.read_text().splitlines() if "/memfd:esgd" in line}
    return found
