"""Encoders of words: tokenisers, folders of saved encoders, the mean of word vectors, FastSent.

The mean of word vectors (GloVe, word2vec, fastText) is the oldest baseline, in two recipes.
``whitespace`` is SentEval's bag of words: the text between white space, unchanged. ``sbert`` is
sentence-transformers' ``WordEmbeddings``: 386 stop words and punctuation marks are dropped first,
and a token is looked up as it is, then without punctuation around it, then in lower case. In both,
words without a vector are dropped, and a sentence with no word left is the zero vector. FastSent is
of Hill et al. 2016 (arXiv 1602.03483).
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
from stsbench.core.files import (
    expand_home,
    file_sha256,
    make_scratch_path,
    refuse_special_file,
    remove,
    write_atomically,
)
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import as_one_line
from stsbench.encoders.base import FloatArray, IndexArray, PositiveInt
from stsbench.encoders.cached_files import cached_file_sha256, decode_json_file
from stsbench.encoders.checkpoint import locate_checkpoint
from stsbench.encoders.described import SAVED_FILE, write_saved
from stsbench.encoders.metadata import check_sentences
from stsbench.encoders.words.vectors import WordVectors, open_vectors

if TYPE_CHECKING:
    import torch

CODE_VERSION = 1
"""To be raised with a change here that can change an embedding: stored ones are not reused then."""
EMBED_CHUNK = 1024
"""The number of sentences that are embedded at once."""
WordSplit = Callable[[str], list[str]]
"""From a sentence to its words."""


def make_tokeniser(name: str, *, lowercase: bool = False) -> WordSplit:
    """Return the function that splits a sentence into words.

    NLTK's rules are for one sentence: if a text has several, only its last full stop becomes a
    word of its own. The code of the papers first divides a text into sentences, which would need
    data of NLTK's.

    Args:
        name: A key of ``TOKENISERS``: ``whitespace``, ``ptb`` (the rules of the Penn Treebank) or
            ``moses`` (the same, but with "n't" as Moses has it).
        lowercase: Lowercase each sentence first.

    Raises:
        UnknownName: There is no tokeniser of this name.
        EncoderError: It needs NLTK, which is not installed.
    """
    # Raises if the table has no such name.
    split = look_up("tokens", name, TOKENISERS).make()
    if not lowercase:
        return split
    return lambda sentence: split(sentence.lower())


def _make_treebank(*, moses: bool) -> WordSplit:
    """Return the function that splits a sentence into words by the rules of the Penn Treebank.

    Args:
        moses: Split "don't" into "don" and "'t", as the tokeniser of Moses does; otherwise it is
            split into "do" and "n't".

    Raises:
        EncoderError: NLTK is not installed.
    """
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError as error:
        raise EncoderError(
            "tokens 'ptb' and 'moses' need NLTK: pip install 'stsbench[wordnet]'",
            hint="or `params=tokens=whitespace` for tokenised text",
        ) from error
    split: WordSplit = NLTKWordTokenizer().tokenize
    if not moses:
        return split
    # InferSent's code does the same: the n moves to the word before it.
    return lambda sentence: " ".join(split(sentence)).replace(" n't ", "n 't ").split()


class Tokeniser(NamedTuple):
    """How to make a tokeniser, and the packages whose version may change its words."""

    make: Callable[[], WordSplit]
    """Returns the function that splits a sentence into words."""
    libraries: tuple[str, ...] = ()
    """The packages whose version may change its words."""


TOKENISERS: Mapping[str, Tokeniser] = {
    "whitespace": Tokeniser(lambda: str.split),
    # NLTK's Penn Treebank rules.
    "ptb": Tokeniser(partial(_make_treebank, moses=False), ("nltk",)),
    # These, with "n't" split as Moses does, which is how InferSent 2 was trained.
    "moses": Tokeniser(partial(_make_treebank, moses=True), ("nltk",)),
}


CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
VOCABULARY_FILE = "vocab.txt"


class SavedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``config.json`` of a saved encoder of words."""

    lowercase: bool = False
    """Lowercase sentences before they are split into words."""


