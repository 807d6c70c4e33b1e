"""The store: embeddings on disk, found again by what was embedded and by what.

One folder a fingerprint, and in it blocks: ``.npy`` files (never pickle) of one record, the keys of some texts and then
their embeddings, a key being 16 bytes of the text's hash. A block is written whole, then renamed to the hash of its
bytes: a killed run leaves whole blocks or none, several processes can write at once, and a damaged block is found,
dropped and encoded again. Only keys are kept in memory; embeddings are memory-mapped while rows are copied.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core import provenance as machine
from stsbench.core.errors import OutputError
from stsbench.core.files import file_digest, remove, remove_stale, write_atomically
from stsbench.encoders.backends import uses_tf32
from stsbench.encoders.base import Embeddings, Encoder, FloatArray
from stsbench.encoders.checkpoint import read_record
from stsbench.encoders.metadata import layers_of, read_metadata

KEY = np.dtype([("hi", "<u8"), ("lo", "<u8")])
BLOCK_BYTES = 16 << 20
FLUSH_SECONDS = 30.0
"""A killed run loses no more than this."""
Keys = npt.NDArray[Any]


def text_keys(texts: Sequence[str]) -> Keys:
    """The key of each text, a structured array (n,)."""
    raw = b"".join(
        hashlib.blake2b(t.encode("utf-8", "surrogatepass"), digest_size=16).digest() for t in texts
    )
    return np.frombuffer(raw, dtype=KEY)


@dataclass(eq=False)
class StoredBlock:
    """Rows written together: their keys (n,), and their embeddings in a file or, without one, in memory."""

    keys: Keys
    width: int
    path: Path | None = None
    rows: FloatArray | None = None
    checked: bool = True

    def embeddings(self) -> FloatArray:
        """All rows, (n, d), those of a file memory-mapped; raises OutputError: it is gone or cannot be read."""
        if self.path is None:
            return np.asarray(self.rows)
        try:
            return _map(self.path)["embedding"][0]  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is damaged"
            raise OutputError(
                f"{self.path}: cannot be read again: {why}; run the same command to resume"
            ) from error

    def is_sound(self) -> bool:
        """Whether the file's bytes have the hash that it is named by; looked at once."""
        if not self.checked and self.path is not None:
            try:
                there = self.path.stat()
            except FileNotFoundError:
                return False
            self.checked = _is_whole(self.path, there.st_mtime_ns, there.st_size)
        return self.checked


@lru_cache(maxsize=4096)
def _is_whole(path: Path, changed: int, size: int) -> bool:
    return file_digest(path)[:32] == path.stem


