import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stsbench import settings
from stsbench.data import hub
from stsbench.encoders import vector_files, vectors, words
from stsbench.encoders.seams import Encoder
from stsbench.encoders.words import WordsEncoder
from stsbench.errors import CardError, DataError, OutputError, SourceError

REAL_VECTORS, REAL_DATA = settings.vectors_folder(), settings.data_folder()
GLOVE = """\
the 1 0 0
cat 0 2 0
Cat 0 0 4
sat -1 0.5 1e-1
. . 8 8 8
naïve 0.25 0.5 -0.75
. 0 0 1
"""
SENTENCES = [
    "the cat sat",
    "the the unknown cat",
    "Cat , naïve .",
    "",
    "😀 שלום עולם",
    "THE CAT",
    "\ud800 the",
    "the cat " * 5000,
    " \u2003sat\u00a0the\n",
]
# Their means, word by word, from the table above.
MEANS: list[list[float]] = [
    [0 / 3, 2.5 / 3, 0.1 / 3],
    [2 / 3, 2 / 3, 0],
    [0.25 / 3, 0.5 / 3, (4 - 0.75 + 1) / 3],
    [0, 0, 0],
    [0, 0, 0],
    [0, 0, 0],
    [1, 0, 0],
    [0.5, 1, 0],
    [0, 0.25, 0.05],
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_VECTORS", raising=False)
    return tmp_path / "cache" / "vectors"


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    return write(tmp_path / "glove.txt", GLOVE)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    # Old enough for its hash to be remembered.
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def rows(text: str) -> tuple[list[str], npt.NDArray[np.float32]]:
    """The words and vectors of three values that a GloVe text holds."""
    split = [line.rsplit(" ", 3) for line in text.splitlines()]
    return [line[0] for line in split], np.array([line[1:] for line in split], dtype=np.float32)


# --- what is computed ---


def test_means_are_those_of_the_known_words(glove):
    encoder = WordsEncoder(str(glove))
    embeddings = encoder.encode(SENTENCES)
    assert isinstance(encoder, Encoder)
    assert embeddings.shape == (9, 3)
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, MEANS, atol=1e-7)
    assert encoder.unknown(SENTENCES) == ["", "😀 שלום עולם", "THE CAT"]
    assert encoder.encode([]).shape == (0, 3)


@pytest.mark.parametrize("tokens", ["whitespace", "sbert"])
def test_a_sentence_does_not_depend_on_its_neighbours(glove, monkeypatch, tokens):
    encoder = WordsEncoder(str(glove), tokens=tokens)
    together = encoder.encode(SENTENCES)
    assert encoder.encode(SENTENCES).tobytes() == together.tobytes()
    assert encoder.encode(SENTENCES[::-1])[::-1].tobytes() == together.tobytes()
    monkeypatch.setattr(words, "CHUNK", 2)
    assert encoder.encode(SENTENCES).tobytes() == together.tobytes()
    assert np.concatenate([encoder.encode([s]) for s in SENTENCES]).tobytes() == together.tobytes()
    assert WordsEncoder(str(glove), tokens=tokens).encode(SENTENCES).tobytes() == together.tobytes()


