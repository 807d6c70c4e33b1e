"""The connection to Ray, and what passes between its machines: errors, files and versions."""

from __future__ import annotations

import hashlib
import re
import secrets
import socket
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stsbench.core import settings
from stsbench.core.errors import StsbenchError
from stsbench.core.files import remove, write_atomically
from stsbench.core.provenance import scoring_versions
from stsbench.core.wording import as_one_line
from stsbench.encoders.checkpoint import IGNORED_SUFFIXES, Checkpoint

ResultT = TypeVar("ResultT")
Files = Mapping[str, bytes]
"""The content of files, by their path in a folder."""
MAX_TRIES = 3
"""How often a job is tried before it counts as failed."""
WAIT_SECONDS = 0.5
"""How long a run waits for a finished job before it reports progress."""
STOP_SECONDS = 20.0
"""How long stopped workers may take to write what they have."""


def write_missing(files: Files, folder: Path) -> None:
    """Write those files that a folder lacks."""
    for name, content in files.items():
        if not (folder / name).exists():
            write_atomically(folder / name, content)


class VersionMismatch(StsbenchError):
    """A worker has other versions of the packages that make scores than the machine of the run."""


def check_versions(versions: Mapping[str, str]) -> None:
    """Check that this machine has the versions of the run.

    A commit is compared only if both machines know theirs.

    Args:
        versions: The versions of the run's machine, by package.

    Raises:
        VersionMismatch: Names this machine and the differences.
    """
    installed = scoring_versions(versions)
    differences = [
        f"{package} {installed[package]} (not {version})"
        for package, version in versions.items()
        if version != installed[package] and version and installed[package]
    ]
    if differences:
        raise VersionMismatch(
            f"the worker {socket.gethostname()} has other versions than the machine of the run: "
            f"{', '.join(differences)}; its scores could differ: "
            "install the same versions on all machines"
        )


def catch_errors(function: Callable[[], ResultT]) -> ResultT | Exception:
    """Call a function, and return its result or its error.

    An error that is not for the user becomes a RuntimeError with its message and traceback, because
    not every exception can be sent to another process.
    """
    try:
        return function()
    except StsbenchError as error:
        return error
    except Exception as error:
        bug = RuntimeError(as_one_line(error) or type(error).__name__)
        bug.add_note(traceback.format_exc())
        return bug


LOSS_REASONS = {
    "WorkerCrashedError": "its worker was killed or has crashed",
    "NodeDiedError": "the machine that it ran on was lost",
    "LocalRayletDiedError": "Ray on this machine was lost",
    "OutOfMemoryError": "the machine's memory was full, and Ray has ended its worker",
}
"""What has happened to a worker, by the class of Ray's error."""
_COLOURS = re.compile(r"\x1b\[\d+m")
"""The codes by which Ray colours a traceback for a terminal."""


class WorkerLost(StsbenchError):
    """A worker, its machine or an argument of its job is lost."""


Ray = Any
"""The package ``ray``, which may be missing and has no types, or an object of it."""
Reference = Any
"""Ray's reference to an object that it stores."""


class SentCheckpoint(NamedTuple):
    """A checkpoint that is sent to another machine."""

    fields: Mapping[str, Any]
    """The attributes of the checkpoint."""
    reference_by_folder: Mapping[Path, Reference]
    """Ray's references to the :data:`Files` of those folders that some machine lacks."""


QUIET_OPTIONS: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
"""The options of ``ray.init`` with which neither Ray nor its workers print anything but errors."""


def fetch_result(ray: Ray, reference: Reference) -> Any:  # noqa: ANN401 - whatever it is
    """Return the result of a job, or an error that tells why there is none; it is not raised.

    Args:
        ray: The package ``ray``.
        reference: Ray's reference to the result of a job that has ended.

    Returns:
        The result; without one a RuntimeError with the message and traceback of a bug, or
        :class:`WorkerLost`.
    """
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # The cause is the exception that the job's code raised; Ray's error has its traceback too.
        bug = RuntimeError(as_one_line(error.cause)[:300])
        bug.add_note(_COLOURS.sub("", str(error)))
        return bug
    except ray.exceptions.RayError as error:
        return WorkerLost(
            LOSS_REASONS.get(type(error).__name__)
            or as_one_line(error)[:300]
            or type(error).__name__
        )


@contextmanager
def connect_ray(executor: str, libraries: Iterable[str] = ()) -> Iterator[Ray]:
    """Connect to Ray, or start a Ray of its own; disconnected, or ended, with the block.

    On a cluster all machines are checked for the versions of this one.

    Args:
        executor: The executor as the user names it: ``ray://HOST:PORT`` for a cluster, ``ray`` for
            the address in ``RAY_ADDRESS``, or without one for a new Ray on this machine.
        libraries: The packages that encoders name, which all machines need in the same versions.

    Yields:
        The package ``ray``.

    Raises:
        StsbenchError: Ray is not installed, no cluster answers at the address, or a machine has
            other versions.
    """
    if find_spec("ray") is None:
        raise StsbenchError(
            "`executor=ray` needs Ray, which is not installed; run: pip install 'stsbench[ray]'"
        )
    settings.keep_ray_silent()
    ray = import_module("ray")
    is_address = "://" in executor
    address = executor if is_address else settings.ray_address() or "local"
    is_own_ray = starts_own_ray(executor)
    if is_own_ray:
        options: dict[str, Any] = {"include_dashboard": False}
    else:
        options = {"runtime_env": {"env_vars": settings.worker_environment()}}
    try:
        with warnings.catch_warnings():
            # The warnings while it waits for an answer repeat its error.
            warnings.simplefilter("ignore")
            ray.init(address, **options, **QUIET_OPTIONS)
    except Exception as error:  # Ray raises Exception itself if it starts too slowly
        reason = as_one_line(error)[:200]
        if is_own_ray:
            raise StsbenchError(f"Ray does not start: {reason}") from error
        # The error of a client without a token does not name the reason.
        raise StsbenchError(
            f"no Ray cluster answers at '{address}': {reason}",
            hint="if it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN",
        ) from error
    try:
        if not is_own_ray:
            check_cluster_versions(ray, scoring_versions(libraries))
        yield ray
    finally:
        ray.shutdown()


