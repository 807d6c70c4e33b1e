"""Forecasts of runs: how long each encoder would take to embed and to score."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from stsbench.bench.embedder import base_encoder
from stsbench.bench.plan import EncoderPlan, RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import RunContext
from stsbench.encoders.engine.embed import Engine
from stsbench.results.folder import read_states
from stsbench.results.record import protocol_key

MIN_SAMPLE_SIZE, MAX_SAMPLE_SIZE = 16, 1024
"""The first and the largest number of sentences that measure an encoder's speed."""
MIN_SAMPLE_SECONDS = 0.5
"""A sample that takes less time is followed by one of four times as many sentences."""


@dataclass(frozen=True, kw_only=True)
class EncoderForecast:
    """The forecast of a run for one encoder."""

    encoder_plan: EncoderPlan
    embedding_seconds: float | None
    """The time to embed, by one worker; None if the sentences are unknown before fitting."""
    scoring_seconds: float | None
    """The time to score, as earlier results took; None if a task has no earlier result."""


def forecast_run(plan: RunPlan, callbacks: RunCallbacks) -> Iterator[EncoderForecast]:
    """Yield for each encoder of a run how long embedding and scoring will take.

    Nothing is scored or written, but encoders are loaded and data are read. Each encoder that has
    sentences to embed embeds a few of them, to measure its speed. An encoder that fails is
    reported to the callbacks, and its forecast lacks the time to embed.

    Args:
        plan: The settings of the run.
        callbacks: Called with failures and notices.

    Yields:
        The plan for an encoder, with the seconds to embed and to score; None for a time that cannot
        be known.

    Raises:
        StsbenchError: The plan is not valid, for example because it names a task that does not
            exist.
    """
    context = RunContext(plan, callbacks)
    earlier_seconds = _read_scoring_seconds(plan.results_folder)
    for encoder_plan in context.encoder_plans():
        n_sentences = encoder_plan.sentences_to_embed
        # None means unknown. It stays so if the number of sentences is unknown, because the encoder
        # is not fitted yet.
        embedding_seconds = 0.0 if n_sentences == 0 else None
        # Encoders on a server have a number of tokens to send, which are paid for: no sentence is
        # sent for a forecast.
        is_paid_for = encoder_plan.tokens_to_send is not None
        if n_sentences and not is_paid_for:
            # After an error that is reported, and so not raised, the seconds stay None.
            with context.report_errors(encoder_plan.name):
                embedding_seconds = _measure_embedding_seconds(context, encoder_plan)
        yield EncoderForecast(
            encoder_plan=encoder_plan,
            embedding_seconds=embedding_seconds,
            scoring_seconds=_forecast_scoring(context, encoder_plan, earlier_seconds),
        )


ScoringKey = tuple[str, str, str]
"""A task's name, its split, and its protocol as a text."""


def _read_scoring_seconds(results_folder: Path) -> dict[ScoringKey, list[float]]:
    """Return how many seconds stored results, of any encoder and of any state of it, took to score.

    Returns:
        The seconds of each result by task, split and protocol; empty if there is no results folder.
    """
    seconds_by_key: dict[ScoringKey, list[float]] = {}
    if not results_folder.is_dir():
        return seconds_by_key
    for result in read_states(results_folder).results:
        seconds = result.run.get("seconds")
        if isinstance(seconds, int | float):
            key = (result.task, result.split, protocol_key(result.protocol))
            seconds_by_key.setdefault(key, []).append(float(seconds))
    return seconds_by_key


def _forecast_scoring(
    context: RunContext,
    encoder_plan: EncoderPlan,
    earlier_seconds: Mapping[ScoringKey, Sequence[float]],
) -> float | None:
    """Estimate the seconds to score an encoder on all tasks that it has no result for yet.

    A cell is one score: an encoder on a task with a seed. Each missing cell is taken to need the
    median time of earlier results on its task.

    Args:
        context: The run, which has the tasks by name.
        encoder_plan: The encoder and its missing cells.
        earlier_seconds: How long each earlier result took to score, by task, split and protocol.

    Returns:
        The seconds for all missing cells; None if one has no earlier result.
    """
    total = 0.0
    for cell in encoder_plan.missing_cells:
        task = context.tasks[cell.task]
        key = (task.name, task.split, protocol_key(task.protocol))
        if key not in earlier_seconds:
            return None
        total += median(earlier_seconds[key])
    return total


def _measure_embedding_seconds(context: RunContext, encoder_plan: EncoderPlan) -> float:
    """Estimate how many seconds one worker takes to embed the missing sentences of an encoder.

    A sample of the tasks' sentences, from short to long, is embedded and timed; stored embeddings
    are not used. The sample begins with MIN_SAMPLE_SIZE sentences, and grows until it takes
    MIN_SAMPLE_SECONDS or has MAX_SAMPLE_SIZE sentences.

    Args:
        context: The run, which loads the encoder and its tasks.
        encoder_plan: The encoder, and how many sentences it has to embed.
    """
    encoder = context.load_encoder(encoder_plan)
    # An encoder may change the embeddings of another one, its base: shorten or whiten them. That
    # takes hardly any time, so the base alone is timed. Any other encoder is its own base.
    base = base_encoder(encoder.encoder)
    embedder = context.make_embedder(encoder, context.select_tasks(encoder_plan.missing_cells))
    sentences = {text for task in embedder.tasks for text in embedder.planned_task(task).texts()}
    by_length = sorted(sentences, key=lambda text: (len(text), text))
    # An engine embeds with an encoder; without a store it embeds everything anew. The first call
    # also loads the model, so it is not timed.
    Engine(base)(by_length[:1])
    sample_size = MIN_SAMPLE_SIZE
    while True:
        n_sentences = min(sample_size, len(by_length))
        # The indices of sentences, evenly spaced from the shortest to the longest.
        positions = np.linspace(0, len(by_length) - 1, n_sentences).astype(int)
        sample = [by_length[position] for position in positions]
        started = time.perf_counter()
        Engine(base)(sample)
        seconds = time.perf_counter() - started
        is_largest = sample_size >= min(MAX_SAMPLE_SIZE, len(by_length))
        if seconds > MIN_SAMPLE_SECONDS or is_largest:
            n_to_embed = encoder_plan.sentences_to_embed or 0
            return seconds * n_to_embed / len(sample)
        sample_size *= 4
