"""The folder of one run.

    recipe.toml         the resolved recipe
    manifest.json       versions, seed, engine, fingerprints of the data
    history.jsonl       a line for every finished generation
    checkpoint/000007/  the state after generation 7; the last two are kept
    checkpoint/history.jsonl  a copy of the history, a line ahead while a generation is saved
    model.safetensors   the fittest network so far
    SHA256SUMS          when the run has ended: what `sha256sum -c` and `esgd verify` check
    stop.json           which rules may stop the run, and why it was stopped early, if so
    report.html         what happened, for people

A checkpoint knows the digest of the history until then, and two files have its lines: a crash costs a generation at
most, and of history.jsonl and its copy the one that is whole mends the other. Older checkpoints are removed when the
new one, the model and the line are there.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import tomli_w
from filelock import FileLock, Timeout

from esgd.errors import RecipeError, RunError
from esgd.generation import Growing, State
from esgd.genome import Genome
from esgd.run import checkpoint
from esgd.run.checksums import SUMS, write_sums
from esgd.run.extension import extended, last_extension, planned_generations
from esgd.run.files import explained, read_words, remove, replace_words
from esgd.run.history import HISTORY, Found, append_line, find_lines, rewrite
from esgd.run.line import timing_fault
from esgd.run.manifest import MANIFEST, RESUMED, START, differences, digest, read_manifest
from esgd.run.model import describe_network, holds_model, write_model
from esgd.run.place import located
from esgd.run.stop import STOP, Stop, write_stop

KEPT_CHECKPOINTS = 2
DAMAGED = f"{HISTORY}.damaged"
RECIPE = "recipe.toml"
MODEL = "model.safetensors"
WRITTEN = (MANIFEST, RECIPE, HISTORY, DAMAGED, MODEL, SUMS, STOP, "report.html", "run.png")
ASIDE = tuple(f".{name}.new" for name in WRITTEN)  # what a crash leaves half-written
OURS = (".lock", RECIPE, *ASIDE)  # what a run killed at its birth leaves
LINES, WIDTH = 12, 240  # of the differences to another run that are shown, and characters of each


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes a run. Use it inside `locked()`, so that two processes cannot write the same run.

    `place` is the folder's device and inode while it is locked: by them it is known again if it was moved.
    """

    path: Path
    place: tuple[int, int] | None = None

    @property
    def history_file(self) -> Path:
        return self.path / HISTORY

    @property
    def manifest_file(self) -> Path:
        return self.path / MANIFEST

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def model_file(self) -> Path:
        return self.path / MODEL

    @property
    def has_saved(self) -> bool:
        """Whether a run has saved something here."""
        return any(map(_is_there, (self.history_file, self.checkpoints, self.path / SUMS)))

    @contextmanager
    def locked(self) -> Iterator[RunFolder]:
        """Create the folder if need be, and keep other processes out."""
        with explained(self.path, "Opening the run folder", "Nothing was written."):
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_own()
            _check_lock(self.path / ".lock")
            lock = FileLock(self.path / ".lock", timeout=0)
            try:
                lock.acquire()
            except Timeout as error:
                raise RunError(
                    f"{str(self.path)!r} is being written by another process. Two runs cannot share a folder. Wait "
                    f"for the other one, or choose another folder."
                ) from error
        try:
            with explained(self.path, "Opening the run folder", "Nothing was written."):
                for left in [*map(self.path.joinpath, ASIDE), *checkpoint.leftovers(self.checkpoints)]:
                    if _is_there(left):
                        remove(left)
                place = _place(self.path)
            yield replace(self, place=place)
        finally:
            lock.release()

    def begun(
        self,
        identity: Mapping[str, Any],
        *,
        defaults: Mapping[str, Any] | None = None,
        allow: Collection[str] = (),
        extend: bool = False,
    ) -> tuple[dict[str, Any] | None, bool]:
        """The manifest of the run that has begun here, or None where none has; another run is refused, if it has saved
        something. And whether it has another recipe, which is accepted only to `extend` it.

        `defaults` are those of a recipe: a run of an earlier version did not write inputs that it did not have.
        """
        known = self.manifest()
        if known is None:
            return None, False
        whence = {RESUMED: known.get(RESUMED)}  # what it began with is in the folder, and need not be given again
        try:
            found = differences(known, {**whence, **identity}, defaults=defaults, allow=allow)
        except RecipeError:
            if self.has_saved:
                raise
            return None, False
        if not self.has_saved:
            return (None if found or identity.get(START) != known.get(START) else known), False
        of_recipe = all(each.startswith("recipe.") for each in found)
        if found and not (extend and of_recipe):
            further = f" To continue where it has ended with another recipe: extend=True.{_of_time(known)}"
            more = further if of_recipe else ""
            raise RunError(
                f"{_differs(self.path, found)}\nA run continues only with its own recipe, seed, data and network, or "
                f"it would not be one run. Choose a new folder, or undo the difference.{more}"
            )
        return known, bool(found)

    def extend(self, manifest: Mapping[str, Any], recipe: Mapping[str, Any], *, after: int) -> dict[str, Any]:
        """Write down that the generations after `after` follow another recipe."""
        longer = extended(manifest, recipe, after)
        with explained(self.path, "Extending the run", f"Its {after} generations are as they were."):
            remove(self.path / SUMS)  # it is not finished any more
            self._write_recipe(longer)
            replace_words(self.manifest_file, json.dumps(longer, indent=2, ensure_ascii=False))
        return longer

    def claim(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest of a new run; a folder that holds anything else is refused."""
        self._check_own()
        with explained(self.path, "Writing the manifest", "No run was begun."):
            self._write_recipe(manifest)
            replace_words(self.manifest_file, json.dumps(manifest, indent=2, ensure_ascii=False))
        return dict(manifest)

    def _check_own(self) -> None:
        """Refuse a folder that holds something, and no run."""
        strangers = sorted(item.name for item in self.path.iterdir() if item.name not in OURS)
        if strangers and not _is_there(self.manifest_file):
            raise RunError(
                f"{str(self.path)!r} is not empty and has no manifest.json, so it is not the folder of a run (it holds "
                f"{', '.join(strangers[:3])}…). Choose a new folder."
            )

    def manifest(self) -> dict[str, Any] | None:
        """What the folder says it is, or None for a folder that is no run yet."""
        return read_manifest(self.manifest_file)

    def latest(
        self, genome: Genome, manifest: Mapping[str, Any], *, allow: Collection[str] = (), given: bool = True
    ) -> tuple[State | None, list[str]]:
        """The newest state that is whole, and what was found damaged on the way; None to begin at the beginning. The
        history is made to say the same.

        `manifest` is that of this run; `allow` has the packages whose code a checkpoint may name. A finished run
        without a checkpoint that is whole is refused: to begin again would overwrite its model. So is one that began
        with the result of another, unless that is `given`.
        """
        state, damaged = self.read(genome, manifest, allow=allow)
        if state is None:
            self._refuse_to_overwrite(manifest, damaged)
            if RESUMED in manifest and not given:
                raise RunError(
                    "this run began with what another run had given, and none of its checkpoints is whole. Give it "
                    "again: fit(…, resume=result)."
                )
        lines, altered = self._mend_history(state.history if state else ())
        return state and replace(state, history=Growing(lines)), damaged + altered

    def read(
        self, genome: Genome, manifest: Mapping[str, Any], *, allow: Collection[str] = ()
    ) -> tuple[State | None, list[str]]:
        """As `latest`, without writing anything."""
        damaged = list[str]()
        for path in checkpoint.saved(self.checkpoints):
            try:
                run = digest(manifest, int(path.name))
                return checkpoint.load(path, genome, run=run, allow=allow), damaged
            except checkpoint.DamagedError as error:
                damaged.append(str(error))
        return None, damaged

    def _refuse_to_overwrite(self, manifest: Mapping[str, Any], damaged: Sequence[str]) -> None:
        """Refuse a run that has ended, when none of its checkpoints is whole."""
        done = len(_found(self.history_file).lines)
        if not _is_there(self.path / SUMS) and not 0 < planned_generations(manifest) <= done:
            return
        after = last_extension(manifest)
        last = f"checkpoint/{after:06d} or a later one" if after else f"checkpoint/{done:06d}"
        why = " ".join(damaged) or f"{self.checkpoints} has none."
        raise RunError(
            f"{str(self.path)!r} has a finished run{f', extended after generation {after},' if after else ''} and no "
            f"checkpoint that is whole, so its population cannot be returned. {why} Nothing was changed, and its "
            f"fittest network is in {MODEL}. Restore {last} from a copy. To train again, choose another folder, or "
            f"delete this one."
        )

    def adopt(self, state: State, *, run: str) -> None:
        """Save the state of another run, which this one continues."""
        self._check_there("Nothing was written.")
        with explained(self.path, "Saving the state that the run begins with", "Nothing else was written."):
            checkpoint.save(self.checkpoints, state, run=run)
            write_model(self.model_file, state.archive.best.module())
            rewrite(self.history_file, state.history)

    def save(self, state: State, *, run: str) -> dict[str, Any]:
        """Checkpoint, model and history line of a finished generation; returns the line as it was written."""
        begun, line = perf_counter(), state.history[-1]
        kept = f"The state after generation {state.k - 1} is intact." if state.k > 1 else "Nothing earlier was lost."
        self._check_there(kept)
        with explained(self.path, f"Saving generation {state.k}", kept):
            remove(self.path / SUMS)
            checkpoint.save(self.checkpoints, state, run=run)
            write_model(self.model_file, state.archive.best.module())
            line = {**line, "seconds": {**line["seconds"], "checkpoint": perf_counter() - begun}}
            append_line(self.history_file, line)
            checkpoint.prune(self.checkpoints, KEPT_CHECKPOINTS, until=state.k)
        return line

    def note_stop(self, stop: Stop) -> None:
        """Write down what may stop the run, or has stopped it."""
        with explained(self.path, f"Writing {STOP}", "The generations that were saved are intact."):
            write_stop(self.path, stop)

    def finish(self, state: State, manifest: Mapping[str, Any]) -> list[str]:
        """Make the folder of a run that has ended whole, and write down its checksums; returns what had to be mended.

        A crash in the last generation may have left the model of the generation before, or none, and a checkpoint more.
        """
        fittest, mended = state.archive.best.module(), list[str]()
        kept = f"Every generation is saved, 1 to {state.k}."
        self._check_there(kept)
        with explained(self.path, "Finishing the run", kept):
            for path in checkpoint.saved(self.checkpoints):
                if not checkpoint.is_whole(path, run=digest(manifest, int(path.name))):
                    remove(path)
                    mended.append(f"{path} was not whole; it was removed, for a later one is.")
            checkpoint.prune(self.checkpoints, KEPT_CHECKPOINTS, until=state.k)
            if not holds_model(self.model_file, fittest):
                write_model(self.model_file, fittest)
                mended.append(f"{self.model_file} was not the fittest network; it was written again.")
            if not holds_recipe(self.path, manifest["recipe"]):
                self._write_recipe(manifest)
                mended.append(f"{self.path / RECIPE} was not the recipe of the run; it was written again.")
            write_sums(self.path)
        return mended

    def _write_recipe(self, manifest: Mapping[str, Any]) -> None:
        replace_words(self.path / RECIPE, tomli_w.dumps(without_none(manifest["recipe"])))

    def _check_there(self, kept: str) -> None:
        """Refuse to make half a folder where the run's own was moved away or deleted."""
        if self.place is not None and _place(self.path) != self.place:
            raise RunError(
                f"{str(self.path)!r} was moved or deleted while the run was going on. {kept} The run stops here, so "
                f"that it does not become two halves. Put the folder back, or continue it where it is now."
            )

    def _mend_history(self, lines: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
        """Make history.jsonl and its copy hold the checkpoint's lines; a history that says something else is kept aside
        and named. Returns the lines that it has now.

        Later lines are dropped, because those generations will be made again, and missing ones are put back. A last
        line without its end was cut short while it was written, and is dropped, too.
        """
        found, copy = _found(self.history_file), self.checkpoints / HISTORY
        there, common = found.lines, min(len(found.lines), len(lines))
        altered = bool(found.fault) or not same_lines(there[:common], lines[:common]) or bool(there and not lines)
        altered = altered or any(map(timing_fault, there[:common]))  # which no digest covers
        whole = [dict(line) for line in (lines if altered else [*there[: len(lines)], *lines[len(there) :]])]
        with explained(self.path, "Mending the history", "It is as it was."):
            if altered:
                remove(self.path / DAMAGED)
                self.history_file.rename(self.path / DAMAGED)
            if whole != there or not found.clean:
                rewrite(self.history_file, whole)  # its lines know what their checkpoints took
            kept = _found(copy)
            if not kept.clean or not same_lines(kept.lines, lines):
                remove(copy)
                if whole:
                    rewrite(copy, whole)
        return whole, [f"{self.history_file} is not what the checkpoints say; it was kept as {DAMAGED}."] * altered


@dataclass(frozen=True)
class NoFolder:
    """For runs that are not kept: the same verbs, and nothing is written."""

    path: None = None
    has_saved: bool = False

    def manifest(self) -> None:
        return None

    def begun(
        self,
        identity: Mapping[str, Any],
        *,
        defaults: Mapping[str, Any] | None = None,
        allow: Collection[str] = (),
        extend: bool = False,
    ) -> tuple[None, bool]:
        return None, False

    def extend(self, manifest: Mapping[str, Any], recipe: Mapping[str, Any], *, after: int) -> dict[str, Any]:
        return extended(manifest, recipe, after)

    def claim(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        return dict(manifest)

    def latest(
        self, genome: Genome, manifest: Mapping[str, Any], *, allow: Collection[str] = (), given: bool = True
    ) -> tuple[State | None, list[str]]:
        return None, []

    def adopt(self, state: State, *, run: str) -> None:
        return None

    def save(self, state: State, *, run: str) -> dict[str, Any]:
        return state.history[-1]

    def note_stop(self, stop: Stop) -> None:
        pass

    def finish(self, state: State, manifest: Mapping[str, Any]) -> list[str]:
        return []


@contextmanager
def open_folder(path: str | Path | None) -> Iterator[RunFolder | NoFolder]:
    """The folder of a run, locked; or none."""
    if path is None:
        yield NoFolder()
    else:
        with RunFolder(located(path)).locked() as folder:
            yield folder


def _check_lock(file: Path) -> None:
    """Refuse what a lock could be held on, and is no file that a run makes: a FIFO, a device, a link."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise RunError(f"{str(file)!r} is not a regular file. A run makes it to keep other processes out. Remove it.")


def check_layers(manifest: Mapping[str, Any], genome: Genome, path: Path) -> None:
    """Refuse a network with other layers than that of the run."""
    if found := differences({"network": manifest["network"]}, {"network": describe_network(genome)}):
        raise RunError(
            f"{_differs(path, found)}\nIts weights belong to its own network, and another one would compute something "
            f"else with them. Give the make_model that the run was trained with, or undo the difference."
        )


def _differs(path: Path, found: Sequence[str]) -> str:
    """That a folder has another run, and the first differences."""
    shown = "\n  ".join(each if len(each) <= WIDTH else f"{each[: WIDTH - 2]} …" for each in found[:LINES])
    return f"{str(path)!r} belongs to another run, by its {MANIFEST}:\n  {shown}"


def _of_time(manifest: Mapping[str, Any]) -> str:
    """How a run is continued whose epochs follow a budget of time; nothing for another."""
    epochs = manifest["recipe"].get("sgd_epochs")
    seconds = epochs.get("seconds") if isinstance(epochs, Mapping) and epochs.get("kind") == "timed" else None
    if not isinstance(seconds, int | float):
        return ""
    told = f"{seconds:.12g}"
    return f" The run has a budget: give it again, budget={told} or --budget {told}s, and it keeps its plan."


def _found(path: Path) -> Found:
    """The lines of a history; none where there is no file, and a fault where it is a folder or a device."""
    try:
        return find_lines(path)
    except FileNotFoundError:
        return Found([])
    except RunError as error:
        return Found([], str(error), clean=False)


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _place(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def same_lines(some: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two histories tell the same; only their seconds may differ, because a checkpoint is written before it
    is known how long that took."""
    some, others = ([{**line, "seconds": None} for line in lines] for lines in (some, others))
    return some == others


def holds_recipe(folder: Path, recipe: Mapping[str, Any]) -> bool:
    """Whether recipe.toml says what the manifest does."""
    try:
        return bool(tomllib.loads(read_words(folder / RECIPE)) == without_none(recipe))
    except (OSError, ValueError, RecursionError):
        return False


def without_none(table: Any) -> Any:
    """A table as TOML has it: without what is not there."""
    if isinstance(table, Mapping):
        return {name: without_none(value) for name, value in table.items() if value is not None}
    if isinstance(table, list | tuple):
        return [without_none(value) for value in table if value is not None]
    return table
