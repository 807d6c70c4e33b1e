"""Scoring one encoder on tasks that are read: current results are reused, the others computed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stsbench.bench.embedder import TaskEmbedder
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.core import provenance
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.provenance import is_same_encoder, strip_texts
from stsbench.encoders.accelerator import uses_tf32
from stsbench.encoders.base import Embed, FloatArray, WordEncoder
from stsbench.encoders.engine.embed import check_embeddings
from stsbench.encoders.fitted import find_variant
from stsbench.encoders.metadata import (
    count_cut,
    describe_prompt,
    find_base,
    read_metadata,
    sentences_without_known_words,
)
from stsbench.encoders.named import NamedEncoder
from stsbench.evaluators.base import Scores
from stsbench.numbers.similarity import EMBEDDING_TYPES, FLOAT_TYPE
from stsbench.results.folder import encode_result, read_result
from stsbench.results.record import Result, cell_id, digest_columns, result_path

NO_ORIGIN_NOTICE = (
    "results of an earlier version do not record which code made them: they are believed this "
    "once and record it from now on; a fresh run scores them again"
)
TaskAndSeed = tuple[PlannedTask, int]
EarlierResults = Mapping[TaskAndSeed, Result | None]
"""The results of a results folder, by task and seed; None if the folder has none."""


def select_current(
    embedder: TaskEmbedder, earlier: EarlierResults, callbacks: RunCallbacks
) -> dict[TaskAndSeed, Result]:
    """Select the earlier results for which the encoder still gives the same embeddings.

    A result records the origin of its embeddings: the encoder's code and a sample of embeddings.
    Results of an earlier version of this package, which lack it, count as current unless stored
    embeddings were archived; the returned copies have the origin.

    Args:
        embedder: Compares the origin of a result with that of the embeddings now.
        earlier: The earlier results by task and evaluation seed; None for one without a result.
        callbacks: ``on_notice`` is called if an encoder has changed, or an origin was added.

    Returns:
        The selected results by task and evaluation seed.
    """
    current_results: dict[TaskAndSeed, Result] = {}
    # A dict keeps each notice once, in order.
    notices: dict[str, None] = {}
    for (task, seed), result in earlier.items():
        if result is None:
            continue
        # It may be None, for unknown, only if the embedder must not embed; then it is not current.
        if not embedder.is_current(result, task):
            # If stored embeddings were archived because the encoder has changed, the message on
            # that explains it already.
            if not embedder.drift_message(task):
                notice = (
                    f"'{result.encoder}' now embeds otherwise than for earlier results: "
                    "they are scored again"
                )
                notices[notice] = None
            continue
        current_results[task, seed] = result
        # None if nothing identifies the encoder, or if there is nothing to record.
        origin = None if "origin" in result.run else embedder.origin(task)
        if origin is not None:
            notices[NO_ORIGIN_NOTICE] = None
            run = {**result.run, "origin": msgspec.to_builtins(origin)}
            current_results[task, seed] = msgspec.structs.replace(result, run=run)
    for notice in notices:
        callbacks.on_notice(notice)
    return current_results


def find_current_result(
    folder: Path, task: PlannedTask, embedder: TaskEmbedder, seed: int, callbacks: RunCallbacks
) -> Result | None:
    """Find the stored Result of an encoder on a task with a seed, if it is still valid.

    It must have been computed with the same data, the same cards of task and encoder, and the same
    embeddings. Whether its per-item values give its score is not checked here.

    Args:
        folder: The results folder.
        task: The task, with its data.
        embedder: Provides the encoder, and tells whether it still embeds as for the Result.
        seed: The evaluation seed.
        callbacks: ``on_notice`` is called if the file is no valid result.

    Returns:
        The Result; None if the folder has no valid one, or if the encoder has no fingerprint, the
        hash that identifies its embeddings.
    """
    encoder = embedder.named_encoder(task)
    if encoder.fingerprint is None:
        return None
    # An encoder that scores pairs of sentences itself has a protocol without a similarity.
    protocol = embedder.planned_task(task).protocol
    # A hash of protocol, fingerprint and seeds, which ends the file's name.
    file_id = cell_id(protocol, encoder.fingerprint, encoder.train_seed, seed)
    path = result_path(
        folder, encoder=encoder.name, task=task.name, split=task.split, file_id=file_id
    )
    if not path.is_file():
        return None
    try:
        result = read_result(path)
    except DataError as error:
        callbacks.on_notice(f"scored again: {error}")
        return None
    # The data and the cards are compared by their hashes.
    has_same_inputs = (
        result.encoder == encoder.name
        and result.task == task.name
        and result.data == task.digest
        and result.task_card == task.task.card_digest
        and result.encoder_card == encoder.card_digest
    )
    if not has_same_inputs:
        return None
    # It is None if that is unknown until the encoder embeds; such a result counts as valid for now.
    is_current = embedder.is_current(result, task)
    return None if is_current is False else result


def is_name_taken(folder: Path, name: str, named_encoder: NamedEncoder) -> bool:
    """Return whether a results folder has results under a name, but none of this encoder.

    A result is of this encoder if its fingerprint (``state``) is the same or differs only in
    versions of libraries, or if it records the folder from which this encoder was loaded.

    Args:
        folder: The results folder.
        name: The name under which the encoder's results would be stored.
        named_encoder: The encoder.
    """
    # All results of one encoder are in one folder: that of a made-up result.
    some_path = result_path(folder, encoder=name, task="task", split="split", file_id="cell")
    results = []
    # Files that are no valid results are left out.
    for path in sorted(some_path.parent.glob("*.json")):
        with suppress(StsbenchError):
            results.append(read_result(path))
    fingerprint = named_encoder.fingerprint
    # The fingerprint without the texts that it is fitted on, which differ from task to task. None,
    # as in the results of such an encoder, if it has no fingerprint.
    state = strip_texts(fingerprint) if fingerprint else None

    def is_of_encoder(result: Result) -> bool:
        if state is not None and (result.state == state or is_same_encoder(result.state, state)):
            return True
        folder_digest = named_encoder.folder_digest
        recorded_digest = result.run.get("folder")
        if folder_digest is not None and recorded_digest is not None:
            return bool(recorded_digest == folder_digest)
        # Without fingerprint and folder, encoders are told apart by their names alone.
        return state is None and result.state is None

    # Names that differ only in characters that no folder may have share a folder.
    results_of_name = [result for result in results if result.encoder == name]
    has_own_results = any(map(is_of_encoder, results_of_name))
    return bool(results) and not has_own_results


def score_tasks(
    embedder: TaskEmbedder, earlier: EarlierResults, *, callbacks: RunCallbacks
) -> Iterator[Result]:
    """Embed the sentences of all tasks, then yield the Result of each task and seed.

    Nothing is written. A task that cannot be scored with a seed is reported to the callbacks, and
    yields nothing for it.

    Args:
        embedder: Provides the embeddings of its tasks, those that the encoder can be scored on;
            other tasks of ``earlier`` are omitted.
        earlier: The tasks and seeds to score, in this order, with their earlier results. An earlier
            result is yielded unchanged if the encoder still gives the same embeddings. All seeds of
            a task must follow each other.
        callbacks: Called for each task that is scored, or cannot be.
    """
    tasks = list(embedder.tasks)
    current_results = select_current(embedder, earlier, callbacks)
    n_earlier = sum(result is not None for result in earlier.values())
    callbacks.on_outdated(n_earlier - len(current_results))
    tasks_to_score = {task for task, seed in earlier if (task, seed) not in current_results}
    # This embeds the missing sentences of the tasks to score. All tasks may decide which sentences
    # share a batch, so that a resumed run has the same batches.
    embedder.prepare([task for task in tasks if task in tasks_to_score], tasks)
    # The drift message is that stored embeddings were archived because the encoder has changed; it
    # is empty if they were not. Several tasks may have the same message, which is reported once.
    for message in dict.fromkeys(filter(None, map(embedder.drift_message, tasks))):
        callbacks.on_notice(message)
    cells_to_yield = ((task, seed) for task, seed in earlier if task in tasks)
    for task, cells_of_task in groupby(cells_to_yield, key=itemgetter(0)):
        embed: Embed | None = None
        is_first_seed = True
        for _, seed in cells_of_task:
            result = current_results.get((task, seed))
            if result is None:
                callbacks.on_scoring(task.name)
                try:
                    embed = embed or embedder.embed_function(task)
                    result = _score(embedder, task, embed, seed, is_first_seed=is_first_seed)
                    # An invalid result of a user's evaluator raises here, not when it is written.
                    encode_result(result)
                except StsbenchError as error:
                    label = f"{embedder.named_encoder(task).name} on {task.name}"
                    callbacks.on_failure(label, error)
                    continue
                # Further seeds use the same embeddings, which count as embedded only once.
                is_first_seed = False
                callbacks.on_result(result)
            yield result


def _score(
    embedder: TaskEmbedder, task: PlannedTask, embed: Embed, seed: int, *, is_first_seed: bool
) -> Result:
    """Score an encoder on a task with a seed, and return the Result; nothing is written.

    Args:
        embedder: Provides the encoder, and what is recorded about its embeddings.
        task: The task.
        embed: Embeds the task's sentences.
        seed: The seed of the evaluator.
        is_first_seed: Whether no other seed of the task was scored before.
    """
    started = time.perf_counter()
    encoder = embedder.named_encoder(task)
    task = embedder.planned_task(task)
    scores: Scores = task.evaluator(task.splits, embed, seed=seed)
    sentences = list(dict.fromkeys(task.texts()))
    n_cut = count_cut(encoder.encoder, sentences)
    notes = [
        *encoder.assumptions,
        *scores.notes,
        *task.notes(),
        *encoder.notes(),
        *embedder.notes(task),
        *_unknown_word_notes(encoder, task),
    ]
    if n_cut:
        share = f"{n_cut:,} of {len(sentences):,} sentences"
        notes.append(f"{share} were cut at the encoder's maximum length")
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
        revision=read_metadata(encoder.encoder).revision,
        task_card=task.task.card_digest,
        data=task.digest,
        items=digest_columns(scores.per_item),
        notes=notes,
        run=_run_block(
            embedder,
            task,
            embed,
            seconds=time.perf_counter() - started,
            n_cut=n_cut,
            is_first_seed=is_first_seed,
        ),
        per_item=dict(scores.per_item),
    )


def _unknown_word_notes(encoder: NamedEncoder, task: PlannedTask) -> list[str]:
    """Return a note on sentences of which an encoder of words knows no word.

    Args:
        encoder: The encoder. There is no note if it is not made of word embeddings.
        task: The task, with its data.

    Returns:
        A list with the note; empty if there is none.
    """
    word_encoder = encoder.encoder
    # A variant shortens the embeddings of another encoder, its base, which has the words.
    if find_variant(word_encoder) is not None:
        word_encoder = find_base(word_encoder) or word_encoder
    if not isinstance(word_encoder, WordEncoder):
        return []
    sentences = sorted(set(task.texts()))
    n_unknown = len(sentences_without_known_words(word_encoder, sentences))
    if not n_unknown:
        return []
    return [
        f"{n_unknown} of {len(sentences)} distinct sentences have no word that the encoder knows"
    ]


def _run_block(
    embedder: TaskEmbedder,
    task: PlannedTask,
    embed: Embed,
    seconds: float,
    n_cut: int | None,
    *,
    is_first_seed: bool,
) -> dict[str, Any]:
    """Return what a result file records about its run under the key ``run``: time, device, commit.

    Args:
        embedder: Provides the embeddings of the task.
        task: The task.
        embed: The function that embeds sentences for the task; its first text is embedded already.
        seconds: The time that scoring took.
        n_cut: The number of sentences that were cut at the maximum length; None if unknown.
        is_first_seed: Whether embedded sentences count; further seeds find them in the store.
    """
    encoder = embedder.named_encoder(task)
    texts = task.texts()
    metadata = read_metadata(encoder.encoder)
    variant = find_variant(encoder.encoder)
    commit, dirty = provenance.commit()
    n_encoded = embedder.count_encoded(task) if is_first_seed else 0
    # All splits of a task have the same source.
    first_split = next(iter(task.splits))
    loaded_split = task.task.loaded_split(first_split)
    dimensions = embed(texts[:1]).shape[1] if texts and not task.scores_pairs else None
    # float32, unless a variant of the encoder makes other numbers, such as int8.
    type_name = FLOAT_TYPE if variant is None else variant.embeddings
    embedding_type = EMBEDDING_TYPES[type_name]
    run_block = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "dimensions": dimensions,
        "vector_bytes": None if dimensions is None else embedding_type.bytes(dimensions),
        "encoded": n_encoded,
        "from_store": len(set(texts)) - n_encoded,
        "ms_per_sentence": embedder.milliseconds_per_sentence(),
        "source": loaded_split.source,
        "data_revision": loaded_split.revision,
        "device": metadata.device_used,
        "dtype": metadata.dtype,
        "prompt": describe_prompt(encoder.encoder),
        "cut": n_cut,
        "versions": provenance.versions(),
        "commit": commit,
        "dirty": dirty,
    }
    optional_fields = {
        # The release of the data, and the task that replaces this one, if the card names them.
        "task_version": task.task.card.version,
        "task_superseded_by": task.task.card.superseded_by,
        "tf32": uses_tf32(),
        "folder": encoder.folder_digest,
        "set_aside": embedder.drift_message(task),
        "origin": msgspec.to_builtins(embedder.origin(task)),
    }
    return run_block | {name: value for name, value in optional_fields.items() if value}


MAX_COMPARED = 20_000
"""The maximum number of sentences to compare."""


class EncoderMeasurement(NamedTuple):
    """The scores of an encoder, and its embeddings of some sentences."""

    results: Sequence[Result]
    embeddings: FloatArray
    """The embeddings of the sentences, (n, d)."""
    embedding_type: str
    """The type of the embeddings' numbers, a key of ``EMBEDDING_TYPES``."""


