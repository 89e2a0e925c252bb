"""A run that was extended: its later generations follow another recipe than its first.

The manifest has the recipe that holds now, and in `extended` those that held before, each with the last generation that
it was followed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXTENDED = "extended"


def extended(manifest: Mapping[str, Any], recipe: Mapping[str, Any], after: int) -> dict[str, Any]:
    """The manifest of a run that follows another recipe after generation `after`.

    >>> manifest = extended({"recipe": {"generations": 3}}, {"generations": 5}, after=3)
    >>> manifest["extended"], recipe_of(manifest, 3)["generations"], recipe_of(manifest, 4)["generations"]
    ([{'after': 3, 'recipe': {'generations': 3}}], 3, 5)
    """
    parts = list(manifest.get(EXTENDED, ()))
    if after and (not parts or parts[-1]["after"] < after):  # a recipe that no generation has followed is forgotten
        parts.append({"after": after, "recipe": manifest["recipe"]})
    return {**manifest, "recipe": dict(recipe), **({EXTENDED: parts} if parts else {})}


def recipe_of(manifest: Mapping[str, Any], k: int) -> Any:
    """The recipe that generation k follows, as a table."""
    return next((part["recipe"] for part in manifest.get(EXTENDED, ()) if k <= part["after"]), manifest.get("recipe"))


def parts_before(manifest: Mapping[str, Any], k: int) -> list[Any]:
    """The parts of a run that ended before generation k."""
    return [part for part in manifest.get(EXTENDED, ()) if part["after"] < k]


def last_extension(manifest: Mapping[str, Any]) -> int:
    """The generation after which a run was last extended; 0 if it never was."""
    parts = manifest.get(EXTENDED)
    return int(parts[-1]["after"]) if parts else 0


def planned_generations(manifest: Mapping[str, Any]) -> int:
    """How many generations a run has at its end, fine-tuning included; 0 where the recipe does not say."""
    recipe = manifest["recipe"]
    planned = recipe.get("generations")
    return planned + ("fine_tuning" in recipe) if isinstance(planned, int) else 0


def is_extended(value: Any) -> bool:
    """Whether a value can be `extended` of a manifest: parts with rising last generations."""
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        return False
    ends = [part.get("after") for part in value]
    whole = all(type(end) is int and end > 0 for end in ends) and ends == sorted(set(ends))
    return whole and all(isinstance(part.get("recipe"), dict) for part in value)
