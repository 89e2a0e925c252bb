"""What is compiled, and where it is kept: in the user's cache folder, so that the next run starts at once. Workers do
not compile the same code at the same time."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from platformdirs import user_cache_path
from torch import nn

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
PATIENCE = 600.0
"""Seconds to wait for another process that compiles the same code. After that it is compiled twice."""
UNLOCKABLE = (OSError, NotImplementedError, Timeout)
"""A folder that cannot be written, a file system without locks, a process that hangs: it is compiled without a lock."""


def compile_function(function: Callable[..., Any], *, on_cpu: bool) -> Callable[..., Any]:
    """A function of tensors whose shapes do not change, compiled when it is first called.

    On a CPU its kernels and the calls between them are one file of C++, without headers that are compiled in advance.
    A file for each kernel takes twice as long to compile.
    """
    keep_compiled_code()
    one_file = {"cpp_wrapper": True, "cpp_cache_precompile_headers": False}
    return torch.compile(function, dynamic=False, options=_known(one_file) if on_cpu else None)


def compile_module(module: nn.Module) -> None:
    """What `module.compile()` does. That does nothing for a container of torch's own, such as `nn.Sequential`: torch
    does not compile calls of its own functions, only those of functions that call them."""
    keep_compiled_code()

    def call(*arguments: Any, **named: Any) -> Any:
        return module._call_impl(*arguments, **named)

    headers = {"cpp_cache_precompile_headers": _headers_are_ours_alone()}
    module._compiled_call_impl = torch.compile(call, options=_known(headers))


def keep_compiled_code() -> None:
    """Name the folder to torch, before it compiles for the first time. One that the user has chosen stays.

    torch's own choice is a folder with a known name in the folder for temporary files: gone after a restart or in the
    next container, and on a shared machine open to the first user who makes it. torch names it in the environment as
    soon as its compiler is imported, so it is not taken for the user's choice. Where neither our folder nor torch's
    belongs to the user alone, it is a new one, for as long as this process lasts. torch decides by the code and its own
    version what can be used again.
    """
    torchs, ours, chosen = _torchs_folder(), compiled_code_folder(), os.environ.get(VARIABLE)
    if chosen is not None and chosen != str(torchs):
        return
    for folders in ((ours.parent.parent, ours.parent, ours), (torchs,) if torchs else ()):
        with suppress(OSError):  # no home, or one that cannot be written
            if folders and folders[-1].is_absolute() and _made_ours_alone(folders):
                os.environ[VARIABLE] = str(folders[-1])
                return
    os.environ[VARIABLE] = tempfile.mkdtemp(prefix="esgd-compiled-")
    atexit.register(shutil.rmtree, os.environ[VARIABLE], ignore_errors=True)


@contextmanager
def compiling(code: str) -> Iterator[None]:
    """Compile this code while no other process does. Workers of one run need the same: one compiles it, the others wait
    and then find what it has kept, all at the same time."""
    with ExitStack() as exits:
        if folder := os.environ.get(VARIABLE):
            lock = FileLock(_lock(folder, code))
            with suppress(*UNLOCKABLE):
                try:
                    exits.enter_context(lock.acquire(timeout=0))
                except Timeout:
                    lock.acquire(timeout=PATIENCE)
                    lock.release()
        yield


def _lock(folder: str, code: str) -> Path:
    """One of 256 files: they are never removed."""
    return Path(folder) / f"esgd-{sha256(code.encode()).hexdigest()[:2]}.lock"


@cache
def compiler_works() -> bool:
    """Whether torch can compile anything here: it needs a C++ compiler, or a GPU."""
    try:
        keep_compiled_code()
        with compiling("whether anything can be compiled"):
            compile_function(_doubled, on_cpu=True)(torch.ones(8))
    except Exception:  # noqa: BLE001  # whatever is missing
        return False
    return True


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


def refused_by_compiler(error: Exception) -> bool:
    """Whether this is what the compiler says of code that it cannot compile, not an error of that code."""
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor import exc

    newer = (exc.InductorError,) if hasattr(exc, "InductorError") else ()  # torch 2.6 has only the first
    return isinstance(error, (BackendCompilerFailed, *newer))


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Those that this version of torch has."""
    from torch._inductor import config

    return {name: value for name, value in options.items() if hasattr(config, name)}


def _headers_are_ours_alone() -> bool:
    """Whether headers may be compiled in advance. torch keeps them in its own folder, whatever folder compiled code
    has."""
    folder = _torchs_folder()
    with suppress(OSError):
        return folder is not None and _made_ours_alone((folder, folder / "precompiled_headers"))
    return False


def _torchs_folder() -> Path | None:
    """Where torch keeps compiled code if nothing else is said; None where it cannot say: it needs the name of the user
    and a folder for temporary files, and some containers have neither."""
    from torch._inductor.runtime.runtime_utils import default_cache_dir  # type: ignore[attr-defined]

    try:
        return Path(default_cache_dir()).absolute()
    except (KeyError, OSError):
        return None


def _made_ours_alone(folders: Iterable[Path]) -> bool:
    """Make these folders; whether no other user can write into them."""
    for each in folders:
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    return all(map(_is_ours_alone, folders))


def _is_ours_alone(folder: Path) -> bool:
    """Whether it is a folder of this user that no other can write into: torch runs what it finds there."""
    found = folder.lstat()
    owned = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and owned and not found.st_mode & 0o022


def compiled_code_folder() -> Path:
    """One for each version of torch, so that what an old one left can be deleted as a whole."""
    return user_cache_path("esgd", appauthor=False) / "compiled" / f"torch-{torch.__version__}"
