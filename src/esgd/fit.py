"""`fit()`: progress, a run folder and resume around `evolve()`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from esgd._algorithm.initialization import prepare
from esgd._fit.budgeted import budgeted, made_by
from esgd._fit.continuing import as_begun, settled
from esgd._fit.opening import open_run
from esgd._fit.training import Surroundings, Training
from esgd._names.trust import packages
from esgd.budget import Budget
from esgd.callbacks import Watchers
from esgd.errors import RecipeError
from esgd.generation import State
from esgd.population import Population
from esgd.progress import Reporter, check_progress, reporter
from esgd.progress.tracking import Tracked, Tracker, check_trackers, following
from esgd.protocols import Engine, Task
from esgd.recipe import Recipe
from esgd.result import Result
from esgd.run import open_folder
from esgd.sanity import check_is_task
from esgd.stopping import StopRule


def fit(
    task: Task,
    recipe: Recipe | None = None,
    *,
    seed: int,
    budget: Budget | None = None,
    rules: str | None = None,
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
    """Train a population and return the result with its best network.

    `task` is data, loss and fitness. `recipe` has the inputs of Algorithm 1; without one, `esgd.rules.ours` makes it,
    with the work that `Recipe()` would spend. `seed` determines all random numbers but those that a fitness draws
    itself: such a fitness is noisy, and the run says so.

    `budget` is what the run may spend: a time such as "30m", "1h30m" or 1800 seconds, or `esgd.Work(samples=5e8)`.
    Without a recipe, `rules` (by default "ours") make one for this budget. A recipe that is given has its epochs
    changed. With a time, some steps of the network are measured first, and K_s follows the clock. Time in which the run
    is not running does not count.

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

    `stop` is a rule, or a list of rules, that may end the run early: `Patience(3)`, `Target(0.05)` or any function
    of a generation (`esgd.stopping`). Called again with the same rule, a run that it stopped is returned, after its
    fittest network was scored again; without the rule, or with another, it continues. `callbacks` are called when
    the run begins, a generation ends, the run ends or an error occurs (`esgd.callbacks`). Ctrl-C returns the result
    so far, once a generation is finished; with `on_interrupt="raise"`, as suits a loop of several runs, it is
    raised. `Result.stopped` says why a run ended early.

    `origin` is the name by which `esgd resume` finds the task: a built-in, a TOML file or "package.module:task". A run
    folder is data. It can name only our own values, and code of the packages that your recipe and engine come from;
    `allow` adds further packages.
    """
    check_is_task(task)
    given = resume.state if isinstance(resume, Result) else resume
    check_trackers(trackers)
    check_progress(progress)
    watchers = Watchers(stop, callbacks, on_interrupt)
    if extend and run is None:
        raise RecipeError(
            "extend=True needs the folder of the run that is extended: run=…. A result is continued by resume."
        )
    if budget is not None and isinstance(given, State):
        raise RecipeError(
            "budget begins a run of its own, and resume continues another one. To give a run more time: fit(…, "
            "budget=…, run=its folder, extend=True)."
        )
    maker = made_by(recipe, rules)
    recipe, request = budgeted(
        task,
        recipe,
        budget,
        engine,
        rules=rules,
        run=run,
        extend=extend,
        after=_report_seconds if report and run is not None else float,
        allow=allow,
    )
    setup = prepare(task, recipe, seed, given)
    trusted = {*allow, *packages(recipe), *packages(engine)}
    with open_folder(run) as folder:
        setup = as_begun(setup, recipe, folder.manifest())
        opened, state = open_run(
            folder,
            setup,
            recipe,
            request=request,
            given=given,
            before=settled(resume.recipe, setup) if isinstance(resume, Result) and resume.recipe else None,
            extend=extend,
            origin=origin,
            rules=maker,
            trusted=trusted,
        )
        subject = Tracked(id=_id(opened.manifest), name=_name(folder.path, setup.seeds.root), manifest=opened.manifest)
        with (
            reporter(progress, recipe=recipe, past=tuple(state.history) if state else ()) as reports,
            following(trackers, subject, say=reports.say, warn=reports.warn) as followers,
        ):
            training = Training(
                folder,
                opened,
                state,
                setup=setup,
                recipe=recipe,
                around=Surroundings(
                    reports=reports, followers=followers, watchers=watchers, origin=origin, allow=tuple(allow)
                ),
                load=partial(folder.latest, setup.genome, opened.manifest, allow=trusted),
            )
            del state
            training.tell_past()
            try:
                training.train(subject, given)
                training.finish()
                if folder.path is not None and report:
                    _write_report(folder.path, reports)
            except (KeyboardInterrupt, Exception) as error:
                if not training.end_by(error):
                    raise
    reached, why = training.reached()
    result = Result(reached, training.history, folder.path, why, task, recipe, opened.choice.engine)
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


def _report_seconds() -> float:
    """How long the report will take at the end; nothing where it cannot be drawn, which is said then."""
    try:
        from esgd.report.expected import expected_seconds

        return expected_seconds()
    except Exception:  # noqa: BLE001  # as below
        return 0.0


def _write_report(path: Path, reports: Reporter) -> None:
    try:
        from esgd.report import write_run

        reports.say(f"report: {write_run(path)}")
    except Exception as error:  # noqa: BLE001  # whatever cannot be drawn, the run is saved
        reports.warn(f"No report: {error}")
