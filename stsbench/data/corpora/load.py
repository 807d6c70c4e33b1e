"""Training text in named columns: from a file by its logical name or path, or the text of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import CorpusCard
from stsbench.data.corpora.corpus import TEXT_COLUMNS, Corpus, TextColumn
from stsbench.data.corpora.files import fetch_corpus
from stsbench.data.corpora.sentences import split_sentences
from stsbench.data.corpora.tables import LISTED, read_training_text, select_columns
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from stsbench.errors import DataError, UnknownName

LAYOUTS: tuple[Mapping[str, str | int], ...] = (
    {"anchor": "anchor", "positive": "positive", "negative": "negative", "second_negative": "second_negative"},
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
    columns: Mapping[str, str | int] | None = None,
    catalogue: Catalogue | None = None,
) -> Corpus:
    """Load training text.

    Args:
        name: a corpus's id, or the path of a file (also below the corpora folder): ``.txt``, ``.csv``, ``.tsv``,
            ``.jsonl`` or ``.parquet``, each also as ``.xz`` or ``.gz``.
        corpora: the corpora folder; default ``STSBENCH_CORPORA``.
        data: the folder of evaluation data, for corpora made of tasks; default ``STSBENCH_DATA``.
        limit: keep the first rows only.
        columns: for a file: our columns, each with the file's name for it or its position (then it has no header).
        catalogue: where ids are looked up.

    Raises:
        UnknownName: neither a corpus nor a file.
        DataError: the text is missing, broken, not what its card says, or too little to train on.
    """
    if limit is not None and limit < 1:
        raise DataError(f"a corpus of {limit} rows holds nothing; limit must be 1 or more")
    catalogue = catalogue or Catalogue()
    cards = catalogue.corpora()
    if card := cards.get(str(name)):
        table = _of_tasks(card, data, catalogue) if card.tasks else _of_file(str(name), card, corpora, limit)
        if limit is None and table.num_rows != card.rows:
            raise DataError(
                f"corpus '{name}': {table.num_rows:,} rows, its card says {card.rows:,}; "
                "restore the file, or correct the card where the text is your own"
            )
        return _finished(str(name), table.slice(0, limit))
    path = _user_file(Path(name), corpora, list(cards))
    table = read_training_text(path, header=not _by_position(columns or {}), limit=limit)
    return _finished(str(name), select_columns(table, columns or _layout(table, path), where=str(path)))


def _of_file(name: str, card: CorpusCard, corpora: Path | None, limit: int | None) -> pa.Table:
    path = fetch_corpus(name, card, corpora=corpora)
    # There are fewer documents than sentences: the limit may be the file's too.
    raw = read_training_text(path, header=not _by_position(card.columns), limit=limit)
    if card.split_sentences:
        return _split(raw.column(0))
    return _renamed_labels(select_columns(raw, card.columns, where=str(path)), card.labels, where=name)


def _user_file(path: Path, corpora: Path | None, known: Sequence[str]) -> Path:
    folder = corpora or settings.corpora_folder()
    for found in (path, folder / path if folder else path):
        if found.is_file():
            return found
    if path.suffix or len(path.parts) > 1:
        raise DataError(f"corpus file '{path}' {'is a folder' if path.is_dir() else 'does not exist'}")
    raise UnknownName("corpus", str(path), known, hint="or give the path of a file")


def _by_position(columns: Mapping[str, str | int]) -> bool:
    return any(isinstance(theirs, int) for theirs in columns.values())


def _layout(table: pa.Table, path: Path) -> Mapping[str, str | int]:
    for layout in LAYOUTS:
        if set(layout.values()) <= set(table.column_names):
            return layout
    listed = ", ".join(table.column_names[:LISTED])
    raise DataError(
        f"{path}: its columns ({listed[:300]}) are none of those known, such as text, "
        "or anchor and positive; rename them, or say which is which"
    )


def _of_tasks(card: CorpusCard, data: Path | None, catalogue: Catalogue) -> pa.Table:
    tasks = [load_task(name, data=data, catalogue=catalogue) for name in card.tasks]
    wanted = [(task, split) for task in tasks for split in card.splits or task.card.splits]
    if "text" in card.columns:
        # Every sentence as often as it occurs: ConSERT and SG-BERT train on them so.
        texts = [text for task, split in wanted for text in (*task.load(split).texts(), *task.ungraded(split))]
        return pa.table({"text": pa.array(texts, pa.large_string())})
    pairs = [split for split in (task.load(name) for task, name in wanted) if isinstance(split, PairSplit)]
    return pa.table(
        {
            "first": [s for p in pairs for s in p.sentences1],
            "second": [s for p in pairs for s in p.sentences2],
            "score": np.concatenate([p.gold for p in pairs]),
        }
    )


def _renamed_labels(table: pa.Table, labels: Mapping[str, str], *, where: str) -> pa.Table:
    if not labels:
        return table
    found = table.column("label").cast(pa.string())
    if unknown := sorted(set(found.unique().to_pylist()) - set(labels)):
        raise DataError(f"corpus '{where}': label '{unknown[0]}' is not one of {', '.join(labels)}")
    names = pa.array(list(labels.values()))
    renamed = names.take(pc.index_in(found.combine_chunks(), pa.array(list(labels))))
    return table.set_column(table.column_names.index("label"), "label", renamed)


def _split(documents: pa.ChunkedArray) -> pa.Table:
    texts: list[str] = []
    ids: list[int] = []
    for at, document in enumerate(TextColumn(documents)):
        found = split_sentences(document)
        texts += found
        ids += [at] * len(found)
    return pa.table({"text": pa.array(texts, pa.large_string()), "document_id": pa.array(ids, pa.int64())})


def _finished(name: str, table: pa.Table) -> Corpus:
    """Cast columns to their types, make empty fields one space, and refuse what nothing can be learnt from."""
    blanks, done = 0, {}
    for column in table.column_names:
        values = table.column(column)
        if column in ("score", "document_id"):
            done[column] = _cast(name, column, values, pa.float64() if column == "score" else pa.int64())
            continue
        values = _cast(name, column, values, pa.large_string())
        empty = pc.equal(pc.coalesce(values, ""), "")
        blanks += pc.sum(empty).as_py() or 0
        done[column] = pc.if_else(empty, " ", values)
    if table.num_rows < 2:
        raise DataError(f"corpus '{name}' has {table.num_rows} row(s); training needs at least two")
    texts = [pc.utf8_trim_whitespace(done[c]) for c in done if c in TEXT_COLUMNS]
    if not any(pc.any(pc.not_equal(text, "")).as_py() for text in texts):
        raise DataError(f"corpus '{name}' holds no text: all its fields are empty")
    return Corpus(name=name, table=pa.table(done), blanks=blanks)


def _cast(name: str, column: str, values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        found = values.cast(kind)
        found.validate(full=True)  # parquet may call bytes text that are not UTF-8
        return found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"corpus '{name}': column {column} holds {values.type}, not {kind}") from None
