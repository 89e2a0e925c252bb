"""Whether a run folder is whole: every file against its checksum, the model against the archive. Nothing is written.

Checksums tell damage from what was written. They are no signature: who can alter a file can alter its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from esgd.errors import RunError
from esgd.run import checkpoint
from esgd.run.checksums import SUMS, read_sums, summed
from esgd.run.extension import planned_generations
from esgd.run.files import digest, open_to_read
from esgd.run.folder import RECIPE, RunFolder, holds_recipe, same_lines
from esgd.run.history import read_history
from esgd.run.manifest import digest as identity
from esgd.run.stop import Stop, read_stop


@dataclass(frozen=True)
class Verified:
    """What was found: how far the run is, what is wrong, a sentence each, and why it ended early, if it did; no fault
    means it is whole."""

    run: Path
    done: int
    planned: int
    faults: tuple[str, ...]
    stopped: str = ""


def verify(path: Path) -> Verified:
    """Check a run folder; `RunError` for what is no run folder, or has no manifest that can be read."""
    folder = RunFolder(path)
    manifest = folder.manifest()
    if manifest is None:
        raise RunError(f"{str(path)!r} is not the folder of a run: it has no manifest.json. Check the path.")
    recipe = manifest["recipe"]
    if not isinstance(recipe.get("generations"), int):
        raise RunError(f"{folder.manifest_file} is damaged: its recipe has no number of generations.")
    planned = planned_generations(manifest)
    try:
        history = read_history(folder.history_file) if folder.history_file.exists() else []
    except RunError:
        history = []  # not a plain file: said below
    faults = [*_run_faults(folder, manifest, history), *_guarantee_faults(history)]
    if not holds_recipe(path, recipe):
        faults.append(f"{path / RECIPE} is missing, or is not the recipe of the manifest.")
    try:
        stop = read_stop(path)
    except OSError as error:
        faults.append(str(error))
        stop = Stop()
    stopped = stop.why if stop.k == len(history) < planned else ""
    faults += _sum_faults(path, ended=len(history) >= planned or bool(stopped))
    return Verified(path, len(history), planned, tuple(faults), stopped)


def _sum_faults(path: Path, *, ended: bool) -> Iterator[str]:
    """The files that are not as the run left them at its end; a run that has not ended has no checksums."""
    try:
        sums = read_sums(path)
    except FileNotFoundError:
        if ended:
            yield f"{path / SUMS} is missing: the run was stopped before its end. `esgd resume` makes it whole."
        return
    except OSError as error:
        yield str(error)
        return
    there = {file.relative_to(path).as_posix(): file for file in summed(path)}
    for name in sorted(sums.keys() | there.keys()):
        if name not in there:
            yield f"{path / name} is missing, or no file that a run has."
        elif name not in sums:
            yield f"{path / name} has no checksum in {SUMS}: it came later."
        else:
            yield from _checked(there[name], sums[name])


def _checked(file: Path, known: str) -> Iterator[str]:
    try:
        if digest(file) != known:
            yield f"{file} was cut short or altered: its SHA-256 is not the one in {SUMS}."
    except OSError as error:
        yield str(error)


def _run_faults(folder: RunFolder, manifest: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The checkpoints; and history and model, which must be those of the newest one."""
    saved = checkpoint.saved(folder.checkpoints)
    if not saved:
        if history:
            yield f"{folder.checkpoints} has no checkpoint, but the history has {len(history)} generations."
        return
    for number, path in enumerate(saved):
        try:
            words, tensors = checkpoint.read(path)
            lines = checkpoint.lines(path, words)
        except RunError as error:
            yield str(error)
            continue
        own = identity(manifest, words["k"])
        if words.get("run", own) != own:
            yield f"{path} belongs to another run."
        elif number == 0:
            if not same_lines(history, lines):
                yield f"{folder.history_file} is not the history of {path}."
            yield from _model_faults(folder.model_file, words, tensors)


def _model_faults(path: Path, words: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Every parameter and buffer of the archive's network must be in the model, bit for bit."""
    try:
        expected = _archived(words["archive"]["layout"], tensors)
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
        yield f"the newest checkpoint has no archive that can be compared with the model: {error}."
        return
    try:
        open_to_read(path).close()  # safetensors would wait for the writer of a FIFO
        with safe_open(path, framework="pt") as model:
            aliases = model.metadata() or {}
            names = {name: name if name in model.keys() else aliases.get(name) for name in expected}  # noqa: SIM118
            found = {name: model.get_tensor(kept) for name, kept in names.items() if kept}
    except FileNotFoundError:
        yield f"{path} is missing. `esgd resume` writes it again."
        return
    except (OSError, SafetensorError) as error:
        yield f"{path} cannot be read: {error}. `esgd resume` writes it again."
        return
    different = [name for name in expected if name not in found or not _equal(found[name], expected[name])]
    if different:
        yield f"{path} is not the network that the run kept: {different[0]!r} differs. `esgd resume` writes it again."


def _archived(layout: Sequence[Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    row, found, begun = tensors["archive/rows"][0], dict[str, Tensor](), 0
    for name, shape in layout:
        size = torch.Size(shape).numel()
        found[name] = row[begun : begun + size].reshape(shape)
        begun += size
    buffers = {key.removeprefix("archive/buffers/"): key for key in tensors if key.startswith("archive/buffers/")}
    return found | {name: tensors[key][0] for name, key in buffers.items()}


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (one, other)))


def _guarantee_faults(history: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The i-th best fitness never rises for i ≤ m, in every generation for which the history says so."""
    for before, line in pairwise(history):
        try:
            m = line["elites"]
            old, new = (sorted(inf if f is None else f for f in each["fitness"])[:m] for each in (before, line))
            rose = line["guarantee"] == "held" and any(late > early for early, late in zip(old, new, strict=False))
        except (KeyError, TypeError) as error:
            yield f"generation {line.get('k')} of the history has no fitness to check: {error}."
            continue
        if rose:
            yield f"in generation {line['k']} of the history an elite got worse, which Theorem 1 rules out."
