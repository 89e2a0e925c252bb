"""`esgd`: run, compare, resume, report, explain, list.

Exit codes: 0 all is well; 2 the input is wrong, and the message says what to do; 3 a run folder cannot be read, written
or continued; 130 interrupted, and the message says how to go on; 1 a defect of ours. Results go to standard output,
progress and errors to standard error.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from esgd import report
from esgd.cli.explain import Gpus, cost, in_symbols
from esgd.cli.inventory import inventory
from esgd.cli.overrides import overridden
from esgd.cli.scaling import Workers
from esgd.cli.show import show_comparison, show_costs, show_inventory, show_result
from esgd.data import KNOWN, download
from esgd.errors import EsgdError, MissingDataError, MissingExtraError, RunError
from esgd.fit import fit
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.run import RunFolder
from esgd.spelling import encode
from esgd.studies import Study, begin, compare, find_study, founded

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train a population of networks by Evolutionary Stochastic Gradient Descent.",
    epilog="WHAT is a built-in task (see `esgd list`), a TOML file, or 'package.module:task'.",
)

What = Annotated[str, typer.Argument(help="a built-in task, a TOML file, or 'package.module:task'", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="change the recipe, e.g. population=32 or mutation.sigma=0.02"),
]
Seed = Annotated[int, typer.Option(help="everything random is derived from it")]
EngineName = Annotated[
    str,
    typer.Option("--engine", help="where to compute: auto, loop, vmap, pool, ray, or e.g. pool:workers=4,inner=vmap"),
]
ScaleName = Annotated[
    str | None, typer.Option("--scale", help="of the paper's experiments: mini (two cores, minutes) or paper")
]
Data = Annotated[
    Path | None, typer.Option("--data", help="the folder with the data sets [default: $ESGD_DATA, or a cache folder]")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object instead of tables")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Options that stand before the command; `main` looks at --debug itself."""


