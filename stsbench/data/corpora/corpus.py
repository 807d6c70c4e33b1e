"""Training text as rows of named columns: from a file by its logical name or path, or the text of tasks.

Read into Arrow and held there, a million sentences take the space of their bytes.
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
    CardError,
    DataError,
    SourceError,
    UnknownName,
    look_up,
    suggest,
    translate_errors,
)
from stsbench.core.files import check_is_file, chunks, limit_bytes
from stsbench.data.readers.files import (
    BOM,
    column_position,
    format_names,
    normalise_text,
    read_json_lines,
    read_parquet,
)
from stsbench.data.splits import PairSplit, describe_difference
from stsbench.data.task import load_task

OPENERS: Mapping[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
"""What opens a compressed file for reading, by the end of its name."""
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
"""What the columns of a user's file may be called; the first layout that the file has is taken."""


def load_corpus(
    name: str | Path,
    *,
    corpora: Path | None = None,
    data: Path | None = None,
    limit: int | None = None,
    catalogue: Catalogue | None = None,
) -> Corpus:
    """Load training text: a corpus by its id, or a file by its path (also below the corpora folder).

    A file is ``.txt``, ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, each also as ``.xz`` or ``.gz``, with columns as
    one of :data:`LAYOUTS` has them. ``limit`` keeps the first rows only. Raises UnknownName: neither a corpus nor a
    file; DataError: the text is missing, broken, not what its card says, or too little to train on.
    """
    if limit is not None and limit < 1:
        raise DataError(f"a corpus of {limit} rows holds nothing; limit must be 1 or more")
    catalogue = catalogue or Catalogue()
    cards, folder = catalogue.corpora(), corpora or settings.corpora_folder()
    if card := cards.get(str(name)):
        table = (
            _of_tasks(card, data, catalogue)
            if card.tasks
            else _of_file(str(name), card, corpora, limit)
        )
        if limit is None and table.num_rows != card.rows:
            why = f"{table.num_rows:,} rows, its card says {card.rows:,}"
            todo = "restore the file, or correct the card where the text is your own"
            raise DataError(f"corpus '{name}': {why}; {todo}")
        return _finished(str(name), table.slice(0, limit))
    given = Path(name)
    path = next((at for at in (given, folder / given if folder else given) if at.is_file()), None)
    if path is None:
        check_is_file(given)
        if given.suffix or len(given.parts) > 1:
            raise DataError(
                f"corpus file '{given}' {'is a folder' if given.is_dir() else 'does not exist'}"
            )
        raise UnknownName("corpus", str(given), cards, hint="or give the path of a file")
    table = read_training_text(path, header=True, limit=limit)
    columns = next(
        (layout for layout in LAYOUTS if set(layout.values()) <= set(table.column_names)), None
    )
    if columns is None:
        has = format_names(table.column_names)
        raise DataError(
            f"{path}: its columns ({has}) are none of those known; rename them to text, or anchor and positive, "
            "or say which is which by 'columns' in a corpus's card"
        )
    return _finished(str(name), select_columns(table, columns, where=str(path)))


def fetch_corpus(name: str, corpus: CorpusCard, *, corpora: Path | None = None) -> Path:
    """Return a corpus's file: from the corpora folder if it is there, else from the Hub.

    Raises SourceError: no source has it; says what to do; DataError: the local file is not the one the card names.
    """
    folder = corpora or settings.corpora_folder()
    if folder is not None and not folder.is_dir():
        raise SourceError(f"corpora folder '{folder}' does not exist")
    if folder is not None and (path := folder / corpus.file).is_file():
        return _as_named(path, corpus, "restore the file")
    put = f"put {corpus.file} into a folder and set STSBENCH_CORPORA to it"
    if not corpus.repo:
        make = f"make it by 'stsbench data make {name}', or " if corpus.make else ""
        how = f" ({corpus.how})" if corpus.how else ""
        raise SourceError(
            f"corpus '{corpus.name}' is local only",
            hint=f"{make}{put}{how}; or train on other text by 'stsbench train RECIPE --text NAME' (or a file)",
        )
    from stsbench.data.hub.repository import Repository

    repository = Repository(corpus.repo, revision=corpus.revision, kind="dataset", offline_hint=put)
    return _as_named(
        repository.fetch(corpus.path or Path(corpus.file).name), corpus, "pin the card's revision"
    )


