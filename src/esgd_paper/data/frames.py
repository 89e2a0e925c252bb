"""What users of BN50, SWB300 or any other speech corpus bring: features and state labels, frame by frame.

Both corpora are sold by the LDC, so nothing can be downloaded. An npz file made with `np.savez` has four arrays:

    features  float (N, d)    the frames of all utterances, one after another
    states    int   (N,)      the HMM state of every frame, from 0
    offsets   int   (U + 1,)  utterance u is frames offsets[u] to offsets[u + 1]; the first is 0, the last is N
    names     str   (U,)      what the utterances are called

From Kaldi come an archive (ark) or script (scp) of feature matrices and one of integer vectors. Those must be pdf-ids:
`ali.*.gz` holds transition-ids, which `ali-to-pdf final.mdl "ark:gunzip -c ali.*.gz |" ark:pdf.ark` converts.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esgd.errors import DataError, MissingExtraError
from esgd_paper.data.files import beginning, reading, text

ARRAYS = {"features": 2, "states": 1, "offsets": 1, "names": 1}
"""The arrays of an npz file and how many dimensions each has."""

_PDF_IDS = 'Convert them: ali-to-pdf final.mdl "ark:gunzip -c ali.*.gz |" ark:pdf.ark'


@dataclass(frozen=True, eq=False)
class Frames:
    """Utterances as `features`, each float32 (frames, d), and `states`, each int64 (frames,)."""

    names: tuple[str, ...]
    features: tuple[NDArray[np.float32], ...]
    states: tuple[NDArray[np.int64], ...]


def frames_npz(path: Path, *, dimension: int | None = None, states: int | None = None) -> Frames:
    """Read an npz file; `dimension` and `states`, where given, are what the network expects."""
    arrays = _arrays(path)
    features, labels, offsets = arrays["features"], arrays["states"], arrays["offsets"].astype(np.int64)
    try:
        names = arrays["names"].astype(str).tolist()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: names are bytes that are no text: {error}. Write them as strings.") from error
    if len(labels) != len(features):
        raise DataError(
            f"{path} has {len(features):,} frames of features, but {len(labels):,} states. Give every frame one."
        )
    if not names:
        raise DataError(f"{path} has no utterances: names is empty.")
    if len(offsets) != len(names) + 1 or offsets[0] != 0 or offsets[-1] != len(features):
        raise DataError(
            f"{path} has {len(offsets)} offsets from {offsets[:1]} to {offsets[-1:]} for {len(names)} names and "
            f"{len(features):,} frames. There must be one more offset than names, from 0 to the number of frames."
        )
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if len(falls):
        k = int(falls[0]) + 1
        raise DataError(f"{path}: offset {k} is {offsets[k]}, after {offsets[k - 1]}. Offsets only grow.")
    cuts = offsets[1:-1]
    rows = zip(names, np.split(features, cuts), np.split(labels, cuts), strict=True)
    return _frames(rows, path, path, dimension, states)


def frames_kaldi(
    features: Path, alignments: Path, *, dimension: int | None = None, states: int | None = None
) -> Frames:
    """Read Kaldi's ark or scp files of features and of pdf-ids; every utterance must be in both."""
    try:
        from kaldi_native_io import FloatMatrix, read_int32_vector, table_types
    except ImportError as error:
        raise MissingExtraError("kaldi_native_io", "speech", "Reading Kaldi's files") from error
    # The public table readers keep to themselves whether an archive ended or broke off; the classes beneath tell.
    matrices = _table(features, FloatMatrix.read, table_types._SequentialFloatMatrixReader)
    vectors = dict(_table(alignments, read_int32_vector, table_types._SequentialInt32VectorReader))

    def rows() -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
        for name, matrix in matrices:
            if name not in vectors:
                raise DataError(f"{features}: utterance {name!r} has no states in {alignments}. Leave it out of both.")
            yield name, np.array(matrix.numpy()), np.array(vectors[name], np.int64)

    frames = _frames(rows(), features, alignments, dimension, states)
    kept = set(frames.names)
    for name in vectors:
        if name not in kept:
            raise DataError(f"{alignments}: utterance {name!r} has no features in {features}. Leave it out of both.")
    return frames


