"""Methods that train themselves: stopped at any round and resumed, they end with the bytes of an undisturbed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stsbench.core.errors import TrainingError
from stsbench.encoders.runs import STATE_FILE
from stsbench.training.learner import Columns, Point, TrainingProgress
from stsbench.training.words.fastsent import FastSentTraining
from stsbench.training.words.infersent import InferSentTraining
from stsbench.training.words.recurrent_methods import QuickThoughtsTraining, SkipThoughtsTraining
from stsbench.training.words.rounds import StandaloneMethod
from tests.encoders.words.word_encoders import COMMON, VECTORS
from tests.encoders.words.word_files import cache
from tests.training.words.ordered_text import STORY

__all__ = ["cache"]
pytestmark = pytest.mark.usefixtures("cache")
METHODS = ["fastsent", "infersent", "quick_thoughts", "skip_thoughts"]


def method(name: str, folder: Path) -> tuple[StandaloneMethod, Columns]:
    if name == "fastsent":
        return FastSentTraining(size=6, min_count=1, sample=0.05, epochs=4, batch_size=40), STORY
    if name == "quick_thoughts":
        return QuickThoughtsTraining(word_size=4, hidden=2, batch_size=10, epochs=2, every=5), STORY
    if name == "skip_thoughts":
        return SkipThoughtsTraining(
            word_size=4, hidden=4, batch_size=16, epochs=2, every=3, vocabulary=40
        ), STORY
    path = folder / "vectors.txt"
    path.write_text(VECTORS[1] + COMMON)
    words = [line.split()[0] for line in COMMON.splitlines()]
    texts = [f"{words[i % len(words)]} {words[(3 * i + 1) % len(words)]}" for i in range(40)]
    pairs = {
        "first": texts,
        "second": texts[::-1],
        "label": ["a" if i % 3 else "b" for i in range(40)],
    }
    return InferSentTraining(
        vectors=str(path), hidden=2, head_size=3, batch_size=4, epochs=5
    ), pairs


class Killed(BaseException):
    """As a kill: nothing may be written after it."""


def spread(encoder: Any) -> float:
    return float(encoder.encode(["the cat sleeps here", "waves hit this beach"]).std())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("validate", [None, spread])
@pytest.mark.parametrize("at", [1, 3])
def test_a_resumed_training_ends_where_an_undisturbed_one_does(tmp_path, name, validate, at):
    training, columns = method(name, tmp_path)
    whole = training.fit(columns, folder=tmp_path / "whole", seed=3, validate=validate)
    points = [point for point in whole.curve if point["step"]]
    assert len(points) > at
    heard: list[Point] = []

    def kill(progress: TrainingProgress) -> None:
        heard.extend([progress.point] if progress.point else [])
        if len(heard) == at:
            raise Killed

    with pytest.raises(Killed):
        training.fit(columns, folder=tmp_path / "cut", seed=3, validate=validate, on_progress=kill)
    steps: list[tuple[int, int]] = []
    more: dict[str, Any] = {
        "validate": validate,
        "on_progress": lambda one: steps.append((one.step, one.steps)),
    }
    assert training.fit(columns, folder=tmp_path / "cut", seed=3, **more, resume=True) == whole
    # It is as far as it was, and what is left goes to the end.
    planned = training.prepare(columns, 3).total_steps(training.epochs)
    assert steps[0] == (points[at - 1]["step"] + 1, planned)
    assert steps[-1][0] == points[-1]["step"] == whole.steps
    for name in ("model.safetensors", "curve.jsonl"):
        weights = [(tmp_path / run / name).read_bytes() for run in ("whole", "cut")]
        assert weights[0] == weights[1]


def test_a_state_is_forgotten_without_resume_and_of_another_text_refused(tmp_path):
    training, columns = method("fastsent", tmp_path)
    training.fit(columns, folder=tmp_path / "run", seed=1)
    again, fresh = (
        training.fit(columns, folder=tmp_path / name, seed=2) for name in ("run", "new")
    )
    assert again == fresh
    less = {name: values[:60] for name, values in columns.items()}
    with pytest.raises(TrainingError, match="another training; .*`fresh`"):
        training.fit({**less, "text": ["a b c"] * 60}, folder=tmp_path / "run", seed=1, resume=True)


def test_a_damaged_checkpoint_is_one_line(tmp_path):
    training, columns = method("fastsent", tmp_path)
    training.fit(columns, folder=tmp_path / "run", seed=1)
    path = tmp_path / "run" / STATE_FILE
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(TrainingError, match=r"checkpoint cannot be read \(pass `fresh` .*: Error"):
        training.fit(columns, folder=tmp_path / "run", seed=1, resume=True)


@pytest.mark.parametrize("name", METHODS)
def test_every_step_is_heard_of_and_how_many_there_are(tmp_path, name):
    training, columns = method(name, tmp_path)
    heard: list[TrainingProgress] = []
    outcome = training.fit(columns, folder=tmp_path / "whole", seed=1, on_progress=heard.append)
    lesson = training.prepare(columns, 1)
    planned = lesson.total_steps(training.epochs)
    # InferSent may end sooner than planned: its rate falls.
    assert outcome.steps == planned if name != "infersent" else outcome.steps <= planned
    steps = [(one.step, one.steps) for one in heard if one.point is None]
    assert steps == [(step + 1, planned) for step in range(outcome.steps)]
    assert [one.point for one in heard if one.point] == outcome.curve
