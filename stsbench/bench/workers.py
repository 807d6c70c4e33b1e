"""What a worker does: embed a share of an encoder's batches, or score tasks on what is embedded. Nothing here needs Ray."""

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
from typing import Any, TypeVar

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
from stsbench.encoders.checkpoint import NOT_READ_SUFFIXES, Checkpoint
from stsbench.encoders.engine.embed import BatchShare, Engine, tokenize_texts
from stsbench.encoders.engine.store import EmbeddingStore, Keys
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.tokens import TokenIds
from stsbench.results.record import Result

T = TypeVar("T")
Files = Mapping[str, bytes]
"""Files by their path in a folder."""
TRIES = 3
"""So often is a piece of work begun before it has failed."""
WAIT_SECONDS = 0.5
REPORT_SECONDS = 0.5
STOP_SECONDS = 20.0
"""So long are workers waited for that write what they have when a run is stopped."""


def blocks_of(shelf: EmbeddingStore) -> Files:
    """The stored embeddings of one encoder, and what is kept of how they were made."""
    found = shelf.folder.glob("*.*") if shelf.folder is not None else ()
    return {path.name: path.read_bytes() for path in found if path.suffix in (".npy", ".json")}


def write_missing(files: Files, folder: Path) -> None:
    """Write those of some files that a folder lacks."""
    for name, content in files.items():
        if not (folder / name).exists():
            write_atomically(folder / name, content)


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What a worker hands back; and what those that score an encoder are handed of those that have embedded for it."""

    results: Sequence[Result] = ()
    failed: Sequence[tuple[str, Exception]] = ()
    """What of it cannot be scored, and why."""
    tokens: TokenIds | None = None
    encoded: Sequence[Keys] = ()
    """The keys of what is embedded."""
    blocks: Files = field(default_factory=dict)
    """Where the store is not shared, all that the worker's own holds of the encoder."""
    drift_message: str = ""
    """What became of embeddings that were stored before."""
    current: Sequence[Result] = ()
    """Those of the earlier results that still count."""
    notices: Sequence[str] = ()
    device: str | None = None
    seconds: float = 0.0


Report = tuple[int, str, float]
"""The number of a piece, who works on it, and the share of it that is done, in [0, 1]."""


@dataclass
class ProgressReporter:
    """Tells the run how far a worker is, not too often."""

    job_id: int
    report: Callable[[Report], None]
    last: float = field(default=-REPORT_SECONDS, init=False)

    def __call__(self, done: int, total: int) -> None:
        """So much is done."""
        now = time.monotonic()
        if now - self.last >= REPORT_SECONDS:
            self.last = now
            self.report(
                (
                    self.job_id,
                    f"{socket.gethostname()}:{os.getpid()}",
                    done / total if total else 0.0,
                )
            )


class VersionMismatch(StsbenchError):
    """A worker has other versions of what makes scores than the machine of the run."""


def check_versions(wanted: Mapping[str, str]) -> None:
    """Refuse to work here where versions differ from the run's; a commit counts where both machines know one.

    Raises OtherVersions: names the machine and what differs.
    """
    installed = scoring_versions(wanted)
    differences = [
        f"{name} {installed[name]} (not {version})"
        for name, version in wanted.items()
        if version != installed[name] and version and installed[name]
    ]
    if differences:
        raise VersionMismatch(
            f"the worker {socket.gethostname()} has other versions than the machine of the run: "
            f"{', '.join(differences)}; its scores could differ: install the same versions on all machines"
        )


def catch_errors(work: Callable[[], T]) -> T | Exception:
    """Do some work; what it raises is returned, a bug as words and traceback: not every error can be sent."""
    try:
        return work()
    except StsbenchError as error:
        return error
    except Exception as error:
        bug = RuntimeError(join_lines(error) or type(error).__name__)
        bug.add_note(traceback.format_exc())
        return bug


