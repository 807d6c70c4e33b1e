"""Encoders of words: sentences to words, saved encoders' folders, the mean of word vectors, FastSent's sum.

The mean of word vectors (GloVe, word2vec, fastText) is the oldest baseline, in two recipes. ``whitespace`` is
SentEval's bag of words: what white space parts, as it stands. ``sbert`` is sentence-transformers' ``WordEmbeddings``:
386 stop words and punctuation marks are dropped first, and a token is looked up as it is, then without punctuation
around it, then in lower case. In both, words without a vector are dropped, and a sentence with no word left is the zero
vector. FastSent is of Hill et al. 2016 (arXiv 1602.03483).
"""

from __future__ import annotations

import json
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core import settings
from stsbench.core.errors import EncoderError, OutputError, SourceError, look_up, translate_errors
from stsbench.core.files import check_is_file, file_digest, remove, scratch_beside, write_atomically
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import join_lines
from stsbench.encoders.base import FloatArray, IndexArray, PositiveInt
from stsbench.encoders.checkpoint import cached_digest, decode_file, locate_checkpoint
from stsbench.encoders.described import SAVED_FILE, write_saved
from stsbench.encoders.metadata import check_sentences
from stsbench.encoders.words.vectors import WordVectors, open_vectors

if TYPE_CHECKING:
    import torch

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""
CHUNK = 1024
WordSplit = Callable[[str], list[str]]
"""A sentence to its words."""


def tokeniser(name: str, *, lowercase: bool = False) -> WordSplit:
    """Return the function that parts a sentence into words; raises UnknownName, or EncoderError: NLTK is not installed.

    NLTK's rules need no data of NLTK's: of several sentences only the last full stop is parted from its word, where the
    papers' code splits sentences first.
    """
    split = look_up("tokens", name, TOKENISERS).make()
    return (lambda sentence: split(sentence.lower())) if lowercase else split


def _treebank(*, moses: bool) -> WordSplit:
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError as error:
        what = "tokens 'ptb' and 'moses' need NLTK: pip install 'stsbench[wordnet]'"
        raise EncoderError(f"{what}; or --set tokens=whitespace for tokenised text") from error
    words: WordSplit = NLTKWordTokenizer().tokenize
    return (
        (lambda sentence: " ".join(words(sentence)).replace(" n't ", "n 't ").split())
        if moses
        else words
    )


class Tokeniser(NamedTuple):
    """What makes a tokeniser, and the packages whose version may change what it does."""

    make: Callable[[], WordSplit]
    libraries: tuple[str, ...] = ()


TOKENISERS: Mapping[str, Tokeniser] = {
    "whitespace": Tokeniser(lambda: str.split),
    # NLTK's Penn Treebank rules.
    "ptb": Tokeniser(partial(_treebank, moses=False), ("nltk",)),
    # These, with "n't" split as Moses does, which is how InferSent 2 was trained.
    "moses": Tokeniser(partial(_treebank, moses=True), ("nltk",)),
}


CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocab.txt"


class SavedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``config.json`` of a saved encoder of words."""

    lowercase: bool = False


class SavedEncoder:
    """An encoder saved as a folder: ``config.json``, ``model.safetensors``, ``vocab.txt``, ``stsbench.json``."""

    KIND: str
    RECORD: type[SavedConfig]
    config: SavedConfig

    def __init__(self, model: str, name: str, revision: str, tokens: str) -> None:
        """Find the folder, a path or a Hub id, and read its configuration.

        Raises SourceError: it cannot be had; EncoderError: it has no weights, or a wrong configuration.
        """
        self.name = name or model
        self.folder, self.revision, self.revision_asked = locate_checkpoint(
            model, revision=revision
        )
        for file in (CONFIG, WEIGHTS):
            if not (self.folder / file).is_file():
                raise EncoderError(
                    f"{self.folder}: no {file}; is it the folder of a saved encoder?"
                )
        self.config = decode_file(self.folder / CONFIG, self.RECORD, "cannot be read")
        self.tokens, self.split = tokens, tokeniser(tokens, lowercase=self.config.lowercase)

    def _identity(self, **facts: object) -> str:
        paths = [self.folder / name for name in (CONFIG, WEIGHTS, VOCABULARY)]
        files = {path.name: file_digest(path) for path in paths if path.is_file()}
        own = {"kind": self.KIND, "code": CODE_VERSION, "files": files, "tokens": self.tokens}
        return fingerprint({**own, **facts}, TOKENISERS[self.tokens].libraries)

    @cached_property
    def words(self) -> list[str]:
        """The words of ``vocab.txt``, one a line, in the order of the table's rows."""
        path = self.folder / VOCABULARY
        with translate_errors(f"{path}: cannot be read", EncoderError, OSError, ValueError):
            return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Each word's row; of a doubled word the first."""
        return {word: row for row, word in reversed(list(enumerate(self.words)))}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Read the weights."""
        from safetensors.torch import load_file

        # Of a damaged file torch and safetensors raise errors of many kinds.
        with translate_errors(f"{self.folder / WEIGHTS}: cannot be read", EncoderError):
            return {
                name: tensor.float() for name, tensor in load_file(self.folder / WEIGHTS).items()
            }

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word."""
        return [s for s in sentences if not any(word in self.vocabulary for word in self.split(s))]


