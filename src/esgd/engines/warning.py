"""Warnings that stand at the user's line, wherever in here something was noticed."""

from __future__ import annotations

import inspect
import warnings


def warn(text: str) -> None:
    frame, level, users = inspect.currentframe(), 1, 1
    while frame is not None:
        level += 1
        if frame.f_globals.get("__name__", "").partition(".")[0] == "esgd":
            users = level  # who called the outermost of our functions
        frame = frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=users)
