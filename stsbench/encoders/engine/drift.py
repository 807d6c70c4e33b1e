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
from stsbench.encoders.cached_files import read_json_record
from stsbench.encoders.metadata import encoder_and_its_bases, read_metadata

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
        """A hash that distinguishes the stored embeddings from earlier ones, which are archived.

        It is of the environment that computed the first of them (package versions, machine and
        device) and of the embeddings of a few fixed sentences, the probe embeddings.
        """
        state = {"place": self.environments[:1], "rows": self.probe_embeddings.hex()}
        return short_json_hash(state)


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of the embeddings that a Result is scored on: ``origin`` in its ``run`` block."""

    environment: str = ""
    """The hash of :func:`read_environment`; empty for a server's embeddings."""
    code: str = ""
    """The hash of the code of the encoder's class; empty for our own classes."""
    generation: str = ""
    """The store's :attr:`StoreMetadata.generation`."""
    probe_sketch: bytes = msgspec.field(default=b"", name="samples")
    """The bytes of the probe embeddings, as :func:`shorten_embeddings` shortens them.

    Empty if the probe sentences cannot be embedded.
    """

    @classmethod
    def from_run(cls, run: Mapping[str, Any]) -> Origin | None:
        """Read where the embeddings of a stored result came from.

        Args:
            run: The ``run`` block of the result: facts about its computation, by name.

        Returns:
            The origin of the embeddings; None if an earlier version of stsbench wrote the block,
            without this field. If the field cannot be read, an origin that no embeddings have.
        """
        if "origin" not in run:
            return None
        try:
            return msgspec.convert(run["origin"], cls)
        except msgspec.ValidationError:
            # No environment has this hash, so the result is of no embeddings that are stored.
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
        """Archive the stored embeddings if the encoder does not embed as it did any more.

        Probe embeddings are those of a few fixed sentences, and were stored with the others. In an
        environment (package versions, machine, device) that has not been compared yet, the
        sentences are embedded again:

        * If their embeddings differ by rounding at most, the environment is added to the metadata.
        * Otherwise the folder is renamed, new metadata are written, and :attr:`message` is set.

        Raises:
            OutputError: A folder cannot be renamed, or a file not be written.
        """
        metadata = self._read()
        # Embeddings in memory (no folder) are of this run, so they cannot be of another state.
        if self.folder is None:
            return
        # The metadata list the environments that have been compared before.
        if self._environment in metadata.environments:
            return
        has_stored_embeddings = any(self.folder.glob("*.npy"))
        if not has_stored_embeddings:
            return
        # An empty text means that the probe embeddings have not moved.
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
        """Record the probe embeddings and the environment, before the first embeddings are stored.

        Nothing changes if this environment is recorded already, with probe embeddings. Otherwise
        the record of another environment is replaced: :meth:`check` comes first and leaves no
        embeddings of an environment that it could not compare with this one.
        """
        metadata = self._read()
        is_recorded = self._environment in metadata.environments
        if not metadata.probe_embeddings or not is_recorded:
            # The probe sentences are embedded now, if this run has not done so yet.
            self._write(self._new_metadata())

    def origin(self) -> Origin:
        """Return the origin of the stored embeddings, as a Result scored on them records it.

        Returns:
            Two fields are set: ``generation``, a hash of the stored state, and ``probe_sketch``,
            the bytes of the shortened embeddings of the probe sentences, empty if there are none.
            Both are empty if no environment has stored embeddings yet.
        """
        metadata = self._read()
        if not metadata.environments:
            return Origin()
        has_probes = bool(metadata.probe_embeddings)
        probe_sketch = shorten_embeddings(_stored_probes(metadata)).tobytes() if has_probes else b""
        return Origin(generation=metadata.generation, probe_sketch=probe_sketch)

    def matches_stored(self, origin: Origin | None) -> bool | None:
        """Return whether a Result was scored on the embeddings that are stored now, or equal ones.

        Args:
            origin: The origin of its embeddings that a Result records; None if it records none.

        Returns:
            True if both have the same ``generation`` (a hash of the stored state), or if their
            embeddings of the probe sentences differ by rounding only. Otherwise False.
            None if that is unknown: the Result or the store has no embeddings of the probe
            sentences, or these have not been compared in this environment (versions, machine).
            A Result without an origin gives False if embeddings were archived, otherwise None.
        """
        metadata = self._read()
        if origin is None:
            # If embeddings were archived, the Result may be of the archived ones: it is no match.
            # `message` is not empty if this run archived them, the other text if an earlier
            # version of stsbench did.
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
        """Return whether an encoder embeds the probe sentences as it did for an earlier result.

        Args:
            origin: The origin of the result. Its ``probe_sketch`` holds the bytes of the
                embeddings at that time, shortened to ``SKETCH_SIZE`` float32 numbers each.
            probes: The embeddings of the probe sentences now, (n, d); (0, 0) if there are none.

        Returns:
            True if they differ by rounding at most; False if they differ by more or if one side
            has no embeddings to compare.
        """
        shape = (len(PROBE_SENTENCES), SKETCH_SIZE)
        # A float32 has 4 bytes. A sketch of any other length cannot be compared.
        expected_bytes = 4 * shape[0] * shape[1]
        if not probes.size or len(origin.probe_sketch) != expected_bytes:
            return False
        old_sketch = np.frombuffer(origin.probe_sketch, dtype="<f4").reshape(shape)
        # The share of its length by which rounding may move an embedding is `_max_drift`.
        return _largest_relative_distance(old_sketch, shorten_embeddings(probes)) <= self._max_drift

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
        """The embeddings of the probe sentences, (n, d), computed at the first access.

        These are a few fixed sentences that show whether the encoder still embeds as before. The
        array is (0, 0) if the encoder cannot embed them, or not to finite numbers.
        """
        no_embeddings = np.empty((0, 0), dtype=np.float32)
        # An encoder that scores pairs of sentences embeds as many pairs of these sentences.
        texts = getattr(self.encoder, "probe_texts", PROBE_SENTENCES)
        try:
            rows = np.asarray(self.encoder.encode(texts), dtype=np.float32)
        except (Exception, SystemExit):
            # An error here must not stop a run: the user did not ask for these sentences.
            return no_embeddings
        has_all_rows = rows.ndim == 2 and len(rows) == len(PROBE_SENTENCES)
        is_valid = has_all_rows and np.isfinite(rows).all()
        return rows if is_valid else no_embeddings

    def _describe_move(self, metadata: StoreMetadata) -> str:
        """Return a text on how the embeddings of the probe sentences have changed.

        Args:
            metadata: The content of the file beside the stored embeddings. Its bytes
                ``probe_embeddings`` are the embeddings of the probe sentences at that time.

        Returns:
            An empty text if they have changed by rounding at most.
        """
        if not metadata.probe_embeddings:
            return "their samples are lost"  # samples: the probe sentences, in messages
        old_rows = _stored_probes(metadata)
        # Embedded now, at the first use of this property.
        new_rows = self._probes
        if old_rows.shape != new_rows.shape:
            return "the samples have embeddings of another size, or none"
        move = _largest_relative_distance(old_rows, new_rows)
        # The share of its length by which rounding may move an embedding.
        if move <= self._max_drift:
            return ""
        return f"samples moved by {move:.1g} of their length, rounding by {self._max_drift:g}"

    def _read(self) -> StoreMetadata:
        """Return the metadata of the stored embeddings: environments and probe embeddings.

        They are read from the file beside the embeddings, or are in memory if there is no folder.
        Without a valid file both are empty.
        """
        if self.folder is None:
            return self._in_memory
        # None if there is no such file, or it is no valid JSON of these metadata.
        metadata = read_json_record(self.folder / METADATA_FILE, StoreMetadata)
        if metadata is None:
            return StoreMetadata(environments=[])
        # The file holds one embedding of float32 numbers (4 bytes each) per probe sentence. A
        # number of bytes that cannot be divided so is of a file that was cut off.
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