@app.command()
def run(
    what: What,
    seed: Seed = 0,
    folder: Annotated[Path | None, typer.Option("--run", help="the run's folder [default: runs/WHAT-SEED]")] = None,
    sets: Sets = None,
    scale: ScaleName = None,
    data: Data = None,
    engine: EngineName = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one population; an existing folder of the same run is continued."""
    study = _study(what, sets, scale, data)
    folder = folder or Path("runs") / f"{_plain(study.name)}-{seed}"
    origin = str(Path(what).resolve()) if Path(what).is_file() else study.name if ":" not in what else what
    _train(study, study.recipe, seed, folder, origin, engine=engine, as_json=as_json, quiet=quiet)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder")],
    data: Data = None,
    engine: EngineName = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped, exactly where it was; by itself, with the engine it had."""
    manifest = RunFolder(folder).manifest()
    if manifest is None:
        raise RunError(f"{str(folder)!r} is not the folder of a run: it has no manifest.json. Check the path.")
    if not manifest["origin"]:
        raise RunError(
            f"{str(folder)!r} was begun from Python, so only Python knows its task. Call esgd.fit(…, "
            f"run={str(folder)!r}) again with the same arguments: it goes on by itself."
        )
    study, seed = find_study(manifest["origin"], data=data), manifest["seed"]
    recipe = Recipe.from_dict(manifest["recipe"])
    _train(study, recipe, seed, folder, manifest["origin"], engine=engine, as_json=as_json, quiet=quiet)


def _train(
    study: Study,
    recipe: Recipe,
    seed: int,
    folder: Path,
    origin: str,
    *,
    engine: str = "auto",
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a population, and beside its folder the network that it begins with, if the study has one."""
    task, first = study.task(seed), folder.with_name(f"{folder.name}-{BASELINE}")
    begun = begin(study, task, seed=seed, folder=first, engine=engine, progress=not quiet)
    recipe = founded(recipe, begun.model if begun else None)
    result = fit(task, recipe, seed=seed, run=folder, engine=engine, progress=not quiet, origin=origin)
    _print(as_json, _summary(folder, result), show_result)


@app.command("compare")
def compare_(
    what: What,
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds")] = 1,
    first_seed: Annotated[int, typer.Option(help="the first of them")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="the folder for runs and report [default: runs/compare-WHAT]")
    ] = None,
    sets: Sets = None,
    scale: ScaleName = None,
    data: Data = None,
    engine: EngineName = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The paper's comparison: single baseline, population baseline, ESGD without evolution, ESGD."""
    study = _study(what, sets, scale, data)
    out = out or Path("runs") / f"compare-{_plain(study.name)}"
    chosen = range(first_seed, first_seed + seeds)
    comparison, histories = compare(study, seeds=chosen, out=out, engine=engine, progress=not quiet)
    _print(as_json, comparison, show_comparison)
    try:
        made_with = RunFolder(out / f"seed-{first_seed}" / "esgd").manifest()
        page = report.write_comparison(comparison, histories, out, manifest=made_with)
        print(f"report: {page}", file=sys.stderr)
    except MissingExtraError as error:
        print(f"No report: {error}", file=sys.stderr)


@app.command("report")
def report_(folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders")]) -> None:
    """Write the report of finished or unfinished runs anew."""
    for folder in folders:
        print(report.write_run(folder))


@app.command()
def explain(
    what: What,
    sets: Sets = None,
    scale: ScaleName = None,
    data: Data = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="what it would cost on so many GPUs, too")] = None,
    tflops: Annotated[float, typer.Option(min=0.001, help="what one of them does in float32 matrix products")] = 15.0,
    workers: Annotated[int | None, typer.Option(min=1, help="what a generation takes on so many workers, too")] = None,
    per_node: Annotated[int, typer.Option(min=1, help="of them on a node")] = 16,
    gigabits: Annotated[float, typer.Option(min=0.001, help="a second, what the driver's network carries")] = 10.0,
    as_json: Json = False,
) -> None:
    """The recipe in the paper's notation, and what it will cost here."""
    study = _study(what, sets, scale, data)
    try:
        task, share = study.task(0), 1.0
    except MissingDataError:
        if study.rehearsal is None:
            raise
        task, share = study.rehearsal.task(), study.rehearsal.share
        print(f"Measured on {study.rehearsal.about}.", file=sys.stderr)
    costs = cost(
        task,
        study.recipe,
        gpus=Gpus(gpus, tflops) if gpus else None,
        workers=Workers(workers, per_node=per_node, gigabits=gigabits) if workers else None,
        share=share,
    )
    if study.baseline:
        costs["seconds_before"] = cost(task, study.baseline, share=share)["seconds"]
    explained = {"task": study.name, "recipe": study.recipe.described(), "symbols": in_symbols(study.recipe)}
    _print(as_json, {**explained, "cost": costs}, show_costs)


@app.command("data")
def data_(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(KNOWN)}")],
    folder: Data = None,
) -> None:
    """Download a data set, with checksum; what was interrupted goes on."""
    print(download(name, folder))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """What is built in: tasks, species, operators, schedules, engines."""
    _print(as_json, inventory(), show_inventory)


def main() -> None:
    """Run the command line; errors are shown without a traceback unless --debug is given."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # μ on a terminal without it is not worth a crash
    try:
        app(args=[argument for argument in sys.argv[1:] if argument != "--debug"])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has had enough
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        _say_error(error)
        sys.exit(3 if isinstance(error, RunError) else 2 if isinstance(error, EsgdError) else 1)


def _say_error(error: Exception) -> None:
    """An error of ours speaks for itself; any other, most often in a user's task, is named with its place."""
    text = str(error)
    if not isinstance(error, EsgdError):
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno}). --debug shows the traceback."
    Console(stderr=True).print(f"error: {text}", style="red", highlight=False, soft_wrap=True, markup=False)


def _plain(name: str) -> str:
    """A name that is safe as a folder's."""
    return re.sub(r"[^\w-]+", "-", name).strip("-") or "run"


def _study(what: str, sets: list[str] | None, scale: str | None, data: Path | None) -> Study:
    return overridden(find_study(what, scale=scale, data=data), sets or [])


def _summary(folder: Path, result: Any) -> dict[str, Any]:
    last = result.history[-1]
    held = sum(line["guarantee"] == "held" for line in result.history)
    return {
        "run": str(folder),
        "fitness": result.fitness,
        "test": result.test,
        "generations": len(result.history),
        "guarantee_held": held,
        "leader": last["leader"],
        "parameters": result.population.genome.size,
        "notes": [note["text"] for line in result.history for note in line["notes"]],
    }


def _print(as_json: bool, value: dict[str, Any], show: Any) -> None:
    if as_json:
        print(json.dumps(encode(value), indent=2, ensure_ascii=False))
    else:
        show(value, Console())
