"""Rows from a dataset on the Hub: sentence pairs with gold scores, sentences or pairs with labels.

The files are fetched and checked like any others; the ``datasets`` library then reads the folder
they lie in, as it would read the repository, but has no part in the fetching: asked to fetch, it
takes whatever revision it finds in its cache when the Hub fails.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.cards.facts import HubSource
from stsbench.data.hub.failures import Address, detail, explained
from stsbench.data.hub.files import address_of, fetch_listed, folder_of
from stsbench.data.hub.listing import Listing, look_up
from stsbench.data.hub.quiet import quiet_datasets, quiet_hub
from stsbench.data.hub.unpacking import check_unpacked_size
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit, Split
from stsbench.errors import CardError, DataError, SourceError, did_you_mean, one_line

COLUMNS = {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score"}
"""The columns of a pair dataset, where a card does not say otherwise."""
KEYS = (*COLUMNS, "subset", "sentence", "label")
"""What a card may name columns for; one that names ``label`` names all columns that are read."""

_FACTS = ("README.md", ".huggingface.yaml", "dataset_infos.json")
_DATA = re.compile(r".*\.(json|jsonl|ndjson|csv|tsv|parquet)(\.(gz|bz2|xz))?")


class Unreadable(SourceError):
    """Files that came, but are not what their names say."""


def fetch_rows(
    source: HubSource, split: str, *, without: str | None = None, progress: bool = False
) -> tuple[Split, str]:
    """Fetch one split of pairs with gold scores, or of what the card names labels for; returns it with its commit.

    Raises:
        SourceError: the data cannot be had, or cannot be read.
        DataError: a split, configuration or column is missing, or a row has no gold score or none of the classes.
    """
    if "label" not in source.columns:
        return fetch_pairs(source, split, without=without, progress=progress)
    rows, where, commit = _fetched(source, split, without=without, progress=progress)
    return _to_labelled(rows, source, where), commit


def fetch_pairs(
    source: HubSource, split: str, *, without: str | None = None, progress: bool = False
) -> tuple[PairSplit, str]:
    """Fetch one split of sentence pairs; returns it with the commit it is of; see :func:`fetch_rows`."""
    rows, where, commit = _fetched(source, split, without=without, progress=progress)
    return _to_pairs(rows, source, where), commit


def _fetched(
    source: HubSource, split: str, *, without: str | None, progress: bool
) -> tuple[dict[str, list[Any]], str, str]:
    """The columns of a split, where they are from, for messages, and their commit."""
    address = address_of(source.repo, revision=source.revision, kind="dataset")
    if split not in source.splits:
        raise DataError(f"{address}: the card names no split '{split}' there (has {', '.join(source.splits)})")
    listing = look_up(address, without=without)
    folder = fetch_folder(address, source.config, listing, without=without, progress=progress)
    where = f"{address}, split '{source.splits[split]}'"
    try:
        with explained(address, without):
            rows = _read(folder, source, source.splits[split], where)
    except Unreadable as error:
        raise SourceError(f"{error}; it is broken on the Hub itself, see {address.page}") from error
    return rows, where, listing.commit


def fetch_folder(address: Address, config: str, listing: Listing, *, without: str | None, progress: bool) -> Path:
    """Fetch what describes a dataset, then the data files of one configuration; returns their snapshot's folder.

    Raises:
        SourceError: a file cannot be had, or there are none. DataError: there is no such configuration.
    """
    listing.check_whole(address)

    def fetch(name: str) -> Path:
        path = fetch_listed(address.at(name), listing, without=without, progress=progress)
        if not path.stat().st_size and name not in _FACTS:
            raise SourceError(f"{address.at(name)}: the file is empty; see {address.page}")
        check_unpacked_size(path, where=str(address.at(name)))
        return path

    facts = {name: fetch(name) for name in _FACTS if name in listing.files}
    names = sorted(name for name in listing.files if _DATA.fullmatch(name) and name not in _FACTS)
    if "README.md" in facts and (patterns := _patterns(facts["README.md"], config, address)):
        names = [name for name in names if any(fnmatchcase(name, p) for p in patterns)]
    if not names:
        script = any(name.endswith(".py") for name in listing.files)
        why = "no data files in JSON, CSV or parquet" + (", only a script, which is never run" if script else "")
        raise SourceError(f"{address}: {why}; see {address.page}")
    return folder_of([fetch(name) for name in names][-1], names[-1])


def _patterns(readme: Path, config: str, address: Address) -> list[str]:
    """The patterns of the files needed to read a configuration, as the README declares it; none if it declares none."""
    from huggingface_hub import DatasetCard

    try:
        with quiet_hub():
            declared: Any = DatasetCard.load(readme).data.to_dict().get("configs") or []
        configs: dict[str, dict[str, Any]] = {str(entry["config_name"]): entry for entry in declared}
    except Exception as error:
        raise SourceError(f"{address.at('README.md')}: cannot be read: {detail(error)}; see {address.page}") from error
    if not configs:
        return []
    if config:
        _check_names([config], list(configs), str(address), "configuration")
    if not config and len(configs) > 1 and not any(e.get("default") or n == "default" for n, e in configs.items()):
        raise DataError(
            f"{address}: has several configurations ({_some(list(configs))}); the card must name one as 'config'"
        )
    # The library tells the format of every configuration from the files of the first.
    entries = [configs[config], next(iter(configs.values()))] if config else list(configs.values())
    if not all("data_files" in entry for entry in entries):
        return []
    return [pattern.removeprefix("./") for entry in entries for pattern in _strings(entry["data_files"])]


def _strings(value: object) -> Iterator[str]:
    """The patterns in a declaration of data files: a string, a list, or rows of split and path."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings([inner for key, inner in value.items() if key != "split"])
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)