class SavedWordEncoder:
    """An encoder in a folder of its configuration, its weights, its words and ``stsbench.json``."""

    KIND: str
    CONFIG_TYPE: type[SavedConfig]
    config: SavedConfig

    def __init__(self, model: str, name: str, revision: str, tokens: str) -> None:
        """Find the folder of the encoder, and read its configuration; no weights are read yet.

        Args:
            model: A path or a Hub id.
            name: The name of the encoder; empty for that of the model.
            revision: The commit, branch or tag on the Hub; ``unpinned`` is the main branch.
            tokens: The name of a tokeniser, a key of ``TOKENISERS``.

        Raises:
            SourceError: The folder is not available.
            EncoderError: It has no weights, or a wrong configuration; or NLTK is missing for the
                tokeniser.
            UnknownName: There is no such tokeniser.
        """
        self.name = name or model
        # For a model from the Hub the commit of its files and the revision that was asked for; both
        # are None for a local folder.
        self.folder, self.revision, self.revision_asked = locate_checkpoint(
            model, revision=revision
        )
        for file in (CONFIG_FILE, WEIGHTS_FILE):
            if not (self.folder / file).is_file():
                raise EncoderError(
                    f"{self.folder}: no {file}; is it the folder of a saved encoder?"
                )
        # The class of the configuration is that of the subclass; other keys in it are errors.
        self.config = decode_json_file(
            self.folder / CONFIG_FILE, self.CONFIG_TYPE, problem="cannot be read"
        )
        self.tokens = tokens
        self.split_words = make_tokeniser(tokens, lowercase=self.config.lowercase)

    def _fingerprint(self, **params: object) -> str:
        """Return the hash of everything that can change an embedding.

        These are the kind of the encoder (``self.KIND``, such as ``fastsent``), its files, the
        tokeniser with the version of its package, and the parameters. ``CODE_VERSION`` is raised by
        hand with a change of the code that changes embeddings.

        Args:
            params: The parameters of the encoder, besides its files and its tokeniser.
        """
        paths = [self.folder / name for name in (CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE)]
        digests = {path.name: file_sha256(path) for path in paths if path.is_file()}
        fields = {
            "kind": self.KIND,
            "code": CODE_VERSION,
            "files": digests,
            "tokens": self.tokens,
            **params,
        }
        return fingerprint(fields, libraries=TOKENISERS[self.tokens].libraries)

    @cached_property
    def words(self) -> list[str]:
        """The words of ``vocab.txt``, one per line, in the order of the table's rows."""
        path = self.folder / VOCABULARY_FILE
        with translate_errors(f"{path}: cannot be read", EncoderError, OSError, ValueError):
            return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """The row of each word; of a word that is there twice, the first."""
        return {word: row for row, word in reversed(list(enumerate(self.words)))}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the weights of the encoder by name, in float32, from ``model.safetensors``.

        Raises:
            EncoderError: Their file cannot be read.
        """
        from safetensors.torch import load_file

        path = self.folder / WEIGHTS_FILE
        # Torch and safetensors raise errors of many kinds for a damaged file: each becomes an
        # EncoderError.
        with translate_errors(f"{path}: cannot be read", EncoderError):
            return {name: tensor.float() for name, tensor in load_file(path).items()}

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word."""
        return [
            sentence
            for sentence in sentences
            if not any(word in self.vocabulary for word in self.split_words(sentence))
        ]


