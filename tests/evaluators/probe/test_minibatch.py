"""When classifiers stop, on accuracies made up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.encoders.base import FloatArray
from stsbench.evaluators.probe import items as pool_module
from stsbench.evaluators.probe.evaluator import MinibatchProtocol
from stsbench.evaluators.probe.items import Features, ProbeItems, ProbeRun, make_items
from stsbench.evaluators.probe.minibatch import (
    CompiledSolver,
    Lockstep,
    MinibatchSolver,
    TrainedWeights,
    train_until_stopped,
)
from stsbench.evaluators.probe.stacked import StackedSolver
from tests.evaluators.probe.helpers import One, make_pairs, make_split, train_one


class Scripted:
    """Classifiers whose accuracies at each check are written down; weights are the check's number."""

    def __init__(self, *scripts: list[float]) -> None:
        self.scripts, self.check, self.epochs, self.remaining_members = (
            scripts,
            -1,
            0,
            np.arange(len(scripts)),
        )

    def train(self, epochs: range) -> None:
        assert epochs.start == self.epochs
        self.epochs, self.check = epochs.stop, self.check + 1

    def accuracies(self):
        return np.array(
            [
                self.scripts[m][min(self.check, len(self.scripts[m]) - 1)]
                for m in self.remaining_members
            ]
        )

    def weights_at(self, place):
        return self.check

    def keep(self, stay):
        self.remaining_members = self.remaining_members[stay]


PROTOCOL = MinibatchProtocol(name="test")
RISING = [at / 100 for at in range(100)]


@pytest.mark.parametrize(
    ("script", "changed", "weights", "accuracy", "epochs"),
    [
        # Failures: the two repeats of .5, then three of .7, then one of .8: the sixth ends it, gains between or not.
        ([0.5, 0.5, 0.5, 0.7, 0.7, 0.6, 0.7, 0.8, 0.8, 0.9], {}, 7, 0.8, 9 * 4),
        (RISING, {}, 50, 0.5, 204),  # 200 itself is not beyond 200
        (RISING, {"epoch_size": 1, "max_epochs": 15}, 15, 0.15, 16),
        # Nothing right at all is still better than before any check.
        ([0.0], {}, 0, 0.0, 28),
        ([0.4], {"tenacity": 0, "epoch_size": 2}, 0, 0.4, 4),
        ([0.4], {"tenacity": 3, "epoch_size": 2}, 0, 0.4, 10),
    ],
)
def test_training_ends_at_failures_in_all_or_after_the_most_epochs(
    script, changed, weights, accuracy, epochs
):
    for others in ([], [[0.3]], [RISING]):  # each classifier stops by itself
        found = train_until_stopped(Scripted(script, *others), replace(PROTOCOL, **changed))
        assert (found[0].weights, found[0].accuracy, found[0].epochs) == (weights, accuracy, epochs)


DECAYS = (1e-5, 1e-2)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")),
]
Make = Callable[[MinibatchProtocol, ProbeRun], MinibatchSolver]


def stacked_on(device: str) -> Make:
    return lambda rules, run: StackedSolver(rules, ProbeRun(run.width, run.classes, device=device))


def protocol(**changed: Any) -> MinibatchProtocol:
    usual = {"max_epochs": 30, "batch_size": 16, "tenacity": 2, "weight_decays": DECAYS}
    return MinibatchProtocol(name="test", **{**usual, **changed})


def make_rows(
    features: Features, classes: int, memory: int = 1 << 20, n: int = 203
) -> tuple[ProbeItems, FloatArray]:
    """Items in their split's order, and their features computed the slow way."""
    split, embed = (
        make_split(n, classes=classes) if features == "u" else make_pairs(n, classes=classes)
    )
    u, v = (np.asarray(embed(split.sides[at])) for at in (0, -1))
    parts = {
        "u": [u],
        "abs_mul": [np.abs(u - v), u * v],
        "concat_mul_abs": [u, v, u * v, np.abs(u - v)],
    }
    pool = make_items(split, embed, features, memory).pool
    return ProbeItems(pool, np.arange(n), split.labels), np.hstack(parts[features])


def check_against_reference(
    make: Make, rules: MinibatchProtocol, features: Features, classes: int, **options: int
) -> Iterator[tuple[TrainedWeights, One]]:
    """Train both ways and yield what was trained, each with its reference."""
    rows, x = make_rows(features, classes, **options)
    solver = make(rules, ProbeRun(x.shape[1], classes, threads=2))
    # Two folds of 203 items: training sizes 101 and 102, so that two stacks and last batches differ.
    folds = rows.folds(2, 1111)
    found = solver.search(folds)
    for (train, dev), row in zip(folds, found.classifiers, strict=True):
        for decay, trained in zip(DECAYS, row, strict=True):
            held_out = x[dev.indices], dev.labels
            one = train_one(
                x[train.indices], train.labels, held_out, rules, decay=decay, classes=classes
            )
            assert (trained.epochs, trained.accuracy) == (one.epochs, one.accuracy)
            assert np.array_equal(solver.predict(trained, dev), one.predict(x[dev.indices]))
            yield trained, one