def _largest_relative_distance(old_rows: FloatArray, new_rows: FloatArray) -> float:
    """Return how far the row that moved most has moved, as a share of its old length.

    Args:
        old_rows: The embeddings at an earlier time, (n, d).
        new_rows: The embeddings of the same sentences now, (n, d).
    """
    old_lengths = np.linalg.norm(old_rows.astype(np.float64), axis=1)
    distances = np.linalg.norm(new_rows.astype(np.float64) - old_rows, axis=1)
    # A row near zero must not make rounding look like a large share.
    min_length = 1e-6 + old_lengths.mean() / 100
    relative_distances = distances / np.maximum(old_lengths, min_length)
    return float(relative_distances.max())


SKETCH_SIZE = 16
"""The number of values that :func:`shorten_embeddings` keeps of an embedding."""


def archive_folder(folder: Path) -> Path:
    """Rename a folder of stored embeddings, so that they are not reused, and return its new path.

    The new name has the time in it.

    Raises:
        OutputError: The folder cannot be renamed.
    """
    timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
    # The random digits are for two folders that are archived in the same second.
    archive_path = folder.with_name(f"{folder.name}.aside-{timestamp}-{secrets.token_hex(4)}")
    try:
        # If the folder does not exist any more, another process has renamed it.
        with suppress(FileNotFoundError):
            folder.rename(archive_path)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be set aside: {error.strerror}", hint="pass `no_store`"
        ) from error
    return archive_path