def write_word_folder(
    folder: Path,
    *,
    kind: str,
    config: msgspec.Struct,
    tensors: Mapping[str, torch.Tensor],
    words: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
) -> Path:
    """Write an encoder of words to a folder, from which ``load_encoder`` opens it.

    The files are the weights, the vocabulary, the configuration and ``stsbench.json``.

    Args:
        folder: The folder, which need not exist.
        kind: The kind of the encoder, for example ``fastsent``. It is written to ``stsbench.json``
            with ``params``.
        config: Its configuration.
        tensors: Its weights by name.
        words: Its vocabulary, in the order of the rows of its word table; empty if it has none.
        params: The parameters with which ``load_encoder`` opens it.

    Returns:
        The path of its ``stsbench.json``.

    Raises:
        OutputError: The folder cannot be written, or a word is empty or has a line end.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if any("\n" in word or word == "" for word in words):
        raise OutputError(
            f"{folder / VOCABULARY_FILE}: a word of the vocabulary is empty or holds a line end"
        )
    # Weights may be gigabytes, so they are written at once to a file in the same folder, which is
    # then renamed.
    scratch = make_scratch_path(folder / WEIGHTS_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, scratch)
        scratch.replace(folder / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise OutputError(f"{folder}: cannot be written: {as_one_line(error)}") from error
    finally:
        remove(scratch)
    if words:
        lines = "".join(f"{word}\n" for word in words)
        write_atomically(folder / VOCABULARY_FILE, lines.encode())
    else:
        # The vocabulary of an encoder that was in the folder before.
        remove(folder / VOCABULARY_FILE)
    # The keys keep their order, because the parts of some encoders are joined in it.
    config_text = json.dumps(msgspec.to_builtins(config), indent=1)
    write_atomically(folder / CONFIG_FILE, f"{config_text}\n".encode())
    # stsbench.json is written last: a folder that has it is complete.
    write_saved(folder, kind, params=params or {})
    return folder / SAVED_FILE


Bags = list[list[int]]
"""The rows of each sentence's words, in their order."""
Lookup = Callable[[set[str]], dict[str, int]]
"""From words to the rows of those that have a vector."""


class BagEncoder(ABC):
    """Embeds with the sum or the mean of a sentence's word vectors.

    A sentence without a known word is the zero vector.
    """

    mean: bool
    """Embed with the mean in place of the sum."""

    @abstractmethod
    def bags(self, sentences: Sequence[str]) -> Bags:
        """Return the rows of the words that make each sentence's embedding."""

    @abstractmethod
    def take(self, rows: IndexArray) -> FloatArray:
        """Return the vectors of these rows, (len(rows), d)."""

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d): the sum, or the mean, of the vectors of each sentence's words.

        A sentence without a known word is the zero vector. ``self.bags`` gives for each sentence
        the rows of its known words, and ``self.take`` the vectors of rows.

        Raises:
            EncoderError: ``sentences`` is one text, or has an element that is no text.
        """
        check_sentences(sentences)
        # There is at least one chunk, even if empty, which shows the size of an embedding.
        starts = range(0, max(len(sentences), 1), EMBED_CHUNK)
        chunks = [sentences[start : start + EMBED_CHUNK] for start in starts]
        return np.concatenate(
            [sum_vectors(self.bags(chunk), self.take, mean=self.mean) for chunk in chunks]
        )

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word, whose embeddings are zero."""
        return [
            sentence
            for sentence, bag in zip(sentences, self.bags(sentences), strict=True)
            if not bag
        ]


def sum_vectors(bags: Bags, take: Callable[[IndexArray], FloatArray], *, mean: bool) -> FloatArray:
    """Return the sum, or the mean, of the vectors of each sentence's words, (n, d).

    The sums are of float64, and the result float32.

    Args:
        bags: For each of n sentences, its bag: the rows of its words in a table of vectors. The
            embedding of an empty bag is zero.
        take: Returns the vectors (m, d) of rows (m,).
        mean: Return means in place of sums.
    """
    from scipy.sparse import csr_array

    lengths = np.fromiter(map(len, bags), dtype=np.int64, count=len(bags))
    n_words = int(lengths.sum())
    rows = np.fromiter(chain.from_iterable(bags), dtype=np.int64, count=n_words)
    # `columns` has the position of each word's row among the distinct rows.
    distinct_rows, columns = np.unique(rows, return_inverse=True)
    # Where each bag begins among all words, and then the number of words.
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # A sparse matrix (n, distinct rows) with a 1 for each word of each bag: its product with the
    # vectors is the sums. Each bag is summed by itself in the order of its words, so that its
    # embedding does not depend on other sentences, to the last bit.
    ones_of_words = csr_array(
        (np.ones(n_words), columns, starts), shape=(len(bags), len(distinct_rows))
    )
    sums: npt.NDArray[np.float64] = ones_of_words @ take(distinct_rows).astype(np.float64)
    if mean:
        sums = sums / np.maximum(lengths, 1)[:, None]
    return sums.astype(np.float32)


