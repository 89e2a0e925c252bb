"""checkpoint/K/: the state after generation K as tensors (safetensors) and words (JSON). No pickle.

A checkpoint is written into a folder beside, synced and renamed, so it is there or it is not. It knows its own
digests and the run that it belongs to; one that was cut short or altered is recognised and named.

checkpoint/history.jsonl is a copy of the history for all checkpoints. A line is added to it before the checkpoint is
written, and every checkpoint knows the digest of its lines. Earlier versions kept a copy in every checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from esgd.errors import ForeignCodeError, RunError, shown
from esgd.generation import Growing, State, read_past
from esgd.genome import Genome
from esgd.policies import Policy
from esgd.population import Birth, OptimizerState, Population
from esgd.ranges import read_ranges
from esgd.run.files import digest, make_file, read_table, remove, sync
from esgd.run.history import HISTORY, append_line, chained, last_value, read_history, rewrite
from esgd.run.line import misplaced, timing_fault

_ID = re.compile(r"\d{1,18}\.\d+\.\d+(@\d+)*")  # of a birth
_LIKE_PARAMETER = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "sum", "square_avg", "grad_avg")
_STATE = re.compile(
    r"(\d{1,9}/.+|place/row|place/buffers/.+)"
)  # the number of a parameter, or a place; the name of what is kept for it

TENSORS, WORDS = "tensors.safetensors", "state.json"
LINES = "lines"
"""The name under which a checkpoint keeps the digest of its lines of the history."""


class DamagedError(RunError):
    """A checkpoint that is not whole: the one before it may be."""


def save(folder: Path, state: State, *, run: str) -> None:
    """Write `folder/K` for the state after generation K; `run` is the identity of the run it belongs to."""
    target, aside = folder / _name(state.k), folder / f".{_name(state.k)}.new"
    _check_own(folder)
    folder.mkdir(exist_ok=True)  # the run's own folder is there, or the run has lost it
    remove(aside)
    _keep_history(folder / HISTORY, state.history)
    try:
        aside.mkdir()
        tensors = {**_tensors(state.population, "population"), **_tensors(state.archive, "archive")}
        make_file(aside / TENSORS, lambda path: save_file(tensors, path))
        words = {
            "k": state.k,
            "run": run,
            "population": _words(state.population),
            "archive": _words(state.archive),
            "digests": {TENSORS: digest(aside / TENSORS), LINES: _digest_of_lines(folder, state.history)},
        }
        (aside / WORDS).write_text(json.dumps(sealed(words), sort_keys=True, ensure_ascii=False), encoding="utf-8")
        for path in (aside / TENSORS, aside / WORDS, aside):
            sync(path)
        remove(target)
        aside.rename(target)
        sync(folder)
    finally:
        remove(aside)


def _keep_history(copy: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Add the newest line to the copy; one that does not end with the line before is written anew."""
    try:
        last, begun = last_value(copy)
        follows = not begun and not misplaced(last, len(history) - 1)
    except FileNotFoundError:
        follows = len(history) == 1
    if follows:
        append_line(copy, history[-1])
    else:
        rewrite(copy, history)


def _digest_of_lines(folder: Path, history: Sequence[Mapping[str, Any]]) -> str:
    """From the digest that the checkpoint before knows; where there is none, from all lines."""
    try:
        before = _unsealed(folder / _name(len(history) - 1) / WORDS)["digests"][LINES]
        return chained(history[-1:], before)
    except (OSError, KeyError, TypeError):
        return chained(history)


def sealed(words: dict[str, Any]) -> dict[str, Any]:
    """The words of a checkpoint with their own digest: what stands in state.json."""
    text = json.dumps(words, sort_keys=True, ensure_ascii=False)
    return {"sha256": sha256(text.encode()).hexdigest(), "state": words}


