"""What a command answers before it has imported PyTorch, and what Ctrl-C does meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType

import pytest

from esgd import cli, engines, operators, progress, rules, schedules, species
from esgd._serialization import kind_of
from esgd.cli import options
from esgd.cli.docstrings import first_paragraph
from esgd.cli.inventory import inventory
from esgd.watch import ServerAddress

ANSWERED_AT_ONCE = [
    ("--help", 0, "Train a population"),
    ("run --help", 0, "random_search"),
    ("list", 0, "relative_gaussian"),
    ("list --json", 0, '"relative_gaussian"'),
    ("", 2, "Usage"),
    ("rum digits", 2, "No such command"),
    ("run digits --sead 3", 2, "No such option"),
    ("run", 2, "Missing argument"),
    ("run digist", 2, "Did you mean 'digits'?"),
    ("run digits --rules paqer", 2, "Did you mean 'paper'?"),
    ("run digits --progress bar", 2, "Did you mean 'bars'?"),
    ("run digits --work 3", 2, "--work 3 is for --rules"),
    ("compare digist", 2, "Did you mean 'digits'?"),
    ("explain digist", 2, "Did you mean 'digits'?"),
    ("resume nowhere", 3, "is not the folder of a run"),
    ("data cifar", 2, "Did you mean 'cifar10'?"),
]

PROGRAM = """
import contextlib, io, json, sys
from esgd.cli import main

for arguments in sys.argv[1:]:
    sys.argv = ["esgd", *arguments.split()]
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)) as said:
        with contextlib.redirect_stderr(said):
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
    print(json.dumps((code, said.buffer.getvalue().decode(), "torch" in sys.modules)))
"""


def test_help_lists_and_mistakes_do_not_import_pytorch(tmp_path: Path) -> None:
    arguments = [written for written, _, _ in ANSWERED_AT_ONCE]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    for (written, code, words), line in zip(ANSWERED_AT_ONCE, done.stdout.splitlines(), strict=True):
        returned, said, imported = json.loads(line)
        assert (returned, imported) == (code, False), written
        assert words in said, written


def test_options_name_what_there_is() -> None:
    assert tuple(rules.RULES) == options.RULES
    assert options.PROGRESS == progress.PROGRESS
    assert ServerAddress.port == options.PORT


@pytest.mark.parametrize("room", [species, operators, schedules, engines])
def test_what_is_listed_is_what_the_package_has(room: ModuleType) -> None:
    public = [getattr(room, name) for name in room.__all__]
    documented = {
        kind_of(cls): " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        for cls in public
        if isinstance(cls, type) and is_dataclass(cls)
    }
    listed = inventory()[room.__name__.rpartition(".")[2]]
    assert {name: about for name, about in listed.items() if name != "auto"} == documented


def test_a_module_that_cannot_be_found_has_no_docstring() -> None:
    assert first_paragraph("no_such_package.inner", "study") is None
    assert first_paragraph("esgd.no_such_module", "study") is None
    assert first_paragraph("esgd.schedules", "no_such_class") is None
    assert first_paragraph("sys", "exit") is None


INTERRUPTED_IMPORT = """
import os, signal
try:
    os.kill(os.getpid(), signal.Signals[os.environ["SIGNAL"]])
    signal.pause()
except BaseException:
    raise RuntimeError("initialization failed")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_pytorch_is_imported_ends_the_command_in_silence(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(INTERRUPTED_IMPORT)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "esgd", "run", "digits"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "SIGNAL": number.name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_command_that_is_told_to_ignore_interrupts_ignores_them_while_it_imports(tmp_path: Path) -> None:
    ignoring = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise RuntimeError('the import went on')"
    (tmp_path / "torch.py").write_text(ignoring)
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.argv = ['esgd', 'run', 'digits']; "
        "from esgd.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the import went on" in done.stderr


def test_an_interrupt_after_the_end_of_a_command_ends_it_without_a_traceback(tmp_path: Path) -> None:
    program = (
        "import atexit, os, signal, sys; atexit.register(os.kill, os.getpid(), signal.SIGINT); "
        "sys.argv = ['esgd', 'list']; from esgd.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert "relative_gaussian" in done.stdout


def test_a_command_that_gets_no_memory_for_its_imports_says_so_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        """An import system on a machine without memory."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "esgd.cli.ending":
                raise MemoryError

    monkeypatch.delitem(sys.modules, "esgd.cli.ending", raising=False)
    monkeypatch.delattr("esgd.cli.ending", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Full(), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["esgd", "list"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    said = capsys.readouterr().err
    assert said.startswith("error: there is no memory left for")
    assert "Traceback" not in said
