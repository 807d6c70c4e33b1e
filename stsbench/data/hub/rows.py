"""Rows of a dataset on the Hub: sentence pairs with gold scores, sentences or pairs with labels, or all it holds.

The files are fetched and checked like any others; the ``datasets`` library then reads the folder
they lie in, as it would read the repository, but has no part in the fetching: asked to fetch, it
takes whatever revision it finds in its cache when the Hub fails.

Or its files in one tar file: fetched, checked, unpacked once and within bounds. A plain tar file alone: what it holds
is then no more than its bytes. Links in it are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Self

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.core.errors import CardError, DataError, SourceError, did_you_mean
from stsbench.core.files import MOST_BYTES, check_unpacked_size, file_digest, scratch_beside
from stsbench.data.hub.repository import HubPath, Repository, detail, explained, open_repository, path_within, quiet
from stsbench.data.readers.sentences import Roles, to_split
from stsbench.data.readers.table import TextTable, listed, table_of
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
    with _opened(source) as dataset:
        tables = {name: dataset.read([name]) for name in dataset.splits}
        readme = _readme(dataset.repository)
    facts = {key: list(filter(None, _strings(readme.get(key)))) for key in ("language", "license")}
    return HubDataset(dataset.repository.commit, tables, facts["language"], ", ".join(facts["license"]))


def fetch_rows(source: HubSource, split: str) -> tuple[Split, str]:
    """Fetch one split of pairs with gold scores, or of what the card names labels for; returns it with its commit.

    Raises SourceError: the data cannot be had, or cannot be read; DataError: a split, configuration or column is
    missing, or a row has no gold score or none of the classes.
    """
    with _opened(source) as dataset:
        columns = _columns(source, str(dataset.repository.address))
        names = [name.strip() for name in re.split(r"[+,]", source.splits[split])]
        where = f"{dataset.repository.address}, split '{source.splits[split]}'"
        _check_names(names, dataset.splits, where, "split")
        table = dataset.read(names, columns)
    sentences = tuple(name for key, name in columns.items() if key.startswith("sentence"))
    is_gold = "label" not in columns
    roles = Roles(sentences, columns["gold" if is_gold else "label"], is_gold=is_gold)
    parts, subset = [(table, range(len(table.rows)), "")], columns.get("subset")
    found = to_split(parts, roles, subset=subset, classes=source.classes, joined=str)
    if isinstance(found, PairSplit):
        found = replace(found, gold=found.gold * source.scale)
    return found, dataset.repository.commit


class _Dataset(NamedTuple):
    """A repository's files as the ``datasets`` library opens them."""

    repository: Repository
    builder: Any

    @property
    def splits(self) -> list[str]:
        return [str(name) for name in self.builder.config.data_files or {}]

    def read(self, names: Sequence[str], columns: Mapping[str, str] | None = None) -> TextTable:
        """The rows of some splits, one after the other: of these columns by what they hold, or of all.

        The fields of a column of records are columns too, such as ``labels.label``.
        """
        where, page = f"{self.repository.address}, split '{'+'.join(names)}'", self.repository.address.page
        try:
            self.builder.download_and_prepare(verification_mode="no_checks")
            rows = sum(self.builder.info.splits[name].num_examples for name in names)
            found = self.builder.as_dataset(split="+".join(names), in_memory=True).flatten() if rows else None
        except Exception as error:
            cause: BaseException = error
            # The library wraps a reader's own error in general ones.
            while (behind := cause.__cause__ or cause.__context__) is not None:
                cause = behind
            if getattr(cause, "errno", None):
                # The disk's fault (full, not writable), not the data's.
                raise cause from error
            why = f"cannot be read: {detail(cause)}; it is broken on the Hub itself, see {page}"
            raise SourceError(f"{where}: {why}") from error
        if found is None:
            raise DataError(f"{where}: there is not one row")
        table = found.with_format("arrow")[:]
        if columns is not None:
            _check_names(list(columns.values()), table.column_names, where, "column")
            table = table.select(list(dict.fromkeys(columns.values())))
        for key, name in (columns or {}).items():
            kind = table.schema.field(name).type
            if key.startswith("sentence") and str(kind) not in ("string", "large_string"):
                raise DataError(f"{where}: column '{name}' holds {kind}, not text")
        return table_of(where, table, range(1, rows + 1), "row")


@contextmanager
def _opened(source: HubSource) -> Iterator[_Dataset]:
    """Fetch what describes a dataset and the data files of one configuration, and open them.

    The library writes what it reads to a cache; it gets a passing one, for a kept one may hold
    an earlier, damaged reading.
    """
    import datasets

    repository = open_repository(source.repo, revision=source.revision, kind="dataset", without="").check_whole()
    address, files = repository.address, repository.listing.files
    facts = [name for name in _FACTS if name in files]
    names = sorted(name for name in files if _DATA.fullmatch(name) and name not in _FACTS)
    if patterns := _patterns(repository, source.config):
        names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not names:
        script = any(name.endswith(".py") for name in files)
        why = "no data files in JSON, CSV or parquet" + (", only a script, which is never run" if script else "")
        raise SourceError(f"{address}: {why}; see {address.page}")
    folder = repository.fetch_all([*facts, *names]).path
    for name in names:
        if not (folder / name).stat().st_size:
            raise SourceError(f"{address.at(name)}: the file is empty; see {address.page}")
        check_unpacked_size(folder / name, where=str(address.at(name)))
    with explained(address, ""), tempfile.TemporaryDirectory(prefix="stsbench-") as scratch:
        with quiet("huggingface_hub"), quiet("datasets"):
            try:
                builder = datasets.load_dataset_builder(str(folder), name=source.config or None, cache_dir=scratch)
            except Exception as error:
                raise DataError(f"{address}: not laid out as a dataset: {detail(error)}") from error
            yield _Dataset(repository, builder)


