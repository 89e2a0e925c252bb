"""Two sizes of every experiment."""

from __future__ import annotations

from typing import Literal

from esgd.studies.study import BASELINE

__all__ = ["BASELINE", "Scale"]

Scale = Literal["mini", "paper"]
"""`mini` runs on two cores in minutes with real data; `paper` has the paper's own networks and tables."""
