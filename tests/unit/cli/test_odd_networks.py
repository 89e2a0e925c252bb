"""A network that cannot be trained is bad input: one sentence and exit code 2, whatever the engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.campaign.odd_models import ODD
from tests.command import esgd


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("parameters: on the meta device", "loop"),
        ("parameters: on the meta device", "vmap"),
        ("forward: adds a layer in training", "loop"),
        ("losses: complex", "vmap"),
        ("losses: detached", "vmap:chunk=2"),
        ("losses: fitness of inf", "loop"),
        ("layers: compiled", "vmap"),
        ("forward: freezes itself", "vmap"),
        ("tasks: make_model raises", "pool:workers=2"),
    ],
)
@pytest.mark.usefixtures("warm_workers")
def test_it_is_refused_in_a_sentence_with_the_exit_code_of_bad_input(name: str, engine: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"from tests.campaign.odd_models import ODD\n\n\ndef task(seed):\n    return ODD[{name!r}].task()\n"
    )
    few = ["--set", "population=4", "--set", "generations=1", "--quiet"]
    done = esgd("run", "mine:task", "--engine", engine, *few, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    expected = ODD[name].expected_of_vmap if "vmap" in engine else ODD[name].expected
    assert re.search(expected, " ".join(done.stderr.split())), done.stderr
