"""Whether an encoder still embeds as it did when its embeddings were stored.

Beside the stored embeddings lie those of a few sample sentences, and where all of them were made: the packages' versions, the
machine, and of a class that is not ours the hash of its file and of those that it imports from its own package or folder. Where any
of these is new, the samples are embedded again, in one batch. Rounding is let pass; what moves by more has changed, whatever its
fingerprint says, and its stored embeddings are set aside.
"""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stsbench.core import provenance as machine
from stsbench.core.errors import OutputError
from stsbench.core.files import file_digest, write_whole
from stsbench.core.provenance import is_ours
from stsbench.encoders.backends import uses_tf32
from stsbench.encoders.base import Encoder, FloatArray, facts_of
from stsbench.encoders.engine.embed import Engine

FILE = "samples.json"
SAMPLES = (
    "A man is playing a guitar.",
    "the QUICK Brown fox: iPhone, NASA and McDonald's",
    "In 2019, 3.14% of 1,000,000 people paid $12.50 at 10:45.",
    "Café naïve, Zoë's façade; straße. 今日は良い天気です。 Привет, мир!",
    "The committee said that the report would be read again. " * 12,
)
"""Mixed case, digits, accents, other scripts, a long one."""
LOST = "their samples are lost"
BOUNDS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""How far a sample may move, as a share of its length. A step of the type is 1.2e-7, 9.8e-4 and 7.8e-3; sums taken
in another order move an embedding by some ten steps after a dozen layers. A changed tokenizer, activation or
weight moves it by far more than this."""


class StoredFacts(msgspec.Struct, kw_only=True):
    """What lies beside stored embeddings."""

    places: list[dict[str, str]]
    """Where they were made, and where the samples came out the same."""
    size: int = 0
    rows: str = ""
    """The samples' embeddings (n, size), float32 in base64; nothing as long as a first run goes on."""
    since: str = ""
    """When they began anew after others were set aside; older results are not of them."""


class Watch:
    """Watches over the stored embeddings in one folder; ``said`` tells what became of them."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        """Keep what is watched; nothing is embedded yet."""
        self.folder, self.encoder, self.said = folder, encoder, ""

    @property
    def since(self) -> str:
        """When its embeddings began anew; nothing where none were set aside."""
        return record.since if (record := self._read()) is not None else ""

    def check(self) -> None:
        """Compare the samples where something is new, and set aside what has moved; ``said`` says so. Raises OutputError."""
        if not any(self.folder.glob("*.npy")):
            return
        record, here = self._read(), conditions(self.encoder)
        if record is not None and here in record.places:
            return
        if record is not None and not (why := self._moved(record)):
            record.places.append(here)
            self._write(record)
            return
        why = why if record is not None else LOST
        now = datetime.now(UTC).isoformat(timespec="seconds")
        aside = self.folder.with_name(f"{self.folder.name}.aside-{now.replace(':', '')}")
        try:
            self.folder.rename(aside)
        except OSError as error:
            raise OutputError(f"{self.folder}: cannot be set aside: {error.strerror}; pass --no-store") from error
        self._write(StoredFacts(places=[here], since=now))
        self.said = f"stored embeddings of '{self.encoder.name}' are set aside, and all are made again: {why} (now in {aside.name})"

    def begin(self) -> None:
        """Say where embeddings are made, before the first are written."""
        if self._read() is None:
            self._write(StoredFacts(places=[conditions(self.encoder)]))

    def complete(self) -> None:
        """Embed the samples where that was not done yet."""
        record = self._read()
        if record is not None and not record.rows and (rows := self._samples()) is not None:
            record.size, record.rows = rows.shape[1], base64.b64encode(rows.astype("<f4").tobytes()).decode()
            self._write(record)

    def _samples(self) -> FloatArray | None:
        """The samples' embeddings (n, d); None where they cannot be made."""
        try:
            return np.asarray(Engine(self.encoder)(SAMPLES), dtype=np.float32)
        except Exception:  # whatever it raises is no fault of a run: these are no sentences of the user's
            return None

    def _moved(self, record: StoredFacts) -> str:
        """By how much the samples moved, in words; nothing where by rounding alone."""
        before = np.frombuffer(base64.b64decode(record.rows), dtype="<f4").astype(np.float64)
        now = self._samples()
        if not len(before):
            return LOST
        if now is None or before.size != now.size or record.size != now.shape[1]:
            return "the samples have embeddings of another size, or none"
        before = before.reshape(now.shape)
        lengths = np.linalg.norm(before, axis=1)
        shares = np.linalg.norm(now - before, axis=1) / np.maximum(lengths, 1e-6 + lengths.mean() / 100)
        bound = BOUNDS.get(facts_of(self.encoder).dtype or "float32", BOUNDS["float32"])
        moved = f"samples moved by {shares.max():.1g} of their length, rounding by {bound:g}"
        return "" if shares.max() <= bound else moved

    def _read(self) -> StoredFacts | None:
        try:
            return msgspec.json.decode((self.folder / FILE).read_bytes(), type=StoredFacts)
        except (OSError, msgspec.DecodeError, RecursionError):
            return None

    def _write(self, record: StoredFacts) -> None:
        write_whole(self.folder / FILE, msgspec.json.encode(record))


def conditions(encoder: Encoder) -> dict[str, str]:
    """All that may move an embedding and is not in its fingerprint."""
    gpu = " with a GPU" if Path("/proc/driver/nvidia").is_dir() else ""
    found = {**machine.versions(), "machine": machine.processor() + gpu}
    found["device"] = facts_of(encoder).device or "auto"
    # Only where they are there: what was made without them is as it was.
    if flash := machine.version_of("flash-attn"):
        found["flash-attn"] = flash
    if uses_tf32():
        found["float32"] = "tf32"
    if not is_ours(type(encoder)):
        found["code"] = _code(type(encoder))
    return found


class _Imports(ModuleFinder):
    """Finds what a module imports from its own package or folder, and what they import in turn; nothing is run."""

    def __init__(self, root: Path, own: str) -> None:
        super().__init__([str(root)])
        self.own = own

    def import_module(self, partname: str, fqname: str, parent: Any) -> Any:  # noqa: ANN401 - as ModuleFinder has it
        mine = self.own in ("", fqname.partition(".")[0])
        return super().import_module(partname, fqname, parent) if mine else None


def _code(kind: type) -> str:
    """The hash of the file that a class is in, and of those of its package, or beside it, that it imports, and they in turn."""
    name, file = kind.__module__, getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not file:
        return ""
    path = Path(file)
    root = path.parents[name.count(".") + (path.name == "__init__.py")]
    # Beside a module of no package lie the user's others, but where packages are installed anybody's.
    own = name.partition(".")[0] if "." in name or root.name in ("site-packages", "dist-packages") else ""
    found = _Imports(root, own)
    try:
        found.import_hook(name)
        files = [getattr(one, "__file__", None) for one in found.modules.values()]
        others = {Path(one) for one in files if one} - {path}
        return " ".join([file_digest(path), *sorted(map(file_digest, others))])
    except (ImportError, OSError, ValueError, SyntaxError, RecursionError):
        # What is no longer there, or no Python.
        return ""
