"""Training text as rows of named columns: from a file, by its logical name or path, or of tasks.

It is held as Arrow columns, in which a million sentences take the space of their bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stsbench.core import settings
from stsbench.core.cards import CorpusCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import (
    DataError,
    Remedy,
    SourceError,
    UnknownName,
    suggest,
    translate_errors,
)
from stsbench.core.files import iter_chunks, limit_bytes, refuse_special_file
from stsbench.core.wording import format_count
from stsbench.data.readers.files import read_json_lines, read_parquet
from stsbench.data.readers.table import column_position, format_names
from stsbench.data.readers.text import BOM, normalise_text
from stsbench.data.splits import PairSplit, describe_difference
from stsbench.data.task import load_task

OPENERS: Mapping[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
"""The functions that open a compressed file, by the suffix of its name."""
LAYOUTS: tuple[Mapping[str, str | int], ...] = (
    {
        "anchor": "anchor",
        "positive": "positive",
        "negative": "negative",
        "second_negative": "second_negative",
    },
    {"anchor": "anchor", "positive": "positive", "negative": "negative"},
    {"anchor": "anchor", "positive": "positive"},
    {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg"},
    {"anchor": "sent0", "positive": "sent1"},
    {"first": "first", "second": "second", "label": "label"},
    {"first": "premise", "second": "hypothesis", "label": "label"},
    {"first": "sentence1", "second": "sentence2", "label": "label"},
    {"first": "first", "second": "second", "score": "score"},
    {"first": "sentence1", "second": "sentence2", "score": "score"},
    {"document": "document"},
    {"text": "text"},
    {"text": "sentence"},
)
"""Names of columns in a user's file, by our names; the first layout that the file has is used."""


def load_corpus(
    name: str | Path,
    *,
    corpora: Path | None = None,
    data: Path | None = None,
    limit: int | None = None,
    catalogue: Catalogue | None = None,
) -> Corpus:
    """Load training text: a corpus by its id, or a file by its path.

    A file is ``.txt``, ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, each also as ``.xz`` or
    ``.gz``, with columns as in one of :data:`LAYOUTS`.

    Args:
        name: The id of a corpus, or the path of a file, which may begin at the corpora folder.
        corpora: The folder of corpora; by default the one in ``STSBENCH_CORPORA``, if that is set.
        data: The data folder, for corpora that are the text of tasks.
        limit: The number of first rows to load; None for all.
        catalogue: The cards; by default those of the project.

    Raises:
        UnknownName: The name is of no corpus and no file.
        DataError: The text is missing, broken, differs from its card, or is too little to train on.
    """
    if limit is not None and limit < 1:
        raise DataError(f"a corpus of {limit} rows holds nothing; limit must be 1 or more")
    catalogue = catalogue or Catalogue()
    cards = catalogue.corpora()
    card = cards.get(str(name))
    if card is None:
        path = _find_text_file(Path(name), folder=corpora or settings.corpora_folder(), cards=cards)
        return _to_corpus(str(name), _read_user_file(path, limit))
    if card.tasks:
        table = _read_tasks(card, data, catalogue)
    else:
        table = _read_card_file(str(name), card, corpora, limit)
    if limit is None and table.num_rows != card.rows:
        raise DataError(
            f"corpus '{name}': {table.num_rows:,} rows, its card says {card.rows:,}; "
            "restore the file, or correct the card where the text is your own"
        )
    return _to_corpus(str(name), table.slice(0, limit))


def _find_text_file(path: Path, folder: Path | None, cards: Mapping[str, CorpusCard]) -> Path:
    """Return the path of a user's file as it is, or else within the folder of corpora.

    Args:
        path: The path that the user has given.
        folder: The folder of corpora; None if there is none.
        cards: All corpora by id, for the message.

    Raises:
        DataError: There is no such file.
        UnknownName: The path looks like the id of a corpus.
    """
    candidates = [path] if folder is None else [path, folder / path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    refuse_special_file(path)
    if path.suffix or len(path.parts) > 1:
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"corpus file '{path}' {problem}")
    raise UnknownName("corpus", str(path), cards, hint="or give the path of a file")


def _read_user_file(path: Path, limit: int | None) -> pa.Table:
    """Read a file without a card, with the columns of the first layout that it has.

    Args:
        path: The file.
        limit: The number of first rows to read; None for all.

    Raises:
        DataError: Its columns are of none of the LAYOUTS.
    """
    table = read_training_text(path, header=True, limit=limit)
    for layout in LAYOUTS:
        if set(layout.values()) <= set(table.column_names):
            return select_columns(table, layout, where=str(path))
    raise DataError(
        f"{path}: its columns ({format_names(table.column_names)}) are none of those known; "
        "rename them to text, or anchor and positive, "
        "or say which is which by 'columns' in a corpus's card"
    )


