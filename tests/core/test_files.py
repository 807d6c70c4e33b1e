"""Files written whole or not at all, and files that are small on disk and hold more than there is memory for."""

from __future__ import annotations

import gzip
import lzma
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stsbench.bench.run import check_writable
from stsbench.core import files as expanded, settings
from stsbench.core.errors import DataError, OutputError, SourceError
from stsbench.core.files import (
    STALE_SECONDS,
    cached_values,
    check_unpacked_size,
    make_scratch_path,
    remove_stale,
    write_atomically,
)
from stsbench.data.corpora.corpus import read_training_text
from stsbench.results.folder import read_columns

ROOT = Path(__file__).parents[2]


def left(path: Path, *, hours: float, folder: bool = False) -> Path:
    """What a run that was killed so many hours ago has left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    inside = path / "file" if folder else path
    inside.parent.mkdir(exist_ok=True)
    inside.write_text("{")
    for one in {inside, path}:
        os.utime(one, (time.time() - 3600 * hours,) * 2)
    return path


def test_two_processes_never_share_a_name(tmp_path, monkeypatch):
    """As two containers do whose processes all have the number 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    names = {make_scratch_path(tmp_path / "a.json") for _ in range(1000)}
    assert len(names) == 1000
    assert all(name.parent == tmp_path and name.name.endswith(".partial") for name in names)


def test_a_long_name_can_be_written(tmp_path):
    assert write_atomically(tmp_path / ("x" * 255), b"1").read_bytes() == b"1"
    with pytest.raises(OutputError, match="is not a file name"):
        write_atomically(tmp_path / "a\0b", b"")
    assert len(list(tmp_path.iterdir())) == 1


def test_the_first_writing_to_a_folder_sweeps_it(tmp_path):
    old, old_folder = (
        left(tmp_path / "b.1.partial", hours=25),
        left(tmp_path / "d.1.partial", hours=25, folder=True),
    )
    new, new_folder = (
        left(tmp_path / "c.1.partial", hours=23),
        left(tmp_path / "e.1.partial", hours=23, folder=True),
    )
    probe = left(tmp_path / ".stsbench-writable.1.partial", hours=25)
    write_atomically(tmp_path / "a.json", b"1")
    assert [one.exists() for one in (old, old_folder, probe, new, new_folder)] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_a_folder_still_being_filled_is_a_live_runs(tmp_path):
    filling = left(tmp_path / "a.partial", hours=25, folder=True)
    (filling / "newer").write_text("x")
    os.utime(filling, (time.time() - 2 * STALE_SECONDS,) * 2)
    remove_stale(tmp_path)
    assert (filling / "newer").exists()


def test_a_run_sweeps_results_and_caches(tmp_path):
    cache = settings.cache_folder()
    places = [tmp_path / ".stsbench-writable.7.partial", tmp_path / "other" / "a.json.7.partial"]
    places += [cache / kind / "key" / "x.7.partial" for kind in ("store", "fitted", "converted")]
    places += [cache / kind / "key.7.partial" for kind in ("vectors", "archives", "hub")]
    for place in places:
        left(place, hours=25)
    live = [left(place.with_name("live.partial"), hours=1) for place in places]
    check_writable(tmp_path)
    assert not [place for place in places if place.exists()]
    assert all(place.exists() for place in live)


ROWS = 200_000
TEXT = "x" * 100


@pytest.fixture(autouse=True)
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expanded, "MAX_UNPACKED_BYTES", 4 << 20)


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
    for read in (
        lambda: check_unpacked_size(path, where="there"),
        lambda: read_training_text(path, header=True),
    ):
        with pytest.raises(SourceError, match="more than 4 MiB"):
            read()


def test_per_item_columns_of_a_result_too(tmp_path: Path):
    path = parquet(tmp_path / "x.items.parquet", {"gold": pa.array([0.0] * (4 * ROWS))})
    with pytest.raises(DataError, match="refused to read"):
        read_columns(path, 4 * ROWS)


def test_parquet_within_bounds_is_read(tmp_path: Path):
    path = parquet(
        tmp_path / "fine.parquet",
        {"text": pa.array([TEXT, None, "a"]), "n": pa.array([[1], [], None])},
    )
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


# Values that are kept in the cache folder.


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path))
    return tmp_path / "means.json"


def kept_values() -> AbstractContextManager[dict[str, tuple[float, float]]]:
    return cached_values("means.json", dict[str, tuple[float, float]])


def keep(**intervals: tuple[float, float]) -> None:
    with kept_values() as known:
        known |= intervals


def test_what_is_added_is_there_the_next_time(file: Path):
    keep(a=(0.25, 1 / 3))
    keep(b=(0.5, 0.75))
    with kept_values() as known:
        assert known == {"a": (0.25, 1 / 3), "b": (0.5, 0.75)}


def test_what_another_process_adds_meanwhile_is_not_lost(file: Path):
    with kept_values() as known:
        known["a"] = (0.0, 1.0)
        keep(b=(0.0, 0.5))
    with kept_values() as known:
        assert set(known) == {"a", "b"}


def test_the_oldest_go_first(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expanded, "MAX_CACHED_VALUES", 2)
    for name in "abc":
        keep(**{name: (0.0, 1.0)})
    with kept_values() as known:
        assert list(known) == ["b", "c"]


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b'{"a": [1]}', b'{"a": "b"}', b"\xff", b"[" * 100_000]
)
def test_a_damaged_file_is_as_none(file: Path, content: bytes):
    file.write_bytes(content)
    with kept_values() as known:
        assert known == {}
    keep(a=(0.0, 1.0))
    with kept_values() as known:
        assert known == {"a": (0.0, 1.0)}


def test_without_a_folder_to_keep_them_in_nothing_fails(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    (file.parent / "taken").write_text("a file")
    monkeypatch.setenv("STSBENCH_CACHE", str(file.parent / "taken"))
    keep(a=(0.0, 1.0))
    monkeypatch.delenv("STSBENCH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    with kept_values() as known:
        assert known == {}
