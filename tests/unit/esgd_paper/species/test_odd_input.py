"""What the experiments' species cannot draw from is refused when they are made."""

from typing import Any

import pytest

from esgd.errors import RecipeError
from esgd_paper.species.acoustic import HandedDown
from esgd_paper.species.patient import Patient
from esgd_paper.species.plateau import Plateau


@pytest.mark.parametrize(
    ("species", "settings", "sentence"),
    [
        (Plateau, {"policy": 1}, "policy=1 is not a Policy"),
        (Patient, {"species": True}, "species=True cannot be called"),
        (HandedDown, {"species": 1, "ranges": {}}, "species=1 cannot be called"),
        (HandedDown, {"species": 1, "ranges": 2}, "ranges=2 is not a mapping"),
    ],
)
def test_what_cannot_be_meant_is_refused(species: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        species(**settings)
