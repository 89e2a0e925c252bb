"""How long something takes, in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A time as people say it, with the precision they need.

    >>> duration(0.042), duration(42.3), duration(170), duration(7_300), duration(200_000)
    ('0.042 s', '42 s', '3 min', '2 h 02 min', '2 days 7 h')
    """
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 0.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} day{'s' if days > 1 else ''} {hours % 24} h"
    return f"{hours} h {minutes % 60:02d} min" if hours else f"{minutes} min"
