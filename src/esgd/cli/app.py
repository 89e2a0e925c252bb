"""`esgd`: run, resume, verify, compare, report, watch, export, explain, data, list.

Results go to standard output, progress and errors to standard error. A command imports what it needs when its
arguments are known to be right, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import json
import re
import sys
import webbrowser
from collections.abc import Callable
from functools import partial
from os.path import lexists
from pathlib import Path
from typing import Annotated

import typer

from esgd._names.entry_points import DATASETS, check_dataset, offered
from esgd._names.study_names import OWN_RECIPE, check_what
from esgd._names.trust import package_named
from esgd.budget import seconds_in
from esgd.cli.options import (
    PORT,
    RULES,
    AllowCode,
    BudgetOf,
    Contest,
    Data,
    EngineName,
    Json,
    Progress,
    Quiet,
    Rules,
    RunFolder,
    RunFolders,
    ScaleName,
    Seed,
    Sets,
    StopAt,
    Track,
    What,
    Work,
    check_names,
    path_of,
    progress_of,
)
from esgd.cli.starting import importing
from esgd.errors import MissingExtraError, RecipeError, RunError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train a population of networks by Evolutionary Stochastic Gradient Descent.",
    epilog="WHAT is the name of a study (see `esgd list`), a TOML file, or 'package.module:task'.",
)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
) -> None:
    """Options before the command; `main` reads --debug itself."""


@app.command()
def run(
    what: What,
    seed: Seed = 0,
    folder: Annotated[
        Path | None,
        typer.Option("--run", parser=path_of, metavar="PATH", help="the run's folder [default: runs/WHAT-SEED]"),
    ] = None,
    sets: Sets = None,
    rules: Rules = None,
    work: Work = None,
    budget: BudgetOf = None,
    scale: ScaleName = None,
    data: Data = None,
    engine: EngineName = "auto",
    stop: StopAt = None,
    track: Track = None,
    allow_code: AllowCode = None,
    progress: Progress = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one population. If the folder of the same run exists, the run continues."""
    check_what(what)
    check_names(progress, *([rules] if rules else ()))
    _check_work(rules, work)
    _check_budget(budget, work)
    with importing():
        from esgd.cli.overrides import overridden
        from esgd.cli.show import print_value, show_result
        from esgd.cli.stop import choose_rules
        from esgd.cli.training import summary, train
        from esgd.integrations import choose_tracker
        from esgd.studies import by_rules, find_study
    allow = _allowed(what, allow_code)
    study = find_study(what, scale=scale, data=data, allow=allow)
    study, made = by_rules(study, rules, recipe_given=bool(sets), budget=budget, work=work, seed=seed)
    study = overridden(study, sets or [], allow=allow)
    folder = folder or Path("runs") / "-".join([_plain(study.name), *([rules] if rules else []), str(seed)])
    origin = str(Path(what).resolve()) if Path(what).is_file() else study.name if ":" not in what else what
    trackers = [choose_tracker(text) for text in track or []]
    result = train(
        study,
        study.recipe if budget is None or sets or made else None,
        seed,
        folder,
        origin,
        budget=budget,
        rules=None if made else rules,
        engine=engine,
        progress=progress_of(progress, quiet=quiet),
        trackers=trackers,
        stop=choose_rules(stop),
        allow=allow,
    )
    print_value(as_json, summary(folder, result), show_result)


