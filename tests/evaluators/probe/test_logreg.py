"""The batched logistic regression against scikit-learn's, one at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from stsbench.data.splits import LabelledSplit
from stsbench.evaluators.probe.evaluator import PROTOCOLS, ConvergedProtocol, ProbeEvaluator
from stsbench.evaluators.probe.items import ProbeItems, ProbeRun, make_items
from stsbench.evaluators.probe.logreg import LogisticProblem, minimise
from tests.evaluators.probe.helpers import Embedder, IntArray, make_pairs, make_split

TIGHT = ConvergedProtocol(name="tight", tolerance=1e-7)


def sklearn_weights(
    x: npt.NDArray[np.float64], y: IntArray, penalty: float
) -> npt.NDArray[np.float64]:
    model = LogisticRegression(
        C=1 / penalty, solver="newton-cholesky", tol=1e-10, max_iter=1000
    ).fit(x, y)
    return np.hstack([model.coef_, model.intercept_[:, None]])


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_every_fold_and_penalty_reaches_scikit_learns_optimum(classes, shift):
    split, embed = make_split(200, classes=classes)
    for row in embed.vectors.values():
        row[:] = (
            row * np.linspace(0.01, 3, 12) + shift
        )  # scales and a mean far off zero, as encoders give
    rows = ProbeItems(make_items(split, embed, "u", 1 << 20).pool, np.arange(200), split.labels)
    trains = [rows, rows.select(np.arange(0, 200, 3)), rows.select(np.arange(50, 150))]
    problems = [
        LogisticProblem(train, penalty) for train in trains for penalty in (100.0, 1.0, 1 / 64)
    ]
    solver = TIGHT.solver(ProbeRun(12, classes))
    weights = solver.solve(problems).numpy()
    assert solver.notes() == ()
    for (train, penalty), found in zip(problems, weights, strict=True):
        x = np.asarray(embed(split.sentences))[train.indices].astype(np.float64)
        expected = sklearn_weights(x, train.labels, penalty)
        if classes > 2:  # the intercepts' mean is free
            expected[:, -1] -= expected[:, -1].mean()
            found[:, -1] -= found[:, -1].mean()
        np.testing.assert_allclose(found[:, :-1], expected[:, :-1], rtol=1e-3, atol=1e-4)
        logits, expected_logits = (x @ w[:, :-1].T + w[:, -1] for w in (found, expected))
        np.testing.assert_allclose(logits, expected_logits, atol=2e-3)


def test_two_classes_part_where_both_are_as_likely():
    x = np.array([[-0.02], [0.0], [0.02], [0.2]], dtype=np.float32)
    labels = np.array([0, 0, 1, 1])
    texts = [f"s{i}" for i in range(len(x))]
    split = LabelledSplit(sentences=texts, labels=labels)
    rows = make_items(split, Embedder(dict(zip(texts, x, strict=True))), "u", 1 << 20)
    # One row of weights, intercept last: the logits are the features.
    assert TIGHT.solver(ProbeRun(1, 2)).predict(
        torch.tensor([[1.0, 0.0]]).double(), rows
    ).tolist() == [0, 0, 1, 1]


def test_the_protocols_tolerance_gives_the_optimums_predictions():
    split, embed = make_pairs(300, classes=3)
    rows = make_items(split, embed, "abs_mul", 1 << 20)
    penalties = PROTOCOLS["logreg"].penalties  # type: ignore[attr-defined]
    found = []
    for rules in (PROTOCOLS["logreg"], TIGHT):
        assert isinstance(rules, ConvergedProtocol)
        solver = rules.solver(ProbeRun(24, 3))
        weights = solver.solve([LogisticProblem(rows, penalty) for penalty in penalties])
        found.append(np.stack([solver.predict(w, rows) for w in weights]))
    assert (found[0] == found[1]).mean() > 0.999


def test_a_classifier_that_does_not_converge_is_noted():
    split, embed = make_split(90)
    rules = ConvergedProtocol(name="hasty", kfold=3, max_iterations=2, tolerance=1e-12)
    (note,) = ProbeEvaluator(rules)({"all": split}, embed, seed=0).notes
    assert "classifiers had not converged after 2 steps" in note


def test_minimise_finds_the_minima_of_quadratics_of_unlike_curvature():
    generator = torch.Generator().manual_seed(0)
    curvatures = torch.logspace(-3, 2, 7, dtype=torch.float64)[:, None] * torch.rand(
        7, 5, dtype=torch.float64, generator=generator
    )
    goals = torch.randn(7, 5, dtype=torch.float64, generator=generator)

    def objective(points, numbers):
        away = points - goals[numbers]
        return (curvatures[numbers] * away**2).sum(dim=1) / 2, curvatures[numbers] * away

    points, converged = minimise(
        objective, torch.zeros(7, 5, dtype=torch.float64), tolerance=1e-9, max_iterations=500
    )
    assert bool(converged.all())
    torch.testing.assert_close(points, goals, rtol=1e-4, atol=1e-4)


def test_minimise_takes_no_more_steps_through_a_curved_valley_than_all_pairs_need():
    def rosenbrock(points, _numbers):
        x, y = points.T
        away = y - x**2
        gradient = torch.stack([-400 * x * away - 2 * (1 - x), 200 * away], dim=1)
        return 100 * away**2 + (1 - x) ** 2, gradient

    start = torch.tensor([[-1.2, 1.0]], dtype=torch.float64)
    # Without the newest pair of its history it takes 84.
    points, converged = minimise(rosenbrock, start, tolerance=1e-8, max_iterations=70)
    assert converged.tolist() == [True]
    torch.testing.assert_close(points, torch.ones_like(start), rtol=0, atol=1e-8)


def test_a_minimum_to_start_from_is_found_whatever_the_tolerance():
    def square(points, _numbers):
        return (points**2).sum(dim=1), 2 * points

    start = torch.zeros(1, 2, dtype=torch.float64)
    points, converged = minimise(square, start, tolerance=0.0, max_iterations=1)
    assert converged.tolist() == [True]
    assert points.tolist() == [[0.0, 0.0]]
