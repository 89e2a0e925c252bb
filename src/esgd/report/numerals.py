"""How numbers and names are spelt in tables and sentences."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import floor, isfinite, log10
from statistics import NormalDist, fmean, stdev

from esgd._text.wording import short_exponent

ABSENT, DIVERGED = "–", "diverged"
QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)  # Student's t, 97.5%
SIGNIFICANT = 4  # as in the paper's table 1: 2.082, 0.0142


def number(value: float | None) -> str:
    """Four significant digits; None, and what is not finite, is an individual that diverged.

    >>> number(0.34294), number(66.29), number(0.0), number(3e-7)
    ('0.3429', '66.29', '0', '3.000e-7')
    """
    return DIVERGED if value is None or not isfinite(value) else _fixed(value, _decimals(value))


def mean_and_deviation(values: Sequence[float | None]) -> str:
    """The mean over seeds and, from two on, ± the sample standard deviation with as many decimals.

    >>> mean_and_deviation([0.34, 0.36]), mean_and_deviation([0.34]), mean_and_deviation([0.34, None])
    ('0.3500 ± 0.0141', '0.3400', '0.3400 (1 of 2 diverged)')
    """
    known = [value for value in values if value is not None and isfinite(value)]
    if not values:
        return ABSENT
    if not known:
        return DIVERGED
    mean = fmean(known)
    deviation = f" ± {_fixed(stdev(known), _decimals(mean))}" if len(known) > 1 else ""
    lost = f" ({len(values) - len(known)} of {len(values)} diverged)" if len(known) < len(values) else ""
    return f"{number(mean)}{deviation}{lost}"


def interval(differences: Sequence[float]) -> str:
    """The mean of paired differences with its 95% interval (Student's t), which one seed does not have.

    >>> interval([-0.02, -0.01, -0.03]), interval([-0.02]), interval([])
    ('-0.0200 [-0.0448, 0.0048]', '-0.0200', '–')
    """
    if not differences:
        return ABSENT
    mean, n = fmean(differences), len(differences)
    half = student(n - 1) * stdev(differences) / n**0.5 if n > 1 else 0.0
    decimals = _decimals(max(abs(mean), half), significant=3)
    shown = _fixed(mean, decimals)
    return f"{shown} [{_fixed(mean - half, decimals)}, {_fixed(mean + half, decimals)}]" if n > 1 else shown


def student(freedom: int) -> float:
    """The 97.5% quantile of Student's t: from a table for few degrees of freedom, beyond by Cornish and Fisher.

    >>> [round(student(n), 3) for n in (1, 4, 9, 10, 29)]
    [12.706, 2.776, 2.262, 2.228, 2.045]
    """
    if freedom <= len(QUANTILES):
        return QUANTILES[freedom - 1]
    z, v = NormalDist().inv_cdf(0.975), freedom
    terms = (
        z,
        (z**3 + z) / (4 * v),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * v**4),
    )
    return sum(terms)


def short(value: object) -> str:
    """A hyper-parameter as the paper writes it: lr=2.68e-4, momentum=0.21, nesterov=T.

    >>> short(2.68e-4), short(0.2134), short(True), short(0.0), short([0.9, 0.999])
    ('2.68e-4', '0.213', 'T', '0', '[0.9, 0.999]')
    """
    if isinstance(value, bool):
        return "T" if value else "F"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(short, value))}]"
    if isinstance(value, float) and 0 < abs(value) < 0.01:
        return short_exponent(f"{value:.2e}")
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def count(value: float) -> str:
    """A number of samples.

    >>> count(1234567.0)
    '1,234,567'
    """
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds with the precision a reader needs.

    >>> duration(0.0141), duration(6.25), duration(725.3)
    ('0.014', '6.2', '725')
    """
    return f"{seconds:.3f}" if seconds < 0.1 else f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"


def spelt(name: str) -> str:
    """A file's name as text that can be written: names on disk may be any bytes.

    >>> spelt("r\\udcff")
    'r\N{REPLACEMENT CHARACTER}'
    """
    return os.fsencode(name).decode("utf-8", "replace")


def listing(words: Sequence[str]) -> str:
    """Words as a sentence has them.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _decimals(value: float, significant: int = SIGNIFICANT) -> int | None:
    """Decimals that show so many significant digits; None where only an exponent does."""
    if value == 0:
        return 0
    magnitude = floor(log10(abs(value)))
    return max(0, significant - 1 - magnitude) if -4 <= magnitude < 7 else None


def _fixed(value: float, decimals: int | None) -> str:
    return short_exponent(f"{value:.{SIGNIFICANT - 1}e}") if decimals is None else f"{value:.{decimals}f}"
