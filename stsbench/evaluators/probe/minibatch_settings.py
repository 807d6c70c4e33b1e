"""The settings of SentEval's classifier, and its notation of optimisers.

Source: SentEval (arXiv 1803.05449), README and ``senteval/tools`` at 5d6dc11 (2020-09-25).
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stsbench.errors import StsbenchError, UnknownName
from stsbench.evaluators.probe.classifier import ProbeProtocol, check_fields


@dataclass(frozen=True, kw_only=True)
class MinibatchSettings(ProbeProtocol, ABC):
    """SentEval's classifier: minibatch training stopped early on development accuracy.

    ``weight_decays`` is the L2 grid in the order tried (the first best wins); it is added to the
    gradient, not decoupled. ``tenacity`` counts every check without a better accuracy, never reset:
    training ends at failure ``tenacity + 1``. A check comes every ``epoch_size`` passes over the
    data, the last one after the first check beyond ``max_epochs``. ``holdout`` is the share of the
    training data drawn to stop the final classifier where a task has no validation split.
    ``loss``: 2018's torch summed over the batch, today's averages and ignores the toolkit's wish.
    """

    optimiser: str = "adam"
    batch_size: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epochs: int = 200
    nhid: int = 0
    dropout: float = 0.0
    loss: Literal["mean", "sum"] = "mean"
    weight_decays: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2)
    holdout: float = 0.05
    rounding: int | None = 2

    def __post_init__(self) -> None:
        """Refuse invalid values, and an optimiser that does not exist."""
        super().__post_init__()
        counts = ("batch_size", "epoch_size")
        from_zero = ("tenacity", "max_epochs", "nhid")
        check_fields(
            self,
            {
                **{name: getattr(self, name) >= 1 for name in counts},
                **{name: getattr(self, name) >= 0 for name in from_zero},
                "dropout": 0 <= self.dropout < 1,
                "holdout": 0 < self.holdout < 1,
                "loss": self.loss in ("mean", "sum"),
                "weight_decays": len(self.weight_decays) > 0 and min(self.weight_decays) >= 0,
            },
        )
        parse_optimiser(self.optimiser)


class Optimiser(NamedTuple):
    """An optimiser and its settings; all else is torch's default."""

    name: Literal["adam", "rmsprop", "sgd"]
    learning_rate: float
    momentum: float = 0.0


_DEFAULTS: dict[str, Optimiser] = {
    "adam": Optimiser("adam", 1e-3),
    "rmsprop": Optimiser("rmsprop", 1e-2),
    "sgd": Optimiser("sgd", float("nan")),
}


def parse_optimiser(text: str) -> Optimiser:
    """Read the toolkit's notation, ``"adam"`` or ``"sgd,lr=0.1,momentum=0.9"``; blanks do for commas.

    Raises:
        UnknownName: an optimiser or a setting that does not exist here.
        StsbenchError: a setting that is no number, or ``sgd`` without ``lr``.
    """
    name, *settings = text.replace(",", " ").split() or [""]
    if name not in _DEFAULTS:
        raise UnknownName("optimiser", name, _DEFAULTS)
    optimiser = _DEFAULTS[name]
    known = ["lr", "momentum"] if name == "sgd" else ["lr"]
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in known:
            raise UnknownName(f"setting of optimiser '{name}'", key, known)
        try:
            number = float(value)
        except ValueError:
            raise StsbenchError(f"optimiser '{text}': '{value}' is not a number") from None
        optimiser = optimiser._replace(learning_rate=number) if key == "lr" else optimiser._replace(momentum=number)
    if not optimiser.learning_rate > 0:
        raise StsbenchError(f"optimiser '{text}' needs a learning rate above 0, such as '{name},lr=0.1'")
    return optimiser
