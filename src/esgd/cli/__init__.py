"""The command line."""

import sys

from esgd.cli.starting import importing

__all__ = ["main"]


def main() -> None:
    """Run the command line. An interrupt never shows a traceback, not even before there is anything to interrupt."""
    try:
        with importing():
            from esgd.cli import ending
        ending.main()
    except KeyboardInterrupt:
        sys.exit(130)
