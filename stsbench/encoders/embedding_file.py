"""Embeddings that another toolkit has written to a file, as an encoder of the texts in it.

A file has a text beside each embedding, or its embeddings are in the order of a list of texts. It
is read whole, and checked when it is read: nothing in it is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError, Remedy, translate_errors
from stsbench.core.files import file_sha256, parquet_batches, read_bounded, refuse_special_file
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import describe_sentence, format_repr
from stsbench.encoders.base import FloatArray

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_NAMES = ("text", "texts", "sentence", "sentences")
"""The names that the texts of a file may have."""
EMBEDDING_NAMES = ("embedding", "embeddings", "vector", "vectors")
"""The names that the embeddings of a file may have."""


class TextEmbeddings(NamedTuple):
    """The content of a file of embeddings."""

    embeddings: npt.NDArray[Any]
    """The embeddings (n, d)."""
    texts: Sequence[str] | None
    """The text of each embedding; None if the file has none."""


class FileEncoder:
    """The embeddings of a file, by their texts."""

    unit = "sentences"
    """The texts in messages."""
    fingerprint: str | None
    RUNTIME_PARAMETERS = ("texts",)
    """A list of texts is a part of the fingerprint, not of the name."""
    prompt: str | None = None
    """Unknown, because the toolkit that wrote the file may have added one."""

    def __init__(self, name: str = "", *, file: str, texts: str = "") -> None:
        """Read the embeddings of a file and check them.

        Args:
            name: The name in results; empty for the name of the file.
            file: The file: ``.npz``, ``.npy``, ``.parquet``, ``.safetensors`` or ``.jsonl``.
            texts: The file of the texts, in the order of the embeddings: JSON lines with ``text``,
                or plain text with one sentence per line. Empty if ``file`` has the texts too.

        Raises:
            StsbenchError: A file cannot be read, or its texts and embeddings do not match.
        """
        self.name = name or Path(file).name
        self.path = Path(file)
        # The embeddings (n, d), and their texts if the file has them.
        content = read_embeddings(self.path)
        self.digest = file_sha256(self.path)
        digests = {"embeddings": self.digest}
        row_texts = content.texts
        if texts:
            if row_texts is not None:
                raise EncoderError(f"{self.path} has texts of its own; leave out texts={texts}")
            row_texts = read_texts(Path(texts))
            digests["texts"] = file_sha256(Path(texts))
        if row_texts is None:
            raise EncoderError(
                f"{self.path} has {len(content.embeddings):,} embeddings but no texts",
                hint="if they are in the order of a list of texts, give its file: "
                "`params=texts=FILE`",
                # Adds to the message how to list the sentences of a task.
                remedy=Remedy("texts"),
            )
        self.dtype = str(content.embeddings.dtype)
        self.embeddings = _to_finite_float32(self.path, content.embeddings, row_texts)
        self.row_by_text = map_texts_to_rows(self.path, self.embeddings, row_texts)
        # A hash of the hashes of these files, by which stored results know the embeddings.
        self.fingerprint = fingerprint(digests)

    @property
    def notes(self) -> list[str]:
        """The note that the embeddings came from a file."""
        return [f"embeddings from the file {self.path.name} (sha256 {self.digest[:12]})"]

    def missing_texts(self, sentences: Sequence[str]) -> list[str]:
        """Return the distinct sentences of these that the file has no embedding of."""
        return [text for text in dict.fromkeys(sentences) if text not in self.row_by_text]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return the embeddings (n, d) that the file has for these sentences.

        Raises:
            EncoderError: The file has no embedding of a sentence.
        """
        self.require_texts(sentences)
        rows = [self.row_by_text[sentence] for sentence in sentences]
        return self.embeddings[rows]

    def require_texts(self, sentences: Sequence[str]) -> None:
        """Raise an error if the file has no embedding of some of these sentences.

        Raises:
            EncoderError: Some are missing. The message has their number, and describes the first
                by its number among the distinct sentences and its beginning. ``self.unit`` is the
            word for them, such as "sentences".
        """
        # The distinct missing ones, in their order.
        missing = self.missing_texts(sentences)
        if not missing:
            return
        distinct_sentences = list(dict.fromkeys(sentences))
        first = describe_sentence(distinct_sentences, distinct_sentences.index(missing[0]))
        raise EncoderError(
            f"{self.path} lacks {len(missing):,} of {len(distinct_sentences):,} {self.unit}, "
            f"the first is {first}; texts must be equal to the letter",
            # Adds to the message how to list the sentences of a task.
            remedy=Remedy("texts"),
        )


