"""The time that is left, of runs whose encoders and tasks take what we say they take."""

from __future__ import annotations

import pytest

from stsbench.bench.cells import Cell, RunPart
from stsbench.bench.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def part(name: str, *tasks: str, to_embed: int | None = 100) -> RunPart:
    cells = [Cell(encoder=name, task=task, protocol="simcse", seed=0) for task in tasks]
    return RunPart(spec=name, name=name, cells=cells, done=[], to_embed=to_embed)


def embed(pace: Pace, clock: Clock, seconds: float) -> None:
    for done in range(11):
        pace.encoding(done, 10)
        if done < 10:
            clock.now += seconds / 10


def score(pace: Pace, clock: Clock, task: str, seconds: float) -> None:
    pace.scoring(task)
    clock.now += seconds
    pace.scored()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_of_a_single_encoder_the_rest_of_its_sentences_and_then_of_its_tasks(clock):
    pace, one = Pace(clock), part("one", "a", "b", "c")
    pace.planned([one])
    assert pace.left() is None
    pace.began(one)
    clock.now += 7  # loading
    pace.encoding(0, 10)
    assert pace.left() is None
    clock.now += 3
    pace.encoding(3, 10)
    assert pace.left() == pytest.approx(7)
    embed(pace, clock, 10)
    score(pace, clock, "a", 4)
    assert pace.left() == pytest.approx(4 + 4)
    score(pace, clock, "b", 2)
    assert pace.left() == pytest.approx(3)
    score(pace, clock, "c", 1)
    assert pace.left() == pytest.approx(0)


def test_encoders_whose_turn_has_not_come_take_as_long_a_sentence_and_as_long_a_task(clock):
    pace = Pace(clock)
    parts = [part("one", "a", "b"), part("two", "a", "b", to_embed=300), part("fitted", "a", to_embed=None)]
    pace.planned(parts)
    pace.began(parts[0])
    embed(pace, clock, 20)
    score(pace, clock, "a", 1)
    score(pace, clock, "b", 5)
    pace.began(parts[1])
    # 0.2 s a sentence; a and b again, and a once more.
    assert pace.left() == pytest.approx(300 * 0.2 + 1 + 5 + 1)
    embed(pace, clock, 30)
    assert pace.left() == pytest.approx(1 + 5 + 1)
    score(pace, clock, "a", 3)
    assert pace.left() == pytest.approx(5 + 2)


def test_what_is_known_takes_no_time(clock):
    cell = Cell(encoder="one", task="a", protocol="simcse", seed=0)
    known = RunPart(spec="one", name="one", cells=[cell], done=[cell], to_embed=0)
    pace = Pace(clock)
    pace.planned([known])
    pace.began(known)
    assert pace.left() == 0