@app.command()
def resume(
    folder: RunFolder,
    generations: Annotated[
        int | None, typer.Option(metavar="K", help="extend the run until it has K generations, all in all")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="extend a run with a budget until it has had this time, all in all"),
    ] = None,
    data: Data = None,
    engine: EngineName = "auto",
    stop: StopAt = None,
    track: Track = None,
    allow_code: AllowCode = None,
    progress: Progress = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run that was stopped, with bit-identical results, or a finished one with more generations. By default
    it keeps its engine and its stop rules: a run that its rule has stopped continues with --stop none, or with another
    rule."""
    if not lexists(folder / "manifest.json"):
        raise _no_run(folder)
    check_names(progress)
    with importing():
        from esgd.cli.show import print_value, show_result
        from esgd.cli.stop import choose_rules, kept_rules
        from esgd.cli.training import summary, train
        from esgd.integrations import choose_tracker
        from esgd.recipe import Recipe
        from esgd.run import RunFolder
        from esgd.studies import find_study
    manifest = RunFolder(folder).manifest()
    if manifest is None:
        raise _no_run(folder)
    if not manifest["origin"]:
        raise RunError(
            f"{str(folder)!r} was started from Python, so only Python knows its task. Call esgd.fit(…, "
            f"run={str(folder)!r}) again with the same arguments: it continues the run."
        )
    allow = allow_code or []
    try:
        study, seed = find_study(manifest["origin"], data=data, allow=allow), manifest["seed"]
        recipe = Recipe.from_dict(manifest["recipe"], allow={*allow, *study.packages})
        if generations is not None and generations != recipe.generations:  # the same command again continues
            recipe = recipe.extended(generations)
    except RecipeError as error:
        raise RunError(f"{str(folder / 'manifest.json')!r}: {error}") from error
    trackers = [choose_tracker(text) for text in track or []]
    result = train(
        study,
        recipe,
        seed,
        folder,
        manifest["origin"],
        extend=generations is not None or budget is not None,
        budget=budget,
        engine=engine,
        progress=progress_of(progress, quiet=quiet),
        trackers=trackers,
        stop=choose_rules(stop) if stop else kept_rules(folder, {*allow, *study.packages}),
        allow=allow,
    )
    print_value(as_json, summary(folder, result), show_result)


@app.command("compare")
def compare_(
    what: What,
    seeds: Annotated[int, typer.Option(min=1, help="the number of seeds")] = 1,
    first_seed: Annotated[int, typer.Option(help="the first seed")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, metavar="PATH", help="the folder for runs and report [default: runs/compare-WHAT]"
        ),
    ] = None,
    sets: Sets = None,
    rules: Contest = None,
    work: Work = None,
    scale: ScaleName = None,
    data: Data = None,
    engine: EngineName = "auto",
    allow_code: AllowCode = None,
    progress: Progress = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's comparison: single baseline, population baseline, ESGD without evolution, ESGD. With --rules,
    compare rules of esgd.rules at equal work."""
    check_what(what)
    check_names(progress, *(rules.split(",") if rules else ()), known_rules=(OWN_RECIPE, *RULES))
    _check_work(rules, work)
    with importing():
        from esgd import report
        from esgd.cli.overrides import overridden
        from esgd.cli.show import print_value, show_comparison, show_contest
        from esgd.run import RunFolder
        from esgd.studies import compare, compete, find_study
    allow = _allowed(what, allow_code)
    study = overridden(find_study(what, scale=scale, data=data, allow=allow), sets or [], allow=allow)
    out = out or Path("runs") / f"compare-{_plain(study.name)}"
    chosen = range(first_seed, first_seed + seeds)
    shown = progress_of(progress, quiet=quiet)
    if rules is not None:
        names = rules.split(",")
        found = compete(study, names, seeds=chosen, out=out, work=work, engine=engine, progress=shown)
        reached = {name: [run.entry for run in found if run.of == name] for name in names}
        print_value(
            as_json, {"task": study.name, "about": study.about, "rules": reached}, partial(show_contest, runs=found)
        )
        _reported(lambda: report.write_beside(found, out))
        return
    comparison, histories = compare(study, seeds=chosen, out=out, engine=engine, progress=shown)
    print_value(as_json, comparison, show_comparison)
    made_with = RunFolder(out / f"seed-{first_seed}" / "esgd").manifest()
    _reported(lambda: report.write_comparison(comparison, histories, out, manifest=made_with))


@app.command("report")
def report_(
    folders: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path_of, metavar="PATH", help="the folder for the report of several runs [default: runs/report]"
        ),
    ] = None,
) -> None:
    """Write the report of a run again, or one report of several runs that pairs their seeds."""
    if len(folders) == 1 and out is not None:
        raise RunError(f"--out {out} is for the report of several runs. The report of one run is in its folder.")
    with importing():
        from esgd import report
    print(report.write_run(folders[0]) if len(folders) == 1 else report.write_runs(folders, out or Path("runs/report")))


