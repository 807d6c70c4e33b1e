"""Per-item columns of Results: their file, and whether a score can be made of them again."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stsbench.errors import DataError, cut, one_line
from stsbench.files.expanded import parquet_batches
from stsbench.files.whole import read_bounded
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.statistics import AGGREGATIONS, CORRELATIONS, split_parts
from stsbench.results.checks import ROUNDING

if TYPE_CHECKING:
    import pyarrow

    from stsbench.results.record import Result

Arrays = Mapping[str, npt.NDArray[Any]]
LARGEST = 1 << 30
"""More bytes than this hold no result's columns."""
NEEDED = {
    "similarity": ("gold", "similarity"),
    "selection": ("gold", "prediction"),
    "kfold": ("correct",),
    "fold_images": ("recall",),
}
"""The per-item columns that a score is made of, by a field that the protocols of one evaluator alone have."""


def as_arrays(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> dict[str, npt.NDArray[Any]]:
    """Columns as they are read back: texts are arrays of objects."""
    return {
        name: column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
        for name, column in columns.items()
    }


def to_parquet(columns: Mapping[str, npt.NDArray[np.generic] | list[str]]) -> bytes:
    """The bytes of the columns' file."""
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    table = pyarrow.table({name: _as_column(column) for name, column in columns.items()})
    pyarrow.parquet.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def _as_column(values: npt.NDArray[np.generic] | list[str]) -> pyarrow.Array:
    """A column of these values, as ``pyarrow.array`` makes it, which would import pandas first."""
    import pyarrow

    column = np.asarray(values)
    if column.dtype == bool:
        packed = pyarrow.py_buffer(np.packbits(column, bitorder="little"))
        return pyarrow.Array.from_buffers(pyarrow.bool_(), len(column), [None, packed])
    if column.dtype.kind in "iuf":
        whole = pyarrow.py_buffer(np.ascontiguousarray(column))
        return pyarrow.Array.from_buffers(pyarrow.from_numpy_dtype(column.dtype), len(column), [None, whole])
    texts = [str(text).encode() for text in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pyarrow.StringArray.from_buffers(len(texts), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(texts)))


def read_columns(path: Path, n: int) -> dict[str, npt.NDArray[Any]]:
    """Read columns of n items.

    Raises:
        DataError: they are missing, broken, or not of n items.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        content = pyarrow.BufferReader(read_bounded(path, LARGEST))
        with pyarrow.parquet.ParquetFile(content) as file:
            metadata, schema = file.metadata, file.schema_arrow
        # Before it is read: a small file may hold a great many equal rows.
        if metadata.num_rows != n or len(set(schema.names)) < len(schema.names):
            raise ValueError(f"{metadata.num_rows} rows of {len(schema.names)} columns, the result is of {n} items")
        batches = list(parquet_batches(content, path, where=str(path), metadata=metadata))
        table = pyarrow.Table.from_batches(batches, None if batches else schema)
        return {name: _as_array(table[name].combine_chunks()) for name in schema.names}
    except (OSError, ValueError, TypeError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)[:200]}") from error


def _as_array(column: pyarrow.Array) -> npt.NDArray[Any]:
    """A column as its own ``to_numpy`` gives it, which would import pandas first."""
    from pyarrow import types

    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8")).astype(bool)
    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.from_dlpack(column)
    if types.is_dictionary(column.type) and not column.null_count:
        texts: npt.NDArray[Any] = np.array(column.dictionary.to_pylist(), dtype=object)
        of_items: npt.NDArray[Any] = texts[np.from_dlpack(column.indices)]
        return of_items
    return np.array(column.to_pylist(), dtype=object)


def items_problem(result: Result, columns: Arrays, *, off: float = ROUNDING) -> str | None:
    """What is wrong with a Result's per-item columns; None where its score can be made of them, or nobody knows how.

    Args:
        result: whose score it is.
        columns: the per-item columns, each of n items.
        off: how far a correlation that they make may lie from the score.
    """
    needed = next((needed for field, needed in NEEDED.items() if field in result.protocol), ())
    problem = next(_wrong_columns(result, needed, columns), None)
    if problem is not None or not needed:
        return problem
    values = [columns[name].astype(np.float64) for name in needed]
    made = (
        _wrong_mean(result, values[0])
        if len(values) == 1
        else _wrong_correlation(result, *values, columns=columns, off=off)
    )
    return next(made, None)


def _wrong_columns(result: Result, needed: Sequence[str], columns: Arrays) -> Iterator[str]:
    for name, column in columns.items():
        if len(column) != result.n:
            yield f"column '{cut(name)}' has {len(column)} items, the result's field 'n' says {result.n}"
        if column.dtype.kind == "O" and not all(issubclass(kind, str) for kind in set(map(type, column))):
            yield f"column '{cut(name)}' holds more than texts"
    for name in needed:
        if name not in columns:
            yield f"lacks the column '{name}'"
        if columns[name].dtype.kind not in "biuf" or not np.isfinite(columns[name]).all():
            yield f"column '{name}' holds more than finite numbers"


def _wrong_mean(result: Result, values: Float64Array) -> Iterator[str]:
    # A probe's score is the mean of folds, which are rounded and not all of one size.
    folds = result.protocol.get("kfold", 0)
    yield from _another(result, float(values.mean()), 1e-4 + folds / result.n if isinstance(folds, int) else 1e-4)


def _wrong_correlation(
    result: Result, gold: Float64Array, found: Float64Array, *, columns: Arrays, off: float
) -> Iterator[str]:
    correlate = CORRELATIONS.get(str(result.protocol.get("metric")))
    aggregation = result.protocol.get("aggregation", "all")
    if correlate is None or aggregation not in AGGREGATIONS:
        return
    if AGGREGATIONS[aggregation] is not None and "subset" not in columns:
        yield "lacks the column 'subset'"
    subsets = columns["subset"].tolist() if AGGREGATIONS[aggregation] is not None else [""] * result.n
    indices, shares = split_parts(subsets, aggregation)
    if any(len(at) < 2 or np.ptp(gold[at]) == 0 or np.ptp(found[at]) == 0 for at in indices):
        # A regressor that tells nothing apart: 0 stands for the correlation that there is not one of.
        yield from _another(result, 0.0, ROUNDING)
    else:
        score = float(np.dot(shares, [correlate(found[at], gold[at]) for at in indices]))
        yield from _another(result, score, off)


def _another(result: Result, made: float, off: float) -> Iterator[str]:
    if not abs(made - result.score) <= off:
        yield f"makes the score {made:.6g}, the result's field 'score' says {result.score:.6g}"