def shorten_embeddings(embeddings: FloatArray) -> FloatArray:
    """Return a short sketch of each embedding, by which a later change of it can be noticed.

    Each of its numbers is the sum of all numbers of the embedding, each with a fixed sign. If an
    embedding changes by a share of its length, its sketch changes by about the same share
    (Johnson and Lindenstrauss; Achlioptas 2003, Journal of Computer and System Sciences 66).

    Args:
        embeddings: The embeddings, (n, d).

    Returns:
        The sketches, (n, SKETCH_SIZE), as float32 of little-endian byte order: 64 bytes for each
        embedding, whatever d is.
    """
    d = embeddings.shape[1]
    # The signs are the bits of a hash, not of a random generator, so that no version of numpy
    # changes them: one bit for each of the (d, SKETCH_SIZE) signs, 8 in a byte.
    n_bytes = d * SKETCH_SIZE // 8
    sign_bytes = hashlib.shake_256(b"signs").digest(n_bytes)
    bits = np.unpackbits(np.frombuffer(sign_bytes, np.uint8))
    signs = 2.0 * bits.reshape(d, SKETCH_SIZE) - 1  # bits 0 and 1 become -1.0 and 1.0
    return (embeddings @ signs / np.sqrt(SKETCH_SIZE)).astype("<f4")  # type: ignore[no-any-return]


def short_json_hash(value: object) -> str:
    """Return the short hash of a value that JSON can hold."""
    content = json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:16]