def _as_named(path: Path, corpus: CorpusCard, todo: str) -> Path:
    if how := describe_difference(path, corpus.sha256):
        raise DataError(f"{path}: {how}; {todo}, or name yours by its path")
    return path


def _of_file(name: str, card: CorpusCard, corpora: Path | None, limit: int | None) -> pa.Table:
    path = fetch_corpus(name, card, corpora=corpora)
    # There are fewer documents than sentences: the limit may be the file's too.
    header = not any(isinstance(theirs, int) for theirs in card.columns.values())
    raw = read_training_text(path, header=header, limit=limit)
    if card.split_sentences:
        sentences = [split_sentences(document) for document in TextColumn(raw.column(0))]
        ids = np.repeat(np.arange(len(sentences)), [len(found) for found in sentences])
        return pa.table(
            {"text": pa.array(itertools.chain(*sentences), pa.large_string()), "document_id": ids}
        )
    table = select_columns(raw, card.columns, where=str(path))
    if not card.labels:
        return table
    found, known = table.column("label").cast(pa.string()), pa.array(list(card.labels))
    if unknown := sorted(set(found.unique().to_pylist()) - set(card.labels)):
        raise DataError(
            f"corpus '{name}': label '{unknown[0]}' is not one of {', '.join(card.labels)}"
        )
    names = pa.array(list(card.labels.values())).take(pc.index_in(found.combine_chunks(), known))
    return table.set_column(table.column_names.index("label"), "label", names)


def _of_tasks(card: CorpusCard, data: Path | None, catalogue: Catalogue) -> pa.Table:
    tasks = [load_task(name, data=data, catalogue=catalogue) for name in card.tasks]
    wanted = [(task, split) for task in tasks for split in card.splits or task.card.splits]
    if "text" in card.columns:
        # Every sentence as often as it occurs: ConSERT and SG-BERT train on them so.
        texts = [
            text
            for task, split in wanted
            for text in (*task.load(split).texts(), *task.ungraded_sentences(split))
        ]
        return pa.table({"text": pa.array(texts, pa.large_string())})
    pairs = [
        split
        for split in (task.load(name) for task, name in wanted)
        if isinstance(split, PairSplit)
    ]
    first, second = ([text for pair in pairs for text in pair.sides[side]] for side in (0, 1))
    return pa.table(
        {"first": first, "second": second, "score": np.concatenate([pair.gold for pair in pairs])}
    )


def _finished(name: str, table: pa.Table) -> Corpus:
    blanks, done = 0, {}
    for column in table.column_names:
        kind = {"score": pa.float64(), "document_id": pa.int64()}.get(column, pa.large_string())
        values = table.column(column)
        try:
            cast = values.cast(kind)
            cast.validate(full=True)  # parquet may call bytes text that are not UTF-8
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"corpus '{name}': column {column} holds {values.type}, not {kind}"
            ) from None
        if kind == pa.large_string():
            empty = pc.equal(pc.coalesce(cast, ""), "")
            blanks += pc.sum(empty).as_py() or 0
            cast = pc.if_else(empty, " ", cast)
        done[column] = cast
    if table.num_rows < 2:
        raise DataError(f"corpus '{name}' has {table.num_rows} row(s); training needs at least two")
    texts = [pc.utf8_trim_whitespace(done[column]) for column in done if column in TEXT_COLUMNS]
    if not any(pc.any(pc.not_equal(text, "")).as_py() for text in texts):
        raise DataError(f"corpus '{name}' holds no text: all its fields are empty")
    return Corpus(name=name, table=pa.table(done), blanks=blanks)


def select_columns(table: pa.Table, columns: Mapping[str, str | int], *, where: str) -> pa.Table:
    """Return columns under our names, of each the table's name for it or its position; raises DataError where it has none."""
    for theirs in columns.values():
        if isinstance(theirs, str):
            column_position(table.column_names, theirs, where=where)
        elif not 0 <= theirs < table.num_columns:
            raise DataError(
                f"{where}: no column {theirs} (has {table.num_columns}, counted from 0)"
            )
    return pa.table({ours: table.column(theirs) for ours, theirs in columns.items()})


