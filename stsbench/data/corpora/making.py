"""Makes corpora that are not published as files from those that are.

They are the first rows of another corpus, or the long documents of a dataset.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import msgspec

from stsbench.core.cards import CorpusCard, MakeSection
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import (
    CardError,
    DataError,
    OutputError,
    SourceError,
    look_up,
    translate_errors,
)
from stsbench.core.files import parquet_batches, remove, write_atomically
from stsbench.core.toml import StrictRecord
from stsbench.data.corpora.corpus import fetch_corpus, read_training_text
from stsbench.data.readers.table import column_position

if TYPE_CHECKING:
    from stsbench.data.hub.repository import Repository

SPLIT_WORDS = frozenset({"train", "validation", "valid", "dev", "test"})
"""Words in a file's name that give its split."""
_TOKENIZE_ROWS = 512
"""The number of documents that are tokenised at the same time."""
FileProgress = Callable[[int, int], None]
"""Called with the number of files of the dataset that are done, and of all files."""


class DocumentTokenizer(Protocol):
    """A tokenizer that counts the tokens of documents."""

    @property
    def fingerprint(self) -> str:
        """A hash that changes if and only if a count can change."""
        ...

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without those that a tokenizer adds."""
        ...


OpenTokenizer = Callable[[str, str], DocumentTokenizer]
"""Return the tokenizer of a folder, or of a model on the Hub at a revision."""


class _CorpusRequest(NamedTuple):
    """A corpus that is to be made, and everything that is needed for it."""

    section: MakeSection
    path: Path
    """The file to write."""
    cards: Mapping[str, CorpusCard]
    """All corpora by id."""
    corpora: Path
    """The folder of corpora."""
    open_tokenizer: OpenTokenizer
    on_progress: FileProgress


class MadeCorpus(NamedTuple):
    """The file of a corpus, and its number of rows."""

    path: Path
    n_rows: int


def make_corpus(
    name: str,
    *,
    corpora: Path,
    catalogue: Catalogue,
    open_tokenizer: OpenTokenizer,
    progress: FileProgress = lambda done, total: None,
) -> MadeCorpus:
    """Make the file of a corpus from another corpus or from a dataset, as its card describes.

    Args:
        name: The id of the corpus.
        corpora: The folder for the file.
        catalogue: The cards of all corpora.
        open_tokenizer: Return the tokenizer of a folder, or of a model on the Hub at a revision.
            Only corpora of long documents need it, to count tokens.
        progress: Called before each file of a dataset, with the number of files that are done and
            of all files.

    Returns:
        The path of the file, and its number of rows.

    Raises:
        UnknownName: There is no such corpus.
        DataError: The card does not say how to make it, or its source cannot be fetched or read. Or
            it is made, but has another number of rows or another hash than the card; then the file
            stays.
        OutputError: The file already exists, or cannot be written.
    """
    cards = catalogue.corpora()
    card = look_up("corpus", name, cards)
    if card.make is None:
        hint = card.how or "fetch it, or put it into a folder"
        raise DataError(f"corpus '{name}' cannot be made from others: {hint}")
    path = corpora / card.file
    if path.exists():
        raise OutputError(f"{path}: already exists; remove it to make it again")
    # A function that writes the file and returns its number of rows.
    make_file = look_up("way of making a corpus", card.make.way, FILE_MAKERS)
    request = _CorpusRequest(
        section=card.make,
        path=path,
        cards=cards,
        corpora=corpora,
        open_tokenizer=open_tokenizer,
        on_progress=progress,
    )
    n_rows = make_file(request)
    if n_rows != card.rows:
        raise DataError(
            f"{path}: made, but of {n_rows:,} rows where the card of '{name}' says "
            f"{card.rows:,}: its source has changed; to train on it anyway, name the file by its "
            "path"
        )
    # The file is there, so this only checks its hash.
    fetch_corpus(name, card, corpora=corpora)
    return MadeCorpus(path, n_rows)


def _make_first_rows(request: _CorpusRequest) -> int:
    """Write the first rows of another corpus to the file of a corpus, and return their number.

    Args:
        request: The corpus to make. ``section`` is the part of its card that names the other corpus
            (``of``) and the number of ``rows``, None for all; ``path`` is the file to write.
    """
    section = request.section
    source_card = look_up("corpus", section.of, request.cards)
    # In the folder of corpora, or else from the Hub.
    source_path = fetch_corpus(section.of, source_card, corpora=request.corpora)
    # The other corpus is lines of text: its one column is written as lines again.
    table = read_training_text(source_path, header=False, limit=section.rows)
    lines = table.column(0).to_pylist()
    write_atomically(request.path, "".join(f"{line}\n" for line in lines).encode())
    return len(lines)


class _CorpusProgress(StrictRecord):
    """The progress of a draft of a corpus."""

    key: str
    """A hash of everything that decides the rows."""
    files: int = 0
    """The number of files of the dataset that are done."""
    size: int = 0
    """The number of bytes of the draft that come from these files."""
    rows: int = 0
    """The number of rows that come from these files."""


def _make_long_documents(request: _CorpusRequest) -> int:
    """Write the documents of a dataset with more tokens than a limit, each on one line.

    Until it is complete the file is a draft beside its final path. The draft grows by the documents
    of one file of the dataset at a time, and a record stores the progress, so that a run that was
    stopped and started again writes the same bytes. It returns the number of documents.

    Args:
        request: The corpus to make. ``section`` is the part of its card with the dataset (``of``),
            the column, the tokenizer and the limit of ``tokens``; ``path`` is the file to write.

    Raises:
        CardError: The card's section lacks the tokenizer or the number of tokens.
        SourceError: The dataset has no file to read, or one cannot be fetched or read.
        OutputError: The file cannot be written.
    """
    from stsbench.data.hub.repository import Repository

    section, path = request.section, request.path
    if not section.tokenizer or section.tokens is None:
        raise CardError(
            "way 'long_documents' needs a tokenizer, and the number of tokens to be exceeded"
        )
    repository = Repository(section.of, revision=section.revision, kind="dataset", offline_hint="")
    hash_by_name = {name: repository.files[name] for name in _training_files(repository.files)}
    if not hash_by_name:
        raise SourceError(
            f"{repository}: has no parquet file for training; nothing else is read here"
        )
    tokenizer = request.open_tokenizer(section.tokenizer, section.tokenizer_revision)
    # An earlier draft is continued only if it is of the same files, selection and tokenizer.
    selection = [section.column, section.tokens, section.lowercase, tokenizer.fingerprint]
    deciding_values = json.dumps([list(hash_by_name.items()), *selection])
    key = hashlib.sha256(deciding_values.encode()).hexdigest()
    draft = path.with_name(f"{path.name}.unfinished")
    record = path.with_name(f"{path.name}.unfinished.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        progress = _read_progress(record, draft, key)
        with draft.open("ab") as stream:
            # The bytes behind progress.size are of a file of the dataset that was not done when the
            # earlier run was stopped.
            stream.truncate(progress.size)
            remaining_names = list(hash_by_name)[progress.files :]
            for name in remaining_names:
                request.on_progress(progress.files, len(hash_by_name))
                n_documents = _append_documents(stream, repository, name, request, tokenizer)
                progress = _CorpusProgress(
                    key=key,
                    files=progress.files + 1,
                    size=stream.tell(),
                    rows=progress.rows + n_documents,
                )
                write_atomically(record, msgspec.json.encode(progress))
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path.parent}: cannot be written: {error.strerror}") from error
    remove(record)
    return progress.rows


def _read_progress(record: Path, draft: Path, key: str) -> _CorpusProgress:
    """Read how far the draft of a corpus is, which an earlier run may have begun.

    The progress is zero if there is no record, if its draft was made from other files or settings,
    or if the draft has lost bytes since.

    Args:
        record: The file with the progress, which need not exist.
        draft: The draft.
        key: The hash of everything that decides the rows; the record has the one of its draft.

    Returns:
        The numbers of files of the dataset that are done, and of bytes and rows from them.
    """
    with suppress(OSError, msgspec.DecodeError):
        stored = msgspec.json.decode(record.read_bytes(), type=_CorpusProgress)
        if stored.key == key and draft.stat().st_size >= stored.size:
            return stored
    # Zero files, bytes and rows.
    return _CorpusProgress(key=key)


def _append_documents(
    stream: BinaryIO,
    repository: Repository,
    name: str,
    request: _CorpusRequest,
    tokenizer: DocumentTokenizer,
) -> int:
    """Append the long documents of one file of a dataset to a draft, and return their number.

    Args:
        stream: The draft, open at its end; the documents are on the disk on return.
        repository: The dataset on the Hub.
        name: The path of the file in it.
        request: The corpus that is made; ``section`` is the part of its card with the column and
            the smallest number of tokens of a long document.
        tokenizer: Counts the tokens.
    """
    n_documents = 0
    # Only one file is on the disk at a time: a dataset may be larger than the disk.
    with TemporaryDirectory(dir=request.path.parent, suffix=".partial") as scratch:
        file = repository.fetch(name, into=Path(scratch))
        where = repository.describe_file(name)
        for line in _iter_long_documents(file, where, request.section, tokenizer):
            stream.write(f"{line}\n".encode())
            n_documents += 1
    stream.flush()
    os.fsync(stream.fileno())
    return n_documents


FILE_MAKERS: Mapping[str, Callable[[_CorpusRequest], int]] = {
    "first_rows": _make_first_rows,
    "long_documents": _make_long_documents,
}
"""The ways to make a file in a card's ``[make]``; each writes it and returns its rows."""