def load(path: Path, genome: Genome, *, run: str = "", allow: Collection[str] = ()) -> State:
    """The state in a checkpoint folder of the run with the identity `run`.

    `DamagedError` names the file that is missing, cut short or altered. A checkpoint of another run, or one that names
    code of a package that is not in `allow`, is refused.
    """
    words, tensors = read(path)
    if words.get("run", run) != run:
        raise RunError(
            f"{path} belongs to another run than manifest.json: it was saved with another recipe, seed, data or "
            f"network. To continue from it would be neither run. Restore whichever of the two is not this run's own."
        )
    try:
        population = _population(words["population"], tensors, "population", genome, allow)
        archive = _population(words["archive"], tensors, "archive", genome, allow)
        if words["k"] != int(path.name) or len(archive) != 1:
            raise ValueError(f"k is {words['k']!r}, with {len(archive)} in the archive")
        history = _whole_lines(path, words)
        if fault := next(filter(None, map(timing_fault, history)), ""):
            raise ValueError(fault)
        past, ranges = read_past(history, allow=allow), read_ranges(history)
        return State(len(history), population, archive, Growing(history), past, ranges=ranges)
    except ForeignCodeError as error:
        raise RunError(f"{path}: {error}") from error
    except RunError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DamagedError(f"{path} is not what a run writes: {type(error).__name__}: {error}.") from error


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a checkpoint says and its tensors, every file of it checked against its digest; `DamagedError` names the
    fault. The lines of the history are `lines`."""
    if path.is_symlink():
        raise DamagedError(f"{path} is a link, and what is elsewhere is no part of a run.")
    try:
        words = _unsealed(path / WORDS)
        for name in _files(words):
            if digest(path / name) != words["digests"].get(name):
                raise DamagedError(
                    f"{path / name} was cut short or altered: its SHA-256 is not the one that {WORDS} knows."
                )
        # load_file maps the file into memory: what happens to the file later must not happen to the population
        return words, {name: tensor.clone() for name, tensor in load_file(path / TENSORS).items()}
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing.") from error
    except SafetensorError as error:
        raise DamagedError(f"{path / TENSORS} cannot be read: {error}.") from error
    except DamagedError:
        raise
    except OSError as error:  # a file in place of a folder, a folder or FIFO in place of a file, no permission
        raise DamagedError(f"{path} cannot be read: {error}") from error


def lines(path: Path, words: Mapping[str, Any], source: Path | None = None) -> list[dict[str, Any]]:
    """The history that a checkpoint knows, from the copy or another `source`; `DamagedError` if it is not there."""
    if LINES not in words["digests"]:
        return read_history(path / HISTORY)  # of an earlier version: its digest was checked
    source = source or path.parent / HISTORY
    try:
        found = read_history(source)[: words["k"]]
    except (RunError, TypeError) as error:
        raise DamagedError(f"{source} cannot be read: {error}") from error
    if chained(found) != words["digests"][LINES]:
        raise DamagedError(f"{source} was cut short or altered: its lines are not those that {path / WORDS} knows.")
    return found


def _whole_lines(path: Path, words: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The history from the copy, or from the run's own file: one that is whole mends the other."""
    try:
        return lines(path, words)
    except DamagedError:
        return lines(path, words, path.parent.parent / HISTORY)


def is_whole(path: Path, *, run: str) -> bool:
    """Whether every file of a checkpoint is there as the run with this identity wrote it."""
    try:
        words = _unsealed(path / WORDS)
        same = all(digest(path / name) == words["digests"].get(name) for name in _files(words))
        return same and words.get("run", run) == run and not path.is_symlink()
    except OSError:
        return False