def read_training_text(path: Path, *, header: bool, limit: int | None = None) -> pa.Table:
    """Read a file of training text; one column of lines is ``text``, and only ``.csv`` quotes its cells.

    Without ``header`` the columns of a ``.csv`` or ``.tsv`` are ``f0``, ``f1``, … Raises DataError: the file is
    missing, empty, cut off, not UTF-8, or not of its kind.
    """
    kind = Path(path.stem).suffix if path.suffix in OPENERS else path.suffix
    if kind not in TEXT_FILES:
        known = (
            f"{', '.join(TEXT_FILES)}, each also {' or '.join(OPENERS)}{suggest(kind, TEXT_FILES)}"
        )
        raise DataError(f"{path}: '{kind}' is not a kind of training text; known: {known}")
    file = TEXT_FILES[kind]
    content = _content(path, limit if file.by_line else None)
    if file.is_utf8:
        content = normalise_text(path, content, forbidden=b"\0").removeprefix(BOM.encode())
    # Damaged pages of parquet are an OSError.
    with translate_errors(
        f"{path}: not a valid {kind} file", DataError, pa.ArrowException, OSError, max_length=150
    ):
        table = file.parse(path, content, header)
    return table if limit is None else table.slice(0, limit)


def _content(path: Path, lines: int | None) -> bytes:
    content = bytearray()
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as stream:
            for part in limit_bytes(chunks(stream), path, where=str(path)):
                content += part
                if lines is not None and part.count(b"\n") and content.count(b"\n") >= lines:
                    break
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        why = (
            "is cut off"
            if isinstance(error, EOFError)
            else f"is not a {path.suffix} file, or is damaged"
        )
        raise DataError(f"{path}: {why}; restore it") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not content.strip():
        raise DataError(f"{path}: the file is empty")
    return (
        bytes(content) if lines is None else b"".join(itertools.islice(io.BytesIO(content), lines))
    )


def _lines(path: Path, content: bytes, header: bool) -> pa.Table:
    r"""Split at ``\n`` alone: other Unicode line ends are text."""
    text = pa.array([content.removesuffix(b"\n")], pa.large_binary()).cast(pa.large_string())
    return pa.table({"text": pc.split_pattern(text, "\n").flatten()})


def _delimited(
    path: Path, content: bytes, header: bool, delimiter: str, quote: str | Literal[False]
) -> pa.Table:
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
    """A kind of training text: what reads its content, whether that is UTF-8, and whether each line is a row."""

    parse: Callable[[Path, bytes, bool], pa.Table]
    """The path for messages, the content, and whether the first row names the columns."""
    is_utf8: bool = True
    by_line: bool = False


TEXT_FILES: Mapping[str, TextFile] = {
    ".txt": TextFile(_lines, by_line=True),
    ".csv": TextFile(lambda path, content, header: _delimited(path, content, header, ",", '"')),
    ".tsv": TextFile(lambda path, content, header: _delimited(path, content, header, "\t", False)),
    ".jsonl": TextFile(lambda path, content, header: read_json_lines(path, content)),
    ".parquet": TextFile(lambda path, content, header: read_parquet(path, content), is_utf8=False),
}
"""By the end of a file's name."""


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
"""Columns of a corpus that hold text; beside them ``label``, ``score`` and ``document_id``."""


