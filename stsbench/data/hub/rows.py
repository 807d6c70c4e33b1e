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
from stsbench.core.errors import CardError, DataError, SourceError, suggest, translate_errors
from stsbench.core.files import check_unpacked_size, file_sha256, make_scratch_path
from stsbench.data.hub.failures import describe_exception, silence_library
from stsbench.data.hub.repository import HubPath, Repository
from stsbench.data.readers.columns import ColumnRoles
from stsbench.data.readers.files import expand_lists, to_text_table
from stsbench.data.readers.sentence_tables import TableRows, to_contrasts, to_split
from stsbench.data.readers.table import TextTable, format_names
from stsbench.data.splits import MAX_NEGATIVES, PairSplit, Split

PAIR_COLUMNS = {"sentence1": "sentence1", "sentence2": "sentence2", "gold": "score"}
"""The columns of a pair dataset by role, if a card does not give others."""
NEGATIVES = ("negative", *(f"negative{number}" for number in range(2, MAX_NEGATIVES + 1)))
"""The roles of columns of less similar sentences."""
ROLES = (*PAIR_COLUMNS, "subset", "sentence", "label", "anchor", "positive", *NEGATIVES)
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
    """Fetch and read all splits of a dataset on the Hub.

    Files are JSON, CSV or parquet; a script is never run.

    Args:
        source: The dataset; only its repository, revision and configuration are used.

    Returns:
        The commit, the table of each split, and the languages and licences that the README names.

    Raises:
        SourceError: It cannot be fetched, or cannot be read.
        DataError: It has several configurations and the source names none, or its files are not
            laid out as a dataset.
    """
    repository = _repository(source)
    with _open_builder(repository, source.config) as builder:
        tables = {name: _read_splits(repository, builder, [name]) for name in builder.info.splits}
    readme = _read_readme_metadata(repository)
    # Without empty texts.
    languages = list(filter(None, _iter_texts(readme.get("language"))))
    licenses = filter(None, _iter_texts(readme.get("license")))
    return HubDataset(repository.commit, tables, languages, license=", ".join(licenses))


def fetch_rows(source: HubSource, split: str) -> HubRows:
    """Fetch one split of a task from a dataset on the Hub.

    Its items are pairs with gold scores, sentences or pairs with labels, or an anchor with a more
    similar sentence (the positive) and less similar ones (negatives). Gold scores are multiplied by
    the card's ``scale``.

    Args:
        source: The part of a task's card about the Hub: the dataset, the splits and the columns;
            ``config``, its only configuration, or ``configs``, those that are the subsets of the
            task; ``draw``, the sample of the rows to read, or None for all.
        split: Our name of the split.

    Raises:
        CardError: The columns of the source are not valid.
        SourceError: The data cannot be fetched, or cannot be read.
        DataError: A split, configuration or column is missing, or a row has no valid target.
    """
    repository = _repository(source)
    # Role, such as sentence1 or label -> the name of the column.
    column_by_role = _source_columns(source, str(repository))
    # Several splits of the Hub may make one of ours: "train+validation".
    hub_splits = source.splits[split]
    split_names = [name.strip() for name in re.split(r"[+,]", hub_splits)]
    where = f"{repository}, split '{hub_splits}'"
    rows_by_config = []
    for config in source.configs or [source.config]:
        with _open_builder(repository, config) as builder:
            _check_names(split_names, builder.info.splits, where, noun="split")
            table = _read_splits(repository, builder, split_names, column_by_role, source.draw)
        # Of several configurations, each is a subset by its name.
        subset = config if source.configs else ""
        rows_by_config.append(TableRows(table, positions=range(len(table.rows)), subset=subset))
    if "anchor" in column_by_role:
        contrasts = to_contrasts(
            [rows.table for rows in rows_by_config],
            column_by_role["anchor"],
            column_by_role["positive"],
            [column_by_role[role] for role in NEGATIVES if role in column_by_role],
        )
        return HubRows(contrasts, repository.commit)
    is_gold = "label" not in column_by_role
    sentence_columns = [
        column for role, column in column_by_role.items() if role.startswith("sentence")
    ]
    roles = ColumnRoles(
        sentences=tuple(sentence_columns),
        target=column_by_role["gold" if is_gold else "label"],
        is_gold=is_gold,
    )
    split_data = to_split(
        rows_by_config,
        roles,
        subset=column_by_role.get("subset"),
        classes=source.classes,
        clean_text=str,  # texts stay as they are
    )
    if isinstance(split_data, PairSplit):
        split_data = replace(split_data, gold=split_data.gold * source.scale)
    return HubRows(split_data, repository.commit)


