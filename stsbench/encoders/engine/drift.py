"""Whether an encoder still embeds as it did when its embeddings were stored.

Beside the stored embeddings lie those of a few sample sentences, and where all of them were made: the
packages' versions, the machine, and of a class that is not ours the hash of its file. Where any of these
is new, the samples are embedded again. Rounding is let pass; what moves by more has changed, whatever its
fingerprint says, and its stored embeddings are set aside.
"""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from stsbench.data.verify import file_digest
from stsbench.encoders.devices import uses_tf32
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.facts import facts_of
from stsbench.encoders.seams import Encoder, FloatArray
from stsbench.errors import OutputError
from stsbench.files.whole import write_whole
from stsbench.provenance import machine
from stsbench.provenance.identity import is_ours

FILE = "samples.json"
SAMPLES = (
    "A man is playing a guitar.",
    "the QUICK Brown fox: iPhone, NASA and McDonald's",
    "In 2019, 3.14% of 1,000,000 people paid $12.50 at 10:45.",
    "Café naïve, Zoë's façade; ÅNGSTRÖM straße İstanbul",
    "",
    "No",
    "שלום עולם, مرحبا بالعالم",
    "今日は良い天気です。Привет, мир! 안녕하세요",
    '🙂 👩‍👩‍👧 don\'t-stop (well...) "quoted" http://example.org/a_b?c=1',
    "The committee said that the report would be read again. " * 24,
)
"""Mixed case, digits, accents, empty, short, other scripts, signs, long."""
BOUNDS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""How far a sample may move, as a share of its length. A step of the type is 1.2e-7, 9.8e-4 and 7.8e-3; sums taken
in another order move an embedding by some ten steps after a dozen layers. A changed tokenizer, activation or
weight moves it by far more than this."""


class StoredFacts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What lies beside stored embeddings."""

    places: list[dict[str, str]]
    """Where they were made, and where the samples came out the same."""
    size: int = 0
    rows: str = ""
    """The samples' embeddings (n, size), float32 in base64; nothing as long as a first run goes on."""
    since: str = ""
    """When they began anew after others were set aside; older results are not of them."""


class Watch:
    """Watches over the stored embeddings in one folder."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        """Keep what is watched; nothing is embedded yet."""
        self.folder, self.encoder, self.said = folder, encoder, ""

    @property
    def since(self) -> str:
        """When its embeddings began anew; nothing where none were set aside."""
        record = self._read()
        return record.since if record is not None else ""

    def check(self) -> None:
        """Compare the samples where something is new, and set aside what has moved; ``said`` says so.

        Raises:
            OutputError: the folder cannot be renamed or written.
        """
        if not any(self.folder.glob("*.npy")):
            return
        record, here = self._read(), conditions(self.encoder)
        if record is not None and here in record.places:
            return
        why = _moved(record, self.encoder)
        if record is None or why:
            self._set_aside(why or "their samples are lost")
            return
        record.places.append(here)
        self._write(record)

    def begin(self) -> None:
        """Say where embeddings are made, before the first are written."""
        if self._read() is None:
            self._write(StoredFacts(places=[conditions(self.encoder)]))

    def complete(self) -> None:
        """Embed the samples where that was not done yet."""
        record = self._read()
        if record is not None and not record.rows:
            rows = embed_samples(self.encoder)
            record.size, record.rows = rows.shape[1], base64.b64encode(rows.astype("<f4").tobytes()).decode()
            self._write(record)

    def _set_aside(self, why: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        aside = self.folder.with_name(f"{self.folder.name}.aside-{now.replace(':', '')}")
        try:
            self.folder.rename(aside)
        except OSError as error:
            raise OutputError(f"{self.folder}: cannot be set aside: {error.strerror}; pass --no-store") from error
        self._write(StoredFacts(places=[conditions(self.encoder)], since=now))
        self.said = f"stored embeddings of '{self.encoder.name}' are set aside, and all are made again: {why} (now in {aside.name})"

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


def _code(kind: type) -> str:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        return file_digest(Path(file)) if file else ""
    except OSError:
        return ""


def embed_samples(encoder: Encoder) -> FloatArray:
    """The samples' embeddings (n, d), each embedded alone; NaN where that fails, as a user's encoder may on the empty text."""
    rows: list[FloatArray | None] = []
    for sample in SAMPLES:
        try:
            rows.append(np.asarray(Engine(encoder)([sample]), dtype=np.float32)[0])
        except Exception:
            # No sentence of the user's: whatever it raises is no fault of a run.
            rows.append(None)
    size = max((len(row) for row in rows if row is not None), default=1)
    return np.stack([row if row is not None else np.full(size, np.nan, np.float32) for row in rows])


def _moved(record: StoredFacts | None, encoder: Encoder) -> str:
    """By how much the samples moved, in words; nothing where by rounding alone."""
    if record is None or not record.rows:
        return "their samples are lost"
    now = embed_samples(encoder).astype(np.float64)
    before = np.frombuffer(base64.b64decode(record.rows), dtype="<f4").astype(np.float64)
    if before.size != now.size or record.size != now.shape[1] or np.isnan(now).all():
        return "embeddings have another size or cannot be made"
    before = before.reshape(now.shape)
    failed = np.isnan(before).any(axis=1)
    if (failed != np.isnan(now).any(axis=1)).any():
        return "other texts than before can be embedded"
    lengths = np.linalg.norm(before[~failed], axis=1)
    shares = np.linalg.norm(now[~failed] - before[~failed], axis=1) / np.maximum(lengths, 1e-6 + lengths.mean() / 100)
    bound = BOUNDS.get(facts_of(encoder).dtype or "float32", BOUNDS["float32"])
    return (
        "" if shares.max() <= bound else f"samples moved by {shares.max():.1g} of their length, rounding by {bound:g}"
    )