_ENCODERS: dict[str, Encoder] = {}
"""The encoder that this process has embedded with last, by what identifies it."""


def get_encoder(encoder: Encoder) -> Encoder:
    """The same encoder as this process embedded with last, where it is one: its weights are loaded."""
    identified = encoder_identity(encoder)
    if identified is None:
        return encoder
    if identified not in _ENCODERS:
        _ENCODERS.clear()
        _ENCODERS[identified] = encoder
    return _ENCODERS[identified]


def compare_earlier(
    tell: ProgressReporter,
    known: NamedEncoder,
    plan: RunPlan,
    earlier: Sequence[Result],
    *tasks: PlannedTask,
) -> JobResult:
    """See whether an encoder still embeds as for its stored embeddings and for its earlier results."""
    noticed = list[str]()
    listener = RunCallbacks(on_notice=noticed.append)
    if base_encoder(known.encoder) is known.encoder:
        known = replace(known, encoder=get_encoder(known.encoder))
    embedder = TaskEmbedder(known, tasks, plan, listener)
    by_name = {task.name: task for task in embedder.tasks}
    results = {
        (by_name[result.task], result.eval_seed): result
        for result in earlier
        if result.task in by_name
    }
    current = select_current(embedder, results, listener)
    said = next(filter(None, map(embedder.drift_message, embedder.tasks)), "")
    return JobResult(current=list(current.values()), drift_message=said, notices=noticed)


def tokenise(
    tell: ProgressReporter, known: NamedEncoder, texts: Sequence[str], share: BatchShare
) -> JobResult:
    """The tokens of a share of texts, for all who embed them."""
    encoder = get_encoder(base_encoder(known.encoder))
    if not isinstance(encoder, TokenEncoder):
        raise TypeError(f"{type(encoder).__name__} has no tokens")
    return JobResult(tokens=tokenize_texts(encoder, share.select_texts(texts)))


def embed(
    tell: ProgressReporter,
    known: NamedEncoder,
    texts: Sequence[str],
    share: BatchShare,
    store: Store,
    shared: bool,
    *tokenised: JobResult,
) -> JobResult:
    """Embed a share of the batches that are planned over all texts, which are sorted, into the store.

    A store that is not ``shared`` is this machine's own: whether the encoder still embeds as it did is seen here, and
    what it holds is handed back. ``tokenised`` has the tokens of all texts, where others have made them.
    """
    started, noticed, encoder = (
        time.perf_counter(),
        list[str](),
        get_encoder(base_encoder(known.encoder)),
    )
    shelf = open_store(store, encoder, checked=shared)
    engine = Engine(encoder, shelf, on_progress=tell, on_notice=noticed.append)
    tokens = [one.tokens for one in tokenised if one.tokens is not None]
    engine.prepare(texts, share=share, tokens=TokenIds.join(tokens) if tokens else None)
    return JobResult(
        encoded=engine.encoded_keys,
        blocks={} if shared else blocks_of(shelf),
        drift_message=shelf.monitor.message if shelf.monitor is not None else "",
        notices=noticed,
        device=read_metadata(encoder).device_used,
        seconds=time.perf_counter() - started,
    )


