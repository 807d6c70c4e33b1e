import io
import os
import re
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from stsbench.core.errors import DataError, OutputError, SourceError
from stsbench.encoders import cached_files
from stsbench.encoders.words import vectors
from stsbench.encoders.words.words import WordsEncoder
from tests.encoders.words.word_files import GLOVE, SENTENCES, cache, glove, rows, write

__all__ = ["cache", "glove"]
pytestmark = pytest.mark.usefixtures("cache")


def test_every_format_gives_the_same_bytes_in_pieces_of_any_size(tmp_path, glove, monkeypatch):
    listed, matrix = rows(GLOVE)
    header = f"{len(listed)} 3\n"
    np.savez(tmp_path / "plain.npz", words=np.array(listed), vectors=matrix)
    columns = np.asfortranarray(matrix.astype(np.float64))
    np.savez_compressed(tmp_path / "small.npz", words=np.array(listed), vectors=columns)
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
    monkeypatch.setattr(vectors, "READ_ROWS", 2)
    for path in files:
        assert WordsEncoder(str(path)).encode(SENTENCES).tobytes() == expected, path.name


def test_words_with_blanks_keep_them_and_of_a_doubled_one_the_first_is_taken(tmp_path, glove):
    opened = WordsEncoder(str(glove)).vectors
    assert opened.shape == (7, 3)
    assert opened.find([". .", ".", "naïve", "na", "", "cat\n"]).tolist() == [4, 6, 5, -1, -1, -1]
    assert opened.take(np.array([4, 0])).tolist() == [[8, 8, 8], [1, 0, 0]]
    path = write(tmp_path / "twice.txt", "a 1\nb 2\na 3\n")
    assert WordsEncoder(str(path)).encode(["a", "b"]).tolist() == [[1], [2]]


GOOD = "".join(f"w{i} {i} 0.5\n" for i in range(100))
BAD_LINES: dict[str, tuple[str | bytes, str]] = {
    "too few": (GOOD + "bad 1\n" + GOOD, r"line 101: 1 values, expected 2 \(the word is 'bad'\)"),
    "too many": (
        GOOD + "bad 1 2 3\n" + GOOD,
        r"line 101: 3 values, expected 2 \(the word is 'bad'\)",
    ),
    "no number": (
        GOOD + "bad 1 x2\n" + GOOD,
        r"line 101: 'x2' is not a finite number \(the word is 'bad'\)",
    ),
    "half a number": (GOOD + "bad 1 2-3\n", r"line 101: '2-3' is not a finite number"),
    "compensating tabs": (
        GOOD + "bad 1\t2 3\nbad 1 x\n",
        r"line 101: '1\t2' is not a finite number",
    ),
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
    "tabs": ("a\t1\t2\n", r"with single blanks between them, got 'a\\t1\\t2'"),
    "one word": ("hello\n", r"line 1: expected a word and its values, .* got 'hello'"),
    "absurd size": (
        "5 99999999999999999999999\na 1\n",
        r"line 1: expected a word .* got '5 9{23}'",
    ),
    "absurd digits": ("9" * 5000 + " 1\na 1\n", r"line 1 promises 9{40} vectors, 1 follow"),
    "gzip": (b"\x1f\x8b\x08\x00rest", r"is packed; unpack it"),
    "no lines": (b"x" * (9 << 20), r"a line of over a million bytes"),
}


@pytest.mark.parametrize("case", BAD_LINES)
@pytest.mark.parametrize("lines", [3, 2048])
def test_bad_files_are_named_with_their_line(tmp_path, cache, monkeypatch, case, lines):
    content, message = BAD_LINES[case]
    path = write(tmp_path / "bad.txt", content)
    monkeypatch.setattr(vectors, "READ_ROWS", lines)
    with pytest.raises(DataError, match=message) as caught:
        WordsEncoder(str(path)).encode(["w1"])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert [p for p in cache.iterdir() if p.is_dir()] == []


def test_bad_archives_are_refused(tmp_path):
    listed, matrix = rows(GLOVE)
    text = np.array(listed)
    arrays = {
        "words is not a file in the archive; save arrays 'words'": {"vectors": matrix},
        r"of plain arrays \(save words as numpy.array\(words, dtype=str\)\): Object arrays": {
            "words": np.array(listed, dtype=object),
            "vectors": matrix,
        },
        r"must be text .* float \(n, d\)": {"words": text, "vectors": matrix.astype(int)},
        r"they are <U5 \(7,\) and float32 \(6, 3\)": {"words": text, "vectors": matrix[:6]},
        "vector of row 2 is not finite": {
            "words": text,
            "vectors": np.where(matrix == 4, np.nan, matrix),
        },
        "holds no word vectors": {"words": text, "vectors": matrix[:, :0]},
    }
    for message, content in arrays.items():
        np.savez(tmp_path / "bad.npz", allow_pickle=True, **content)
        with pytest.raises(DataError, match=message):
            WordsEncoder(str(tmp_path / "bad.npz")).encode(["the"])
    np.savez(tmp_path / "good.npz", words=text, vectors=matrix)
    cut = write(tmp_path / "cut.npz", (tmp_path / "good.npz").read_bytes()[:-200])
    with pytest.raises(DataError, match="cut.npz: .* complete"):
        WordsEncoder(str(cut)).encode(["the"])


