"""A check that an encoder still embeds as it did when its embeddings were stored.

Results record the origin of their embeddings, so that they can be checked too.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stsbench.core import provenance
from stsbench.core.errors import OutputError
from stsbench.core.files import file_sha256, write_atomically
from stsbench.encoders.accelerator import uses_tf32
from stsbench.encoders.base import Encoder, FloatArray
from stsbench.encoders.cached_files import read_record
from stsbench.encoders.metadata import layers_of, read_metadata

METADATA_FILE = "samples.json"
"""The file of :class:`StoreMetadata` in a folder of stored embeddings."""
PROBE_SENTENCES = (
    "A man is playing a guitar.",
    "the QUICK Brown fox: iPhone, NASA and McDonald's",
    "In 2019, 3.14% of 1,000,000 people paid $12.50 at 10:45.",
    "Café naïve, Zoë's façade; straße. 今日は良い天気です。 Привет, мир!",
    "The committee said that the report would be read again. " * 12,
)
"""The sentences of the check for drift: mixed case, digits, accents, other scripts, a long one."""
MAX_DRIFT = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2, "int8": 0.2}
"""How far the embedding of a probe sentence may move, as a share of its length, by type.

A step of the first three is 1.2e-7, 9.8e-4 and 7.8e-3; sums computed in another order move an
embedding by some ten steps after a dozen layers. In int8 a sum that rounds to another step of a
layer's range moved one by up to 0.1 (``minilm``, 305 sentences, ONNX Runtime without fused
operators). A changed tokenizer, activation or weight moves it by far more
than this.
"""


class StoreMetadata(msgspec.Struct, kw_only=True):
    """The file beside stored embeddings."""

    environments: list[dict[str, str]] = msgspec.field(name="places")
    """Those that computed the embeddings, or that gave the probe sentences the same ones."""
    probe_embeddings: bytes = msgspec.field(default=b"", name="rows")
    """The embeddings of the probe sentences (n, d), float32; empty if they cannot be embedded."""
    archived_by_earlier_version: str = msgspec.field(default="", name="since")
    """Not empty if an earlier version of stsbench archived embeddings.

    Its results do not record whether they belong to the archived embeddings or to these.
    """

    @property
    def generation(self) -> str:
        """The hash of their first environment and of the probe embeddings.

        It distinguishes these embeddings from those that are archived.
        """
        return short_digest({"place": self.environments[:1], "rows": self.probe_embeddings.hex()})


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of the embeddings that a Result is scored on: ``origin`` in its ``run`` block."""

    environment: str = ""
    """The hash of :func:`read_environment`; empty for a server's embeddings."""
    code: str = ""
    """The hash of the code of the encoder's class; empty for our own classes."""
    generation: str = ""
    """The store's :attr:`StoreMetadata.generation`."""
    probe_sketch: bytes = msgspec.field(default=b"", name="samples")
    """The probe embeddings as :func:`sketch` shortens them; empty if they cannot be embedded."""

    @classmethod
    def from_run(cls, run: Mapping[str, Any]) -> Origin | None:
        """Read the field of a ``run`` block; None if an earlier version wrote the block."""
        if "origin" not in run:
            return None
        try:
            return msgspec.convert(run["origin"], cls)
        except msgspec.ValidationError:
            # No embeddings have this origin, so the result is of another one.
            return cls(environment="unreadable")


