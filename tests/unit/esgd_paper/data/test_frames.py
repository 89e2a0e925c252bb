"""Frames that users bring: npz files and Kaldi's archives, right and wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esgd.errors import DataError, MissingExtraError
from esgd_paper.data import frames_kaldi, frames_npz

GOOD: dict[str, Any] = {
    "features": np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32),
    "states": np.array([0, 0, 1, 2, 2, 1, 1, 0, 3], np.int32),
    "offsets": np.array([0, 4, 9]),
    "names": np.array(["a-1", "b-2"]),
}


def npz(folder: Path, **changes: Any) -> Path:
    path = folder / "frames.npz"
    np.savez(path, **{name: array for name, array in {**GOOD, **changes}.items() if array is not None})
    return path


def test_an_npz_file_gives_its_utterances(tmp_path: Path) -> None:
    frames = frames_npz(npz(tmp_path), dimension=4, states=4)
    assert frames.names == ("a-1", "b-2")
    assert [len(each) for each in frames.features] == [4, 5]
    assert np.array_equal(np.concatenate(frames.features), GOOD["features"])
    assert np.array_equal(np.concatenate(frames.states), GOOD["states"])
    assert {each.dtype for each in frames.features} == {np.dtype(np.float32)}
    assert {each.dtype for each in frames.states} == {np.dtype(np.int64)}


def test_double_precision_is_read_as_single(tmp_path: Path) -> None:
    frames = frames_npz(npz(tmp_path, features=GOOD["features"].astype(np.float64)))
    assert np.array_equal(frames.features[0], GOOD["features"][:4])
    with pytest.raises(DataError, match="'a-1' has NaN or inf in frame 0"):
        frames_npz(npz(tmp_path, features=np.full((9, 4), 1e300)))


def test_names_may_be_bytes(tmp_path: Path) -> None:
    assert frames_npz(npz(tmp_path, names=np.array([b"a-1", b"b-2"]))).names == ("a-1", "b-2")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"states": None}, "has no array states; it has features, offsets, names"),
        ({"states": np.array([0, 0, 1, 2, 2, 1, -1, 0, 3])}, "'b-2' has the state -1 in frame 2, outside 0 … 3"),
        ({"states": np.array([0, 0, 1, 4, 2, 1, 1, 0, 3])}, "'a-1' has the state 4 in frame 3, outside 0 … 3"),
        ({"states": np.zeros(8, int)}, "has 9 frames of features, but 8 states"),
        ({"states": np.zeros(9)}, "states is of type float64, and integers were expected"),
        ({"features": GOOD["features"][:, :3]}, "'a-1' has 3 features to the frame, and 4 were expected"),
        ({"features": GOOD["features"][0]}, "features has the shape .4,., and 2 dimensions were expected"),
        (
            {"features": np.where(np.arange(9)[:, None] == 6, np.inf, GOOD["features"])},
            "'b-2' has NaN or inf in frame 2",
        ),
        ({"offsets": np.array([0, 4, 8])}, "There must be one more offset than names, from 0 to the number of frames"),
        ({"offsets": np.array([0, 4, 5, 9])}, "has 4 offsets .* for 2 names"),
        ({"offsets": np.array([], int)}, "has 0 offsets"),
        ({"offsets": np.array([0, 9, 9])}, "'b-2' has no frames"),
        ({"offsets": np.array([0, 10, 9], np.uint64)}, "offset 2 is 9, after 10"),
        ({"names": np.array([], str)}, "has no utterances"),
        ({"names": np.array(["a-1", "a-1"])}, "'a-1' is there twice"),
        ({"names": np.array([b"a-1", None], object)}, "is not an npz file of plain arrays: .*pickle"),
    ],
)
def test_a_fault_in_an_npz_file_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = npz(tmp_path, **changes)
    with pytest.raises(DataError, match=said) as wrong:
        frames_npz(path, dimension=4, states=4)
    assert str(path) in str(wrong.value)


def test_without_a_number_of_states_only_negative_ones_are_wrong(tmp_path: Path) -> None:
    assert frames_npz(npz(tmp_path)).states[1].max() == 3
    with pytest.raises(DataError, match="'a-1' has the state -5 in frame 0, outside 0 and above"):
        frames_npz(npz(tmp_path, states=np.full(9, -5)))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a zip", b"\x93NUMPY\x01", b"words"])
def test_what_is_no_npz_file_is_named_with_its_first_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "frames.npz").write_bytes(content)
    with pytest.raises(DataError, match="frames.npz is not an npz file of plain arrays"):
        frames_npz(tmp_path / "frames.npz")


def test_a_plain_npy_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "frames.npy", GOOD["features"])
    with pytest.raises(DataError, match="frames.npy is not an npz file"):
        frames_npz(tmp_path / "frames.npy")


def test_a_truncated_npz_file_is_named(tmp_path: Path) -> None:
    content = npz(tmp_path).read_bytes()
    (tmp_path / "frames.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="frames.npz is not an npz file"):
        frames_npz(tmp_path / "frames.npz")


def test_an_npz_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere.npz cannot be read: No such file"):
        frames_npz(tmp_path / "nowhere.npz")


def test_without_the_reader_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaldi_native_io", None)
    with pytest.raises(MissingExtraError, match="pip install 'esgd.speech.'"):
        frames_kaldi(tmp_path / "feats.ark", tmp_path / "pdf.ark")


@pytest.fixture
def kaldi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two utterances as Kaldi writes them: feats.ark and pdf.ark, with an scp file for each."""
    io = pytest.importorskip("kaldi_native_io", reason="the extra `speech` is not installed")
    monkeypatch.chdir(tmp_path)
    with (
        io.FloatMatrixWriter("ark,scp:feats.ark,feats.scp") as feats,
        io.Int32VectorWriter("ark,scp:pdf.ark,pdf.scp") as pdf,
    ):
        for name, begin, end in (("a-1", 0, 4), ("b-2", 4, 9)):
            feats.write(name, GOOD["features"][begin:end])
            pdf.write(name, GOOD["states"][begin:end].tolist())
    return tmp_path