def score(
    tell: ProgressReporter,
    known: NamedEncoder,
    plan: RunPlan,
    seeds: Sequence[Sequence[int]],
    embedded: JobResult | None,
    *tasks: PlannedTask,
) -> JobResult:
    """Score an encoder on tasks, on what is embedded or, where that is None, is embedded on the way.

    Raises EncoderError: embeddings that must be in the store are not.
    """
    noticed, failures = list[str](), list[tuple[str, Exception]]()
    listener = RunCallbacks(
        on_embedding=tell,
        on_notice=noticed.append,
        on_failure=lambda what, error: failures.append((what, error)),
    )
    if embedded is not None and embedded.blocks:
        shelf = open_store(plan.store, base_encoder(known.encoder), read_only=True)
        write_missing(embedded.blocks, shelf.folder or Path())
    # What is fitted over another may lack a fit here that is kept where the run began, and embed for it.
    only_look = embedded is not None and not isinstance(known.encoder, FittableEncoder)
    embedder = TaskEmbedder(known, tasks, plan, listener, read_only=only_look)
    if embedded is not None and (shared := embedder.plan_shared_embedding(tasks)) is not None:
        engine, _ = shared
        if missing := len(engine.missing_texts([text for task in tasks for text in task.texts()])):
            raise EncoderError(
                f"{missing} embeddings that were stored are not in the store '{engine.store.folder}' as it is seen on "
                f"{socket.gethostname()}; pass --store with a folder that all machines share"
            )
        engine.encoded_keys.extend(embedded.encoded)
        if engine.store.monitor is not None:
            engine.store.monitor.message = embedded.drift_message
    wanted = dict.fromkeys(
        (task, seed) for task, mine in zip(tasks, seeds, strict=True) for seed in mine
    )
    results = list(score_tasks(embedder, wanted, callbacks=listener))
    return JobResult(
        results=results,
        failed=failures,
        notices=noticed,
        device=read_metadata(known.encoder).device_used,
    )


LOST = {
    "WorkerCrashedError": "its worker was killed or has crashed",
    "NodeDiedError": "the machine that it ran on was lost",
    "LocalRayletDiedError": "Ray on this machine was lost",
    "OutOfMemoryError": "the machine's memory was full, and Ray has ended its worker",
}
_COLOURS = re.compile(r"\x1b\[\d+m")


class WorkerLost(StsbenchError):
    """A worker, its machine or what it was to be handed is lost."""


Ray = Any
"""The package ``ray``, which may be missing and has no types, or an object of it."""
Reference = Any
"""Ray's reference of an object that it holds."""
Sent = tuple[Mapping[str, Any], Mapping[Path, Reference]]
"""A checkpoint on its way: its fields, and Ray's references of the :data:`Files` of its folders that some machine lacks."""
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