@contextmanager
def opened(folder: Path, config: str, where: str) -> Iterator[Any]:
    """A builder of the ``datasets`` library for a folder.

    The library writes what it reads to a cache; it gets a passing one, for a kept one may hold
    an earlier, damaged reading.

    Raises:
        DataError: the folder is not laid out as a dataset.
    """
    import datasets

    with tempfile.TemporaryDirectory(prefix="stsbench-") as scratch, quiet_datasets():
        try:
            builder = datasets.load_dataset_builder(str(folder), name=config or None, cache_dir=scratch)
        except Exception as error:
            raise DataError(f"{where}: not laid out as a dataset: {detail(error)}") from error
        yield builder


def read_splits(builder: Any, names: Sequence[str], where: str) -> Any:  # noqa: ANN401 - a Dataset of the library
    """The rows of splits one after another, as the library's table.

    Raises:
        DataError: there are none. Unreadable: a file is not what its name says.
    """
    try:
        builder.download_and_prepare(verification_mode="no_checks")
        rows = sum(builder.info.splits[name].num_examples for name in names)
        table = builder.as_dataset(split="+".join(names), in_memory=True) if rows else None
    except Exception as error:
        cause = _innermost(error)
        if getattr(cause, "errno", None):
            # The disk's fault (full, not writable), not the data's.
            raise cause from error
        raise Unreadable(f"{where}: cannot be read: {detail(cause)}") from error
    if table is None:
        raise DataError(f"{where}: there is not one row")
    return table


def _read(folder: Path, source: HubSource, splits: str, where: str) -> dict[str, list[Any]]:
    """Read the columns that are asked for."""
    wanted = sorted(set(_columns(source, where).values()))
    names = [name.strip() for name in re.split(r"[+,]", splits)]
    with opened(folder, source.config, where) as builder:
        _check_names(names, [str(name) for name in builder.config.data_files or {}], where, "split")
        table = read_splits(builder, names, where)
        tops = {name: name if name in table.column_names else name.partition(".")[0] for name in wanted}
        _check_names(list(tops.values()), table.column_names, where, "column")
        read: dict[str, list[Any]] = table.select_columns(sorted(set(tops.values()))).to_dict()
        return {name: read[top] if top == name else _inside(read[top], name, where) for name, top in tops.items()}


