"""Ctrl-C while training: the step is finished, a checkpoint written, and the run goes on from it."""

import os
import signal
import threading
from typing import Any

import pytest

from stsbench.encoders import unfinished
from stsbench.errors import Stopped
from stsbench.training.loop import loop
from stsbench.training.loop.interrupt import Interrupt
from stsbench.training.methods.simcse import SimCSE
from tests.training.students import run_facts, sentences, student, weights


def learner(folder: Any) -> SimCSE:
    made = SimCSE(student(folder))
    made.prepare({"text": sentences(50)})
    return made


@pytest.fixture(autouse=True)
def python_s_own_handler() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_is_stopped_goes_on_where_it_was(masked_lm, tmp_path):
    whole = learner(masked_lm)
    curve = loop.train_learner(whole, run_facts(tmp_path / "whole", 50)).curve

    def pressed(progress: Any) -> None:
        if progress.step == 6:
            press()

    with pytest.raises(Stopped, match="stopped after step 6 of 10; to resume, run it again without --fresh"):
        loop.train_learner(learner(masked_lm), run_facts(tmp_path / "cut", 50, on_progress=pressed))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    last = unfinished.last_checkpoint(tmp_path / "cut")
    assert last is not None and last.name == "checkpoint-6"
    resumed = learner(masked_lm)
    assert loop.train_learner(resumed, run_facts(tmp_path / "cut", 50), resume=True).curve == curve
    assert all((weights(resumed)[name] == value).all() for name, value in weights(whole).items())


def test_after_the_last_step_there_is_nothing_to_stop(masked_lm, tmp_path):
    def pressed(progress: Any) -> None:
        if progress.step == 10:
            press()

    assert loop.train_learner(learner(masked_lm), run_facts(tmp_path, 50, on_progress=pressed)).steps == 10


def test_the_second_time_stops_at_once():
    with Interrupt() as interrupt:
        press()
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            press()


def test_others_handlers_and_other_threads_are_left_alone():
    mine: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: mine.append(number))
    with Interrupt() as interrupt:
        press()
    assert mine == [signal.SIGINT] and not interrupt.asked
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seen: list[Any] = []

    def elsewhere() -> None:
        with Interrupt():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    with Interrupt(alone=False):
        seen.append(signal.getsignal(signal.SIGINT))
    assert seen == [signal.default_int_handler] * 2
