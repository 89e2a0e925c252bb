"""`fit()`: progress, a run folder and resume around `evolve()`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from esgd._continuing import check_longer, marked, resumed
from esgd._finding import told
from esgd._initialization import prepare
from esgd._last_state import LastState
from esgd._serialization import decode, encode
from esgd._trust import package_named, packages
from esgd.algorithm import generations
from esgd.callbacks import Watchers
from esgd.engines import Ray
from esgd.engines.auto import EngineChoice
from esgd.engines.choose import bits, requested, settle
from esgd.engines.computing import Computing
from esgd.errors import RecipeError, RunError, StopRun
from esgd.generation import Growing, State
from esgd.population import Population
from esgd.progress import Reporter, check_progress, reporter
from esgd.progress.tracking import Tracked, Tracker, check_trackers, following
from esgd.protocols import Engine, Setup, Task
from esgd.randomness import in_turns
from esgd.recipe import Recipe
from esgd.result import Result
from esgd.rules import ours
from esgd.run import open_folder
from esgd.run.manifest import describe, digest
from esgd.run.model import describe_frozen
from esgd.run.stop import Stop
from esgd.sanity import look
from esgd.stopping import StopRule


def fit(
    task: Task,
    recipe: Recipe | None = None,
    *,
    seed: int,
    run: str | Path | None = None,
    extend: bool = False,
    resume: Result | State | Population | None = None,
    engine: str | Engine = "auto",
    progress: bool | str = True,
    trackers: Sequence[Tracker] = (),
    stop: StopRule | Iterable[StopRule] | None = None,
    callbacks: Sequence[object] = (),
    on_interrupt: str = "return",
    origin: str = "",
    report: bool = True,
    allow: Collection[str] = (),
) -> Result:
    """Train a population for all generations of the recipe and return the result with its best network.

    With `run`, every generation is saved in that folder. Called again with the same folder, recipe, seed and data, the
    run continues where it stopped, and the result is bit-identical to that of a run without an interruption. A folder
    of another run is refused. At the end `report.html` is written there, unless `report` is False.

    With `extend`, a run in the folder continues where it has ended with another recipe, which has more generations all
    in all: `recipe.extended(20)`, or other rules. Seed, data and network must be its own. `resume` begins with what
    another run has given: its result, or the state of a generation, as generation k + 1; or a population, as generation
    1. Either way no elite gets worse than it was, as long as the fitness is the same.

    `progress` is True (bars on a terminal, a figure in a notebook, plain lines in a file), False for nothing, or one of
    "bars", "plain", "json". `trackers` receive every generation; see `esgd.integrations`. If one fails during the run,
    there is a warning and the run continues.

    `stop` is a rule, or a list of rules, that may end the run early: `Patience(3)`, `Target(0.05)` or any function of
    a generation (`esgd.stopping`). Called again with the same rule, a run that it stopped is returned as it is; without
    the rule, or with another, it continues. `callbacks` are called when the run begins, a generation ends, the run ends
    or an error occurs (`esgd.callbacks`). Ctrl-C returns the result so far, once a generation is finished; with
    `on_interrupt="raise"`, as suits a loop of several runs, it is raised. `Result.stopped` says why a run ended early.

    `origin` is the name by which `esgd resume` finds the task: a built-in, a TOML file or "package.module:task". A run
    folder is data. It can name only our own values, and code of the packages that your recipe and engine come from;
    `allow` adds further packages.
    """
    recipe = recipe or ours(task)
    given = resume.state if isinstance(resume, Result) else resume
    setup = prepare(task, recipe, seed, given)
    seed = setup.seeds.root
    check_trackers(trackers)
    check_progress(progress)
    watchers = Watchers(stop, callbacks, on_interrupt)
    request = requested(engine)  # a wrong engine is refused before a folder is made
    if extend and run is None:
        raise RecipeError(
            "extend=True needs the folder of the run that is extended: run=…. A result is continued by resume."
        )
    trusted = {*allow, *packages(recipe), *packages(engine)}
    with open_folder(run) as folder:
        this = _identity(recipe, seed, setup) | resumed(given, resume.recipe if isinstance(resume, Result) else None)
        known, other = folder.begun(this, defaults=Recipe().described(), allow=trusted, extend=extend)
        choice = _choice(request, known, setup, recipe, trusted)
        manifest = known or folder.claim(
            describe(
                this,
                engine=encode(choice.engine),
                why=choice.why,
                origin=origin,
                frozen=describe_frozen(setup.genome.template),
            )
        )
        state, damaged = folder.latest(setup.genome, manifest, allow=trusted)
        if other and folder.path is not None:
            check_longer(recipe, state, folder.path)
            manifest = folder.extend(manifest, this["recipe"], after=state.k if state else 0)
        if state is None and isinstance(given, State):
            folder.adopt(given, run=digest(manifest, given.k))
            state = given
        state = marked(state, manifest, given)
        done = state.k if state else 0
        history = list(state.history) if state else []
        subject = Tracked(id=_id(manifest), name=_name(folder.path, seed), manifest=manifest)
        last = LastState(partial(folder.latest, setup.genome, manifest, allow=trusted))
        folder.note_stop(Stop(watchers.spelt))
        with (
            reporter(progress, recipe=recipe, past=tuple(history)) as reports,
            following(trackers, subject, say=reports.say, warn=reports.warn) as followers,
        ):
            for line in history:
                followers.write(line)
            for problem in damaged:
                reports.say(f"{problem} Continuing from generation {done}.")
            if state:
                where = "" if folder.path is None else f"{folder.path}: "
                reports.say(f"{where}{done} of {recipe.stage_count} generations are already done.")
            try:
                why = watchers.begin(subject, state if done < recipe.stage_count else None)
                if done < recipe.stage_count and not why:
                    if choice.why:
                        reports.say(choice.why)
                    concerns = look(setup) if state is None else ()
                    for note in concerns:
                        reports.say(f"note: {note}")
                    with closing(
                        in_turns(generations(setup, recipe, choice.engine, state or given, reports.tick))
                    ) as to_come:
                        state = given = None  # while a generation is made, the one before is not kept in memory
                        for generation in to_come:
                            history.append(folder.save(generation.state, run=digest(manifest, generation.k)))
                            done = generation.k
                            last.keep(generation.state)
                            if generation.ranges:
                                reports.say(told(generation.ranges))
                            said = tuple(note for note in generation.notes if note not in concerns)
                            reports.generation(replace(generation, notes=said))
                            followers.write(history[-1])
                            why = watchers.generation(generation)
                            state = generation.state if why or done == recipe.stage_count else None
                            del generation
                            if why:
                                break
                if state is None:
                    raise StopRun(f"{why}. No generation is finished, so there is no result.")
                if why and done < recipe.stage_count:
                    folder.note_stop(Stop(watchers.spelt, done, why))
                    reports.say(_stopped(why, f"{done} of {recipe.stage_count}", folder.path, origin, allow))
                for mended in folder.finish(state, manifest):
                    reports.say(mended)
                followers.finish(state.archive.best.module())
                if folder.path is not None and report:
                    _write_report(folder.path, reports)
            except (KeyboardInterrupt, Exception) as error:
                why, farewell = watchers.ended_by(error), _farewell(done, folder.path, origin, allow)
                state = last.again() if why else None
                if state is not None or isinstance(error, KeyboardInterrupt):
                    reports.say(farewell)
                elif done and folder.path is not None:
                    error.add_note(farewell)
                if state is None:
                    raise
                history = list(state.history)
    stopped = why if state.k < recipe.stage_count else ""
    state = replace(state, history=Growing(history))
    result = Result(state, history, folder.path, stopped, task, recipe, choice.engine)
    watchers.end(result)
    return result


def _id(manifest: Mapping[str, Any]) -> str:
    """The id that trackers know the run by. They put it into file names and queries, so an id that is not ours is not
    passed on: such a run gets the hash of its manifest."""
    known = str(manifest.get("id"))
    own = re.fullmatch(r"[0-9a-f]{32}", known)
    return known if own else sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:32]


def _name(path: Path | None, seed: int) -> str:
    return path.resolve().name if path is not None else f"seed-{seed}"


def _choice(
    request: Engine | Computing,
    manifest: Mapping[str, Any] | None,
    setup: Setup,
    recipe: Recipe,
    allow: Collection[str],
) -> EngineChoice:
    """The engine to use; a run that chose its engine itself keeps it."""
    if manifest is not None and isinstance(request, Computing):
        began = _engine_of(manifest, allow)
        if isinstance(began, Ray) and began.address not in (None, "auto"):
            raise RunError(
                f"this run computed on the Ray cluster at {began.address!r}. To join a cluster is to trust it, so an "
                f"address that is read from a folder is not followed. Give it yourself: --engine "
                f"ray:address={began.address}, or in Python engine=Ray(address=…)."
            )
        return EngineChoice(began, "")
    choice = settle(request, setup, recipe.load)
    if manifest is not None and encode(choice.engine) != manifest["engine"]:
        began = _engine_of(manifest, allow)
        same = (
            "The results are bit-identical."
            if bits(choice.engine) == bits(began)
            else "Results may differ in the last bits."
        )
        return replace(choice, why=f"engine: {choice.engine}; this run started with {began}. {same}")
    return choice


def _engine_of(manifest: Mapping[str, Any], allow: Collection[str]) -> Engine:
    """The engine that a manifest names."""
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


def _farewell(done: int, path: Path | None, origin: str, allow: Collection[str]) -> str:
    if path is None:
        return "Stopped. Nothing was saved, because no run folder was given (run=…)."
    how = _resume(path, origin, allow) if origin else "run the same program again"
    return f"Stopped. {done} generations are saved in {path}. To continue: {how}"


def _stopped(why: str, k: str, path: Path | None, origin: str, allow: Collection[str]) -> str:
    """What is said of a run that a rule or a callback has stopped: it is left out to continue past it."""
    if path is None:
        return f"Stopped after generation {k}: {why}."
    how = f"{_resume(path, origin, allow)} --stop none" if origin else "call fit again without what stopped it"
    return f"Stopped after generation {k}: {why}. It is saved in {path}. To continue: {how}"


def _resume(path: Path, origin: str, allow: Collection[str]) -> str:
    allowed = "".join(f" --allow-code {package}" for package in sorted({*allow, *_package_of(origin)}))
    return f"esgd resume {path}{allowed}"


def _package_of(origin: str) -> list[str]:
    return [package_named(origin)] if ":" in origin and not Path(origin).is_file() else []


def _write_report(path: Path, reports: Reporter) -> None:
    try:
        from esgd.report import write_run

        reports.say(f"report: {write_run(path)}")
    except Exception as error:  # noqa: BLE001  # whatever cannot be drawn, the run is saved
        reports.warn(f"No report: {error}")


def _identity(recipe: Recipe, seed: int, setup: Setup) -> dict[str, Any]:
    """What distinguishes a run from all others."""
    genome = setup.genome
    shapes = {name: list(shape) for name, shape in zip(genome.names, genome.shapes, strict=True)}
    return {
        "recipe": recipe.described(),
        "seed": seed,
        "data": setup.task.describe(),
        "network": {"layers": repr(genome.template), "parameters": shapes},
    }