def write_word_folder(
    folder: Path,
    *,
    kind: str,
    config: msgspec.Struct,
    tensors: Mapping[str, torch.Tensor],
    words: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
) -> Path:
    """Write an encoder's folder, which ``load_encoder`` opens with ``params``; ``words`` are in the table's order.

    Raises OutputError: the folder cannot be written, or a word holds a line end.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if any("\n" in word or word == "" for word in words):
        raise OutputError(
            f"{folder / VOCABULARY}: a word of the vocabulary is empty or holds a line end"
        )
    # The file is there whole or not at all; weights may be gigabytes and are not copied.
    scratch = scratch_beside(folder / WEIGHTS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, scratch)
        scratch.replace(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise OutputError(f"{folder}: cannot be written: {join_lines(error)}") from error
    finally:
        remove(scratch)
    if words:
        write_atomically(folder / VOCABULARY, "".join(f"{word}\n" for word in words).encode())
    # In their order: the halves of an encoder are joined in it.
    facts = json.dumps(msgspec.to_builtins(config), indent=1)
    write_atomically(folder / CONFIG, f"{facts}\n".encode())
    # The last: a folder with it is whole.
    write_saved(folder, kind, params or {})
    return folder / SAVED_FILE


Bags = list[list[int]]
"""The rows of each sentence's words, in their order."""
Lookup = Callable[[set[str]], dict[str, int]]
"""Words to the rows of those that have a vector."""


