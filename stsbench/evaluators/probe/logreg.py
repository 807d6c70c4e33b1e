"""Many smooth convex functions minimised side by side: L-BFGS with a backtracking line search.

J. Nocedal and S. J. Wright, Numerical Optimization (2006), algorithms 3.1 and 7.4. Every function
goes its own way: a step that one rejects is halved while the others move on. Torch's LBFGS has one
history and one step for all of them, and was slower by a third on the probe's problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.base import IndexArray
from stsbench.evaluators.probe.items import CHUNK_VALUES, ProbeItems, ProbeRun, SearchResult

_HISTORY = 10
_ARMIJO = 1e-4
_KEPT_BYTES = 1 << 30

Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Points (m, d) and the numbers of their functions (m,) to values (m,) and gradients (m, d)."""


def minimise(
    objective: Objective, start: Tensor, *, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor]:
    """Minimise m functions of d variables from ``start`` (m, d), float64, by so many evaluations of each at most.

    A function is done when its gradient's length is at most the tolerance; the objective is asked only for those not
    yet done. Returns the points found, (m, d), and which functions' gradients came below the tolerance, (m,).
    """
    points, converged = (
        start.clone(),
        torch.zeros(len(start), dtype=torch.bool, device=start.device),
    )
    active = torch.arange(len(start), device=start.device)
    x = start
    value, gradient = objective(x, active)
    history = _History(*x.shape, like=x)
    direction, step = -gradient, torch.ones_like(value)
    for _ in range(max_iterations):
        done = gradient.norm(dim=1) <= tolerance
        points[active[done]], converged[active[done]] = x[done], True
        if bool(done.any()):
            stay = ~done
            active, x, value, gradient = active[stay], x[stay], value[stay], gradient[stay]
            direction, step = direction[stay], step[stay]
            history.keep(stay)
        if not len(active):
            break
        trial = x + step[:, None] * direction
        new_value, new_gradient = objective(trial, active)
        slope = (gradient * direction).sum(dim=1)
        # The slack is rounding: near the minimum a good step may not lower the sum any more.
        accepted = new_value <= value + _ARMIJO * step * slope + 1e-13 * value.abs()
        history.add(trial - x, new_gradient - gradient, accepted)
        x = torch.where(accepted[:, None], trial, x)
        value = torch.where(accepted, new_value, value)
        gradient = torch.where(accepted[:, None], new_gradient, gradient)
        direction = torch.where(accepted[:, None], history.direction(gradient), direction)
        step = torch.where(accepted, torch.ones_like(step), step / 2)
    points[active] = x
    return points, converged


class _History:
    """The last steps and gradient changes of each function; a pair of no use has weight 0."""

    def __init__(self, m: int, d: int, *, like: Tensor) -> None:
        self.steps, self.changes = like.new_zeros(_HISTORY, m, d), like.new_zeros(_HISTORY, m, d)
        self.weights = like.new_zeros(_HISTORY, m)
        self.scale = like.new_ones(m)
        self.added = 0

    def keep(self, members: Tensor) -> None:
        self.steps, self.changes = self.steps[:, members], self.changes[:, members]
        self.weights, self.scale = self.weights[:, members], self.scale[members]

    def add(self, step: Tensor, change: Tensor, accepted: Tensor) -> None:
        """Put a pair in the place of the oldest, (m, d) each; it counts where the step was accepted."""
        at = self.added % _HISTORY
        self.added += 1
        curvature, length = (step * change).sum(dim=1), (change * change).sum(dim=1)
        good = accepted & (curvature > 1e-12 * length)
        self.steps[at], self.changes[at] = step, change
        self.weights[at] = torch.where(good, 1 / curvature, torch.zeros_like(curvature))
        self.scale = torch.where(good, curvature / length, self.scale)

    def direction(self, gradient: Tensor) -> Tensor:
        """Minus the approximate inverse Hessian times the gradient, (m, d): the two-loop recursion."""
        q = -gradient
        newest_first = [(self.added - 1 - i) % _HISTORY for i in range(min(self.added, _HISTORY))]
        shares = {}
        for i in newest_first:
            shares[i] = self.weights[i] * (self.steps[i] * q).sum(dim=1)
            q = q - shares[i][:, None] * self.changes[i]
        q = q * self.scale[:, None]
        for i in reversed(newest_first):
            back = self.weights[i] * (self.changes[i] * q).sum(dim=1)
            q = q + (shares[i] - back)[:, None] * self.steps[i]
        return q


LogisticProblem = tuple[ProbeItems, float]
"""One logistic regression: its training items and its penalty."""