@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop", "sgd,lr=0.1", "sgd,lr=0.05,momentum=0.9"])
@pytest.mark.parametrize("classes", [2, 4])
def test_compiled_loops_train_what_torch_trains(optimiser, loss, classes):
    rules = protocol(optimiser=optimiser, loss=loss)
    for trained, one in check_against_reference(CompiledSolver, rules, "u", classes):
        weight, bias = (parameter.detach().numpy() for parameter in one.model.parameters())
        np.testing.assert_allclose(trained.weights[:, :12], weight, rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(trained.weights[:, 12], bias, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("features", ["abs_mul", "concat_mul_abs"])
def test_compiled_loops_make_pair_features(features):
    assert len(list(check_against_reference(CompiledSolver, protocol(), features, 3))) == 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("optimiser", "loss", "features", "classes", "nhid", "dropout"),
    [
        ("adam", "mean", "u", 2, 0, 0.0),
        ("rmsprop", "mean", "concat_mul_abs", 3, 0, 0.0),
        ("adam", "mean", "u", 3, 8, 0.0),
        ("adam", "sum", "abs_mul", 2, 5, 0.25),
        ("sgd,lr=0.1", "mean", "u", 4, 8, 0.1),
    ],
)
def test_stacked_tensors_train_what_torch_trains(
    optimiser, loss, features, classes, nhid, dropout, device
):
    rules = protocol(optimiser=optimiser, loss=loss, nhid=nhid, dropout=dropout)
    for trained, one in check_against_reference(stacked_on(device), rules, features, classes):
        for tensor, parameter in zip(trained.weights, one.model.parameters(), strict=True):
            np.testing.assert_allclose(tensor.cpu(), parameter.detach(), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("make", [CompiledSolver, stacked_on("cpu")])
def test_chunks_from_disk_train_the_same(make, monkeypatch):
    monkeypatch.setattr(
        pool_module, "MAX_CHUNK_BYTES", 50 * 2 * 6 * 4
    )  # fifty pairs a chunk: 48, whole batches
    assert len(list(check_against_reference(make, protocol(), "concat_mul_abs", 3, memory=0))) == 4


def test_many_threads_and_one_agree_bit_for_bit():
    rows, _ = make_rows("u", 3)
    one, many = (
        CompiledSolver(protocol(), ProbeRun(12, 3, threads=threads))
        .search(rows.folds(4, 1))
        .classifiers
        for threads in (1, 7)
    )
    for a, b in zip(chain(*one), chain(*many), strict=True):
        assert a.epochs == b.epochs
        assert np.array_equal(a.weights, b.weights)


def test_an_interruption_ends_the_jobs_that_run(monkeypatch):
    rows, _ = make_rows("u", 3)
    train = Lockstep.train
    lock, runs = threading.Lock(), threading.Event()
    interrupted, epochs_trained = list[Lockstep](), list[int]()

    def train_slowly(lockstep: Lockstep, epochs: range) -> None:
        with lock:
            if not interrupted:
                interrupted.append(lockstep)
        if lockstep is interrupted[0]:
            runs.wait(timeout=10)
            raise KeyboardInterrupt
        time.sleep(0.005)
        train(lockstep, epochs)
        epochs_trained.append(epochs.stop)
        runs.set()

    monkeypatch.setattr(Lockstep, "train", train_slowly)
    endless = protocol(max_epochs=800, tenacity=800)
    with pytest.raises(KeyboardInterrupt):
        CompiledSolver(endless, ProbeRun(12, 3, threads=2)).search(rows.folds(2, 1))
    assert 0 < max(epochs_trained) < 800


def test_a_classifier_in_a_job_of_its_own_is_trained_the_same():
    rows, _ = make_rows("u", 3)
    # Four folds of two weight decays are eight classifiers.
    together, alone = (
        CompiledSolver(protocol(), ProbeRun(12, 3, threads=threads))
        .search(rows.folds(4, 1))
        .classifiers
        for threads in (1, 9)
    )
    for a, b in zip(chain(*together), chain(*alone), strict=True):
        assert (a.epochs, a.accuracy) == (b.epochs, b.accuracy)
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-6)


def test_folds_of_one_stack_end_each_at_its_own_check():
    pairs = list(
        check_against_reference(stacked_on("cpu"), protocol(max_epochs=100), "u", 2, n=204)
    )
    first, second = ([trained.epochs for trained, _ in pairs[at : at + 2]] for at in (0, 2))
    assert max(first) != max(second)


def test_stacks_are_cut_to_the_memory_granted(monkeypatch):
    monkeypatch.setattr("stsbench.evaluators.probe.stacked.MAX_STACK_VALUES", 1)
    assert len(list(check_against_reference(stacked_on("cpu"), protocol(), "u", 2))) == 4


def test_large_logits_do_not_overflow():
    rows, _ = make_rows("u", 4)
    np.asarray(rows.pool.sides[0])[:] *= 1e4
    solver = CompiledSolver(protocol(optimiser="sgd,lr=10", weight_decays=(0.0,)), ProbeRun(12, 4))
    assert np.isfinite(solver.search([(rows, rows)]).classifiers[0][0].weights).all()