class WordsEncoder(BagEncoder):
    """Embeds with the mean of a sentence's word vectors.

    Their file is converted when the first sentence comes.
    """

    mean = True

    def __init__(
        self,
        file: str,
        *,
        name: str = "",
        tokens: str = "whitespace",
        limit: PositiveInt | None = None,
    ) -> None:
        """Find the file of word vectors and check the parameters; no vector is read yet.

        Args:
            file: A path, or the name of a file in the folder ``STSBENCH_VECTORS``.
            name: The name of the encoder; empty for that of the file.
            tokens: How sentences become words, a key of ``BAG_RECIPES``: ``whitespace`` as in
                SentEval, or ``sbert`` as in sentence-transformers.
            limit: The number of vectors to read, from the file's start; None for all.

        Raises:
            UnknownName: There is no such recipe.
            SourceError: There is no such file.
            DataError: The path is that of a pipe or a device.
        """
        # Its fields: a function from sentences to the rows of their words, and the packages whose
        # version may change the words.
        self.recipe = look_up("tokens", tokens, BAG_RECIPES)
        self.name = name or file
        self.tokens = tokens
        self.limit = limit
        self.path = find_vectors(file)
        # The hash of the file's bytes; that of a large file is stored until the file changes.
        self.sha256 = cached_file_sha256(self.path)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of everything that can change an embedding, with the versions of packages.

        ``CODE_VERSION`` is raised by hand with a change of the code that changes embeddings.
        ``self.recipe.libraries`` are the packages that find the words of a sentence.
        """
        fields = {
            "kind": "words",
            "code": CODE_VERSION,
            "file": self.sha256,
            "tokens": self.tokens,
            "limit": self.limit,
        }
        return fingerprint(fields, libraries=self.recipe.libraries)

    @cached_property
    def vectors(self) -> WordVectors:
        """The opened vectors."""
        return open_vectors(self.path, sha256=self.sha256, limit=self.limit)

    def bags(self, sentences: Sequence[str]) -> Bags:
        """Return the rows of the words that make each sentence's mean."""
        return self.recipe.make_bags(sentences, self.vectors.find_known)

    def take(self, rows: IndexArray) -> FloatArray:
        """Return the vectors of these rows, (len(rows), d)."""
        return self.vectors.take(rows)


def whitespace_bags(sentences: Sequence[str], lookup: Lookup) -> Bags:
    """Return bags by SentEval's recipe: the text between white space, unchanged."""
    split_sentences = [sentence.split() for sentence in sentences]
    rows_by_word = lookup(set(chain.from_iterable(split_sentences)))
    return [
        [rows_by_word[word] for word in words if word in rows_by_word] for words in split_sentences
    ]


def sbert_bags(sentences: Sequence[str], lookup: Lookup) -> Bags:
    """Return the words of each sentence as sentence-transformers finds them, as rows of vectors.

    The library's tokenizer does it, and omits stop words. It looks a word up as it is, then without
    punctuation around it, then in lower case.

    Args:
        sentences: The n sentences.
        lookup: Returns for a set of words a dict: the row of each word that has a vector.

    Returns:
        For each sentence the rows of its words in the file of vectors; words without a vector are
        omitted.
    """
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    words = set(chain.from_iterable(sentence.split() for sentence in sentences))
    stripped_words = {word.strip(string.punctuation) for word in words}
    lower_words = {word.lower() for word in stripped_words}
    # Every form that the tokenizer can look up: its own vocabulary is a dict of all words.
    rows_by_word = lookup(words | stripped_words | lower_words)
    tokenizer = WhitespaceTokenizer(list(rows_by_word))
    rows = list(rows_by_word.values())
    # The tokenizer returns indices of the list of words that it was made with.
    return [[rows[index] for index in tokenizer.tokenize(sentence)] for sentence in sentences]


class BagRecipe(NamedTuple):
    """How sentences become bags of words, and the packages whose version may change them."""

    make_bags: Callable[[Sequence[str], Lookup], Bags]
    """Returns the rows of each sentence's words, from the sentences and a lookup of words."""
    libraries: tuple[str, ...] = ()
    """The packages whose version may change the bags."""


BAG_RECIPES: Mapping[str, BagRecipe] = {
    "whitespace": BagRecipe(whitespace_bags),
    # The stop words are the library's.
    "sbert": BagRecipe(sbert_bags, ("sentence-transformers",)),
}


