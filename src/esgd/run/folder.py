"""The folder of one run.

    recipe.toml         the resolved recipe
    manifest.json       versions, seed, engine, fingerprints of the data
    history.jsonl       a line for every finished generation
    checkpoint/000007/  the state after generation 7; the last two are kept
    model.safetensors   the fittest network so far
    report.html         what happened, for people

A checkpoint has a copy of the history until then, so it is whole by itself: a crash costs a generation at most, and a
damaged history is mended from it. Older checkpoints are removed when the new one, the model and the line are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import tomli_w
from filelock import FileLock, Timeout
from safetensors.torch import save_model

from esgd.errors import RunError
from esgd.generation import State
from esgd.genome import Genome
from esgd.run import checkpoint
from esgd.run.files import explained, replace_file
from esgd.run.history import append_line, read_history, rewrite
from esgd.run.manifest import differences

KEPT_CHECKPOINTS = 2
DAMAGED = "history.jsonl.damaged"
OURS = (".lock", "recipe.toml", ".recipe.toml.new", ".manifest.json.new")  # what a run killed at its birth leaves


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes a run. Use it inside `locked()`, so that two processes cannot write the same run."""

    path: Path

    @property
    def history_file(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def manifest_file(self) -> Path:
        return self.path / "manifest.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def model_file(self) -> Path:
        return self.path / "model.safetensors"

    @contextmanager
    def locked(self) -> Iterator[RunFolder]:
        """Create the folder if need be, and keep other processes out."""
        with explained(self.path, "Opening the run folder", "Nothing was written."):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock", timeout=0)
            try:
                lock.acquire()
            except Timeout as error:
                raise RunError(
                    f"{str(self.path)!r} is being written by another process. Two runs cannot share a folder. Wait "
                    f"for the other one, or choose another folder."
                ) from error
        try:
            yield self
        finally:
            lock.release()

    def claim(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest of a new run, or check that the folder's run is this one; returns the one in force."""
        known = self.manifest()
        if known is not None and (self.history_file.is_file() or self.checkpoints.exists()):
            self._check_same(known, manifest)
            return known
        strangers = sorted(item.name for item in self.path.iterdir() if item.name not in OURS)
        if strangers and known is None:
            raise RunError(
                f"{str(self.path)!r} is not empty and has no manifest.json, so it is not the folder of a run (it holds "
                f"{', '.join(strangers[:3])}…). Choose a new folder."
            )
        with explained(self.path, "Writing the manifest", "No run was begun."):
            recipe = tomli_w.dumps(_without_none(manifest["recipe"]))
            replace_file(self.path / "recipe.toml", lambda aside: aside.write_text(recipe, encoding="utf-8"))
            words = json.dumps(manifest, indent=2, ensure_ascii=False)
            replace_file(self.manifest_file, lambda aside: aside.write_text(words, encoding="utf-8"))
        return dict(manifest)

    def manifest(self) -> dict[str, Any] | None:
        """What the folder says it is, or None for a folder that is no run yet."""
        if not self.manifest_file.is_file():
            return None
        try:
            return json.loads(self.manifest_file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
        except ValueError as error:
            raise RunError(
                f"{self.manifest_file} is damaged: {error}. It says which recipe and data the run belongs to. Restore "
                f"it from a copy, or choose a new folder."
            ) from error

    def latest(self, genome: Genome) -> tuple[State | None, list[str]]:
        """The newest state that is whole, and what was found damaged on the way; None to begin at the beginning."""
        damaged = list[str]()
        for path in checkpoint.saved(self.checkpoints):
            try:
                state = checkpoint.load(path, genome)
            except RunError as error:
                damaged.append(str(error))
            else:
                damaged += self._mend_history(state.history)
                return replace(state, history=tuple(read_history(self.history_file))), damaged
        return None, damaged + self._mend_history(())

    def save(self, state: State) -> State:
        """Checkpoint, model and history line of a finished generation; returns it with the line as it was written."""
        begun, line = perf_counter(), state.history[-1]
        kept = f"The state after generation {state.k - 1} is intact." if state.k > 1 else "Nothing earlier was lost."
        with explained(self.path, f"Saving generation {state.k}", kept):
            checkpoint.save(self.checkpoints, state)
            fittest = state.archive.best.module()
            replace_file(self.model_file, lambda aside: save_model(fittest, str(aside)))
            line = {**line, "seconds": {**line["seconds"], "checkpoint": perf_counter() - begun}}
            append_line(self.history_file, line)
            checkpoint.prune(self.checkpoints, KEPT_CHECKPOINTS)
        return replace(state, history=(*state.history[:-1], line))

    def _mend_history(self, lines: Sequence[Mapping[str, Any]]) -> list[str]:
        """Make history.jsonl hold the checkpoint's lines; one that says something else is kept aside and named.

        Later lines are dropped, because those generations will be made again, and missing ones are put back.
        """
        if not self.history_file.is_file():
            there, altered = [], False
        else:
            there = read_history(self.history_file)
            common = min(len(there), len(lines))
            spoilt = self.history_file.read_bytes().count(b"\n") > len(there)
            altered = spoilt or _timeless(there[:common]) != _timeless(lines[:common]) or bool(there and not lines)
        with explained(self.path, "Mending the history", "It is as it was."):
            if altered:
                self.history_file.replace(self.path / DAMAGED)
            else:
                lines = [*there[: len(lines)], *lines[len(there) :]]  # they know what their checkpoints took
            if lines != there or altered:
                rewrite(self.history_file, lines)
        return [f"{self.history_file} is not what the checkpoints say; it was kept as {DAMAGED}."] if altered else []

    def _check_same(self, known: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
        found = differences(known, manifest)
        if found:
            shown = "\n  ".join(found[:12])
            raise RunError(
                f"{str(self.path)!r} belongs to another run:\n  {shown}\nA run goes on only with its own recipe, "
                f"seed, data and network, or it would not be one run. Choose a new folder, or undo the difference."
            )


@dataclass(frozen=True)
class NoFolder:
    """For runs that nobody wants to keep: the same verbs, and nothing is written."""

    path: None = None

    def manifest(self) -> None:
        return None

    def claim(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        return dict(manifest)

    def latest(self, genome: Genome) -> tuple[State | None, list[str]]:
        return None, []

    def save(self, state: State) -> State:
        return state


@contextmanager
def open_folder(path: str | Path | None) -> Iterator[RunFolder | NoFolder]:
    """The folder of a run, locked; or none."""
    if path is None:
        yield NoFolder()
    else:
        with RunFolder(Path(path)).locked() as folder:
            yield folder


def _timeless(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines without their seconds: a line is written with the time its checkpoint took, which that cannot know."""
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def _without_none(table: Any) -> Any:
    if isinstance(table, Mapping):
        return {name: _without_none(value) for name, value in table.items() if value is not None}
    if isinstance(table, list | tuple):
        return [_without_none(value) for value in table if value is not None]
    return table
