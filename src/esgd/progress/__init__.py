"""What a person, or a program, sees while a run goes on. See README.md."""

from esgd.progress.reporter import PROGRESS, Reporter, announce, check_progress, reporter

__all__ = ["PROGRESS", "Reporter", "announce", "check_progress", "reporter"]
