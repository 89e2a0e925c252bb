"""How a run is opened: which run a folder holds, whether it continues, and which engine it has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from esgd._algorithm.initialization import Origin
from esgd._fit.continuing import check_longer, marked, resumed, settled
from esgd._serialization import decode, encode
from esgd.engines import Ray
from esgd.engines.auto import EngineChoice
from esgd.engines.choose import bits, settle
from esgd.engines.computing import Computing
from esgd.errors import RecipeError, RunError
from esgd.generation import State
from esgd.protocols import CopiesOne, Engine, Setup
from esgd.recipe import Recipe
from esgd.run.folder import NoFolder, RunFolder
from esgd.run.manifest import RULES, START, describe, digest
from esgd.run.model import check_frozen, check_start, describe_frozen, describe_network, describe_start

UNWRITTEN = "not writable:"
"""How the kind of an engine begins that cannot be written down."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run that can begin or continue: its manifest, its engine, and what was found damaged in its folder."""

    manifest: Mapping[str, Any]
    choice: EngineChoice
    damaged: tuple[str, ...]


def open_run(
    folder: RunFolder | NoFolder,
    setup: Setup,
    recipe: Recipe,
    *,
    request: Engine | Computing | EngineChoice,
    given: Origin,
    before: Recipe | None,
    extend: bool,
    origin: str,
    rules: str | None,
    trusted: Collection[str],
) -> tuple[Opened, State | None]:
    """Claim a folder that is empty, or take up the run that it holds; another run is refused.

    Returns the state to continue from, too, None to begin. `given` is what the run begins with, and `before` the recipe
    of the run which that comes from. `rules` have made the recipe, None if it was given.
    """
    this = _identity(recipe, setup) | resumed(given, before) | _start(setup, given)
    this |= {RULES: rules} if recipe.clock else {}
    known, other = folder.begun(this, defaults=Recipe().described(), allow=trusted, extend=extend)
    frozen = describe_frozen(setup.genome.template)
    if known and not folder.has_saved and known.get("frozen") != frozen:
        known = None  # nothing was trained yet, so it may be another network
    if known and folder.path is not None:
        check_frozen(known, setup.genome.template, folder.path)
        check_start(known, this.get(START), folder.path)
    choice = _choice(request, known, setup, recipe, trusted, has_saved=folder.has_saved)
    engine = _written(choice.engine)
    manifest = known or folder.claim(describe(this, engine=engine, why=choice.why, origin=origin, frozen=frozen))
    if known and not folder.has_saved and known["engine"] != engine:  # which has computed nothing yet
        choice = replace(choice, why="")
        manifest = folder.claim({**known, "engine": engine, "engine_because": ""})
    state, damaged = folder.latest(setup.genome, manifest, allow=trusted, given=given is not None)
    if other and folder.path is not None:
        check_longer(recipe, state, folder.path)
        manifest = folder.extend(manifest, this["recipe"], after=state.k if state else 0)
    if state is None and isinstance(given, State):
        folder.adopt(given, run=digest(manifest, given.k))
        state = given
    opened = Opened(manifest=manifest, choice=choice, damaged=tuple(damaged))
    return opened, marked(state, manifest)


def _identity(recipe: Recipe, setup: Setup) -> dict[str, Any]:
    """What distinguishes a run from all others; its recipe says which recombination was chosen."""
    return {
        "recipe": settled(recipe, setup).described(),
        "seed": setup.seeds.root,
        "data": setup.task.describe(),
        "network": describe_network(setup.genome),
    }


def _start(setup: Setup, given: Origin) -> dict[str, Any]:
    """Which network all individuals are copies of at the beginning, if the task has but one, such as a pretrained one.

    Of networks that are initialised, the seed says it. Their digest could differ on another machine.
    """
    one = given is None and isinstance(setup.task.model, CopiesOne)
    return {START: describe_start(setup.genome.template)} if one else {}


def _written(engine: Engine) -> Any:
    """An engine for the manifest; one of the caller's own that has no importable name is only named."""
    try:
        return encode(engine)
    except RecipeError:
        return {"kind": f"{UNWRITTEN} {type(engine).__qualname__}"}


def _choice(
    request: Engine | Computing | EngineChoice,
    manifest: Mapping[str, Any] | None,
    setup: Setup,
    recipe: Recipe,
    allow: Collection[str],
    *,
    has_saved: bool,
) -> EngineChoice:
    """The engine to use; a run that chose its engine itself keeps it. One that has saved nothing has another if its
    own cannot be had."""
    if manifest is not None and isinstance(request, Computing):
        try:
            return EngineChoice(_kept(manifest, allow), "")
        except RunError:
            if has_saved:
                raise
    choice = request if isinstance(request, EngineChoice) else settle(request, setup, recipe.load)
    if manifest is not None and has_saved and _written(choice.engine) != manifest["engine"]:
        if _is_unwritten(manifest):
            why = (
                f"engine: {choice.engine}; this run started with one of your own. Results may differ in the last bits."
            )
            return replace(choice, why=why)
        began = _engine_of(manifest, allow)
        same = (
            "The results are bit-identical."
            if bits(choice.engine) == bits(began)
            else "Results may differ in the last bits."
        )
        return replace(choice, why=f"engine: {choice.engine}; this run started with {began}. {same}")
    return choice


def _kept(manifest: Mapping[str, Any], allow: Collection[str]) -> Engine:
    """The engine that a run began with."""
    began = _engine_of(manifest, allow)
    if isinstance(began, Ray) and began.address not in (None, "auto"):
        raise RunError(
            f"this run computed on the Ray cluster at {began.address!r}. To join a cluster is to trust it, so an "
            f"address that is read from a folder is not followed. Give it yourself: --engine "
            f"ray:address={began.address}, or in Python engine=Ray(address=…)."
        )
    return began


def _is_unwritten(manifest: Mapping[str, Any]) -> bool:
    return str(manifest["engine"].get("kind", "")).startswith(UNWRITTEN)


def _engine_of(manifest: Mapping[str, Any], allow: Collection[str]) -> Engine:
    """The engine that a manifest names."""
    if _is_unwritten(manifest):
        raise RunError(
            f"this run started with an engine of your own, {manifest['engine']['kind']!r}, which a manifest cannot "
            f"name. Give the engine again, or another one, such as 'loop'."
        )
    try:
        engine = decode(manifest["engine"], allow=allow)
    except RecipeError as error:
        raise RunError(f"'engine' in manifest.json: {error} Or give the engine yourself, such as 'loop'.") from error
    if not isinstance(engine, Engine) or isinstance(engine, type):
        raise RunError(
            f"'engine' in manifest.json is {manifest['engine']!r}, which is not an engine. Name one yourself, such as "
            f"'loop'."
        )
    return engine
