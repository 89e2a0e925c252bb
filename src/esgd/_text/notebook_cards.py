"""Values as notebooks show them: small cards of HTML. Whatever a user named is shown as text, never as markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite

_CARD = (
    "display: inline-block; padding: .5em .9em; border: 1px solid rgba(128, 128, 128, .35); border-radius: .5em; "
    "line-height: 1.45"
)
_CELL = "text-align: left; padding: .1em .9em .1em 0; background: none; vertical-align: top; white-space: nowrap"
_FAINT = "opacity: .65; font-weight: normal"
BLUE, GREY = "#0072B2", "#808080"  # readable on light and dark, told apart by colour-blind readers


def card(title: str, facts: Mapping[str, object], *more: str) -> str:
    """A title, names with their values, and ready HTML below.

    >>> "<b>&lt;b&gt;" in card("<b>", {})
    True
    """
    rows = "".join(
        f'<tr style="background: none"><th style="{_CELL}; {_FAINT}">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    table = f'<table style="margin: .3em 0 0; border: none">{rows}</table>' if rows else ""
    return f'<div style="{_CARD}"><b>{escape(title)}</b>{table}{"".join(more)}</div>'


def remark(text: str) -> str:
    """A sentence below the facts."""
    return f'<div style="max-width: 40em; margin-top: .3em; {_FAINT}">{escape(text)}</div>'


def sparkline(curves: Iterable[tuple[str, str, Sequence[float | None]]]) -> str:
    """Curves of (name, colour, values) over generations, on one scale; a gap where nothing is finite.

    >>> sparkline([("best", BLUE, [None])])
    ''
    """
    drawn = [(name, colour, [_point(value) for value in values]) for name, colour, values in curves]
    known = [value for _, _, values in drawn for value in values if value is not None]
    if len(known) < 2:
        return ""
    low, high, longest = min(known), max(known), max(len(values) for _, _, values in drawn)
    across, down = 220 / max(1, longest - 1), 44 / ((high - low) or 1.0)
    lines = "".join(
        f'<path d="{_path(values, low, across, down)}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        for _, colour, values in drawn
    )
    key = "  ".join(f'<span style="color: {colour}">{escape(name)}</span>' for name, colour, _ in drawn)
    return (
        f'<div style="margin-top: .4em"><svg width="228" height="52" viewBox="-4 -4 228 52" role="img" '
        f'aria-label="from {high:.4g} to {low:.4g}">{lines}</svg>'
        f'<div style="font-size: 85%">{key} <span style="{_FAINT}">from {high:.4g} to {low:.4g}</span></div></div>'
    )


def _point(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _path(values: Sequence[float | None], low: float, across: float, down: float) -> str:
    steps, pen = list[str](), "M"
    for number, value in enumerate(values):
        if value is None:
            pen = "M"
        else:
            steps.append(f"{pen}{number * across:.1f} {44 - (value - low) * down:.1f}")
            pen = "L"
    return "".join(steps)