def _training_files(names: Iterable[str]) -> list[str]:
    """Return the parquet files for training among the files of a dataset, sorted.

    They are those with the word ``train`` in their path, perhaps none. If no path has the word of
    any split, such as ``train``, ``dev`` or ``test``, all are for training.
    """
    parquet_names = sorted(name for name in names if name.endswith(".parquet"))
    words_by_name = {name: set(re.split(r"[/._-]", name)) for name in parquet_names}
    have_splits = any(words & SPLIT_WORDS for words in words_by_name.values())
    if not have_splits:
        return parquet_names
    return [name for name, words in words_by_name.items() if "train" in words]


def _iter_long_documents(
    file: Path, where: str, section: MakeSection, tokenizer: DocumentTokenizer
) -> Iterator[str]:
    """Yield the documents in a file that have more tokens than a card's limit, as one line each.

    Runs of white space become one blank, and all letters lower case if the card says so.

    Args:
        file: A parquet file.
        where: What messages of errors begin with: the name of the file on the Hub.
        section: How the card makes the corpus: the column, the limit, and whether in lower case.
        tokenizer: Returns the number of tokens of each line, without special tokens.
    """
    token_limit = section.tokens or 0
    # Some hundred documents at a time.
    for documents in _iter_documents(file, where, section.column):
        lines: list[str] = []
        for document in documents:
            text = document.lower() if section.lowercase else document
            line = " ".join(text.split())
            # A token has one byte or more, so shorter documents need not be tokenised.
            if len(line.encode()) > token_limit:
                lines.append(line)
        token_counts = tokenizer(lines) if lines else []
        for line, n_tokens in zip(lines, token_counts, strict=True):
            if n_tokens > token_limit:
                yield line


