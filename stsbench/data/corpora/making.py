"""Corpora that are not published as files, made of those that are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import CorpusCard, MakeFacts
from stsbench.data.corpora.documents import FileProgress, OpensTokenizer, write_long_documents
from stsbench.data.corpora.files import fetch_corpus
from stsbench.data.corpora.tables import read_training_text
from stsbench.errors import DataError, OutputError, choose
from stsbench.files.whole import write_whole


class _Order(NamedTuple):
    """What is to be made, of what, and by what."""

    facts: MakeFacts
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

    Args:
        name: the corpus.
        corpora: the folder.
        catalogue: where its card is.
        open_tokenizer: opens the tokenizer that documents are chosen by.
        progress: told how far a long run is.

    Raises:
        UnknownName: no such corpus.
        DataError: it is not one that can be made, what it is made of cannot be had, or its rows are not the card's.
        OutputError: the file already exists, or cannot be written.
    """
    cards = catalogue.corpora()
    card = choose("corpus", name, cards)
    if card.make is None:
        raise DataError(
            f"corpus '{name}' is not made by a command: {card.how or 'it is fetched, or put into a folder'}"
        )
    path = corpora / card.file
    if path.exists():
        raise OutputError(f"{path}: already exists; remove it to make it again")
    make = choose("way of making a corpus", card.make.way, WAYS)
    rows = make(_Order(card.make, path, cards, corpora, open_tokenizer, progress))
    if rows != card.rows:
        raise DataError(
            f"{path}: made, but of {rows:,} rows where the card of '{name}' says {card.rows:,}: its source has "
            "changed; to train on it anyway, name the file by its path"
        )
    fetch_corpus(name, card, corpora=corpora)
    return path, rows


def _first_rows(order: _Order) -> int:
    """The first lines of another corpus."""
    facts = order.facts
    source = fetch_corpus(facts.of, choose("corpus", facts.of, order.cards), corpora=order.corpora)
    lines = read_training_text(source, header=False, limit=facts.rows).column(0).to_pylist()
    write_whole(order.path, "".join(f"{line}\n" for line in lines).encode())
    return len(lines)


def _long_documents(order: _Order) -> int:
    """The long documents of a dataset."""
    return write_long_documents(order.facts, order.path, order.open_tokenizer, order.progress)


WAYS: Mapping[str, Callable[[_Order], int]] = {"first_rows": _first_rows, "long_documents": _long_documents}
"""How a card's ``[make]`` says that its file is made; each writes it and returns its rows."""
