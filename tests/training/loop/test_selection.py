"""Losses are read by tens where a device would be waited for; Ctrl-C ends a run after its step, with a checkpoint."""

from __future__ import annotations

import math
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stsbench.core.cards import SelectionSection, TrainingSection
from stsbench.core.errors import Interrupted, TrainingError
from stsbench.encoders import runs as unfinished
from stsbench.training.loop import loop, selection
from stsbench.training.loop.batches import Batches, BatchPlan
from stsbench.training.loop.loop import interruptible
from stsbench.training.loop.selection import LossHistory, is_validation_due
from stsbench.training.methods.simcse import SimCSE
from tests.training.students import run_facts, sentences, student, weights

TEXTS = sentences(50)


class Breaking(SimCSE):
    """Loses its way at a batch."""

    calls, at = 0, 4

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:
        self.calls += 1
        found = super().forward(**batch)
        return {"loss": found["loss"] * float("nan")} if self.calls >= self.at else found


def learner(folder: Path, method: type[SimCSE] = SimCSE) -> SimCSE:
    made = method(student(folder))
    made.prepare({"text": TEXTS})
    return made


def watching(folder: Path, every: int) -> LossHistory:
    found = LossHistory(folder, torch.device("cpu"))
    found.read_interval = every
    return found


def test_a_loss_that_is_not_finite_is_reported_with_its_own_step(tmp_path):
    seen = watching(tmp_path, 4)
    for number, value in enumerate((1.0, 2.0, math.inf), 1):
        seen.record({"loss": torch.tensor(value)}, step=number)
    assert math.isnan(seen.last_loss)
    with pytest.raises(
        TrainingError, match="the loss is inf at step 3; lower learning rate .*nothing is kept"
    ):
        seen.record({"loss": torch.tensor(math.nan)}, step=4)
    assert seen.last_loss == 2.0


def test_means_leave_out_what_overflowed_and_start_anew(tmp_path):
    seen = watching(tmp_path, 1)
    for value, norm in ((1.0, math.inf), (3.0, 5.0)):
        seen.record({"loss": torch.tensor(value, dtype=torch.bfloat16)}, step=1)
        seen.record_gradient_norm(torch.tensor(norm))
    state = seen.as_numbers()
    assert seen.take_means() == {"loss": 2.0, "gradient_norm": 5.0} and seen.take_means() == {}
    again = watching(tmp_path, 1)
    again.restore(state)
    assert again.last_loss == 3.0 and again.take_means() == {"loss": 2.0, "gradient_norm": 5.0}


@pytest.mark.parametrize("options", [{"checkpoint_seconds": 0.0}, {"selection": {"every": 4}}, {}])
def test_nothing_is_kept_that_a_loss_not_yet_read_has_spoilt(
    masked_lm, tmp_path, monkeypatch, options
):
    monkeypatch.setitem(selection.READ_INTERVAL_BY_DEVICE, "cpu", 100)
    heard: list[Any] = []
    with pytest.raises(TrainingError, match="nan at step 4; "):
        loop.train_learner(
            learner(masked_lm, Breaking),
            run_facts(tmp_path, 50, on_progress=heard.append, **options),
        )
    kept = unfinished.find_last_checkpoint(tmp_path)
    assert (kept.name if kept else None) == (
        "checkpoint-3" if "checkpoint_seconds" in options else None
    )
    assert all(math.isfinite(one.point["score"]) for one in heard if one.point)


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often a value is asked for on the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def list_values(self, tensor: torch.Tensor) -> list[Any]:
        self.count += 1
        values: list[Any] = tensor.numpy().tolist()
        return values

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += str(function) in ("aten._local_scalar_dense.default", "aten.nonzero.default")
        return function(*args, **(kwargs or {}))


