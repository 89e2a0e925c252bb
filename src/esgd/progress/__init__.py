"""What a person, or a program, sees during a run. See README.md."""

from esgd.progress.reporter import PROGRESS, Reporter, announce, check_progress, reporter

__all__ = ["PROGRESS", "Reporter", "announce", "check_progress", "reporter"]
