"""The command line."""

import sys

from esgd._limits import shortage
from esgd.cli.starting import importing

__all__ = ["main"]


def main() -> None:
    """Run the command line. An interrupt and a machine that is short of something never show a traceback, not even
    before there is anything to interrupt."""
    try:
        with importing():
            from esgd.cli import ending
        ending.main()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # while it is imported; later ones are told by `ending`
        if "--debug" in sys.argv or not (why := shortage(error)):
            raise
        sys.stderr.write(f"error: {why}\n")
        sys.exit(2)
