"""A worker keeps the memory that it has freed."""

from __future__ import annotations

import sys

import pytest

from tests.warm import python

SCRIPT = """
import ctypes, resource, torch
from esgd.engines.freed_memory import MMAP, keep_freed_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        [torch.ones(6_000_000) for _ in range(3)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if hasattr(ctypes.CDLL(None), "mallopt"):
    ctypes.CDLL(None).mallopt(MMAP, 1 << 17)  # as in a process that has freed nothing large yet
returned, works, _, kept = pages(), keep_freed_memory(), pages(), pages()
print(returned, int(works), kept)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc is told with mallopt")
def test_memory_that_was_freed_is_used_again_without_new_pages() -> None:
    ran = python("-c", SCRIPT)
    assert ran.returncode == 0, ran.stderr
    returned, works, kept = map(int, ran.stdout.split())
    if not works:
        pytest.skip("not glibc")
    assert returned > max(100, 50 * kept), "each tensor was mapped anew before, and none of them after"
