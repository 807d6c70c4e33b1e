"""Datasets on the Hub: rows of pairs with gold scores, or of sentences or pairs with labels.

The files are fetched and checked like any others; the ``datasets`` library then reads their folder
as it would read the repository. It has no part in the fetching: it would read whatever revision is
in its cache if the Hub fails.

A dataset may also be one tar file, which is fetched, checked and unpacked once. It must be a plain
tar file, so that its contents are no larger than the file. Links and devices in it are skipped.
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
from stsbench.core.cards import DrawSection, HubSource
from stsbench.core.errors import CardError, DataError, SourceError, suggest
from stsbench.core.files import check_unpacked_size, file_digest, make_scratch_path
from stsbench.data.hub.failures import describe_exception, silence_library
from stsbench.data.hub.repository import HubPath, Repository
from stsbench.data.readers.columns import ColumnRoles
from stsbench.data.readers.files import expand_lists, to_text_table
from stsbench.data.readers.sentence_tables import TableRows, to_contrasts, to_split
from stsbench.data.readers.table import TextTable, format_names
from stsbench.data.splits import MAX_NEGATIVES, PairSplit, Split

COLUMNS = {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score"}
"""The columns of a pair dataset by role, if a card does not give others."""
NEGATIVES = ("negative", *(f"negative{number}" for number in range(2, MAX_NEGATIVES + 1)))
"""The roles of columns of less similar sentences."""
ROLES = (*COLUMNS, "subset", "sentence", "label", "anchor", "positive", *NEGATIVES)
"""The roles of columns in a card; one with ``label`` or ``anchor`` gives all columns to read."""
_DESCRIPTION_FILES = ("README.md", ".huggingface.yaml", "dataset_infos.json")
_DATA_FILE = re.compile(r".*\.(json|jsonl|ndjson|csv|tsv|parquet)(\.(gz|bz2|xz))?")


class HubDataset(NamedTuple):
    """All splits of a dataset, and facts of its README."""

    commit: str
    tables: Mapping[str, TextTable]
    """The table of each split, with the names of the Hub for splits and columns."""
    languages: Sequence[str]
    """The languages that the README names; empty if it names none."""
    license: str
    """The licences that the README names; empty if it names none."""


class HubRows(NamedTuple):
    """A split that was read from rows on the Hub, and its commit."""

    split: Split
    commit: str


def read_dataset(source: HubSource) -> HubDataset:
    """Fetch and read all splits of a dataset.

    Files are JSON, CSV or parquet; a script is never run.

    Args:
        source: The dataset; only its repository, revision and configuration are used.

    Raises:
        SourceError: It cannot be fetched, or cannot be read.
        DataError: It has several configurations and the source names none, or its files are not
            laid out as a dataset.
    """
    repository = _repository(source)
    with _open_builder(repository, source.config) as builder:
        tables = {name: _read_splits(repository, builder, [name]) for name in builder.info.splits}
    readme = _readme(repository)
    languages = list(filter(None, _iter_texts(readme.get("language"))))
    licenses = filter(None, _iter_texts(readme.get("license")))
    return HubDataset(repository.commit, tables, languages, license=", ".join(licenses))


def fetch_rows(source: HubSource, split: str) -> HubRows:
    """Fetch one split of pairs with gold scores, or of sentences or pairs with labels.

    Gold scores are multiplied by the card's ``scale``.

    Args:
        source: The dataset, its splits and its columns.
        split: The name of the split in the card.

    Raises:
        CardError: The columns of the source are not valid.
        SourceError: The data cannot be fetched, or cannot be read.
        DataError: A split, configuration or column is missing, or a row has no gold score or none
            of the classes.
    """
    repository = _repository(source)
    column_by_role = _source_columns(source, str(repository))
    # Several splits of the Hub may make one of ours: "train+validation".
    hub_splits = source.splits[split]
    names = [name.strip() for name in re.split(r"[+,]", hub_splits)]
    where = f"{repository}, split '{hub_splits}'"
    parts = []
    for config in source.configs or [source.config]:
        with _open_builder(repository, config) as builder:
            _check_names(names, builder.info.splits, where, noun="split")
            table = _read_splits(repository, builder, names, column_by_role, source.draw)
        # Of several configurations, each is a subset by its name.
        subset = config if source.configs else ""
        parts.append(TableRows(table, positions=range(len(table.rows)), subset=subset))
    if "anchor" in column_by_role:
        negatives = [column_by_role[role] for role in NEGATIVES if role in column_by_role]
        contrasts = to_contrasts(
            [part.table for part in parts],
            column_by_role["anchor"],
            column_by_role["positive"],
            negatives,
        )
        return HubRows(contrasts, repository.commit)
    is_gold = "label" not in column_by_role
    sentence_columns = [
        name for role, name in column_by_role.items() if role.startswith("sentence")
    ]
    roles = ColumnRoles(
        sentences=tuple(sentence_columns),
        target=column_by_role["gold" if is_gold else "label"],
        is_gold=is_gold,
    )
    split_data = to_split(
        parts,
        roles,
        subset=column_by_role.get("subset"),
        classes=source.classes,
        clean_text=str,
    )
    if isinstance(split_data, PairSplit):
        split_data = replace(split_data, gold=split_data.gold * source.scale)
    return HubRows(split_data, repository.commit)


def _repository(source: HubSource) -> Repository:
    return Repository(source.repo, revision=source.revision, kind="dataset", offline_hint="")


@contextmanager
def _open_builder(repository: Repository, config: str) -> Iterator[Any]:
    """Fetch the files of one configuration, and yield the library's builder that has read them.

    Args:
        repository: The repository of the dataset.
        config: The name of the configuration; empty for the default one.
    """
    folder = _fetch_data_files(repository, config)
    # The library writes to a cache. It is a temporary one here, as a lasting one may hold rows of
    # an earlier, damaged copy.
    with (
        repository.translate_failures(),
        tempfile.TemporaryDirectory(prefix="stsbench-") as cache_folder,
        silence_library("huggingface_hub"),
        silence_library("datasets"),
    ):
        yield _prepare_builder(repository, folder, config, cache_folder)


def _fetch_data_files(repository: Repository, config: str) -> Path:
    """Fetch the data files of one configuration, and return their folder.

    Args:
        repository: The repository of the dataset.
        config: The name of the configuration; empty for the default one. If the README declares
            no files for it, all data files are fetched.

    Raises:
        SourceError: There are no data files, one cannot be fetched, is empty, or unpacks to more
            than is allowed.
    """
    files = repository.files
    # They tell the library which files belong to which split.
    descriptions = [name for name in _DESCRIPTION_FILES if name in files]
    names = sorted(
        name for name in files if _DATA_FILE.fullmatch(name) and name not in _DESCRIPTION_FILES
    )
    if patterns := _file_patterns(repository, config):
        names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not names:
        has_script = any(name.endswith(".py") for name in files)
        script = ", only a script, which is never run" if has_script else ""
        raise SourceError(
            f"{repository}: no data files in JSON, CSV or parquet{script}; see {repository.page}"
        )
    folder = repository.fetch_all([*descriptions, *names]).path
    for name in names:
        where = repository.describe_file(name)
        if not (folder / name).stat().st_size:
            raise SourceError(f"{where}: the file is empty; see {repository.page}")
        check_unpacked_size(folder / name, where=where)
    return folder


def _prepare_builder(
    repository: Repository,
    folder: Path,
    config: str,
    cache_folder: str,
) -> Any:  # noqa: ANN401 - datasets is untyped
    """Read the files of a folder with the ``datasets`` library, and return its builder.

    Args:
        repository: The repository, for messages.
        folder: The folder with the data files.
        config: The name of the configuration; empty for the default one.
        cache_folder: The folder that the library writes the rows to.

    Raises:
        DataError: The folder is not laid out as a dataset.
        SourceError: A file is broken.
        OSError: The cache folder cannot be written.
    """
    import datasets

    try:
        builder = datasets.load_dataset_builder(
            str(folder), name=config or None, cache_dir=cache_folder
        )
    except Exception as error:
        raise DataError(
            f"{repository}: not laid out as a dataset: {describe_exception(error)}"
        ) from error
    try:
        builder.download_and_prepare(verification_mode="no_checks")
    except Exception as error:
        cause: BaseException = error
        # The library wraps a reader's own error in general ones.
        while (inner := cause.__cause__ or cause.__context__) is not None:
            cause = inner
        if getattr(cause, "errno", None):
            # The disk's fault (full, not writable), not the data's.
            raise cause from error
        raise SourceError(
            f"{repository}: cannot be read: {describe_exception(cause)}; "
            f"it is broken on the Hub itself, see {repository.page}"
        ) from error
    return builder


def _read_splits(
    repository: Repository,
    builder: Any,  # noqa: ANN401 - datasets is untyped
    names: Sequence[str],
    column_by_role: Mapping[str, str] | None = None,
    draw: DrawSection | None = None,
) -> TextTable:
    """Read the rows of some splits as one table of text, one split after the other.

    The fields of a column of records are columns too, such as ``labels.label``.

    Args:
        repository: The repository, for messages.
        builder: The builder of the ``datasets`` library.
        names: The splits as the Hub calls them.
        column_by_role: The columns to read by role; None for all columns.
        draw: The sample of the rows to read; None for all rows.

    Raises:
        DataError: There is no row, a column is missing, a column of sentences holds no text, or
            the sample cannot be drawn.
    """
    where = f"{repository}, split '{'+'.join(names)}'"
    n_rows = sum(builder.info.splits[name].num_examples for name in names)
    if not n_rows:
        raise DataError(f"{where}: there is not one row")
    dataset = builder.as_dataset(split="+".join(names), in_memory=True)
    if draw is not None and draw.rows < n_rows:
        dataset = _draw_rows(dataset, draw, where)
        n_rows = draw.rows
    table = dataset.flatten().with_format("arrow")[:]
    if column_by_role is not None:
        table = expand_lists(table)
        columns = list(dict.fromkeys(column_by_role.values()))
        _check_names(columns, table.column_names, where, noun="column")
        table = table.select(columns)
    for role, name in (column_by_role or {}).items():
        column_type = str(table.schema.field(name).type)
        if role not in ("gold", "label", "subset") and column_type not in (
            "string",
            "large_string",
        ):
            raise DataError(f"{where}: column '{name}' holds {column_type}, not text")
    return to_text_table(where, table, numbers=range(1, n_rows + 1), unit="row")


def _draw_rows(
    dataset: Any,  # noqa: ANN401 - datasets is untyped
    draw: DrawSection,
    where: str,
) -> Any:  # noqa: ANN401
    """Return a sample of a dataset with the classes of a column in its proportions.

    Args:
        dataset: A dataset of the ``datasets`` library with more rows than the sample.
        draw: The sample.
        where: The beginning of a message.

    Raises:
        DataError: There is no such column, or a class of it has a single row.
    """
    import datasets

    _check_names([draw.by], dataset.column_names, where, noun="column")
    if not isinstance(dataset.features[draw.by], datasets.ClassLabel):
        dataset = dataset.class_encode_column(draw.by)
    try:
        parts = dataset.train_test_split(
            test_size=draw.rows, seed=draw.seed, stratify_by_column=draw.by
        )
    except ValueError as error:
        raise DataError(
            f"{where}: no {draw.rows} rows can be drawn by column '{draw.by}': "
            f"{describe_exception(error)}"
        ) from error
    return parts["test"]


def _readme(repository: Repository) -> dict[str, Any]:
    """Return the metadata at the top of a dataset's README; empty if it has no README.

    Raises:
        SourceError: The README cannot be fetched, or its metadata are not valid.
    """
    from huggingface_hub import DatasetCard

    if "README.md" not in repository.listing.files:
        return {}
    path = repository.fetch("README.md")
    try:
        with silence_library("huggingface_hub"):
            return dict(DatasetCard.load(path).data.to_dict())
    except Exception as error:
        raise SourceError(
            f"{repository.describe_file('README.md')}: cannot be read: "
            f"{describe_exception(error)}; see {repository.page}"
        ) from error


def _file_patterns(repository: Repository, config: str) -> list[str]:
    """Return the patterns of the data files to fetch for a configuration, by the README.

    Args:
        repository: The repository of the dataset.
        config: The name of the configuration; empty for the default one.

    Returns:
        The patterns of its files and, for a named configuration, those of the first one; without a
        name, those of all. Empty if the README declares none, or lacks those of one of them.

    Raises:
        DataError: There is no such configuration, or there are several and none is the default.
    """
    declared = _readme(repository).get("configs") or []
    configs: dict[str, Any] = {
        str(entry["config_name"]): entry for entry in declared if "config_name" in entry
    }
    if not configs:
        return []
    if config:
        _check_names([config], configs, str(repository), noun="configuration")
    elif len(configs) > 1 and not _has_default(configs):
        raise DataError(
            f"{repository}: has several configurations ({format_names([*configs])}); "
            "the card must name one"
        )
    used_configs = list(configs.values())
    if config:
        # The library finds the format of every configuration from the files of the first.
        used_configs = [configs[config], used_configs[0]]
    if not all("data_files" in entry for entry in used_configs):
        return []
    patterns: list[str] = []
    for entry in used_configs:
        patterns += [text.removeprefix("./") for text in _iter_texts(entry["data_files"])]
    return patterns


def _has_default(configs: Mapping[str, Any]) -> bool:
    """Return whether one of several configurations is the default.

    Args:
        configs: The declaration of each configuration in the README, by its name.
    """
    return "default" in configs or any(entry.get("default") for entry in configs.values())


def _iter_texts(value: object) -> Iterator[str]:
    """Yield the texts in a declaration of a README, such as that of data files.

    The declaration is a text, a list of declarations, or a mapping with a split and its path; the
    names of splits are skipped.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _iter_texts(
            [nested_value for key, nested_value in value.items() if key != "split"]
        )
    elif isinstance(value, Sequence):
        for nested_value in value:
            yield from _iter_texts(nested_value)


