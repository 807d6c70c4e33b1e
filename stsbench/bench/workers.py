"""The jobs of workers, and the connection to Ray, which distributes them.

A job embeds a share of an encoder's batches, or scores tasks; neither needs Ray.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stsbench.bench.embedder import TaskEmbedder, base_encoder, open_store
from stsbench.bench.plan import RunPlan, Store
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.bench.score import score_tasks, select_current
from stsbench.core import settings
from stsbench.core.errors import EncoderError, StsbenchError
from stsbench.core.files import remove, write_atomically
from stsbench.core.provenance import encoder_identity, scoring_versions
from stsbench.core.wording import join_lines
from stsbench.encoders.base import Encoder, FittableEncoder, TokenEncoder
from stsbench.encoders.checkpoint import IGNORED_SUFFIXES, Checkpoint
from stsbench.encoders.engine.embed import BatchShare, Engine, tokenize_texts
from stsbench.encoders.engine.store import EmbeddingStore, Keys
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.tokens import TokenIds
from stsbench.results.record import Result

ResultT = TypeVar("ResultT")
Files = Mapping[str, bytes]
"""The content of files, by their path in a folder."""
MAX_TRIES = 3
"""How often a job is tried before it counts as failed."""
WAIT_SECONDS = 0.5
"""How long a run waits for a finished job before it reports progress."""
REPORT_SECONDS = 0.5
"""The time between two reports of a job."""
STOP_SECONDS = 20.0
"""How long stopped workers may take to write what they have."""


def read_store_files(store: EmbeddingStore) -> Files:
    """Read the files of an encoder's store: embeddings, and metadata on how they were made."""
    paths = store.folder.glob("*.*") if store.folder is not None else ()
    return {path.name: path.read_bytes() for path in paths if path.suffix in (".npy", ".json")}


def write_missing(files: Files, folder: Path) -> None:
    """Write those files that a folder lacks."""
    for name, content in files.items():
        if not (folder / name).exists():
            write_atomically(folder / name, content)


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The result of a worker's job.

    Jobs that score an encoder also get one, with the results of the jobs that have embedded for it.
    """

    results: Sequence[Result] = ()
    failures: Sequence[tuple[str, Exception]] = ()
    """The cells that cannot be scored, as text, with their errors."""
    tokens: TokenIds | None = None
    """The tokens of a share of texts, if the job has made them."""
    encoded_keys: Sequence[Keys] = ()
    """The keys of the embedded sentences."""
    store_files: Files = field(default_factory=dict)
    """The files of the worker's own store of the encoder; empty if all share a store."""
    drift_message: str = ""
    """A message on archived embeddings; empty if there are none."""
    current_results: Sequence[Result] = ()
    """The earlier results that are current."""
    notices: Sequence[str] = ()
    """Messages for the user that are no errors."""
    device: str | None = None
    """The device that has embedded, for example ``cuda:0``."""
    embedding_seconds: float = 0.0
    """The time that embedding took."""


class Report(NamedTuple):
    """A report on the progress of a job."""

    job_id: int
    worker: str
    """The host and process of the worker."""
    fraction: float
    """The finished share of the job, in [0, 1]."""


