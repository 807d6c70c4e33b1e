"""When classifiers stop, on accuracies made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.encoders.base import FloatArray
from stsbench.evaluators.probe import MinibatchProtocol
from stsbench.evaluators.probe import items as pool_module
from stsbench.evaluators.probe.items import Features, Orders, ProbeItems, make_pool, stratified_folds
from stsbench.evaluators.probe.minibatch import (
    CompiledTrainer,
    Fold,
    MinibatchTrainer,
    TrainedClassifier,
    train_until_stopped,
)
from stsbench.evaluators.probe.stacked import StackedTrainer
from tests.evaluators.probe.helpers import One, make_pairs, make_split, train_one


class Scripted:
    """Classifiers whose right answers at each check are written down; weights are the check's number."""

    def __init__(self, scripts: list[list[int]]) -> None:
        self.scripts, self.check, self.epochs = scripts, -1, 0
        self.bests, self.dropped = [-1] * len(scripts), [-1] * len(scripts)

    def train(self, epochs: range) -> None:
        assert epochs.start == self.epochs
        self.epochs = epochs.stop

    def correct(self):
        self.check += 1
        return np.array([s[min(self.check, len(s) - 1)] for s in self.scripts])

    def remember(self, members):
        for m in np.flatnonzero(members):
            assert self.dropped[m] < 0
            self.bests[m] = self.check

    def drop(self, members):
        for m in np.flatnonzero(members):
            self.dropped[m] = self.check

    def best(self, member: int) -> int:
        return self.bests[member]


PROTOCOL = MinibatchProtocol(name="test")


def test_tenacity_counts_all_failures_and_is_never_reset():
    # Failures: the two repeats of 5, then three of 7, then one of 8: the sixth ends it, gains between or not.
    script = [5, 5, 5, 7, 7, 6, 7, 8, 8, 9]
    (trained,) = train_until_stopped(Scripted([script]), [10], PROTOCOL)
    assert (trained.weights, trained.accuracy, trained.epochs) == (7, 0.8, 9 * 4)


def test_no_classifier_trains_beyond_the_first_check_after_max_epochs():
    (trained,) = train_until_stopped(Scripted([list(range(100))]), [100], PROTOCOL)
    assert trained.epochs == 204  # 200 itself is not beyond 200
    (trained,) = train_until_stopped(
        Scripted([list(range(100))]), [100], replace(PROTOCOL, epoch_size=1, max_epochs=15)
    )
    assert (trained.epochs, trained.weights) == (16, 15)


def test_each_classifier_stops_by_itself():
    scripted = Scripted([[3] * 50, list(range(50)), [0] * 50])
    first, second, third = train_until_stopped(scripted, [10, 100, 10], PROTOCOL)
    assert (first.epochs, third.epochs) == (28, 28)
    assert second.epochs == 200 + 4
    # Nothing right at all is still better than before any check.
    assert (third.weights, third.accuracy) == (0, 0.0)


@pytest.mark.parametrize("tenacity", [0, 3])
def test_tenacity_is_the_failures_borne(tenacity):
    (trained,) = train_until_stopped(Scripted([[4] * 50]), [10], replace(PROTOCOL, tenacity=tenacity, epoch_size=2))
    assert trained.epochs == 2 * (1 + tenacity + 1)


DECAYS = (1e-5, 1e-2)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]
Make = Callable[[MinibatchProtocol, int, int], MinibatchTrainer]


def compiled(rules: MinibatchProtocol, width: int, classes: int) -> MinibatchTrainer:
    return CompiledTrainer(rules, seed=1111, width=width, classes=classes, threads=2)


def stacked(rules: MinibatchProtocol, width: int, classes: int, device: str = "cpu") -> MinibatchTrainer:
    return StackedTrainer(rules, seed=1111, width=width, classes=classes, device=device)


def protocol(**changed: Any) -> MinibatchProtocol:
    return MinibatchProtocol(name="test", **{"max_epochs": 30, "batch_size": 16, "tenacity": 2, **changed})


def make_rows(features: Features, classes: int, memory: int = 1 << 20, n: int = 203) -> tuple[ProbeItems, FloatArray]:
    """Items, and their features computed the slow way."""
    if features == "u":
        single, embed = make_split(n, classes=classes)
        pool = make_pool(single, embed, features, memory)
        return ProbeItems(pool, np.arange(n), single.labels), np.asarray(embed(single.sentences))
    split, embed = make_pairs(n, classes=classes)
    u, v = np.asarray(embed(split.sentences1)), np.asarray(embed(split.sentences2))
    x = np.hstack([np.abs(u - v), u * v] if features == "abs_mul" else [u, v, u * v, np.abs(u - v)])
    return ProbeItems(make_pool(split, embed, features, memory), np.arange(n), split.labels), x


