"""Logistic regression as a protocol: trained to its optimum, so that nothing is left to chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stsbench.evaluators.probe.classifier import ProbeProtocol, ProbeRun, check_fields

if TYPE_CHECKING:
    from stsbench.evaluators.probe.converged import ConvergedSolver


@dataclass(frozen=True, kw_only=True)
class ConvergedProtocol(ProbeProtocol):
    """Logistic regression trained to its unique optimum: no early stop, no draws, no rounding.

    The loss is the summed cross-entropy plus ``penalty / 2`` times the squared weights, the
    intercept free: scikit-learn's with ``C = 1 / penalty``. ``penalties`` is tried from strong to
    weak and the first best wins; the final classifier is trained on all training data. The grid,
    1024 to 1/64 by factors of 4, suits embeddings of length 1 and of length 30 alike. ``tolerance``
    bounds the gradient, measured in preconditioned weights, whose curvature is about 1 at most.
    """

    penalties: tuple[float, ...] = tuple(4.0**power for power in range(5, -4, -1))
    tolerance: float = 1e-3
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        super().__post_init__()
        positive = len(self.penalties) > 0 and min(self.penalties) > 0
        check_fields(self, {"penalties": positive, "tolerance": self.tolerance > 0})

    def solver(self, run: ProbeRun) -> ConvergedSolver:
        """All folds and penalties at once."""
        from stsbench.evaluators.probe.converged import ConvergedSolver

        return ConvergedSolver(
            self.penalties,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            classes=run.classes,
            device=run.device,
        )
