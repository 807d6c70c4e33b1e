"""What a worker does: embed a share of an encoder's batches, or score tasks on what is embedded. Nothing here needs Ray."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stsbench.bench.embedder import chosen_data_folder, make_embedder
from stsbench.bench.listener import Listener
from stsbench.bench.score import score_tasks
from stsbench.bench.shelf import Store, open_shelf
from stsbench.bench.tasks import ScoredTask
from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.engine.drift import FILE as SAMPLES_FILE
from stsbench.encoders.engine.embed import BatchShare, Engine
from stsbench.encoders.engine.store import Keys, Shelf, text_keys
from stsbench.encoders.facts import facts_of
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.seams import Encoder, FloatArray, TextFitted
from stsbench.errors import EncoderError, StsbenchError, one_line
from stsbench.files.whole import write_whole
from stsbench.results.record import Result

TELL_SECONDS = 0.5


class Carried(NamedTuple):
    """Embeddings on their way from one store to another: keys (n,), rows (n, d), and what is kept of how they were made."""

    keys: Keys
    rows: FloatArray
    made: bytes

    @classmethod
    def of(cls, shelf: Shelf, texts: Sequence[str]) -> Carried:
        """All that a shelf on disk holds of some texts."""
        keys = text_keys(sorted(set(texts)))
        keys = keys[shelf.find(keys) >= 0]
        record = shelf.folder / SAMPLES_FILE if shelf.folder is not None else None
        made = record.read_bytes() if record is not None and record.is_file() else b""
        return cls(keys, np.asarray(shelf.view(keys)), made)

    def put_into(self, shelf: Shelf) -> None:
        """Write what a shelf on disk lacks."""
        new = shelf.find(self.keys) < 0
        if not new.any():
            return
        record = shelf.folder / SAMPLES_FILE if shelf.folder is not None else None
        if record is not None and self.made and not record.exists():
            write_whole(record, self.made)
        shelf.add(self.keys[new], self.rows[new])
        shelf.flush()


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a worker could not do its work: one line; of a bug, which may not be sent as it is, where it was."""

    line: str
    trace: str = ""
    mistake: StsbenchError | None = None

    def error(self) -> Exception:
        """As an error to tell: a bug is no :class:`StsbenchError`, and has its traceback as a note."""
        if not self.trace:
            return self.mistake or StsbenchError(self.line)
        bug = RuntimeError(self.line)
        bug.add_note(self.trace)
        return bug


@dataclass(frozen=True, kw_only=True)
class Handed:
    """What a worker hands back."""

    results: Sequence[Result] = ()
    failure: Cause | None = None
    """Why nothing came of it."""
    failed: Mapping[str, Cause] = field(default_factory=dict)
    """Why parts of it failed, by encoder and task as a listener is told them."""
    encoded: Sequence[Keys] = ()
    """The keys of what it has embedded."""
    rows: Carried | None = None
    """All that its own store holds of the texts, where the store is not shared."""
    said: str = ""
    """What became of embeddings that were stored before."""
    noticed: Sequence[str] = ()
    device: str | None = None
    seconds: float = 0.0


class Report(NamedTuple):
    """A message of a worker's while it works."""

    piece: int
    worker: str
    done: float


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
            self.send(Report(self.piece, f"{socket.gethostname()}:{os.getpid()}", done / total if total else 0.0))


def caught(work: Callable[[], Handed]) -> Handed:
    """Do some work; what it raises is handed back as words, for not every error can be sent."""
    try:
        return work()
    except StsbenchError as error:
        return Handed(failure=Cause(line=one_line(error), mistake=error))
    except Exception as error:
        return Handed(failure=Cause(line=one_line(error) or type(error).__name__, trace=traceback.format_exc()))


def embed(
    encoder: Encoder, texts: Sequence[str], share: BatchShare | None, *, store: Store, shared: bool, tell: Tell
) -> Handed:
    """Embed a share of the batches that are planned over all texts, into the store.

    Without a share only see whether the encoder still embeds as when its stored embeddings were made. A store that
    is not ``shared`` is this machine's own: it is looked at here, and what it holds is handed back.
    """
    started, noticed = time.perf_counter(), list[str]()
    tell(0, 1)
    shelf = open_shelf(store, encoder, checked=shared and share is not None)
    engine = Engine(encoder, shelf, progress=tell, noticed=noticed.append)
    if share is not None:
        engine.prepare(texts, share=share)
    rows = None
    if not shared and share is not None:
        if shelf.watch is not None:
            shelf.watch.complete()
        rows = Carried.of(shelf, texts)
    return Handed(
        encoded=engine.encoded,
        rows=rows,
        said=shelf.watch.said if shelf.watch is not None else "",
        noticed=noticed,
        device=facts_of(encoder).device_used,
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What is scored on embeddings that are there, or are made on the way."""

    seeds: Mapping[tuple[str, str], Sequence[int]]
    """By task and protocol."""
    embedded: bool
    """Whether the store holds all embeddings: then this worker makes none."""
    store: Store
    catalogue: Catalogue
    data: Path | None
    encoded: Sequence[Keys] = ()
    """The keys of what the workers of this run have embedded."""
    said: str = ""


def score(
    known: KnownEncoder, plan: Scoring, rows: Carried | None, tasks: Sequence[ScoredTask], *, tell: Tell
) -> Handed:
    """Score an encoder on tasks; what fails is told when all others are scored.

    Raises:
        EncoderError: embeddings that must be in the store are not.
    """
    noticed, failures = list[str](), dict[str, Cause]()
    tell(0, 1)

    def failed(what: str, error: StsbenchError) -> None:
        failures[what] = Cause(line=one_line(error), mistake=error)

    embedder = make_embedder(
        known,
        tasks,
        store=plan.store,
        catalogue=plan.catalogue,
        data=chosen_data_folder(plan.data),
        progress=tell,
        failed=failed,
        noticed=noticed.append,
        # What is fitted over another may lack a fit here that is kept where the run began, and embed for it.
        only_look=plan.embedded and rows is None and not isinstance(known.encoder, TextFitted),
    )
    shared = embedder.divisible(tasks) if plan.embedded else None
    if shared is not None:
        _fill(shared.engine, rows, [text for task in tasks for text in task.texts()], plan)
    seeds = {task: plan.seeds[task.name, task.asked] for task in embedder.tasks}
    listener = Listener(noticed=noticed.append)
    results = list(score_tasks(embedder, seeds, listener=listener, failed=failed))
    return Handed(results=results, failed=failures, noticed=noticed, device=facts_of(known.encoder).device_used)


def _fill(engine: Engine, rows: Carried | None, texts: Sequence[str], plan: Scoring) -> None:
    """Let the engine know what the others have embedded for it."""
    if rows is not None:
        rows.put_into(engine.shelf)
    if missing := len(engine.missing(texts)):
        raise EncoderError(
            f"{missing} embeddings that were stored are not in the store '{engine.shelf.folder}' as it is seen on "
            f"{socket.gethostname()}; pass --store with a folder that all machines share"
        )
    engine.encoded.extend(plan.encoded)
    if engine.shelf.watch is not None:
        engine.shelf.watch.said = plan.said
