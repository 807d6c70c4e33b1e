"""Training text as rows of named columns, held in Arrow."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stsbench.core.errors import CardError, DataError, choose, did_you_mean

TEXT_COLUMNS = ("text", "document", "anchor", "positive", "negative", "second_negative", "first", "second")
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
        text: str = self.values[index].as_py()
        return text

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
    """Rows of training text, made by :func:`~stsbench.data.corpora.load.load_corpus`.

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
        rows: int = self.table.num_rows
        return rows

    def __getitem__(self, row: int) -> dict[str, Any]:
        """One row by column."""
        return {name: self.table.column(name)[row].as_py() for name in self.columns}

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Some rows at once, as torch's data loader asks for them."""
        found: list[dict[str, Any]] = self.table.take(pa.array(rows, pa.int64())).to_pylist()
        return found

    @property
    def columns(self) -> list[str]:
        """The columns there are."""
        names: list[str] = self.table.column_names
        return names

    def column(self, name: str) -> TextColumn:
        """One column of text or labels; raises DataError where the corpus has no such column."""
        self.require(name)
        return TextColumn(self.table.column(name))

    def numbers(self, name: str) -> np.ndarray:
        """The column ``score`` (float64) or ``document_id`` (int64), shape (n,); raises DataError."""
        self.require(name)
        found: np.ndarray = self.table.column(name).to_numpy()
        return found

    def require(self, *names: str) -> Corpus:
        """Return the corpus if it has these columns; raises DataError."""
        missing = [name for name in names if name not in self.columns]
        if missing:
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
            h.update(pc.binary_length(values).to_numpy(zero_copy_only=False).astype("<i8").tobytes())
            offsets = np.frombuffer(values.buffers()[1], "<i8")[values.offset : values.offset + len(values) + 1]
            h.update(memoryview(values.buffers()[2])[offsets[0] : offsets[-1]])
        return h.hexdigest()


def number_texts(*columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each distinct text of some equally long columns, in the order met: (columns, n)."""
    chunks = [c for one in columns for c in (one.values.chunks if isinstance(one, TextColumn) else [pa.array(one)])]
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
        if word is None or not ((len(word[1]) == 1 and word[1].isupper()) or word[1].casefold() in _ABBREVIATIONS):
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

    Raises:
        CardError: it is no condition, or not of this corpus, or leaves fewer than two rows.
    """
    said = f"[data] where '{condition}'"
    found = _CONDITION.fullmatch(condition)
    if found is None or not found[3]:
        raise CardError(f"{said}: give COLUMN = VALUE, such as label = entailment or score >= 4")
    name, sign, value = found.groups()
    if name not in corpus.columns:
        raise CardError(
            f"{said}: corpus '{corpus.name}' has no {name}{did_you_mean(name, corpus.columns)}; "
            f"it has {', '.join(corpus.columns)}"
        )
    if name not in NUMBERS and sign not in OF_TEXT:
        raise CardError(f"{said}: {name} is text; compare it by {' or '.join(OF_TEXT)}")
    try:
        wanted = pa.scalar(float(value)) if name in NUMBERS else pa.scalar(value, pa.large_string())
    except ValueError as error:
        raise CardError(f"{said}: {name} is a number, '{value}' is not") from error
    kept = corpus.table.filter(OF_NUMBERS[sign](corpus.table.column(name), wanted))
    if kept.num_rows < 2:
        labels = sorted(corpus.table.column(name).unique().to_pylist()) if name == "label" else []
        known = f"{did_you_mean(value, labels)}; labels: {', '.join(labels[:10])}" if labels else ""
        raise CardError(f"{said}: leaves {kept.num_rows} of {len(corpus)} rows{known}")
    return replace(corpus, table=kept)


def of_form(corpus: Corpus, form: str) -> Corpus:
    """Labelled pairs as rows of another form, one of :data:`FORMS`; raises CardError or DataError."""
    wanted = choose("form of rows", form, FORMS)
    corpus.require("first", "second", *(["label"] if wanted else []))
    if not wanted:
        pairs = corpus.table.select(["first", "second"]).rename_columns(["anchor", "positive"])
        return replace(corpus, table=pairs)
    others: dict[str, dict[str, str]] = {}
    for row in corpus.table.select(["first", "second", "label"]).to_pylist():
        others.setdefault(row["first"], {}).setdefault(row["label"], row["second"])
    whole = {anchor: by_label for anchor, by_label in others.items() if by_label.keys() >= set(wanted.values())}
    if len(whole) < 2:
        raise CardError(
            f"[data] form '{form}': {len(whole)} first sentences of corpus '{corpus.name}' have {', '.join(wanted.values())}"
        )
    columns = {name: [by_label[label] for by_label in whole.values()] for name, label in wanted.items()}
    table = {name: pa.array(texts, pa.large_string()) for name, texts in {"anchor": list(whole), **columns}.items()}
    return replace(corpus, table=pa.table(table))


FORMS: Mapping[str, Mapping[str, str]] = {
    "pairs": {},
    "triplets": {"positive": "entailment", "negative": "contradiction"},
    "two_negatives": {"positive": "entailment", "negative": "contradiction", "second_negative": "neutral"},
}
"""Each form with the label that the first second sentence of each of its columns has; ``pairs``: whatever their labels."""


def repeated(corpus: Corpus, length: int) -> Corpus:
    """All rows as many times as that gives ``length`` rows at most, one time at least."""
    times = max(1, length // len(corpus))
    return replace(corpus, table=pa.concat_tables([corpus.table] * times))


def refuse_ordered(corpus: Corpus, key: str) -> None:
    """Raise CardError where rows of ordered text would lose their neighbours."""
    if "document_id" in corpus.columns:
        raise CardError(f"[data] {key}: corpus '{corpus.name}' is ordered text, of which no sentence can be left out")


def of_at_most(corpus: Corpus, words: int) -> Corpus:
    """The rows of which no text has more words, as white space parts them; raises CardError where fewer than two are left."""
    refuse_ordered(corpus, "max_words")
    kept = pa.chunked_array([np.ones(len(corpus), dtype=bool)])
    for name in filter(TEXT_COLUMNS.__contains__, corpus.columns):
        gaps = pc.count_substring_regex(pc.utf8_trim_whitespace(corpus.table.column(name)), r"\s+")
        kept = pc.and_(kept, pc.less(gaps, words))
    short = replace(corpus, table=corpus.table.filter(kept))
    if len(short) < 2:
        raise CardError(f"[data] max_words {words}: leaves {len(short)} of {len(corpus)} rows of '{corpus.name}'")
    return short