def _repository(source: HubSource) -> Repository:
    return Repository(source.repo, revision=source.revision, kind="dataset", offline_hint="")


@contextmanager
def _open_builder(repository: Repository, config: str) -> Iterator[Any]:
    """Fetch the files of one configuration of a dataset, and read them with ``datasets``.

    It is for a ``with`` block, which gets the library's builder. The builder has the rows of all
    splits, but within the block alone: it stores them in a temporary folder.

    Args:
        repository: The dataset on the Hub.
        config: The name of the configuration; empty for the default one.
    """
    folder = _fetch_data_files(repository, config)
    # A lasting folder might hold rows of an earlier, damaged copy.
    with (
        repository.translate_failures(),
        tempfile.TemporaryDirectory(prefix="stsbench-") as cache_folder,
        silence_library("huggingface_hub"),
        silence_library("datasets"),
    ):
        yield _prepare_builder(repository, folder, config, cache_folder)


def _fetch_data_files(repository: Repository, config: str) -> Path:
    """Fetch the data files of one configuration of a dataset, and return their folder.

    Args:
        repository: The dataset on the Hub.
        config: The name of the configuration; empty for the default one. If the README declares
            no files for it, all data files are fetched.

    Raises:
        SourceError: There are no data files, one cannot be fetched, is empty, or unpacks to more
            than is allowed.
    """
    files = repository.files
    # The README and others tell the library which files belong to which split.
    description_names = [name for name in _DESCRIPTION_FILES if name in files]
    data_names = sorted(
        name for name in files if _DATA_FILE.fullmatch(name) and name not in _DESCRIPTION_FILES
    )
    # Patterns of paths such as "data/train-*.parquet"; empty if the README declares none.
    patterns = _read_file_patterns(repository, config)
    if patterns:
        data_names = [
            name for name in data_names if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
    if not data_names:
        has_script = any(name.endswith(".py") for name in files)
        script = ", only a script, which is never run" if has_script else ""
        raise SourceError(
            f"{repository}: no data files in JSON, CSV or parquet{script}; see {repository.page}"
        )
    folder = repository.fetch_all([*description_names, *data_names]).path
    for name in data_names:
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
        repository: The dataset on the Hub, for messages.
        folder: The folder with the data files.
        config: The name of the configuration; empty for the default one.
        cache_folder: The folder that the library writes the rows to.

    Raises:
        DataError: The folder is not laid out as a dataset.
        SourceError: A file is broken.
        OSError: The cache folder cannot be written.
    """
    import datasets

    with translate_errors(f"{repository}: not laid out as a dataset", DataError, max_length=160):
        builder = datasets.load_dataset_builder(
            str(folder), name=config or None, cache_dir=cache_folder
        )
    try:
        builder.download_and_prepare(verification_mode="no_checks")
    except Exception as error:
        # The library raises general errors; the first one in their chain has the reason.
        cause: BaseException = error
        while earlier_error := cause.__cause__ or cause.__context__:
            cause = earlier_error
        if getattr(cause, "errno", None):
            # The disk is full or cannot be written; the data may be fine.
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
        repository: The dataset on the Hub, for messages.
        builder: The builder of the ``datasets`` library, which has the rows.
        names: The splits as the Hub calls them.
        column_by_role: Role, such as ``sentence1`` or ``gold`` -> the column to read; None to read
            all columns.
        draw: The sample of the rows to read: their number, a seed, and the column of classes whose
            proportions it keeps. None for all rows.

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
        # A column of lists becomes a column for each position: "texts.0", "texts.1".
        table = expand_lists(table)
        columns = list(dict.fromkeys(column_by_role.values()))
        _check_names(columns, table.column_names, where, noun="column")
        table = table.select(columns)
    for role, column in (column_by_role or {}).items():
        must_be_text = role not in ("gold", "label", "subset")
        column_type = str(table.schema.field(column).type)
        if must_be_text and column_type not in ("string", "large_string"):
            raise DataError(f"{where}: column '{column}' holds {column_type}, not text")
    # The numbers of the rows are those in the sample, if there is one.
    return to_text_table(where, table, row_numbers=range(1, n_rows + 1), unit="row")


def _draw_rows(
    dataset: Any,  # noqa: ANN401 - datasets is untyped
    draw: DrawSection,
    where: str,
) -> Any:  # noqa: ANN401
    """Return a sample of a dataset in which each class has the same share as in the dataset.

    Args:
        dataset: A dataset of the ``datasets`` library with more rows than the sample.
        draw: The sample: its number of ``rows``, its ``seed``, and the column of classes (``by``).
        where: What messages of errors begin with.

    Returns:
        The sample, a dataset of the library.

    Raises:
        DataError: There is no such column, or a class of it has a single row.
    """
    import datasets

    _check_names([draw.by], dataset.column_names, where, noun="column")
    if not isinstance(dataset.features[draw.by], datasets.ClassLabel):
        dataset = dataset.class_encode_column(draw.by)
    problem = f"{where}: no {draw.rows} rows can be drawn by column '{draw.by}'"
    with translate_errors(problem, DataError, ValueError):
        # It divides the rows into the sample, "test", and the rest.
        return dataset.train_test_split(
            test_size=draw.rows, seed=draw.seed, stratify_by_column=draw.by
        )["test"]


def _read_readme_metadata(repository: Repository) -> dict[str, Any]:
    """Read the metadata at the top of a dataset's README, such as ``license`` and ``configs``.

    Returns:
        Key -> value, plain data from YAML; empty if there is no README.

    Raises:
        SourceError: The README cannot be fetched, or its metadata are not valid.
    """
    from huggingface_hub import DatasetCard

    if "README.md" not in repository.listing.files:
        return {}
    path = repository.fetch("README.md")
    problem = f"{repository.describe_file('README.md')}, see {repository.page}: cannot be read"
    with translate_errors(problem, SourceError), silence_library("huggingface_hub"):
        return dict(DatasetCard.load(path).data.to_dict())


def _read_file_patterns(repository: Repository, config: str) -> list[str]:
    """Return the patterns of the data files of a configuration, as the README declares them.

    * For a named configuration they are its own patterns, and those of the first configuration.
    * For the default configuration they are those of all configurations.
    * If the README declares no configurations, or lacks the files of one of these, there are none.

    Args:
        repository: The dataset on the Hub.
        config: The name of the configuration; empty for the default one.

    Returns:
        Patterns such as ``data/train-*.parquet``; empty if there are none.

    Raises:
        DataError: There is no such configuration, or there are several and none is the default.
    """
    declarations = _read_readme_metadata(repository).get("configs")
    # What is no list of mappings is left to the library, whose error says what is wrong.
    declaration_by_name: dict[str, Any] = {
        str(declaration["config_name"]): declaration
        for declaration in (declarations if isinstance(declarations, list) else [])
        if isinstance(declaration, Mapping) and "config_name" in declaration
    }
    if not declaration_by_name:
        return []
    if config:
        _check_names([config], declaration_by_name, str(repository), noun="configuration")
    elif len(declaration_by_name) > 1 and not any(
        name == "default" or declaration.get("default")
        for name, declaration in declaration_by_name.items()
    ):
        raise DataError(
            f"{repository}: has several configurations ({format_names([*declaration_by_name])}); "
            "the card must name one"
        )
    used_declarations = list(declaration_by_name.values())
    if config:
        # The library finds the format of every configuration from the files of the first.
        used_declarations = [declaration_by_name[config], used_declarations[0]]
    if not all("data_files" in declaration for declaration in used_declarations):
        return []
    patterns: list[str] = []
    for declaration in used_declarations:
        patterns += [text.removeprefix("./") for text in _iter_texts(declaration["data_files"])]
    return patterns


def _iter_texts(value: object) -> Iterator[str]:
    """Yield all texts in a value of a README's metadata, such as the paths of data files.

    * A text is yielded itself.
    * Of a list, the texts of all its values are yielded.
    * So are those of a mapping, but for the key ``split``, whose value is the name of a split.
    * Any other value has no texts.
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
        choices: The names that the dataset has.
        where: What the message begins with.
        noun: What they are names of, for the message: ``split``, ``column``, ``configuration``.

    Raises:
        DataError: A name is not among the choices.
    """
    valid_names = list(choices)
    for name in names:
        if name not in valid_names:
            raise DataError(
                f"{where}: there is no {noun} '{name}' (has {format_names(valid_names)})"
                f"{suggest(name, valid_names)}"
            )


def _source_columns(source: HubSource, where: str) -> dict[str, str]:
    """Return which columns of a dataset are read, and for what.

    * With an anchor, the card names all columns: ``anchor``, ``positive`` and ``negative``, perhaps
      further negatives.
    * With labels, it names all too: ``label`` and ``sentence``, or ``sentence1`` and ``sentence2``.
    * Else they are ``sentence1``, ``sentence2`` and ``gold``, the columns ``sentence1``,
      ``sentence2`` and ``score`` (``PAIR_COLUMNS``) unless the card gives others, and perhaps
      ``subset``.

    Args:
        source: The part of a task's card about the Hub; ``columns`` is role -> name of the column.
        where: What messages of errors begin with.

    Returns:
        Role -> name of the column.

    Raises:
        CardError: The card names a role that does not exist; or, with an anchor or labels, too few
            or too many roles.
    """
    for role in source.columns:
        if role not in ROLES:
            raise CardError(f"{where}: unknown key '{role}' in [hub.columns]{suggest(role, ROLES)}")
    columns = dict(source.columns)
    if "anchor" in columns:
        # NEGATIVES are the roles negative, negative2, negative3 and so on.
        has_needed_roles = {"positive", "negative"} <= columns.keys()
        is_valid = has_needed_roles and columns.keys() <= {"anchor", "positive", *NEGATIVES}
        problem = "anchor needs positive and negative in [hub.columns] alone"
    elif "label" in columns:
        valid_roles = ({"sentence", "label"}, {"sentence1", "sentence2", "label"})
        is_valid = columns.keys() in valid_roles and bool(source.classes)
        problem = (
            "labels need sentence, or sentence1 and sentence2, in [hub.columns], and 'classes'"
        )
    else:
        columns = PAIR_COLUMNS | columns
        is_valid = columns.keys() <= {*PAIR_COLUMNS, "subset"}
        problem = "sentence needs label, and positive or negative needs anchor, in [hub.columns]"
    if not is_valid:
        raise CardError(f"{where}: {problem}")
    return columns


def fetch_archive(source: HubSource) -> HubPath:
    """Fetch and unpack the archive of a dataset, a tar file.

    The folder is named after the archive's hash and appears only when it is complete. After that
    neither the archive nor, for a pinned revision, the network is needed again.

    Args:
        source: The dataset on the Hub; ``archive`` is the path of the tar file in it.

    Returns:
        The folder with the contents, and the commit of the archive.

    Raises:
        SourceError: The archive cannot be fetched, is damaged, or has files outside its folder.
    """
    repository = _repository(source)
    where = repository.describe_file(source.archive)
    archive_hash = repository.listing.files.get(source.archive)
    if not archive_hash:
        # The Hub's hash may be unknown, for example without a network.
        archive_hash = file_sha256(repository.fetch(source.archive))
    name_without_suffix = PurePosixPath(source.archive).name.split(".")[0]
    folder_name = f"{name_without_suffix}-{archive_hash[:12]}"
    folder = settings.cache_folder() / "archives" / folder_name
    if not folder.is_dir():
        archive = repository.fetch(source.archive)
        with repository.translate_failures(where):
            _unpack_atomically(archive, folder, where)
    return HubPath(folder, repository.commit)


def _unpack_atomically(archive: Path, folder: Path, where: str) -> None:
    """Unpack an archive to a folder that appears only when it is complete.

    The contents go to a temporary folder first, which then gets the name of the folder.

    Args:
        archive: The tar file.
        folder: The folder for its contents.
        where: The name of the archive, which messages of errors begin with.
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
        # If the folder exists, another run was faster. It has the same contents, as its name has
        # the hash of the archive.
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
    """Yield the files and folders of an archive; links, devices and sparse files are skipped.

    Raises:
        ReadError: A member claims a negative size.
    """
    previous_offset = -1
    for member in tar:
        # tarfile keeps the headers of all members in memory, and each may be as long as the
        # archive.
        member.pax_headers = {}
        # tarfile accepts a negative size, and would return to the same member without end.
        if member.offset <= previous_offset:
            raise tarfile.ReadError("a size in it leads back")
        previous_offset = member.offset
        # A sparse file may be far larger than the archive.
        is_plain_file = member.isfile() and not member.issparse()
        if member.isdir() or is_plain_file:
            # None: the time and permissions are those of a new file.
            yield member.replace(mode=None, mtime=None, deep=False)  # type: ignore[arg-type]


def unpack_archive(archive: Path, into: Path, *, where: str) -> None:
    """Unpack the files and folders of a tar file without compression.

    Args:
        archive: The tar file.
        into: The folder for its contents.
        where: The name of the archive, which messages of errors begin with.

    Raises:
        SourceError: The archive is damaged, or a path in it is outside the folder.
    """
    try:
        # _ChunkedTarFile refuses long headers; the filter "data" refuses paths outside the folder.
        # Links, devices and sparse files are skipped.
        with _ChunkedTarFile(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            tar.extractall(into, _iter_plain_members(tar), filter="data")
    except tarfile.FilterError as error:
        raise SourceError(
            f"{where}: refused to unpack: {describe_exception(error)}; use another archive"
        ) from error
    # The errors of tarfile, and others that a damaged file leads to; those of the disk pass.
    except _DAMAGED_FILE_ERRORS as error:
        problem = f"damaged archive, or no plain tar file: {describe_exception(error)}"
        raise SourceError(f"{where}: {problem}; remove {archive} and run again") from error
