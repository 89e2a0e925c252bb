"""Taking files out of a downloaded tar archive: the expected ones, under names of ours, all or none."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from collections.abc import Callable, Collection
from gzip import BadGzipFile
from pathlib import Path
from tempfile import TemporaryDirectory

from esgd.errors import DataError
from esgd_paper.data.files import reading, writing


def unpack(
    archive: Path,
    into: Path,
    *,
    wanted: Callable[[str], str | None],
    expected: Collection[str],
    fault: Callable[[Path], str],
) -> None:
    """Put the files that `wanted` has a name for into a folder, unless `fault` has something to say about them.

    The names on disk are ours and never the archive's, and only regular files are read, so that a hostile archive has
    nothing to say about where anything is written.
    """
    with writing(into):
        into.mkdir(parents=True, exist_ok=True)
        aside = TemporaryDirectory(dir=into, prefix=".new-")
    with aside as folder:
        taken = _extract(archive, Path(folder), wanted)
        absent = [name for name in expected if name not in taken]
        if absent:
            raise DataError(
                f"{archive} does not hold {', '.join(absent)}: it is another archive, or an older or newer one. "
                f"Remove it, then run the same command again."
            )
        wrong = fault(Path(folder))
        if wrong:
            raise DataError(f"{archive} does not hold what the publisher offers: {wrong}. Nothing of it was kept.")
        with writing(into):
            for name in taken:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).replace(into / name)


def _extract(archive: Path, folder: Path, wanted: Callable[[str], str | None]) -> list[str]:
    taken = []
    try:
        with reading(archive), tarfile.open(archive) as tar:
            for member in tar:
                name = wanted(member.name)
                if name is None:
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise DataError(f"{archive} has {member.name} as something other than a file. Remove the archive.")
                with writing(folder / name, needed=member.size):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    with (folder / name).open("wb") as file:
                        shutil.copyfileobj(content, file)
                taken.append(name)
    except (tarfile.TarError, EOFError, zlib.error, BadGzipFile) as error:
        raise DataError(
            f"{archive} is not a whole tar archive: {error}. Remove it, then run the same command again."
        ) from error
    return taken
