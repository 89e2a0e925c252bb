"""How an error of a worker is told where it cannot travel."""

from __future__ import annotations

import pytest

from esgd.engines.worker_error import Failure


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("two\nlines"), "ValueError: two\nlines"),
        (SyntaxError("invalid syntax", ("f.py", 1, 1, "x = = 1")), "SyntaxError: invalid syntax (f.py, line 1)"),
    ],
    ids=["lines", "syntax"],
)
def test_the_words_are_the_type_and_the_message_without_notes(error: Exception, words: str) -> None:
    error.add_note("Raised in the loss of the task.")
    assert Failure.of(error).words == words