class _Index(NamedTuple):
    """All keys of all blocks in the order of their first half, and where the row of each is."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    block_of: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]


class EmbeddingStore:
    """All stored embeddings of one encoder, by text; without a folder, kept in memory alone."""

    def __init__(
        self, folder: Path | None, monitor: DriftMonitor | None = None, *, read_only: bool = False
    ) -> None:
        """Open the shelf; with ``read_only`` nothing on disk is changed. Raises OutputError: it cannot be opened."""
        self.folder, self.monitor, self.read_only = folder, monitor, read_only
        self._blocks: list[StoredBlock] = []
        self._index: _Index | None = None
        self._pending: list[tuple[Keys, FloatArray]] = []
        self._flushed = time.monotonic()
        if folder is not None:
            try:
                if not read_only:
                    folder.mkdir(parents=True, exist_ok=True)
                    remove_stale(folder)
                for path in sorted(folder.glob("*.npy")):
                    block = _open_block(path)
                    if block is not None and self.width in (None, block.width):
                        self._blocks.append(block)
                    else:
                        self._discard(path)
            except OSError as error:
                raise OutputError(
                    f"store '{folder}' cannot be used: {error.strerror}; pass --store DIR"
                ) from error

    @property
    def width(self) -> int | None:
        """The size of the embeddings, None as long as there are none."""
        if self._pending:
            return int(self._pending[0][1].shape[1])
        return self._blocks[0].width if self._blocks else None

    def _discard(self, path: Path | None) -> None:
        if path is not None and not self.read_only:
            remove(path)

    def find(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Return where each key's row is in the index, (n,), or -1; a block whose hash is not its own is dropped."""
        while len((index := self._indexed()).high):
            at = np.minimum(np.searchsorted(index.high, keys["hi"]), len(index.high) - 1)
            at = np.where((index.high[at] == keys["hi"]) & (index.low[at] == keys["lo"]), at, -1)
            bad = [
                block
                for i in np.unique(index.block_of[at[at >= 0]])
                if not (block := self._blocks[i]).is_sound()
            ]
            if not bad:
                return at
            for block in bad:
                self._discard(block.path)
            self._blocks, self._index = [block for block in self._blocks if block not in bad], None
        return np.full(len(keys), -1, dtype=np.int64)

    def _indexed(self) -> _Index:
        """The index; of a key stored twice the first block's row comes first."""
        if self._index is None:
            keys = np.concatenate([np.empty(0, KEY), *(block.keys for block in self._blocks)])
            sizes = [len(block.keys) for block in self._blocks]
            block_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
            row_of = np.concatenate(
                [np.empty(0, np.int32), *(np.arange(size, dtype=np.int32) for size in sizes)]
            )
            order = np.argsort(keys["hi"], kind="stable")
            self._index = _Index(
                keys["hi"][order], keys["lo"][order], block_of[order], row_of[order]
            )
        return self._index

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        """Add rows, (m,) keys and (m, d) embeddings; written when enough have come, or by :meth:`flush`."""
        self._pending.append((keys, embeddings))
        late = self.folder is not None and time.monotonic() - self._flushed > FLUSH_SECONDS
        if late or sum(rows.nbytes for _, rows in self._pending) >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what has been added since the last block; raises OutputError."""
        if self._pending:
            keys = np.concatenate([keys for keys, _ in self._pending])
            rows = np.concatenate([rows for _, rows in self._pending])
            if self.folder is None:
                block = StoredBlock(keys, rows.shape[1], rows=rows)
            else:
                n, width = rows.shape
                record = np.empty(1, dtype=[("key", KEY, (n,)), ("embedding", "<f4", (n, width))])
                record["key"][0], record["embedding"][0] = keys, rows
                stream = io.BytesIO()
                np.save(stream, record, allow_pickle=False)
                content = stream.getbuffer()
                path = self.folder / f"{hashlib.sha256(content).hexdigest()[:32]}.npy"
                # Whole, synced, then renamed.
                block = StoredBlock(keys, width, path=write_atomically(path, content))
            self._blocks.append(block)
            self._index, self._pending = None, []
        self._flushed = time.monotonic()

    def set_aside(self) -> None:
        """Let nothing that is stored be found any more, nor what waits to be; raises OutputError."""
        self._blocks, self._index, self._pending = [], None, []
        if self.folder is not None:
            set_aside(self.folder)

    def view(self, keys: Keys) -> StoredEmbeddings:
        """Return a view of the rows of these keys, all of which must be there."""
        at = self.find(keys)
        if len(at) and at.min() < 0:
            raise KeyError("a key is not in the store")
        index = self._indexed()
        return StoredEmbeddings(tuple(self._blocks), index.block_of[at], index.row_of[at])


@dataclass(frozen=True)
class StoredEmbeddings(Embeddings):
    """A read-only (n, d) view of stored rows."""

    blocks: tuple[StoredBlock, ...]
    block_of: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and embedding size."""
        return len(self.row_of), self.blocks[0].width if self.blocks else 0

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return these rows, (len(indices), d)."""
        block_of, row_of = self.block_of[indices], self.row_of[indices]
        rows = np.empty((len(row_of), self.shape[1]), dtype=np.float32)
        by_block = np.argsort(block_of, kind="stable")
        for here in np.split(by_block, np.flatnonzero(np.diff(block_of[by_block])) + 1):
            if len(here):
                rows[here] = self.blocks[block_of[here[0]]].embeddings()[row_of[here]]
        return rows


def _map(path: Path) -> npt.NDArray[Any]:
    return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def _open_block(path: Path) -> StoredBlock | None:
    # None for a file that is no block, cut short, or gone by now; OSError: it may be a block and cannot be read.
    try:
        (record,) = _map(path)
        keys, (n, width) = np.array(record["key"]), record["embedding"].shape
        return (
            StoredBlock(keys, width, path=path, checked=False)
            if keys.dtype == KEY and keys.shape == (n,)
            else None
        )
    except FileNotFoundError:
        return None
    except OSError:
        raise
    except Exception:
        # A damaged header makes numpy's parser raise many kinds, tokenize.TokenError among them.
        return None


METADATA_FILE = "samples.json"
PROBE_SENTENCES = (
    "A man is playing a guitar.",
    "the QUICK Brown fox: iPhone, NASA and McDonald's",
    "In 2019, 3.14% of 1,000,000 people paid $12.50 at 10:45.",
    "Café naïve, Zoë's façade; straße. 今日は良い天気です。 Привет, мир!",
    "The committee said that the report would be read again. " * 12,
)
"""Mixed case, digits, accents, other scripts, a long one."""
MAX_DRIFT = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""How far a sample may move, as a share of its length. A step of the type is 1.2e-7, 9.8e-4 and 7.8e-3; sums taken
in another order move an embedding by some ten steps after a dozen layers. A changed tokenizer, activation or
weight moves it by far more than this."""


