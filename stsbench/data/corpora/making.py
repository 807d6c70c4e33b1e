"""Corpora that are not published as files, made of those that are: the first rows of another, or the long documents of a dataset."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

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
from stsbench.data.corpora.corpus import fetch_corpus, read_training_text
from stsbench.data.readers.files import column_position

SPLITS = frozenset({"train", "validation", "valid", "dev", "test"})
"""Words of a file's name that say of which split it is."""
_ROWS = 512
FileProgress = Callable[[int, int], None]
"""Called with how many files of the dataset are done, and of how many."""


class CountsTokens(Protocol):
    """A tokenizer, as far as documents are chosen by it."""

    @property
    def identity(self) -> str:
        """Changes if and only if a count can."""
        ...

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text, without those that a tokenizer adds."""
        ...


OpensTokenizer = Callable[[str, str], CountsTokens]
"""Opens the tokenizer of a folder, or of a model on the Hub at a revision."""


class _CorpusRequest(NamedTuple):
    """What is to be made, of what, and by what."""

    facts: MakeSection
    path: Path
    cards: Mapping[str, CorpusCard]
    corpora: Path
    open_tokenizer: OpensTokenizer
    progress: FileProgress


def make_corpus(
    name: str,
    *,
    corpora: Path,
    catalogue: Catalogue,
    open_tokenizer: OpensTokenizer,
    progress: FileProgress = lambda done, total: None,
) -> tuple[Path, int]:
    """Make a corpus's file in a corpora folder, and return it with its number of rows.

    Raises UnknownName: no such corpus; DataError: it is not one that can be made, what it is made of cannot be had or
    read, or its rows are not the card's; OutputError: the file already exists, or cannot be written.
    """
    cards = catalogue.corpora()
    card = look_up("corpus", name, cards)
    if card.make is None:
        raise DataError(
            f"corpus '{name}' is not made by a command: {card.how or 'fetch it, or put it into a folder'}"
        )
    path = corpora / card.file
    if path.exists():
        raise OutputError(f"{path}: already exists; remove it to make it again")
    make = look_up("way of making a corpus", card.make.way, WAYS)
    rows = make(_CorpusRequest(card.make, path, cards, corpora, open_tokenizer, progress))
    if rows != card.rows:
        raise DataError(
            f"{path}: made, but of {rows:,} rows where the card of '{name}' says {card.rows:,}: its source has "
            "changed; to train on it anyway, name the file by its path"
        )
    fetch_corpus(name, card, corpora=corpora)
    return path, rows


def _first_rows(order: _CorpusRequest) -> int:
    facts = order.facts
    source = fetch_corpus(facts.of, look_up("corpus", facts.of, order.cards), corpora=order.corpora)
    lines = read_training_text(source, header=False, limit=facts.rows).column(0).to_pylist()
    write_atomically(order.path, "".join(f"{line}\n" for line in lines).encode())
    return len(lines)


class _CorpusProgress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a draft is: what it is made of, and what of that is whole."""

    key: str
    files: int = 0
    size: int = 0
    rows: int = 0


def _long_documents(order: _CorpusRequest) -> int:
    """The documents of a dataset with more tokens than a number, each on one line.

    Until it is whole the file is a draft beside its place. The draft grows by what one file of the dataset gives, and
    a record says how far it is, so that the same bytes come of a run that was stopped and begun again.
    """
    from stsbench.data.hub.repository import Repository

    facts, path = order.facts, order.path
    if not facts.tokenizer or facts.tokens is None:
        raise CardError(
            "way 'long_documents' needs a tokenizer, and the number of tokens to be exceeded"
        )
    repository = Repository(facts.of, revision=facts.revision, kind="dataset", offline_hint="")
    digests = {name: repository.files[name] for name in _of_training(repository.files)}
    if not digests:
        raise SourceError(
            f"{repository}: has no parquet file for training; nothing else is read here"
        )
    count = order.open_tokenizer(facts.tokenizer, facts.tokenizer_revision)
    chosen = [facts.column, facts.tokens, facts.lowercase, count.identity]
    key = hashlib.sha256(json.dumps([list(digests.items()), *chosen]).encode()).hexdigest()
    draft, record = (
        path.with_name(f"{path.name}.unfinished"),
        path.with_name(f"{path.name}.unfinished.json"),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = _CorpusProgress(key=key)
        # Nothing of a draft that is made of something else, or cut.
        with suppress(OSError, msgspec.DecodeError):
            noted = msgspec.json.decode(record.read_bytes(), type=_CorpusProgress)
            done = noted if noted.key == key and draft.stat().st_size >= noted.size else done
        with draft.open("ab") as stream:
            stream.truncate(done.size)
            for name in list(digests)[done.files :]:
                order.progress(done.files, len(digests))
                rows = done.rows
                # One file at a time, and none is kept: a dataset may be larger than the disk.
                with TemporaryDirectory(dir=path.parent, suffix=".partial") as scratch:
                    file = repository.fetch(name, into=Path(scratch))
                    for line in _long(file, repository.describe_file(name), facts, count):
                        stream.write(f"{line}\n".encode())
                        rows += 1
                stream.flush()
                os.fsync(stream.fileno())
                done = _CorpusProgress(key=key, files=done.files + 1, size=stream.tell(), rows=rows)
                write_atomically(record, msgspec.json.encode(done))
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path.parent}: cannot be written: {error.strerror}") from error
    remove(record)
    return done.rows


WAYS: Mapping[str, Callable[[_CorpusRequest], int]] = {
    "first_rows": _first_rows,
    "long_documents": _long_documents,
}
"""How a card's ``[make]`` says that its file is made; each writes it and returns its rows."""


def _of_training(names: Iterable[str]) -> list[str]:
    """The parquet files for training, by their names; all where no name says a split."""
    words = {
        name: set(re.split(r"[/._-]", name)) for name in sorted(names) if name.endswith(".parquet")
    }
    if not any(parts & SPLITS for parts in words.values()):
        return list(words)
    return [name for name, parts in words.items() if "train" in parts]


def _long(file: Path, where: str, facts: MakeSection, count: CountsTokens) -> Iterator[str]:
    least = facts.tokens or 0
    for documents in _documents(file, where, facts.column):
        texts = [
            " ".join((document.lower() if facts.lowercase else document).split())
            for document in documents
        ]
        # A token has a byte at least: what is too short need not be tokenised.
        texts = [text for text in texts if len(text.encode()) > least]
        for text, tokens in zip(texts, count(texts) if texts else [], strict=True):
            if tokens > least:
                yield text


def _documents(file: Path, where: str, column: str) -> Iterator[list[str]]:
    """The texts of a column, some rows at a time; a row without text holds none."""
    import pyarrow as pa

    kinds = pa.ArrowException, OSError, UnicodeDecodeError
    with translate_errors(f"{where}: cannot be read", SourceError, *kinds, max_length=200):
        for batch in parquet_batches(file, file, where=where):
            texts = batch.column(column_position(batch.schema.names, column, where=where))
            kind: Any = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise DataError(f"{where}: column '{column}' holds {kind}, not text")
            # The tokenizer takes far more memory than the text that it is given at once.
            for at in range(0, len(texts), _ROWS):
                yield [text or "" for text in texts.slice(at, _ROWS).to_pylist()]