def fetch_result(ray: Ray, reference: Reference) -> Any:  # noqa: ANN401 - whatever it is
    """What a worker has returned, or why nothing: a bug as words and traceback, or :class:`WorkerLost`."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        bug = RuntimeError(join_lines(error.cause)[:300])
        bug.add_note(_COLOURS.sub("", str(error)))
        return bug
    except ray.exceptions.RayError as error:
        return WorkerLost(
            LOST.get(type(error).__name__) or join_lines(error)[:300] or type(error).__name__
        )


@contextmanager
def connect_ray(on: str, libraries: Iterable[str] = ()) -> Iterator[Ray]:
    """Connect to Ray: to ``ray://HOST:PORT``, to ``RAY_ADDRESS``, or to a Ray that starts here and ends here.

    Args:
        on: The executor, as ``--on`` names it.
        libraries: The packages that encoders name, which all machines need in the same versions.

    Yields:
        The package ``ray``.

    Raises:
        StsbenchError: Ray is not installed, no cluster answers at the address, or a machine has other versions.
    """
    if find_spec("ray") is None:
        raise StsbenchError(
            "--on ray needs Ray, which is not installed; run: pip install 'stsbench[ray]'"
        )
    settings.keep_ray_silent()
    ray = import_module("ray")
    address, alone = on if "://" in on else settings.ray_address() or "local", is_alone(on)
    options = (
        {"include_dashboard": False}
        if alone
        else {"runtime_env": {"env_vars": settings.for_workers()}}
    )
    try:
        with warnings.catch_warnings():
            # What it warns of while it waits for an answer, its error says too.
            warnings.simplefilter("ignore")
            ray.init(address, **options, **QUIET)
    except Exception as error:  # Ray raises a bare Exception where it starts too slowly
        why = join_lines(error)[:200]
        if alone:
            raise StsbenchError(f"Ray does not start: {why}") from error
        # A client without a token waits for nothing, and is told no reason.
        hint = "where it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        raise StsbenchError(f"no Ray cluster answers at '{address}': {why}; {hint}") from error
    try:
        if not alone:
            refuse_others(ray, scoring_versions(libraries))
        yield ray
    finally:
        ray.shutdown()


def is_alone(on: str) -> bool:
    """Whether :func:`connect_ray` starts a Ray of its own, on this machine alone."""
    return "://" not in on and settings.ray_address() in ("", "local")


def refuse_others(ray: Ray, versions: Mapping[str, str]) -> None:
    """Refuse a cluster with a machine that has other versions; one that joins later is refused with its first piece.

    Raises StsbenchError: names the machine and what differs.
    """
    for found in _each_machine(ray, catch_errors, partial(check_versions, versions)):
        if isinstance(found, VersionMismatch):
            raise found
        if isinstance(found, Exception):
            why = join_lines(found)[:200]
            raise StsbenchError(
                f"a machine of the cluster does not say which versions it has: {why}"
            ) from found


def is_everywhere(ray: Ray, path: Path) -> bool:
    """Whether every machine of the cluster sees a path that this one has."""
    # One that was lost in between does not.
    return all(found is True for found in _each_machine(ray, Path.exists, path))


def _each_machine(ray: Ray, ask: Callable[..., object], *given: object) -> list[Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0)(ask)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    asked = [remote.options(scheduling_strategy=place).remote(*given) for place in places]
    return [fetch_result(ray, reference) for reference in asked]


def is_shared(ray: Ray, folder: Path) -> bool:
    """Whether a folder that this machine writes is the same on every machine."""
    mark = write_atomically(folder / f".{secrets.token_hex(8)}", b"")
    try:
        return is_everywhere(ray, mark)
    finally:
        remove(mark)


def stop_jobs(ray: Ray, references: Sequence[Reference]) -> None:
    """End what is under way, as Ctrl-C does: workers write what they have embedded or trained."""
    with suppress(ray.exceptions.RayError):
        for reference in references:
            ray.cancel(reference)
        if references:
            ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)


@contextmanager
def serve_files(ray: Ray) -> Iterator[None]:
    """As long as it lasts, Ray takes a checkpoint's files along with an encoder where some machine does not see them."""
    lent: dict[Path, Reference | None] = {}

    def sent(checkpoint: Checkpoint) -> Sent:
        folders = {checkpoint.folder, *(path.parent for path in checkpoint.weights)}
        for folder in folders.difference(lent):
            lent[folder] = None if is_everywhere(ray, folder) else ray.put(files_of(folder))
        return vars(checkpoint), {
            folder: lent[folder] for folder in folders if lent[folder] is not None
        }

    ray.util.register_serializer(Checkpoint, serializer=sent, deserializer=is_finished)
    try:
        yield
    finally:
        ray.util.deregister_serializer(Checkpoint)


def is_finished(sent: Sent) -> Checkpoint:
    """A checkpoint on this machine: where it was, or with its files in the cache folder, written once a machine."""
    fields, lent = sent
    places: dict[Path, Path] = {}
    for folder, reference in lent.items():
        places[folder] = folder
        if not folder.is_dir():
            import ray

            files: Files = dict(ray.get(reference))
            hashes = {
                name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())
            }
            digest = hashlib.sha256(repr(hashes).encode()).hexdigest()[:32]
            places[folder] = settings.cache_folder() / "lent" / digest
            write_missing(files, places[folder])
    weights = tuple(places.get(path.parent, path.parent) / path.name for path in fields["weights"])
    home: Path = fields["folder"]
    return Checkpoint(folder=places.get(home, home), revision=fields["revision"], weights=weights)


def files_of(folder: Path) -> Files:
    """What loading reads of a checkpoint's folder: configuration, tokenizer and the weights as safetensors."""
    unread = NOT_READ_SUFFIXES - {".safetensors"}
    paths = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in unread
    ]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