def _table(path: Path, read: Callable[[str], Any], reader: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """The names and objects of an archive, or of the places in archives that a script lists."""
    if path.suffix == ".gz":
        raise DataError(f"{path} is compressed, as Kaldi's alignments are; those are transition-ids. {_PDF_IDS}")
    if "|" in str(path):
        raise DataError(f"{path} would be taken for a command because of its '|'. Rename it.")
    return _script(path, read) if path.suffix == ".scp" else _archive(path, reader())


def _script(path: Path, read: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text(path).splitlines(), start=1):
        name, place = [*line.split(maxsplit=1), "", ""][:2]
        place = place.strip()
        if not place:
            raise DataError(
                f"{path}:{number} is {line!r}, and a name and a place were expected: 'utterance feats.ark:42'."
            )
        if "|" in place or place == "-":
            raise DataError(
                f"{path}:{number} reads {name!r} from the command {place!r}. Reading data runs nothing here: write "
                f"an archive first, with copy-feats or copy-int-vector."
            )
        try:
            yield name, read(place)
        except RuntimeError as error:
            raise DataError(
                f"{path}:{number}: {name!r} cannot be read from {place}. Places are relative to the folder you are "
                f"in; the archive is missing, truncated or of another kind."
            ) from error


def _archive(path: Path, reader: Any) -> Iterator[tuple[str, Any]]:
    with reading(path):
        first = beginning(path)
    name, whole = "", reader.open(f"ark:{path}")
    if whole:
        while not reader.done:
            name = reader.key
            yield name, reader.value
            reader.next()
        whole = reader.close()
    if not whole:
        where = f"after the utterance {name!r}" if name else f"at its beginning, {first!r}"
        raise DataError(f"{path} cannot be read {where}: it is truncated, damaged or of another kind.")


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            absent = [name for name in ARRAYS if name not in archive]
            if absent:
                raise DataError(
                    f"{path} has no array {', '.join(absent)}; it has {', '.join(archive.files) or 'none'}. Write it "
                    f"with np.savez(path, features=…, states=…, offsets=…, names=…)."
                )
            arrays = {name: archive[name] for name in ARRAYS}
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, AttributeError, TypeError, MemoryError) as error:
        raise DataError(
            f"{path} is not an npz file of plain arrays: {error}. It begins with {beginning(path)!r}. Write it with "
            f"np.savez; arrays of Python objects would be pickled, and nothing is unpickled here."
        ) from error
    for name, dimensions in ARRAYS.items():
        if arrays[name].ndim != dimensions:
            raise DataError(
                f"{path}: {name} has the shape {arrays[name].shape}, and {dimensions} dimensions were expected."
            )
    for name, kinds, meaning in (
        ("features", "f", "floats"),
        ("states", "iu", "integers"),
        ("offsets", "iu", "integers"),
    ):
        if arrays[name].dtype.kind not in kinds:
            raise DataError(f"{path}: {name} is of type {arrays[name].dtype}, and {meaning} were expected.")
    return arrays


def _frames(
    rows: Iterable[tuple[str, NDArray[Any], NDArray[Any]]],
    path: Path,
    alignments: Path,
    dimension: int | None,
    states: int | None,
) -> Frames:
    """Check every utterance, and name the one at fault."""
    found: dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]] = {}
    for name, matrix, vector in rows:
        if name in found:
            raise DataError(f"{path}: utterance {name!r} is there twice. Give every utterance a name of its own.")
        if not len(matrix):
            raise DataError(f"{path}: utterance {name!r} has no frames. Leave it out.")
        dimension = dimension or matrix.shape[1]
        if matrix.shape[1] != dimension:
            raise DataError(
                f"{path}: utterance {name!r} has {matrix.shape[1]} features to the frame, and {dimension} were "
                f"expected."
            )
        if len(vector) != len(matrix):
            raise DataError(
                f"{alignments}: utterance {name!r} has {len(matrix)} frames of features, but {len(vector)} states. "
                f"Align the same features, without skipping frames."
            )
        with np.errstate(over="ignore"):
            matrix = np.ascontiguousarray(matrix, np.float32)
        lost = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(lost):
            raise DataError(
                f"{path}: utterance {name!r} has NaN or inf in frame {lost[0]}. Compute its features again."
            )
        last = states - 1 if states else np.iinfo(np.int64).max
        wrong = np.flatnonzero((vector < 0) | (vector > last))
        if len(wrong):
            allowed = f"0 … {states - 1}" if states else "0 and above"
            raise DataError(
                f"{alignments}: utterance {name!r} has the state {vector[wrong[0]]} in frame {wrong[0]}, outside "
                f"{allowed}. Number the states from 0, or give the network as many outputs as there are."
            )
        found[name] = matrix, np.ascontiguousarray(vector, np.int64)
    if not found:
        raise DataError(f"{path} has no utterances.")
    features, labels = zip(*found.values(), strict=True)
    return Frames(tuple(found), features, labels)