def _iter_documents(file: Path, where: str, column: str) -> Iterator[list[str]]:
    """Yield the texts of a column, some rows at a time; a row without text is an empty text.

    Args:
        file: A parquet file.
        where: What messages of errors begin with: the name of the file on the Hub.
        column: The name of the column.

    Raises:
        DataError: There is no such column, or it holds no text.
        SourceError: The file is broken.
    """
    import pyarrow as pa

    problem = f"{where}: cannot be read"
    with translate_errors(
        problem, SourceError, pa.ArrowException, OSError, UnicodeDecodeError, max_length=200
    ):
        # Read from this file, whose size limits the memory that its rows may need.
        for batch in parquet_batches(file, file, where=where):
            texts = batch.column(column_position(batch.schema.names, column, where=where))
            # A dictionary holds each distinct text once, and the column refers to it.
            is_dictionary = pa.types.is_dictionary(texts.type)
            text_type: Any = texts.type.value_type if is_dictionary else texts.type
            if not (pa.types.is_string(text_type) or pa.types.is_large_string(text_type)):
                raise DataError(f"{where}: column '{column}' holds {text_type}, not text")
            # The tokenizer takes far more memory than the text that it is called with.
            for start in range(0, len(texts), _TOKENIZE_ROWS):
                yield [text or "" for text in texts.slice(start, _TOKENIZE_ROWS).to_pylist()]
