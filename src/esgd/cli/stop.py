"""From the value of --stop to a rule, and back from the folder of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from esgd._names.trust import imported
from esgd._serialization import decode, read_value
from esgd.errors import RecipeError, RunError, did_you_mean
from esgd.run.stop import STOP, read_stop
from esgd.stopping import Patience, StopRule, Target, check_stop

KINDS: Mapping[str, type[Patience] | type[Target]] = {"patience": Patience, "target": Target}
NONE = "none"


def choose_rules(texts: Collection[str] | None) -> tuple[StopRule, ...]:
    """The rules for `patience:3`, `target:0.05,of=test.loss`, or for your own, `package.module:rule`."""
    return tuple(_rule(text) for text in texts or () if text != NONE)


def kept_rules(folder: Path, allow: Collection[str]) -> tuple[StopRule, ...]:
    """The rules that the folder of a run has; one that was given without an importable name is not there."""
    try:
        return check_stop([decode(table, allow=allow, name="stop") for table in read_stop(folder).rules])
    except RecipeError as error:
        raise RunError(f"{str(folder / STOP)!r}: {error} Or resume without it: --stop none.") from error


def _rule(text: str) -> StopRule:
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        if not rest:
            raise RecipeError(
                f"--stop {text}: it is not a rule. {did_you_mean(kind, [*KINDS, NONE])} Write patience:3, target:0.05, "
                f"none, or 'package.module:rule'."
            )
        return check_stop(imported(text))[0]
    first, *others = rest.split(",")
    settings = dict(_setting(text, each) for each in others)
    known = [name for name in KINDS[kind].__dataclass_fields__ if name != "_"]
    for name in settings:
        if name not in known:
            raise RecipeError(f"--stop {text}: there is no setting {name!r}. {did_you_mean(name, known)}")
    return KINDS[kind](read_value(first), **settings)


def _setting(text: str, assignment: str) -> tuple[str, Any]:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise RecipeError(f"--stop {text}: {assignment!r} has no value. Write NAME=VALUE, as in patience:3,of=mean.")
    return name.strip(), read_value(value.strip())