class TextColumn(Sequence[str]):
    """One column of text as a sequence of strings, made as they are asked for."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        """Keep the Arrow column of strings."""
        self.values = values

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """One string, or a list of them."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        return str(self.values[index].as_py())

    def __iter__(self) -> Iterator[str]:
        """All strings in order."""
        for chunk in self.values.chunks:
            yield from chunk.to_pylist()

    def take(self, rows: Sequence[int]) -> list[str]:
        """The strings of some rows."""
        found: list[str] = self.values.take(pa.array(rows, pa.int64())).to_pylist()
        return found


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Rows of training text, made by :func:`~stsbench.data.corpora.corpus.load_corpus`.

    Columns are ``text``; or ``document``; or ``anchor``, ``positive`` and perhaps ``negative`` and ``second_negative``; or
    ``first``, ``second`` and ``label`` (a class name) or ``score`` (float). ``document_id`` (int) beside ``text`` says
    which sentences follow each other. A dataset for torch: it has a length, and rows are dictionaries.
    """

    name: str
    table: pa.Table = field(repr=False)
    blanks: int = 0
    """How many empty fields were made one space, as SimCSE's code does."""

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """One row by column."""
        return {name: self.table.column(name)[row].as_py() for name in self.columns}

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Some rows at once, as torch's data loader asks for them."""
        return list(self.take(rows).table.to_pylist())

    @property
    def columns(self) -> list[str]:
        """The columns there are."""
        return list(self.table.column_names)

    def column(self, name: str) -> TextColumn:
        """One column of text or labels; raises DataError where the corpus has no such column."""
        return TextColumn(self.require(name).table.column(name))

    def numbers(self, name: str) -> np.ndarray:
        """The column ``score`` (float64) or ``document_id`` (int64), shape (n,); raises DataError."""
        return np.asarray(self.require(name).table.column(name))

    def require(self, *names: str) -> Corpus:
        """Return the corpus if it has these columns; raises DataError."""
        if missing := [name for name in names if name not in self.columns]:
            raise DataError(
                f"corpus '{self.name}' has no {' and no '.join(missing)} (has {', '.join(self.columns)}); "
                "choose a corpus with these columns, or name the columns of your file"
            )
        return self

    def take(self, rows: Sequence[int]) -> Corpus:
        """The corpus of some rows, in this order."""
        return replace(self, table=self.table.take(pa.array(rows, pa.int64())))

    def sentences(self) -> Corpus:
        """The distinct texts of all columns as one column ``text``, in the order met, first columns first."""
        chunks = [c for n in self.columns if n in TEXT_COLUMNS for c in self.table.column(n).chunks]
        text = pc.unique(pa.chunked_array(chunks, pa.large_string()))
        return replace(self, table=pa.table({"text": text}))

    @cached_property
    def sha256(self) -> str:
        """The sha256 of columns and rows in their order: the same for the same text, whatever file it lay in."""
        h = hashlib.sha256()
        for name in self.columns:
            values = self.table.column(name).combine_chunks()
            h.update(f"\x1d{name}\x1f".encode())
            if not pa.types.is_large_string(values.type):
                h.update(values.to_numpy(zero_copy_only=False).tobytes())
                continue
            h.update(
                pc.binary_length(values).to_numpy(zero_copy_only=False).astype("<i8").tobytes()
            )
            offsets = np.frombuffer(values.buffers()[1], "<i8")[
                values.offset : values.offset + len(values) + 1
            ]
            h.update(memoryview(values.buffers()[2])[offsets[0] : offsets[-1]])
        return h.hexdigest()


