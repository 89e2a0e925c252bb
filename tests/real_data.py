"""Real datasets for tests, from where a machine has them; a test that needs one is skipped where there is none."""

from __future__ import annotations

import atexit
import os
import runpy
import shutil
from functools import cache
from getpass import getuser
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[1]
FOLDERS = {"cifar10": "cifar-10-batches-bin", "ptb": "ptb", "an4": "an4"}


def real_data(name: str) -> Path:
    """A data folder (what --data takes) that holds the set `name` as its publisher lays it out.

    It is $ESGD_DATA where that has the set. Otherwise packed copies are looked for in $ESGD_SHARED and in
    `../shared/data` beside the repository, and unpacked once per machine.
    """
    own = os.environ.get("ESGD_DATA")
    if own and (Path(own) / FOLDERS[name]).is_dir():
        return Path(own)
    packed = [Path(os.environ["ESGD_SHARED"])] if os.environ.get("ESGD_SHARED") else []
    packed.append(ROOT.parent / "shared" / "data")
    script = next((folder / "unpack.py" for folder in packed if (folder / "unpack.py").is_file()), None)
    if script is None:
        places = ", ".join(map(str, [*([own] if own else []), *packed]))
        pytest.skip(f"no real data: {FOLDERS[name]} is in none of {places}; set ESGD_DATA to a folder that has it")
    return _unpacked(name, script)


@cache
def half_of_an4() -> Path:
    """A data folder whose AN4 has every other training utterance, of all speakers: it is aligned in half the time.

    One for each process, because what is aligned is kept by its folder.
    """
    whole, home = real_data("an4") / FOLDERS["an4"], Path(mkdtemp(prefix="esgd-an4-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    lists = home / FOLDERS["an4"] / "etc"
    lists.mkdir(parents=True)
    (lists.parent / "feat").symlink_to(whole / "feat")
    for file in (whole / "etc").iterdir():
        lines = file.read_text().splitlines(keepends=True)
        (lists / file.name).write_text("".join(lines[::2] if file.name.startswith("an4_train.") else lines))
    return home


def _unpacked(name: str, script: Path) -> Path:
    """Workers of one test run meet here: the first unpacks, aside and then renamed; the others wait for it."""
    version = sha256("".join(f"{file.name}{file.stat().st_size}" for file in sorted(script.parent.iterdir())).encode())
    cache = Path(gettempdir()) / f"esgd-real-data-{getuser()}-{version.hexdigest()[:8]}"
    cache.mkdir(exist_ok=True)
    with FileLock(cache / f".{name}.lock"):
        if not (cache / FOLDERS[name]).is_dir():
            with TemporaryDirectory(dir=cache) as aside:
                unpack, folder = runpy.run_path(str(script))["SETS"][name]
                unpack(Path(aside))
                (Path(aside) / folder).rename(cache / FOLDERS[name])
    return cache