def select_sentences(tasks: Sequence[PlannedTask]) -> list[str]:
    """Return the distinct sentences of tasks, evenly spaced if there are over ``MAX_COMPARED``."""
    sentences = list(dict.fromkeys(text for task in tasks for text in task.texts()))
    n_selected = min(MAX_COMPARED, len(sentences))
    positions = np.unique(np.linspace(0, len(sentences) - 1, n_selected).astype(np.int64))
    return [sentences[position] for position in positions]


def measure_encoder(
    embedder: TaskEmbedder, sentences: Sequence[str], callbacks: RunCallbacks
) -> EncoderMeasurement:
    """Score an encoder on tasks, and embed sentences with it, to compare it with another encoder.

    Args:
        embedder: Has the encoder and the tasks, at least one, whose data are read already.
        sentences: The n sentences to embed; they need not be of the tasks.
        callbacks: Called with the progress.

    Returns:
        The result of each task, the embeddings of the sentences (n, d), and the type of numbers
        that they are stored as.

    Raises:
        StsbenchError: The encoder cannot be scored, or its embeddings are not valid.
    """
    # Each task with evaluation seed 0; None, because there are no earlier results.
    cells = {(task, 0): None for task in embedder.tasks}
    # A task that fails raises its error here, rather than being omitted.
    results = list(score_tasks(embedder, cells, callbacks=callbacks.with_raised_failures()))
    embeddings = _embed_sentences(embedder, sentences)
    check_embeddings(embeddings, sentences, embedder.encoder.name)
    variant = find_variant(embedder.encoder.encoder)
    # A variant may make numbers of another type than float32, such as int8.
    embedding_type = FLOAT_TYPE if variant is None else variant.embeddings
    return EncoderMeasurement(results, embeddings, embedding_type)


def _embed_sentences(embedder: TaskEmbedder, sentences: Sequence[str]) -> FloatArray:
    """Embed sentences, each as for the first task that has it, and return embeddings (n, d).

    The task matters, because an encoder may be fitted on each task's texts and then embeds the same
    sentence differently. Sentences of none of the tasks are embedded as for the first task.

    Args:
        embedder: Provides the embeddings of the tasks.
        sentences: The n sentences; one may occur more than once.
    """
    tasks = embedder.tasks
    # Reversed, so that of several tasks with a sentence the first one counts.
    task_by_sentence = {text: task for task in reversed(tasks) for text in task.texts()}
    embedding_by_sentence: dict[str, FloatArray] = {}
    for task in tasks:
        sentences_of_task = [
            sentence for sentence in sentences if task_by_sentence.get(sentence, tasks[0]) is task
        ]
        if sentences_of_task:
            embed = embedder.embed_function(task)
            embeddings = np.asarray(embed(sentences_of_task), dtype=np.float32)
            embedding_by_sentence.update(zip(sentences_of_task, embeddings, strict=True))
    return np.array([embedding_by_sentence[sentence] for sentence in sentences])