@pytest.mark.parametrize("features", ["feats.ark", "feats.scp"])
@pytest.mark.parametrize("alignments", ["pdf.ark", "pdf.scp"])
def test_kaldis_archives_and_scripts_give_the_same(kaldi: Path, features: str, alignments: str) -> None:
    frames = frames_kaldi(kaldi / features, kaldi / alignments, dimension=4, states=4)
    assert frames.names == ("a-1", "b-2")
    assert np.array_equal(np.concatenate(frames.features), GOOD["features"])
    assert np.array_equal(np.concatenate(frames.states), GOOD["states"])
    assert {each.dtype for each in frames.states} == {np.dtype(np.int64)}


def test_compressed_double_and_text_archives_are_read_too(kaldi: Path) -> None:
    import kaldi_native_io as io

    matrix = GOOD["features"][:4]
    with io.CompressedMatrixWriter("ark:packed.ark") as writer:
        writer.write("a-1", matrix, io.CompressionMethod.kTwoByteAuto)
    with io.DoubleMatrixWriter("ark:double.ark") as writer:
        writer.write("a-1", matrix.astype(np.float64))
    with io.FloatMatrixWriter("ark,t:text.ark") as writer:
        writer.write("a-1", matrix)
    (kaldi / "one.ark").write_text("a-1 0 0 1 2\n")
    for name in ("packed.ark", "double.ark", "text.ark"):
        frames = frames_kaldi(kaldi / name, kaldi / "one.ark")
        assert frames.features[0] == pytest.approx(matrix, abs=1e-3)
        assert frames.states[0].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("name", ["feats.ark", "pdf.ark"])