def fetch_corpus(name: str, corpus: CorpusCard, *, corpora: Path | None = None) -> Path:
    """Return the path of a corpus's file in the corpora folder, or else fetched from the Hub.

    Args:
        name: The id of the corpus.
        corpus: Its card.
        corpora: The folder of corpora; by default the one in ``STSBENCH_CORPORA``, if that is set.

    Raises:
        SourceError: No source has it; the message says what to do.
        DataError: The file is not the one of the card.
    """
    folder = corpora or settings.corpora_folder()
    if folder is not None and not folder.is_dir():
        raise SourceError(f"corpora folder '{folder}' does not exist")
    if folder is not None and (folder / corpus.file).is_file():
        path = folder / corpus.file
        _check_hash(path, corpus, hint="restore the file")
        return path
    hint = f"put {corpus.file} into a folder and set STSBENCH_CORPORA to it"
    if not corpus.repo:
        source = f" ({corpus.how})" if corpus.how else ""
        raise SourceError(
            f"corpus '{corpus.name}' is local only",
            hint=f"{hint}{source}; or train on other text by `text=NAME` (or a file)",
            remedy=Remedy("make", {"corpus": name}) if corpus.make else None,
        )
    from stsbench.data.hub.repository import Repository

    repository = Repository(
        corpus.repo, revision=corpus.revision, kind="dataset", offline_hint=hint
    )
    path = repository.fetch(corpus.path or Path(corpus.file).name)
    _check_hash(path, corpus, hint="pin the card's revision")
    return path


def _check_hash(path: Path, corpus: CorpusCard, hint: str) -> None:
    """Raise DataError if a file is not the one of its card; the message ends with the hint."""
    if difference := describe_difference(path, corpus.sha256):
        raise DataError(f"{path}: {difference}; {hint}, or name yours by its path")


def _read_card_file(
    name: str, card: CorpusCard, corpora: Path | None, limit: int | None
) -> pa.Table:
    """Read the file of a corpus, with the columns and labels of its card.

    Args:
        name: The id of the corpus.
        card: Its card.
        corpora: The folder of corpora; None for the one of the settings.
        limit: The number of first rows to read; None for all.

    Raises:
        SourceError: No source has the file.
        DataError: The file is not the one of the card, or has a label that the card lacks.
    """
    path = fetch_corpus(name, card, corpora=corpora)
    has_header = not any(isinstance(column, int) for column in card.columns.values())
    # There are fewer documents than sentences: the limit may be the file's too.
    table = read_training_text(path, header=has_header, limit=limit)
    if card.split_sentences:
        return _split_documents(TextColumn(table.column(0)))
    table = select_columns(table, card.columns, where=str(path))
    if not card.labels:
        return table
    labels = table.column("label").cast(pa.string())
    unknown_labels = sorted(set(labels.unique().to_pylist()) - set(card.labels))
    if unknown_labels:
        raise DataError(
            f"corpus '{name}': label '{unknown_labels[0]}' is not one of {', '.join(card.labels)}"
        )
    # The place of each row's label in the card, then ours at that place.
    positions = pc.index_in(labels.combine_chunks(), pa.array(list(card.labels)))
    our_labels = pa.array(list(card.labels.values())).take(positions)
    return table.set_column(table.column_names.index("label"), "label", our_labels)


def _split_documents(documents: Sequence[str]) -> pa.Table:
    """Return the sentences of documents in order, each with the number of its document.

    Returns:
        The columns ``text`` and ``document_id``, which counts documents from 0.
    """
    sentences = [split_sentences(document) for document in documents]
    document_ids = np.repeat(np.arange(len(sentences)), list(map(len, sentences)))
    text = pa.array(itertools.chain(*sentences), pa.large_string())
    return pa.table({"text": text, "document_id": document_ids})


