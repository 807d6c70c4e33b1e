"""The pace of a run and of its workers, the time that is left, and what does not move."""

from __future__ import annotations

import pytest

from stsbench.bench.plan import Cell, EncoderPlan
from stsbench.bench.progress import JobProgress, ProgressTracker, RunCallbacks
from tests.made import make_result


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def part(name: str, *tasks: str, to_embed: int | None = 100) -> EncoderPlan:
    cells = [Cell(encoder=name, task=task, protocol="simcse", seed=0) for task in tasks]
    return EncoderPlan(
        spec=name, name=name, cells=cells, current_results={}, sentences_to_embed=to_embed
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


def embed(listener: RunCallbacks, clock: Clock, seconds: float) -> None:
    for done in range(11):
        listener.on_embedding(done, 10)
        if done < 10:
            clock.now += seconds / 10


def score(listener: RunCallbacks, clock: Clock, task: str, seconds: float) -> None:
    listener.on_scoring(task)
    clock.now += seconds
    listener.on_result(make_result(task=task))


def test_of_a_single_encoder_the_rest_of_its_sentences_and_then_of_its_tasks(clock):
    one = part("one", "a", "b", "c")
    pace = ProgressTracker([one], clock)
    told: list[str] = []
    listener = RunCallbacks(
        on_progress=lambda pace: told.extend(doing.label for doing in pace.current_jobs.values())
    )
    listener = listener.with_progress(pace, one, "1/1 one")
    assert pace.seconds_left() is None
    clock.now += 7  # loading
    listener.on_embedding(0, 10)
    assert pace.seconds_left() is None
    clock.now += 3
    listener.on_embedding(3, 10)
    assert pace.seconds_left() == pytest.approx(7)
    clock.now += 7
    listener.on_embedding(10, 10)
    score(listener, clock, "a", 4)
    assert pace.seconds_left() == pytest.approx(4 + 4)
    score(listener, clock, "b", 2)
    assert pace.seconds_left() == pytest.approx(3)
    score(listener, clock, "c", 1)
    assert pace.seconds_left() == 0
    assert list(dict.fromkeys(told)) == [
        "1/1 one: loading",
        "1/1 one: embedding",
        *(f"1/1 one: scoring {t}" for t in "abc"),
    ]


def test_encoders_whose_turn_has_not_come_take_as_long_a_sentence_and_as_long_a_cell(clock):
    parts = [
        part("one", "a", "b"),
        part("two", "a", "b", to_embed=300),
        part("fitted", "a", to_embed=None),
    ]
    pace = ProgressTracker(parts, clock)
    listener = RunCallbacks().with_progress(pace, parts[0], "one")
    embed(listener, clock, 20)
    score(listener, clock, "a", 1)
    # Its other task has failed.
    pace.start_encoder(parts[1:])
    listener = RunCallbacks().with_progress(pace, parts[1], "two")
    assert (pace.scored_cells, pace.failed_cells) == (1, 1)
    # 0.2 s a sentence, and half a second each of the two cells so far.
    assert pace.seconds_left() == pytest.approx(300 * 0.2 + 3 * 0.5)
    embed(listener, clock, 30)
    assert pace.seconds_left() == pytest.approx(3 * 0.5)


def test_what_is_known_takes_no_time(clock):
    cell = Cell(encoder="one", task="a", protocol="simcse", seed=0)
    known = EncoderPlan(
        spec="one",
        name="one",
        cells=[cell],
        current_results={cell: make_result()},
        sentences_to_embed=0,
    )
    assert ProgressTracker([known], clock).seconds_left() == 0


def test_speed_and_time_left_are_of_all_workers_together(clock):
    pace = ProgressTracker([part("one", "a", "b"), part("two", "a", "b", to_embed=0)], clock)
    assert (pace.sentences_per_second(), pace.seconds_left()) == (None, None)
    pace.update(1, JobProgress(worker="a", label="one: embedding 1/2", sentences=25))
    pace.update(2, JobProgress(worker="b", label="one: embedding 2/2", sentences=25))
    clock.now = 10.0
    pace.update(1, JobProgress(worker="a", label="one: embedding 1/2", fraction=0.8, sentences=25))
    pace.finish(2)
    assert pace.embedded_sentences == pytest.approx(
        45
    ) and pace.sentences_per_second() == pytest.approx(4.5)
    pace.update(3, JobProgress(worker="b", label="one: scoring a", cells=1))
    clock.now = 20.0
    pace.scored_cells, pace.failed_cells = 1, 1
    assert pace.running_cells == 1
    # 55 sentences at 2.25 a second, against two cells at 5 seconds each.
    assert pace.seconds_left() == pytest.approx(55 / 2.25)
    pace.finish(1)
    pace.update(4, JobProgress(worker="a", label="two: embedding", fraction=1.0, sentences=50))
    assert pace.seconds_left() == pytest.approx(10)
    # Of what failed nothing is embedded.
    pace.finish(4, succeeded=False)
    pace.finish(9)
    assert pace.embedded_sentences == 50


def test_what_does_not_move_is_said_ever_less_often(clock):
    waits, said = ProgressTracker(clock=clock), {}
    for minute in range(60):
        clock.now = 60.0 * minute
        if (minutes := waits.report_stall()) is not None:
            said[minute] = minutes
    assert said == {5: 5, 10: 10, 20: 20, 40: 40}
    waits.update(1, JobProgress(worker="a", label="one"))
    assert waits.report_stall() is None and waits.overdue_jobs([1, 2], 60) == []
    clock.now += 61
    assert waits.overdue_jobs([1, 2], 60) == [1] and waits.overdue_jobs([1, 2], None) == []
