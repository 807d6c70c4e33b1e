"""The long documents of a dataset, made into a corpus file by file: a stopped run goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from stsbench.cards.facts import MakeFacts
from stsbench.errors import CardError, DataError, OutputError, SourceError, one_line
from stsbench.files.expanded import check_parquet
from stsbench.files.whole import remove, write_whole

_ROWS = 512
FileProgress = Callable[[int, int], None]
"""Told how many files of the dataset are done, of how many."""


class CountsTokens(Protocol):
    """A tokenizer, as far as documents are chosen by it."""

    @property
    def identity(self) -> str:
        """Changes if and only if a count can."""
        ...

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text, without those that a tokenizer adds."""
        ...


class OpensTokenizer(Protocol):
    """Opens a tokenizer."""

    def __call__(self, model: str, *, revision: str) -> CountsTokens:
        """The tokenizer of a folder or of a model on the Hub."""
        ...


class _Done(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a draft is: what it is made of, and what of that is whole."""

    key: str
    files: int = 0
    size: int = 0
    rows: int = 0


def write_long_documents(facts: MakeFacts, path: Path, open_tokenizer: OpensTokenizer, progress: FileProgress) -> int:
    """Write the documents of a dataset with more tokens than a number, each on one line, and return how many.

    Until it is whole the file is a draft beside its place. The draft grows by what one file of the dataset gives, and
    a record says how far it is, so that the same bytes come of a run that was stopped and begun again.

    Args:
        facts: the dataset, its column, the tokenizer and the number of tokens to be exceeded.
        path: the file to be made.
        open_tokenizer: opens a tokenizer whose files are held against the Hub's hashes.
        progress: told how far it is.

    Raises:
        CardError: the card does not tell the tokenizer and the number.
        SourceError: dataset or tokenizer cannot be had or read.
        DataError: the dataset has no such column of text.
        OutputError: the file cannot be written.
    """
    from stsbench.data.hub import find_shards

    if not facts.tokenizer or facts.tokens is None:
        raise CardError("way 'long_documents' needs a tokenizer, and the number of tokens to be exceeded")
    shards = find_shards(facts.of, revision=facts.revision)
    count = open_tokenizer(facts.tokenizer, revision=facts.tokenizer_revision)
    chosen = [facts.column, facts.tokens, facts.lowercase, count.identity]
    key = hashlib.sha256(json.dumps([list(shards.digests.items()), *chosen]).encode()).hexdigest()
    draft, record = path.with_name(f"{path.name}.unfinished"), path.with_name(f"{path.name}.unfinished.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        done = _done(draft, record, key)
        with draft.open("ab") as stream:
            stream.truncate(done.size)
            for name in list(shards.digests)[done.files :]:
                progress(done.files, len(shards.digests))
                with shards.open(name) as file:
                    rows = _append(stream, _long(file, f"file '{name}' of {shards.where}", facts, count))
                done = _Done(key=key, files=done.files + 1, size=stream.tell(), rows=done.rows + rows)
                write_whole(record, msgspec.json.encode(done))
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path.parent}: cannot be written: {error.strerror}") from error
    remove(record)
    return done.rows


def _done(draft: Path, record: Path, key: str) -> _Done:
    """How far a draft is; nothing of one that is made of something else, or cut."""
    try:
        done = msgspec.json.decode(record.read_bytes(), type=_Done)
        whole = done.key == key and draft.stat().st_size >= done.size
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = False
    return done if whole else _Done(key=key)


def _append(stream: IO[bytes], lines: Iterator[str]) -> int:
    rows = 0
    for line in lines:
        stream.write(f"{line}\n".encode())
        rows += 1
    stream.flush()
    os.fsync(stream.fileno())
    return rows


def _long(file: Path, where: str, facts: MakeFacts, count: CountsTokens) -> Iterator[str]:
    """The long documents of one file, white space made single spaces."""
    least = facts.tokens or 0
    for documents in _documents(file, where, facts.column):
        texts = [" ".join(document.split()) for document in documents]
        texts = [text.lower() for text in texts] if facts.lowercase else texts
        # A token has a byte at least: what is too short need not be tokenised.
        texts = [text for text in texts if len(text.encode()) > least]
        for text, tokens in zip(texts, count(texts) if texts else [], strict=True):
            if tokens > least:
                yield text


def _documents(file: Path, where: str, column: str) -> Iterator[list[str]]:
    """The texts of a column, some rows at a time; a row without text holds none."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        check_parquet(file, file, where=where)
        with parquet.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            if column not in schema.names:
                raise DataError(f"{where}: has no column '{column}' (has {', '.join(schema.names[:20])})")
            kind: Any = schema.field(column).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise DataError(f"{where}: column '{column}' holds {kind}, not text")
            for batch in opened.iter_batches(_ROWS, columns=[column]):
                yield [text or "" for text in batch.column(0).to_pylist()]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{where}: cannot be read: {one_line(error)[:200]}") from error