def read_texts(path: Path) -> list[str]:
    """Return the texts of a file, in their order.

    A ``.jsonl`` file has one JSON object per line, with the key ``text`` or another one of
    ``TEXT_NAMES``. Any other file is plain text in UTF-8 with one sentence per line.

    Raises:
        DataError: The file does not exist, is a pipe or a device, or cannot be opened.
        EncoderError: Its content cannot be read.
    """
    if path.suffix == ".jsonl":
        texts = _read_text_column(path, _read_json_table(path))
        if texts is None:
            raise EncoderError(f"{path} has no key 'text'")
        return texts
    with translate_errors(f"{path}: cannot be read", EncoderError, UnicodeDecodeError):
        lines = read_bounded(path).decode().split("\n")
    # If the last line ends with a line feed, an empty part follows it, which is no text.
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_embeddings(path: Path) -> TextEmbeddings:
    """Return the embeddings of a file (n, d), and their texts if it has them.

    Args:
        path: The file, whose ending decides how it is read.

    Raises:
        EncoderError: The file is of another kind, or cannot be read.
    """
    if path.suffix not in _READERS:
        raise EncoderError(f"{path}: give a file that ends in {', '.join(_READERS)}")
    refuse_special_file(path, EncoderError)
    # The function that reads files of this ending. All its errors become an EncoderError.
    read = _READERS[path.suffix]
    with translate_errors(f"{path}: cannot be read", EncoderError):
        return read(path)


ARRAY_SUFFIXES = (".npz", ".npy", ".safetensors")
"""The endings of files of arrays."""


def read_arrays(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Return the arrays of a file by name; the only array of a ``.npy`` file has the name ``""``.

    Args:
        path: A ``.npz``, ``.npy`` or ``.safetensors`` file.

    Raises:
        EncoderError: It has an array of Python objects, which are not loaded.
    """
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        # They become float32, because numpy has no bfloat16.
        return {name: tensor.float().numpy() for name, tensor in load_file(path).items()}
    remedy = "save texts as numpy.array(texts, dtype=str)"
    problem = f"{path}: cannot be read as plain arrays ({remedy})"
    with translate_errors(problem, EncoderError, ValueError):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded as archive:
            return {name: archive[name] for name in archive.files}


def to_list_of_texts(array: npt.NDArray[Any]) -> list[Any]:
    """Return the values of an array as a list, bytes of UTF-8 as texts."""
    return [
        value.decode() if isinstance(value, bytes) else value for value in array.ravel().tolist()
    ]


def _read_named_arrays(path: Path) -> TextEmbeddings:
    """Return the embeddings (n, d) and the texts among the arrays of a file.

    The embeddings are the first array with one of ``EMBEDDING_NAMES``, in any case. If there is
    none, they are the only matrix, whatever its name is. The texts are the first array with one of
    ``TEXT_NAMES``, if any; bytes are decoded. A file of one array without a name has no texts.

    Raises:
        EncoderError: No array has such a name, and there is no matrix or more than one.
    """
    arrays = read_arrays(path)
    if "" in arrays:
        return TextEmbeddings(arrays[""], texts=None)
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    embedding_name = _find_accepted_name(arrays, EMBEDDING_NAMES)
    if embedding_name is None and len(matrices) == 1:
        (embedding_name,) = matrices
    if embedding_name is None:
        raise EncoderError(_missing_name_message(path, arrays, "an array 'embeddings' (n, d)"))
    text_name = _find_accepted_name(arrays, TEXT_NAMES)
    texts = None if text_name is None else to_list_of_texts(arrays[text_name])
    return TextEmbeddings(arrays[embedding_name], texts)


def _read_parquet(path: Path) -> TextEmbeddings:
    """Read a table with a column of lists of numbers, and perhaps one of texts."""
    import pyarrow as pa

    table = pa.Table.from_batches(parquet_batches(path, path, where=str(path)))
    return _select_columns(path, table)


def _select_columns(path: Path, table: pa.Table) -> TextEmbeddings:
    """Return the embeddings (n, d) and the texts in the columns of a table with usual names.

    Args:
        path: The file of the table, for messages.
        table: A table of pyarrow. Its embeddings are a column of lists of numbers.

    Raises:
        EncoderError: There is no such column; a row has no embedding, or one of another size; or
            some rows have no text and others have.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # The first column whose name is accepted, in any case; None if there is none.
    embedding_name = _find_accepted_name(table.column_names, EMBEDDING_NAMES)
    if embedding_name is None:
        raise EncoderError(_missing_name_message(path, table.column_names, "a column 'embedding'"))
    column = table[embedding_name]
    if not pa.types.is_nested(column.type):
        raise EncoderError(f"{path}: column '{embedding_name}' is no list of numbers a row")
    _refuse_unequal_sizes(path, pc.list_value_length(column).to_pylist())
    matrix = pc.list_flatten(column).to_numpy().reshape(table.num_rows, -1)
    return TextEmbeddings(matrix, _read_text_column(path, table))


def _read_text_column(path: Path, table: pa.Table) -> list[str] | None:
    """Return the texts of a table: the column with one of ``TEXT_NAMES``; None if it has none.

    Args:
        path: The file of the table, for messages.
        table: A table of pyarrow.

    Raises:
        EncoderError: Some rows have no text.
    """
    text_name = _find_accepted_name(table.column_names, TEXT_NAMES)
    if text_name is None:
        return None
    column = table[text_name]
    if column.null_count:
        raise EncoderError(f"{path}: {column.null_count:,} of {len(column):,} have no text")
    texts: list[str] = column.to_pylist()
    return texts


def _read_json_table(path: Path) -> pa.Table:
    """Return the JSON objects of a file, one per line, as a table of pyarrow.

    Blank lines are skipped. The columns are the keys of all objects; a key that an object lacks is
    null in its row.

    Raises:
        DataError: The file does not exist or cannot be opened.
        EncoderError: A line is no JSON object, or the values of a key are of several types.
    """
    import pyarrow as pa

    rows = []
    for number, line in enumerate(read_bounded(path).split(b"\n"), start=1):
        if line.strip():
            # All errors become an EncoderError that begins with the line.
            with translate_errors(f"{path}: line {number}", EncoderError):
                rows.append(msgspec.json.decode(line, type=dict[str, Any]))
    columns = {}
    for key in dict.fromkeys(key for row in rows for key in row):
        problem = f"{path}: key '{key}' has values of several types, or numbers above 64 bits"
        with translate_errors(problem, EncoderError):
            columns[key] = pa.array([row.get(key) for row in rows])
    return pa.table(columns)


_READERS: Mapping[str, Callable[[Path], TextEmbeddings]] = {
    **dict.fromkeys(ARRAY_SUFFIXES, _read_named_arrays),
    ".parquet": _read_parquet,
    ".jsonl": lambda path: _select_columns(path, _read_json_table(path)),
}
"""The function that reads each kind of file, by its ending."""


def _find_accepted_name(names: Iterable[str], accepted: Sequence[str]) -> str | None:
    """Return the first of the names that is accepted, in any case; None if there is none."""
    return next((name for name in names if name.lower() in accepted), None)


def _missing_name_message(path: Path, names: Iterable[str], expected: str) -> str:
    return f"{path} has {', '.join(map(repr, names)) or 'nothing'}; it must have {expected}"


def _refuse_unequal_sizes(path: Path, sizes: Sequence[int | None]) -> None:
    """Raise an error if a row has no embedding, or one of another size than the first row.

    Args:
        path: The file, for the message.
        sizes: The size of each row's embedding; None if it has none.

    Raises:
        EncoderError: There is such a row.
    """
    for row, size in enumerate(sizes):
        if size is None:
            raise EncoderError(f"{path}: row {row + 1} has no embedding")
        if size != sizes[0]:
            raise EncoderError(
                f"{path}: the embedding of row {row + 1} has {size} numbers, "
                f"that of row 1 has {sizes[0]}"
            )


def _to_finite_float32(
    path: Path, embeddings: npt.NDArray[Any], texts: Sequence[str]
) -> FloatArray:
    """Return the embeddings of a file as float32, (n, d), after checks.

    Args:
        path: The file, for messages.
        embeddings: The array in the file.
        texts: The n texts of the embeddings.

    Raises:
        EncoderError: They are no matrix of finite numbers with a row for each text.
    """
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu" or 0 in embeddings.shape:
        raise EncoderError(
            f"{path} has an array of {embeddings.dtype} of shape {embeddings.shape}; "
            "it must be one of numbers (n, d)"
        )
    if len(embeddings) != len(texts):
        raise EncoderError(f"{path} has {len(embeddings):,} embeddings for {len(texts):,} texts")
    # A number above the largest float32 becomes infinite, and raises an error below.
    with np.errstate(over="ignore"):
        matrix = embeddings.astype(np.float32, copy=False)
    bad_rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad_rows):
        raise EncoderError(
            f"{path}: {len(bad_rows):,} of {len(matrix):,} embeddings have NaN or infinity, "
            f"the first in row {bad_rows[0] + 1}"
        )
    return matrix


