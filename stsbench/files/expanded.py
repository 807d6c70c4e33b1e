"""What a small file becomes when it is read: compressed data and parquet are measured before there is memory for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeVar

from stsbench.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData


class Readable(Protocol):
    """A file, or what decompresses one as it is read."""

    def read(self, size: int, /) -> bytes:
        """Read so many bytes at most."""


PartT = TypeVar("PartT")
MOST_BYTES = 2 << 30
"""So much any file may hold (SimCSE's archive of all SentEval is 90 MB)."""
MOST_TIMES = 100
"""A larger file may hold so many times its own size: text is compressed 5 to 20 times."""
_CHUNK, _ROWS = 1 << 20, 1 << 15


def bounded(
    parts: Iterable[PartT],
    path: Path,
    *,
    where: str,
    size: Callable[[PartT], int] = len,  # type: ignore[assignment]
) -> Iterator[PartT]:
    """Pass on the parts of what a file holds, as long as they are not far more than the file.

    Raises:
        SourceError: they are.
    """
    most = left = max(MOST_BYTES, MOST_TIMES * path.stat().st_size)
    for part in parts:
        left -= size(part)
        if left < 0:
            raise SourceError(f"{where}: refused to read: it unpacks to more than {most >> 20:,} MiB")
        yield part


def chunks(stream: Readable) -> Iterator[bytes]:
    """The bytes of a stream, in parts that take little memory."""
    while data := stream.read(_CHUNK):
        yield data


def check_parquet(source: Path | IO[bytes], path: Path, *, where: str) -> None:
    """Refuse a parquet file whose rows take far more memory than the file, in which equal values stand once.

    Args:
        source: the file, or what ``path`` holds compressed.
        path: the file on disk.
        where: the file, for the message.

    Raises:
        SourceError: it holds more than a file may.
        pyarrow.ArrowException, OSError: it is damaged.
    """
    for _ in parquet_batches(source, path, where=where):
        pass


def parquet_batches(
    source: Path | pa.NativeFile | IO[bytes], path: Path, *, where: str, metadata: FileMetaData | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of such a file in parts, each text once and numbers in its places; see :func:`check_parquet`.

    ``metadata`` are the file's, where they are read already.
    """
    from pyarrow import parquet

    if metadata is None:
        with parquet.ParquetFile(source) as file:
            metadata = file.metadata
    columns = [metadata.schema.column(at) for at in range(len(metadata.schema.names))]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    # So they take the memory that the file takes.
    with parquet.ParquetFile(source, metadata=metadata, read_dictionary=texts) as file:
        # Of one batch more time would go into starting threads than they save.
        batches = file.iter_batches(_ROWS, use_threads=metadata.num_rows > _ROWS)
        yield from bounded(batches, path, where=where, size=lambda batch: sum(map(_size, batch.columns)))


def _size(values: pa.Array) -> int:
    """The bytes of an array's values, each counted as often as it stands there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.DictionaryArray):
        lengths = pc.binary_length(values.dictionary).cast(pa.int64())
        return int(pc.sum(lengths.take(values.indices)).as_py() or 0) + 8 * len(values)
    if isinstance(values, pa.StructArray):
        return sum(map(_size, values.flatten()))
    if isinstance(values, pa.ListArray | pa.LargeListArray):
        return _size(values.flatten()) + 8 * len(values)
    return int(values.nbytes)
