"""Rows of a dataset on the Hub: sentence pairs with gold scores, sentences or pairs with labels, or all it holds.

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
from typing import Any, NamedTuple

import numpy as np

from stsbench.core.cards import HubSource
from stsbench.core.errors import CardError, DataError, SourceError, did_you_mean, one_line
from stsbench.data.hub.archives import check_unpacked_size
from stsbench.data.hub.failures import detail, explained, quiet
from stsbench.data.hub.repository import Repository, open_repository
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit, Split

COLUMNS = {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score"}
"""The columns of a pair dataset, where a card does not say otherwise."""
KEYS = (*COLUMNS, "subset", "sentence", "label")
"""What a card may name columns for; one that names ``label`` names all columns that are read."""
_FACTS = ("README.md", ".huggingface.yaml", "dataset_infos.json")
_DATA = re.compile(r".*\.(json|jsonl|ndjson|csv|tsv|parquet)(\.(gz|bz2|xz))?")


class HubDataset(NamedTuple):
    """What a dataset holds: columns by split, as the Hub calls both; and what its README names."""

    commit: str
    tables: Mapping[str, Mapping[str, Sequence[Any]]]
    languages: Sequence[str]
    license: str


def read_dataset(source: HubSource) -> HubDataset:
    """Fetch and read all splits of a dataset; of a source, its repository, revision and configuration count.

    Files are JSON, CSV or parquet; a script is never run.

    Raises:
        SourceError: it cannot be had, or cannot be read.
        DataError: it has several configurations and none is named, or is not laid out as a dataset.
    """
    repository = open_repository(source.repo, revision=source.revision, kind="dataset", without="")
    folder, where = _fetch_folder(repository, source.config), str(repository.address)
    with explained(repository.address, ""), _opened(folder, source.config, where) as builder:
        names = [str(name) for name in builder.config.data_files or {}]
        tables = {name: _read_splits(builder, [name], repository).to_dict() for name in names}
    readme: dict[str, Any] = {}
    if "README.md" in repository.listing.files:
        from huggingface_hub import DatasetCard

        with quiet("huggingface_hub"):
            readme = DatasetCard.load(folder / "README.md").data.to_dict()
    facts = {key: list(filter(None, _strings(readme.get(key)))) for key in ("language", "license")}
    return HubDataset(repository.commit, tables, facts["language"], ", ".join(facts["license"]))


def fetch_rows(source: HubSource, split: str, *, without: str | None = None) -> tuple[Split, str]:
    """Fetch one split of pairs with gold scores, or of what the card names labels for; returns it with its commit.

    Raises:
        SourceError: the data cannot be had, or cannot be read.
        DataError: a split, configuration or column is missing, or a row has no gold score or none of the classes.
    """
    repository = open_repository(source.repo, revision=source.revision, kind="dataset", without=without)
    address = repository.address
    if split not in source.splits:
        raise DataError(f"{address}: the card names no split '{split}' there (has {', '.join(source.splits)})")
    folder = _fetch_folder(repository, source.config)
    where = f"{address}, split '{source.splits[split]}'"
    columns = _columns(source, where)
    names = [name.strip() for name in re.split(r"[+,]", source.splits[split])]
    with explained(address, without), _opened(folder, source.config, where) as builder:
        _check_names(names, [str(name) for name in builder.config.data_files or {}], where, "split")
        table = _read_splits(builder, names, repository)
        tops = {name: name if name in table.column_names else name.partition(".")[0] for name in columns.values()}
        _check_names(list(tops.values()), table.column_names, where, "column")
        read: dict[str, list[Any]] = table.select_columns(sorted(set(tops.values()))).to_dict()
    rows = {name: read[top] if top == name else _inside(read[top], name, where) for name, top in tops.items()}
    make = _to_labelled if "label" in columns else _to_pairs
    return make(rows, columns, source, where), repository.commit


def _fetch_folder(repository: Repository, config: str) -> Path:
    """Fetch what describes a dataset, then the data files of one configuration; returns their snapshot's folder.

    Raises:
        SourceError: a file cannot be had, or there are none. DataError: there is no such configuration.
    """
    repository.check_whole()
    address, files = repository.address, repository.listing.files
    facts = [name for name in _FACTS if name in files]
    names = sorted(name for name in files if _DATA.fullmatch(name) and name not in _FACTS)
    if "README.md" in facts and (patterns := _patterns(repository, config)):
        names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not names:
        script = any(name.endswith(".py") for name in files)
        why = "no data files in JSON, CSV or parquet" + (", only a script, which is never run" if script else "")
        raise SourceError(f"{address}: {why}; see {address.page}")
    for name in [*facts, *names]:
        path = repository.fetch(name)
        if not path.stat().st_size and name not in _FACTS:
            raise SourceError(f"{address.at(name)}: the file is empty; see {address.page}")
        check_unpacked_size(path, where=str(address.at(name)))
    return repository.fetch_all(names[-1:]).path


def _patterns(repository: Repository, config: str) -> list[str]:
    """The patterns of the files needed to read a configuration, as the README declares it; none if it declares none."""
    from huggingface_hub import DatasetCard

    address, readme = repository.address, repository.fetch("README.md")
    try:
        with quiet("huggingface_hub"):
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
    # The library finds the format of every configuration from the files of the first.
    entries = [configs[config], next(iter(configs.values()))] if config else list(configs.values())
    if not all("data_files" in entry for entry in entries):
        return []
    return [pattern.removeprefix("./") for entry in entries for pattern in _strings(entry["data_files"])]


def _strings(value: object) -> Iterator[str]:
    """The texts in a declaration, such as that of data files: a text, a list, or rows of split and path."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings([inner for key, inner in value.items() if key != "split"])
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)


