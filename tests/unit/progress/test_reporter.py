"""Progress as it is really seen: in a terminal, in a pipe, by a program, not at all."""

import json
import os
import re
import sys
import time
from pathlib import Path

import pexpect
import pytest
from pyte import ByteStream, Screen
from torch import Tensor
from torch.nn import functional as F

import esgd
from esgd.errors import RecipeError
from tests.small import classify, mlp, random_data

RECIPE = esgd.Recipe(population=3, offspring=4, generations=3, sgd_epochs=1)
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import esgd
from tests.unit.progress.test_reporter import RECIPE, slowly
esgd.fit(slowly(), RECIPE, seed=0, engine="loop")
"""
ROOT = Path(__file__).parents[3]


def slowly() -> esgd.Supervised:
    """A task that takes long enough to be looked at."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        time.sleep(0.05)
        return F.cross_entropy(output, target)

    return esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70, seed=1), batch_size=16)


def fit(progress: bool | str) -> esgd.Result:
    return esgd.fit(classify(), RECIPE, seed=0, engine="loop", progress=progress)


def test_in_a_pipe_there_are_plain_lines(capfd: pytest.CaptureFixture[str]) -> None:
    result = fit(True)
    lines = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("  note:")]
    assert [line.split()[0] for line in lines] == ["k=1", "k=2", "k=3"]
    assert f"best {result.fitness:.4g}" in lines[-1]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("progress", [False, "none"])
def test_silence_is_silent(progress: bool | str, capfd: pytest.CaptureFixture[str]) -> None:
    fit(progress)
    assert capfd.readouterr() == ("", "")


def test_for_programs_every_line_is_json(capfd: pytest.CaptureFixture[str]) -> None:
    result = fit("json")
    told = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    lines = [each for each in told if each["event"] == "generation"]
    assert [line["k"] for line in lines] == [1, 2, 3]
    assert lines[-1]["best"] == result.history[-1]["best"]
    assert lines[-1]["leader"] == result.history[-1]["leader"]
    assert lines[0]["seconds_left"] > 0 == lines[-1]["seconds_left"]
    assert {line["generations"] for line in lines} == {3}


def test_a_kind_that_nobody_knows_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError, match="Did you mean 'plain'"):
        fit("plian")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [100, 50])
def test_a_terminal_shows_bars_and_keeps_the_lines(columns: int, tmp_path: Path) -> None:
    screen, program = Screen(columns, 40), tmp_path / "program.py"
    stream, seen = ByteStream(screen), set[str]()
    program.write_text(PROGRAM.format(root=str(ROOT)))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    child = pexpect.spawn(sys.executable, [str(program)], dimensions=(40, columns), env=environment, timeout=200)
    while True:
        try:
            stream.feed(child.read_nonblocking(4096, timeout=200))
        except pexpect.EOF:
            break
        seen |= {line.rstrip() for line in screen.display}
    child.close()
    assert child.exitstatus == 0, "\n".join(screen.display)
    assert any(re.match(r"generation 2 of 3  ━+[╸╺]?━*  (about|over) \d+ s left$", line) for line in seen), seen
    assert any(re.match(r"  SGD +━+[╸╺]?━*  \d/3$", line) for line in seen), seen
    assert any(re.match(r"  evolution +━+[╸╺]?━*  \d/4$", line) for line in seen), seen
    left = "\n".join(line.rstrip() for line in screen.display)
    assert re.findall(r"^k=(\d)  best", left, re.MULTILINE) == ["1", "2", "3"]
    assert "generation" not in re.sub(r"(?s)note:.*?\n(?=\S|$)", "", left), "the bars vanish when the run is over"
