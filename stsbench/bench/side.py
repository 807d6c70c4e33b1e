"""One of two encoders that are held against each other: its Results, and its embeddings of the same sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stsbench.bench.embedder import Embedder, chosen_data_folder, make_embedder
from stsbench.bench.listener import Listener
from stsbench.bench.score import score_tasks
from stsbench.bench.shelf import Store
from stsbench.bench.tasks import ScoredTask
from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.engine.returned import check_embeddings
from stsbench.encoders.fitted.variants import variant_of
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.seams import FloatArray
from stsbench.numbers.quantise import FLOAT
from stsbench.results.record import Result

MOST = 20_000
"""So many of the tasks' sentences are compared."""


class MeasuredSide(NamedTuple):
    """What was measured: Results, embeddings (n, d) of the sentences asked for, and the type of their numbers."""

    results: Sequence[Result]
    embeddings: FloatArray
    type: str


def compared_sentences(tasks: Sequence[ScoredTask]) -> list[str]:
    """The distinct sentences of all tasks, evenly spaced ones where there are more than ``MOST``."""
    texts = list(dict.fromkeys(text for task in tasks for text in task.texts()))
    at = np.unique(np.linspace(0, len(texts) - 1, min(MOST, len(texts))).astype(np.int64))
    return [texts[place] for place in at]


def measure_side(
    known: KnownEncoder,
    tasks: Sequence[ScoredTask],
    sentences: Sequence[str],
    *,
    store: Store,
    catalogue: Catalogue,
    data: Path | None,
    listener: Listener,
) -> MeasuredSide:
    """Score an encoder on tasks that are read, and embed sentences, which may be others than the tasks'.

    Args:
        known: the encoder.
        tasks: at least one; an encoder that is fitted for each task embeds other sentences as for the first.
        sentences: to be embedded.
        store: where embeddings are kept.
        catalogue: the cards.
        data: a local data folder.
        listener: told how it goes.

    Raises:
        StsbenchError: it cannot be scored, or its embeddings are not as they must be.
    """
    embedder = make_embedder(
        known,
        tasks,
        store=store,
        catalogue=catalogue,
        data=chosen_data_folder(data),
        progress=listener.encoding,
        failed=_raise,
    )
    results = list(score_tasks(embedder, dict.fromkeys(tasks, (0,)), listener=listener, failed=_raise))
    variant = variant_of(known.encoder)
    embeddings = _embed(embedder, tasks, sentences)
    check_embeddings(embeddings, sentences, known.name)
    return MeasuredSide(results, embeddings, FLOAT if variant is None else variant.embeddings)


def _embed(embedder: Embedder, tasks: Sequence[ScoredTask], sentences: Sequence[str]) -> FloatArray:
    """Each sentence as for the first task that holds it, the others together as for the first task."""
    of_task = {text: task for task in reversed(tasks) for text in task.texts()}
    groups: dict[ScoredTask | None, list[int]] = {}
    for place, text in enumerate(sentences):
        groups.setdefault(of_task.get(text), []).append(place)
    parts = {
        task: np.asarray(embedder.engine(task or tasks[0])([sentences[place] for place in places]), dtype=np.float32)
        for task, places in groups.items()
    }
    rows = np.empty((len(sentences), next(iter(parts.values())).shape[1]), dtype=np.float32)
    for task, places in groups.items():
        rows[places] = parts[task]
    return rows


def _raise(what: str, error: Exception) -> None:
    raise error