class ConvergedSolver:
    """Logistic regression over the grid of penalties."""

    def __init__(
        self, penalties: Sequence[float], run: ProbeRun, *, tolerance: float, max_iterations: int
    ) -> None:
        """Classifiers of two classes have one row of weights, others one a class."""
        self.penalties, self.tolerance, self.max_iterations = penalties, tolerance, max_iterations
        self.classes, self.device, self.unfinished = run.classes, torch.device(run.device), 0

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> SearchResult:
        """Train a classifier a fold and penalty."""
        grid = self.penalties
        weights = self.solve([(train, penalty) for train, _ in folds for penalty in grid])
        by_fold = weights.view(len(folds), len(grid), *weights.shape[1:])
        classes = [self._classes(own, dev) for own, (_, dev) in zip(by_fold, folds, strict=True)]
        accuracy = [
            (own == dev.labels[:, None]).mean(axis=0)
            for own, (_, dev) in zip(classes, folds, strict=True)
        ]
        return SearchResult(np.array(accuracy), [list(own) for own in by_fold])

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[Tensor]:
        """Train on all items."""
        return list(
            self.solve(
                list(zip(trains, (self.penalties[choice] for choice in choices), strict=True))
            )
        )

    def predict(self, classifier: Tensor, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        return self._classes(classifier[None], rows)[:, 0]

    def notes(self) -> tuple[str, ...]:
        """Whether any classifier did not converge."""
        limit = self.max_iterations
        return (
            (f"{self.unfinished} classifiers had not converged after {limit} steps",)
            if self.unfinished
            else ()
        )

    def solve(self, problems: Sequence[LogisticProblem]) -> Tensor:
        """The optimal weights of each problem, intercept last: (m, k, w + 1), k being 1 for two classes."""
        logistic = _Logistic(problems, self.classes, self.device)
        start = logistic.scale.new_zeros(len(problems), logistic.k * logistic.scale.shape[2])
        points, done = minimise(
            logistic, start, tolerance=self.tolerance, max_iterations=self.max_iterations
        )
        self.unfinished += int((~done).sum())
        return logistic.weights(points, torch.arange(len(problems), device=self.device))

    def _classes(self, weights: Tensor, rows: ProbeItems) -> IndexArray:
        """The class each classifier (p, k, w + 1) gives each item, (n, p)."""
        parts = []
        for x in rows.features(self.device, CHUNK_VALUES // weights[..., 0].numel()):
            z = torch.einsum("nw,pkw->npk", x, weights[..., :-1]) + weights[..., -1]
            parts.append(z.argmax(dim=-1) if weights.shape[1] > 1 else (z[..., 0] > 0).long())
        return np.asarray(torch.cat(parts).cpu().numpy())


class _Logistic:
    """Losses of the problems, called with points: over the items that any of them trains on, in variables of even curvature.

    These are the weights on features less their mean, turned to the eigenvectors of their covariance, each times the
    root of a bound of the loss's curvature along it.
    """

    def __init__(
        self, problems: Sequence[LogisticProblem], classes: int, device: torch.device
    ) -> None:
        self.k, self.device, pool = 1 if classes == 2 else classes, device, problems[0][0].pool
        trains = {id(train): train for train, _ in problems}
        columns = {key: column for column, key in enumerate(trains)}
        at = np.unique(np.concatenate([rows.at for rows in trains.values()]))
        labels, uses = (
            np.zeros(len(at), dtype=np.int64),
            np.zeros((len(at), len(trains)), dtype=bool),
        )
        for column, rows in enumerate(trains.values()):
            places = np.searchsorted(at, rows.at)
            labels[places], uses[places, column] = rows.labels, True
        self.labels, self.uses = (torch.from_numpy(array).to(device) for array in (labels, uses))
        self.column_of = torch.tensor([columns[id(train)] for train, _ in problems], device=device)
        self.items, self.chunk, self.kept = (
            ProbeItems(pool, at, labels),
            CHUNK_VALUES // len(problems),
            list[Tensor](),
        )
        if len(at) * pool.width * 8 <= _KEPT_BYTES:
            self.kept = [x for x, _ in self.chunks()]

        self.mean = torch.zeros(pool.width, dtype=torch.float64, device=device)
        moments = torch.zeros(pool.width, pool.width, dtype=torch.float64, device=device)
        for x, _ in self.chunks():
            self.mean += x.sum(dim=0) / len(at)
            moments.addmm_(x.T, x, alpha=1 / len(at))
        values, self.vectors = torch.linalg.eigh(moments - torch.outer(self.mean, self.mean))
        self.penalty = torch.tensor(
            [penalty for _, penalty in problems], dtype=torch.float64, device=device
        )
        sizes = torch.tensor(
            [len(train) for train, _ in problems], dtype=torch.float64, device=device
        )
        bound = sizes * (0.25 if self.k == 1 else 0.5)
        curvature = torch.outer(bound, values.clamp(min=0)) + self.penalty[:, None]
        self.scale = torch.cat([curvature, bound[:, None]], dim=1).rsqrt()[:, None]  # (m, 1, w + 1)

    def chunks(self) -> Iterator[tuple[Tensor, slice]]:
        """Features (r, w) and which rows of labels and uses they are."""
        done = 0
        for x in self.kept or self.items.features(self.device, self.chunk):
            yield x, slice(done, done + len(x))
            done += len(x)

    def weights(self, points: Tensor, numbers: Tensor) -> Tensor:
        """Weights (m, k, w + 1) on the features as they are, intercept last."""
        scaled = points.view(len(points), self.k, -1) * self.scale[numbers]
        turned = scaled[..., :-1] @ self.vectors.T
        return torch.cat([turned, (scaled[..., -1] - turned @ self.mean)[..., None]], dim=-1)

    def __call__(self, points: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Values (m,) and gradients (m, d) of the problems of these numbers at these points."""
        weights, penalty = self.weights(points, numbers), self.penalty[numbers]
        value = penalty / 2 * weights[..., :-1].square().sum(dim=(1, 2))
        gradient = torch.zeros_like(weights)
        gradient[..., :-1] = penalty[:, None, None] * weights[..., :-1]
        flat = weights.flatten(0, 1)  # (mk, w + 1)
        columns = self.column_of[numbers]
        for x, rows in self.chunks():
            z = torch.addmm(flat[:, -1], x, flat[:, :-1].T).view(len(x), -1, self.k)  # (r, m, k)
            loss, residual = self._residuals(z, self.labels[rows], self.uses[rows][:, columns])
            value += loss
            gradient[..., :-1] += (residual.flatten(1).T @ x).view(-1, self.k, x.shape[1])
            gradient[..., -1] += residual.sum(dim=0)
        centred = gradient[..., :-1] - gradient[..., -1:] * self.mean
        turned = torch.cat([centred @ self.vectors, gradient[..., -1:]], dim=-1)
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
