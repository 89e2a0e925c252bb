"""What is wrong with how the library answers an input: None, or a sentence.

Wrong are a traceback or any exception that is not our own, an exit code that is not meant for it, an answer that takes
longer than `LIMIT`, and code that ran because an input named it.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import tomli_w
import torch
from torch import nn
from torch.nn import functional as F

import esgd as library
from esgd import costs
from esgd._algorithm.initialization import prepare
from esgd.engines import choose
from esgd.errors import EsgdError, RecipeError, RunError
from esgd.operators.start import loaded
from esgd.protocols import Setup
from esgd.recipe import Recipe
from esgd.run import RunFolder, checkpoint, verify
from esgd.run.files import digest
from esgd.run.folder import without_none
from esgd.run.manifest import digest as identity
from tests.campaign.subject import STATE, TENSORS, subject
from tests.command import esgd

LIMIT = 30.0
"""Seconds within which every input is answered; the slowest take one, on a quiet machine."""

SMALL = {"population": 40, "offspring_count": 200, "sgd_epochs": 6, "evolution_steps": 4}
"""A recipe that asks for no more than this is tried: one generation of a tiny network."""

PAYLOAD = """
from dataclasses import dataclass
from pathlib import Path
Path(__file__).with_name("canary").touch()

@dataclass(frozen=True, kw_only=True)
class Strategy:
    command: str = ""

def touch(*arguments, **more):
    Path(__file__).with_name("canary").touch()
"""


class Hang(BaseException):
    """No answer within the limit. It derives from BaseException, so that nobody takes it for an error of the input."""


def judge_recipe(table: Any) -> str | None:
    """`Recipe.from_dict`; a recipe that is accepted can be spelt, explained and, where it is small, begun."""

    def act() -> None:
        recipe = Recipe.from_dict(table)
        spelt = recipe.to_dict()
        assert Recipe.from_dict(json.loads(json.dumps(spelt))).to_dict() == spelt, "it is not read back as it was"
        tomli_w.dumps(without_none(recipe.described()))
        recipe._repr_html_()
        with patch.object(costs, "PROBE_SECONDS", 0.0):
            json.dumps(costs.cost(_task(), recipe))
        started = getattr(recipe.start, "epochs", 0) <= SMALL["sgd_epochs"]
        if started and all(getattr(recipe, name) <= most for name, most in SMALL.items()):
            next(library.evolve(_task(), recipe, seed=0, engine="loop"))

    return _judged(act)


def judge_manifest(table: Any) -> str | None:
    """`esgd resume` of a run whose manifest has this recipe."""

    def change(run: Path) -> None:
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["recipe"] = table
        (run / "manifest.json").write_text(json.dumps(manifest, default=str), errors="replace")

    return _resumed(change)


def judge_sets(words: list[str]) -> str | None:
    """`esgd explain digits --set …`."""
    return _explained("digits", *(word for each in words for word in ("--set", each)))


def judge_toml(text: str) -> str | None:
    """`esgd explain study.toml`."""
    return _explained("study.toml", files={"study.toml": text})


def judge_engine(word: str) -> str | None:
    """`--engine …`, up to the engine itself: it is made, but not opened."""
    return _judged(lambda: choose(word, _setup()))


def judge_state(content: bytes) -> str | None:
    """A checkpoint whose state.json says this is read, verified and resumed."""
    return _damaged(lambda newest: (newest / STATE).write_bytes(content))


def judge_safetensors(file: tuple[str, bytes]) -> str | None:
    """A checkpoint with these tensors and a right digest of them, or a model with these, also as a start."""
    name, content = file

    def change(newest: Path) -> None:
        if name != TENSORS:
            (newest.parents[1] / name).write_bytes(content)
            return
        (newest / TENSORS).write_bytes(content)
        state = json.loads((newest / STATE).read_text())["state"]
        state["digests"][TENSORS] = digest(newest / TENSORS)
        (newest / STATE).write_text(json.dumps(checkpoint.sealed(state)))

    return _damaged(change, start=content)


def _damaged(change: Callable[[Path], Any], start: bytes = b"") -> str | None:
    """Read, verify and resume a copy whose newest checkpoint was changed."""
    with _home() as home:
        run = subject().copy(home)
        newest = max((run / "checkpoint").glob("0*"))
        change(newest)
        if start:
            (home / "start.safetensors").write_bytes(start)
        manifest = RunFolder(run).manifest()
        assert manifest is not None

        def read() -> None:
            checkpoint.load(newest, _setup().genome, run=identity(manifest))

        return (
            _judged(read, also=(RunError,))
            or _judged(lambda: verify(run), also=(RunError,))
            or (start and _judged(lambda: loaded(_setup().genome, home / "start.safetensors"), also=(RecipeError,)))
            or _answered("resume", "run", "--allow-code", "own", "--quiet", cwd=home, codes=(0, 3))
        ) or None


def _resumed(change: Callable[[Path], Any]) -> str | None:
    with _home() as home:
        change(subject().copy(home))
        return _answered("resume", "run", "--allow-code", "own", "--quiet", cwd=home, codes=(0, 3))


def _explained(*words: str, files: dict[str, str] | None = None) -> str | None:
    with _home() as home, patch.object(costs, "PROBE_SECONDS", 0.0):
        for name, text in (files or {}).items():
            (home / name).write_bytes(text.encode(errors="surrogatepass"))
        return _answered("explain", *words, cwd=home, codes=(0, 2))


def _answered(*words: str, cwd: Path, codes: tuple[int, ...]) -> str | None:
    """A command whose exit code is one of these, and which says why if it is not 0."""

    def act() -> None:
        with patch("esgd.report.write_run", lambda folder: folder):  # a report is no part of the answer, and slow
            done = esgd(*words, cwd=cwd)
        assert done.returncode in codes, f"exit code {done.returncode}: {done.stderr[-600:]}"
        assert "Traceback" not in done.stderr + done.stdout, f"a traceback: {done.stderr[-600:]}"
        assert done.returncode == 0 or done.stderr.strip(), f"exit code {done.returncode} without a word"

    return _judged(act, cwd=cwd)


def _judged(
    act: Callable[[], Any], also: tuple[type[Exception], ...] = (EsgdError,), cwd: Path | None = None
) -> str | None:
    """Whether it ends in time, well or with an error of ours, and calls nothing that was named."""
    if cwd is None:
        with _home() as home, chdir(home):
            return _judged(act, also, home)
    try:
        with _limited():
            act()
    except also:
        pass
    except Hang:
        return f"no answer in {LIMIT:g} s"
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return f"{type(error).__name__}: {str(error)[:900]}"
    return "code that an input named was run" if (cwd / "canary").exists() else None


@contextmanager
def _home() -> Iterator[Path]:
    """A folder with a module that leaves a file when it is imported or called."""
    with tempfile.TemporaryDirectory(prefix="esgd-fuzz-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        (home / "payload.py").write_text(PAYLOAD)
        with patch.object(sys, "path", [str(home), *sys.path]):
            try:
                yield home
            finally:
                sys.modules.pop("payload", None)


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `Hang` after the limit; only a main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@cache
def _task() -> library.Supervised:
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    return library.Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(x, y), fitness=(x, y), batch_size=8)


@cache
def _setup() -> Setup:
    return prepare(_task(), Recipe(), seed=0)
