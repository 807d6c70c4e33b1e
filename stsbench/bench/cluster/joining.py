"""Ray, started on this machine or joined where it runs; what its machines share, and how a checkpoint comes to all of them."""

from __future__ import annotations

import hashlib
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stsbench import settings
from stsbench.bench.cluster.worker import Files, write_missing
from stsbench.encoders.checkpoints.checkpoint import NOT_READ_SUFFIXES, Checkpoint
from stsbench.errors import StsbenchError, one_line
from stsbench.files.whole import remove, write_whole

Ray = Any
"""The package ``ray``, which may be missing and has no types, or an object of it."""
Reference = Any
"""Ray's reference of an object that it holds."""
Sent = tuple[Mapping[str, Any], Mapping[Path, Reference]]
"""A checkpoint on its way: its fields, and Ray's references of the :data:`Files` of its folders that some machine lacks."""
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


@contextmanager
def joined(on: str) -> Iterator[Ray]:
    """The package ``ray``, connected: to ``ray://HOST:PORT``, to ``RAY_ADDRESS``, or to a Ray that starts here and ends here.

    Raises:
        StsbenchError: Ray is not installed, or no cluster answers at the address.
    """
    if find_spec("ray") is None:
        raise StsbenchError("--on ray needs Ray, which is not installed; run: pip install 'stsbench[ray]'")
    settings.keep_ray_silent()
    ray = import_module("ray")
    address = on if "://" in on else settings.ray_address() or "local"
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    if address != "local":
        options = {"runtime_env": {"env_vars": settings.for_workers()}}
    try:
        with warnings.catch_warnings():
            # What it warns of while it waits for an answer, its error says too.
            warnings.simplefilter("ignore")
            ray.init(address, **options, **QUIET)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        what = f"no Ray cluster answers at '{address}'" if address != "local" else "Ray does not start"
        # A client without a token waits in vain, and is not told why.
        hint = "" if address == "local" else "; where it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        raise StsbenchError(f"{what}: {one_line(error)[:200]}{hint}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def is_alone(on: str) -> bool:
    """Whether :func:`joined` starts a Ray of its own, on this machine alone."""
    return "://" not in on and settings.ray_address() in ("", "local")


def is_everywhere(ray: Ray, path: Path) -> bool:
    """Whether every machine of the cluster sees a path that this one has."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0)(Path.exists)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    try:
        return all(ray.get([ask.options(scheduling_strategy=place).remote(path) for place in places]))
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


@contextmanager
def files_lent(ray: Ray) -> Iterator[None]:
    """As long as it lasts, Ray takes a checkpoint's files along with an encoder where some machine does not see them."""
    lent: dict[Path, Reference | None] = {}

    def sent(checkpoint: Checkpoint) -> Sent:
        folders = {checkpoint.folder, *(path.parent for path in checkpoint.weights)}
        for folder in folders.difference(lent):
            lent[folder] = None if is_everywhere(ray, folder) else ray.put(files_of(folder))
        return vars(checkpoint), {folder: lent[folder] for folder in folders if lent[folder] is not None}

    ray.util.register_serializer(Checkpoint, serializer=sent, deserializer=settled)
    try:
        yield
    finally:
        ray.util.deregister_serializer(Checkpoint)


def settled(sent: Sent) -> Checkpoint:
    """A checkpoint on this machine: where it was, or with its files in the cache folder, written once a machine."""
    fields, lent = sent
    places = {folder: folder if folder.is_dir() else _copy(files) for folder, files in lent.items()}
    weights = tuple(places.get(path.parent, path.parent) / path.name for path in fields["weights"])
    folder: Path = fields["folder"]
    return Checkpoint(folder=places.get(folder, folder), revision=fields["revision"], weights=weights)


def _copy(lent: Reference) -> Path:
    import ray

    files: Files = dict(ray.get(lent))
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    copy = settings.cache_folder() / "lent" / hashlib.sha256(repr(hashes).encode()).hexdigest()[:32]
    write_missing(files, copy)
    return copy


def files_of(folder: Path) -> Files:
    """What loading reads of a checkpoint's folder: configuration, tokenizer and the weights as safetensors."""
    unread = NOT_READ_SUFFIXES - {".safetensors"}
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in unread]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
