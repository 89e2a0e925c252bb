"""checkpoint/K/: the state after generation K as tensors (safetensors), words (JSON) and its history. No pickle.

A checkpoint is written into a folder beside, synced and renamed, so it is there or it is not. It knows its own
digests; one that was cut short or altered is recognised and named.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from esgd.errors import RunError
from esgd.generation import State
from esgd.genome import Genome
from esgd.policies import Policy
from esgd.population import Birth, OptimizerState, Population
from esgd.run.files import digest, sync
from esgd.run.history import read_history, spell

TENSORS, WORDS, HISTORY = "tensors.safetensors", "state.json", "history.jsonl"


def save(folder: Path, state: State) -> None:
    """Write `folder/K` for the state after generation K."""
    target, aside = folder / f"{state.k:06d}", folder / f".{state.k:06d}.new"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        tensors = {**_tensors(state.population, "population"), **_tensors(state.archive, "archive")}
        save_file(tensors, aside / TENSORS)
        (aside / HISTORY).write_bytes(b"".join(map(spell, state.history)))
        words = {
            "k": state.k,
            "population": _words(state.population),
            "archive": _words(state.archive),
            "digests": {name: digest(aside / name) for name in (TENSORS, HISTORY)},
        }
        text = json.dumps(words, sort_keys=True, ensure_ascii=False)
        sealed = {"sha256": sha256(text.encode()).hexdigest(), "state": words}
        (aside / WORDS).write_text(json.dumps(sealed, sort_keys=True, ensure_ascii=False), encoding="utf-8")
        for path in (aside / TENSORS, aside / HISTORY, aside / WORDS, aside):
            sync(path)
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
        sync(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def load(path: Path, genome: Genome) -> State:
    """The state in a checkpoint folder; `RunError` names the file that is missing, cut short or altered."""
    words = _unsealed(path / WORDS)
    for name, known in words["digests"].items():
        if not (path / name).is_file():
            raise RunError(f"{path / name} is missing.")
        if digest(path / name) != known:
            raise RunError(f"{path / name} was cut short or altered: its SHA-256 is not the one that {WORDS} knows.")
    try:
        # load_file maps the file into memory: what happens to the file later must not happen to the population
        tensors = {name: tensor.clone() for name, tensor in load_file(path / TENSORS).items()}
    except SafetensorError as error:
        raise RunError(f"{path / TENSORS} cannot be read: {error}.") from error
    population = _population(words["population"], tensors, "population", genome)
    archive = _population(words["archive"], tensors, "archive", genome)
    return State(words["k"], population, archive, tuple(read_history(path / HISTORY)))


def saved(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    return sorted((path for path in folder.glob("[0-9]*") if path.name.isdigit()), reverse=True)


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and what a crash left beside them."""
    for path in [*saved(folder)[keep:], *folder.glob(".*.new")]:
        shutil.rmtree(path, ignore_errors=True)


def _unsealed(path: Path) -> dict[str, Any]:
    try:
        sealed = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(sealed["state"], sort_keys=True, ensure_ascii=False)
        if sha256(text.encode()).hexdigest() == sealed["sha256"]:
            return sealed["state"]  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise RunError(f"{path} is missing.") from None
    except (ValueError, KeyError, TypeError):
        pass  # damaged: said below
    raise RunError(f"{path} was cut short or altered: its SHA-256 is not the one it was written with.")


def _tensors(population: Population, name: str) -> dict[str, Tensor]:
    baggage = {
        f"{name}/baggage/{j}/{key}": tensor.clone()  # siblings may have inherited one and the same
        for j, state in enumerate(population.baggage)
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
        "births": [[b.id, list(b.mates), b.sigma, list(b.parents), b.founder] for b in population.births],
        "policies": [policy.record() if policy else None for policy in population.policies],
        "baggage": [state.kind if state else None for state in population.baggage],
    }


def _population(words: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, genome: Genome) -> Population:
    layout = [[parameter, list(shape)] for parameter, shape in zip(genome.names, genome.shapes, strict=True)]
    if words["layout"] != layout:
        raise RunError("the checkpoint belongs to a network with other layers than make_model builds now.")
    births = tuple(
        Birth(id_, tuple(mates), sigma, tuple(parents), founder)
        for id_, mates, sigma, parents, founder in words["births"]
    )
    prefix = f"{name}/buffers/"
    return Population(
        genome=genome,
        rows=tensors[f"{name}/rows"],
        buffers={key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)},
        fitness=tensors[f"{name}/fitness"].to(torch.float64),
        births=births,
        policies=tuple(Policy.from_record(record) if record else None for record in words["policies"]),
        baggage=tuple(_baggage(j, kind, tensors, name) for j, kind in enumerate(words["baggage"])),
    )


def _baggage(j: int, kind: str | None, tensors: Mapping[str, Tensor], name: str) -> OptimizerState | None:
    if kind is None:
        return None
    prefix = f"{name}/baggage/{j}/"
    return OptimizerState(
        kind, {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    )
