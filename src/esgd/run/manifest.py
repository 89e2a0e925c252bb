"""manifest.json: what a run is made of, and how one run is told from another."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import uuid4

IDENTITY = ("recipe", "seed", "data", "network")
"""What must be the same for a run to be continued. Versions and machine may differ; the manifest remembers them."""


def describe(
    *, recipe: Mapping[str, Any], seed: int, engine: Any, why: str, data: Any, network: Any, origin: str
) -> dict[str, Any]:
    """The manifest of a run that begins now."""
    return {
        "id": uuid4().hex,
        "origin": origin,
        "recipe": dict(recipe),
        "seed": seed,
        "engine": engine,
        "engine_because": why,
        "data": data,
        "network": network,
        "versions": {name: _version(name) for name in ("esgd", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """How the identity in a folder differs from that of the run at hand, a line each."""
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