class StoreMetadata(msgspec.Struct, kw_only=True):
    """What lies beside stored embeddings."""

    places: list[dict[str, str]]
    """Where they were made, and where the samples came out the same."""
    rows: bytes = b""
    """The samples' embeddings (n, d), float32; nothing where they cannot be embedded."""
    since: str = ""
    """Empty unless an earlier version set embeddings aside; its results do not say whether they are of these."""

    @property
    def generation(self) -> str:
        """Distinguishes these embeddings from those that are set aside: where they began, and their samples."""
        return digest_of({"place": self.places[:1], "rows": self.rows.hex()})


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What made the embeddings that a Result is scored on: the field ``origin`` of its ``run`` block."""

    environment: str = ""
    """The hash of :func:`read_environment`; empty for a server's embeddings."""
    code: str = ""
    """The hash of the code of the encoder's class; empty for our own classes."""
    generation: str = ""
    """That of the store."""
    samples: bytes = b""
    """The samples' embeddings as :func:`sketch` shortens them; empty if they cannot be embedded."""

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> Origin | None:
        """Read the field of a ``run`` block; None if an earlier version wrote it."""
        if "origin" not in run:
            return None
        try:
            return msgspec.convert(run["origin"], cls)
        except msgspec.ValidationError:
            # Nothing has such an origin.
            return cls(environment="unreadable")


