"""`python -m esgd`."""

from esgd.cli import main

main()
