"""The mean of word vectors (GloVe, word2vec, fastText): the oldest baseline, in its two recipes.

``whitespace`` is SentEval's bag of words: tokens are what white space parts, as they stand, and
those without a vector are dropped. ``sbert`` is sentence-transformers' ``WordEmbeddings``, a
different method: 386 stop words and punctuation marks are dropped first, and a token is looked
up as it is, then without punctuation around it, then in lower case. In both a sentence with no
word left is the zero vector, which :meth:`WordsEncoder.unknown` names.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench import settings
from stsbench.encoders.checkpoints.digest_cache import remembered_digest
from stsbench.encoders.facts import check_sentences
from stsbench.encoders.seams import FloatArray
from stsbench.encoders.words.vectors import WordVectors, open_vectors
from stsbench.errors import CardError, DataError, SourceError, choose
from stsbench.provenance.identity import fingerprint

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""
CHUNK = 1024
Bags = list[list[int]]
"""The rows of each sentence's words, in their order."""
Lookup = Callable[[set[str]], dict[str, int]]
"""Words to the rows of those that have a vector."""

HOMES = {
    "glove.": "https://nlp.stanford.edu/projects/glove/",
    "crawl-300d": "https://fasttext.cc/docs/en/english-vectors.html",
    "wiki-news-300d": "https://fasttext.cc/docs/en/english-vectors.html",
    "cc.": "https://fasttext.cc/docs/en/crawl-vectors.html",
}
"""Where the well-known files are to be had, by how their names begin."""


class WordsEncoder:
    """Embeds with the mean of a sentence's word vectors.

    The file is converted when the first sentence comes and memory-mapped from then on; only its
    hash is needed before, which is remembered as long as the file's size and time stay.
    """

    def __init__(
        self,
        file: str | None = None,
        *,
        name: str = "",
        tokens: str = "whitespace",
        hub: str = "",
        hub_file: str = "",
        revision: str = "unpinned",
        limit: int | None = None,
        sha256: str = "",
    ) -> None:
        """Find the file and check every choice.

        Args:
            file: a GloVe, word2vec or fastText text file or an ``.npz``; a path, or a name in ``STSBENCH_VECTORS``.
            name: what results call the encoder.
            tokens: the recipe, ``whitespace`` or ``sbert``.
            hub: a Hub repository that has the file, for where ``file`` is not on this machine.
            hub_file: the file's path in that repository; default ``file``.
            revision: the Hub commit; ``unpinned`` takes the newest.
            limit: how many vectors to use, from the file's start; default all.
            sha256: what the file must hash to.
        """
        self.recipe = choose("tokens", tokens, RECIPES)
        if limit is not None and limit < 1:
            raise CardError(f"limit {limit} leaves no word vectors; give 1 or more, or leave it out")
        self.name = name or file or hub_file
        self.tokens, self.limit = tokens, limit
        found = find_vectors(file, hub=hub, hub_file=hub_file, revision=revision)
        self.path, self.revision = found.path, found.commit
        self.sha256 = found.sha256 or remembered_digest(found.path)
        if sha256 and self.sha256 != sha256:
            raise DataError(
                f"{self.path}: not the file its card names (sha256 {self.sha256[:12]}, card {sha256[:12]}); "
                "restore the file, or give other vectors by a card of your own"
            )

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        facts = {"kind": "words", "code": CODE_VERSION, "file": self.sha256, "tokens": self.tokens, "limit": self.limit}
        return fingerprint(facts, self.recipe.libraries)

    @cached_property
    def vectors(self) -> WordVectors:
        """The opened vectors."""
        return open_vectors(self.path, sha256=self.sha256, limit=self.limit)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d); a sentence without a known word is the zero vector."""
        check_sentences(sentences)
        embeddings = np.zeros((len(sentences), self.vectors.shape[1]), dtype=np.float32)
        for start in range(0, len(sentences), CHUNK):
            bags = self.bags(sentences[start : start + CHUNK])
            embeddings[start : start + len(bags)] = mean_vectors(bags, self.vectors)
        return embeddings

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word, whose embeddings are zero."""
        chunks = (sentences[start : start + CHUNK] for start in range(0, len(sentences), CHUNK))
        return [s for chunk in chunks for s, bag in zip(chunk, self.bags(chunk), strict=True) if not bag]

    def bags(self, sentences: Sequence[str]) -> Bags:
        """Return the rows of the words that each sentence's mean is of."""
        return self.recipe.bags(sentences, self._lookup)

    def _lookup(self, words: set[str]) -> dict[str, int]:
        listed = list(words)
        rows = self.vectors.find(listed).tolist()
        return {word: row for word, row in zip(listed, rows, strict=True) if row >= 0}


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


class Recipe(NamedTuple):
    """How sentences become bags of words, and the packages whose version may change them."""

    bags: Callable[[Sequence[str], Lookup], Bags]
    libraries: tuple[str, ...] = ()


RECIPES: Mapping[str, Recipe] = {
    "whitespace": Recipe(whitespace_bags),
    # The stop words are the library's.
    "sbert": Recipe(sbert_bags, ("sentence-transformers",)),
}


def mean_vectors(bags: Bags, vectors: WordVectors) -> npt.NDArray[np.float64]:
    """Return each bag's mean vector, (len(bags), d): summed in float64, zero for an empty bag."""
    lengths = np.fromiter(map(len, bags), dtype=np.int64, count=len(bags))
    return sum_vectors(bags, vectors.take) / np.maximum(lengths, 1)[:, None]


def sum_vectors(bags: Bags, take: Callable[[npt.NDArray[np.int64]], FloatArray]) -> npt.NDArray[np.float64]:
    """Return the sum of each bag's vectors, (len(bags), d), in float64; ``take`` gives those of some rows."""
    from scipy.sparse import csr_array

    lengths = np.fromiter(map(len, bags), dtype=np.int64, count=len(bags))
    flat = np.fromiter(chain.from_iterable(bags), dtype=np.int64, count=int(lengths.sum()))
    distinct, columns = np.unique(flat, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Each row is summed on its own in its words' order, so a sentence's bytes never depend on its neighbours.
    counts = csr_array((np.ones(len(flat)), columns, starts), shape=(len(bags), len(distinct)))
    sums: npt.NDArray[np.float64] = counts @ take(distinct).astype(np.float64)
    return sums


class Found(NamedTuple):
    """A file of word vectors; its commit and sha256 where the Hub gave it."""

    path: Path
    commit: str | None = None
    sha256: str = ""


def find_vectors(file: str | None, *, hub: str, hub_file: str, revision: str) -> Found:
    """Find a file of word vectors: as a path, in ``STSBENCH_VECTORS``, or on the Hub.

    Raises:
        SourceError: it is nowhere; says what to get and where to put it.
    """
    if not file and not (hub and hub_file):
        raise CardError("word vectors need 'file' (a path or a name in STSBENCH_VECTORS), or 'hub' and 'hub_file'")
    folder = settings.vectors_folder()
    if file:
        places = [Path(file).expanduser(), *([folder / file] if folder else [])]
        for place in places:
            if place.is_file():
                return Found(place)
    if hub:
        from stsbench.data.hub import fetch_file

        fetched = fetch_file(hub, hub_file or str(file), revision=revision, kind="model")
        return Found(fetched.path, fetched.commit, fetched.sha256)
    home = next((f" from {url}" for start, url in HOMES.items() if Path(str(file)).name.startswith(start)), "")
    where = f"into '{folder}'" if folder else "into a folder and set STSBENCH_VECTORS to it"
    raise SourceError(f"word vectors '{file}' are not on this machine; put {Path(str(file)).name}{home} {where}")
