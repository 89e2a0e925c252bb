"""The names of studies, known without importing one."""

from __future__ import annotations

from pathlib import Path

from esgd._names.entry_points import STUDIES, offered
from esgd.errors import RecipeError, did_you_mean

BUILT_IN = {"digits": "esgd.studies.digits:digits"}
"""Name → the function of ours that makes the study."""
OWN_RECIPE = "recipe"
"""Among rules that are compared: the recipe of the study itself."""


def study_names() -> list[str]:
    """What can be asked for by its name: what is built in, then what installed packages offer."""
    return [*BUILT_IN, *(name for name in offered(STUDIES) if name not in BUILT_IN)]


def is_study(what: str) -> bool:
    """Whether this is the name of a study, with or without a scale: "ptb@paper"."""
    return what.partition("@")[0] in study_names()


def is_toml(what: str) -> bool:
    """Whether this is the path of a TOML file; any file will do."""
    try:
        return what.endswith(".toml") or Path(what).is_file()
    except (OSError, ValueError):  # too long for a name, or with a character that no name has
        return False


def check_what(what: str) -> None:
    """Refuse what is none of the three: the name of a study, a TOML file, `package.module:task`."""
    if ":" not in what and not is_toml(what) and not is_study(what):
        raise RecipeError(
            f"{what!r} is not a task. {did_you_mean(what, study_names())} A task is a study's name, a TOML file, or "
            f"the name of one of your own: 'package.module:task'."
        )
