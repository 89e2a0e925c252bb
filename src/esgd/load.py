"""`load()`: the result of a run folder, without its data."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from torch import nn

from esgd.errors import RecipeError, RunError, TaskError
from esgd.generation import Growing
from esgd.genome import Genome, build
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.result import Result
from esgd.run import RunFolder, read_history
from esgd.run.folder import check_layers, same_lines
from esgd.run.model import check_frozen
from esgd.run.place import located


def load(run: str | Path, make_model: Callable[[], nn.Module], *, allow: Collection[str] = ()) -> Result:
    """The result of a run, finished or not, from its folder and the function that builds its network.

    The folder is only read. Neither data nor a recipe are needed; a method that needs data takes a `task`. A network
    with other layers than the manifest names is refused. The folder of a network with frozen parameters has only what
    was trained: `make_model` brings the others, and they must be those of the run. A folder is data: `allow` has the
    packages whose code it may name, besides our own.
    """
    if isinstance(make_model, nn.Module) or not callable(make_model):
        raise TaskError(
            f"make_model is a {type(make_model).__name__}. Every network of the run is built by it, so pass the "
            f"function that the run was trained with, for example load(run, make_model)."
        )
    folder = RunFolder(located(run))
    manifest = folder.manifest()
    if manifest is None:
        raise RunError(f"{str(folder.path)!r} is not the folder of a run: it has no manifest.json. Check the path.")
    genome = Genome.of(build(make_model, Seeds(manifest["seed"]).at("init", 0)))
    check_frozen(manifest, genome.template, folder.path)
    state, damaged = folder.read(genome, manifest, allow=allow)
    if state is None:
        why = " ".join(damaged) or "No generation is finished yet."
        raise RunError(f"{str(folder.path)!r} has no checkpoint that is whole. {why}")
    check_layers(manifest, genome, folder.path)
    told = read_history(folder.history_file)[: state.k]  # knows how long checkpoints took; a checkpoint does not
    history = told if same_lines(told, state.history) else [dict(line) for line in state.history]
    try:
        recipe = Recipe.from_dict(manifest["recipe"], allow=allow)
    except RecipeError:
        recipe = None  # it has functions without a name, or code that was not allowed
    return Result(replace(state, history=Growing(history)), history, folder.path, recipe=recipe)
