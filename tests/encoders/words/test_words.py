import builtins
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stsbench import evaluate
from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError, UnknownName
from stsbench.core.parameters import call_with_params
from stsbench.data.task import load_task
from stsbench.encoders.base import Encoder
from stsbench.encoders.load import load_encoder
from stsbench.encoders.words.words import FastSentEncoder, WordsEncoder, make_tokeniser
from tests.encoders.words.word_encoders import SENTENCES as TOKENISED, WORDS, waves, write_fastsent
from tests.encoders.words.word_files import GLOVE, MEANS, SENTENCES, cache, glove, rows, write

__all__ = ["cache", "glove"]
REAL_VECTORS, REAL_DATA = settings.vectors_folder(), settings.data_folder()
pytestmark = pytest.mark.usefixtures("cache")


def test_means_are_those_of_the_known_words(glove):
    encoder = WordsEncoder(str(glove))
    embeddings = encoder.encode(SENTENCES)
    assert isinstance(encoder, Encoder)
    assert embeddings.shape == (9, 3)
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, MEANS, atol=1e-7)
    assert encoder.unknown(SENTENCES) == ["", "😀 שלום עולם", "THE CAT"]
    assert encoder.encode([]).shape == (0, 3)


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
    path = write(
        tmp_path / "glove.txt", "\n".join([*lines, "cats 1 1 1", "of 9 9 9", "¿sat 3 0 0"]) + "\n"
    )
    encoder = WordsEncoder(str(path), tokens="sbert")
    sentences = [*TRICKY, *(s for s in SENTENCES if "\ud800" not in s)]
    np.testing.assert_allclose(encoder.encode(sentences), library_means(path, sentences), atol=1e-6)
    assert encoder.unknown(TRICKY) == ["!!! ... the of and", ""]
    # The other recipe knows its stop words and no other spelling.
    plain = WordsEncoder(str(path)).encode(["the of", "CAT."])
    np.testing.assert_allclose(plain, np.array([[5, 4.5, 4.5], [0, 0, 0]]))


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
    with pytest.raises(CardError, match="'limit': .* >= 1, not 0"):
        call_with_params(WordsEncoder, {"file": str(glove), "limit": 0}, where="card")


def test_a_file_is_looked_for_in_the_vectors_folder(glove, monkeypatch):
    with pytest.raises(
        SourceError, match="english-vectors.html into a folder and set STSBENCH_VECTORS to it$"
    ):
        WordsEncoder("crawl-300d-2M.vec")
    monkeypatch.setenv("STSBENCH_VECTORS", str(glove.parent))
    encoder = WordsEncoder("glove.txt", name="GloVe")
    assert (encoder.name, encoder.path) == ("GloVe", glove)
    with pytest.raises(SourceError, match=f"glove.6B.300d.txt .* into '{glove.parent}'"):
        WordsEncoder("glove.6B.300d.txt")


# --- real vectors ---

real = pytest.mark.skipif(
    REAL_VECTORS is None or REAL_DATA is None, reason="needs STSBENCH_VECTORS and STSBENCH_DATA"
)


@pytest.mark.data
@real
@pytest.mark.parametrize(
    "file", ["glove.6B.50d.4k.w2v.txt", "glove.6B.100d.top.txt", "glove.twitter.27B.25d.11925.txt"]
)
def test_real_vectors_give_the_literal_mean_and_the_librarys(file):
    assert REAL_VECTORS is not None and REAL_DATA is not None
    path = REAL_VECTORS / file
    folder = REAL_DATA / "downstream" if (REAL_DATA / "downstream").is_dir() else REAL_DATA
    text = (folder / "STS" / "STS14-en-test" / "STS.input.deft-forum.txt").read_text(
        encoding="utf-8"
    )
    sentences = [cell for line in text.splitlines() for cell in line.split("\t")][:2000]
    np.testing.assert_allclose(
        WordsEncoder(str(path)).encode(sentences), literal_means(path, sentences), atol=1e-6
    )
    ours = WordsEncoder(str(path), tokens="sbert").encode(sentences)
    np.testing.assert_allclose(ours, library_means(path, sentences), atol=1e-6)


def literal_means(path: Path, sentences: Sequence[str]) -> npt.NDArray[np.float64]:
    lines = [
        line.split(" ")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.count(" ") > 1
    ]
    table = {word: np.array(values, dtype=float) for word, *values in lines}
    zero = np.zeros(len(lines[0]) - 1)
    return np.array(
        [np.mean([table[w] for w in s.split() if w in table] or [zero], 0) for s in sentences]
    )


