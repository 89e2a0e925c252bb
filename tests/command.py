"""The command line without a process of its own: what a person would see, and the exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from esgd.cli import main


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Captured(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


def esgd(*arguments: str | Path, cwd: Path) -> Done:
    """`esgd ARGUMENTS` in a folder; modules of the same names are forgotten before, and those from there afterwards."""
    out, err, code = Captured(), Captured(), 0
    for file in cwd.glob("*.py"):
        sys.modules.pop(file.stem, None)
    path, modules = list(sys.path), set(sys.modules)
    with (
        contextlib.chdir(cwd),
        patch.object(sys, "argv", ["esgd", *map(str, arguments)]),
        patch.dict(os.environ, {"COLUMNS": "200"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(cwd)):
                    del sys.modules[name]
    return Done(code, out.text(), err.text())
