"""The pace of a run and of its workers, the time that is left, and what does not move."""

from __future__ import annotations

import pytest

from stsbench.bench.listener import Crowd, Doing, Pace
from stsbench.bench.plan import Cell, RunPart
from tests.made import make_result


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def part(name: str, *tasks: str, to_embed: int | None = 100) -> RunPart:
    cells = [Cell(encoder=name, task=task, protocol="simcse", seed=0) for task in tasks]
    return RunPart(spec=name, name=name, cells=cells, done={}, to_embed=to_embed)


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
    known = RunPart(spec="one", name="one", cells=[cell], done={cell: make_result()}, to_embed=0)
    pace = Pace(clock)
    pace.planned([known])
    pace.began(known)
    assert pace.left() == 0


def test_speed_and_time_left_are_of_all_workers_together(clock):
    crowd = Crowd(clock=clock, cells=4, to_embed=100)
    assert (crowd.speed(), crowd.left()) == (None, None)
    crowd.tell(1, Doing(worker="a", what="one: embedding 1/2", sentences=25))
    crowd.tell(2, Doing(worker="b", what="one: embedding 2/2", sentences=25))
    clock.now = 10.0
    crowd.tell(1, Doing(worker="a", what="one: embedding 1/2", done=0.8, sentences=25))
    crowd.end(2, well=True)
    assert crowd.sentences == pytest.approx(45) and crowd.speed() == pytest.approx(4.5)
    assert crowd.left() is None, "no cell is scored yet"
    crowd.cell(well=True)
    clock.now = 20.0
    crowd.cell(well=False)
    assert (crowd.scored, crowd.failed) == (1, 1)
    # 55 sentences at 2.25 a second, against two cells at 5 seconds each.
    assert crowd.left() == pytest.approx(55 / 2.25)
    crowd.end(1, well=True)
    crowd.tell(3, Doing(worker="a", what="two: embedding", done=1.0, sentences=50))
    assert crowd.left() == pytest.approx(10)


def test_what_failed_is_not_counted_as_embedded(clock):
    crowd = Crowd(clock=clock, cells=1, to_embed=10)
    crowd.tell(1, Doing(worker="a", what="one", done=0.9, sentences=10))
    crowd.end(1, well=False)
    crowd.end(9, well=True)
    clock.now = 5.0
    assert crowd.sentences == 0 and crowd.speed() is None and crowd.doing == {}


def test_a_run_that_embeds_nothing_has_a_time_left(clock):
    crowd = Crowd(clock=clock, cells=3)
    crowd.cell(well=True)
    clock.now = 6.0
    crowd.cell(well=True)
    assert crowd.left() == pytest.approx(3)


def test_what_does_not_move_is_said_ever_less_often(clock):
    waits, said = Crowd(clock=clock), {}
    for minute in range(60):
        clock.now = 60.0 * minute
        if (minutes := waits.still()) is not None:
            said[minute] = minutes
    assert said == {5: 5, 10: 10, 20: 20, 40: 40}
    waits.tell(1, Doing(worker="a", what="one"))
    assert waits.still() is None and waits.over([1, 2], 60) == []
    clock.now += 61
    assert waits.over([1, 2], 60) == [1] and waits.over([1, 2], None) == []