def check_against_reference(
    make: Make, rules: MinibatchProtocol, features: Features, classes: int, **options: int
) -> Iterator[tuple[TrainedClassifier, One]]:
    """Train both ways and yield what was trained, each with its reference."""
    rows, x = make_rows(features, classes, **options)
    trainer = make(rules, x.shape[1], classes)
    # Two folds of 203 items: training sizes 101 and 102, so that two stacks and last batches differ.
    folds = stratified_folds(rows.labels, 2, 1111)
    orders = {len(train): Orders(1111, len(train)) for train, _ in folds}
    jobs = [Fold(rows.select(train), rows.select(dev), orders[len(train)]) for train, dev in folds]
    found = trainer.fit(jobs, [DECAYS] * len(folds))
    for (train, dev), row in zip(folds, found, strict=True):
        for decay, trained in zip(DECAYS, row, strict=True):
            y = rows.labels
            one = train_one(x[train], y[train], (x[dev], y[dev]), rules, decay=decay, classes=classes)
            assert (trained.epochs, trained.accuracy) == (one.epochs, one.accuracy)
            assert np.array_equal(trainer.predict(trained, rows.select(dev)), one.predict(x[dev]))
            yield trained, one


@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop", "sgd,lr=0.1", "sgd,lr=0.05,momentum=0.9"])
@pytest.mark.parametrize("classes", [2, 4])
def test_compiled_loops_train_what_torch_trains(optimiser, loss, classes):
    rules = protocol(optimiser=optimiser, loss=loss)
    for trained, one in check_against_reference(compiled, rules, "u", classes):
        weight, bias = (parameter.detach().numpy() for parameter in one.model.parameters())
        np.testing.assert_allclose(trained.weights[:, :12], weight, rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(trained.weights[:, 12], bias, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("features", ["abs_mul", "concat_mul_abs"])
def test_compiled_loops_make_pair_features(features):
    assert len(list(check_against_reference(compiled, protocol(), features, 3))) == 4


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
def test_stacked_tensors_train_what_torch_trains(optimiser, loss, features, classes, nhid, dropout, device):
    rules = protocol(optimiser=optimiser, loss=loss, nhid=nhid, dropout=dropout)

    def make(rules: MinibatchProtocol, width: int, classes: int) -> MinibatchTrainer:
        return stacked(rules, width, classes, device)

    for trained, one in check_against_reference(make, rules, features, classes):
        for tensor, parameter in zip(trained.weights, one.model.parameters(), strict=True):
            np.testing.assert_allclose(tensor.cpu(), parameter.detach(), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("make", [compiled, stacked])
def test_chunks_from_disk_train_the_same(make, monkeypatch):
    monkeypatch.setattr(pool_module, "CHUNK_BYTES", 50 * 2 * 6 * 4)  # fifty pairs a chunk: 48, whole batches
    assert len(list(check_against_reference(make, protocol(), "concat_mul_abs", 3, memory=0))) == 4


@pytest.mark.parametrize("make", [compiled, stacked])
def test_constant_features_teach_the_majority(make):
    rows, _ = make_rows("u", 2)
    rows.pool.sides[0].rows[:] = 0.5  # type: ignore[attr-defined]
    labels = (np.arange(203) % 3 == 0).astype(np.int64)
    rows = ProbeItems(rows.pool, rows.at, labels)
    fold = Fold(rows, rows, Orders(1111, len(rows)))
    trainer = make(protocol(), 12, 2)
    ((trained,),) = trainer.fit([fold], [(1e-5,)])
    assert trainer.predict(trained, rows).tolist() == [0] * 203


def test_many_threads_and_one_agree_bit_for_bit():
    rows, _ = make_rows("u", 3)
    folds = [Fold(rows.select(t), rows.select(d), Orders(1111, len(t))) for t, d in stratified_folds(rows.labels, 4, 1)]
    found = []
    for threads in (1, 7):
        trainer = CompiledTrainer(protocol(), seed=1111, width=12, classes=3, threads=threads)
        found.append(trainer.fit(folds, [DECAYS] * 4))
    for one, many in zip(*found, strict=True):
        assert [t.epochs for t in one] == [t.epochs for t in many]
        assert all(np.array_equal(a.weights, b.weights) for a, b in zip(one, many, strict=True))


def test_stacks_are_cut_to_the_memory_granted(monkeypatch):
    monkeypatch.setattr("stsbench.evaluators.probe.stacked.STACK_VALUES", 1)
    assert len(list(check_against_reference(stacked, protocol(), "u", 2))) == 4


def test_large_logits_do_not_overflow():
    rows, _ = make_rows("u", 4)
    rows.pool.sides[0].rows[:] *= 1e4  # type: ignore[attr-defined]
    trainer = compiled(protocol(optimiser="sgd,lr=10"), 12, 4)
    ((trained,),) = trainer.fit([Fold(rows, rows, Orders(1111, len(rows)))], [(0.0,)])
    assert np.isfinite(trained.weights).all()


def test_a_failure_stops_the_other_classifiers(monkeypatch):
    rows, _ = make_rows("u", 2)
    good = Fold(rows, rows, Orders(1111, len(rows)))
    bad = Fold(rows, ProbeItems(rows.pool, rows.at, rows.labels[:-1]), Orders(1111, len(rows)))
    trainer = CompiledTrainer(protocol(tenacity=10**6, max_epochs=10**6), seed=1111, width=12, classes=2, threads=2)
    with pytest.raises(ValueError):
        trainer.fit([good, bad], [DECAYS] * 2)
