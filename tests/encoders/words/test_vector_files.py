import numpy as np
import pytest

from stsbench.encoders.words import vector_files
from stsbench.encoders.words.words import WordsEncoder
from stsbench.errors import DataError
from tests.encoders.words.word_files import GLOVE, SENTENCES, cache, glove, rows, write

__all__ = ["cache", "glove"]
pytestmark = pytest.mark.usefixtures("cache")


def test_every_format_gives_the_same_bytes(tmp_path, glove):
    listed, matrix = rows(GLOVE)
    header = f"{len(listed)} 3\n"
    np.savez(tmp_path / "plain.npz", words=np.array(listed), vectors=matrix)
    np.savez_compressed(tmp_path / "small.npz", words=np.array(listed), vectors=matrix.astype(np.float64))
    files = [
        write(tmp_path / "w2v.txt", header + GLOVE),
        write(tmp_path / "fast.vec", header + GLOVE.replace("\n", " \n")),
        write(tmp_path / "short.vec", "2 3\n" + GLOVE),
        write(tmp_path / "windows.txt", GLOVE.replace("\n", "\r\n")),
        write(tmp_path / "bom.txt", "\ufeff" + header + GLOVE),
        write(tmp_path / "no_end.txt", GLOVE.rstrip("\n")),
        tmp_path / "plain.npz",
        tmp_path / "small.npz",
    ]
    expected = WordsEncoder(str(glove)).encode(SENTENCES).tobytes()
    for path in files:
        assert WordsEncoder(str(path)).encode(SENTENCES).tobytes() == expected, path.name


def test_words_with_blanks_keep_them(glove):
    opened = WordsEncoder(str(glove)).vectors
    assert opened.shape == (7, 3)
    assert opened.find([". .", ".", "naïve", "na", "", "cat\n"]).tolist() == [4, 6, 5, -1, -1, -1]
    assert opened.take(np.array([4, 0])).tolist() == [[8, 8, 8], [1, 0, 0]]


def test_of_a_doubled_word_the_first_is_taken(tmp_path):
    path = write(tmp_path / "twice.txt", "a 1\nb 2\na 3\n")
    assert WordsEncoder(str(path)).encode(["a", "b"]).tolist() == [[1], [2]]


def test_reading_in_small_pieces_changes_nothing(glove, monkeypatch):
    whole = list(vector_files.read_blocks(glove))
    monkeypatch.setattr(vector_files, "PIECE_BYTES", 5)
    pieces = list(vector_files.read_blocks(glove))
    assert len(pieces) > len(whole) == 1
    assert [w for block in pieces for w in block.words] == whole[0].words
    assert np.concatenate([block.vectors for block in pieces]).tobytes() == whole[0].vectors.tobytes()


GOOD = "".join(f"w{i} {i} 0.5\n" for i in range(100))
BAD_LINES: dict[str, tuple[str | bytes, str]] = {
    "too few": (GOOD + "bad 1\n" + GOOD, r"line 101: 1 values, expected 2 \(the word is 'bad'\)"),
    "too many": (GOOD + "bad 1 2 3\n" + GOOD, r"line 101: 3 values, expected 2 \(the word is 'bad'\)"),
    "no number": (GOOD + "bad 1 x2\n" + GOOD, r"line 101: 'x2' is not a finite number \(the word is 'bad'\)"),
    "half a number": (GOOD + "bad 1 2-3\n", r"line 101: '2-3' is not a finite number"),
    "compensating tabs": (GOOD + "bad 1\t2 3\nbad 1 x\n", r"line 101: '1\t2' is not a finite number"),
    "nan": (GOOD + "bad nan 1\n", r"line 101: 'nan' is not a finite number"),
    "overflow": (GOOD + "bad 1 1e99\n", r"line 101: '1e99' is not a finite number"),
    "empty value": ("a 1 2\nbad 1  2\n", r"line 2: '' is not a finite number"),
    "empty line": (GOOD + "\n" + GOOD, r"line 101: 0 values, expected 2"),
    "below a header": ("200 2\n" + GOOD + "bad 1\n", r"line 102: 1 values, expected 2"),
    "NUL": (GOOD + "b\0d 1 2\n", r"line 101: has a NUL byte; is it a binary file"),
    "not UTF-8": (GOOD.encode() + b"caf\xe9 1 2\n", r"line 101: is not UTF-8 \('caf"),
    "cut short": ("101 2\n" + GOOD, r"line 1 promises 101 vectors, 100 follow"),
    "header only": ("5 3\n", r"line 1 promises 5 vectors, 0 follow"),
    "no vectors": ("0 3\n", r"holds no word vectors"),
    "empty": ("", r"line 1: expected a word and its values"),
    "one word": ("hello\n", r"line 1: expected a word and its values, got 'hello'"),
    "gzip": (b"\x1f\x8b\x08\x00rest", r"is packed; unpack it"),
    "no lines": (b"x" * (9 << 20), r"a line of over a million bytes"),
}


@pytest.mark.parametrize("case", BAD_LINES)
@pytest.mark.parametrize("piece", [64, 8 << 20])
def test_bad_files_are_named_with_their_line(tmp_path, cache, monkeypatch, case, piece):
    content, message = BAD_LINES[case]
    path = write(tmp_path / "bad.txt", content)
    monkeypatch.setattr(vector_files, "PIECE_BYTES", max(piece, 2 << 20) if case == "no lines" else piece)
    with pytest.raises(DataError, match=message) as caught:
        WordsEncoder(str(path)).encode(["w1"])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert [p for p in cache.iterdir() if p.is_dir()] == []


def test_bad_archives_are_refused(tmp_path):
    listed, matrix = rows(GLOVE)
    text = np.array(listed)
    arrays = {
        "no item named 'words.npy'": {"vectors": matrix},
        "must be text": {"words": np.array(listed, dtype=object), "vectors": matrix},
        r"must be text .* float \(n, d\)": {"words": text, "vectors": matrix.astype(int)},
        r"they are <U5 \(7,\) and float32 \(6, 3\)": {"words": text, "vectors": matrix[:6]},
        "column by column": {"words": text, "vectors": np.asfortranarray(matrix)},
        "vector of row 2 is not finite": {"words": text, "vectors": np.where(matrix == 4, np.nan, matrix)},
    }
    for message, content in arrays.items():
        np.savez(tmp_path / "bad.npz", allow_pickle=True, **content)
        with pytest.raises(DataError, match=message):
            WordsEncoder(str(tmp_path / "bad.npz")).encode(["the"])
    np.savez(tmp_path / "good.npz", words=text, vectors=matrix)
    cut = write(tmp_path / "cut.npz", (tmp_path / "good.npz").read_bytes()[:-200])
    with pytest.raises(DataError, match="is not a complete .npz file"):
        WordsEncoder(str(cut)).encode(["the"])