def _inside(rows: Sequence[Any], name: str, where: str) -> list[Any]:
    """The values of a field within a column of records, as ``labels.label`` names it."""
    top, _, field = name.partition(".")
    for row in rows:
        if not isinstance(row, Mapping) or field not in row:
            known = _some(list(row)) if isinstance(row, Mapping) else "no fields"
            raise DataError(f"{where}: column '{top}' has no field '{field}' (has {known})")
    return [row[field] for row in rows]


def _check_names(wanted: Sequence[str], known: Sequence[str], where: str, what: str) -> None:
    for name in wanted:
        if name not in known:
            raise DataError(f"{where}: there is no {what} '{name}' (has {_some(known)}){did_you_mean(name, known)}")


def _columns(source: HubSource, where: str) -> dict[str, str]:
    for key in source.columns:
        if key not in KEYS:
            raise CardError(f"{where}: unknown key '{key}' in [hub.columns]{did_you_mean(key, KEYS)}")
    if "label" not in source.columns:
        return COLUMNS | source.columns
    if {*source.columns} not in ({"sentence", "label"}, {"sentence1", "sentence2", "label"}) or not source.classes:
        raise CardError(f"{where}: labels need sentence, or sentence1 and sentence2, in [hub.columns], and 'classes'")
    return dict(source.columns)


def _to_labelled(rows: Mapping[str, Sequence[Any]], source: HubSource, where: str) -> LabelledSplit | LabelledPairSplit:
    columns, places = source.columns, {name: at for at, name in enumerate(source.classes)}
    names = [str(value) for value in rows[columns["label"]]]
    other = next((at for at, name in enumerate(names) if name not in places), None)
    if other is not None:
        raise DataError(f"{where}: row {other + 1}: label '{names[other][:40]}' is not one of {_some(source.classes)}")
    labels = np.array([places[name] for name in names], dtype=np.int64)
    texts = {key: _texts(rows[name], name, where) for key, name in columns.items() if key != "label"}
    if "sentence" in texts:
        return LabelledSplit(sentences=texts["sentence"], labels=labels, classes=source.classes)
    first, second = texts["sentence1"], texts["sentence2"]
    return LabelledPairSplit(sentences1=first, sentences2=second, labels=labels, classes=source.classes)


def _to_pairs(rows: Mapping[str, Sequence[Any]], source: HubSource, where: str) -> PairSplit:
    columns = _columns(source, where)
    gold = rows[columns["gold"]]
    subset = rows[columns["subset"]] if "subset" in columns else [""] * len(gold)
    return PairSplit(
        sentences1=_texts(rows[columns["sentence1"]], columns["sentence1"], where),
        sentences2=_texts(rows[columns["sentence2"]], columns["sentence2"], where),
        gold=np.array(_numbers(gold, columns["gold"], where), dtype=np.float64) * source.scale,
        subset=[str(name) for name in subset],
    )


def _texts(values: Sequence[Any], column: str, where: str) -> list[str]:
    for at, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"{where}: row {at + 1}: '{column}' is {_kind(value)}, not text")
    return list(values)


def _numbers(values: Sequence[Any], column: str, where: str) -> list[float]:
    for at, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{where}: row {at + 1}: gold score in '{column}' is {_kind(value)}, not a number")
    return [float(value) for value in values]


def _kind(value: object) -> str:
    return "missing" if value is None else f"{type(value).__name__} {one_line(repr(value))[:40]}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _innermost(error: BaseException) -> BaseException:
    """The error that started a chain: the library wraps a reader's own in general ones."""
    while (behind := error.__cause__ or error.__context__) is not None:
        error = behind
    return error
