"""When classifiers stop, on accuracies made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stsbench.evaluators.probe import MinibatchProtocol
from stsbench.evaluators.probe.training import train_until_stopped


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
