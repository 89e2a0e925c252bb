"""manifest.json: what a run is made of, and how one run is told from another."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

from esgd._serialization import respelt
from esgd.errors import RunError
from esgd.run.files import WORDS_LIMIT, read_table

MANIFEST = "manifest.json"
IDENTITY = ("recipe", "seed", "data", "network")
"""What must be the same for a run to be continued. Versions and machine may differ; the manifest remembers them."""


def describe(identity: Mapping[str, Any], *, engine: Any, why: str, origin: str) -> dict[str, Any]:
    """The manifest of a run that begins now."""
    return {
        "id": uuid4().hex,
        "origin": origin,
        "recipe": identity["recipe"],
        "seed": identity["seed"],
        "engine": engine,
        "engine_because": why,
        "data": identity["data"],
        "network": identity["network"],
        "versions": {name: _version(name) for name in ("esgd", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
    }


_TYPES = {"origin": str, "recipe": dict, "seed": int, "engine": dict, "data": dict, "network": dict}
_SHOWN = {"recipe": dict, "versions": dict, "seed": int}


def read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest in a file, None where there is none; `RunError` names what is wrong with it."""
    advice = "It says which recipe and data the run belongs to. Restore it from a copy, or choose a new folder."
    try:
        read = read_table(path)
        for name in _TYPES:
            if name not in read:
                raise RunError(f"{path} is damaged: it has no {name!r}.")
        _check(read, _TYPES, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{error} {advice}") from error
    return read


def read_shown(path: Path, *, limit: int = WORDS_LIMIT) -> dict[str, Any]:
    """What a page says of a run, which may lack anything; empty where there is no manifest."""
    try:
        read = read_table(path, limit=limit)
    except FileNotFoundError:
        return {}
    _check(read, _SHOWN, path)
    return read


def _check(read: Mapping[str, Any], kinds: Mapping[str, type], path: Path) -> None:
    for name, kind in kinds.items():
        if name in read and (not isinstance(read[name], kind) or isinstance(read[name], bool)):
            raise RunError(f"{path} is damaged: {name!r} is a {type(read[name]).__name__}.")


def digest(manifest: Mapping[str, Any]) -> str:
    """What tells a run's checkpoints from those of another: the SHA-256 of recipe, seed, data and network."""
    words = json.dumps({name: manifest.get(name) for name in IDENTITY}, sort_keys=True, ensure_ascii=False)
    return sha256(words.encode()).hexdigest()


def differences(
    there: Mapping[str, Any],
    here: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    allow: Collection[str] = (),
) -> list[str]:
    """How the identity in a folder differs from that of the run at hand, a line each.

    The recipe of an earlier version is compared as it would be written today: inputs that it did not have are at their
    `defaults`. `allow` has the packages it may name.
    """
    if there.get("recipe") != here.get("recipe"):
        spelt = {name: respelt(value, allow=allow) for name, value in there["recipe"].items()}
        there = {**there, "recipe": {**(defaults or {}), **spelt}}
    return [
        f"{path}: {before!r} in the folder, {now!r} now"
        for name in IDENTITY
        for path, before, now in _walk(name, there.get(name), here.get(name))
    ]


def _walk(path: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _walk(f"{path}.{key}", before.get(key), now.get(key))
    elif before != now:
        yield path, before, now


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
