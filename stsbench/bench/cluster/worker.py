"""What a worker does: embed a share of an encoder's batches, or score tasks on what is embedded. Nothing here needs Ray."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from stsbench.bench.cells import RunSettings
from stsbench.bench.embedder import chosen_data_folder, make_embedder, what_embeds
from stsbench.bench.listener import Listener
from stsbench.bench.score import score_tasks
from stsbench.bench.shelf import Store, open_shelf
from stsbench.bench.tasks import ScoredTask
from stsbench.encoders.engine.embed import BatchShare, Engine, tokens_of
from stsbench.encoders.engine.store import Keys, Shelf
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.facts import facts_of
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.seams import Encoder, TextFitted, TokenEncoder
from stsbench.errors import EncoderError, StsbenchError, one_line
from stsbench.files.whole import write_whole
from stsbench.provenance.identity import identity
from stsbench.results.record import Result

T = TypeVar("T")
Files = Mapping[str, bytes]
"""Files by their path in a folder."""
TELL_SECONDS = 0.5


def blocks_of(shelf: Shelf) -> Files:
    """The stored embeddings of one encoder, and what is kept of how they were made."""
    found = shelf.folder.iterdir() if shelf.folder is not None and shelf.folder.is_dir() else ()
    return {path.name: path.read_bytes() for path in found if path.suffix in (".npy", ".json")}


def write_missing(files: Files, folder: Path) -> None:
    """Write those of some files that a folder lacks."""
    for name, content in files.items():
        if not (folder / name).exists():
            write_whole(folder / name, content)


class InStore(NamedTuple):
    """What the workers of a run have embedded for an encoder, which is then scored on it."""

    encoded: Sequence[Keys]
    said: str
    """What became of embeddings that were stored before."""
    blocks: Files
    """Where the store is not shared, all that is stored."""


@dataclass(frozen=True, kw_only=True)
class Handed:
    """What a worker hands back."""

    results: Sequence[Result] = ()
    failed: Sequence[tuple[str, Exception]] = ()
    """What of it cannot be scored, and why."""
    encoded: Sequence[Keys] = ()
    """The keys of what it has embedded."""
    blocks: Files = field(default_factory=dict)
    """Where the store is not shared, all that its own holds of the encoder."""
    said: str = ""
    """What became of embeddings that were stored before."""
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


def see_stored(tell: Tell, known: KnownEncoder, store: Store) -> Handed:
    """See whether an encoder still embeds as when its stored embeddings were made."""
    tell(0, 1)
    shelf = open_shelf(store, kept(what_embeds(known.encoder)))
    return Handed(said=shelf.watch.said if shelf.watch is not None else "")


def tokenise(tell: Tell, known: KnownEncoder, texts: Sequence[str], share: BatchShare) -> TokenIds:
    """The tokens of a share of texts, for all who embed them."""
    encoder = kept(what_embeds(known.encoder))
    if not isinstance(encoder, TokenEncoder):
        raise TypeError(f"{type(encoder).__name__} has no tokens")
    return tokens_of(encoder, share.piece(texts))


def embed(
    tell: Tell,
    known: KnownEncoder,
    texts: Sequence[str],
    share: BatchShare,
    store: Store,
    shared: bool,
    *tokens: TokenIds,
) -> Handed:
    """Embed a share of the batches that are planned over all texts, which are sorted, into the store.

    A store that is not ``shared`` is this machine's own: whether the encoder still embeds as it did is seen here, and
    what it holds is handed back. ``tokens`` are those of all texts, where others have made them.
    """
    started, noticed, encoder = time.perf_counter(), list[str](), kept(what_embeds(known.encoder))
    tell(0, 1)
    shelf = open_shelf(store, encoder, checked=shared)
    engine = Engine(encoder, shelf, progress=tell, noticed=noticed.append)
    engine.prepare(texts, share=share, tokens=TokenIds.join(tokens) if tokens else None)
    if shelf.watch is not None and not shared:
        shelf.watch.complete()
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
    settings: RunSettings,
    seeds: Sequence[Sequence[int]],
    embedded: InStore | None,
    *tasks: ScoredTask,
) -> Handed:
    """Score an encoder on tasks, on what is embedded or, where that is None, is embedded on the way.

    Raises:
        EncoderError: embeddings that must be in the store are not.
    """
    noticed, failures = list[str](), list[tuple[str, Exception]]()
    tell(0, 1)

    def failed(what: str, error: Exception) -> None:
        failures.append((what, error))

    if embedded is not None and embedded.blocks:
        shelf = open_shelf(settings.store, what_embeds(known.encoder), only_look=True)
        write_missing(embedded.blocks, shelf.folder or Path())
    embedder = make_embedder(
        known,
        tasks,
        store=settings.store,
        catalogue=settings.catalogue,
        data=chosen_data_folder(settings.data),
        progress=tell,
        failed=failed,
        noticed=noticed.append,
        # What is fitted over another may lack a fit here that is kept where the run began, and embed for it.
        only_look=embedded is not None and not isinstance(known.encoder, TextFitted),
    )
    if embedded is not None and (shared := embedder.divisible(tasks)) is not None:
        _fill(shared.engine, embedded, [text for task in tasks for text in task.texts()])
    listener = Listener(noticed=noticed.append)
    results = list(score_tasks(embedder, dict(zip(tasks, seeds, strict=True)), listener=listener, failed=failed))
    return Handed(results=results, failed=failures, noticed=noticed, device=facts_of(known.encoder).device_used)


def _fill(engine: Engine, embedded: InStore, texts: Sequence[str]) -> None:
    """Let the engine know what the others have embedded for it."""
    if missing := len(engine.missing(texts)):
        raise EncoderError(
            f"{missing} embeddings that were stored are not in the store '{engine.shelf.folder}' as it is seen on "
            f"{socket.gethostname()}; pass --store with a folder that all machines share"
        )
    engine.encoded.extend(embedded.encoded)
    if engine.shelf.watch is not None:
        engine.shelf.watch.said = embedded.said