def set_aside(folder: Path) -> Path:
    """Give a folder of stored embeddings another name, which is returned; raises OutputError."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
    # Clocks may show the same second twice.
    aside = folder.with_name(f"{folder.name}.aside-{now}-{secrets.token_hex(4)}")
    try:
        # Another process may have done so.
        with suppress(FileNotFoundError):
            folder.rename(aside)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be set aside: {error.strerror}; pass --no-store"
        ) from error
    return aside


class DriftMonitor:
    """Watches whether an encoder still embeds as when its embeddings were stored; ``said`` is what became of them.

    Beside them lie those of a few sample sentences, and where all were made: the packages' versions, the machine, and
    of a class that is not ours the hashes of its files. Where any is new, the samples are embedded again. What moves by
    more than rounding has changed, whatever its fingerprint says, and its stored embeddings are set aside. Results record
    the same of the embeddings that they are scored on. Without a folder all of it is kept in memory.
    """

    def __init__(self, folder: Path | None, encoder: Encoder) -> None:
        """Keep what is watched; nothing is embedded yet."""
        self.folder, self.encoder, self.message = folder, encoder, ""
        self._in_memory = StoreMetadata(places=[])

    def check(self) -> None:
        """Compare the samples where something is new, and set aside what has moved; ``said`` says so. Raises OutputError."""
        record, here = self._read(), self._environment
        if self.folder is None or here in record.places or not any(self.folder.glob("*.npy")):
            return
        if not (why := self._moved(record)):
            record.places.append(here)
            self._write(record)
            return
        aside = set_aside(self.folder)
        self._write(self._new_record())
        what = f"stored embeddings of '{self.encoder.name}' are set aside, and all are made again"
        self.message = f"{what}: {why} (now in {aside.name})"

    def record_probes(self) -> None:
        """Keep the samples and where they are embedded, before the first embeddings are stored."""
        if not self._read().rows:
            self._write(self._new_record())

    def origin(self) -> Origin:
        """Return what a Result records of the stored embeddings, without environment and code."""
        record = self._read()
        if not record.places:
            return Origin()
        samples = sketch(_sample_rows(record)).tobytes() if record.rows else b""
        return Origin(generation=record.generation, samples=samples)

    def stores(self, origin: Origin | None) -> bool | None:
        """Return whether the stored embeddings are of this origin; ``origin`` is None if a Result records none.

        Returns:
            None if they do not tell: there are none, or they are not compared in this environment.
        """
        record = self._read()
        if origin is None:
            return False if self.message or record.since else None
        if self._environment not in record.places:
            return None
        if origin.generation == record.generation:
            return True
        return (
            self._is_alike(origin, _sample_rows(record)) if record.rows and origin.samples else None
        )

    def makes(self, origin: Origin) -> bool:
        """Return whether the encoder now embeds the samples as those of this origin; they are embedded."""
        return self._is_alike(origin, self._samples)

    def _is_alike(self, origin: Origin, samples: FloatArray) -> bool:
        if not samples.size or len(origin.samples) != len(PROBE_SENTENCES) * SKETCH_SIZE * 4:
            return False
        before = np.frombuffer(origin.samples, dtype="<f4").reshape(
            len(PROBE_SENTENCES), SKETCH_SIZE
        )
        return _largest_move(before, sketch(samples)) <= self._bound

    @cached_property
    def _environment(self) -> dict[str, str]:
        return read_environment(self.encoder)

    @property
    def _bound(self) -> float:
        return MAX_DRIFT.get(read_metadata(self.encoder).dtype or "float32", MAX_DRIFT["float32"])

    def _new_record(self) -> StoreMetadata:
        return StoreMetadata(places=[self._environment], rows=self._samples.astype("<f4").tobytes())

    @cached_property
    def _samples(self) -> FloatArray:
        nothing = np.empty((0, 0), dtype=np.float32)
        try:
            rows = np.asarray(self.encoder.encode(PROBE_SENTENCES), dtype=np.float32)
        except (
            Exception,
            SystemExit,
        ):  # whatever it raises is no fault of a run: these are no sentences of the user's
            return nothing
        return (
            rows
            if rows.ndim == 2 and len(rows) == len(PROBE_SENTENCES) and np.isfinite(rows).all()
            else nothing
        )

    def _moved(self, record: StoreMetadata) -> str:
        # In words; nothing where by rounding alone.
        if not record.rows:
            return "their samples are lost"
        before, now = _sample_rows(record), self._samples
        if before.shape != now.shape:
            return "the samples have embeddings of another size, or none"
        share = _largest_move(before, now)
        moved = f"samples moved by {share:.1g} of their length, rounding by {self._bound:g}"
        return "" if share <= self._bound else moved

    def _read(self) -> StoreMetadata:
        if self.folder is None:
            return self._in_memory
        record = read_record(self.folder / METADATA_FILE, StoreMetadata)
        is_whole = record is not None and len(record.rows) % (len(PROBE_SENTENCES) * 4) == 0
        return record if record is not None and is_whole else StoreMetadata(places=[])

    def _write(self, record: StoreMetadata) -> None:
        if self.folder is None:
            self._in_memory = record
        else:
            write_atomically(self.folder / METADATA_FILE, msgspec.json.encode(record))


def _sample_rows(record: StoreMetadata) -> FloatArray:
    """The samples' embeddings, (n, d); (n, 0) if they could not be embedded."""
    return np.frombuffer(record.rows, dtype="<f4").reshape(len(PROBE_SENTENCES), -1)


