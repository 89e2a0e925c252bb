"""How a run that has stopped is continued, in one sentence."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from esgd._names.trust import package_named


def farewell(done: int, path: Path | None, origin: str, allow: Collection[str]) -> str:
    """What is said of a run that an error or an interrupt has ended."""
    if path is None:
        return "Stopped. Nothing was saved, because no run folder was given (run=…)."
    how = _resume(path, origin, allow) if origin else "run the same program again"
    saved = "1 generation is saved" if done == 1 else f"{done} generations are saved"
    return f"Stopped. {saved} in {path}. To continue: {how}"


def stopped(why: str, k: str, path: Path | None, origin: str, allow: Collection[str]) -> str:
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