@contextmanager
def _opened(folder: Path, config: str, where: str) -> Iterator[Any]:
    """A builder of the ``datasets`` library for a folder; raises DataError where it is not laid out as a dataset.

    The library writes what it reads to a cache; it gets a passing one, for a kept one may hold
    an earlier, damaged reading.
    """
    import datasets

    with tempfile.TemporaryDirectory(prefix="stsbench-") as scratch, quiet("huggingface_hub"), quiet("datasets"):
        try:
            builder = datasets.load_dataset_builder(str(folder), name=config or None, cache_dir=scratch)
        except Exception as error:
            raise DataError(f"{where}: not laid out as a dataset: {detail(error)}") from error
        yield builder


def _read_splits(builder: Any, names: Sequence[str], repository: Repository) -> Any:  # noqa: ANN401 - a Dataset of the library
    """The rows of splits one after another, as the library's table.

    Raises:
        DataError: there are none. SourceError: a file is not what its name says.
    """
    where = f"{repository.address}, split '{'+'.join(names)}'"
    try:
        builder.download_and_prepare(verification_mode="no_checks")
        rows = sum(builder.info.splits[name].num_examples for name in names)
        table = builder.as_dataset(split="+".join(names), in_memory=True) if rows else None
    except Exception as error:
        cause: BaseException = error
        # The library wraps a reader's own error in general ones.
        while (behind := cause.__cause__ or cause.__context__) is not None:
            cause = behind
        if getattr(cause, "errno", None):
            # The disk's fault (full, not writable), not the data's.
            raise cause from error
        broken = f"it is broken on the Hub itself, see {repository.address.page}"
        raise SourceError(f"{where}: cannot be read: {detail(cause)}; {broken}") from error
    if table is None:
        raise DataError(f"{where}: there is not one row")
    return table


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


Rows = Mapping[str, Sequence[Any]]


def _to_labelled(
    rows: Rows, columns: Mapping[str, str], source: HubSource, where: str
) -> LabelledSplit | LabelledPairSplit:
    places = {name: at for at, name in enumerate(source.classes)}
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


def _to_pairs(rows: Rows, columns: Mapping[str, str], source: HubSource, where: str) -> PairSplit:
    gold = rows[columns["gold"]]
    for at, value in enumerate(gold, start=1):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{where}: row {at}: gold score in '{columns['gold']}' is {_kind(value)}, not a number")
    subset = rows[columns["subset"]] if "subset" in columns else [""] * len(gold)
    return PairSplit(
        sentences1=_texts(rows[columns["sentence1"]], columns["sentence1"], where),
        sentences2=_texts(rows[columns["sentence2"]], columns["sentence2"], where),
        gold=np.array(gold, dtype=np.float64) * source.scale,
        subset=[str(name) for name in subset],
    )


def _texts(values: Sequence[Any], column: str, where: str) -> list[str]:
    for at, value in enumerate(values, start=1):
        if not isinstance(value, str):
            raise DataError(f"{where}: row {at}: '{column}' is {_kind(value)}, not text")
    return list(values)


def _kind(value: object) -> str:
    return "missing" if value is None else f"{type(value).__name__} {one_line(repr(value))[:40]}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