def _check_names(names: Sequence[str], choices: Iterable[str], where: str, noun: str) -> None:
    """Check that names of splits, columns or configurations exist.

    Args:
        names: The names that a card gives.
        choices: Those of the dataset.
        where: The beginning of the message.
        noun: What they name, in the message.

    Raises:
        DataError: A name is not among the choices.
    """
    choices = list(choices)
    for name in names:
        if name not in choices:
            raise DataError(
                f"{where}: there is no {noun} '{name}' (has {format_names(choices)})"
                f"{suggest(name, choices)}"
            )


def _source_columns(source: HubSource, where: str) -> dict[str, str]:
    """Return the columns to read by role: the card's, and for gold scores the usual ones.

    Args:
        source: The section of the card on the Hub.
        where: The beginning of a message.

    Raises:
        CardError: The card's columns are of no role, or do not suffice for labels.
    """
    for role in source.columns:
        if role not in ROLES:
            raise CardError(f"{where}: unknown key '{role}' in [hub.columns]{suggest(role, ROLES)}")
    if "anchor" in source.columns:
        if not {"positive", "negative"} <= {*source.columns} <= {"anchor", "positive", *NEGATIVES}:
            raise CardError(f"{where}: anchor needs positive and negative in [hub.columns] alone")
        return dict(source.columns)
    if "label" not in source.columns:
        return COLUMNS | source.columns
    valid_roles = ({"sentence", "label"}, {"sentence1", "sentence2", "label"})
    if {*source.columns} not in valid_roles or not source.classes:
        raise CardError(
            f"{where}: labels need sentence, or sentence1 and sentence2, in [hub.columns], "
            "and 'classes'"
        )
    return dict(source.columns)


