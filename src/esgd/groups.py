"""Parameter groups: which parameters of a network train with another learning rate or weight decay than the others.

A policy has a tuple of these values. A parameter takes `lr_factor` and `weight_decay` each from the last value that
names it and says something about it. The learning rate itself is drawn for an individual, so a group multiplies it.

`Optimizer(groups=…)` and its siblings take them in any of these forms, and keep the tuple:

| written                                           | kept as                                         |
|---------------------------------------------------|-------------------------------------------------|
| `"no_decay"`                                      | `(NoDecay(),)`                                  |
| `{"head.*": {"lr_factor": 10.0}}`                 | `(Group(names="head.*", lr_factor=10.0),)`      |
| `["no_decay", {"head.*": {"weight_decay": 0.1}}]` | `(NoDecay(), Group(names="head.*", …))`         |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol, runtime_checkable

from torch import nn

from esgd._validation import check_field
from esgd.errors import RecipeError, did_you_mean, shown

__all__ = ["Group", "NoDecay"]

_FORMS = (
    "It says which parameters train with another learning rate or weight decay. Use 'no_decay', a mapping such as "
    "{'head.*': {'lr_factor': 10.0}}, or a list of these."
)
_FACTOR = "It multiplies the drawn learning rate for these parameters. Use 0.1 for a tenth of it."
_DECAY = "It is the weight decay of these parameters, whatever is drawn for the others. Use 0 for none."
_RATE = "The learning rate is drawn for each individual and annealed, so a group multiplies it. Use lr_factor."
LARGEST_FACTOR = 1e6
NORMAL = re.compile(r"Norm(\d+d)?$")
LISTED = 12  # names of parameters in an error; of more, the layers at the top are listed


@dataclass(frozen=True)
class Change:
    """What a group changes for a parameter; None is what the policy says for all."""

    lr_factor: float | None = None
    weight_decay: float | None = None

    def then(self, later: Change) -> Change:
        """The same, as far as a later one says nothing else."""
        return Change(
            self.lr_factor if later.lr_factor is None else later.lr_factor,
            self.weight_decay if later.weight_decay is None else later.weight_decay,
        )


@runtime_checkable
class ParameterGroup(Protocol):
    """A value that changes how some parameters are trained."""

    def changes(self, module: nn.Module, names: Sequence[str]) -> Mapping[str, Change]:
        """What changes, by name; `names` are the network's trainable parameters. Refuses what fits none of them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Group:
    """The parameters whose name fits a pattern, in which `*` stands for anything.

    | field          | meaning                                                         |
    |----------------|-----------------------------------------------------------------|
    | `names`        | the pattern, for names as `named_parameters()` gives them       |
    | `lr_factor`    | multiplies the learning rate; None for 1                        |
    | `weight_decay` | instead of the one that is drawn; None for the drawn one        |

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> Group(names="1.*", lr_factor=10.0).changes(network, ["0.weight", "1.weight"])
    {'1.weight': Change(lr_factor=10.0, weight_decay=None)}
    """

    names: str
    lr_factor: float | None = None
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.names, str):
            raise RecipeError(f"names={shown(self.names)} is no pattern for names of parameters. Use 'head.*'.")
        if self.lr_factor is not None:
            check_field(self, "lr_factor", at_least=0, at_most=LARGEST_FACTOR, meaning=_FACTOR)
        if self.weight_decay is not None:
            check_field(self, "weight_decay", at_least=0, meaning=_DECAY)
        if self.lr_factor is None and self.weight_decay is None:
            raise RecipeError(f"the group {self.names!r} changes nothing. Give it an lr_factor or a weight_decay.")

    def changes(self, module: nn.Module, names: Sequence[str]) -> Mapping[str, Change]:
        fitting = [name for name in names if fnmatchcase(name, self.names)]
        if not fitting:
            raise _matches_nothing(self.names, names)
        return dict.fromkeys(fitting, Change(self.lr_factor, self.weight_decay))


