"""One encoder on tasks that are read: embedded once, then scored task by task, seeds innermost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stsbench.bench.embedder import Embedder
from stsbench.bench.existing import done_already
from stsbench.bench.listener import Listener
from stsbench.bench.tasks import ScoredTask
from stsbench.cards.facts import TaskCard
from stsbench.encoders.devices import uses_tf32
from stsbench.encoders.facts import base_of, facts_of, without_known_words
from stsbench.encoders.fitted.variants import variant_of
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.seams import Embed, Encoder, WordEncoder
from stsbench.errors import StsbenchError
from stsbench.evaluators.seams import Scores
from stsbench.numbers.quantise import FLOAT, TYPES
from stsbench.provenance import machine
from stsbench.results.folder import checked_json
from stsbench.results.record import Result, columns_digest

Failed = Callable[[str, Exception], None]
"""Told what failed, and with what error; where it raises, all stops."""


def score_tasks(
    embedder: Embedder,
    seeds: Mapping[ScoredTask, Sequence[int]],
    *,
    listener: Listener,
    failed: Failed,
    done_in: Path | None = None,
) -> Iterator[Result]:
    """Embed what all tasks need, then yield the Results of each task, one a seed, in the order of the tasks.

    Args:
        embedder: gives each task its embeddings.
        seeds: of the evaluation, by task.
        listener: told how it goes.
        failed: told each task that cannot be scored.
        done_in: the results folder whose Results are not made again.
    """
    tasks = list(embedder.tasks)
    done = {
        (task, seed): done_already(done_in, task, embedder, seed, listener.refused) if done_in is not None else None
        for task in tasks
        for seed in seeds[task]
    }
    embedder.prepare([task for task in tasks if any(done[task, seed] is None for seed in seeds[task])], tasks)
    for line in dict.fromkeys(filter(None, (_set_aside(task, embedder) for task in tasks))):
        listener.noticed(line)
    for task in tasks:
        scorer = _TaskScorer(task, embedder)
        for seed in seeds[task]:
            result = done[task, seed] or _try_score(scorer, seed, listener, failed)
            if result is not None:
                yield result


def _release(card: TaskCard) -> dict[str, str]:
    """Which release of its data a task holds, and what replaces it, where its card says so."""
    told = {"task_version": card.version, "task_superseded_by": card.superseded_by}
    return {key: value for key, value in told.items() if value}


def _set_aside(task: ScoredTask, embedder: Embedder) -> str:
    watch = embedder.watch(task)
    return watch.said if watch is not None else ""


def _try_score(scorer: _TaskScorer, seed: int, listener: Listener, failed: Failed) -> Result | None:
    """Score one cell; None where it fails and the caller goes on past failures."""
    listener.scoring(scorer.task.name)
    try:
        result = scorer.score(seed)
        checked_json(result)
        listener.scored(result)
        return result
    except StsbenchError as error:
        failed(f"{scorer.embedder.known(scorer.task).name} on {scorer.task.name}", error)
        return None


@dataclass
class _TaskScorer:
    """Scores one task, for one seed after the other, on the same embeddings."""

    task: ScoredTask
    embedder: Embedder
    engine: Embed | None = None
    told: bool = False
    """Whether a Result says already how many sentences were embedded: the next seed takes them as they are."""

    def score(self, seed: int) -> Result:
        started = time.perf_counter()
        task, encoder = self.task, self.embedder.known(self.task)
        self.engine = self.engine or self.embedder.engine(task)
        scores: Scores = task.evaluator(task.splits, self.engine, seed=seed)
        return Result(
            encoder=encoder.name,
            task=task.name,
            split=task.split,
            score=scores.score,
            protocol=dict(task.protocol),
            scores=dict(scores.scores),
            per_subset={name: dict(values) for name, values in scores.per_subset.items()},
            interval=scores.interval,
            interval_method=scores.interval_method,
            n=scores.n,
            zero_vectors=scores.zero_vectors,
            overlap=encoder.overlap_with(task.name),
            train_seed=encoder.train_seed,
            eval_seed=seed,
            encoder_card=encoder.card_digest,
            fingerprint=encoder.fingerprint,
            revision=encoder.revision,
            task_card=task.task.card_digest,
            data=task.digest,
            items=columns_digest(scores.per_item),
            notes=[
                *encoder.assumed,
                *scores.notes,
                *task.notes(),
                *encoder.notes(),
                *self.embedder.notes(task),
                *_unknown_notes(encoder.encoder, task),
            ],
            run=self._run_facts(encoder, time.perf_counter() - started),
            per_item=dict(scores.per_item),
        )

    def _size(self) -> dict[str, int | None]:
        """The size of an embedding, that of a text which has been embedded, and the bytes that keep it."""
        texts = self.task.texts()[:1]
        size = self.engine(texts).shape[1] if self.engine is not None and texts else None
        variant = variant_of(self.embedder.known(self.task).encoder)
        kept = TYPES[variant.embeddings if variant is not None else FLOAT]
        return {"dimensions": size, "vector_bytes": None if size is None else kept.bytes(size)}

    def _run_facts(self, encoder: KnownEncoder, seconds: float) -> dict[str, Any]:
        task, aside = self.task, _set_aside(self.task, self.embedder)
        commit, dirty = machine.commit()
        runs = facts_of(encoder.encoder)
        encoded = 0 if self.told else self.embedder.encoded(task)
        self.told = True
        source = task.task.loaded(next(iter(task.splits)))
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            **self._size(),
            "encoded": encoded,
            "from_store": len(set(task.texts())) - encoded,
            "source": source.source,
            "data_revision": source.revision,
            **_release(task.task.card),
            "device": runs.device_used,
            "dtype": runs.dtype,
            **({"tf32": True} if uses_tf32() else {}),
            "versions": machine.versions(),
            "commit": commit,
            "dirty": dirty,
            **({"set_aside": aside} if aside else {}),
        }


def _unknown_notes(encoder: Encoder, task: ScoredTask) -> list[str]:
    """How many sentences hold no word that an encoder of words knows, or that under a variant."""
    encoder = (base_of(encoder) or encoder) if variant_of(encoder) is not None else encoder
    if not isinstance(encoder, WordEncoder):
        return []
    texts = sorted(set(task.texts()))
    count = len(without_known_words(encoder, texts))
    return [f"{count} of {len(texts)} distinct sentences have no word that the encoder knows"] if count else []
