"""One encoder on tasks that are read: embedded once, then scored task by task, seeds innermost; what a folder holds is not made again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stsbench.bench.embed import Embedder
from stsbench.bench.listener import Listener
from stsbench.bench.plan import RunPlan, ScoredTask, TextLeftOut
from stsbench.core import provenance as machine
from stsbench.core.errors import DataError, EncoderError, StsbenchError
from stsbench.core.files import without_folders
from stsbench.core.provenance import same_encoder, without_texts
from stsbench.encoders.backends import uses_tf32
from stsbench.encoders.base import (
    Embed,
    FloatArray,
    KnownEncoder,
    WordEncoder,
    base_of,
    facts_of,
    without_known_words,
)
from stsbench.encoders.engine.embed import check_embeddings
from stsbench.encoders.engine.store import Watch
from stsbench.encoders.fitted import variant_of
from stsbench.evaluators.seams import Evaluator, Scores
from stsbench.numbers.similarity import FLOAT, TYPES
from stsbench.numbers.statistics import AGGREGATIONS, COLUMNS, FEWEST, sentence_columns, sentences_of, subset_indices
from stsbench.results.folder import checked_json, columns_of, read_items, read_result
from stsbench.results.record import FEW_PAIRS, CleanScore, Result, cell_digest, columns_digest, items_path, result_path


def is_of_now(result: Result, watch: Watch | None) -> bool:
    """Whether a Result's embeddings have not been set aside since it was made."""
    # Both are in whole seconds: what was made within the same one may be of before.
    return watch is None or not watch.since or str(result.run.get("created", "")) > watch.since


def find_result(folder: Path, task: ScoredTask, embedder: Embedder, seed: int, listener: Listener) -> Result | None:
    """The Result of a cell that a results folder holds, if it is of the same data, cards, encoder and embeddings.

    The listener hears why one is refused: it is not as results must be, or its per-item columns do not make it.
    """
    encoder = embedder.known(task)
    if encoder.fingerprint is None:
        return None
    cell = cell_digest(task.protocol, encoder.fingerprint, encoder.train_seed, seed)
    path = result_path(folder, encoder.name, task.name, task.split, cell)
    if not path.is_file():
        return None
    try:
        result = read_result(path)
        if items_path(path).exists():
            read_items(path)
    except DataError as error:
        listener.refused(str(error))
        return None
    same = (encoder.name, task.name, task.digest, task.task.card_digest, encoder.card_digest)
    held = (result.encoder, result.task, result.data, result.task_card, result.encoder_card)
    return result if held == same and is_of_now(result, embedder.watch(task)) else None


def holds_another(folder: Path, name: str, encoder: KnownEncoder) -> bool:
    """Whether a results folder holds results of this name, and none of this encoder, nor of what lay in its place."""
    found = []
    for path in sorted(result_path(folder, name, "task", "split", "cell").parent.glob("*.json")):
        with suppress(StsbenchError):
            found.append(read_result(path))
    own = encoder.fingerprint and without_texts(encoder.fingerprint)
    # Another version of a library makes no other encoder of it.
    return bool(found) and not any(
        one.state == own
        or same_encoder(one.state, own)
        or (encoder.folder is not None and one.run.get("folder") == encoder.folder)
        for one in found
        if one.encoder == name
    )


def score_tasks(
    embedder: Embedder, wanted: Mapping[tuple[ScoredTask, int], Result | None], *, listener: Listener
) -> Iterator[Result]:
    """Embed what all tasks need, then yield the Result of each task and seed that is ``wanted``, in their order.

    The listener hears of each task that cannot be scored. A Result that is there already is not made again, unless its
    embeddings are set aside.
    """
    tasks = list(embedder.tasks)
    done = {key: one for key, one in wanted.items() if one is not None and is_of_now(one, embedder.watch(key[0]))}
    todo = {task for task, seed in wanted if (task, seed) not in done}
    embedder.prepare([task for task in tasks if task in todo], tasks)
    for line in dict.fromkeys(filter(None, (_set_aside(task, embedder) for task in tasks))):
        listener.noticed(line)
    for task, keys in groupby((key for key in wanted if key[0] in tasks), key=itemgetter(0)):
        scorer = _TaskScorer(task, embedder)
        for key in keys:
            if (result := done.get(key)) is None:
                listener.scoring(task.name)
                try:
                    result = scorer.score(key[1])
                    checked_json(result)
                except StsbenchError as error:
                    listener.failed(f"{embedder.known(task).name} on {task.name}", error)
                    continue
                listener.scored(result)
            yield result


def _set_aside(task: ScoredTask, embedder: Embedder) -> str:
    watch = embedder.watch(task)
    return watch.said if watch is not None else ""


