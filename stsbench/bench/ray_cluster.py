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
    """Check, on a worker's machine, that packages have the same versions as where the run started.

    A version that is unknown on one of the machines (empty, such as a commit) is not compared.

    Args:
        versions: The versions on the machine where the run started, by package.

    Raises:
        VersionMismatch: Names this machine and the differences.
    """
    # Of a package that is missing here it is the text "not installed".
    installed = scoring_versions(versions)
    differences = [
        f"{package} {installed[package]} (not {version})"
        for package, version in versions.items()
        if version and installed[package] and version != installed[package]
    ]
    if differences:
        raise VersionMismatch(
            f"the worker {socket.gethostname()} has other versions than the machine of the run: "
            f"{', '.join(differences)}; its scores could differ: "
            "install the same versions on all machines"
        )


def call_or_return_error(function: Callable[[], ResultT]) -> ResultT | Exception:
    """Call a function, and return its result, or the error that it raised as an object.

    A StsbenchError, which is meant for the user, is returned as it is. Any other exception is a bug
    and becomes a RuntimeError with its message and traceback, because not every exception can be
    sent to another process.
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
_ANSI_COLOR_PATTERN = re.compile(r"\x1b\[\d+m")
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
    """Return the result of a job, or an error object that tells why there is none.

    Args:
        ray: The package ``ray``.
        reference: Ray's reference to the result of a job that has ended.

    Returns:
        The result. If the job's code raised an exception: a RuntimeError with its message and
        traceback. If the worker or its machine was lost: a :class:`WorkerLost`.
    """
    try:
        # A job may also have returned an error object of its own.
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # The cause is the exception that the job's code raised; Ray's error has its traceback too.
        bug = RuntimeError(as_one_line(error.cause)[:300])
        bug.add_note(_ANSI_COLOR_PATTERN.sub("", str(error)))
        return bug
    except ray.exceptions.RayError as error:
        # Texts for the commonest classes of Ray's errors, such as "its worker was killed …".
        return WorkerLost(
            LOSS_REASONS.get(type(error).__name__)
            or as_one_line(error)[:300]
            or type(error).__name__
        )


@contextmanager
def connect_ray(executor: str, libraries: Iterable[str] = ()) -> Iterator[Ray]:
    """Connect to a Ray cluster, or start Ray on this machine, for the duration of a ``with`` block.

    At the end of the block Ray is disconnected or stopped. On a cluster, all machines must have
    the package versions of this one.

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
    # The executor has no address, and RAY_ADDRESS is unset or "local".
    is_own_ray = starts_own_ray(executor)
    if is_own_ray:
        options: dict[str, Any] = {"include_dashboard": False}
    else:
        # Workers on other machines get the environment variables that matter here.
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
            # Those of Python, stsbench, torch, numpy and a few more, and of the libraries.
            check_cluster_versions(ray, scoring_versions(libraries))
        yield ray
    finally:
        ray.shutdown()


def starts_own_ray(executor: str) -> bool:
    """Return whether :func:`connect_ray` starts a Ray of its own, on this machine only."""
    return "://" not in executor and settings.ray_address() in ("", "local")


def check_cluster_versions(ray: Ray, versions: Mapping[str, str]) -> None:
    """Check that all machines of a cluster have the package versions of this machine.

    Machines that join the cluster later are checked with their first job.

    Args:
        ray: The package ``ray``, which is connected to the cluster.
        versions: The versions on this machine, by package.

    Raises:
        StsbenchError: Names the machine and the differences.
    """
    check_machine = partial(check_versions, versions)
    # The outcome of a machine is None if it has the versions, otherwise an error object.
    for outcome in _call_on_each_machine(ray, call_or_return_error, check_machine):
        if isinstance(outcome, VersionMismatch):
            raise outcome
        if isinstance(outcome, Exception):
            reason = as_one_line(outcome)[:200]
            raise StsbenchError(
                f"a machine of the cluster does not say which versions it has: {reason}"
            ) from outcome


def exists_on_every_machine(ray: Ray, path: Path) -> bool:
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
        The result of each machine; an error object if the function could not be called there.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Without CPUs of its own it need not wait until a machine is free.
    remote = ray.remote(num_cpus=0)(function)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    strategies = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    references = [
        remote.options(scheduling_strategy=strategy).remote(*arguments) for strategy in strategies
    ]
    return [fetch_result(ray, reference) for reference in references]


def is_shared_folder(ray: Ray, folder: Path) -> bool:
    """Return whether all machines of a Ray cluster see the same folder at this path.

    A file with a random name is written to it here, looked for on each machine, and removed.

    Args:
        ray: The package ``ray``, which is connected to the cluster.
        folder: The folder, on this machine.
    """
    marker_file = write_atomically(folder / f".{secrets.token_hex(8)}", b"")
    try:
        return exists_on_every_machine(ray, marker_file)
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
    """Let Ray send the files of checkpoints to machines that lack them, within a ``with`` block.

    A checkpoint is the folder with an encoder's files. When Ray sends an encoder, it sends a
    :class:`SentCheckpoint` in place of its checkpoint.
    """
    reference_by_folder: dict[Path, Reference | None] = {}
    """Ray's reference to the files of a folder; None if every machine sees the folder."""

    def send_checkpoint(checkpoint: Checkpoint) -> SentCheckpoint:
        """Return what Ray sends in place of a checkpoint: its fields and its files.

        The files of a folder that some machine lacks are stored in Ray once, at the first call, and
        ``reference_by_folder`` then has Ray's reference to them.
        """
        # Files of weights may lie in other folders than the checkpoint's.
        folders = {checkpoint.folder, *(path.parent for path in checkpoint.weights)}
        for folder in folders.difference(reference_by_folder):
            # None: every machine has the folder.
            reference_by_folder[folder] = None
            if not exists_on_every_machine(ray, folder):
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
    """Return a checkpoint (an encoder's folder of files) that another machine has sent by Ray.

    If this machine lacks the folder, its files are written to the cache folder, once per machine.

    Args:
        sent_checkpoint: The fields of the checkpoint, and Ray's references to the files of those
            folders that at least one machine lacks.

    Returns:
        The checkpoint with paths that exist on this machine.
    """
    local_folders: dict[Path, Path] = {}
    for folder, reference in sent_checkpoint.reference_by_folder.items():
        local_folders[folder] = folder
        # Some machine lacks the folder, but not necessarily this one.
        if not folder.is_dir():
            import ray

            # Returns the folder, which is named by a hash of the files.
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
    """Return the files that are needed to load an encoder from a checkpoint's folder.

    They are its configuration, its tokenizer and its weights as safetensors.

    Args:
        folder: The checkpoint's folder.

    Returns:
        The content of each file, by its path in the folder.
    """
    # Weights in other formats than safetensors, documents, images and logs are not read.
    unread_suffixes = IGNORED_SUFFIXES - {".safetensors"}
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in unread_suffixes
    ]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
