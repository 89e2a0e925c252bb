"""Which attacks there are, and which case comes when."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from time import monotonic

from tests.campaign import damage, disk, fuzzing, injection, kills, oddities, page, signals
from tests.campaign.case import Attack, Case

ATTACKS: Mapping[str, Attack] = {
    "kills": kills,
    "signals": signals,
    "disk": disk,
    "damage": damage,
    "page": page,
    "injection": injection,
    "fuzz": fuzzing,
    "odd": oddities,
}
SECONDS = {"full": float("inf"), "quick": 270.0, "suite": 45.0}
"""The campaigns, and when they begin no further case: what is said of their length holds on slow machines, too."""

Named = tuple[str, Case, float]


def waiting(attacks: Collection[str], *, seed: int, size: str, done: Collection[str]) -> Iterator[Named]:
    """The cases that were not tried yet, with names by which they are found again, and limits.

    Attacks take turns, so that one that is stopped early has tried something of each.
    """
    begun, named = monotonic(), list[tuple[float, Named]]()
    for attack in attacks:
        plan, count = ATTACKS[attack].PLAN, ATTACKS[attack].PLAN.size(size)
        for number, case in enumerate(islice(ATTACKS[attack].cases(seed), count)):
            if f"{attack}/{number}" not in done:
                named.append((number / count, (f"{attack}/{number}", case, plan.limit)))
    for _, following in sorted(named, key=lambda each: each[0]):
        if monotonic() - begun > SECONDS[size]:
            return
        yield following


def find(name: str, seed: int) -> Named:
    """The case called ATTACK/NUMBER."""
    attack, _, number = name.partition("/")
    if attack not in ATTACKS or not number.isdecimal():
        raise SystemExit(f"{name!r} is no case. Cases are called ATTACK/NUMBER; attacks are {', '.join(ATTACKS)}.")
    case = next(islice(ATTACKS[attack].cases(seed), int(number), None), None)
    if case is None:
        raise SystemExit(f"{name!r}: there are not so many cases of {attack}.")
    return name, case, ATTACKS[attack].PLAN.limit