def test_a_result_says_how_many_sentences_hold_no_known_word(tmp_path, glove):
    words = "a man dog the is playing on with in of woman".split()
    path = write(
        tmp_path / "few.txt", "".join(f"{word} {i % 3} {i % 5} 1\n" for i, word in enumerate(words))
    )
    (few,) = evaluate(WordsEncoder(str(path)), "quickstart-en", store=None)
    (note,) = (note for note in few.notes if note.endswith("no word that the encoder knows"))
    count, n = int(note.split()[0]), int(note.split()[2])
    assert note == f"{count} of {n} distinct sentences have no word that the encoder knows"
    texts = set(load_task("quickstart-en").load("test").texts())
    assert (count, n) == (len([s for s in texts if not set(s.split()) & set(words)]), len(texts))
    assert 0 < count < n


# --- FastSent ---


@pytest.fixture
def fastsent(tmp_path):
    return write_fastsent(tmp_path / "model")


def test_embeddings_are_sums_of_known_words(fastsent):
    encoder = load_encoder(fastsent)
    assert isinstance(encoder, FastSentEncoder)
    table = waves((len(WORDS), 4), 0.3).double().numpy()
    bags = [[WORDS.index(w) for w in s.split() if w in WORDS] for s in TOKENISED]
    due = np.array([table[bag].sum(axis=0) for bag in bags])
    np.testing.assert_allclose(encoder.encode(TOKENISED), due, atol=1e-6)
    means = FastSentEncoder(str(fastsent), mean=True).encode(TOKENISED)
    np.testing.assert_allclose(
        means, [table[b].mean(axis=0) if b else np.zeros(4) for b in bags], atol=1e-6
    )
    assert encoder.unknown(TOKENISED) == ["unknown words", ""]


def test_a_vocabulary_of_another_length_is_refused(fastsent):
    (fastsent / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(EncoderError, match=r"no tensor 'source' of shape \(2, 4\)"):
        FastSentEncoder(str(fastsent)).encode(["a"])


# --- tokenisers ---

# By NLTK's word_tokenize and the released InferSent's own function around it.
SPLIT = {
    "I don't know, Mr. Smith's (cat) can't.": (
        ["I", "do", "n't", "know", ",", "Mr.", "Smith", "'s", "(", "cat", ")", "ca", "n't", "."],
        ["I", "don", "'t", "know", ",", "Mr.", "Smith", "'s", "(", "cat", ")", "can", "'t", "."],
    ),
    "\"Isn't\" it? $5.50 won't": (
        ["``", "Is", "n't", "''", "it", "?", "$", "5.50", "wo", "n't"],
        ["``", "Isn", "'t", "''", "it", "?", "$", "5.50", "wo", "n't"],
    ),
}


def test_white_space_parts_words():
    assert make_tokeniser("whitespace")(" The\tcat\u2003sat.\n") == ["The", "cat", "sat."]
    assert make_tokeniser("whitespace", lowercase=True)("The CAT") == ["the", "cat"]


@pytest.mark.parametrize("sentence", SPLIT)
def test_treebank_rules_and_their_moses_like_form(sentence):
    pytest.importorskip("nltk", reason="NLTK is not installed")
    ptb, moses = SPLIT[sentence]
    assert make_tokeniser("ptb")(sentence) == ptb
    # Glued only between two words: at the end of a text the released replacement finds nothing.
    assert make_tokeniser("moses")(sentence) == moses
    assert make_tokeniser("ptb", lowercase=True)(sentence)[0] == ptb[0].lower()
    assert make_tokeniser("moses")("") == []


def test_unknown_tokens_offer_the_nearest(glove):
    with pytest.raises(UnknownName, match="mean 'moses'"):
        make_tokeniser("moss")
    with pytest.raises(UnknownName, match="mean 'sbert'") as caught:
        WordsEncoder(str(glove), tokens="sbrt")
    assert (caught.value.kind, caught.value.name) == ("tokens", "sbrt")


def test_missing_nltk_is_one_line(monkeypatch):
    real = builtins.__import__

    def without_nltk(name, *rest):
        if name.startswith("nltk"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_nltk)
    with pytest.raises(EncoderError, match="need NLTK: pip install 'stsbench"):
        make_tokeniser("ptb")