@app.command()
def watch(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUNS...", parser=path_of, help="folders of runs, or runs [default: runs]"),
    ] = None,
    host: Annotated[
        str, typer.Option(help="the address to serve on; other than loopback it needs a token")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any free port")] = PORT,
    browser: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Serve a live page of running and finished runs. It only reads."""
    with importing():
        from esgd.watch import Runs, ServerAddress, open_server
    with open_server(Runs(folders or [Path("runs")]), ServerAddress.at(host, port)) as server:
        print(f"watching at {server.address.url} (Ctrl-C ends it)", flush=True)
        if browser:
            webbrowser.open(server.address.url)
        server.serve_forever()


@app.command("verify")
def verify_(folders: RunFolders) -> None:
    """Check that runs are whole: each file against its checksum, the model against the archive. It only reads."""
    with importing():
        from esgd.run import verify
    found = [verify(folder) for folder in folders]
    for each in found:
        early = f", ended early: {each.stopped}" if each.stopped else ""
        state = "NOT WHOLE" if each.faults else "whole"
        print(f"{each.run}: {each.done} of {each.planned} generations, {state}{early}")
        for fault in each.faults:
            print(f"  {fault}")
    if any(each.faults for each in found):
        raise RunError("not every run is whole. `esgd resume RUN` restores what the checkpoints still have.")


@app.command("export")
def export_(
    folder: RunFolder,
    out: Annotated[
        Path | None, typer.Option(parser=path_of, metavar="PATH", help="the folder for the files [default: RUN-export]")
    ] = None,
    kind: Annotated[str, typer.Option("--format", help="csv or parquet")] = "csv",
) -> None:
    """Write a run as tables for other tools: one file per generation, and one of all generations."""
    with importing():
        from esgd._export import export
    for path in export(folder, out, format=kind):
        print(path)


@app.command()
def explain(
    what: What,
    sets: Sets = None,
    budget: BudgetOf = None,
    scale: ScaleName = None,
    data: Data = None,
    engine: EngineName = "auto",
    gpus: Annotated[int | None, typer.Option(min=1, help="also predict the cost on this number of GPUs")] = None,
    tflops: Annotated[float, typer.Option(min=0.001, help="TFLOP/s of one GPU in float32 matrix products")] = 15.0,
    gpu_memory: Annotated[float, typer.Option(min=0.001, help="GB of memory of one GPU")] = 16.0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="also predict a generation on this number of workers")
    ] = None,
    per_node: Annotated[int, typer.Option(min=1, help="workers on a node")] = 16,
    gigabits: Annotated[float, typer.Option(min=0.001, help="gigabits per second of the driver's network")] = 10.0,
    allow_code: AllowCode = None,
    as_json: Json = False,
) -> None:
    """Show the recipe in the paper's notation, and its cost on this machine."""
    check_what(what)
    with importing():
        from esgd.cli.explaining import explained
        from esgd.cli.overrides import overridden
        from esgd.cli.show import print_value, show_words
        from esgd.costs import Gpus
        from esgd.scaling import Workers
        from esgd.studies import by_rules, find_study
    allow = _allowed(what, allow_code)
    study = find_study(what, scale=scale, data=data, allow=allow)
    made = False
    if study.rehearsal is None:  # otherwise the data may be missing, which rules are asked with
        study, made = by_rules(study, None, recipe_given=bool(sets), budget=budget, work=None, seed=0)
    told = explained(
        overridden(study, sets or [], allow=allow),
        budget=budget,
        by_recipe=bool(sets) or made,
        engine=engine,
        gpus=Gpus(gpus, tflops, gpu_memory) if gpus else None,
        workers=Workers(workers, per_node=per_node, gigabits=gigabits) if workers else None,
    )
    print_value(as_json, told.to_dict(), partial(show_words, str(told)))


@app.command("data")
def data_(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(offered(DATASETS))}")],
    folder: Data = None,
) -> None:
    """Download a data set and check its checksum. An interrupted download continues."""
    check_dataset(name)
    with importing():
        from esgd.studies import download
    print(download(name, folder))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List what is built in: tasks, species, operators, schedules, engines."""
    from esgd.cli.inventory import inventory, show_inventory

    if as_json:
        print(json.dumps(inventory(), indent=2, ensure_ascii=False))
    else:
        show_inventory(inventory())


def _check_work(rules: str | None, work: float | None) -> None:
    if rules is None and work is not None:
        raise RecipeError(f"--work {work:g} is for --rules, which spend it. Without them the recipe says what is done.")
    if rules is not None and work is not None and OWN_RECIPE in rules.split(","):
        raise RecipeError(
            f"--work {work:g} is for rules. The task's own recipe has its own work: leave out one of them."
        )


def _check_budget(budget: str | None, work: float | None) -> None:
    if budget is not None and work is not None:
        raise RecipeError(f"--budget {budget} and --work {work:g} both say what is spent. Give one of them.")
    if budget is not None:
        seconds_in(budget)


def _reported(write: Callable[[], Path]) -> None:
    """Write a report, or say why there is none: the runs are worth something without it."""
    try:
        print(f"report: {write()}", file=sys.stderr)
    except MissingExtraError as error:
        print(f"No report: {error}", file=sys.stderr)


def _plain(name: str) -> str:
    """A name that is safe for a folder."""
    return re.sub(r"[^\w-]+", "-", name).strip("-") or "run"


def _no_run(folder: Path) -> RunError:
    return RunError(f"{str(folder)!r} is not the folder of a run: it has no manifest.json. Check the path.")


def _allowed(what: str, allow_code: list[str] | None) -> list[str]:
    """The packages whose code may be named; a task that is named on the command line allows its own."""
    own = [package_named(what)] if ":" in what and not Path(what).is_file() else []
    return [*own, *(allow_code or [])]
