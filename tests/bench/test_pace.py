"""The pace of a run and of its workers, the time that is left, and what does not move."""

from __future__ import annotations

import pytest

from stsbench.bench.plan import Cell, Doing, Listener, Pace, RunPart
from tests.made import make_result


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def part(name: str, *tasks: str, to_embed: int | None = 100) -> RunPart:
    cells = [Cell(encoder=name, task=task, protocol="simcse", seed=0) for task in tasks]
    return RunPart(spec=name, name=name, cells=cells, done={}, to_embed=to_embed)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def embed(listener: Listener, clock: Clock, seconds: float) -> None:
    for done in range(11):
        listener.encoding(done, 10)
        if done < 10:
            clock.now += seconds / 10


def score(listener: Listener, clock: Clock, task: str, seconds: float) -> None:
    listener.scoring(task)
    clock.now += seconds
    listener.scored(make_result(task=task))


def test_of_a_single_encoder_the_rest_of_its_sentences_and_then_of_its_tasks(clock):
    one = part("one", "a", "b", "c")
    pace = Pace([one], clock)
    told: list[str] = []
    listener = Listener(working=lambda pace: told.extend(doing.what for doing in pace.doing.values()))
    listener = listener.following(pace, one, "1/1 one")
    assert pace.left() is None
    clock.now += 7  # loading
    listener.encoding(0, 10)
    assert pace.left() is None
    clock.now += 3
    listener.encoding(3, 10)
    assert pace.left() == pytest.approx(7)
    clock.now += 7
    listener.encoding(10, 10)
    score(listener, clock, "a", 4)
    assert pace.left() == pytest.approx(4 + 4)
    score(listener, clock, "b", 2)
    assert pace.left() == pytest.approx(3)
    score(listener, clock, "c", 1)
    assert pace.left() == 0
    assert list(dict.fromkeys(told)) == [
        "1/1 one: loading",
        "1/1 one: embedding",
        *(f"1/1 one: scoring {t}" for t in "abc"),
    ]


def test_encoders_whose_turn_has_not_come_take_as_long_a_sentence_and_as_long_a_cell(clock):
    parts = [part("one", "a", "b"), part("two", "a", "b", to_embed=300), part("fitted", "a", to_embed=None)]
    pace = Pace(parts, clock)
    listener = Listener().following(pace, parts[0], "one")
    embed(listener, clock, 20)
    score(listener, clock, "a", 1)
    # Its other task has failed.
    pace.turn(parts[1:])
    listener = Listener().following(pace, parts[1], "two")
    assert (pace.scored, pace.failed) == (1, 1)
    # 0.2 s a sentence, and half a second each of the two cells so far.
    assert pace.left() == pytest.approx(300 * 0.2 + 3 * 0.5)
    embed(listener, clock, 30)
    assert pace.left() == pytest.approx(3 * 0.5)


def test_what_is_known_takes_no_time(clock):
    cell = Cell(encoder="one", task="a", protocol="simcse", seed=0)
    known = RunPart(spec="one", name="one", cells=[cell], done={cell: make_result()}, to_embed=0)
    assert Pace([known], clock).left() == 0


def test_speed_and_time_left_are_of_all_workers_together(clock):
    pace = Pace([part("one", "a", "b"), part("two", "a", "b", to_embed=0)], clock)
    assert (pace.speed(), pace.left()) == (None, None)
    pace.tell(1, Doing(worker="a", what="one: embedding 1/2", sentences=25))
    pace.tell(2, Doing(worker="b", what="one: embedding 2/2", sentences=25))
    clock.now = 10.0
    pace.tell(1, Doing(worker="a", what="one: embedding 1/2", done=0.8, sentences=25))
    pace.end(2)
    assert pace.sentences == pytest.approx(45) and pace.speed() == pytest.approx(4.5)
    pace.tell(3, Doing(worker="b", what="one: scoring a", cells=1))
    clock.now = 20.0
    pace.scored, pace.failed = 1, 1
    assert pace.running == 1
    # 55 sentences at 2.25 a second, against two cells at 5 seconds each.
    assert pace.left() == pytest.approx(55 / 2.25)
    pace.end(1)
    pace.tell(4, Doing(worker="a", what="two: embedding", done=1.0, sentences=50))
    assert pace.left() == pytest.approx(10)
    # Of what failed nothing is embedded.
    pace.end(4, well=False)
    pace.end(9)
    assert pace.sentences == 50


def test_what_does_not_move_is_said_ever_less_often(clock):
    waits, said = Pace(clock=clock), {}
    for minute in range(60):
        clock.now = 60.0 * minute
        if (minutes := waits.still()) is not None:
            said[minute] = minutes
    assert said == {5: 5, 10: 10, 20: 20, 40: 40}
    waits.tell(1, Doing(worker="a", what="one"))
    assert waits.still() is None and waits.over([1, 2], 60) == []
    clock.now += 61
    assert waits.over([1, 2], 60) == [1] and waits.over([1, 2], None) == []