@dataclass
class _TaskScorer:
    task: ScoredTask
    embedder: Embedder
    engine: Embed | None = None
    counted: bool = False
    """Whether a Result says already how many sentences were embedded: the next seed takes them as they are."""

    def score(self, seed: int) -> Result:
        started = time.perf_counter()
        task, encoder = self.task, self.embedder.known(self.task)
        self.engine = self.engine or self.embedder.engine(task)
        scores: Scores = task.evaluator(task.splits, self.engine, seed=seed)
        notes = [*encoder.assumed, *scores.notes, *task.notes(), *encoder.notes(), *self.embedder.notes(task)]
        # Also of an encoder of words under a variant.
        own = encoder.encoder if variant_of(encoder.encoder) is None else base_of(encoder.encoder) or encoder.encoder
        if isinstance(own, WordEncoder):
            texts = sorted(set(task.texts()))
            if count := len(without_known_words(own, texts)):
                notes.append(f"{count} of {len(texts)} distinct sentences have no word that the encoder knows")
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
            notes=notes,
            run=self._run_facts(encoder, time.perf_counter() - started),
            per_item=dict(scores.per_item),
        )

    def _run_facts(self, encoder: KnownEncoder, seconds: float) -> dict[str, Any]:
        task, aside, card = self.task, _set_aside(self.task, self.embedder), self.task.task.card
        commit, dirty = machine.commit()
        runs, variant = facts_of(encoder.encoder), variant_of(encoder.encoder)
        encoded = 0 if self.counted else self.embedder.encoded(task)
        self.counted = True
        source, texts = task.task.loaded(next(iter(task.splits))), task.texts()
        # Of a text which has been embedded.
        size = self.engine(texts[:1]).shape[1] if self.engine is not None and texts else None
        kept = TYPES[variant.embeddings if variant is not None else FLOAT]
        # Which release of its data a task holds, and what replaces it, where its card says so.
        release = {"task_version": card.version, "task_superseded_by": card.superseded_by}
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "dimensions": size,
            "vector_bytes": None if size is None else kept.bytes(size),
            "encoded": encoded,
            "from_store": len(set(texts)) - encoded,
            "source": source.source,
            "data_revision": source.revision,
            **{key: value for key, value in release.items() if value},
            "device": runs.device_used,
            "dtype": runs.dtype,
            **({"tf32": True} if uses_tf32() else {}),
            **({"folder": encoder.folder} if encoder.folder else {}),
            "versions": machine.versions(),
            "commit": commit,
            "dirty": dirty,
            **({"set_aside": aside} if aside else {}),
        }


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
    known: KnownEncoder, tasks: Sequence[ScoredTask], sentences: Sequence[str], plan: RunPlan, listener: Listener
) -> MeasuredSide:
    """Score an encoder on at least one task that is read, and embed sentences, which may be others than the tasks'.

    Raises:
        StsbenchError: it cannot be scored, or its embeddings are not as they must be.
    """
    listener = listener.raising()
    embedder = Embedder(known, tasks, plan, listener)
    results = list(score_tasks(embedder, dict.fromkeys((task, 0) for task in tasks), listener=listener))
    # Each sentence as for the first task that holds it, the others as for the first task.
    of_task = {text: task for task in reversed(tasks) for text in task.texts()}
    rows: dict[str, FloatArray] = {}
    for task in tasks:
        if mine := [text for text in sentences if of_task.get(text, tasks[0]) is task]:
            rows.update(zip(mine, np.asarray(embedder.engine(task)(mine), dtype=np.float32), strict=True))
    embeddings = np.array([rows[text] for text in sentences])
    check_embeddings(embeddings, sentences, known.name)
    variant = variant_of(known.encoder)
    return MeasuredSide(results, embeddings, FLOAT if variant is None else variant.embeddings)


def score_without(
    result: Result, sentences: Sequence[str], evaluator: Evaluator, asked: TextLeftOut, text: str
) -> CleanScore:
    """The score over the items that hold none of these sentences, which are those of the training text ``asked`` for.

    The score of a probe is the share of right answers, where that of all items is a mean over folds. A mean over subsets
    is of those alone that keep ``FEW_PAIRS`` pairs: in the others nothing is left to correlate. ``text`` is the hash of the
    training text.

    Raises:
        DataError: the per-item columns are missing or broken, or tell no sentences; the evaluator cannot score a part.
    """
    columns = columns_of(result)
    held = sentences_of(columns)
    if held is None or not hasattr(evaluator, "recompute"):
        lacking = f"its per-item columns lack {COLUMNS[0]}" if "recall" not in columns else "the items are no sentences"
        why = lacking if held is None else "its evaluator cannot make scores again from items"
        raise DataError(f"{result.encoder} on {result.task}: no part of the items has a score: {why}")
    corpora = [str(without_folders(name)) for name in asked.corpora]
    of_none = CleanScore(corpora=corpora, text=text, near=asked.near, n=0, score=None, interval=None)
    kept = np.array([not any(item) for item in np.isin(held, sentence_columns(sentences)[COLUMNS[0]])])
    if kept.all():
        return msgspec.structs.replace(of_none, n=result.n, score=result.score, interval=result.interval)
    left_out = list[str]()
    if AGGREGATIONS.get(str(result.protocol.get("aggregation"))) is not None:
        golds = {name: columns["gold"][at][kept[at]] for name, at in subset_indices(columns["subset"].tolist()).items()}
        left_out = [name for name, gold in golds.items() if len(gold) < FEW_PAIRS or np.ptp(gold) == 0]
        kept &= ~np.isin(columns["subset"].astype(str), left_out)
    made = msgspec.structs.replace(of_none, n=int(kept.sum()), left_out=left_out)
    # Where nothing is left to correlate, there is no score.
    with suppress(DataError, EncoderError):
        if made.n >= FEWEST:
            found = evaluator.recompute({name: column[kept] for name, column in columns.items()})
            return msgspec.structs.replace(made, score=found.score, interval=found.interval)
    return made