def changed_members(archive: bytes, **offsets: int) -> bytes:
    """An archive in which a byte is 1 at an offset in each member's header, and in its entry of the directory."""
    changed = bytearray(archive)
    for mark, offset in ((b"PK\x03\x04", offsets["header"]), (b"PK\x01\x02", offsets["entry"])):
        for match in re.finditer(mark, archive):
            changed[match.start() + offset] = 1
    return bytes(changed)


def test_odd_archives_are_refused(tmp_path):
    np.savez(tmp_path / "good.npz", words=np.array(["a"]), vectors=np.ones((1, 1)))
    good = (tmp_path / "good.npz").read_bytes()
    absurd = io.BytesIO()
    with zipfile.ZipFile(absurd, "w") as archive:
        archive.writestr("words.npy", zipfile.ZipFile(tmp_path / "good.npz").read("words.npy"))
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**23, 3)}
        with archive.open("vectors.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, header)
    cases = {
        "is encrypted, password required": changed_members(good, header=6, entry=8),
        "compression method is not supported": changed_members(good, header=8, entry=10),
        "Python int too large": absurd.getvalue(),
    }
    for message, content in cases.items():
        (tmp_path / "odd.npz").write_bytes(content)
        with pytest.raises(DataError, match=f"odd.npz: is not a complete .npz file .*{message}"):
            WordsEncoder(str(tmp_path / "odd.npz")).encode(["a"])


def test_an_archive_that_claims_too_much_is_refused(tmp_path):
    np.savez(tmp_path / "good.npz", words=np.array(["a"]), vectors=np.ones((1, 1)))
    content = bytearray((tmp_path / "good.npz").read_bytes())
    size = content.find(b"PK\x01\x02") + 24
    content[size : size + 4] = (3 << 30).to_bytes(4, "little")
    bomb = tmp_path / "bomb.npz"
    bomb.write_bytes(content)
    with pytest.raises(DataError, match="bomb.npz: refused to read: it unpacks to more than 2,048"):
        WordsEncoder(str(bomb)).encode(["a"])


def test_the_home_of_nobody_is_no_folder():
    with pytest.raises(SourceError, match="word vectors '~nobody-here/x.txt' are not on this"):
        WordsEncoder("~nobody-here/x.txt")


# --- converted once ---


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is past the moment in which a file may change unseen, and every file counts as large."""
    now = time.time_ns
    monkeypatch.setattr(cached_files, "MIN_CACHED_BYTES", 0)
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10**10)


@pytest.mark.usefixtures("later")
def test_a_file_is_hashed_and_converted_once(glove, monkeypatch):
    expected = WordsEncoder(str(glove)).encode(SENTENCES).tobytes()

    real, opened = Path.open, []

    def watched(path, *mode, **options):
        opened.append(path.name)
        return real(path, *mode, **options)

    monkeypatch.setattr(Path, "open", watched)
    assert WordsEncoder(str(glove)).encode(SENTENCES).tobytes() == expected
    assert "vectors.f32" in opened and glove.name not in opened


def test_a_file_changed_this_moment_is_not_remembered(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(cached_files, "MIN_CACHED_BYTES", 0)
    path = tmp_path / "new.txt"
    path.write_text("a 1\n")
    WordsEncoder(str(path))
    assert not (cache.parent / "digests.json").exists()


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "\0"])
def test_a_damaged_memory_is_no_harm(glove, cache, content, monkeypatch):
    monkeypatch.setattr(cached_files, "MIN_CACHED_BYTES", 0)
    expected = WordsEncoder(str(glove)).sha256
    (cache.parent / "digests.json").write_text(content)
    assert WordsEncoder(str(glove)).sha256 == expected


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("name", ["vectors.f32", "keys.npy", "rows.npy", "sha256.json"])
@pytest.mark.parametrize(
    "damage", [lambda c: c[:-2] + bytes([c[-2] ^ 1]) + c[-1:], lambda c: c[:-3], None]
)
def test_a_damaged_folder_is_made_again(glove, cache, name, damage):
    expected = WordsEncoder(str(glove)).encode(SENTENCES).tobytes()
    (path,) = cache.glob(f"*/{name}")
    content = path.read_bytes()
    path.write_bytes(damage(content)) if damage else path.unlink()
    assert WordsEncoder(str(glove)).encode(SENTENCES).tobytes() == expected
    assert path.read_bytes() == content


@pytest.mark.usefixtures("later")
def test_a_killed_conversion_leaves_nothing_to_be_found(glove, cache, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    stale = cache / "0.1.partial"
    stale.mkdir(parents=True)
    os.utime(stale, (1_700_000_000, 1_700_000_000))
    with monkeypatch.context() as patched:
        patched.setattr(np, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            _ = WordsEncoder(str(glove)).vectors
    assert list(cache.iterdir()) == []
    assert WordsEncoder(str(glove)).encode(["cat"]).tolist() == [[0, 2, 0]]


def test_two_processes_converting_at_once_agree(glove, cache, monkeypatch):
    save = np.save

    def other_first(*given):
        """The other process is done while ours is still writing."""
        monkeypatch.setattr(np, "save", save)
        WordsEncoder(str(glove)).encode(["cat"])
        save(*given)

    monkeypatch.setattr(np, "save", other_first)
    assert WordsEncoder(str(glove)).encode(["cat"]).tolist() == [[0, 2, 0]]
    assert sum(p.is_dir() for p in cache.iterdir()) == 1


def test_a_full_disk_is_one_clear_line(glove, cache, monkeypatch):
    def full(*_):
        raise OSError(28, "full", "/cache/vectors.npy")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OutputError, match="full; .* STSBENCH_CACHE"):
        WordsEncoder(str(glove)).encode(["cat"])
