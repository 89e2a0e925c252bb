"""Undisturbed runs, made once by new processes: what every attacked run must become again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.campaign.attacked import NAME, PACKAGE
from tests.campaign.case import python_path
from tests.campaign.changes import Change, die, note, on_changes
from tests.campaign.victim import esgd

ENGINE = "loop:threads=1"
BY_THE_WAY = ("seconds", "bytes_moved")
PLAIN = ("--engine", ENGINE, "--quiet", "--json")
RUN = ("run", NAME, "--run", "run", *PLAIN)
RESUME = ("resume", "run", "--allow-code", PACKAGE, "--quiet", "--json")
COMPARE = ("compare", NAME, "--out", "run", *PLAIN)


def finished(root: Path) -> Path:
    """A run that nothing happened to."""
    return _made(root, "finished", lambda home: _cold(home, *RUN))


def of_another_seed(root: Path) -> Path:
    return _made(root, "other-seed", lambda home: _cold(home, *RUN, "--seed", "1"))


def of_another_recipe(root: Path) -> Path:
    return _made(root, "other-recipe", lambda home: _cold(home, *RUN, "--set", "mutation.sigma=0.5"))


def compared(root: Path) -> Path:
    return _made(root, "compared", lambda home: _cold(home, *COMPARE))


def half(root: Path) -> Path:
    """A run that was killed while it saved its third generation of four."""

    def stop(change: Change) -> None:
        if change.event == "os.mkdir" and change.path == "checkpoint/.000003.new":
            die()

    return _made(root, "half", lambda home: esgd(*RUN, cwd=home, prepare=lambda: on_changes(home / "run", stop)))


def changes(root: Path, name: str, words: tuple[str, ...], begin: Callable[[Path], object]) -> list[str]:
    """The changes that a command makes in the folder `run`, after `begin` has laid the ground; see `Change`."""

    def make(home: Path) -> None:
        begin(home)
        esgd(*words, cwd=home, prepare=lambda: on_changes(home / "run", note(home / "changes")))

    return (_made(root, f"changes-{name}", make).parent / "changes").read_text().splitlines()


def _made(root: Path, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `run` in a home that is made once, however many ask for it at a time."""
    home = root / "reference" / name
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock"):
        if not home.exists():
            aside = home.with_suffix(".new")
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            make(aside)
            aside.rename(home)
    return home / "run"


def _cold(home: Path, *words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": python_path()}
    command = [sys.executable, "-m", "esgd", *words]
    subprocess.run(command, cwd=home, env=environment, check=True, capture_output=True, timeout=300)


def bits(folder: Path) -> dict[str, Any]:
    """What a user can compare of a run: file → content. What the way of computing decides may differ: `BY_THE_WAY`."""
    read: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.name == "history.jsonl":
            read[name] = [_timeless(json.loads(line)) for line in file.read_text().splitlines()]
        elif file.name == "state.json":
            state = json.loads(file.read_text())["state"]
            read[name] = {**state, "digests": sorted(state["digests"])}
        elif file.name == "comparison.json":
            read[name] = _timeless(json.loads(file.read_text()))
        elif file.suffix == ".safetensors" or file.name == "recipe.toml":
            read[name] = file.read_bytes()
        else:
            read[name] = "a file" if file.is_file() else "a folder"
    return read


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items() if name not in BY_THE_WAY}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def difference(folder: Path, reference: Path, *, besides: tuple[str, ...] = ()) -> str | None:
    """What a run has that the reference has not, or the other way round. What begins with a name in `besides` may
    be there or not."""
    here, there = bits(folder), bits(reference)
    for name in sorted(name for name in here.keys() | there.keys() if not name.startswith(besides)):
        if name not in here:
            return f"{name} is missing"
        if name not in there:
            return f"{name} was left behind"
        if here[name] != there[name]:
            return f"{name} differs from that of an undisturbed run"
    return None