def starts_own_ray(executor: str) -> bool:
    """Return whether :func:`connect_ray` starts a Ray of its own, on this machine only."""
    return "://" not in executor and settings.ray_address() in ("", "local")


def check_cluster_versions(ray: Ray, versions: Mapping[str, str]) -> None:
    """Check that all machines of a cluster have the versions of the run.

    A machine that joins later is refused with its first job.

    Args:
        ray: The package ``ray``, which is connected to the cluster.
        versions: The versions of the run's machine, by package.

    Raises:
        StsbenchError: Names the machine and the differences.
    """
    check_machine = partial(check_versions, versions)
    for outcome in _call_on_each_machine(ray, catch_errors, check_machine):
        if isinstance(outcome, VersionMismatch):
            raise outcome
        if isinstance(outcome, Exception):
            reason = as_one_line(outcome)[:200]
            raise StsbenchError(
                f"a machine of the cluster does not say which versions it has: {reason}"
            ) from outcome


def is_everywhere(ray: Ray, path: Path) -> bool:
    """Return whether every machine of the cluster sees a path that this one has."""
    # A machine that was lost in between has an error in place of True.
    return all(exists is True for exists in _call_on_each_machine(ray, Path.exists, path))


def _call_on_each_machine(
    ray: Ray, function: Callable[..., object], *arguments: object
) -> list[Any]:
    """Call a function on each machine of the cluster.

    Args:
        ray: The package ``ray``, which is connected to the cluster.
        function: The function; it must be importable there.
        arguments: Its arguments.

    Returns:
        The result of each machine; an error as an object if it could not be called there.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0)(function)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    strategies = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    references = [
        remote.options(scheduling_strategy=strategy).remote(*arguments) for strategy in strategies
    ]
    return [fetch_result(ray, reference) for reference in references]


def is_shared_folder(ray: Ray, folder: Path) -> bool:
    """Return whether a folder that this machine writes is the same on every machine.

    A file of a random name is written to it, and looked for on each machine.
    """
    marker_file = write_atomically(folder / f".{secrets.token_hex(8)}", b"")
    try:
        return is_everywhere(ray, marker_file)
    finally:
        remove(marker_file)


def stop_jobs(ray: Ray, references: Sequence[Reference]) -> None:
    """Stop jobs as Ctrl-C does: workers write what they have embedded or trained."""
    with suppress(ray.exceptions.RayError):
        for reference in references:
            ray.cancel(reference)
        if references:
            ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)


@contextmanager
def serve_files(ray: Ray) -> Iterator[None]:
    """Within the block, let Ray send checkpoints' files to machines that do not see their folders.

    Where an encoder with a checkpoint is sent, Ray sends a :class:`SentCheckpoint` in its place.
    """
    reference_by_folder: dict[Path, Reference | None] = {}
    """Ray's reference to the files of a folder; None if every machine sees the folder."""

    def send_checkpoint(checkpoint: Checkpoint) -> SentCheckpoint:
        """Return what Ray sends of a checkpoint, with the files that some machine lacks."""
        folders = {checkpoint.folder, *(path.parent for path in checkpoint.weights)}
        for folder in folders.difference(reference_by_folder):
            reference_by_folder[folder] = None
            if not is_everywhere(ray, folder):
                reference_by_folder[folder] = ray.put(read_checkpoint_files(folder))
        missing_folders = {
            folder: reference_by_folder[folder]
            for folder in folders
            if reference_by_folder[folder] is not None
        }
        return SentCheckpoint(vars(checkpoint), missing_folders)

    ray.util.register_serializer(
        Checkpoint, serializer=send_checkpoint, deserializer=receive_checkpoint
    )
    try:
        yield
    finally:
        ray.util.deregister_serializer(Checkpoint)


def receive_checkpoint(sent_checkpoint: SentCheckpoint) -> Checkpoint:
    """Return a checkpoint on this machine: in its folder, or with its files in the cache folder.

    The files are written once per machine.
    """
    local_folders: dict[Path, Path] = {}
    for folder, reference in sent_checkpoint.reference_by_folder.items():
        local_folders[folder] = folder
        # Some machine lacks the folder, but not necessarily this one.
        if not folder.is_dir():
            import ray

            local_folders[folder] = _write_to_cache(dict(ray.get(reference)))

    def locate(folder: Path) -> Path:
        return local_folders.get(folder, folder)

    checkpoint = Checkpoint(**sent_checkpoint.fields)
    weights = tuple(locate(path.parent) / path.name for path in checkpoint.weights)
    return replace(checkpoint, folder=locate(checkpoint.folder), weights=weights)


def _write_to_cache(files: Files) -> Path:
    """Write files into a folder of the cache that is named by their content, and return it."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    files_digest = hashlib.sha256(repr(hashes).encode()).hexdigest()[:32]
    folder = settings.cache_folder() / "lent" / files_digest
    write_missing(files, folder)
    return folder


def read_checkpoint_files(folder: Path) -> Files:
    """Read those files of a checkpoint's folder that loading an encoder reads.

    They are its configuration, its tokenizer and its weights as safetensors. The keys are paths in
    the folder.
    """
    # Of the kinds of weights only safetensors are read.
    unread_suffixes = IGNORED_SUFFIXES - {".safetensors"}
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in unread_suffixes
    ]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
