"""A whole run of training on the pretend accelerator: accelerate settles on one device per process.

Run by ``test_walks.py`` in a process of its own.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from stsbench.training.loop import loop
from stsbench.training.loop.gather import ProcessGroup
from tests.accelerator import pretend
from tests.training.methods import every_method
from tests.training.students import run_facts, sentences, student

MODULE, ALIVE = pretend.set_up()


def test_a_run_of_training_stays_on_the_accelerator(masked_lm, tmp_path, monkeypatch):
    # The two libraries know their kinds of devices by name, or this one.
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "pretend:0")
    monkeypatch.setattr(every_method, "student", partial(student, device=pretend.NAME))
    learner = every_method.made(masked_lm, "simcse")
    before = learner.encoders()[0].encode(sentences(12, seed=9))
    run = run_facts(tmp_path, 20, training={"steps": 4}, processes=ProcessGroup.find(pretend.NAME))
    trained = loop.train_learner(learner, run)
    assert trained.steps == 4 and np.isfinite([point["loss"] for point in trained.curve]).all()
    assert {weights.device.type for weights in learner.parameters()} == {pretend.NAME}
    after = learner.encoders()[0].encode(sentences(12, seed=9))
    assert np.abs(after - before).max() > 1e-3
