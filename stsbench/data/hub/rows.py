"""Rows of a dataset on the Hub: sentence pairs with gold scores, sentences or pairs with labels, or all it holds.

The files are fetched and checked like any others; the ``datasets`` library then reads the folder
they lie in, as it would read the repository, but has no part in the fetching: asked to fetch, it
takes whatever revision it finds in its cache when the Hub fails.

Or its files in one tar file: fetched, checked and unpacked once. A plain tar file alone: what it holds is then no more
than its bytes. Links and devices in it are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.core.errors import CardError, DataError, SourceError, suggest
from stsbench.core.files import check_unpacked_size, file_digest, scratch_beside
from stsbench.data.hub.repository import HubPath, Repository, detail, quiet
from stsbench.data.readers.files import TextTable, format_names, table_of
from stsbench.data.readers.sentences import ColumnRoles, to_split
from stsbench.data.splits import PairSplit, Split

COLUMNS = {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score"}
"""The columns of a pair dataset, where a card does not say otherwise."""
KEYS = (*COLUMNS, "subset", "sentence", "label")
"""What a card may name columns for; one that names ``label`` names all columns that are read."""
_FACTS = ("README.md", ".huggingface.yaml", "dataset_infos.json")
_DATA = re.compile(r".*\.(json|jsonl|ndjson|csv|tsv|parquet)(\.(gz|bz2|xz))?")


class HubDataset(NamedTuple):
    """What a dataset holds: a table for each split, as the Hub calls both splits and columns; and what its README names."""

    commit: str
    tables: Mapping[str, TextTable]
    languages: Sequence[str]
    license: str


def read_dataset(source: HubSource) -> HubDataset:
    """Fetch and read all splits of a dataset; of a source, its repository, revision and configuration count.

    Files are JSON, CSV or parquet; a script is never run. Raises SourceError: it cannot be had, or cannot be read;
    DataError: it has several configurations and none is named, or is not laid out as a dataset.
    """
    repository = _repository(source)
    with _opened(repository, source.config) as builder:
        tables = {name: _table(repository, builder, [name]) for name in builder.info.splits}
    readme = _readme(repository)
    facts = {key: list(filter(None, _strings(readme.get(key)))) for key in ("language", "license")}
    return HubDataset(repository.commit, tables, facts["language"], ", ".join(facts["license"]))


def fetch_rows(source: HubSource, split: str) -> tuple[Split, str]:
    """Fetch one split of pairs with gold scores, or of what the card names labels for; returns it with its commit.

    Raises SourceError: the data cannot be had, or cannot be read; DataError: a split, configuration or column is
    missing, or a row has no gold score or none of the classes.
    """
    repository = _repository(source)
    columns = _columns(source, str(repository))
    with _opened(repository, source.config) as builder:
        names = [name.strip() for name in re.split(r"[+,]", source.splits[split])]
        _check_names(
            names, builder.info.splits, f"{repository}, split '{source.splits[split]}'", "split"
        )
        table = _table(repository, builder, names, columns)
    sentences = tuple(name for key, name in columns.items() if key.startswith("sentence"))
    is_gold = "label" not in columns
    roles = ColumnRoles(sentences, columns["gold" if is_gold else "label"], is_gold=is_gold)
    parts, subset = [(table, range(len(table.rows)), "")], columns.get("subset")
    found = to_split(parts, roles, subset=subset, classes=source.classes, joined=str)
    if isinstance(found, PairSplit):
        found = replace(found, gold=found.gold * source.scale)
    return found, repository.commit


def _repository(source: HubSource) -> Repository:
    return Repository(source.repo, revision=source.revision, kind="dataset", without="")


@contextmanager
def _opened(repository: Repository, config: str) -> Iterator[Any]:
    """Fetch what describes a dataset and the data files of one configuration, and let the ``datasets`` library read them.

    The library writes what it reads to a cache; it gets a passing one, for a kept one may hold
    an earlier, damaged reading.
    """
    import datasets

    files, page = repository.files, repository.page
    facts = [name for name in _FACTS if name in files]
    names = sorted(name for name in files if _DATA.fullmatch(name) and name not in _FACTS)
    if patterns := _patterns(repository, config):
        names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not names:
        script = any(name.endswith(".py") for name in files)
        why = "no data files in JSON, CSV or parquet" + (
            ", only a script, which is never run" if script else ""
        )
        raise SourceError(f"{repository}: {why}; see {page}")
    folder = repository.fetch_all([*facts, *names]).path
    for name in names:
        if not (folder / name).stat().st_size:
            raise SourceError(f"{repository.at(name)}: the file is empty; see {page}")
        check_unpacked_size(folder / name, where=repository.at(name))
    with repository.explained(), tempfile.TemporaryDirectory(prefix="stsbench-") as scratch:
        with quiet("huggingface_hub"), quiet("datasets"):
            try:
                builder = datasets.load_dataset_builder(
                    str(folder), name=config or None, cache_dir=scratch
                )
            except Exception as error:
                raise DataError(
                    f"{repository}: not laid out as a dataset: {detail(error)}"
                ) from error
            try:
                builder.download_and_prepare(verification_mode="no_checks")
            except Exception as error:
                cause: BaseException = error
                # The library wraps a reader's own error in general ones.
                while (behind := cause.__cause__ or cause.__context__) is not None:
                    cause = behind
                if getattr(cause, "errno", None):
                    # The disk's fault (full, not writable), not the data's.
                    raise cause from error
                why = f"cannot be read: {detail(cause)}; it is broken on the Hub itself, see {page}"
                raise SourceError(f"{repository}: {why}") from error
            yield builder


def _table(
    repository: Repository,
    builder: Any,  # noqa: ANN401 - datasets is untyped
    names: Sequence[str],
    columns: Mapping[str, str] | None = None,
) -> TextTable:
    """The rows of some splits, one after the other: of these columns by what they hold, or of all.

    The fields of a column of records are columns too, such as ``labels.label``.
    """
    where = f"{repository}, split '{'+'.join(names)}'"
    rows = sum(builder.info.splits[name].num_examples for name in names)
    if not rows:
        raise DataError(f"{where}: there is not one row")
    table = (
        builder.as_dataset(split="+".join(names), in_memory=True).flatten().with_format("arrow")[:]
    )
    if columns is not None:
        _check_names(list(columns.values()), table.column_names, where, "column")
        table = table.select(list(dict.fromkeys(columns.values())))
    for key, name in (columns or {}).items():
        kind = table.schema.field(name).type
        if key.startswith("sentence") and str(kind) not in ("string", "large_string"):
            raise DataError(f"{where}: column '{name}' holds {kind}, not text")
    return table_of(where, table, range(1, rows + 1), "row")


def _readme(repository: Repository) -> dict[str, Any]:
    from huggingface_hub import DatasetCard

    if "README.md" not in repository.listing.files:
        return {}
    path, where = repository.fetch("README.md"), repository.at("README.md")
    try:
        with quiet("huggingface_hub"):
            return dict(DatasetCard.load(path).data.to_dict())
    except Exception as error:
        raise SourceError(
            f"{where}: cannot be read: {detail(error)}; see {repository.page}"
        ) from error


def _patterns(repository: Repository, config: str) -> list[str]:
    declared = _readme(repository).get("configs") or []
    configs: dict[str, Any] = {
        str(one["config_name"]): one for one in declared if "config_name" in one
    }
    if not configs:
        return []
    if config:
        _check_names([config], configs, str(repository), "configuration")
    elif len(configs) > 1 and not any(
        e.get("default") or n == "default" for n, e in configs.items()
    ):
        raise DataError(
            f"{repository}: has several configurations ({format_names([*configs])}); the card must name one"
        )
    # The library finds the format of every configuration from the files of the first.
    entries = [configs[config], next(iter(configs.values()))] if config else list(configs.values())
    if not all("data_files" in entry for entry in entries):
        return []
    return [
        pattern.removeprefix("./") for entry in entries for pattern in _strings(entry["data_files"])
    ]


def _strings(value: object) -> Iterator[str]:
    """The texts in a declaration, such as that of data files: a text, a list, or rows of split and path."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings([inner for key, inner in value.items() if key != "split"])
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)