MAX_REPEATED_DIFFERENCE = 1e-4
"""How far the numbers of a text that occurs twice may differ, as a share of all numbers' range.

A toolkit that computes the text in two batches rounds it in two ways.
"""


def map_texts_to_rows(path: Path, embeddings: FloatArray, texts: Sequence[str]) -> dict[str, int]:
    """Return the row of each text, by the text; for a text that occurs again, its first row.

    A text may occur again only if its embedding is the same up to rounding.

    Args:
        path: The file, for messages.
        embeddings: The embeddings, (n, d).
        texts: The n texts of the embeddings.

    Raises:
        EncoderError: A text is no text, or has two embeddings.
    """
    # The range of all numbers in the array (largest minus smallest) times a small share.
    tolerance = MAX_REPEATED_DIFFERENCE * np.ptp(embeddings)
    row_by_text: dict[str, int] = {}
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise EncoderError(f"{path}: the text of row {row + 1} is {format_repr(text)}")
        first_row = row_by_text.setdefault(text, row)
        if first_row == row:
            continue
        differences = np.abs(embeddings[first_row] - embeddings[row])
        if differences.max() > tolerance:
            raise EncoderError(
                f"{path}: rows {first_row + 1} and {row + 1} have one text and different numbers"
            )
    return row_by_text