def read_environment(encoder: Encoder) -> dict[str, str]:
    """Return everything that may move an embedding and is not in the encoder's fingerprint.

    Returns:
        A text under each key: the version of each package under the package's name; under
        ``machine`` the processor, and whether there is a GPU; under ``device`` where the encoder
        computes, ``auto`` if it does not say. Only if they apply: the version under
        ``flash-attn``, ``tf32`` under ``float32`` (a GPU then rounds the factors of a product),
        and under ``code`` the hashes of the files of the classes that are not stsbench's.
    """
    # Linux has this folder if it has a driver for a GPU of NVIDIA.
    gpu = " with a GPU" if Path("/proc/driver/nvidia").is_dir() else ""
    environment = {**provenance.versions(), "machine": provenance.processor() + gpu}
    environment["device"] = read_metadata(encoder).device or "auto"
    # The further keys exist only if they apply, so that they do not change the environments that
    # were stored before stsbench had these keys.
    if flash_version := provenance.version_of("flash-attn"):
        environment["flash-attn"] = flash_version
    if uses_tf32():
        environment["float32"] = "tf32"
    # The encoder's class, and those of the encoders inside it; a dict keeps each once, in order.
    classes = dict.fromkeys(type(layer) for layer in encoder_and_its_bases(encoder))
    code = " ".join(filter(None, map(code_hashes, classes)))
    if code:
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
        """Find the file of a module, as the base class ``ModuleFinder`` does.

        Unlike it, also find packages without ``__init__.py``, and ignore other packages than
        ``self.package`` (an empty name: ignore none).

        Args:
            name: The last part of the module's name.
            path: The folders of its package; None at the top level.
            parent: The package's module, passed on.

        Returns:
            As the base class: the open file, its path, and a triple that describes its kind. For
            a package without ``__init__.py``: None, the path of its folder, and the kind.

        Raises:
            ImportError: There is no such module, or it is of a package to ignore.
        """
        is_top_level = path is None
        if is_top_level and self.package not in ("", name):
            raise ImportError(name)
        candidates = [Path(folder, name) for folder in path or self.path]
        package_folder = next((folder for folder in candidates if folder.is_dir()), None)
        if package_folder is None:
            return super().find_module(name, path, parent)
        has_init_file = (package_folder / "__init__.py").is_file()
        # Python prefers a file `name.py` to a folder `name` without `__init__.py`.
        has_file_beside = package_folder.with_suffix(".py").is_file()
        if has_init_file or has_file_beside:
            return super().find_module(name, path, parent)
        # No suffix and no mode of a file, and the number that stands for a package.
        return None, str(package_folder), ("", "", PACKAGE_KIND)

    def load_package(self, fqname: str, pathname: str) -> Any:  # noqa: ANN401 - as its base's
        """Load a package as the base class does; one without ``__init__.py`` has only a path."""
        if (Path(pathname) / "__init__.py").is_file():
            return super().load_package(fqname, pathname)
        module: Any = self.add_module(fqname)
        module.__path__ = [pathname]
        return module


def code_hashes(kind: type) -> str:
    """Return the hashes of the file of a user's class and of the user's files that it imports.

    Files count that are imported directly or by other imports. The user's files are those of the
    same package as the class. For a module of no package they are the files beside it.

    Args:
        kind: The class.

    Returns:
        The SHA-256 hashes, sorted by the paths of the files, with blanks between them; empty if
        the class has no file, or is one of stsbench's own.
    """
    class_file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not class_file or provenance.is_own_class(kind):
        return ""
    path = Path(class_file)
    # A program that was started as a script has the name "__main__"; it is imported by its file's.
    module_name = path.stem if kind.__module__ == "__main__" else kind.__module__
    # The folder that holds the outermost package: one level up per package around the module.
    n_packages = module_name.count(".") + (path.name == "__init__.py")
    folder = path.parents[n_packages]
    has_package = "." in module_name
    is_installed = folder.name in ("site-packages", "dist-packages")
    # The files beside a module of no package are the user's, but not where packages are installed:
    # there only modules under the first part of its name count. An empty name lets all count.
    package = module_name.partition(".")[0] if has_package or is_installed else ""
    # Finds the imported modules below the folder.
    finder = _OwnModules(folder, package)
    # A file may have been removed, or hold no valid Python: then those read so far count.
    with suppress(ImportError, OSError, ValueError, SyntaxError, RecursionError):
        # This reads the module and all that it imports into ``finder.modules``, and runs nothing.
        finder.import_hook(module_name)
    imported_files = [getattr(module, "__file__", None) for module in finder.modules.values()]
    files = {class_file, *filter(None, imported_files)}
    return " ".join(file_sha256(Path(file)) for file in sorted(files) if Path(file).is_file())