def saved(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    _check_own(folder)
    numbered = (path for path in folder.glob("[0-9]*") if path.name.isdecimal())
    return sorted(numbered, key=lambda path: int(path.name), reverse=True)


def prune(folder: Path, keep: int, *, until: int) -> None:
    """Remove all but the newest `keep` checkpoints up to generation `until`, and what a crash left beside them.

    Later ones could not be used: the run has begun again before them.
    """
    later = [path for path in saved(folder) if int(path.name) > until]
    for path in [*later, *saved(folder)[len(later) + keep :], *leftovers(folder)]:
        remove(path)


def leftovers(folder: Path) -> list[Path]:
    """What a crash left half-written beside the checkpoints."""
    _check_own(folder)
    return list(folder.glob(".*.new"))


def _name(k: int) -> str:
    return f"{k:06d}"


def _files(words: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of a checkpoint beside its words; an earlier version has its history there, too."""
    return (TENSORS,) if LINES in words["digests"] else (TENSORS, HISTORY)


def _check_own(folder: Path) -> None:
    if folder.is_symlink():
        raise RunError(f"{folder} is a link. A run writes only inside its own folder. Put a folder in its place.")


def _unsealed(path: Path) -> dict[str, Any]:
    read = read_table(path)
    try:
        state = read["state"]
        whole = read == sealed(state)
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise DamagedError(f"{path} was cut short or altered: its SHA-256 is not the one it was written with.")
    if not isinstance(state, dict) or not isinstance(state.get("digests"), dict) or type(state.get("k")) is not int:
        raise DamagedError(f"{path.parent} is not what a run writes: {path.name} has no digests or no whole number k.")
    return state


def _tensors(population: Population, name: str) -> dict[str, Tensor]:
    baggage = {
        f"{name}/baggage/{j}/{key}": tensor.clone()  # siblings may have inherited one and the same
        for j, state in enumerate(population.optimizer_states)
        if state is not None
        for key, tensor in state.tensors.items()
    }
    buffers = {f"{name}/buffers/{key}": stacked for key, stacked in population.buffers.items()}
    own = {f"{name}/rows": population.rows, f"{name}/fitness": population.fitness}
    return {key: tensor.contiguous() for key, tensor in {**own, **buffers, **baggage}.items()}


def _words(population: Population) -> dict[str, Any]:
    return {
        "layout": [
            [name, list(shape)] for name, shape in zip(population.genome.names, population.genome.shapes, strict=True)
        ],
        "births": [_birth_words(birth) for birth in population.births],
        "policies": [policy.record() if policy else None for policy in population.policies],
        "baggage": [state.kind if state else None for state in population.optimizer_states],
    }


def _population(
    words: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, genome: Genome, allow: Collection[str]
) -> Population:
    layout = [[parameter, list(shape)] for parameter, shape in zip(genome.names, genome.shapes, strict=True)]
    if words["layout"] != layout:
        raise RunError("the checkpoint belongs to a network with other layers than make_model builds now.")
    births = tuple(map(_birth, words["births"]))
    prefix = f"{name}/buffers/"
    buffers = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    rows, fitness, n = tensors[f"{name}/rows"], tensors[f"{name}/fitness"], len(births)
    if rows.shape != (n, genome.size) or fitness.shape != (n,):
        raise ValueError(f"{name} has {n} births, but tensors of {tuple(rows.shape)} and {tuple(fitness.shape)}")
    if not len(words["policies"]) == len(words["baggage"]) == n:
        raise ValueError(f"{name} has {n} births, but other numbers of policies or baggage")
    like = {key: (buffer.dtype, (n, *buffer.shape)) for key, buffer in genome.read(genome.template)[1].items()}
    if rows.dtype != genome.dtype or like != {key: (each.dtype, tuple(each.shape)) for key, each in buffers.items()}:
        raise ValueError(f"{name} has rows or buffers that the network has not")
    if not fitness.is_floating_point() or fitness.isnan().any():
        raise ValueError(f"{name} has a fitness that is no number")
    return Population(
        genome=genome,
        rows=rows,
        buffers=buffers,
        fitness=fitness.to(torch.float64),
        births=births,
        policies=tuple(Policy.from_record(record, allow=allow) if record else None for record in words["policies"]),
        optimizer_states=tuple(
            _optimizer_state(j, kind, tensors, name, genome) for j, kind in enumerate(words["baggage"])
        ),
    )


def _birth_words(birth: Birth) -> list[Any]:
    plain = [birth.id, list(birth.mates), birth.sigma, list(birth.parents), birth.founder]
    return [*plain, birth.kind, list(birth.weights)] if birth.kind else plain


def _birth(words: Sequence[Any]) -> Birth:
    id_, mates, sigma, parents, founder, *more = words
    kind, weights = more or ("", [])
    known = isinstance(kind, str) and isinstance(weights, list) and len(weights) in (0, len(mates))
    if not known or bool(more) != bool(kind) or not all(map(_is_finite, weights)):
        raise ValueError(f"{shown(words)} is no birth")
    told = isinstance(id_, str) and _ID.fullmatch(id_) and all(isinstance(parent, str) for parent in parents)
    if not told or not all(type(number) is int for number in (*mates, founder)) or not _is_finite(sigma):
        raise ValueError(f"{shown(words)} is no birth")
    return Birth(id_, tuple(mates), sigma, tuple(parents), founder, kind, tuple(weights))


def _is_finite(number: object) -> bool:
    return type(number) is int or (type(number) is float and isfinite(number))


def _optimizer_state(
    j: int, kind: str | None, tensors: Mapping[str, Tensor], name: str, genome: Genome
) -> OptimizerState | None:
    if kind is None:
        return None
    prefix = f"{name}/baggage/{j}/"
    own = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    if not isinstance(kind, str) or not all(_STATE.fullmatch(key) for key in own):
        raise ValueError(f"{shown(kind)} with {shown(list(own))} is no state of an optimizer")
    state = OptimizerState(kind, own)
    _check_sizes(state, genome)
    return state


def _check_sizes(state: OptimizerState, genome: Genome) -> None:
    """Kernels of torch take the sizes of these tensors for granted, and write where there is nothing."""
    for key, tensor in state.of_optimizer.items():
        index, _, name = key.partition("/")
        if int(index) >= len(genome.shapes):
            raise ValueError(f"{key} belongs to a parameter that the network has not")
        if name in _LIKE_PARAMETER and tensor.shape != torch.Size(genome.shapes[int(index)]):
            raise ValueError(f"{key} has the shape {tuple(tensor.shape)}, which is not that of its parameter")
        if name == "step" and tensor.numel() != 1:
            raise ValueError(f"{key} is not one number")
    row, buffers = genome.read(genome.template)
    there = {"place/row": row, **{f"place/buffers/{name}": value for name, value in buffers.items()}}
    place = {key: tensor for key, tensor in state.tensors.items() if key not in state.of_optimizer}
    found = {key: (tensor.dtype, tensor.shape) for key, tensor in place.items()}
    if place and found != {key: (tensor.dtype, tensor.shape) for key, tensor in there.items()}:
        raise ValueError(f"{shown(list(place))} is no place of this network")
