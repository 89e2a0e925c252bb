"""How a command ends.

Exit codes: 0 success; 2 the input is wrong, and the message says what to do; 3 a run folder cannot be read, written or
continued; 130 interrupted, and the message says how to continue; 1 a defect of esgd.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback

from rich.console import Console

from esgd.cli.app import app
from esgd.errors import EsgdError, RunError


def main() -> None:
    """Run the command line; errors are shown without a traceback unless --debug is given."""
    debug = "--debug" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # μ on a terminal without it is not worth a crash
    try:
        app(args=[argument for argument in sys.argv[1:] if argument != "--debug"])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has closed it
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # who is impatient ends what remains at once, without a traceback
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        _say_error(error)
        sys.exit(3 if isinstance(error, RunError) else 2 if isinstance(error, EsgdError) else 1)


def _say_error(error: Exception) -> None:
    """Print the message of an error of ours; of any other, most often in a user's task, also its type and place."""
    text = str(error)
    if not isinstance(error, EsgdError):
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno}). --debug shows the traceback."
    Console(stderr=True).print(f"error: {text}", style="red", highlight=False, soft_wrap=True, markup=False)
