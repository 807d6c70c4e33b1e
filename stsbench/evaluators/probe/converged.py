"""Logistic regressions trained to their optimum, all folds and penalties of a task at once.

All classifiers share one matrix product a pass over the data; which items a classifier is trained on
is a mask on its residuals. They are solved in variables in which the Hessian is at most about the
identity: the features are centred (the free intercept absorbs that) and weights expressed in the
eigenvectors of the covariance, scaled by the bound that D. Boehning (1992) gives for the Hessian.

Scikit-learn's LogisticRegression finds the same optima one at a time and with all features in memory
(SNLI's take 6.3 GiB). Measured on an AMD EPYC, one thread, embeddings of ``minilm``, its weights carried
from penalty to penalty: CR's 100 folds of 9 penalties take 87 s by ``newton-cholesky`` and 29 s by
``lbfgs`` at a tolerance of 1e-5, 3 s here; TREC's 10 folds 49 s by ``lbfgs``, and by ``newton-cholesky``
6 s a classifier, of which there are 90, 16 s in all here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.seams import IndexArray
from stsbench.evaluators.probe.classifier import ProbeItems, Searched
from stsbench.evaluators.probe.features import CHUNK_VALUES, feature_chunks
from stsbench.evaluators.probe.minimise import minimise

_KEPT_BYTES = 1 << 30


class LogisticProblem(NamedTuple):
    """One logistic regression: its training items and its penalty."""

    train: ProbeItems
    penalty: float


class ConvergedSolver:
    """Logistic regression over the grid of penalties."""

    def __init__(
        self, penalties: Sequence[float], *, tolerance: float, max_iterations: int, classes: int, device: str
    ) -> None:
        """Classifiers of two classes have one row of weights, others one a class."""
        self.penalties, self.tolerance, self.max_iterations = penalties, tolerance, max_iterations
        self.classes, self.device = classes, torch.device(device)
        self.unfinished = 0

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> Searched:
        """Train a classifier a fold and penalty."""
        grid = self.penalties
        weights = self.solve([LogisticProblem(train, penalty) for train, _ in folds for penalty in grid])
        by_fold = weights.view(len(folds), len(grid), *weights.shape[1:])
        accuracy = [
            (self._classes(own, dev) == dev.labels[:, None]).mean(axis=0)
            for own, (_, dev) in zip(by_fold, folds, strict=True)
        ]
        return Searched(np.array(accuracy), [list(own) for own in by_fold])

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[Tensor]:
        """Train on all items."""
        chosen = [self.penalties[choice] for choice in choices]
        return list(
            self.solve([LogisticProblem(train, penalty) for train, penalty in zip(trains, chosen, strict=True)])
        )

    def predict(self, classifier: Tensor, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        return self._classes(classifier[None], rows)[:, 0]

    def notes(self) -> tuple[str, ...]:
        """Whether any classifier did not converge."""
        limit = self.max_iterations
        return (f"{self.unfinished} classifiers had not converged after {limit} steps",) if self.unfinished else ()

    def solve(self, problems: Sequence[LogisticProblem]) -> Tensor:
        """The optimal weights of each problem, intercept last: (m, k, w + 1), k being 1 for two classes."""
        design = _Design(problems, self.device)
        logistic = _Logistic(problems, design, self.classes)
        start = torch.zeros(len(problems), logistic.k * (design.width + 1), dtype=torch.float64, device=self.device)
        minima = minimise(logistic, start, tolerance=self.tolerance, max_iterations=self.max_iterations)
        self.unfinished += int((~minima.converged).sum())
        return logistic.weights(minima.points, torch.arange(len(problems), device=self.device))

    def _classes(self, weights: Tensor, rows: ProbeItems) -> IndexArray:
        """The class each classifier (p, k, w + 1) gives each item, (n, p)."""
        parts = []
        for x in feature_chunks(rows.pool, rows.at, self.device, max(1, CHUNK_VALUES // weights[..., 0].numel())):
            z = torch.einsum("nw,pkw->npk", x, weights[..., :-1]) + weights[..., -1]
            parts.append(z.argmax(dim=-1) if weights.shape[1] > 1 else (z[..., 0] > 0).long())
        classes: IndexArray = torch.cat(parts).cpu().numpy()
        return classes


class _Design:
    """The items that any problem trains on: their features, labels, and who trains on which."""

    def __init__(self, problems: Sequence[LogisticProblem], device: torch.device) -> None:
        trains = {id(problem.train): problem.train for problem in problems}
        self.pool, self.device = problems[0].train.pool, device
        self.width = self.pool.width
        self.at = np.unique(np.concatenate([rows.at for rows in trains.values()]))
        labels = np.zeros(len(self.at), dtype=np.int64)
        uses = np.zeros((len(self.at), len(trains)), dtype=bool)
        for column, rows in enumerate(trains.values()):
            places = np.searchsorted(self.at, rows.at)
            labels[places], uses[places, column] = rows.labels, True
        self.labels, self.uses = (torch.from_numpy(a).to(device) for a in (labels, uses))
        columns = {key: column for column, key in enumerate(trains)}
        self.column_of = torch.tensor([columns[id(problem.train)] for problem in problems], device=device)
        self.kept: list[Tensor] | None = None
        self.chunk = CHUNK_VALUES // len(problems)
        self._describe()

    def _describe(self) -> None:
        """Find the mean and the covariance's eigenvectors; keep the features where they fit."""
        if len(self.at) * self.width * 8 <= _KEPT_BYTES:
            self.kept = [x for x, _ in self.chunks()]
        self.mean = torch.zeros(self.width, dtype=torch.float64, device=self.device)
        moments = torch.zeros(self.width, self.width, dtype=torch.float64, device=self.device)
        for x, _ in self.chunks():
            self.mean += x.sum(dim=0) / len(self.at)
            moments.addmm_(x.T, x, alpha=1 / len(self.at))
        values, self.vectors = torch.linalg.eigh(moments - torch.outer(self.mean, self.mean))
        self.values = values.clamp(min=0)

    def chunks(self) -> Iterator[tuple[Tensor, slice]]:
        """Features (r, w) and which rows of labels and uses they are."""
        done = 0
        for x in self.kept or feature_chunks(self.pool, self.at, self.device, self.chunk):
            yield x, slice(done, done + len(x))
            done += len(x)


