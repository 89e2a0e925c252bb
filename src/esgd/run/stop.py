"""stop.json: which rules may stop a run, and, where it was stopped before its last generation, when and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esgd.errors import RunError
from esgd.run.files import WORDS_LIMIT, read_table, remove, replace_words

STOP = "stop.json"


@dataclass(frozen=True)
class Stop:
    """The rules as tables, as far as they can be written, and a reason with the generation k that it came after."""

    rules: tuple[Mapping[str, Any], ...] = ()
    k: int = 0
    why: str = ""


def write_stop(folder: Path, stop: Stop) -> None:
    """Write it down; a run without rules that was not stopped has no such file."""
    if not stop.rules and not stop.why:
        remove(folder / STOP)
    else:
        table = {"rules": stop.rules, **({"k": stop.k, "why": stop.why} if stop.why else {})}
        replace_words(folder / STOP, json.dumps(table, indent=2, ensure_ascii=False))


def read_stop(folder: Path, *, limit: int = WORDS_LIMIT) -> Stop:
    """What the file says; `RunError` names one that is damaged."""
    try:
        table = read_table(folder / STOP, limit=limit)
    except FileNotFoundError:
        return Stop()
    rules, k, why = table.get("rules", []), table.get("k", 0), table.get("why", "")
    if not isinstance(rules, list) or type(k) is not int or not isinstance(why, str):
        raise RunError(f"{folder / STOP} is damaged: it does not have rules, a generation and a reason. Remove it.")
    if not all(isinstance(rule, Mapping) for rule in rules):
        raise RunError(f"{folder / STOP} is damaged: a rule in it is no table. Remove it.")
    return Stop(tuple(rules), k, why)
