"""manifest.json: what a run is made of, and how one run is told from another."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

from esgd._serialization import respelt
from esgd.errors import RunError
from esgd.run.extension import EXTENDED, is_extended, parts_before, recipe_of
from esgd.run.files import WORDS_LIMIT, read_table

MANIFEST = "manifest.json"
IDENTITY = ("recipe", "seed", "data", "network")
"""What must be the same for a run to be continued. Versions and machine may differ; the manifest remembers them."""
RESUMED = "resumed"
"""The digest of the state that a run began with, if that was the result of another run. It, too, must be the same."""

RULES = "rules"
"""The name of the rules that made the recipe of a run with a budget of time, which is measured and not made again; None
if a recipe was given."""
START = "start"
"""The digest of the network that all individuals of a run are copies of at the beginning, if they are."""


def describe(identity: Mapping[str, Any], *, engine: Any, why: str, origin: str, frozen: Any = None) -> dict[str, Any]:
    """The manifest of a run that begins now; `frozen` describes the parameters that are not trained, if there are any.

    Of an identity whose state is another run's, the recipe of its earlier generations is kept, too.
    """
    return {
        "id": uuid4().hex,
        "origin": origin,
        "recipe": identity["recipe"],
        "seed": identity["seed"],
        "engine": engine,
        "engine_because": why,
        "data": identity["data"],
        "network": identity["network"],
        **({"frozen": frozen} if frozen else {}),
        **{name: identity[name] for name in (RESUMED, EXTENDED, RULES, START) if name in identity},
        "versions": {name: _version(name) for name in ("esgd", "torch", "numpy", "safetensors")},
        "python": platform.python_version(),
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
    }


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
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
        if EXTENDED in read and not is_extended(read[EXTENDED]):
            raise RunError(f"{path} is damaged: {EXTENDED!r} does not say which generations followed which recipe.")
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


def digest(manifest: Mapping[str, Any], k: int = 0) -> str:
    """What tells a run's checkpoints from those of another: the SHA-256 of recipe, seed, data and network.

    The checkpoint of generation k has the recipe that it followed, and where the run was extended, all before that.
    """
    told = {name: manifest.get(name) for name in IDENTITY} | {"recipe": recipe_of(manifest, k)}
    told |= {EXTENDED: before} if (before := parts_before(manifest, k)) else {}
    words = json.dumps(told, sort_keys=True, ensure_ascii=False)
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
        "{}: {!r} in the folder, {!r} now".format(path, *_lines_apart(before, now))
        for name in (*IDENTITY, RESUMED)
        for path, before, now in _walk(name, there.get(name), here.get(name))
        if _without_addresses(before) != _without_addresses(now)
    ]


def _without_addresses(value: Any) -> Any:
    """A text without where objects are in memory, such as a function among the layers of a network."""
    return _ADDRESS.sub("", value) if isinstance(value, str) else value


def _lines_apart(before: Any, now: Any) -> tuple[Any, Any]:
    """Of two texts of several lines, such as the layers of a network, the first lines that differ."""
    if not isinstance(before, str) or not isinstance(now, str) or "\n" not in before + now:
        return before, now
    pairs = zip_longest(before.splitlines(), now.splitlines(), fillvalue="")
    return next(((old.strip(), new.strip()) for old, new in pairs if old.strip() != new.strip()), (before, now))


def changes(manifest: Mapping[str, Any]) -> list[str]:
    """What the last extension of a run has changed in its recipe, such as "generations: 10 → 20"."""
    before = manifest[EXTENDED][-1]["recipe"]
    found = _walk("", before, manifest["recipe"]) if before else ()
    return [f"{path.removeprefix('.')}: {old!r} → {new!r}" for path, old, new in found]


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