class DriftMonitor:
    """Check that an encoder still embeds as it did when its embeddings were stored.

    Beside the embeddings are those of a few probe sentences, and the environments that computed
    them: the packages' versions, the machine and, for a class that is not ours, the hashes of its
    files. In a new environment the probe sentences are embedded again. If they move by more than
    rounding, the encoder has changed, whatever its fingerprint is, and its stored embeddings are
    archived. Results record the same facts of the embeddings that they are scored on. Without a
    folder all of this is kept in memory.

    Attributes:
        folder: The folder of stored embeddings; None if they are in memory only.
        encoder: The encoder to check.
        message: What has moved and where the embeddings are now; empty if nothing was archived.
    """

    def __init__(self, folder: Path | None, encoder: Encoder) -> None:
        """Store the folder and the encoder; nothing is embedded yet."""
        self.folder = folder
        self.encoder = encoder
        self.message = ""
        self._in_memory = StoreMetadata(environments=[])

    def check(self) -> None:
        """Compare the probe embeddings in a new environment, and archive the store if they moved.

        Sets :attr:`message` if the store is archived.

        Raises:
            OutputError: A folder cannot be renamed, or a file not be written.
        """
        metadata = self._read()
        # Embeddings in memory are of this run, and a known environment has been compared before.
        if self.folder is None or self._environment in metadata.environments:
            return
        if not any(self.folder.glob("*.npy")):  # nothing is stored that could differ
            return
        reason = self._describe_move(metadata)
        if not reason:
            metadata.environments.append(self._environment)
            self._write(metadata)
            return
        archive = archive_folder(self.folder)
        self._write(self._new_metadata())
        self.message = (
            f"stored embeddings of '{self.encoder.name}' are archived, and everything is embedded "
            f"and scored again: {reason} (now in {archive.name})"
        )

    def record_probes(self) -> None:
        """Store the probe embeddings and the environment, before the first embeddings are stored.

        Nothing changes if there are probe embeddings already.
        """
        if not self._read().probe_embeddings:
            self._write(self._new_metadata())

    def origin(self) -> Origin:
        """Return the store's part of a Result's origin: generation and probe embeddings."""
        metadata = self._read()
        if not metadata.environments:
            return Origin()
        has_probes = bool(metadata.probe_embeddings)
        probe_sketch = sketch(_stored_probes(metadata)).tobytes() if has_probes else b""
        return Origin(generation=metadata.generation, probe_sketch=probe_sketch)

    def matches_stored(self, origin: Origin | None) -> bool | None:
        """Return whether a Result was scored on the embeddings that are stored now, or equal ones.

        That is so if both are of one generation, or their probe embeddings differ by rounding only.

        Args:
            origin: The origin that a Result records; None if it records none.

        Returns:
            None if that is unknown: the Result or the store has no probe embeddings to compare, or
            the probe sentences have not been compared in this environment.
        """
        metadata = self._read()
        if origin is None:
            # If embeddings were archived, the Result may be of those, and does not count.
            were_archived = bool(self.message or metadata.archived_by_earlier_version)
            return False if were_archived else None
        if self._environment not in metadata.environments:
            return None
        if origin.generation == metadata.generation:
            return True
        if not metadata.probe_embeddings or not origin.probe_sketch:
            return None
        return self._is_close(origin, _stored_probes(metadata))

    def still_embeds(self, origin: Origin) -> bool:
        """Embed the probe sentences; return whether they are as those of this origin."""
        return self._is_close(origin, self._probes)

    def _is_close(self, origin: Origin, probes: FloatArray) -> bool:
        """Return whether probe embeddings differ from an origin's by rounding at most.

        Args:
            origin: The origin of a result, which holds a sketch of the embeddings at that time.
            probes: The embeddings of the probe sentences now, (n, d); (0, 0) if there are none.
        """
        shape = (len(PROBE_SENTENCES), SKETCH_SIZE)
        # A float32 has 4 bytes. A sketch of any other length cannot be compared.
        expected_bytes = 4 * shape[0] * shape[1]
        if not probes.size or len(origin.probe_sketch) != expected_bytes:
            return False
        old_sketch = np.frombuffer(origin.probe_sketch, dtype="<f4").reshape(shape)
        return _largest_move(old_sketch, sketch(probes)) <= self._max_drift

    @cached_property
    def _environment(self) -> dict[str, str]:
        return read_environment(self.encoder)

    @property
    def _max_drift(self) -> float:
        return MAX_DRIFT.get(read_metadata(self.encoder).dtype or "float32", MAX_DRIFT["float32"])

    def _new_metadata(self) -> StoreMetadata:
        """Return the metadata of embeddings that are computed here and now."""
        return StoreMetadata(
            environments=[self._environment],
            probe_embeddings=self._probes.astype("<f4").tobytes(),
        )

    @cached_property
    def _probes(self) -> FloatArray:
        """The embeddings of the probe sentences, (n, d); (0, 0) if they cannot be embedded."""
        no_embeddings = np.empty((0, 0), dtype=np.float32)
        # A pair scorer has pairs of them.
        texts = getattr(self.encoder, "probe_texts", PROBE_SENTENCES)
        try:
            rows = np.asarray(self.encoder.encode(texts), dtype=np.float32)
        except (Exception, SystemExit):
            # An error here must not stop a run: the user did not ask for these sentences.
            return no_embeddings
        has_all_rows = rows.ndim == 2 and len(rows) == len(PROBE_SENTENCES)
        return rows if has_all_rows and np.isfinite(rows).all() else no_embeddings

    def _describe_move(self, metadata: StoreMetadata) -> str:
        """Return how the probe embeddings have changed; empty if by rounding at most.

        Args:
            metadata: The file beside the stored embeddings, with the old probe embeddings.
        """
        if not metadata.probe_embeddings:
            return "their samples are lost"
        old_rows = _stored_probes(metadata)
        new_rows = self._probes
        if old_rows.shape != new_rows.shape:
            return "the samples have embeddings of another size, or none"
        move = _largest_move(old_rows, new_rows)
        if move <= self._max_drift:
            return ""
        return f"samples moved by {move:.1g} of their length, rounding by {self._max_drift:g}"

    def _read(self) -> StoreMetadata:
        """Return the metadata beside the embeddings; without environments if there are none."""
        if self.folder is None:
            return self._in_memory
        metadata = read_record(self.folder / METADATA_FILE, StoreMetadata)
        if metadata is None:
            return StoreMetadata(environments=[])
        # A file that was cut off has no whole embeddings of float32, of 4 bytes, for all sentences.
        n_excess_bytes = len(metadata.probe_embeddings) % (len(PROBE_SENTENCES) * 4)
        if n_excess_bytes:
            return StoreMetadata(environments=[])
        return metadata

    def _write(self, metadata: StoreMetadata) -> None:
        if self.folder is None:
            self._in_memory = metadata
        else:
            write_atomically(self.folder / METADATA_FILE, msgspec.json.encode(metadata))