def _read_tasks(card: CorpusCard, data: Path | None, catalogue: Catalogue) -> pa.Table:
    """Read the text of a corpus that is made of tasks: all sentences, or pairs with scores.

    Args:
        card: The corpus's card, with the names of tasks and splits; without splits all are read.
            Its columns decide: ``text``, or else ``first``, ``second`` and ``score``.
        data: The user's data folder; None if there is none.
        catalogue: The cards of the tasks.
    """
    tasks = [load_task(name, data=data, catalogue=catalogue) for name in card.tasks]
    splits = [(task, split) for task in tasks for split in card.splits or task.card.splits]
    if "text" in card.columns:
        # Every sentence as often as it occurs: ConSERT and SG-BERT train on them so.
        texts: list[str] = []
        for task, split in splits:
            texts += task.load(split).texts()
            texts += task.ungraded_sentences(split)
        return pa.table({"text": pa.array(texts, pa.large_string())})
    loaded = [task.load(split) for task, split in splits]
    pairs = [split for split in loaded if isinstance(split, PairSplit)]
    return pa.table(
        {
            "first": list(itertools.chain.from_iterable(split.sentences1 for split in pairs)),
            "second": list(itertools.chain.from_iterable(split.sentences2 for split in pairs)),
            "score": np.concatenate([split.gold for split in pairs]),
        }
    )


def _to_corpus(name: str, table: pa.Table) -> Corpus:
    """Check the columns of a table and make a corpus of it, each empty text as one space.

    Args:
        name: The name of the corpus, for messages.
        table: The rows, with columns under our names.

    Raises:
        DataError: A column has the wrong type, there are fewer than two rows, or there is no text.
    """
    n_blanks = 0
    columns: dict[str, pa.ChunkedArray] = {}
    for column in table.column_names:
        column_type = _COLUMN_TYPES.get(column, pa.large_string())
        values = table.column(column)
        try:
            cast_values = values.cast(column_type)
            # Parquet may declare bytes as text that are not UTF-8.
            cast_values.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"corpus '{name}': column {column} holds {values.type}, not {column_type}"
            ) from None
        if column_type == pa.large_string():
            is_empty = pc.equal(pc.coalesce(cast_values, ""), "")
            n_blanks += pc.sum(is_empty).as_py() or 0
            cast_values = pc.if_else(is_empty, " ", cast_values)
        columns[column] = cast_values
    if table.num_rows < 2:
        rows = format_count(table.num_rows, "row")
        raise DataError(f"corpus '{name}' has {rows}; training needs at least two")
    texts = [
        pc.utf8_trim_whitespace(values)
        for column, values in columns.items()
        if column in TEXT_COLUMNS
    ]
    if not any(pc.any(pc.not_equal(text, "")).as_py() for text in texts):
        raise DataError(f"corpus '{name}' holds no text: all its fields are empty")
    return Corpus(name=name, table=pa.table(columns), blanks=n_blanks)


_COLUMN_TYPES = {"score": pa.float64(), "document_id": pa.int64()}
"""The Arrow types of the columns that are no text."""


def select_columns(table: pa.Table, columns: Mapping[str, str | int], *, where: str) -> pa.Table:
    """Return some columns of a table under our names.

    Args:
        table: The table of a file.
        columns: By our name, the name or the position of each column in the table, from 0.
        where: The beginning of a message.

    Raises:
        DataError: The table lacks a column.
    """
    for key in columns.values():
        if isinstance(key, str):
            column_position(table.column_names, key, where=where)
        elif not 0 <= key < table.num_columns:
            raise DataError(f"{where}: no column {key} (has {table.num_columns}, counted from 0)")
    return pa.table({name: table.column(key) for name, key in columns.items()})


def read_training_text(path: Path, *, header: bool, limit: int | None = None) -> pa.Table:
    """Read a file of training text as a table with the columns of the file.

    The one column of a ``.txt`` is ``text``; only a ``.csv`` quotes its cells. Each kind of file
    may be packed as ``.xz`` or ``.gz``.

    Args:
        path: The file.
        header: Whether the first row of a ``.csv`` or ``.tsv`` names its columns, which otherwise
            are ``f0``, ``f1``, …
        limit: The number of first rows to read; None for all.

    Raises:
        DataError: The file is missing, empty, cut off, not UTF-8, or not of its type.
    """
    suffix = Path(path.stem).suffix if path.suffix in OPENERS else path.suffix
    if suffix not in TEXT_FILES:
        raise DataError(
            f"{path}: '{suffix}' is not a kind of training text; known: {', '.join(TEXT_FILES)}, "
            f"each also {' or '.join(OPENERS)}{suggest(suffix, TEXT_FILES)}"
        )
    text_file = TEXT_FILES[suffix]
    content = _read_content(path, max_lines=limit if text_file.by_line else None)
    if text_file.is_utf8:
        content = normalise_text(path, content, forbidden=b"\0").removeprefix(BOM.encode())
    # Damaged pages of parquet are an OSError.
    exception_types = (pa.ArrowException, OSError)
    problem = f"{path}: not a valid {suffix} file"
    with translate_errors(problem, DataError, *exception_types, max_length=150):
        table = text_file.parse(path, content, header)
    return table if limit is None else table.slice(0, limit)


