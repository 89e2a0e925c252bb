"""Forks of a process that has imported torch are what processes of Python would be."""

import signal
from pathlib import Path

from tests.warm import python


def test_a_fork_has_torch_and_nothing_of_the_library() -> None:
    program = "import sys; print([name in sys.modules for name in ('torch', 'torch._dynamo', 'esgd')])"
    assert python("-c", program).stdout == "[True, True, False]\n"


def test_it_has_arguments_a_folder_and_an_environment_of_its_own(tmp_path: Path) -> None:
    program = "import os, sys; print(sys.argv[1:], os.getcwd(), dict(os.environ), sys.path[0], __name__)"
    (tmp_path / "script.py").write_text(program)
    done = python("script.py", "a", "b", cwd=tmp_path, env={"ONE": "1"})
    assert done.stdout == f"['a', 'b'] {tmp_path} {{'ONE': '1'}} {tmp_path} __main__\n"


def test_how_it_ended_is_told() -> None:
    ends = ("pass", "raise SystemExit(3)", "1 / 0", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    done = [python("-c", end) for end in ends]
    assert [each.returncode for each in done] == [0, 3, 1, -signal.SIGKILL]
    assert done[2].stderr.endswith("ZeroDivisionError: division by zero\n")


def test_what_it_writes_comes_in_the_order_in_which_it_is_written() -> None:
    program = "import sys\nfor word in 'abc':\n    print(word)\n    print(word.upper(), file=sys.stderr)"
    assert python("-u", "-c", program, together=True).stdout.split() == ["a", "A", "b", "B", "c", "C"]