def test_a_truncated_archive_is_named_with_the_last_utterance(kaldi: Path, name: str) -> None:
    (kaldi / name).write_bytes((kaldi / name).read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name} cannot be read after the utterance 'a-1': it is truncated"):
        frames_kaldi(kaldi / "feats.ark", kaldi / "pdf.ark")


def test_an_archive_of_another_kind_is_named(kaldi: Path) -> None:
    with pytest.raises(DataError, match="pdf.ark cannot be read at its beginning, b'a-1 .*of another kind"):
        frames_kaldi(kaldi / "pdf.ark", kaldi / "pdf.ark")


def test_an_archive_that_is_not_there_is_named(kaldi: Path) -> None:
    with pytest.raises(DataError, match="nowhere.ark cannot be read: No such file"):
        frames_kaldi(kaldi / "nowhere.ark", kaldi / "pdf.ark")


def test_a_script_never_runs_a_command(kaldi: Path) -> None:
    (kaldi / "feats.scp").write_text("a-1 feats.ark:4\nb-2 touch harm; cat feats.ark |\n")
    with pytest.raises(DataError, match="feats.scp:2 reads 'b-2' from the command 'touch harm; cat feats.ark |'"):
        frames_kaldi(kaldi / "feats.scp", kaldi / "pdf.ark")
    assert not (kaldi / "harm").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("b-2 nowhere.ark:4", "feats.scp:2: 'b-2' cannot be read from nowhere.ark:4"),
        ("b-2 feats.ark:7", "feats.scp:2: 'b-2' cannot be read from feats.ark:7"),
        ("b-2", "feats.scp:2 is 'b-2', and a name and a place were expected"),
        ("", "feats.scp:2 is '', and a name and a place were expected"),
    ],
)
def test_a_line_of_a_script_that_leads_nowhere_is_named(kaldi: Path, line: str, said: str) -> None:
    (kaldi / "feats.scp").write_text(f"a-1 feats.ark:4\n{line}\n")
    with pytest.raises(DataError, match=said):
        frames_kaldi(kaldi / "feats.scp", kaldi / "pdf.ark")


def test_compressed_alignments_are_refused_with_how_to_convert_them(kaldi: Path) -> None:
    with pytest.raises(DataError, match="ali.1.gz is compressed, .* transition-ids. .*ali-to-pdf"):
        frames_kaldi(kaldi / "feats.ark", kaldi / "ali.1.gz")


def test_an_utterance_in_one_archive_only_is_named(kaldi: Path) -> None:
    (kaldi / "one.scp").write_text((kaldi / "pdf.scp").read_text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="feats.ark: utterance 'b-2' has no states in .*one.scp"):
        frames_kaldi(kaldi / "feats.ark", kaldi / "one.scp")
    (kaldi / "one.scp").write_text((kaldi / "feats.scp").read_text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="pdf.ark: utterance 'b-2' has no features in .*one.scp"):
        frames_kaldi(kaldi / "one.scp", kaldi / "pdf.ark")


def test_an_utterance_that_comes_twice_is_named(kaldi: Path) -> None:
    (kaldi / "feats.scp").write_text("a-1 feats.ark:4\na-1 feats.ark:4\n")
    with pytest.raises(DataError, match="feats.scp: utterance 'a-1' is there twice"):
        frames_kaldi(kaldi / "feats.scp", kaldi / "pdf.ark")


def test_an_alignment_of_another_length_is_named(kaldi: Path) -> None:
    (kaldi / "pdf.ark").write_text("a-1 0 0 1\nb-2 1 1 1 1 1\n")
    with pytest.raises(DataError, match="'a-1' has 4 frames of features, but 3 states"):
        frames_kaldi(kaldi / "feats.ark", kaldi / "pdf.ark")


def test_a_pdf_out_of_range_is_named_with_utterance_and_frame(kaldi: Path) -> None:
    with pytest.raises(DataError, match="'b-2' has the state 3 in frame 4, outside 0 … 2"):
        frames_kaldi(kaldi / "feats.ark", kaldi / "pdf.ark", states=3)
