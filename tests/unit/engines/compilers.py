"""Whether torch can compile on this machine."""

from __future__ import annotations

import shutil

import pytest

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None,
    reason="torch compiles for CPUs by way of C++, and there is neither g++ nor clang++",
)
