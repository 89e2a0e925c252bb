"""SHA256SUMS: the checksums of a run that has ended, in the format of `sha256sum`."""

from __future__ import annotations

import re
from pathlib import Path

from esgd.errors import RunError
from esgd.run.checkpoint import saved
from esgd.run.files import digest, read_words, replace_words

SUMS = "SHA256SUMS"
SUMMED = ("recipe.toml", "manifest.json", "history.jsonl", "checkpoint/history.jsonl", "model.safetensors")
"""What a run is, beside its checkpoints; its report is made from these, and may be made again."""


def write_sums(folder: Path) -> None:
    """Write down the checksums of the run's files, unless they are there already."""
    words = "".join(f"{digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in summed(folder))
    try:
        if read_words(folder / SUMS) == words:
            return
    except (FileNotFoundError, RunError):
        pass  # none yet, or damaged: written below
    replace_words(folder / SUMS, words)


def summed(folder: Path) -> list[Path]:
    """The files that have a checksum; what lies behind a link is elsewhere."""
    checkpoints = [path for path in saved(folder / "checkpoint") if not path.is_symlink()]
    inner = [file for path in checkpoints for file in path.glob("*")]
    return sorted([*(folder / name for name in SUMMED if (folder / name).exists()), *inner])


def read_sums(folder: Path) -> dict[str, str]:
    """File → checksum; `FileNotFoundError` for a run that is not finished, `RunError` for what is no such list."""
    lines = read_words(folder / SUMS).splitlines()
    matches = [re.fullmatch(r"([0-9a-f]{64})  (\S.*)", line) for line in lines]
    if not all(matches):
        raise RunError(f"{folder / SUMS} is damaged: it is not a list of checksums and files. Resume the run.")
    return {match[2]: match[1] for match in matches if match}
