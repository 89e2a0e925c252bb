"""From what a user writes as `engine=` to an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from esgd._serialization import read_value
from esgd.engines.auto import EngineChoice, default_device, ruled, suited_loop
from esgd.engines.batched import Vmap
from esgd.engines.cluster import Ray
from esgd.engines.computing import Computing
from esgd.engines.inner import for_a_worker
from esgd.engines.processes import Pool
from esgd.engines.sequential import Loop
from esgd.errors import RecipeError, did_you_mean, shown
from esgd.protocols import Engine, Load, Setup

KINDS: dict[str, type[Any]] = {"loop": Loop, "pool": Pool, "ray": Ray, "vmap": Vmap}
COMPOSED = {
    "pool": ("workers",),
    "ray": ("workers", "cpus_per_worker", "gpus_per_worker", "address", "patience", "slow"),
}
"""Engines with an inner one, and which settings are their own."""


def choose(engine: str | Engine, setup: Setup, load: Load | None = None) -> EngineChoice:
    """The engine that was passed, or the one behind a name.

    A name may be followed by settings: "vmap:chunk=32,precision=bf16", "pool:workers=4,inner=vmap", "auto:device=cuda".
    Without a load, "auto" is the plain engine.
    """
    return settle(requested(engine), setup, load)


def requested(engine: str | Engine) -> Engine | Computing:
    """What was asked for, checked: an engine, or for "auto" how it is to compute."""
    if isinstance(engine, Engine) and not isinstance(engine, type):
        return engine
    if not isinstance(engine, str):
        raise RecipeError(
            f"engine={shown(engine)} is not an engine. Use 'auto', 'loop', 'vmap', 'pool', 'ray', or a value such as "
            f"Pool(inner=Vmap(chunk=32), workers=4)."
        )
    name, _, text = engine.partition(":")
    if name not in ("auto", *KINDS):
        raise RecipeError(f"engine={shown(engine)} is not known. {did_you_mean(name, ('auto', *KINDS))}")
    settings = _settings(engine, text)
    if name != "auto":
        return _built(engine, name, settings)
    computing: Computing = _made(engine, Computing, {"device": default_device(), **settings})
    for setting in ("threads", "compile", "channels_last", "onednn"):
        if setting in settings:
            raise RecipeError(f"engine={engine!r}: auto chooses {setting!r} itself. Name an engine to set it.")
    return computing


def settle(request: Engine | Computing, setup: Setup, load: Load | None) -> EngineChoice:
    """The engine that was requested, or for "auto" the one that the rule says."""
    if not isinstance(request, Computing):
        return EngineChoice(request, "")
    if load is None:
        return EngineChoice(suited_loop(setup.genome.size, request), "")
    return ruled(setup, load, request)


def in_this_process(engine: Engine) -> Any:
    """What one worker of an engine does, in this process: it starts at once, and is the same up to rounding. Steps in
    float32 are not compiled; those in bfloat16 round too differently. An engine of the user's own stays.

    >>> in_this_process(Pool(inner=Vmap(chunk=8, compile=True), workers=2)) == Vmap(chunk=8, threads=1)
    True
    >>> in_this_process(Loop(compile=True, precision="bf16")).compile
    True
    """
    one: Any = for_a_worker(engine.inner) if isinstance(engine, Pool | Ray) else engine
    return replace(one, compile=False) if isinstance(one, Loop | Vmap) and one.precision == "float32" else one


def bits(engine: Engine) -> Any:
    """What the last bits of a result depend on: not on how many workers there are, nor on where they are.

    >>> bits(Pool(workers=2)) == bits(Ray(workers=9, address="auto")) == bits(Loop(threads=1))
    True
    """
    match engine:
        case Pool():
            return for_a_worker(engine.inner), engine.inner.device
        case Ray():
            return for_a_worker(engine.inner), "cuda" if engine.gpus_per_worker else engine.inner.device
        case Loop() | Vmap():
            return engine, engine.device
        case _:
            return engine


def _settings(engine: str, text: str) -> dict[str, Any]:
    """NAME=VALUE, separated by commas; values are TOML, or plain words."""
    settings = dict[str, Any]()
    for assignment in filter(None, text.split(",")):
        name, equals, value = assignment.partition("=")
        if not equals:
            raise RecipeError(
                f"engine={shown(engine)}: {shown(assignment)} has no value. Write NAME=VALUE, as in pool:workers=4."
            )
        settings[name.strip()] = read_value(value.strip())
        if not isinstance(settings[name.strip()], bool | int | float | str):
            raise RecipeError(
                f"engine={shown(engine)}: {shown(assignment)} is not a setting. Write a number, a word, true or false."
            )
    return settings


def _built(engine: str, name: str, settings: dict[str, Any]) -> Engine:
    """An engine by name; what a pool or Ray does not know itself goes to its inner engine."""
    if name not in COMPOSED:
        return _made(engine, KINDS[name], settings)  # type: ignore[no-any-return]
    own = {key: settings.pop(key) for key in COMPOSED[name] if key in settings}
    inner = settings.pop("inner", "loop")
    if inner not in ("loop", "vmap"):
        hint = did_you_mean(str(inner), ("loop", "vmap"))
        raise RecipeError(f"engine={shown(engine)}: inner={shown(inner)} is not known. {hint}")
    made = _made(engine, KINDS[inner], settings, also=("inner", *COMPOSED[name]))
    return _made(engine, KINDS[name], {"inner": made, **own})  # type: ignore[no-any-return]


def _made(engine: str, kind: type[Any], settings: dict[str, Any], also: tuple[str, ...] = ()) -> Any:
    known = (*kind.__dataclass_fields__, *also)
    for name in settings:
        if name not in known:
            raise RecipeError(f"engine={shown(engine)}: there is no setting {shown(name)}. {did_you_mean(name, known)}")
    return kind(**settings)
