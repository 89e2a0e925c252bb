"""Warnings that stand at the user's line, wherever in here something was noticed."""

from __future__ import annotations

import inspect
import warnings


def warn(text: str) -> None:
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "esgd":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)