def test_our_steps_wait_for_no_device(masked_lm, tmp_path, monkeypatch):
    """On a CPU as it would be on a GPU: what is read at each step is what the model's own library reads."""
    monkeypatch.setitem(selection.READ_INTERVAL_BY_DEVICE, "cpu", selection.OTHER_READ_INTERVAL)
    monkeypatch.setattr(loop, "speed_up", lambda learner, **options: None)
    counts = {}
    for steps in (10, 20):
        with Reads() as reads, monkeypatch.context() as patch:
            patch.setattr(
                torch.Tensor, "tolist", lambda tensor, reads=reads: reads.list_values(tensor)
            )
            run = run_facts(tmp_path / str(steps), 50, validate=None, training={"steps": steps})
            loop.train_learner(learner(masked_lm), run)
        counts[steps] = reads.count
    made = learner(masked_lm)
    assert not made.student.backbone.depends_on_padding  # asked once a run
    with Reads() as reads:
        made(**Batches(learner(masked_lm), run.batches)[0])
    # In ten steps: the losses, and the loss and the norm of the gradient that the library logs.
    assert counts[20] - counts[10] == 10 * reads.count + 3


@pytest.mark.parametrize("every", [50, 49])
def test_epochs_too_short_for_a_validation_end_with_one(every: int):
    section = SelectionSection(every=every, restart_each_epoch=True, at_end=False)
    # Three epochs of 50 steps.
    plan = BatchPlan(TrainingSection(batch_size=2, learning_rate=1, epochs=3), n_rows=100, seed=0)
    due = [step for step in range(plan.steps + 1) if is_validation_due(section, plan, step)]
    assert due == ([150] if every == 50 else [49, 99, 149])


@pytest.mark.parametrize(
    ("epochs", "accumulate", "settings", "due"),
    [
        # Five batches an epoch, two a step: an epoch ends within steps 3, 8 and 13, and after steps 5 and 10.
        (5.0, 2, {"at_epoch_end": True, "every": 99}, [3, 5, 8, 10, 13]),
        (2.0, 7, {"at_epoch_end": True, "every": 99}, [1, 2]),
        # Nine batches: the second epoch does not end.
        (1.8, 2, {"at_epoch_end": True, "every": 4}, [3, 4]),
        (2.0, 2, {"restart_each_epoch": True, "every": 2}, [2]),
        (2.0, 2, {"restart_each_epoch": True, "every": 1}, [1, 2, 4]),
        (2.0, 2, {"restart_each_epoch": True, "every": 3}, [5]),
    ],
)
def test_an_epoch_may_end_within_a_step(
    epochs: float, accumulate: int, settings: dict[str, Any], due: list[int]
):
    training = TrainingSection(
        batch_size=2, learning_rate=1, epochs=epochs, accumulate=accumulate, drop_last=True
    )
    plan = BatchPlan(training, n_rows=10, seed=0)
    section = SelectionSection(at_end=False, **settings)
    found = [step for step in range(plan.steps + 1) if is_validation_due(section, plan, step)]
    assert found == due


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

    with pytest.raises(
        Interrupted, match="stopped after step 6 of 10; to resume, run it again without `fresh`"
    ):
        loop.train_learner(learner(masked_lm), run_facts(tmp_path / "cut", 50, on_progress=pressed))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    last = unfinished.find_last_checkpoint(tmp_path / "cut")
    assert last is not None and last.name == "checkpoint-6"
    resumed = learner(masked_lm)
    assert loop.train_learner(resumed, run_facts(tmp_path / "cut", 50), resume=True).curve == curve
    assert all((weights(resumed)[name] == value).all() for name, value in weights(whole).items())


def test_after_the_last_step_there_is_nothing_to_stop(masked_lm, tmp_path):
    def pressed(progress: Any) -> None:
        if progress.step == 10:
            press()

    assert (
        loop.train_learner(learner(masked_lm), run_facts(tmp_path, 50, on_progress=pressed)).steps
        == 10
    )


def test_the_second_time_stops_at_once():
    asked = threading.Event()
    with interruptible(asked):
        press()
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_others_handlers_and_other_threads_are_left_alone():
    mine: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: mine.append(number))
    asked = threading.Event()
    with interruptible(asked):
        press()
    assert mine == [signal.SIGINT] and not asked.is_set()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seen: list[Any] = []

    def elsewhere() -> None:
        with interruptible(asked):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    with interruptible(asked, alone=False):
        seen.append(signal.getsignal(signal.SIGINT))
    assert seen == [signal.default_int_handler] * 2
