"""The pace of several workers together."""

from __future__ import annotations

import pytest

from stsbench.bench.crowd import Crowd, Doing


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_speed_and_time_left_are_of_all_workers_together():
    clock = Clock()
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


def test_what_failed_is_not_counted_as_embedded():
    clock = Clock()
    crowd = Crowd(clock=clock, cells=1, to_embed=10)
    crowd.tell(1, Doing(worker="a", what="one", done=0.9, sentences=10))
    crowd.end(1, well=False)
    crowd.end("never told of", well=True)
    clock.now = 5.0
    assert crowd.sentences == 0 and crowd.speed() is None and crowd.doing == {}


def test_a_run_that_embeds_nothing_has_a_time_left():
    clock = Clock()
    crowd = Crowd(clock=clock, cells=3)
    crowd.cell(well=True)
    clock.now = 6.0
    crowd.cell(well=True)
    assert crowd.left() == pytest.approx(3)
