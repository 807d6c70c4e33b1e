"""What machines of a cluster share, and how an encoder's files come to one that lacks them: by Ray's object store."""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from stsbench import settings
from stsbench.bench.cluster.joining import Ray, Reference
from stsbench.encoders.checkpoints.checkpoint import NOT_READ_SUFFIXES, Checkpoint
from stsbench.errors import EncoderError, one_line
from stsbench.files.whole import remove, write_whole

Files = Mapping[str, bytes]
"""Files by their path in a folder."""


class Parcel(NamedTuple):
    """An object as bytes, and by their folders the checkpoints that some machine lacks."""

    content: bytes
    folders: Mapping[str, Reference]
    """Ray's references of the :data:`Files` in each."""


def is_everywhere(ray: Ray, path: Path) -> bool:
    """Whether every machine of the cluster sees a path that this one has."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def sees(path: str) -> bool:
        return Path(path).exists()

    ask = ray.remote(num_cpus=0)(sees)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    try:
        return all(ray.get([ask.options(scheduling_strategy=place).remote(str(path)) for place in places]))
    except ray.exceptions.RayError:
        # A machine was lost in between: not every one sees it.
        return False


def is_shared(ray: Ray, folder: Path) -> bool:
    """Whether a folder that this machine writes is the same on every machine."""
    mark = write_whole(folder / f".{secrets.token_hex(8)}", b"")
    try:
        return is_everywhere(ray, mark)
    finally:
        remove(mark)


def parcel_of(thing: object, lend: Callable[[Path], Reference | None]) -> Parcel:
    """An object as bytes; ``lend`` gives the reference of a folder's files where some machine lacks it.

    Raises:
        EncoderError: it cannot be sent to another process.
    """
    from ray import cloudpickle

    folders: dict[str, Reference] = {}

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, one: object) -> Any:  # noqa: ANN401 - pickle's own
            if not isinstance(one, Checkpoint):
                return super().reducer_override(one)
            for folder in (one.folder, *(path.parent for path in one.weights)):
                if str(folder) not in folders and (lent := lend(folder)) is not None:
                    folders[str(folder)] = lent
            return settled, (asdict(one),)

    stream = io.BytesIO()
    try:
        Packer(stream).dump(thing)
    except Exception as error:  # whatever a user's object raises that cannot be sent
        raise EncoderError(f"cannot be sent to another process ({one_line(error)[:200]}); leave out --on") from error
    return Parcel(stream.getvalue(), folders)


def open_parcel(packed: Parcel, get: Callable[[Reference], Files]) -> Any:  # noqa: ANN401 - whatever was packed
    """The object, its checkpoints where this machine has them: where they were, or in its cache folder."""
    from ray import cloudpickle

    _LENT.clear()
    _LENT.update({folder: (reference, get) for folder, reference in packed.folders.items()})
    return cloudpickle.loads(packed.content)


_LENT: dict[str, tuple[Reference, Callable[[Reference], Files]]] = {}
"""For the checkpoints of the object that is unpacked now."""


def settled(fields: Mapping[str, Any]) -> Checkpoint:
    """A checkpoint on this machine."""
    weights = tuple(_here(path.parent) / path.name for path in fields["weights"])
    return Checkpoint(folder=_here(fields["folder"]), revision=fields["revision"], weights=weights)


def _here(folder: Path) -> Path:
    """A folder, or its copy in the cache; written once a machine."""
    if folder.is_dir() or str(folder) not in _LENT:
        return folder
    reference, get = _LENT[str(folder)]
    files = get(reference)
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    copy = settings.cache_folder() / "lent" / digest.hexdigest()[:32]
    for name, content in files.items():
        if not (copy / name).is_file():
            write_whole(copy / name, content)
    return copy


def files_of(folder: Path) -> Files:
    """What loading reads of a checkpoint's folder: configuration, tokenizer and the weights as safetensors."""
    unread = NOT_READ_SUFFIXES - {".safetensors"}
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in unread]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