def _largest_move(before: FloatArray, now: FloatArray) -> float:
    """The largest distance between rows of the same number, (n, d), as a share of the row's length before."""
    lengths = np.linalg.norm(before.astype(np.float64), axis=1)
    moves = np.linalg.norm(now.astype(np.float64) - before, axis=1)
    return float((moves / np.maximum(lengths, 1e-6 + lengths.mean() / 100)).max())


SKETCH_SIZE = 16


def sketch(embeddings: FloatArray) -> FloatArray:
    """Shorten embeddings (n, d) to (n, SKETCH_SIZE): sums of all their numbers with fixed signs.

    A change of an embedding by a share of its length changes its sketch by about the same share (Johnson and
    Lindenstrauss; Achlioptas 2003, Journal of Computer and System Sciences 66), and takes 64 bytes for any d.
    """
    d = embeddings.shape[1]
    bits = np.unpackbits(
        np.frombuffer(hashlib.shake_256(b"signs").digest(d * SKETCH_SIZE // 8), np.uint8)
    )
    signs = 2.0 * bits.reshape(d, SKETCH_SIZE) - 1
    return (embeddings @ signs / np.sqrt(SKETCH_SIZE)).astype("<f4")  # type: ignore[no-any-return]


def digest_of(facts: object) -> str:
    """The short hash of JSON values."""
    return hashlib.sha256(
        json.dumps(facts, sort_keys=True).encode("utf-8", "surrogatepass")
    ).hexdigest()[:16]


def read_environment(encoder: Encoder) -> dict[str, str]:
    """All that may move an embedding and is not in its fingerprint."""
    gpu = " with a GPU" if Path("/proc/driver/nvidia").is_dir() else ""
    found = {**machine.versions(), "machine": machine.processor() + gpu}
    found["device"] = read_metadata(encoder).device or "auto"
    # Only where they are there: what was made without them is as it was.
    if flash := machine.version_of("flash-attn"):
        found["flash-attn"] = flash
    if uses_tf32():
        found["float32"] = "tf32"
    classes = dict.fromkeys(map(type, layers_of(encoder)))
    if code := " ".join(_code(kind) for kind in classes if not machine.is_own_class(kind)):
        found["code"] = code
    return found


PACKAGE_KIND = 5
"""What ``modulefinder`` calls a package."""


class _OwnModules(ModuleFinder):
    """Finds what a module imports below a folder, without running it; all from one package, where that is named."""

    def __init__(self, folder: Path, package: str) -> None:
        super().__init__([str(folder)])
        self.package = package

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:  # noqa: ANN401 - as its base's
        if path is None and self.package not in ("", name):
            raise ImportError(name)
        found = next((at for one in path or self.path if (at := Path(one, name)).is_dir()), None)
        # A package without __init__.py, of which its base knows nothing.
        if (
            found
            and not (found / "__init__.py").is_file()
            and not found.with_suffix(".py").is_file()
        ):
            return None, str(found), ("", "", PACKAGE_KIND)
        return super().find_module(name, path, parent)

    def load_package(self, fqname: str, pathname: str) -> Any:  # noqa: ANN401 - as its base's
        if (Path(pathname) / "__init__.py").is_file():
            return super().load_package(fqname, pathname)
        module: Any = self.add_module(fqname)
        module.__path__ = [pathname]
        return module


def _code(kind: type) -> str:
    """The hashes of a class's file, and of those of its package, or beside it, that it imports, and they in turn."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file:
        return ""
    path = Path(file)
    name = path.stem if kind.__module__ == "__main__" else kind.__module__
    folder = path.parents[name.count(".") + (path.name == "__init__.py")]
    # Beside a module of no package lie the user's others, but where packages are installed anybody's.
    alone = "." not in name and folder.name not in ("site-packages", "dist-packages")
    finder = _OwnModules(folder, "" if alone else name.partition(".")[0])
    # What is no longer there, or no Python.
    with suppress(ImportError, OSError, ValueError, SyntaxError, RecursionError):
        finder.import_hook(name)
    files = {
        file,
        *(getattr(module, "__file__", None) or file for module in finder.modules.values()),
    }
    return " ".join(file_digest(Path(one)) for one in sorted(files) if Path(one).is_file())