class _Logistic:
    """Loss and gradient of the problems, in the variables described above."""

    def __init__(self, problems: Sequence[LogisticProblem], design: _Design, classes: int) -> None:
        self.design, self.k = design, 1 if classes == 2 else classes
        self.penalty = torch.tensor([p.penalty for p in problems], dtype=torch.float64, device=design.device)
        sizes = torch.tensor([len(p.train) for p in problems], dtype=torch.float64, device=design.device)
        bound = sizes * (0.25 if self.k == 1 else 0.5)
        curvature = torch.outer(bound, design.values) + self.penalty[:, None]
        self.scale = torch.cat([curvature, bound[:, None]], dim=1).rsqrt()[:, None]  # (m, 1, w + 1)

    def weights(self, points: Tensor, numbers: Tensor) -> Tensor:
        """Weights (m, k, w + 1) on the features as they are, intercept last."""
        scaled = points.view(len(points), self.k, -1) * self.scale[numbers]
        turned = scaled[..., :-1] @ self.design.vectors.T
        return torch.cat([turned, (scaled[..., -1] - turned @ self.design.mean)[..., None]], dim=-1)

    def __call__(self, points: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Values (m,) and gradients (m, d) of the problems of these numbers at these points."""
        weights = self.weights(points, numbers)
        penalty = self.penalty[numbers]
        value = penalty / 2 * weights[..., :-1].square().sum(dim=(1, 2))
        gradient = torch.zeros_like(weights)
        gradient[..., :-1] = penalty[:, None, None] * weights[..., :-1]
        flat = weights.flatten(0, 1)  # (mk, w + 1)
        columns = self.design.column_of[numbers]
        for x, rows in self.design.chunks():
            z = torch.addmm(flat[:, -1], x, flat[:, :-1].T).view(len(x), -1, self.k)  # (r, m, k)
            loss, residual = self._residuals(z, self.design.labels[rows], self.design.uses[rows][:, columns])
            value += loss
            gradient[..., :-1] += (residual.flatten(1).T @ x).view(-1, self.k, x.shape[1])
            gradient[..., -1] += residual.sum(dim=0)
        centred = gradient[..., :-1] - gradient[..., -1:] * self.design.mean
        turned = torch.cat([centred @ self.design.vectors, gradient[..., -1:]], dim=-1)
        return value, (turned * self.scale[numbers]).flatten(1)

    def _residuals(self, z: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss (m,) and residuals (r, m, k) of logits (r, m, k), over the items used (r, m)."""
        if self.k == 1:
            truth = labels[:, None, None].to(z.dtype)
            residual = (z.sigmoid() - truth) * used[..., None]
            loss = (functional.softplus(z, threshold=40) - truth * z).squeeze(-1)
        else:
            log_p = z.log_softmax(dim=-1)
            truth = functional.one_hot(labels, self.k)[:, None].to(z.dtype)
            residual = (log_p.exp() - truth) * used[..., None]
            loss = -(log_p * truth).sum(dim=-1)
        return (loss * used).sum(dim=0), residual
