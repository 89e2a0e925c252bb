"""The folder of one run.

    recipe.toml         the resolved recipe
    manifest.json       versions, seed, engine, fingerprints of the data
    history.jsonl       a line for every finished generation
    checkpoint/000007/  the state after generation 7; the last two are kept
    model.safetensors   the fittest network so far
    report.html         what happened, for people

A generation is finished when its line is in the history. The checkpoint is written before the line and older ones
are removed after it, so that at every moment one checkpoint has its line: a crash costs a generation at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
from esgd.run.history import append_line, read_history, rewrite, spell
from esgd.run.manifest import differences

KEPT_CHECKPOINTS = 2


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
        if known is not None:
            self._check_same(known, manifest)
            return known
        strangers = sorted(
            item.name for item in self.path.iterdir() if item.name != ".lock" and not item.name.endswith(".new")
        )
        if [name for name in strangers if name != "recipe.toml"]:
            raise RunError(
                f"{str(self.path)!r} is not empty and has no manifest.json, so it is not the folder of a run (it holds "
                f"{', '.join(strangers[:3])}…). Choose a new folder."
            )
        with explained(self.path, "Writing the manifest", "No run was begun."):
            recipe = tomli_w.dumps(_without_none(manifest["recipe"]))
            replace_file(self.path / "recipe.toml", lambda aside: aside.write_text(recipe))
            words = json.dumps(manifest, indent=2, ensure_ascii=False)
            replace_file(self.manifest_file, lambda aside: aside.write_text(words))
        return dict(manifest)

    def manifest(self) -> dict[str, Any] | None:
        """What the folder says it is, or None for a folder that is no run yet."""
        if not self.manifest_file.is_file():
            return None
        try:
            return json.loads(self.manifest_file.read_text())  # type: ignore[no-any-return]
        except ValueError as error:
            raise RunError(
                f"{self.manifest_file} is damaged: {error}. It says which recipe and data the run belongs to. Restore "
                f"it from a copy, or choose a new folder."
            ) from error

    def latest(self, genome: Genome) -> tuple[State | None, list[str]]:
        """The newest state that is whole, and what was found damaged on the way; None to begin at the beginning."""
        history, damaged = read_history(self.history_file), []
        for path in checkpoint.saved(self.checkpoints):
            try:
                state = checkpoint.load(path, genome, history)
            except RunError as error:
                damaged.append(str(error))
            else:
                self._rewind(state)
                return state, damaged
        self._rewind(None)
        return None, damaged

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

    def _rewind(self, state: State | None) -> None:
        """Drop history lines later than the state that the run goes on from; they will be made again."""
        lines = list(state.history) if state else []
        if self.history_file.is_file() and self.history_file.read_bytes() != b"".join(map(spell, lines)):
            with explained(self.path, "Rewinding the history", "It is as it was."):
                rewrite(self.history_file, lines)

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


def _without_none(table: Any) -> Any:
    if isinstance(table, Mapping):
        return {name: _without_none(value) for name, value in table.items() if value is not None}
    if isinstance(table, list | tuple):
        return [_without_none(value) for value in table if value is not None]
    return table
