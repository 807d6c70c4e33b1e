"""Training text as rows of named columns: from a file, by its logical name or path, or of tasks.

It is held as Arrow columns, in which a million sentences take the space of their bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import lzma
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
from stsbench.core.wording import as_one_line, format_count
from stsbench.data.readers.files import read_json_lines, read_parquet
from stsbench.data.readers.table import column_position, format_names
from stsbench.data.readers.text import BOM, normalise_text, split_sentences
from stsbench.data.splits import PairSplit, describe_hash_mismatch
from stsbench.data.task import load_task

COMPRESSED_FILE_OPENERS: Mapping[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
"""The functions that open a compressed file, by the suffix of its name."""
COLUMN_LAYOUTS: tuple[Mapping[str, str | int], ...] = (
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
    {"text": "text", "document_id": "document_id"},
    {"text": "text"},
    {"text": "sentence"},
)
"""Our name of each column -> its name in a user's file; the first layout that a file has counts."""


def load_corpus(
    name: str | Path,
    *,
    corpora: Path | None = None,
    data: Path | None = None,
    limit: int | None = None,
    catalogue: Catalogue | None = None,
) -> Corpus:
    """Load training text: a corpus by its id, or a file by its path.

    A file is ``.txt``, ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, each also packed as ``.xz``
    or ``.gz``, with columns as in one of :data:`COLUMN_LAYOUTS`.

    Args:
        name: The id of a corpus, or the path of a file, which may begin at the corpora folder.
        corpora: The folder of corpora; by default the one in ``STSBENCH_CORPORA``, if that is set.
        data: The data folder, for corpora that are the text of tasks.
        limit: The number of first rows to load; None for all.
        catalogue: The cards that describe corpora and tasks; by default those of the project.

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
        corpora_folder = corpora or settings.corpora_folder()
        path = _find_text_file(Path(name), corpora_folder, cards)
        return _to_corpus(str(name), _read_user_file(path, limit))
    # A corpus is the text of some tasks, or a file.
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


def _find_text_file(
    path: Path, corpora_folder: Path | None, cards: Mapping[str, CorpusCard]
) -> Path:
    """Return the path of a user's file: the path as it is, or else within the folder of corpora.

    Args:
        path: The path that the user has given.
        corpora_folder: The folder of corpora; None if there is none.
        cards: All corpora by id, to suggest a similar name.

    Raises:
        DataError: There is no such file.
        UnknownName: There is no such file, and the path looks like the id of a corpus.
    """
    candidates = [path] if corpora_folder is None else [path, corpora_folder / path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    # Raises DataError for a device or a pipe, which would never end.
    refuse_special_file(path)
    if path.suffix or len(path.parts) > 1:
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"corpus file '{path}' {problem}")
    raise UnknownName("corpus", str(path), cards, hint="or give the path of a file")


def _read_user_file(path: Path, limit: int | None) -> pa.Table:
    """Read a user's own file of training text, which has no card that names its columns.

    Args:
        path: The file.
        limit: The number of first rows to read; None for all.

    Returns:
        The columns under our names, such as ``text``, or ``anchor`` and ``positive``.

    Raises:
        DataError: The names of its columns are in none of the ``COLUMN_LAYOUTS``.
    """
    table = read_training_text(path, header=True, limit=limit)
    # A layout is our name of each column -> its name in a file; the first that fits counts.
    for layout in COLUMN_LAYOUTS:
        if set(layout.values()) <= set(table.column_names):
            columns = select_columns(table, layout, where=str(path))
            if "document_id" in layout:
                # Users name documents by any text or number.
                (numbers,) = number_texts(TextColumn(columns.column("document_id")))
                columns = columns.set_column(1, "document_id", pa.array(numbers))
            return columns
    raise DataError(
        f"{path}: its columns ({format_names(table.column_names)}) are none of those known; "
        "rename them to text, or anchor and positive, "
        "or say which is which by 'columns' in a corpus's card"
    )


def fetch_corpus(name: str, corpus: CorpusCard, *, corpora: Path | None = None) -> Path:
    """Return the path of a corpus's file, which has the hash of its card.

    It is the file in the corpora folder, or else it is fetched from the Hugging Face Hub.

    Args:
        name: The id of the corpus.
        corpus: Its card, with the name of the file, its hash and its repository on the Hub.
        corpora: The folder of corpora; by default the one in ``STSBENCH_CORPORA``, if that is set.

    Raises:
        SourceError: The folder does not exist, or neither it nor the Hub has the file.
        DataError: The file has another hash than the card.
    """
    folder = corpora or settings.corpora_folder()
    if folder is not None and not folder.is_dir():
        raise SourceError(f"corpora folder '{folder}' does not exist")
    if folder is not None and (folder / corpus.file).is_file():
        path = folder / corpus.file
        _check_hash(path, corpus, hint="restore the file")
        return path
    hint = f"put {corpus.file} into a folder and set STSBENCH_CORPORA to it"
    # Without a repository on the Hub, the card may say how people get the file.
    if not corpus.repo:
        how_to_get = f" ({corpus.how})" if corpus.how else ""
        raise SourceError(
            f"corpus '{corpus.name}' is local only",
            hint=f"{hint}{how_to_get}; or train on other text by `text=NAME` (or a file)",
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
    mismatch = describe_hash_mismatch(path, corpus.sha256)
    if mismatch:
        raise DataError(f"{path}: {mismatch}; {hint}, or name yours by its path")


def _read_card_file(
    name: str, card: CorpusCard, corpora: Path | None, limit: int | None
) -> pa.Table:
    """Read the file of a corpus, with the columns and labels that its card says.

    Args:
        name: The id of the corpus.
        card: Its card. ``columns`` has our name of each column -> its name or position in the file;
            ``labels`` has each label of the file -> our name of it; ``split_sentences`` says that
            each row of the file is a document, of which the sentences become rows.
        corpora: The folder of corpora; None for the one in ``STSBENCH_CORPORA``.
        limit: The number of first rows to read; None for all. Of documents, so many are read,
            which have more sentences than that.

    Returns:
        The rows, with columns under our names; of documents the columns ``text`` and
        ``document_id``.

    Raises:
        SourceError: Neither the folder nor the Hub has the file.
        DataError: The file has another hash than the card, or a label that the card lacks.
    """
    path = fetch_corpus(name, card, corpora=corpora)
    # Columns are found by their names in the first row, or by their positions.
    has_header = not any(isinstance(column, int) for column in card.columns.values())
    file_table = read_training_text(path, header=has_header, limit=limit)
    if card.split_sentences:
        return _split_documents(TextColumn(file_table.column(0)))
    table = select_columns(file_table, card.columns, where=str(path))
    if not card.labels:
        return table
    labels = table.column("label").cast(pa.string())
    unknown_labels = sorted(map(str, {*labels.unique().to_pylist()} - {*card.labels}))
    if unknown_labels:
        raise DataError(
            f"corpus '{name}': label '{unknown_labels[0]}' is not one of {', '.join(card.labels)}"
        )
    # The position of each row's label among the card's labels, then our name at that position.
    positions = pc.index_in(labels.combine_chunks(), pa.array(list(card.labels)))
    our_labels = pa.array(list(card.labels.values())).take(positions)
    return table.set_column(table.column_names.index("label"), "label", our_labels)


def _split_documents(documents: Sequence[str]) -> pa.Table:
    """Return the sentences of documents in order, each with the number of its document.

    Returns:
        The columns ``text`` and ``document_id``, which counts documents from 0.
    """
    sentences_by_document = [split_sentences(document) for document in documents]
    n_sentences = list(map(len, sentences_by_document))
    document_ids = np.repeat(np.arange(len(documents)), n_sentences)
    text = pa.array(itertools.chain(*sentences_by_document), pa.large_string())
    return pa.table({"text": text, "document_id": document_ids})


def _read_tasks(card: CorpusCard, data: Path | None, catalogue: Catalogue) -> pa.Table:
    """Read the text of a corpus that is made of tasks: all their sentences, or pairs with scores.

    Args:
        card: The corpus's card, with the names of tasks and of their splits; if it names no splits,
            all are read. Its columns are ``text``, or else ``first``, ``second`` and ``score``.
        data: The user's data folder; None if there is none.
        catalogue: The cards of the tasks.

    Returns:
        The column ``text`` with each sentence, or the columns ``first``, ``second`` and ``score``
        with each pair and its gold score.

    Raises:
        DataError: Pairs are read, and a split has none with gold scores.
    """
    tasks = [load_task(name, data=data, catalogue=catalogue) for name in card.tasks]
    split_names = [(task, name) for task in tasks for name in card.splits or task.card.splits]
    if "text" in card.columns:
        # Every sentence as often as it occurs: ConSERT and SG-BERT train on them so.
        texts: list[str] = []
        for task, split_name in split_names:
            texts += task.load(split_name).texts()
            # Sentences of pairs without a gold score, which are not in the split.
            texts += task.ungraded_sentences(split_name)
        return pa.table({"text": pa.array(texts, pa.large_string())})
    pair_splits: list[PairSplit] = []
    for task, split_name in split_names:
        split = task.load(split_name)
        if not isinstance(split, PairSplit):
            raise DataError(
                f"corpus '{card.name}': task '{task.name}' has no pairs with gold scores"
            )
        pair_splits.append(split)
    return pa.table(
        {
            "first": list(itertools.chain.from_iterable(split.sentences1 for split in pair_splits)),
            "second": list(
                itertools.chain.from_iterable(split.sentences2 for split in pair_splits)
            ),
            "score": np.concatenate([split.gold for split in pair_splits]),
        }
    )


def _to_corpus(name: str, table: pa.Table) -> Corpus:
    """Check the columns of a table and make a corpus of it.

    An empty or missing text becomes one space, as in SimCSE's code; the corpus counts these.

    Args:
        name: The name of the corpus.
        table: The rows, with columns under our names.

    Raises:
        DataError: A column has a wrong type, a label is empty, or there are no two rows or no text.
    """
    n_blanks = 0
    columns: dict[str, pa.ChunkedArray] = {}
    for column_name in table.column_names:
        # Numbers for scores and numbers of documents; else text.
        column_type = _NUMBER_COLUMN_TYPES.get(column_name, pa.large_string())
        file_values = table.column(column_name)
        try:
            values = file_values.cast(column_type)
            # Parquet may declare bytes as text that are not UTF-8.
            values.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"corpus '{name}': column {column_name} holds {file_values.type}, "
                f"not {column_type} ({as_one_line(error)})"
            ) from None
        if column_type == pa.large_string():
            is_empty = pc.equal(pc.coalesce(values, ""), "")
            if column_name not in TEXT_COLUMNS and pc.any(is_empty).as_py():
                raise DataError(f"corpus '{name}': a row has no {column_name}; leave it out")
            # The sum over no rows is None.
            n_blanks += pc.sum(is_empty).as_py() or 0
            values = pc.if_else(is_empty, " ", values)
        columns[column_name] = values
    if table.num_rows < 2:
        row_count = format_count(table.num_rows, "row")
        raise DataError(f"corpus '{name}' has {row_count}; training needs at least two")
    text_columns = [
        pc.utf8_trim_whitespace(values)
        for column_name, values in columns.items()
        if column_name in TEXT_COLUMNS
    ]
    if not any(pc.any(pc.not_equal(texts, "")).as_py() for texts in text_columns):
        raise DataError(f"corpus '{name}' holds no text: all its fields are empty")
    return Corpus(name=name, table=pa.table(columns), blanks=n_blanks)


_NUMBER_COLUMN_TYPES = {"score": pa.float64(), "document_id": pa.int64()}
"""The Arrow types of the columns that are no text."""


def select_columns(table: pa.Table, columns: Mapping[str, str | int], *, where: str) -> pa.Table:
    """Return some columns of a table under our names.

    Args:
        table: The table of a file.
        columns: Our name of each column -> its name in the table, or its position, from 0.
        where: What messages of errors begin with, such as the path of the file.

    Raises:
        DataError: The table lacks a column.
    """
    for key in columns.values():
        if isinstance(key, str):
            # Raises an error if there is no such column, or several.
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
    # Of "text.csv.gz" it is ".csv".
    is_compressed = path.suffix in COMPRESSED_FILE_OPENERS
    suffix = Path(path.stem).suffix if is_compressed else path.suffix
    if suffix not in TEXT_FILES:
        raise DataError(
            f"{path}: '{suffix}' is not a kind of training text; known: {', '.join(TEXT_FILES)}, "
            f"each also {' or '.join(COMPRESSED_FILE_OPENERS)}{suggest(suffix, TEXT_FILES)}"
        )
    # The parser, whether it is UTF-8, and whether each line is a row, as in a ``.txt`` alone.
    text_file = TEXT_FILES[suffix]
    content = _read_content(path, max_lines=limit if text_file.by_line else None)
    if text_file.is_utf8:
        # Checked, with line feeds as line ends, and without a byte order mark.
        content = normalise_text(path, content, forbidden=b"\0").removeprefix(BOM.encode())
    problem = f"{path}: not a valid {suffix} file"
    # Damaged pages of parquet are an OSError.
    with translate_errors(problem, DataError, pa.ArrowException, OSError, max_length=150):
        table = text_file.parse(path, content, header)
    return table if limit is None else table.slice(0, limit)


def _read_content(path: Path, max_lines: int | None) -> bytes:
    """Return the content of a file, unpacked if it is compressed.

    Args:
        path: The file; by the suffix ``.xz`` or ``.gz`` it is compressed.
        max_lines: The number of first lines to read; None for all.

    Raises:
        DataError: The file is missing, empty, cut off, damaged, or unpacks to more bytes than
            allowed.
    """
    content = bytearray()
    open_file = COMPRESSED_FILE_OPENERS.get(path.suffix, open)
    try:
        with open_file(path, "rb") as stream:
            # limit_bytes() raises an error if there are too many bytes.
            for chunk in limit_bytes(iter_chunks(stream), path, where=str(path)):
                content += chunk
                # Lines are counted only if this chunk has ended one: counting takes time.
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
    """Parse a table whose cells are separated by a character, such as CSV; all cells stay text.

    Args:
        content: The table in UTF-8.
        header: Whether the first row names the columns, which otherwise are ``f0``, ``f1``, …
        delimiter: The character between cells.
        quote: The character around cells that have the delimiter or a line end in them; False if
            cells have no quotes.
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
    """Parse a content; its arguments are the path, for messages, the content, and whether the first
    row names the columns."""
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
        """Return this corpus if it has all of some columns.

        Args:
            names: The names of the columns.

        Raises:
            DataError: It lacks one of them.
        """
        missing = [name for name in names if name not in self.columns]
        if missing:
            hint = "choose a corpus with these columns, or give those of your file these names"
            if missing == ["text"]:
                hint += ", or take each text of a row alone: `params=sentences=true`"
            raise DataError(
                f"corpus '{self.name}' has no {' and no '.join(missing)} "
                f"(has {', '.join(self.columns)})",
                hint=hint,
            )
        return self

    def take(self, rows: Sequence[int]) -> Corpus:
        """Return the corpus of some rows, by their positions, in this order."""
        return replace(self, table=self.table.take(pa.array(rows, pa.int64())))

    def sentences(self) -> Corpus:
        """Return a corpus with one column, ``text``, of each distinct text in any column of text.

        They are in the order of their first occurrence: all of the first column, then those of the
        next one.
        """
        chunks: list[pa.Array] = []
        for name in self.columns:
            if name in TEXT_COLUMNS:
                chunks += self.table.column(name).chunks
        distinct_texts = pc.unique(pa.chunked_array(chunks, pa.large_string()))
        return replace(self, table=pa.table({"text": distinct_texts}))

    @cached_property
    def sha256(self) -> str:
        """The sha256 of columns and rows in order: the same for the same text in any file.

        Of each column it hashes the name, between two control characters, then its values: of
        numbers their bytes, of texts their lengths and then their bytes.
        """
        sha256 = hashlib.sha256()
        for name in self.columns:
            values = self.table.column(name).combine_chunks()
            sha256.update(f"\x1d{name}\x1f".encode())
            is_text = pa.types.is_large_string(values.type)
            if not is_text:
                sha256.update(values.to_numpy(zero_copy_only=False).tobytes())
                continue
            lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)
            sha256.update(lengths.astype("<i8").tobytes())
            # The bytes of all texts, without a copy. Arrow has three buffers for a column of text:
            # which values are valid, where each text begins and ends, and the bytes. The column may
            # be a part of them, from row values.offset.
            _, offset_buffer, text_buffer = values.buffers()
            first_row = values.offset
            offsets = np.frombuffer(offset_buffer, "<i8")[first_row : first_row + len(values) + 1]
            sha256.update(memoryview(text_buffer)[offsets[0] : offsets[-1]])
        return sha256.hexdigest()


def number_texts(*columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """Assign a number to each distinct text of some columns of n texts, in order of occurrence.

    Args:
        columns: The columns, all of the same length n: lists, or Arrow columns (``TextColumn``).

    Returns:
        The number of each text, (n_columns, n); equal texts have equal numbers.
    """
    chunks: list[pa.Array] = []
    for column in columns:
        chunks += column.values.chunks if isinstance(column, TextColumn) else [pa.array(column)]
    texts = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in chunks])
    # Arrow's dictionary holds each distinct text once; the indices refer to it.
    numbers: npt.NDArray[np.int32] = texts.dictionary_encode().indices.to_numpy()
    return numbers.astype(np.int64).reshape(len(columns), -1)
