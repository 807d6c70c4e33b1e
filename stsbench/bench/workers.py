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

from stsbench.bench.plan import Listener, RunPlan, ScoredTask, Store
from stsbench.bench.score import Embedder, open_shelf, score_tasks, select_current, what_embeds
from stsbench.core import settings
from stsbench.core.errors import EncoderError, StsbenchError, one_line
from stsbench.core.files import remove, write_whole
from stsbench.core.provenance import identity, scoring_versions
from stsbench.encoders.base import Encoder, KnownEncoder, TextFitted, TokenEncoder, TokenIds, facts_of
from stsbench.encoders.checkpoint import NOT_READ_SUFFIXES, Checkpoint
from stsbench.encoders.engine.embed import BatchShare, Engine, tokens_of
from stsbench.encoders.engine.store import Keys, Shelf
from stsbench.results.record import Result

T = TypeVar("T")
Files = Mapping[str, bytes]
"""Files by their path in a folder."""
TRIES = 3
"""So often is a piece of work begun before it has failed."""
WAIT_SECONDS = 0.5
TELL_SECONDS = 0.5
STOP_SECONDS = 20.0
"""So long are workers waited for that write what they have when a run is stopped."""


def blocks_of(shelf: Shelf) -> Files:
    """The stored embeddings of one encoder, and what is kept of how they were made."""
    found = shelf.folder.glob("*.*") if shelf.folder is not None else ()
    return {path.name: path.read_bytes() for path in found if path.suffix in (".npy", ".json")}


def write_missing(files: Files, folder: Path) -> None:
    """Write those of some files that a folder lacks."""
    for name, content in files.items():
        if not (folder / name).exists():
            write_whole(folder / name, content)


@dataclass(frozen=True, kw_only=True)
class Handed:
    """What a worker hands back; and what those that score an encoder are handed of those that have embedded for it."""

    results: Sequence[Result] = ()
    failed: Sequence[tuple[str, Exception]] = ()
    """What of it cannot be scored, and why."""
    tokens: TokenIds | None = None
    encoded: Sequence[Keys] = ()
    """The keys of what is embedded."""
    blocks: Files = field(default_factory=dict)
    """Where the store is not shared, all that the worker's own holds of the encoder."""
    said: str = ""
    """What became of embeddings that were stored before."""
    current: Sequence[Result] = ()
    """Those of the earlier results that still count."""
    noticed: Sequence[str] = ()
    device: str | None = None
    seconds: float = 0.0


Report = tuple[int, str, float]
"""The number of a piece, who works on it, and the share of it that is done, in [0, 1]."""


@dataclass
class Tell:
    """Tells the run how far a worker is, not too often."""

    piece: int
    send: Callable[[Report], None]
    last: float = field(default=-TELL_SECONDS, init=False)

    def __call__(self, done: int, total: int) -> None:
        """So much is done."""
        now = time.monotonic()
        if now - self.last >= TELL_SECONDS:
            self.last = now
            self.send((self.piece, f"{socket.gethostname()}:{os.getpid()}", done / total if total else 0.0))


class OtherVersions(StsbenchError):
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
        raise OtherVersions(
            f"the worker {socket.gethostname()} has other versions than the machine of the run: "
            f"{', '.join(differences)}; its scores could differ: install the same versions on all machines"
        )


def caught(work: Callable[[], T]) -> T | Exception:
    """Do some work; what it raises is returned, a bug as words and traceback: not every error can be sent."""
    try:
        return work()
    except StsbenchError as error:
        return error
    except Exception as error:
        bug = RuntimeError(one_line(error) or type(error).__name__)
        bug.add_note(traceback.format_exc())
        return bug


_KEPT: dict[str, Encoder] = {}
"""The encoder that this process has embedded with last, by what identifies it."""


def kept(encoder: Encoder) -> Encoder:
    """The same encoder as this process embedded with last, where it is one: its weights are loaded."""
    identified = identity(encoder)
    if identified is None:
        return encoder
    if identified not in _KEPT:
        _KEPT.clear()
        _KEPT[identified] = encoder
    return _KEPT[identified]