@dataclass(frozen=True, kw_only=True)
class NoDecay:
    """No weight decay on biases and on the parameters of normalisation layers.

    A bias is a parameter whose own name begins or ends with "bias". A normalisation layer is one whose class, or a
    class it is derived from, has a name that ends with "Norm", as in BatchNorm2d: torch's own, and those that libraries
    write themselves. If the name only has "Norm" in it, its parameters of at most one dimension count.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    >>> list(NoDecay().changes(network, [name for name, _ in network.named_parameters()]))
    ['0.bias', '1.weight', '1.bias']
    """

    def changes(self, module: nn.Module, names: Sequence[str]) -> Mapping[str, Change]:
        return {name: Change(weight_decay=0.0) for name in names if _is_bias(name) or _is_normal(module, name)}


Groups = tuple[ParameterGroup, ...]


def settled_groups(groups: Any) -> Groups:
    """The groups as a tuple, from any form in which they may be written."""
    if isinstance(groups, str):
        return (_word(groups),)
    if isinstance(groups, Mapping):
        return tuple(_entry(names, changes) for names, changes in groups.items())
    if isinstance(groups, ParameterGroup) and not isinstance(groups, type):
        return (groups,)
    if isinstance(groups, tuple | list):
        return tuple(each for one in groups for each in settled_groups(one))
    raise RecipeError(f"groups={shown(groups)} is no group of parameters. {_FORMS}")


def resolved(groups: Groups, module: nn.Module, names: Sequence[str]) -> tuple[Change, ...]:
    """What changes for each of the trainable parameters `names`."""
    found = dict.fromkeys(names, Change())
    for group in groups:
        for name, change in group.changes(module, names).items():
            found[name] = found[name].then(change)
    return tuple(found.values())


def check_groups(value: Any, module: nn.Module, names: Sequence[str]) -> None:
    """Refuse the groups of a species that name no parameter of the network, wherever in the value they are."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            check_groups(each, module, names)
    elif is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, ParameterGroup):
            value.changes(module, names)
        for each in fields(value):
            check_groups(getattr(value, each.name, None), module, names)


def decays(groups: Groups) -> bool:
    """Whether a group names a weight decay: then the optimizer must have one."""
    return any(isinstance(group, NoDecay) or getattr(group, "weight_decay", None) is not None for group in groups)


def _word(word: str) -> ParameterGroup:
    if word != "no_decay":
        raise RecipeError(f"groups={word!r} is not known. {did_you_mean(word, ['no_decay'])} {_FORMS}")
    return NoDecay()


def _entry(names: Any, changes: Any) -> Group:
    if not isinstance(changes, Mapping):
        raise RecipeError(f"groups has {names!r}: {shown(changes)}, which is no mapping. {_FORMS}")
    known = ("lr_factor", "weight_decay")
    for name in changes:
        if name not in known:
            why = _RATE if name == "lr" else did_you_mean(str(name), known)
            raise RecipeError(f"groups[{names!r}] has {name}={shown(changes[name])}, which no group has. {why}")
    return Group(names=names, **changes)


def _matches_nothing(pattern: str, names: Sequence[str]) -> RecipeError:
    tried = (f"{pattern}.*", f"*.{pattern}", f"*.{pattern}.*")
    fits = next((each for each in tried if any(fnmatchcase(name, each) for name in names)), None)
    few = names if len(names) <= LISTED else sorted({f"{name.partition('.')[0]}.*" for name in names})
    hint = f"Did you mean {fits!r}?" if fits else did_you_mean(pattern, few)
    return RecipeError(
        f"the group {pattern!r} names no trainable parameter of this network, so it would change nothing. {hint} "
        f"`*` stands for anything, and frozen parameters are not trained."
    )


def _is_bias(name: str) -> bool:
    own = name.rpartition(".")[2]
    return own.startswith("bias") or own.endswith("bias")


def _is_normal(module: nn.Module, name: str) -> bool:
    layer = module.get_submodule(name.rpartition(".")[0])
    named = [cls.__name__ for cls in _classes(layer) if "Norm" in cls.__name__]
    return any(NORMAL.search(each) for each in named) or (bool(named) and module.get_parameter(name).dim() <= 1)


def _classes(layer: nn.Module) -> Iterator[type]:
    return (cls for cls in type(layer).__mro__ if cls not in (nn.Module, object))