def library_means(path: Path, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
    """What sentence-transformers itself makes of a file of vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings

    embeddings = WordEmbeddings.from_text_file(str(path))
    pooling = Pooling(embeddings.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[embeddings, pooling], device="cpu")
    encoded: npt.NDArray[np.float32] = model.encode(list(sentences), show_progress_bar=False)
    return encoded


TRICKY = [
    "The cat, sat. (CAT) 'naïve' the's",
    "!!! ... the of and",
    "CAT Cat cat CAT. cAT!",
    "",
    "--- 😀 --- sat--- ¿sat",
    "cats and dogs",
]


def test_sbert_recipe_is_the_librarys(tmp_path):
    # Without the doubled word and the word with a blank, which the library reads otherwise.
    lines = [line for line in GLOVE.splitlines() if not line.startswith(". ")]
    path = write(tmp_path / "glove.txt", "\n".join([*lines, "cats 1 1 1", "of 9 9 9", "¿sat 3 0 0"]) + "\n")
    encoder = WordsEncoder(str(path), tokens="sbert")
    sentences = [*TRICKY, *(s for s in SENTENCES if "\ud800" not in s)]
    np.testing.assert_allclose(encoder.encode(sentences), library_means(path, sentences), atol=1e-6)
    assert encoder.unknown(TRICKY) == ["!!! ... the of and", ""]
    # The other recipe knows its stop words and no other spelling.
    plain = WordsEncoder(str(path)).encode(["the of", "CAT."])
    np.testing.assert_allclose(plain, np.array([[5, 4.5, 4.5], [0, 0, 0]]))


def test_library_has_386_stop_words():
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    stopped = WhitespaceTokenizer().stop_words
    assert len(stopped) == 386
    assert {"the", "of", "."} <= stopped


# --- files ---


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


def test_words_of_one_hash_are_told_apart(glove, monkeypatch):
    expected = WordsEncoder(str(glove)).encode(SENTENCES).tobytes()
    monkeypatch.setenv("STSBENCH_CACHE", str(glove.parent / "other"))
    monkeypatch.setattr(vectors, "word_hash", lambda word: 7)
    encoder = WordsEncoder(str(glove))
    assert encoder.encode(SENTENCES).tobytes() == expected
    assert encoder.unknown(["dog"]) == ["dog"]


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
    with pytest.raises(DataError, match="is no whole .npz file"):
        WordsEncoder(str(cut)).encode(["the"])


# --- the cache ---


def test_a_file_is_hashed_and_converted_once(glove, monkeypatch):
    expected = WordsEncoder(str(glove)).encode(SENTENCES).tobytes()

    def never(*_):
        raise AssertionError("done again")

    monkeypatch.setattr(words, "file_digest", never)
    monkeypatch.setattr(vectors, "_convert", never)
    assert WordsEncoder(str(glove)).encode(SENTENCES).tobytes() == expected


def test_a_changed_file_is_seen(glove):
    before = WordsEncoder(str(glove))
    write(glove, GLOVE.replace("cat 0 2 0", "cat 0 3 0"))
    os.utime(glove, (1_700_000_001, 1_700_000_001))
    after = WordsEncoder(str(glove))
    assert after.fingerprint != before.fingerprint
    assert after.encode(["cat"]).tolist() == [[0, 3, 0]]


def test_a_file_changed_this_moment_is_not_remembered(tmp_path, cache):
    path = tmp_path / "new.txt"
    path.write_text("a 1\n")
    WordsEncoder(str(path))
    assert not (cache / "digests.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', "\0"])
def test_a_damaged_memory_is_no_harm(glove, cache, content):
    expected = WordsEncoder(str(glove)).sha256
    (cache / "digests.json").write_text(content)
    assert WordsEncoder(str(glove)).sha256 == expected


@pytest.mark.parametrize("name", ["vectors.npy", "words.txt", "hashes.npy", "rows.npy", "offsets.npy"])
def test_a_damaged_folder_is_made_again(glove, cache, name):
    expected = WordsEncoder(str(glove)).encode(SENTENCES).tobytes()
    (folder,) = (p for p in cache.iterdir() if p.is_dir())
    damaged = folder / name
    damaged.write_bytes(damaged.read_bytes()[:-3])
    assert WordsEncoder(str(glove)).encode(SENTENCES).tobytes() == expected
    damaged.unlink()
    assert WordsEncoder(str(glove)).encode(SENTENCES).tobytes() == expected


def test_a_killed_conversion_leaves_nothing_to_be_found(glove, cache, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(vectors, "_hashes", killed)
        with pytest.raises(KeyboardInterrupt):
            _ = WordsEncoder(str(glove)).vectors
    assert [p.name for p in cache.iterdir()] == ["digests.json"]
    stale = cache / "0.1.partial"
    stale.mkdir()
    os.utime(stale, (1_700_000_000, 1_700_000_000))
    assert WordsEncoder(str(glove)).encode(["cat"]).tolist() == [[0, 2, 0]]
    assert not stale.exists()


def test_two_processes_converting_at_once_agree(glove, cache, monkeypatch):
    write_blocks = vectors._write

    def other_first(folder, blocks):
        """The other process is done while ours is still writing."""
        listed = list(blocks)
        write_blocks(folder, listed)
        monkeypatch.setattr(vectors, "_write", write_blocks)
        WordsEncoder(str(glove)).encode(["cat"])

    monkeypatch.setattr(vectors, "_write", other_first)
    assert WordsEncoder(str(glove)).encode(["cat"]).tolist() == [[0, 2, 0]]
    assert sum(p.is_dir() for p in cache.iterdir()) == 1


def test_a_full_disk_is_one_clear_line(glove, cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "/cache/vectors.npy")

    monkeypatch.setattr(vectors, "_write", full)
    with pytest.raises(OutputError, match="No space left on device; free some space or set STSBENCH_CACHE"):
        WordsEncoder(str(glove)).encode(["cat"])


# --- choices ---


def test_limit_takes_the_first_vectors(tmp_path, glove):
    listed, matrix = rows(GLOVE)
    np.savez(tmp_path / "glove.npz", words=np.array(listed), vectors=matrix)
    write(tmp_path / "glove.vec", "7 3\n" + GLOVE)
    for path in ("glove.txt", "glove.npz", "glove.vec"):
        encoder = WordsEncoder(str(tmp_path / path), limit=2)
        assert encoder.vectors.shape == (2, 3)
        assert encoder.encode(["the cat sat"]).tolist() == [[0.5, 1, 0]]
        assert WordsEncoder(str(tmp_path / path), limit=99).vectors.shape == (7, 3)
    with pytest.raises(CardError, match="limit 0 leaves no word vectors"):
        WordsEncoder(str(glove), limit=0)
    with pytest.raises(CardError, match="unknown tokens 'sbrt'; did you mean 'sbert'"):
        WordsEncoder(str(glove), tokens="sbrt")  # type: ignore[arg-type]


def test_fingerprint_changes_with_what_decides_embeddings(tmp_path, glove):
    def of(path: Path = glove, **params) -> str:
        return WordsEncoder(str(path), **params).fingerprint

    copied = write(tmp_path / "copy.txt", GLOVE)
    assert of() == of(name="another") == of(copied)
    other = write(tmp_path / "other.txt", GLOVE + "dog 1 1 1\n")
    assert len({of(), of(other), of(tokens="sbert"), of(limit=2), of(limit=3)}) == 5


def test_a_file_is_looked_for_in_the_vectors_folder(glove, monkeypatch):
    monkeypatch.setenv("STSBENCH_VECTORS", str(glove.parent))
    encoder = WordsEncoder("glove.txt", name="GloVe")
    assert (encoder.name, encoder.path, encoder.revision) == ("GloVe", glove, None)
    with pytest.raises(SourceError, match=rf"put glove.6B.300d.txt from https://nlp.* into '{glove.parent}'"):
        WordsEncoder("glove.6B.300d.txt")


def test_a_missing_file_is_one_clear_line(glove):
    with pytest.raises(SourceError) as caught:
        WordsEncoder("crawl-300d-2M.vec")
    assert str(caught.value) == (
        "word vectors 'crawl-300d-2M.vec' are not on this machine; put crawl-300d-2M.vec from "
        "https://fasttext.cc/docs/en/english-vectors.html into a folder and set STSBENCH_VECTORS to it"
    )
    with pytest.raises(CardError, match="word vectors need 'file'"):
        WordsEncoder()
    with pytest.raises(DataError, match=r"not the file its card names \(sha256 .*, card 123\)"):
        WordsEncoder(str(glove), sha256="123")
    assert WordsEncoder(str(glove), sha256=WordsEncoder(str(glove)).sha256)


def test_the_hub_is_asked_last(glove, monkeypatch):
    asked = []

    def fetch(repo, path, *, revision, kind):
        asked.append((repo, path, revision, kind))
        return hub.HubFile(glove, "c" * 40, "d" * 64)

    monkeypatch.setattr(hub, "fetch_file", fetch)
    assert WordsEncoder(str(glove), hub="owner/name").revision is None
    encoder = WordsEncoder("absent.txt", hub="owner/name", revision="r1")
    assert (encoder.revision, encoder.sha256) == ("c" * 40, "d" * 64)
    WordsEncoder(hub="owner/name", hub_file="a/b.vec")
    assert asked == [("owner/name", "absent.txt", "r1", "model"), ("owner/name", "a/b.vec", "unpinned", "model")]


# --- real vectors ---

real = pytest.mark.skipif(REAL_VECTORS is None or REAL_DATA is None, reason="needs STSBENCH_VECTORS and STSBENCH_DATA")


def real_sentences(limit: int = 2000) -> list[str]:
    assert REAL_DATA is not None
    folder = REAL_DATA / "downstream" if (REAL_DATA / "downstream").is_dir() else REAL_DATA
    text = (folder / "STS" / "STS14-en-test" / "STS.input.deft-forum.txt").read_text(encoding="utf-8")
    return [cell for line in text.splitlines() for cell in line.split("\t")][:limit]


@pytest.mark.data
@real
@pytest.mark.parametrize(
    "file", ["glove.6B.50d.4k.w2v.txt", "glove.6B.100d.top.txt", "glove.twitter.27B.25d.11925.txt"]
)
def test_real_vectors_give_the_literal_mean(file):
    assert REAL_VECTORS is not None
    path, sentences = REAL_VECTORS / file, real_sentences()
    lines = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines() if line.count(" ") > 1]
    table = {word: np.array(values, dtype=float) for word, *values in lines}
    means = [
        np.mean([table[w] for w in s.split() if w in table] or [np.zeros(len(lines[0]) - 1)], 0) for s in sentences
    ]
    np.testing.assert_allclose(WordsEncoder(str(path)).encode(sentences), means, atol=1e-6)


@pytest.mark.data
@real
@pytest.mark.parametrize("file", ["glove.6B.50d.4k.w2v.txt", "glove.6B.100d.top.txt"])
def test_real_vectors_give_what_the_library_gives(file):
    assert REAL_VECTORS is not None
    sentences = real_sentences()
    ours = WordsEncoder(str(REAL_VECTORS / file), tokens="sbert").encode(sentences)
    np.testing.assert_allclose(ours, library_means(REAL_VECTORS / file, sentences), atol=1e-6)