def number_texts(*columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each distinct text of some equally long columns, in the order met: (columns, n)."""
    chunks = [
        c
        for one in columns
        for c in (one.values.chunks if isinstance(one, TextColumn) else [pa.array(one)])
    ]
    whole = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in chunks])
    numbers: npt.NDArray[np.int32] = whole.dictionary_encode().indices.to_numpy()
    return numbers.astype(np.int64).reshape(len(columns), -1)


_END = re.compile(r"[.!?]+[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[A-Z0-9])")
_LAST_WORD = re.compile(r"([\w.]+)\.$")
_ABBREVIATIONS = frozenset(
    "adm al approx ave b.c blvd brig ca capt cf cmdr co col corp d.c dept dr e.g ed eds est etc fig figs gen gov hon "
    "i.e inc jr lt ltd maj mr mrs ms mt no nos op p ph.d pp prof rep rev sen sgt sr st u.k u.n u.s v viz vol vols vs".split()
)


def split_sentences(text: str) -> list[str]:
    """Cut text after full stops, question and exclamation marks that a capital or a digit follows.

    Initials and common abbreviations of English end no sentence. A rule, not a model: nothing is
    lost and no order changed, but some cuts are wrong.
    """
    sentences, start = [], 0
    for end in _END.finditer(text):
        word = _LAST_WORD.search(text[start : end.start() + 1])
        if word is None or not (
            (len(word[1]) == 1 and word[1].isupper()) or word[1].casefold() in _ABBREVIATIONS
        ):
            sentences.append(text[start : end.end()].strip())
            start = end.end()
    sentences.append(text[start:].strip())
    return list(filter(None, sentences))


NUMBERS = ("score", "document_id")
"""Columns of numbers; all others are of texts."""
OF_NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    ">=": pc.greater_equal,
    "<=": pc.less_equal,
    ">": pc.greater,
    "<": pc.less,
}
OF_TEXT = ("=", "!=")
_CONDITION = re.compile(r"\s*(\w+)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*")


def where(corpus: Corpus, condition: str) -> Corpus:
    """The rows of which a condition holds: ``label = entailment``, ``label != neutral``, ``score >= 4``.

    Raises CardError: it is no condition, or not of this corpus, or leaves fewer than two rows.
    """
    said = f"[data] where '{condition}'"
    found = _CONDITION.fullmatch(condition)
    if found is None or not found[3]:
        raise CardError(f"{said}: give COLUMN = VALUE, such as label = entailment or score >= 4")
    name, sign, value = found.groups()
    if name not in corpus.columns:
        near, has = suggest(name, corpus.columns), ", ".join(corpus.columns)
        raise CardError(f"{said}: corpus '{corpus.name}' has no {name}{near}; it has {has}")
    if name not in NUMBERS and sign not in OF_TEXT:
        raise CardError(f"{said}: {name} is text; compare it by {' or '.join(OF_TEXT)}")
    try:
        wanted = pa.scalar(float(value)) if name in NUMBERS else pa.scalar(value, pa.large_string())
    except ValueError as error:
        raise CardError(f"{said}: {name} is a number, '{value}' is not") from error
    kept = corpus.table.filter(OF_NUMBERS[sign](corpus.table.column(name), wanted))
    if kept.num_rows < 2:
        labels = sorted(corpus.table.column(name).unique().to_pylist()) if name == "label" else []
        known = f"{suggest(value, labels)}; labels: {', '.join(labels[:10])}" if labels else ""
        raise CardError(f"{said}: leaves {kept.num_rows} of {len(corpus)} rows{known}")
    return replace(corpus, table=kept)


def of_form(corpus: Corpus, form: str) -> Corpus:
    """Labelled pairs as rows of another form, one of :data:`FORMS`; raises CardError or DataError."""
    wanted = look_up("form of rows", form, FORMS)
    corpus.require("first", "second", *(["label"] if wanted else []))
    if not wanted:
        pairs = corpus.table.select(["first", "second"]).rename_columns(["anchor", "positive"])
        return replace(corpus, table=pairs)
    others: dict[str, dict[str, str]] = {}
    for row in corpus.table.select(["first", "second", "label"]).to_pylist():
        others.setdefault(row["first"], {}).setdefault(row["label"], row["second"])
    whole = {
        anchor: by_label
        for anchor, by_label in others.items()
        if by_label.keys() >= set(wanted.values())
    }
    if len(whole) < 2:
        have = f"{len(whole)} first sentences of corpus '{corpus.name}' have {', '.join(wanted.values())}"
        raise CardError(f"[data] form '{form}': {have}")
    columns = {
        name: [by_label[label] for by_label in whole.values()] for name, label in wanted.items()
    }
    table = {
        name: pa.array(texts, pa.large_string())
        for name, texts in {"anchor": list(whole), **columns}.items()
    }
    return replace(corpus, table=pa.table(table))


FORMS: Mapping[str, Mapping[str, str]] = {
    "pairs": {},
    "triplets": {"positive": "entailment", "negative": "contradiction"},
    "two_negatives": {
        "positive": "entailment",
        "negative": "contradiction",
        "second_negative": "neutral",
    },
}
"""Each form with the label that the first second sentence of each of its columns has; ``pairs``: whatever their labels."""


def repeat_rows(corpus: Corpus, length: int) -> Corpus:
    """All rows as many times as that gives ``length`` rows at most, one time at least."""
    times = max(1, length // len(corpus))
    return replace(corpus, table=pa.concat_tables([corpus.table] * times))


def refuse_ordered(corpus: Corpus, key: str) -> None:
    """Raise CardError where rows of ordered text would lose their neighbours."""
    if "document_id" in corpus.columns:
        raise CardError(
            f"[data] {key}: corpus '{corpus.name}' is ordered text, of which no sentence can be left out"
        )


def of_at_most(corpus: Corpus, words: int) -> Corpus:
    """The rows of which no text has more words, as white space parts them; raises CardError where fewer than two are left."""
    refuse_ordered(corpus, "max_words")
    kept = pa.chunked_array([np.ones(len(corpus), dtype=bool)])
    for name in filter(TEXT_COLUMNS.__contains__, corpus.columns):
        gaps = pc.count_substring_regex(pc.utf8_trim_whitespace(corpus.table.column(name)), r"\s+")
        kept = pc.and_(kept, pc.less(gaps, words))
    short = replace(corpus, table=corpus.table.filter(kept))
    if len(short) < 2:
        raise CardError(
            f"[data] max_words {words}: leaves {len(short)} of {len(corpus)} rows of '{corpus.name}'"
        )
    return short