def _check_names(wanted: Sequence[str], known: Iterable[str], where: str, what: str) -> None:
    known = list(known)
    for name in wanted:
        if name not in known:
            raise DataError(
                f"{where}: there is no {what} '{name}' (has {format_names(known)}){suggest(name, known)}"
            )


def _columns(source: HubSource, where: str) -> dict[str, str]:
    for key in source.columns:
        if key not in KEYS:
            raise CardError(f"{where}: unknown key '{key}' in [hub.columns]{suggest(key, KEYS)}")
    if "label" not in source.columns:
        return COLUMNS | source.columns
    if {*source.columns} not in (
        {"sentence", "label"},
        {"sentence1", "sentence2", "label"},
    ) or not source.classes:
        raise CardError(
            f"{where}: labels need sentence, or sentence1 and sentence2, in [hub.columns], and 'classes'"
        )
    return dict(source.columns)


def fetch_archive(source: HubSource) -> HubPath:
    """Fetch a dataset's archive and return the folder it is unpacked in, and the archive's commit.

    The folder is named after the archive's hash and appears only when it is whole; once it is there, neither the
    archive nor, for a pinned revision, the network is needed again. Raises SourceError: the archive cannot be had, is
    damaged, or leads out of its folder.
    """
    repository = _repository(source)
    where = repository.at(source.archive)
    digest = repository.listing.files.get(source.archive) or file_digest(
        repository.fetch(source.archive)
    )
    name = f"{PurePosixPath(source.archive).name.split('.')[0]}-{digest[:12]}"
    folder = settings.cache_folder() / "archives" / name
    if not folder.is_dir():
        archive = repository.fetch(source.archive)
        with repository.explained(where):
            # Beside the folder's place, then moved there in one step: a killed run leaves no half of it.
            folder.parent.mkdir(parents=True, exist_ok=True)
            draft = scratch_beside(folder)
            draft.mkdir()
            try:
                unpack_archive(archive, draft, where=where)
                # On the disk before its name says that it is whole.
                for path in filter(Path.is_file, draft.rglob("*")):
                    with path.open("rb") as stream:
                        os.fsync(stream.fileno())
                draft.replace(folder)
            except OSError:
                # Another run was faster: its folder is as good, for the name holds the hash.
                if not folder.is_dir():
                    raise
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return HubPath(folder, repository.commit)


