"""What a run would do: which cells are done, how many sentences it would embed, how long scoring takes. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from stsbench.bench.cells import RunPart, RunSettings
from stsbench.bench.embedder import what_embeds
from stsbench.bench.listener import Listener
from stsbench.bench.run import cells_to_do
from stsbench.bench.tasks import ScoredTask
from stsbench.bench.work import Work, isolated
from stsbench.encoders.engine.embed import Engine
from stsbench.results.comparable import protocol_key
from stsbench.results.folder import scan_results
from stsbench.results.record import Result

FIRST_SAMPLE, LAST_SAMPLE = 16, 1024
"""Sentences that tell an encoder's speed: four times as many as long as they take less than ..."""
PROBE_SECONDS = 0.5
"""... this."""


@dataclass(frozen=True, kw_only=True)
class EncoderForecast:
    """What a run would do for one encoder."""

    part: RunPart
    embedding: float | None
    """Seconds of embedding by one worker, as a sample of its sentences took here; None where only fitting tells."""
    seconds: float | None
    """Of scoring what is missing, as earlier results took; None where one of its tasks has no earlier result."""


def forecast_run(settings: RunSettings, listener: Listener) -> Iterator[EncoderForecast]:
    """Yield what a run would do, an encoder at a time; data are read, and nothing is scored or written.

    Each encoder that has sentences to embed embeds a few of them, for its speed; one that fails is told.

    Raises:
        StsbenchError: as :func:`stsbench.bench.run.run`.
    """
    work = Work(cells_to_do(settings), settings, listener)
    held = scan_results(settings.out).results if settings.out.is_dir() else []
    for part in work.parts():
        seconds = [_usual_seconds(work.tasks[cell.task, cell.protocol], held) for cell in part.missing]
        measured = [one for one in seconds if one is not None]
        embedding = 0.0 if part.to_embed == 0 else None
        # What a server is sent is paid for: nothing is sent for a forecast.
        if part.to_embed and part.tokens is None:
            with isolated(part.name, settings, listener):
                embedding = _seconds_to_embed(work, part)
        yield EncoderForecast(
            part=part, embedding=embedding, seconds=sum(measured) if len(measured) == len(seconds) else None
        )


def _seconds_to_embed(work: Work, part: RunPart) -> float:
    """How long one worker takes for what is missing: the time of a sample that is as long and as short as all of it."""
    base = what_embeds(work.encoder(part).encoder)
    texts = {text for task in work.seeds(part.missing) for text in task.texts()}
    by_length = sorted(texts, key=lambda text: (len(text), text))
    # The first call loads the model.
    Engine(base)(by_length[:1])
    size = FIRST_SAMPLE
    while True:
        sample = [by_length[i] for i in np.linspace(0, len(by_length) - 1, min(size, len(by_length))).astype(int)]
        started = time.perf_counter()
        Engine(base)(sample)
        took = time.perf_counter() - started
        if took > PROBE_SECONDS or size >= min(LAST_SAMPLE, len(by_length)):
            return took * (part.to_embed or 0) / len(sample)
        size *= 4


def _usual_seconds(task: ScoredTask, held: Sequence[Result]) -> float | None:
    """How long earlier results of a task took to score under its protocol, whichever encoder's: the median."""
    same = (task.name, task.split, protocol_key(task.protocol))
    took = [one.run.get("seconds") for one in held if (one.task, one.split, protocol_key(one.protocol)) == same]
    found = [float(one) for one in took if isinstance(one, int | float)]
    return median(found) if found else None