def _readme(repository: Repository) -> dict[str, Any]:
    from huggingface_hub import DatasetCard

    if "README.md" not in repository.listing.files:
        return {}
    path, address = repository.fetch("README.md"), repository.address
    try:
        with quiet("huggingface_hub"):
            return dict(DatasetCard.load(path).data.to_dict())
    except Exception as error:
        raise SourceError(f"{address.at('README.md')}: cannot be read: {detail(error)}; see {address.page}") from error


def _patterns(repository: Repository, config: str) -> list[str]:
    address, declared = repository.address, _readme(repository).get("configs") or []
    configs: dict[str, Any] = {str(one["config_name"]): one for one in declared if "config_name" in one}
    if not configs:
        return []
    if config:
        _check_names([config], list(configs), str(address), "configuration")
    elif len(configs) > 1 and not any(e.get("default") or n == "default" for n, e in configs.items()):
        raise DataError(f"{address}: has several configurations ({listed([*configs])}); the card must name one")
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


def _check_names(wanted: Sequence[str], known: Sequence[str], where: str, what: str) -> None:
    for name in wanted:
        if name not in known:
            raise DataError(f"{where}: there is no {what} '{name}' (has {listed(known)}){did_you_mean(name, known)}")


def _columns(source: HubSource, where: str) -> dict[str, str]:
    for key in source.columns:
        if key not in KEYS:
            raise CardError(f"{where}: unknown key '{key}' in [hub.columns]{did_you_mean(key, KEYS)}")
    if "label" not in source.columns:
        return COLUMNS | source.columns
    if {*source.columns} not in ({"sentence", "label"}, {"sentence1", "sentence2", "label"}) or not source.classes:
        raise CardError(f"{where}: labels need sentence, or sentence1 and sentence2, in [hub.columns], and 'classes'")
    return dict(source.columns)


MOST_MEMBERS = 20_000
MOST_HEADER = 64 << 10
"""The bytes of a record that may stand before a member: its long name and others."""


def fetch_archive(source: HubSource) -> HubPath:
    """Fetch a dataset's archive and return the folder it is unpacked in, and the archive's commit.

    The folder is named after the archive's hash and appears only when it is whole; once it is there, neither the
    archive nor, for a pinned revision, the network is needed again. Raises SourceError: the archive cannot be had, is
    damaged, or holds what no data archive needs.
    """
    repository = open_repository(source.repo, revision=source.revision, kind="dataset", without="")
    address = repository.address.at(source.archive)
    digest = repository.listing.files.get(source.archive) or file_digest(repository.fetch(source.archive))
    name = f"{PurePosixPath(source.archive).name.split('.')[0]}-{digest[:12]}"
    folder = settings.cache_folder() / "archives" / name
    if not folder.is_dir():
        archive = repository.fetch(source.archive)
        with explained(address, ""):
            # Beside the folder's place, then moved there in one step: a killed run leaves no half of it.
            folder.parent.mkdir(parents=True, exist_ok=True)
            draft = scratch_beside(folder)
            draft.mkdir()
            try:
                unpack_archive(archive, draft, where=str(address))
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


HEADERS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip


class Refused(Exception):
    """An archive holds what no data archive needs."""


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.size > MOST_HEADER and found.type in HEADERS:
            raise Refused(f"a header in it asks for more than {MOST_HEADER >> 10} KiB")
        return found


# Of headers that hold no numbers where numbers belong, or one another, tarfile makes errors of many kinds.
_DAMAGED = (tarfile.TarError, EOFError, ValueError, LookupError, ArithmeticError, RecursionError,
            FileExistsError, IsADirectoryError, NotADirectoryError)  # fmt: skip


def unpack_archive(archive: Path, into: Path, *, where: str) -> None:
    """Unpack a plain tar file; raises SourceError."""
    count = size = 0
    try:
        with tarfile.open(archive, "r:", tarinfo=_Member) as tar:
            while (member := tar.next()) is not None:
                # None is kept: headers' records would add up.
                tar.members.clear()  # type: ignore[attr-defined]
                count, size, name = count + 1, size + member.size, ascii(member.name)[:80]
                is_link = member.issym() or member.islnk()
                if not (member.isfile() or member.isdir() or is_link) or member.issparse():
                    raise Refused(f"{name} is a device or a sparse file")
                if path_within(member.name) is None:
                    raise Refused(f"{name} leads outside the folder, or is not a file name")
                if member.size < 0 or count > MOST_MEMBERS or size > MOST_BYTES:
                    raise Refused(f"it holds more than {MOST_MEMBERS} files or {MOST_BYTES >> 30} GiB")
                if not is_link:
                    tar.extract(member, into, set_attrs=False, filter="data")
    except Refused as error:
        raise SourceError(f"{where}: refused to unpack: {error}; use another archive") from error
    except _DAMAGED as error:
        why = f"damaged archive, or no plain tar file: {detail(error)}"
        raise SourceError(f"{where}: {why}; remove {archive} and run again") from error