# Of headers that hold no numbers where numbers belong, or one another, tarfile makes errors of many kinds.
_DAMAGED = (tarfile.TarError, EOFError, ValueError, LookupError, ArithmeticError, RecursionError,
            FileExistsError, IsADirectoryError, NotADirectoryError)  # fmt: skip
_HEADER = 1 << 17


class _ChunkedTarFile(FileIO):
    """A tar file: tarfile reads what is in it piece by piece, but a header, however long it says it is, at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)


def _plain(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    before = -1
    for one in tar:
        # Of all members, which tarfile keeps, they may be as long as the archive.
        one.pax_headers = {}
        # tarfile believes a negative size, and would find the same member without an end.
        if one.offset <= before:
            raise tarfile.ReadError("a size in it leads back")
        before = one.offset
        # A sparse file may hold far more than the archive.
        if one.isdir() or (one.isfile() and not one.issparse()):
            # As any file of the cache: of now, for those who may read there.
            yield one.replace(mode=None, mtime=None, deep=False)  # type: ignore[arg-type]


def unpack_archive(archive: Path, into: Path, *, where: str) -> None:
    """Unpack the files and folders of a plain tar file; raises SourceError."""
    try:
        with _ChunkedTarFile(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            tar.extractall(into, _plain(tar), filter="data")
    except tarfile.FilterError as error:
        raise SourceError(
            f"{where}: refused to unpack: {detail(error)}; use another archive"
        ) from error
    except _DAMAGED as error:
        why = f"damaged archive, or no plain tar file: {detail(error)}"
        raise SourceError(f"{where}: {why}; remove {archive} and run again") from error