DOWNLOAD_PAGES = {
    "glove.": "https://nlp.stanford.edu/projects/glove/",
    "crawl-300d": "https://fasttext.cc/docs/en/english-vectors.html",
    "wiki-news-300d": "https://fasttext.cc/docs/en/english-vectors.html",
    "cc.": "https://fasttext.cc/docs/en/crawl-vectors.html",
}
"""The pages of well-known files, by the prefix of their names."""


def find_vectors(file: str) -> Path:
    """Return the path of a file of word vectors.

    It is searched as a path, and then in the folder that ``STSBENCH_VECTORS`` names.

    Args:
        file: A path, or the name of a file in that folder.

    Raises:
        SourceError: There is no such file. The hint names the page to get it from if the file has a
            well-known name.
        DataError: The path is that of a pipe or a device.
    """
    folder = settings.vectors_folder()  # None if the variable is not set
    paths = [expand_home(file)]
    if folder:
        paths.append(folder / file)
    for path in paths:
        # Raises for a path that exists and is no ordinary file, such as a pipe.
        refuse_special_file(path)
        if path.is_file():
            return path
    name = Path(file).name
    # DOWNLOAD_PAGES: the beginning of a file's name -> the page that offers the file.
    pages = [page for prefix, page in DOWNLOAD_PAGES.items() if name.startswith(prefix)]
    origin = f" from {pages[0]}" if pages else ""
    target = f"into '{folder}'" if folder else "into a folder and set STSBENCH_VECTORS to it"
    raise SourceError(
        f"word vectors '{file}' are not on this machine", hint=f"put {name}{origin} {target}"
    )


def name_vectors(file: str) -> str:
    """Return the name of a file of word vectors for a saved encoder, which any folder may open.

    Args:
        file: A path, which becomes absolute, or the name of a file in the folder that
            ``STSBENCH_VECTORS`` names, which stays.

    Raises:
        DataError: As for :func:`find_vectors`.
    """
    path = find_vectors(file)
    return str(path.absolute()) if path == expand_home(file) else file


class FastSentConfig(SavedConfig, frozen=True, kw_only=True):
    """``config.json`` of a saved FastSent."""

    size: int


class FastSentEncoder(BagEncoder, SavedWordEncoder):
    """Embeds with the sum, or the mean, of source vectors.

    Cosine does not depend on which; a probe does.
    """

    KIND = "fastsent"
    CONFIG_TYPE = FastSentConfig
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
        """Find the folder of a trained encoder, and read its configuration.

        Args:
            model: A path or a Hub id.
            name: The name of the encoder; empty for that of the model.
            revision: The commit, branch or tag on the Hub; ``unpinned`` is the main branch.
            mean: Embed with the mean of the word vectors, not their sum.
            tokens: The name of a tokeniser: ``whitespace`` suits text that is tokenised already,
                ``ptb`` (the rules of the Penn Treebank) other text.
        """
        # This stores all but ``mean``, finds the folder and reads the configuration.
        super().__init__(model, name, revision, tokens)
        self.mean = mean

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        return self._fingerprint(mean=self.mean)

    def bags(self, sentences: Sequence[str]) -> Bags:
        """Return for each sentence the rows of its words in the table of vectors, in their order.

        Words that are not in the vocabulary are omitted. ``self.split_words`` is the tokeniser, and
        ``self.vocabulary`` the row of each word.
        """
        rows = self.vocabulary
        return [
            [rows[word] for word in self.split_words(sentence) if word in rows]
            for sentence in sentences
        ]

    @cached_property
    def _table(self) -> FloatArray:
        """The vectors that sentences are made of, (words, d): FastSent's source vectors.

        Row i is the vector of ``self.words[i]``; ``self.config.size`` is d.

        Raises:
            EncoderError: The file of the weights lacks them, or has them in another shape.
        """
        tensor = self.tensors().get("source")
        shape = (len(self.words), self.config.size)
        if tensor is None or tuple(tensor.shape) != shape:
            raise EncoderError(
                f"{self.folder / WEIGHTS_FILE}: has no tensor 'source' of shape {shape}"
            )
        table: FloatArray = tensor.numpy()
        return table

    def take(self, rows: IndexArray) -> FloatArray:
        """Return the source vectors of these rows, (len(rows), d)."""
        return self._table[rows]