def _stored_probes(metadata: StoreMetadata) -> FloatArray:
    """Return the stored probe embeddings, (n, d); (n, 0) if they could not be embedded."""
    return np.frombuffer(metadata.probe_embeddings, dtype="<f4").reshape(len(PROBE_SENTENCES), -1)


def _largest_move(old_rows: FloatArray, new_rows: FloatArray) -> float:
    """Return the largest distance between old and new rows (n, d), as a share of the old length."""
    old_lengths = np.linalg.norm(old_rows.astype(np.float64), axis=1)
    moves = np.linalg.norm(new_rows.astype(np.float64) - old_rows, axis=1)
    # A row near zero must not make rounding look like a large share.
    min_length = 1e-6 + old_lengths.mean() / 100
    return float((moves / np.maximum(old_lengths, min_length)).max())


SKETCH_SIZE = 16
"""The number of values that :func:`sketch` keeps of an embedding."""


def archive_folder(folder: Path) -> Path:
    """Rename a folder of stored embeddings, so that they are not reused, and return its new path.

    Raises:
        OutputError: The folder cannot be renamed.
    """
    timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
    # Clocks may show the same second twice.
    archive_path = folder.with_name(f"{folder.name}.aside-{timestamp}-{secrets.token_hex(4)}")
    try:
        # Another process may have done so.
        with suppress(FileNotFoundError):
            folder.rename(archive_path)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be set aside: {error.strerror}", hint="pass `no_store`"
        ) from error
    return archive_path


def sketch(embeddings: FloatArray) -> FloatArray:
    """Shorten embeddings (n, d) to (n, SKETCH_SIZE): sums of all their numbers with fixed signs.

    A change of an embedding by a share of its length changes its sketch by about the same share
    (Johnson and Lindenstrauss; Achlioptas 2003, Journal of Computer and System Sciences 66). A
    sketch is 64 bytes long for any d.
    """
    d = embeddings.shape[1]
    # The signs are the bits of a hash, not of a random generator, so that no version of numpy
    # changes them: one bit for each of the (d, SKETCH_SIZE) signs, 8 in a byte.
    n_bytes = d * SKETCH_SIZE // 8
    sign_bytes = hashlib.shake_256(b"signs").digest(n_bytes)
    bits = np.unpackbits(np.frombuffer(sign_bytes, np.uint8))
    signs = 2.0 * bits.reshape(d, SKETCH_SIZE) - 1
    return (embeddings @ signs / np.sqrt(SKETCH_SIZE)).astype("<f4")  # type: ignore[no-any-return]