class BagEncoder(ABC):
    """Embeds with the sum or the mean of a sentence's word vectors; one without a known word is the zero vector."""

    mean: bool

    @abstractmethod
    def bags(self, sentences: Sequence[str]) -> Bags:
        """Return the rows of the words that each sentence's embedding is of."""

    @abstractmethod
    def take(self, rows: IndexArray) -> FloatArray:
        """Return the vectors of these rows, (len(rows), d)."""

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        check_sentences(sentences)
        # One chunk at least: it tells the size of a vector.
        chunks = (
            sentences[start : start + CHUNK] for start in range(0, max(len(sentences), 1), CHUNK)
        )
        return np.concatenate(
            [sum_vectors(self.bags(chunk), self.take, mean=self.mean) for chunk in chunks]
        )

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word, whose embeddings are zero."""
        return [s for s, bag in zip(sentences, self.bags(sentences), strict=True) if not bag]


def sum_vectors(bags: Bags, take: Callable[[IndexArray], FloatArray], *, mean: bool) -> FloatArray:
    """Return each bag's sum or mean, (len(bags), d): summed in float64, zero for an empty bag; ``take`` gives vectors of rows."""
    from scipy.sparse import csr_array

    lengths = np.fromiter(map(len, bags), dtype=np.int64, count=len(bags))
    flat = np.fromiter(chain.from_iterable(bags), dtype=np.int64, count=int(lengths.sum()))
    distinct, columns = np.unique(flat, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Each row is summed on its own in its words' order, so a sentence's bytes never depend on its neighbours.
    counts = csr_array((np.ones(len(flat)), columns, starts), shape=(len(bags), len(distinct)))
    sums: npt.NDArray[np.float64] = counts @ take(distinct).astype(np.float64)
    return (sums / np.maximum(lengths, 1)[:, None] if mean else sums).astype(np.float32)


class WordsEncoder(BagEncoder):
    """Embeds with the mean of a sentence's word vectors, whose file is converted when the first sentence comes."""

    mean = True

    def __init__(
        self,
        file: str,
        *,
        name: str = "",
        tokens: str = "whitespace",
        limit: PositiveInt | None = None,
    ) -> None:
        """Find the file, a path or a name in ``STSBENCH_VECTORS``, and check every choice.

        ``tokens`` is the recipe, ``whitespace`` or ``sbert``; ``limit`` takes so many vectors, from the file's start.
        """
        self.recipe = look_up("tokens", tokens, RECIPES)
        self.name, self.tokens, self.limit = name or file, tokens, limit
        self.path = find_vectors(file)
        self.sha256 = cached_digest(self.path)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        facts = {
            "kind": "words",
            "code": CODE_VERSION,
            "file": self.sha256,
            "tokens": self.tokens,
            "limit": self.limit,
        }
        return fingerprint(facts, self.recipe.libraries)

    @cached_property
    def vectors(self) -> WordVectors:
        """The opened vectors."""
        return open_vectors(self.path, sha256=self.sha256, limit=self.limit)

    def bags(self, sentences: Sequence[str]) -> Bags:
        """Return the rows of the words that each sentence's mean is of."""
        return self.recipe.bags(sentences, self.vectors.known)

    def take(self, rows: IndexArray) -> FloatArray:
        """Return the vectors of these rows, (len(rows), d)."""
        return self.vectors.take(rows)


def whitespace_bags(sentences: Sequence[str], lookup: Lookup) -> Bags:
    """SentEval's recipe: what white space parts, as it stands."""
    split = [sentence.split() for sentence in sentences]
    known = lookup(set(chain.from_iterable(split)))
    return [[known[word] for word in words if word in known] for words in split]


def sbert_bags(sentences: Sequence[str], lookup: Lookup) -> Bags:
    """Sentence-transformers' recipe, by its own tokenizer and stop words."""
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    split = set(chain.from_iterable(sentence.split() for sentence in sentences))
    bare = {word.strip(string.punctuation) for word in split}
    # Every form that the tokenizer can ask for: its own vocabulary is a dict of all words.
    known = lookup(split | bare | {word.lower() for word in bare})
    tokenizer = WhitespaceTokenizer(list(known))
    rows = list(known.values())
    return [[rows[index] for index in tokenizer.tokenize(sentence)] for sentence in sentences]


class BagRecipe(NamedTuple):
    """How sentences become bags of words, and the packages whose version may change them."""

    bags: Callable[[Sequence[str], Lookup], Bags]
    libraries: tuple[str, ...] = ()


RECIPES: Mapping[str, BagRecipe] = {
    "whitespace": BagRecipe(whitespace_bags),
    # The stop words are the library's.
    "sbert": BagRecipe(sbert_bags, ("sentence-transformers",)),
}


HOMES = {
    "glove.": "https://nlp.stanford.edu/projects/glove/",
    "crawl-300d": "https://fasttext.cc/docs/en/english-vectors.html",
    "wiki-news-300d": "https://fasttext.cc/docs/en/english-vectors.html",
    "cc.": "https://fasttext.cc/docs/en/crawl-vectors.html",
}
"""Where the well-known files are to be had, by how their names begin."""


def find_vectors(file: str) -> Path:
    """Find a file of word vectors, a path or in ``STSBENCH_VECTORS``; raises SourceError: says where to get it."""
    folder = settings.vectors_folder()
    for place in (Path(file).expanduser(), *([folder / file] if folder else [])):
        check_is_file(place)
        if place.is_file():
            return place
    name = Path(file).name
    home = next((f" from {url}" for start, url in HOMES.items() if name.startswith(start)), "")
    where = f"into '{folder}'" if folder else "into a folder and set STSBENCH_VECTORS to it"
    raise SourceError(f"word vectors '{file}' are not on this machine; put {name}{home} {where}")


class FastSentConfig(SavedConfig, frozen=True, kw_only=True):
    """``config.json`` of a saved FastSent."""

    size: int


class FastSentEncoder(BagEncoder, SavedEncoder):
    """Embeds with the sum, or the mean, of source vectors. Cosine does not see the difference; a probe does."""

    KIND, RECORD = "fastsent", FastSentConfig
    config: FastSentConfig

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        mean: bool = False,
        tokens: str = "whitespace",
    ) -> None:
        """Find the folder of a training run; ``mean`` takes the mean of the word vectors, not their sum.

        ``tokens`` is ``whitespace`` for text that is tokenised already, else ``ptb``.
        """
        super().__init__(model, name, revision, tokens)
        self.mean = mean

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        return self._identity(mean=self.mean)

    def bags(self, sentences: Sequence[str]) -> Bags:
        """Return the rows of each sentence's known words."""
        return [
            [self.vocabulary[word] for word in self.split(s) if word in self.vocabulary]
            for s in sentences
        ]

    @cached_property
    def _table(self) -> FloatArray:
        table, due = self.tensors().get("source"), (len(self.words), self.config.size)
        if table is None or tuple(table.shape) != due:
            raise EncoderError(f"{self.folder / WEIGHTS}: has no tensor 'source' of shape {due}")
        found: FloatArray = table.numpy()
        return found

    def take(self, rows: IndexArray) -> FloatArray:
        """Return the source vectors of these rows, (len(rows), d)."""
        return self._table[rows]