def fetch_archive(source: HubSource) -> HubPath:
    """Fetch and unpack a dataset's archive; return its folder, and the commit of the archive.

    The folder is named after the archive's hash and appears only when it is complete. After that
    neither the archive nor, for a pinned revision, the network is needed again.

    Raises:
        SourceError: The archive cannot be fetched, is damaged, or leads out of its folder.
    """
    repository = _repository(source)
    where = repository.describe_file(source.archive)
    digest = repository.listing.files.get(source.archive)
    if not digest:
        # The Hub's hash may be unknown, as offline.
        digest = file_digest(repository.fetch(source.archive))
    name = f"{PurePosixPath(source.archive).name.split('.')[0]}-{digest[:12]}"
    folder = settings.cache_folder() / "archives" / name
    if not folder.is_dir():
        archive = repository.fetch(source.archive)
        with repository.translate_failures(where):
            _unpack_atomically(archive, folder, where)
    return HubPath(folder, repository.commit)


def _unpack_atomically(archive: Path, folder: Path, where: str) -> None:
    """Unpack an archive to a scratch folder, and rename that, so that no folder is incomplete.

    Args:
        archive: The tar file.
        folder: The folder for its contents.
        where: The beginning of a message.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = make_scratch_path(folder)
    scratch.mkdir()
    try:
        unpack_archive(archive, scratch, where=where)
        # The files must be on the disk before the folder's name says that they are complete.
        for path in filter(Path.is_file, scratch.rglob("*")):
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        scratch.replace(folder)
    except OSError:
        # Another run was faster: its folder is as good, for the name holds the hash.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# If a header has no numbers where they belong, or folders are files, tarfile raises many errors.
_DAMAGED_FILE_ERRORS = (
    tarfile.TarError,
    EOFError,
    ValueError,
    LookupError,
    ArithmeticError,
    RecursionError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
)
_MAX_HEADER_BYTES = 1 << 17


class _ChunkedTarFile(FileIO):
    """A tar file that is read in small parts.

    The library reads the contents so, but a header at once, however long it claims to be.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """Read this number of bytes; raises ReadError for a number that no header needs."""
        if size is None or not 0 <= size <= _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)