def short_digest(value: object) -> str:
    """Return the short hash of a value that JSON can hold."""
    content = json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:16]


def read_environment(encoder: Encoder) -> dict[str, str]:
    """Return everything that may move an embedding and is not in the encoder's fingerprint.

    These are the packages' versions by name; under other keys the machine, the device, the type of
    products on a GPU if it is TF32, and the hashes of the code of a user's class.
    """
    gpu = " with a GPU" if Path("/proc/driver/nvidia").is_dir() else ""
    environment = {**provenance.versions(), "machine": provenance.processor() + gpu}
    environment["device"] = read_metadata(encoder).device or "auto"
    # These keys exist only if they apply: environments stored before there were any still match.
    if flash_version := provenance.version_of("flash-attn"):
        environment["flash-attn"] = flash_version
    if uses_tf32():
        environment["float32"] = "tf32"
    classes = dict.fromkeys(type(layer) for layer in layers_of(encoder))
    digests = [_code_digests(kind) for kind in classes if not provenance.is_own_class(kind)]
    if code := " ".join(digests):
        environment["code"] = code
    return environment


PACKAGE_KIND = 5
"""The number that ``modulefinder`` uses for a package."""


class _OwnModules(ModuleFinder):
    """Find the modules below a folder that a module imports, without running it.

    If a package is named, only modules of that package are found.
    """

    def __init__(self, folder: Path, package: str) -> None:
        super().__init__([str(folder)])
        self.package = package

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:  # noqa: ANN401 - as its base's
        """Find a module as the base class does, and packages without ``__init__.py`` too.

        For such a package the triple of the base class has no open file, but the folder's path.

        Args:
            name: The last part of the module's name.
            path: The folders of its package; None at the top level.
            parent: The package's module, passed on.

        Raises:
            ImportError: There is none, or it belongs to another package than the one looked for.
        """
        is_of_other_package = path is None and self.package not in ("", name)
        if is_of_other_package:
            raise ImportError(name)
        candidates = [Path(folder, name) for folder in path or self.path]
        package_folder = next((folder for folder in candidates if folder.is_dir()), None)
        if (
            package_folder
            and not (package_folder / "__init__.py").is_file()
            and not package_folder.with_suffix(".py").is_file()
        ):
            return None, str(package_folder), ("", "", PACKAGE_KIND)
        return super().find_module(name, path, parent)

    def load_package(self, fqname: str, pathname: str) -> Any:  # noqa: ANN401 - as its base's
        """Load a package as the base class does; one without ``__init__.py`` has only a path."""
        if (Path(pathname) / "__init__.py").is_file():
            return super().load_package(fqname, pathname)
        module: Any = self.add_module(fqname)
        module.__path__ = [pathname]
        return module


def _code_digests(kind: type) -> str:
    """Return the hashes of a class's file and of the user's files that it imports, at any depth.

    The user's files are those of the same package; for a module of no package, those beside it.

    Returns:
        The hashes with blanks between them; empty if the class has no file.
    """
    class_file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not class_file:
        return ""
    path = Path(class_file)
    module_name = path.stem if kind.__module__ == "__main__" else kind.__module__
    # The folder that holds the outermost package: one level up per package around the module.
    n_packages = module_name.count(".") + (path.name == "__init__.py")
    folder = path.parents[n_packages]
    # The files beside a module of no package are the user's, but not where packages are installed.
    is_beside_own_files = "." not in module_name and folder.name not in (
        "site-packages",
        "dist-packages",
    )
    package = "" if is_beside_own_files else module_name.partition(".")[0]
    finder = _OwnModules(folder, package)
    # A file may have been removed, or hold no valid Python.
    with suppress(ImportError, OSError, ValueError, SyntaxError, RecursionError):
        # This reads the module and all that it imports into ``finder.modules``, and runs nothing.
        finder.import_hook(module_name)
    imported_files = [getattr(module, "__file__", None) for module in finder.modules.values()]
    files = {class_file, *filter(None, imported_files)}
    return " ".join(file_sha256(Path(file)) for file in sorted(files) if Path(file).is_file())