@dataclass
class ProgressReporter:
    """Reports the progress of a job to the run, at most once in ``REPORT_SECONDS``."""

    job_id: int
    report: Callable[[Report], None]
    """Called with each report."""
    last_report: float = field(default=-REPORT_SECONDS, init=False)
    """The time of the last report."""

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` units are finished, unless that is too soon."""
        now = time.monotonic()
        if now - self.last_report >= REPORT_SECONDS:
            self.last_report = now
            worker = f"{socket.gethostname()}:{os.getpid()}"
            self.report(Report(self.job_id, worker, fraction=done / total if total else 0.0))


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
        bug = RuntimeError(join_lines(error) or type(error).__name__)
        bug.add_note(traceback.format_exc())
        return bug


_ENCODERS: dict[str, Encoder] = {}
"""The encoder that this process has embedded with last, by its identity."""


def get_encoder(encoder: Encoder) -> Encoder:
    """Return this process's last encoder if it has the same identity: its weights are loaded.

    Otherwise the argument is returned, and replaces the last encoder. One without an identity is
    returned and not remembered.
    """
    identity = encoder_identity(encoder)
    if identity is None:
        return encoder
    if identity not in _ENCODERS:
        _ENCODERS.clear()
        _ENCODERS[identity] = encoder
    return _ENCODERS[identity]


def compare_earlier_results(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    plan: RunPlan,
    earlier_results: Sequence[Result],
    *tasks: PlannedTask,
) -> JobResult:
    """Check whether an encoder still embeds as for its stored embeddings and earlier results.

    If it does not, its stored embeddings are archived.

    Args:
        report_progress: Not used; every job has it.
        named_encoder: The encoder.
        plan: The run, with the store of this machine.
        earlier_results: The earlier results.
        tasks: The tasks of these results, perhaps among others.

    Returns:
        The earlier results that are current, a message on archived embeddings, and notices.
    """
    notices = list[str]()
    callbacks = RunCallbacks(on_notice=notices.append)
    encoder = named_encoder.encoder
    is_its_own_base = base_encoder(encoder) is encoder
    # A variant or post-processor is not taken from memory: what is loaded there is its base.
    if is_its_own_base:
        named_encoder = replace(named_encoder, encoder=get_encoder(encoder))
    embedder = TaskEmbedder(named_encoder, tasks, plan, callbacks)
    task_by_name = {task.name: task for task in embedder.tasks}
    result_by_task_and_seed = {
        (task_by_name[result.task], result.eval_seed): result
        for result in earlier_results
        if result.task in task_by_name
    }
    current_results = select_current(embedder, result_by_task_and_seed, callbacks)
    drift_messages = map(embedder.drift_message, embedder.tasks)
    return JobResult(
        current_results=list(current_results.values()),
        drift_message=next(filter(None, drift_messages), ""),
        notices=notices,
    )


def tokenize_share(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    texts: Sequence[str],
    share: BatchShare,
) -> JobResult:
    """Tokenize a share of texts, for all workers that embed them; returns only ``tokens``.

    Args:
        report_progress: Not used; every job has it.
        named_encoder: The encoder.
        texts: All texts, sorted.
        share: The share of this job.
    """
    encoder = get_encoder(base_encoder(named_encoder.encoder))
    if not isinstance(encoder, TokenEncoder):
        raise TypeError(f"{type(encoder).__name__} has no tokens")
    return JobResult(tokens=tokenize_texts(encoder, share.select_texts(texts)))


def embed_share(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    texts: Sequence[str],
    share: BatchShare,
    store: Store,
    is_store_shared: bool,
    *tokenizing_results: JobResult,
) -> JobResult:
    """Embed a share of the batches that are planned over all texts, and store the embeddings.

    Args:
        report_progress: Called with the number of embedded sentences.
        named_encoder: The encoder.
        texts: All texts, sorted.
        share: The share of this job.
        store: The store of the run, or of this machine.
        is_store_shared: All machines see the same store, so it was checked already. If they do not,
            this machine checks its own, and returns its files.
        tokenizing_results: The results of the jobs that have tokenized, in the order of their
            shares; without them this job tokenizes.

    Returns:
        The keys of the embedded sentences, a message on archived embeddings, notices, the device
        and the time; if the store is not shared also its files.
    """
    started = time.perf_counter()
    notices: list[str] = []
    encoder = get_encoder(base_encoder(named_encoder.encoder))
    encoder_store = open_store(store, encoder, checked=is_store_shared)
    engine = Engine(encoder, encoder_store, on_progress=report_progress, on_notice=notices.append)
    tokens_of_shares = [
        job_result.tokens for job_result in tokenizing_results if job_result.tokens is not None
    ]
    tokens_of_all_texts = TokenIds.join(tokens_of_shares) if tokens_of_shares else None
    engine.prepare(texts, share=share, tokens=tokens_of_all_texts)
    return JobResult(
        encoded_keys=engine.encoded_keys,
        store_files={} if is_store_shared else read_store_files(encoder_store),
        drift_message=encoder_store.monitor.message if encoder_store.monitor is not None else "",
        notices=notices,
        device=read_metadata(encoder).device_used,
        embedding_seconds=time.perf_counter() - started,
    )


def score_tasks_of_job(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    plan: RunPlan,
    seeds_by_task: Sequence[Sequence[int]],
    embedding_result: JobResult | None,
    *tasks: PlannedTask,
) -> JobResult:
    """Score an encoder on tasks, and embed their sentences first if no other job has done it.

    Args:
        report_progress: Called with the number of embedded sentences.
        named_encoder: The encoder.
        plan: The run, with the store of this machine.
        seeds_by_task: The evaluation seeds to score of each task, in the order of ``tasks``.
        embedding_result: The joined results of the jobs that have embedded; None if this job
            embeds.
        tasks: The tasks, whose data are read already.

    Returns:
        The results, the cells that could not be scored, notices, and the device.

    Raises:
        EncoderError: Embeddings that were stored are not in the store of this machine.
    """
    notices: list[str] = []
    failures: list[tuple[str, Exception]] = []
    callbacks = RunCallbacks(
        on_embedding=report_progress,
        on_notice=notices.append,
        on_failure=lambda label, error: failures.append((label, error)),
    )
    if embedding_result is not None and embedding_result.store_files:
        # This machine's store is another than that of the jobs that embedded: it gets their files.
        store = open_store(plan.store, base_encoder(named_encoder.encoder), read_only=True)
        write_missing(embedding_result.store_files, folder=store.folder or Path())
    # An encoder that is fitted on texts may embed further ones here: what it has embedded to be
    # fitted may be stored only where the run began.
    may_embed_further = isinstance(named_encoder.encoder, FittableEncoder)
    read_only = embedding_result is not None and not may_embed_further
    embedder = TaskEmbedder(named_encoder, tasks, plan, callbacks, read_only=read_only)
    if embedding_result is not None:
        _record_embedded(embedder, tasks, embedding_result)
    # None of these cells has an earlier result.
    earlier_results = {
        (task, seed): None
        for task, seeds in zip(tasks, seeds_by_task, strict=True)
        for seed in seeds
    }
    results = list(score_tasks(embedder, earlier_results, callbacks=callbacks))
    return JobResult(
        results=results,
        failures=failures,
        notices=notices,
        device=read_metadata(named_encoder.encoder).device_used,
    )


def _record_embedded(
    embedder: TaskEmbedder, tasks: Sequence[PlannedTask], embedding_result: JobResult
) -> None:
    """Check that all embeddings are stored, and let the embedder report those of other jobs.

    Nothing is done if the jobs of an encoder do not embed together.

    Args:
        embedder: The embedder of this job; it then reports the sentences that other jobs have
            embedded as its own, and their message on archived embeddings.
        tasks: The tasks that this job scores.
        embedding_result: The keys of these sentences, and that message.

    Raises:
        EncoderError: Embeddings are missing.
    """
    shared_embedding = embedder.plan_shared_embedding(tasks)
    if shared_embedding is None:
        return
    engine = shared_embedding.engine
    n_missing = len(engine.missing_texts([text for task in tasks for text in task.texts()]))
    if n_missing:
        raise EncoderError(
            f"{n_missing} embeddings that were stored are not in the store "
            f"'{engine.store.folder}' as it is seen on {socket.gethostname()}",
            hint="pass `store` with a folder that all machines share",
        )
    engine.encoded_keys.extend(embedding_result.encoded_keys)
    if engine.store.monitor is not None:
        engine.store.monitor.message = embedding_result.drift_message


LOSS_REASONS = {
    "WorkerCrashedError": "its worker was killed or has crashed",
    "NodeDiedError": "the machine that it ran on was lost",
    "LocalRayletDiedError": "Ray on this machine was lost",
    "OutOfMemoryError": "the machine's memory was full, and Ray has ended its worker",
}
"""What has happened to a worker, by the class of Ray's error."""
_COLOURS = re.compile(r"\x1b\[\d+m")


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
        bug = RuntimeError(join_lines(error.cause)[:300])
        bug.add_note(_COLOURS.sub("", str(error)))
        return bug
    except ray.exceptions.RayError as error:
        return WorkerLost(
            LOSS_REASONS.get(type(error).__name__)
            or join_lines(error)[:300]
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
        reason = join_lines(error)[:200]
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
            reason = join_lines(outcome)[:200]
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
