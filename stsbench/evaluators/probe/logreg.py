"""Logistic regression trained to its optimum, by minimising many convex functions at once.

The minimisation is L-BFGS with a backtracking line search: J. Nocedal and S. J. Wright, Numerical
Optimization (2006), algorithms 3.1 and 7.4. The functions are independent: a step that does not
lower a function enough is halved while the other functions move on. Torch's LBFGS has one history
and one step for all of them, and was slower by a third on the probe's problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.base import IndexArray
from stsbench.evaluators.probe.items import MAX_CHUNK_VALUES, ProbeItems, ProbeRun, SearchResult

_LBFGS_PAIRS = 10
"""The number of last steps that L-BFGS remembers, with the changes of the gradient."""
_SUFFICIENT_DECREASE = 1e-4
"""The share of the decrease along the slope from which a step is accepted (Armijo's rule)."""
_MAX_FEATURE_BYTES = 1 << 30
"""The maximum number of bytes of features in memory; more are made again in each evaluation."""

Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Points (m, d) and the numbers of their functions (m,) to values (m,) and gradients (m, d)."""


class Minima(NamedTuple):
    """The points at which a minimisation ended."""

    points: Tensor
    """One point per function, (m, d)."""
    converged: Tensor
    """The functions whose gradient came below the tolerance, (m,), bool."""


def minimise(
    objective: Objective, start: Tensor, *, tolerance: float, max_iterations: int
) -> Minima:
    """Minimise m functions of d variables at once, each by its own L-BFGS.

    L-BFGS steps downhill along the gradient, corrected by what earlier steps say about curvature.
    A step that does not lower a function enough is halved and tried again at the next evaluation,
    while other functions move on.

    Args:
        objective: Returns values and gradients at points of functions, given their numbers.
        start: The points to start from, (m, d), float64.
        tolerance: A function is finished if the length of its gradient is at most this.
        max_iterations: The maximum number of evaluations of each function after the one at the
            start.

    Returns:
        The point of each function, (m, d), and whether it is finished, (m,). If not, the point is
        the last one that was accepted. A gradient is compared with the tolerance before each
        evaluation, so that the last evaluation cannot finish a function.
    """
    points = start.clone()
    converged = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    # The numbers of the functions that are not finished, and their points so far.
    active = torch.arange(len(start), device=start.device)
    x = start
    value, gradient = objective(x, active)
    history = _History(*x.shape, like=x)
    # Downhill; the history gives better directions after each accepted step.
    direction = -gradient
    step = torch.ones_like(value)
    for _ in range(max_iterations):
        is_finished = gradient.norm(dim=1) <= tolerance
        points[active[is_finished]] = x[is_finished]
        converged[active[is_finished]] = True
        if bool(is_finished.any()):
            stays = ~is_finished
            active, x, value, gradient = active[stays], x[stays], value[stays], gradient[stays]
            direction, step = direction[stays], step[stays]
            history.keep(stays)
        if not len(active):
            break
        trial = x + step[:, None] * direction
        new_value, new_gradient = objective(trial, active)
        # The derivative along the step; negative, because the direction descends.
        slope = (gradient * direction).sum(dim=1)
        # A step must lower the value by a small share (1e-4) of what the slope promises. Near the
        # minimum even a good step may not, because of rounding.
        rounding = 1e-13 * value.abs()
        accepted = new_value <= value + _SUFFICIENT_DECREASE * step * slope + rounding
        history.add(trial - x, new_gradient - gradient, accepted)
        x = torch.where(accepted[:, None], trial, x)
        value = torch.where(accepted, new_value, value)
        gradient = torch.where(accepted[:, None], new_gradient, gradient)
        direction = torch.where(accepted[:, None], history.find_direction(gradient), direction)
        step = torch.where(accepted, torch.ones_like(step), step / 2)
    points[active] = x
    return Minima(points, converged)


class _History:
    """The last steps and gradient changes of each function; an unused pair has weight 0.

    A pair is a step and the change of the gradient along it.

    Attributes:
        steps: The changes of the points, (pairs, m, d).
        changes: The changes of the gradients, (pairs, m, d).
        inverse_curvatures: 1 over the dot product of each pair's step and change, or 0 for a pair
            that is not used, (pairs, m).
        scale: The factor of the identity that stands for the inverse Hessian, (m,): the curvature
            of the last used pair over the squared length of its change, 1 at first.
        n_added: The number of pairs added so far; the oldest are replaced.
    """

    def __init__(self, m: int, d: int, *, like: Tensor) -> None:
        """Make an empty history of the last steps of L-BFGS, and of the gradients' changes by them.

        It holds the last ``_LBFGS_PAIRS`` (10) pairs of a step and a change of each function.

        Args:
            m: The number of functions that are minimised.
            d: The number of their variables.
            like: A tensor of the type and on the device to use.
        """
        self.steps = like.new_zeros(_LBFGS_PAIRS, m, d)
        self.changes = like.new_zeros(_LBFGS_PAIRS, m, d)
        # 1 / (step * change) of each pair of a step and a change; 0 for a pair that is not used.
        self.inverse_curvatures = like.new_zeros(_LBFGS_PAIRS, m)
        # For each function, the number that stands for the inverse Hessian before any pair.
        self.scale = like.new_ones(m)
        # How many pairs were stored so far; older ones are overwritten.
        self.n_added = 0

    def keep(self, members: Tensor) -> None:
        """Drop the history of functions that are finished: they need no more steps.

        For m functions of d variables, ``self.steps`` and ``self.changes`` are (pairs, m, d),
        ``self.inverse_curvatures`` (pairs, m) and ``self.scale`` (m,).

        Args:
            members: Whether each function stays, (m,), bool.
        """
        self.steps = self.steps[:, members]
        self.changes = self.changes[:, members]
        self.inverse_curvatures = self.inverse_curvatures[:, members]
        self.scale = self.scale[members]

    def add(self, step: Tensor, change: Tensor, accepted: Tensor) -> None:
        """Store a step of each of m functions with the gradient's change, in place of the oldest.

        The pair of a function is marked as unused (``inverse_curvatures`` 0) if its step was not
        accepted or shows no positive curvature. ``self.scale`` is the first guess of the inverse
        Hessian of each function: a number, as in equation 7.20 of Nocedal and Wright (2006).

        Args:
            step: The change of the points, (m, d).
            change: The change of the gradients, (m, d).
            accepted: Whether the step of each function was accepted, (m,).
        """
        # The history is written round and round.
        position = self.n_added % _LBFGS_PAIRS
        self.n_added += 1
        curvature = (step * change).sum(dim=1)
        squared_length = (change * change).sum(dim=1)
        # Without positive curvature the inverse Hessian would not stay positive definite.
        is_used = accepted & (curvature > 1e-12 * squared_length)
        self.steps[position] = step
        self.changes[position] = change
        self.inverse_curvatures[position] = torch.where(
            is_used, 1 / curvature, torch.zeros_like(curvature)
        )
        self.scale = torch.where(is_used, curvature / squared_length, self.scale)

    def find_direction(self, gradient: Tensor) -> Tensor:
        """Return the direction in which to step, (m, d).

        It is minus the approximate inverse Hessian times the gradient, by the two-loop recursion of
        algorithm 7.4 in Nocedal and Wright (2006). The inverse Hessian is ``self.scale`` times the
        identity at first, then corrected by each stored pair of a step (``self.steps``) and the
        gradient's change (``self.changes``). ``self.inverse_curvatures`` holds 1 over the dot
        product of each pair, 0 for an unused pair.

        Args:
            gradient: The gradient of each function, (m, d).
        """
        q = -gradient
        n_pairs = min(self.n_added, _LBFGS_PAIRS)
        # The positions of the pairs in the history, which is written round and round.
        newest_first = [(self.n_added - 1 - age) % _LBFGS_PAIRS for age in range(n_pairs)]
        # By position in the history, alpha of each function, (m,); 0 for an unused pair.
        alpha_by_pair = {}
        for i in newest_first:
            alpha_by_pair[i] = self.inverse_curvatures[i] * (self.steps[i] * q).sum(dim=1)
            q = q - alpha_by_pair[i][:, None] * self.changes[i]
        q = q * self.scale[:, None]
        for i in reversed(newest_first):
            beta = self.inverse_curvatures[i] * (self.changes[i] * q).sum(dim=1)
            q = q + (alpha_by_pair[i] - beta)[:, None] * self.steps[i]
        return q


class LogisticProblem(NamedTuple):
    """One logistic regression."""

    train: ProbeItems
    """The training items."""
    penalty: float
    """Half of it times the squared weights is added to the loss."""


class ConvergedSolver:
    """Logistic regression over the grid of penalties.

    A classifier's weights are (rows, w + 1), for w features, with the intercept last: one row for
    two classes, where a positive logit means class 1, otherwise one row per class.

    Attributes:
        n_unfinished: The number of classifiers so far that did not converge.
    """

    def __init__(
        self, penalties: Sequence[float], run: ProbeRun, *, tolerance: float, max_iterations: int
    ) -> None:
        """Store the settings of logistic regressions.

        Args:
            penalties: The penalties to choose from: half of one times the squared weights is added
                to the loss.
            run: Gives the number of classes (``classes``) and the device.
            tolerance: The length of the gradient at which a classifier is finished.
            max_iterations: The number of evaluations after which a classifier is left as it is; a
                note reports how many such classifiers there are.
        """
        self.penalties = penalties
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.classes = run.classes
        self.device = torch.device(run.device)
        # The number of classifiers so far that were left as they were after max_iterations.
        self.n_unfinished = 0

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> SearchResult:
        """Train a classifier for each fold and each penalty, all at once.

        Args:
            folds: For each fold the training items and the development items.

        Returns:
            The accuracies on development items, (folds, penalties); and by fold and penalty the
            weights of each classifier, (rows, w + 1), intercept last. There is one row for two
            classes, otherwise one per class.
        """
        weights = self.solve(
            [LogisticProblem(train, penalty) for train, _ in folds for penalty in self.penalties]
        )
        weights_by_fold = weights.view(len(folds), len(self.penalties), *weights.shape[1:])
        accuracies = []
        for fold_weights, (_, development) in zip(weights_by_fold, folds, strict=True):
            # A column per penalty, (n, penalties).
            predictions = self._predict_classes(fold_weights, development)
            accuracies.append((predictions == development.labels[:, None]).mean(axis=0))
        return SearchResult(
            np.array(accuracies), [list(fold_weights) for fold_weights in weights_by_fold]
        )

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[Tensor]:
        """Train a final classifier on each set of items, after a search has chosen its penalty.

        Args:
            trains: The training items of each classifier.
            choices: The position of each classifier's penalty in ``self.penalties``.

        Returns:
            The weights of each classifier, (rows, w + 1), intercept last. There is one row for two
            classes, otherwise one per class.
        """
        problems = [
            LogisticProblem(train, self.penalties[choice])
            for train, choice in zip(trains, choices, strict=True)
        ]
        return list(self.solve(problems))

    def predict(self, classifier: Tensor, items: ProbeItems) -> IndexArray:
        """Return the predicted class of each item, (m,).

        Args:
            classifier: Its weights, (rows, w + 1), intercept last.
            items: The m items.
        """
        stack_of_one = classifier[None]
        predictions = self._predict_classes(stack_of_one, items)  # (m, 1)
        return predictions[:, 0]

    def notes(self) -> tuple[str, ...]:
        """Return a note on classifiers that did not converge; empty if all did."""
        if not self.n_unfinished:
            return ()
        return (
            f"{self.n_unfinished} classifiers had not converged after {self.max_iterations} steps",
        )

    def solve(self, problems: Sequence[LogisticProblem]) -> Tensor:
        """Return the optimal weights of logistic regressions.

        All start from zero weights; as each has one optimum, the start does not matter. The number
        of those that did not converge is added to ``self.n_unfinished``.

        Args:
            problems: The training items and the penalty of each regression.

        Returns:
            The weights, (problems, rows, w + 1), intercept last. For w features there is one row of
            weights for two classes, otherwise one per class.
        """
        # The minimiser does not move in the weights themselves, but in variables by which the
        # loss is curved about equally; a point holds those of one problem, flat. The losses convert
        # points to weights.
        losses = _LogisticLosses(problems, self.classes, self.device)
        n_variables = losses.logits_per_item * losses.scale.shape[2]
        zero_points = losses.scale.new_zeros(len(problems), n_variables)
        points, converged = minimise(
            losses, zero_points, tolerance=self.tolerance, max_iterations=self.max_iterations
        )
        self.n_unfinished += int((~converged).sum())
        problem_numbers = torch.arange(len(problems), device=self.device)
        return losses.compute_weights(points, problem_numbers)

    def _predict_classes(self, weights: Tensor, items: ProbeItems) -> IndexArray:
        """Return the class that each classifier predicts for each item, (n, p).

        Args:
            weights: The weights of p classifiers, (p, k, w + 1), intercept last. For two classes k
                is 1, and a positive logit means class 1; otherwise k is the number of classes.
            items: The n items.
        """
        n_classifiers, logits_per_item, _ = weights.shape
        classes = []
        # The features of some of the items at once, x (r, w) float64: of at most so many that
        # their logits fit the memory for them.
        max_items = MAX_CHUNK_VALUES // (n_classifiers * logits_per_item)
        for x in items.features(self.device, max_items):
            logits = torch.einsum("nw,pkw->npk", x, weights[..., :-1]) + weights[..., -1]
            if logits_per_item > 1:
                classes.append(logits.argmax(dim=-1))
            else:
                classes.append((logits[..., 0] > 0).long())
        return np.asarray(torch.cat(classes).cpu().numpy())


class _LogisticLosses:
    """The losses of m logistic regressions, over the items that any of them trains on.

    It is called with points in variables of even curvature, (m, d): the weights on features less
    their mean, rotated to the eigenvectors of their covariance, each times the root of a bound of
    the loss's curvature along it. L-BFGS needs far fewer steps there than in the weights
    themselves. With w features and k logits per item, d = k * (w + 1).

    Attributes:
        logits_per_item: k, the rows of weights of a classifier: 1 for two classes, otherwise their
            number.
        items: The items that any problem trains on.
        is_used: Which training set holds which item, (n, sets), bool.
        set_of_problem: The training set of each problem, (m,), a column of ``is_used``.
        mean: The mean features, (w,).
        eigenvectors: The eigenvectors of their covariance, (w, w), in columns.
        penalty: The penalty of each problem, (m,).
        scale: The inverse root of the bound of the curvature, (m, 1, w + 1), intercept last.
    """

    def __init__(
        self, problems: Sequence[LogisticProblem], classes: int, device: torch.device
    ) -> None:
        """Prepare the losses of m logistic regressions over the same features.

        The losses are not minimised by the weights themselves, along which they are curved very
        differently, but by weights on rotated features, each divided by ``self.scale``. Features
        are rotated to the eigenvectors of their covariance. By such variables the curvature is at
        most 1 in each direction, so that the minimiser needs few steps.

        Args:
            problems: The training items and the penalty of each; all items are of one split.
            classes: The number of classes.
            device: The device to compute on.
        """
        self.logits_per_item = 1 if classes == 2 else classes
        self.device = device
        # This sets self.items, the items that any problem trains on.
        self._join_training_items(problems)
        # The number of items at once. Each problem has logits of its own for an item.
        self._chunk_size = MAX_CHUNK_VALUES // len(problems)
        self._features: list[Tensor] = []
        """The features of all items in chunks, (r, w) each; empty if they do not fit the memory."""
        # Features that fit the memory are computed once, others again in each evaluation.
        bytes_per_float64 = 8
        feature_bytes = len(self.items) * self.items.pool.width * bytes_per_float64
        if feature_bytes <= _MAX_FEATURE_BYTES:
            self._features = [x for x, _ in self.chunks()]
        # A number per problem, (m,).
        self.penalty = self._per_problem([problem.penalty for problem in problems])
        # The variances of the features along the eigenvectors of their covariance, (w,).
        variances = self._find_directions()
        # The second derivative of the cross-entropy by a logit is at most 1/4 for two classes, and
        # at most 1/2 otherwise. A loss is a sum over items.
        sizes = self._per_problem([len(problem.train) for problem in problems])
        bound = sizes * (0.25 if self.logits_per_item == 1 else 0.5)
        # The curvature of the loss along an eigenvector is at most the bound times the variance
        # along it, plus the penalty. Rounding may leave a variance a little below 0.
        curvature = torch.outer(bound, variances.clamp(min=0)) + self.penalty[:, None]
        # The intercept, last, has no penalty, and the factor of its weight is 1 for every item.
        # 1 / sqrt(curvature), (m, 1, w + 1); the axis in the middle is for the logits of an item.
        self.scale = torch.cat([curvature, bound[:, None]], dim=1).rsqrt()[:, None]

    def _join_training_items(self, problems: Sequence[LogisticProblem]) -> None:
        """Store the items that any problem trains on, and which of them each problem trains on.

        This sets attributes of the object: ``items``, the n items of all problems without
        duplicates; ``labels``, (n,); ``is_used``, whether each training set has each item, (n,
        sets); ``set_of_problem``, the column there of each problem, (m,).

        Args:
            problems: The m problems; the items of all are of one split.
        """
        # The embeddings of the split.
        pool = problems[0].train.pool
        # Problems that differ in their penalty alone have the same object as training set.
        train_sets = {id(problem.train): problem.train for problem in problems}
        column_by_set = {set_id: column for column, set_id in enumerate(train_sets)}
        # The indices of all these items in the split, sorted.
        indices = np.unique(np.concatenate([items.indices for items in train_sets.values()]))
        labels = np.zeros(len(indices), dtype=np.int64)
        is_used = np.zeros((len(indices), len(train_sets)), dtype=bool)
        for column, items in enumerate(train_sets.values()):
            # The rows of these items among all.
            rows = np.searchsorted(indices, items.indices)
            labels[rows] = items.labels
            is_used[rows, column] = True
        self.items = ProbeItems(pool, indices, labels)
        self.labels = torch.from_numpy(labels).to(self.device)
        self.is_used = torch.from_numpy(is_used).to(self.device)
        self.set_of_problem = torch.tensor(
            [column_by_set[id(problem.train)] for problem in problems], device=self.device
        )

    def _per_problem(self, values: Sequence[float]) -> Tensor:
        """Return a number of each problem as a tensor (problems,) on the device."""
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    def _find_directions(self) -> Tensor:
        """Find the directions in which the features of all items vary independently.

        This sets ``self.mean``, the mean of the features, (w,), and ``self.eigenvectors`` of their
        covariance, (w, w), one per column.

        Returns:
            The variance of the features along each eigenvector, (w,).
        """
        n = len(self.items)
        width = self.items.pool.width
        self.mean = torch.zeros(width, dtype=torch.float64, device=self.device)
        moments = torch.zeros(width, width, dtype=torch.float64, device=self.device)
        # The features of all items in chunks, x (r, w); which items these are is not needed here.
        for x, _ in self.chunks():
            self.mean += x.sum(dim=0) / n
            # Adds x^T x / n.
            moments.addmm_(x.T, x, alpha=1 / n)
        covariance = moments - torch.outer(self.mean, self.mean)
        variances: Tensor
        variances, self.eigenvectors = torch.linalg.eigh(covariance)
        return variances

    def chunks(self) -> Iterator[tuple[Tensor, slice]]:
        """Yield the items' features (r, w), and which of the items these are."""
        start = 0
        for x in self._features or self.items.features(self.device, self._chunk_size):
            yield x, slice(start, start + len(x))
            start += len(x)

    def compute_weights(self, points: Tensor, problem_numbers: Tensor) -> Tensor:
        """Convert points of the minimiser to weights on the unchanged features.

        The minimiser's variables are weights on features from which their mean (``self.mean``) was
        subtracted, rotated by ``self.eigenvectors`` and multiplied by ``self.scale``.

        Args:
            points: The points of m problems, (m, d), with d = k * (w + 1); k is the number of
                logits per item.
            problem_numbers: The positions of these problems among all, (m,).

        Returns:
            The weights, (m, k, w + 1), intercept last.
        """
        # self.scale has a factor for each problem and variable, (problems, 1, w + 1).
        scaled = points.view(len(points), self.logits_per_item, -1) * self.scale[problem_numbers]
        feature_weights = scaled[..., :-1] @ self.eigenvectors.T
        # The variables are of features less their mean; the intercept takes that back.
        intercept = scaled[..., -1] - feature_weights @ self.mean
        return torch.cat([feature_weights, intercept[..., None]], dim=-1)

    def __call__(self, points: Tensor, problem_numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the losses of m logistic regressions at the minimiser's points.

        A loss is the summed cross-entropy over the regression's items plus half the penalty times
        the squared weights, the intercept left out.

        Args:
            points: The variables of the minimiser, which :meth:`compute_weights` converts to
                weights, (m, d), with d = k * (w + 1); k is the number of logits per item.
            problem_numbers: The positions of these regressions among all, (m,).

        Returns:
            The losses, (m,), and their gradients by these variables, (m, d).
        """
        weights = self.compute_weights(points, problem_numbers)
        penalty = self.penalty[problem_numbers]
        value = penalty / 2 * weights[..., :-1].square().sum(dim=(1, 2))
        # The gradient by the weights and the intercept, (m, k, w + 1).
        gradient = torch.zeros_like(weights)
        gradient[..., :-1] = penalty[:, None, None] * weights[..., :-1]
        flat_weights = weights.flatten(0, 1)  # (mk, w + 1)
        # The column of each problem's training set in self.is_used.
        train_sets = self.set_of_problem[problem_numbers]
        # Chunks of r items each: their features x, (r, w), and which of the items they are.
        for x, rows in self.chunks():
            # The logits, (r, mk), then (r, m, k).
            flat_z = torch.addmm(flat_weights[:, -1], x, flat_weights[:, :-1].T)
            z = flat_z.view(len(x), -1, self.logits_per_item)
            is_used = self.is_used[rows][:, train_sets]  # (r, m)
            loss, residual = self._residuals(z, self.labels[rows], is_used)
            value += loss
            # (mk, r) times (r, w), each classifier's sum over the items; then (m, k, w).
            summed = residual.flatten(1).T @ x
            gradient[..., :-1] += summed.view(-1, self.logits_per_item, x.shape[1])
            gradient[..., -1] += residual.sum(dim=0)
        # The chain rule, back through compute_weights: there a feature's weight also enters the
        # intercept, times minus the feature's mean; and weights are the scaled variables times the
        # transposed eigenvectors.
        centred = gradient[..., :-1] - gradient[..., -1:] * self.mean
        rotated = torch.cat([centred @ self.eigenvectors, gradient[..., -1:]], dim=-1)
        return value, (rotated * self.scale[problem_numbers]).flatten(1)

    def _residuals(self, z: Tensor, labels: Tensor, is_used: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the losses of m problems over r items, and the derivatives by the logits.

        With two classes (one logit z per item, label y) the loss of an item is softplus(z) - y z,
        the cross-entropy of a sigmoid. Otherwise it is the cross-entropy of a softmax.

        Args:
            z: The logits of r items in m problems, (r, m, k), k per item.
            labels: The label of each item, (r,).
            is_used: Which problem trains on which item, (r, m).

        Returns:
            The summed loss of each problem, (m,), and the residuals, (r, m, k): probability minus
            truth, 0 for items that a problem does not train on.
        """
        if self.logits_per_item == 1:
            truth = labels[:, None, None].to(z.dtype)
            residual = (z.sigmoid() - truth) * is_used[..., None]
            # Torch replaces softplus(z) by z above a threshold, 20 by default, where the
            # difference is still more than rounding.
            loss = (functional.softplus(z, threshold=40) - truth * z).squeeze(-1)
        else:
            log_p = z.log_softmax(dim=-1)
            truth = functional.one_hot(labels, self.logits_per_item)[:, None].to(z.dtype)
            residual = (log_p.exp() - truth) * is_used[..., None]
            loss = -(log_p * truth).sum(dim=-1)
        return (loss * is_used).sum(dim=0), residual