def compare_earlier(
    tell: Tell, known: KnownEncoder, plan: RunPlan, earlier: Sequence[Result], *tasks: ScoredTask
) -> Handed:
    """See whether an encoder still embeds as for its stored embeddings and for its earlier results."""
    noticed = list[str]()
    listener = Listener(noticed=noticed.append)
    if what_embeds(known.encoder) is known.encoder:
        known = replace(known, encoder=kept(known.encoder))
    embedder = Embedder(known, tasks, plan, listener)
    by_name = {task.name: task for task in embedder.tasks}
    results = {(by_name[result.task], result.eval_seed): result for result in earlier if result.task in by_name}
    current = select_current(embedder, results, listener)
    said = next(filter(None, map(embedder.said, embedder.tasks)), "")
    return Handed(current=list(current.values()), said=said, noticed=noticed)


def tokenise(tell: Tell, known: KnownEncoder, texts: Sequence[str], share: BatchShare) -> Handed:
    """The tokens of a share of texts, for all who embed them."""
    encoder = kept(what_embeds(known.encoder))
    if not isinstance(encoder, TokenEncoder):
        raise TypeError(f"{type(encoder).__name__} has no tokens")
    return Handed(tokens=tokens_of(encoder, share.piece(texts)))


def embed(
    tell: Tell,
    known: KnownEncoder,
    texts: Sequence[str],
    share: BatchShare,
    store: Store,
    shared: bool,
    *tokenised: Handed,
) -> Handed:
    """Embed a share of the batches that are planned over all texts, which are sorted, into the store.

    A store that is not ``shared`` is this machine's own: whether the encoder still embeds as it did is seen here, and
    what it holds is handed back. ``tokenised`` has the tokens of all texts, where others have made them.
    """
    started, noticed, encoder = time.perf_counter(), list[str](), kept(what_embeds(known.encoder))
    shelf = open_shelf(store, encoder, checked=shared)
    engine = Engine(encoder, shelf, progress=tell, noticed=noticed.append)
    tokens = [one.tokens for one in tokenised if one.tokens is not None]
    engine.prepare(texts, share=share, tokens=TokenIds.join(tokens) if tokens else None)
    return Handed(
        encoded=engine.encoded,
        blocks={} if shared else blocks_of(shelf),
        said=shelf.watch.said if shelf.watch is not None else "",
        noticed=noticed,
        device=facts_of(encoder).device_used,
        seconds=time.perf_counter() - started,
    )


def score(
    tell: Tell,
    known: KnownEncoder,
    plan: RunPlan,
    seeds: Sequence[Sequence[int]],
    embedded: Handed | None,
    *tasks: ScoredTask,
) -> Handed:
    """Score an encoder on tasks, on what is embedded or, where that is None, is embedded on the way.

    Raises EncoderError: embeddings that must be in the store are not.
    """
    noticed, failures = list[str](), list[tuple[str, Exception]]()
    listener = Listener(
        encoding=tell, noticed=noticed.append, failed=lambda what, error: failures.append((what, error))
    )
    if embedded is not None and embedded.blocks:
        shelf = open_shelf(plan.store, what_embeds(known.encoder), only_look=True)
        write_missing(embedded.blocks, shelf.folder or Path())
    # What is fitted over another may lack a fit here that is kept where the run began, and embed for it.
    only_look = embedded is not None and not isinstance(known.encoder, TextFitted)
    embedder = Embedder(known, tasks, plan, listener, only_look=only_look)
    if embedded is not None and (shared := embedder.divisible(tasks)) is not None:
        engine, _ = shared
        if missing := len(engine.missing([text for task in tasks for text in task.texts()])):
            raise EncoderError(
                f"{missing} embeddings that were stored are not in the store '{engine.shelf.folder}' as it is seen on "
                f"{socket.gethostname()}; pass --store with a folder that all machines share"
            )
        engine.encoded.extend(embedded.encoded)
        if engine.shelf.watch is not None:
            engine.shelf.watch.said = embedded.said
    wanted = dict.fromkeys((task, seed) for task, mine in zip(tasks, seeds, strict=True) for seed in mine)
    results = list(score_tasks(embedder, wanted, listener=listener))
    return Handed(results=results, failed=failures, noticed=noticed, device=facts_of(known.encoder).device_used)


