"""Files that are small on disk and hold more than there is memory for."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stsbench.core import files as expanded
from stsbench.core.errors import DataError, SourceError
from stsbench.core.files import check_unpacked_size
from stsbench.data.corpora.load import read_training_text
from stsbench.results.folder import read_columns

ROWS = 200_000
TEXT = "x" * 100


@pytest.fixture(autouse=True)
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expanded, "MOST_BYTES", 4 << 20)


def parquet(path: Path, columns: Mapping[str, pa.Array]) -> Path:
    pq.write_table(pa.table(dict(columns)), path, compression="zstd")
    assert path.stat().st_size < 20_000
    return path


@pytest.mark.parametrize(
    "column",
    [
        pa.array([TEXT] * ROWS),
        pa.array([0] * (4 * ROWS)),
        pa.array([[TEXT, TEXT]] * ROWS),
        pa.array([{"en": TEXT}] * ROWS),
        pa.array(["x" * (20 << 20)]),
        pa.array([None, "x" * (5 << 20)]),
    ],
    ids=["texts", "numbers", "lists", "records", "one text", "none"],
)
def test_parquet_of_equal_values_is_refused(tmp_path: Path, column: pa.Array):
    path = parquet(tmp_path / "bomb.parquet", {"text": column})
    for read in (lambda: check_unpacked_size(path, where="there"), lambda: read_training_text(path, header=True)):
        with pytest.raises(SourceError, match="refused to read: it unpacks to more than 4 MiB"):
            read()


def test_per_item_columns_of_a_result_too(tmp_path: Path):
    path = parquet(tmp_path / "x.items.parquet", {"gold": pa.array([0.0] * (4 * ROWS))})
    with pytest.raises(DataError, match="refused to read"):
        read_columns(path, 4 * ROWS)


def test_parquet_within_bounds_is_read(tmp_path: Path):
    path = parquet(tmp_path / "fine.parquet", {"text": pa.array([TEXT, None, "a"]), "n": pa.array([[1], [], None])})
    check_unpacked_size(path, where="there")
    assert read_training_text(path, header=True).num_rows == 3


@pytest.mark.parametrize(("end", "packed"), [("gz", gzip.compress), ("xz", lzma.compress)])
@pytest.mark.parametrize("limit", [None, 2])
def test_compressed_text_that_grows_is_refused(
    tmp_path: Path, end: str, packed: Callable[[bytes], bytes], limit: int | None
):
    path = tmp_path / f"bomb.txt.{end}"
    path.write_bytes(packed(b"a" * (8 << 20)))
    with pytest.raises(SourceError, match="refused to read"):
        read_training_text(path, header=False, limit=limit)
    # Of a file with lines no more is read than is asked for.
    path.write_bytes(packed(b"a\n" * (4 << 20)))
    if limit is not None:
        assert read_training_text(path, header=False, limit=limit)["text"].to_pylist() == ["a", "a"]