def _iter_plain_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files and folders of an archive; links, devices and sparse files are skipped."""
    previous_offset = -1
    for member in tar:
        # tarfile stores the headers of all members in memory, and each may be as long as the
        # archive.
        member.pax_headers = {}
        # tarfile accepts a negative size, and would return to the same member without end.
        if member.offset <= previous_offset:
            raise tarfile.ReadError("a size in it leads back")
        previous_offset = member.offset
        # A sparse file may hold far more than the archive.
        if member.isdir() or (member.isfile() and not member.issparse()):
            # With the usual time and permissions of a file in the cache.
            yield member.replace(mode=None, mtime=None, deep=False)  # type: ignore[arg-type]


def unpack_archive(archive: Path, into: Path, *, where: str) -> None:
    """Unpack the files and folders of a plain tar file.

    Args:
        archive: The tar file.
        into: The folder for its contents.
        where: The name of the archive for messages.

    Raises:
        SourceError: The archive is damaged, or leads out of its folder.
    """
    try:
        with _ChunkedTarFile(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            tar.extractall(into, _iter_plain_members(tar), filter="data")
    except tarfile.FilterError as error:
        raise SourceError(
            f"{where}: refused to unpack: {describe_exception(error)}; use another archive"
        ) from error
    except _DAMAGED_FILE_ERRORS as error:
        problem = f"damaged archive, or no plain tar file: {describe_exception(error)}"
        raise SourceError(f"{where}: {problem}; remove {archive} and run again") from error