LOST = {
    "WorkerCrashedError": "its worker was killed or has crashed",
    "NodeDiedError": "the machine that it ran on was lost",
    "LocalRayletDiedError": "Ray on this machine was lost",
    "OutOfMemoryError": "the machine's memory was full, and Ray has ended its worker",
}
_COLOURS = re.compile(r"\x1b\[\d+m")


class Lost(StsbenchError):
    """A worker, its machine or what it was to be handed is lost."""


Ray = Any
"""The package ``ray``, which may be missing and has no types, or an object of it."""
Reference = Any
"""Ray's reference of an object that it holds."""
Sent = tuple[Mapping[str, Any], Mapping[Path, Reference]]
"""A checkpoint on its way: its fields, and Ray's references of the :data:`Files` of its folders that some machine lacks."""
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}


def handed_back(ray: Ray, reference: Reference) -> Any:  # noqa: ANN401 - whatever it is
    """What a worker has returned, or why nothing: a bug as words and traceback, or :class:`Lost`."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        bug = RuntimeError(one_line(error.cause)[:300])
        bug.add_note(_COLOURS.sub("", str(error)))
        return bug
    except ray.exceptions.RayError as error:
        return Lost(LOST.get(type(error).__name__) or one_line(error)[:300] or type(error).__name__)


@contextmanager
def joined(on: str, libraries: Iterable[str] = ()) -> Iterator[Ray]:
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
        raise StsbenchError("--on ray needs Ray, which is not installed; run: pip install 'stsbench[ray]'")
    settings.keep_ray_silent()
    ray = import_module("ray")
    address, alone = on if "://" in on else settings.ray_address() or "local", is_alone(on)
    options = {"include_dashboard": False} if alone else {"runtime_env": {"env_vars": settings.for_workers()}}
    try:
        with warnings.catch_warnings():
            # What it warns of while it waits for an answer, its error says too.
            warnings.simplefilter("ignore")
            ray.init(address, **options, **QUIET)
    except Exception as error:  # Ray raises a bare Exception where it starts too slowly
        why = one_line(error)[:200]
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
    """Whether :func:`joined` starts a Ray of its own, on this machine alone."""
    return "://" not in on and settings.ray_address() in ("", "local")


def refuse_others(ray: Ray, versions: Mapping[str, str]) -> None:
    """Refuse a cluster with a machine that has other versions; one that joins later is refused with its first piece.

    Raises StsbenchError: names the machine and what differs.
    """
    for found in _each_machine(ray, caught, partial(check_versions, versions)):
        if isinstance(found, OtherVersions):
            raise found
        if isinstance(found, Exception):
            why = one_line(found)[:200]
            raise StsbenchError(f"a machine of the cluster does not say which versions it has: {why}") from found


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
    return [handed_back(ray, reference) for reference in asked]


def is_shared(ray: Ray, folder: Path) -> bool:
    """Whether a folder that this machine writes is the same on every machine."""
    mark = write_whole(folder / f".{secrets.token_hex(8)}", b"")
    try:
        return is_everywhere(ray, mark)
    finally:
        remove(mark)


def stop(ray: Ray, under_way: Sequence[Reference]) -> None:
    """End what is under way, as Ctrl-C does: workers write what they have embedded or trained."""
    with suppress(ray.exceptions.RayError):
        for reference in under_way:
            ray.cancel(reference)
        if under_way:
            ray.wait(under_way, num_returns=len(under_way), timeout=STOP_SECONDS)


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
    places: dict[Path, Path] = {}
    for folder, reference in lent.items():
        places[folder] = folder
        if not folder.is_dir():
            import ray

            files: Files = dict(ray.get(reference))
            hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
            digest = hashlib.sha256(repr(hashes).encode()).hexdigest()[:32]
            places[folder] = settings.cache_folder() / "lent" / digest
            write_missing(files, places[folder])
    weights = tuple(places.get(path.parent, path.parent) / path.name for path in fields["weights"])
    home: Path = fields["folder"]
    return Checkpoint(folder=places.get(home, home), revision=fields["revision"], weights=weights)


def files_of(folder: Path) -> Files:
    """What loading reads of a checkpoint's folder: configuration, tokenizer and the weights as safetensors."""
    unread = NOT_READ_SUFFIXES - {".safetensors"}
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in unread]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