def _read_content(path: Path, max_lines: int | None) -> bytes:
    """Read and unpack a file.

    Args:
        path: The file, packed if its suffix is one of ``OPENERS``.
        max_lines: The number of first lines to read; None for all.

    Raises:
        DataError: The file is missing, empty, cut off, damaged, or unpacks to too much.
    """
    content = bytearray()
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as stream:
            for chunk in limit_bytes(iter_chunks(stream), path, where=str(path)):
                content += chunk
                # All of the content is counted again only if this chunk can have changed the count.
                has_line_end = chunk.count(b"\n") > 0
                if max_lines is not None and has_line_end and content.count(b"\n") >= max_lines:
                    break
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        is_cut = isinstance(error, EOFError)
        problem = "is cut off" if is_cut else f"is not a {path.suffix} file, or is damaged"
        raise DataError(f"{path}: {problem}; restore it") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not content.strip():
        raise DataError(f"{path}: the file is empty")
    if max_lines is None:
        return bytes(content)
    return b"".join(itertools.islice(io.BytesIO(content), max_lines))


def _parse_lines(path: Path, content: bytes, header: bool) -> pa.Table:
    """Split text at line feeds alone: other Unicode line ends are text.

    Args:
        path: Not used; all parsers have it.
        content: The text in UTF-8.
        header: Not used: lines have no header.
    """
    text = pa.array([content.removesuffix(b"\n")], pa.large_binary()).cast(pa.large_string())
    return pa.table({"text": pc.split_pattern(text, "\n").flatten()})


def _parse_delimited(
    content: bytes, header: bool, delimiter: str, quote: str | Literal[False]
) -> pa.Table:
    """Parse delimited text, all cells as text.

    Args:
        content: The text in UTF-8.
        header: Whether the first row names the columns, which otherwise are ``f0``, ``f1``, …
        delimiter: The character between cells.
        quote: The character around cells; False if cells have no quotes.
    """
    from pyarrow import csv

    return csv.read_csv(
        io.BytesIO(content),
        # One thread: only then do errors name the row.
        read_options=csv.ReadOptions(
            autogenerate_column_names=not header, use_threads=False, block_size=1 << 24
        ),
        parse_options=csv.ParseOptions(
            delimiter=delimiter, quote_char=quote, newlines_in_values=bool(quote)
        ),
        # Cells are text, whatever they look like; no word stands for a missing one.
        convert_options=csv.ConvertOptions(
            default_column_type=pa.string(), strings_can_be_null=False
        ),
    )


class TextFile(NamedTuple):
    """A type of file with training text."""

    parse: Callable[[Path, bytes, bool], pa.Table]
    """Parse the content, from the path for messages and whether the first row names the columns."""
    is_utf8: bool = True
    by_line: bool = False
    """Whether each line is a row."""


TEXT_FILES: Mapping[str, TextFile] = {
    ".txt": TextFile(_parse_lines, by_line=True),
    ".csv": TextFile(
        lambda path, content, header: _parse_delimited(content, header, delimiter=",", quote='"')
    ),
    ".tsv": TextFile(
        lambda path, content, header: _parse_delimited(content, header, delimiter="\t", quote=False)
    ),
    ".jsonl": TextFile(lambda path, content, header: read_json_lines(path, content)),
    ".parquet": TextFile(lambda path, content, header: read_parquet(path, content), is_utf8=False),
}
"""The types of files by the suffix of their names."""


TEXT_COLUMNS = (
    "text",
    "document",
    "anchor",
    "positive",
    "negative",
    "second_negative",
    "first",
    "second",
)
"""The columns of a corpus with text; the others are ``label``, ``score`` and ``document_id``."""


