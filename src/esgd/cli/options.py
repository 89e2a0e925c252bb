"""The options that commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from esgd._names.study_names import OWN_RECIPE
from esgd._text.wording import path_fault
from esgd.errors import RecipeError, did_you_mean, shown

# Named here as well, because their own modules import PyTorch and help must not wait for it; tests compare the two.
RULES = ("ours", "paper", "random_search", "single", "halving", "pbt", "papa", "soup", "swa")
PROGRESS = ("auto", "bars", "plain", "json", "none")
PORT = 8642


def path_of(text: str) -> Path:
    """A path as it was typed, with ~ replaced by the home folder: a shell leaves it in quotes and after `--run=`."""
    if fault := path_fault(text):
        raise typer.BadParameter(f"the path {fault}. Write the path; '.' is this folder.")
    return Path(os.path.expanduser(text))  # noqa: PTH111  # Path.expanduser raises where there is no such user


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", parser=path_of, help="the run's folder")]
RunFolders = Annotated[list[Path], typer.Argument(metavar="RUN...", parser=path_of, help="run folders")]
What = Annotated[
    str, typer.Argument(help="the name of a study, a TOML file, or 'package.module:task'", show_default=False)
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="change the recipe, e.g. population=32 or mutation.sigma=0.02"),
]
Rules = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"train by these rules instead of the task's recipe: {', '.join(RULES)}"),
]
Contest = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="NAME,NAME",
        help=f"compare these at equal work instead: {', '.join(RULES)}, or {OWN_RECIPE} for the task's own",
    ),
]
Work = Annotated[
    float | None,
    typer.Option(
        metavar="SAMPLES", help="what --rules may spend, forward 1 and backward 2 [default: as much as the recipe]"
    ),
]
BudgetOf = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="how long the run may take, such as 30m, 2h or 1h30m"),
]
Seed = Annotated[int, typer.Option(help="all random numbers are derived from it")]
EngineName = Annotated[
    str,
    typer.Option("--engine", help="where to compute: auto, loop, vmap, pool, ray, or e.g. pool:workers=4,inner=vmap"),
]
ScaleName = Annotated[
    str | None, typer.Option("--scale", help="of the paper's experiments: mini (two cores, minutes) or paper")
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        parser=path_of,
        metavar="PATH",
        help="the folder with the data sets [default: $ESGD_DATA, or a cache folder]",
    ),
]
AllowCode = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-code",
        metavar="PACKAGE",
        help="a package whose code a TOML file or a run folder may name; may be given more than once",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object instead of tables")]
Quiet = Annotated[bool, typer.Option("--quiet", help="no progress; the same as --progress none")]
Progress = Annotated[
    str, typer.Option("--progress", metavar="KIND", help=f"{', '.join(PROGRESS)}; json is a line for every generation")
]
StopAt = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="RULE",
        help="end early: patience:3, target:0.05, patience:3,of=test.loss, or 'package.module:rule'; may be given more "
        "than once",
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="tensorboard:DIR, mlflow:URI, wandb:PROJECT, or 'package.module:tracker'; may be given more than once",
    ),
]


def progress_of(progress: str, *, quiet: bool) -> str:
    """The kind of progress that --progress and --quiet choose together."""
    return "none" if quiet else progress


def check_names(progress: str, *rules: str, known_rules: Sequence[str] = RULES) -> None:
    """Refuse a kind of progress, or rules, that there are not."""
    given = (("--rules", each, known_rules) for each in rules)
    for option, name, known in (("--progress", progress, PROGRESS), *given):
        if name not in known:
            raise RecipeError(f"{option} {shown(name)} is not known. {did_you_mean(name, known)}")
