"""The executor that runs jobs in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from esgd.engines.computing import torch_threads
from esgd.engines.contract import Kernel
from esgd.engines.jobs import Job


class InlineExecutor:
    workers, bytes_moved = 1, 0

    def __init__(self, kernel: Kernel, threads: int | None) -> None:
        self.kernel, self.threads = kernel, threads

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def shared(self, tensor: Tensor) -> Tensor:
        return tensor

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        for job in jobs:
            with torch_threads(self.threads):
                result = job.run(self.kernel)
            yield job, result