class TextColumn(Sequence[str]):
    """One column of text as a sequence of strings, which are made at each access."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        """Store the Arrow column of strings."""
        self.values = values

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return one string, or a list of them for a slice."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        return str(self.values[index].as_py())

    def __iter__(self) -> Iterator[str]:
        """Yield all strings in order."""
        for chunk in self.values.chunks:
            yield from chunk.to_pylist()

    def take(self, rows: Sequence[int]) -> list[str]:
        """Return the strings of some rows, by their positions."""
        texts: list[str] = self.values.take(pa.array(rows, pa.int64())).to_pylist()
        return texts


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Rows of training text, made by :func:`~stsbench.data.corpora.corpus.load_corpus`.

    Columns are ``text``; or ``document``; or ``anchor``, ``positive`` and perhaps ``negative`` and
    ``second_negative``; or ``first``, ``second`` and ``label`` (a class name) or ``score`` (float).
    Beside ``text`` there may be ``document_id`` (int): sentences of the same document follow each
    other. A corpus is a dataset for torch: it has a length, and its rows are dictionaries.
    """

    name: str
    table: pa.Table = field(repr=False)
    blanks: int = 0
    """The number of empty fields that were made one space, as in SimCSE's code."""
    drawn_from: str = ""
    """The sha256 of the corpus that these rows were drawn from; empty if none were drawn."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """Return one row by column."""
        return {name: self.table.column(name)[row].as_py() for name in self.columns}

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return some rows at once, as torch's data loader requests them."""
        return list(self.take(rows).table.to_pylist())

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.column_names)

    def column(self, name: str) -> TextColumn:
        """Return one column of text or labels; raises DataError if the corpus lacks it."""
        return TextColumn(self.require(name).table.column(name))

    def numbers(self, name: str) -> np.ndarray:
        """Return ``score`` (float64) or ``document_id`` (int64), shape (n,); raises DataError."""
        return np.asarray(self.require(name).table.column(name))

    def require(self, *names: str) -> Corpus:
        """Return the corpus if it has these columns; raises DataError if it lacks one."""
        if missing := [name for name in names if name not in self.columns]:
            raise DataError(
                f"corpus '{self.name}' has no {' and no '.join(missing)} "
                f"(has {', '.join(self.columns)}); "
                "choose a corpus with these columns, or name the columns of your file"
            )
        return self

    def take(self, rows: Sequence[int]) -> Corpus:
        """Return the corpus of some rows, by their positions, in this order."""
        return replace(self, table=self.table.take(pa.array(rows, pa.int64())))

    def sentences(self) -> Corpus:
        """Return the distinct texts of all columns as a corpus with one column, ``text``.

        They are in the order of their first occurrence, first columns first.
        """
        chunks: list[pa.Array] = []
        for name in self.columns:
            if name in TEXT_COLUMNS:
                chunks += self.table.column(name).chunks
        text = pc.unique(pa.chunked_array(chunks, pa.large_string()))
        return replace(self, table=pa.table({"text": text}))

    @cached_property
    def sha256(self) -> str:
        """The sha256 of columns and rows in order: the same for the same text in any file."""
        sha256 = hashlib.sha256()
        for name in self.columns:
            values = self.table.column(name).combine_chunks()
            sha256.update(f"\x1d{name}\x1f".encode())
            if not pa.types.is_large_string(values.type):
                sha256.update(values.to_numpy(zero_copy_only=False).tobytes())
                continue
            lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)
            sha256.update(lengths.astype("<i8").tobytes())
            # The texts of the rows, without a copy: Arrow's buffers are validity, offsets, bytes.
            _, offset_buffer, text_buffer = values.buffers()
            first = values.offset
            offsets = np.frombuffer(offset_buffer, "<i8")[first : first + len(values) + 1]
            sha256.update(memoryview(text_buffer)[offsets[0] : offsets[-1]])
        return sha256.hexdigest()


def number_texts(*columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """Assign a number to each distinct text of equally long columns, in order of occurrence.

    Returns:
        The number of each text, of shape (n_columns, n).
    """
    chunks: list[pa.Array] = []
    for column in columns:
        chunks += column.values.chunks if isinstance(column, TextColumn) else [pa.array(column)]
    texts = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in chunks])
    numbers: npt.NDArray[np.int32] = texts.dictionary_encode().indices.to_numpy()
    return numbers.astype(np.int64).reshape(len(columns), -1)


_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[A-Z0-9])")
_LAST_WORD = re.compile(r"([\w.]+)\.$")
_ABBREVIATIONS = frozenset(
    "adm al approx ave b.c blvd brig ca capt cf cmdr co col corp d.c dept dr e.g ed eds est etc "
    "fig figs gen gov hon i.e inc jr lt ltd maj mr mrs ms mt no nos op p ph.d pp prof rep rev sen "
    "sgt sr st u.k u.n u.s v viz vol vols vs".split()
)


def split_sentences(text: str) -> list[str]:
    """Split text after full stops, question and exclamation marks before a capital or a digit.

    Initials and common abbreviations of English end no sentence. This is a rule, not a model:
    nothing is lost and no order changed, but some cuts are wrong.
    """
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        last_word = _LAST_WORD.search(text[start : match.start() + 1])
        if last_word is not None and _is_abbreviation(last_word[1]):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return list(filter(None, sentences))


def _is_abbreviation(word: str) -> bool:
    """Return whether a word before a full stop is an initial or a common abbreviation."""
    return (len(word) == 1 and word.isupper()) or word.casefold() in _ABBREVIATIONS
