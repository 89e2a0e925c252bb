"""What is compiled, and that it is kept in a folder of the user's."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock, Timeout
from torch import nn

from esgd.engines import compiled_code
from esgd.engines.compiled_code import VARIABLE, compile_module, compiling, keep_compiled_code
from tests.unit.engines.compilers import needs_compiler


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "")  # so that it is put back afterwards
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def torchs_folder(tmp_path: Path) -> Path:
    """Where torch keeps compiled code unless it is told otherwise."""
    return tmp_path / "tmp" / f"torchinductor_{getpass.getuser()}"


def test_the_folder_is_the_users_own_and_named_after_the_version_of_torch(tmp_path: Path) -> None:
    keep_compiled_code()
    folder = tmp_path / "esgd" / "compiled" / f"torch-{torch.__version__}"
    assert os.environ[VARIABLE] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    keep_compiled_code()
    assert os.environ[VARIABLE] == "/elsewhere"


def test_what_torch_has_named_is_not_the_users_choice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, torchs_folder: Path
) -> None:
    """It names its own folder as soon as its compiler is imported, which the first gradient of `Vmap` does."""
    monkeypatch.setenv(VARIABLE, str(torchs_folder))
    keep_compiled_code()
    assert Path(os.environ[VARIABLE]).is_relative_to(tmp_path / "esgd")


@pytest.mark.parametrize("level", ["esgd", "esgd/compiled"])
def test_a_folder_that_others_can_write_into_is_not_used(tmp_path: Path, torchs_folder: Path, level: str) -> None:
    (tmp_path / level).mkdir(parents=True)
    (tmp_path / level).chmod(0o777)
    keep_compiled_code()
    assert os.environ[VARIABLE] == str(torchs_folder)
    assert torchs_folder.stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_used(tmp_path: Path, torchs_folder: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "esgd").symlink_to(tmp_path / "elsewhere")
    keep_compiled_code()
    assert os.environ[VARIABLE] == str(torchs_folder)


@pytest.mark.parametrize(
    "error", [KeyError("getpwuid(): uid not found: 1234"), FileNotFoundError("no folder")], ids=repr
)
def test_where_torch_has_no_folder_ours_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    """As in a container whose user has no name."""

    def nowhere() -> str:
        raise error

    monkeypatch.setattr("torch._inductor.runtime.runtime_utils.default_cache_dir", nowhere)
    keep_compiled_code()
    assert Path(os.environ[VARIABLE]).is_relative_to(tmp_path / "esgd")
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    keep_compiled_code()
    assert os.environ[VARIABLE] == "/elsewhere"


def test_where_others_can_write_into_both_folders_a_new_one_is_used(tmp_path: Path, torchs_folder: Path) -> None:
    for folder in (tmp_path / "esgd", torchs_folder):
        folder.mkdir()
        folder.chmod(0o777)
    keep_compiled_code()
    chosen = Path(os.environ[VARIABLE])
    assert chosen.parent == torchs_folder.parent
    assert chosen != torchs_folder
    assert chosen.stat().st_mode & 0o777 == 0o700
    keep_compiled_code()
    assert os.environ[VARIABLE] == str(chosen)


def test_the_same_code_is_compiled_by_one_process_at_a_time(tmp_path: Path) -> None:
    keep_compiled_code()
    with compiling("a = 1"):
        (lock,) = tmp_path.rglob("*.lock")
        with pytest.raises(Timeout):
            FileLock(lock, timeout=0).acquire()
        with compiling("b = 2"):  # other code does not wait
            pass
    with FileLock(lock, timeout=0):
        pass


def test_code_is_compiled_although_the_folder_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    with compiling("a = 1"):
        pass


def test_a_process_that_hangs_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep_compiled_code()
    monkeypatch.setattr(compiled_code, "PATIENCE", 0.0)
    inside = list[str]()
    with compiling("a = 1"), compiling("a = 1"):
        inside.append("both")
    assert inside == ["both"]


def test_those_that_wait_do_not_wait_for_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They only load what the first has kept."""
    keep_compiled_code()
    monkeypatch.setattr(compiled_code, "FileLock", ReleasedLater)
    with compiling("a = 1"), compiling("a = 1"):
        (lock,) = tmp_path.rglob("*.lock")
        with FileLock(lock, timeout=0):
            pass


class ReleasedLater(FileLock):
    """Another process has it when it is asked for, and gives it back to those who wait."""

    def acquire(self, timeout: float | None = None, **rest: Any) -> Any:
        if timeout == 0:
            raise Timeout(self.lock_file)
        return super().acquire(timeout, **rest)


@pytest.mark.parametrize("error", [OSError, NotImplementedError])
def test_a_file_system_without_locks_is_compiled_on(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    class Lockless(FileLock):
        def acquire(self, *arguments: Any, **rest: Any) -> Any:
            raise error

    keep_compiled_code()
    monkeypatch.setattr(compiled_code, "FileLock", Lockless)
    inside = list[str]()
    with compiling("a = 1"):
        inside.append("it")
    assert inside == ["it"]


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@torch.no_grad()
def test_a_container_is_compiled() -> None:
    """`module.compile()` compiles nothing of it."""
    from torch._dynamo.utils import counters

    network, x, before = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4), counters["frames"]["ok"]
    expected = network(x)
    compile_module(network)
    assert torch.allclose(network(x), expected)
    assert counters["frames"]["ok"] == before + 1


@pytest.mark.parametrize(("mode", "ours"), [(None, True), (0o700, True), (0o777, False)])
def test_headers_that_others_can_write_are_not_used(torchs_folder: Path, mode: int | None, *, ours: bool) -> None:
    if mode is not None:
        torchs_folder.mkdir()
        torchs_folder.chmod(mode)
    assert compiled_code._headers_are_ours_alone() is ours
