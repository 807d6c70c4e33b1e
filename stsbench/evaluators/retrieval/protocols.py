"""How the maps of image-caption retrieval are trained, chosen and scored.

Source: SentEval (arXiv 1803.05449), ``senteval/rank.py`` and ``senteval/tools/ranking.py`` at 5d6dc11.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from stsbench.errors import StsbenchError


@dataclass(frozen=True, kw_only=True)
class RetrievalProtocol:
    """SentEval's ranking model.

    The score, ``mean_recall``, is the mean of six recalls: of the first 1, 5 and 10, image to text and
    text to image. The toolkit reports the six apart; their mean is DeCLUTR's.

    Recalls are taken within ``folds`` times ``fold_images`` images and averaged. A check comes after each
    epoch, the last one after the first beyond ``max_epochs``; training ends at check ``tenacity + 1``
    without a better sum of recalls, counted in all and never reset. Each caption of a batch is ranked
    against ``contrasts`` images and ``contrasts`` captions drawn from outside the batch; the hinge is
    summed. An evaluation with seed ``s`` is the toolkit's run with its seed set to ``base_seed + s``.
    """

    name: str
    metric: Literal["mean_recall"] = "mean_recall"
    base_seed: int = 1111
    projection: int = 1000
    margin: float = 0.2
    contrasts: int = 30
    optimiser: Literal["adam"] = "adam"
    learning_rate: float = 1e-3
    batch_size: int = 128
    max_epochs: int = 20
    tenacity: int = 3
    folds: int = 5
    fold_images: int = 1000
    captions_per_image: int = 5

    def __post_init__(self) -> None:
        """Refuse values of no sense."""
        fixed, from_zero = {"metric": "mean_recall", "optimiser": "adam"}, {"max_epochs", "tenacity", "base_seed"}
        for field in (f.name for f in fields(self) if f.name != "name"):
            value = getattr(self, field)
            good = value == fixed[field] if field in fixed else value >= 0 if field in from_zero else value > 0
            if not good:
                raise StsbenchError(f"protocol '{self.name}': {field} = {value!r} is invalid")


PROTOCOLS: dict[str, RetrievalProtocol] = {"senteval": RetrievalProtocol(name="senteval")}
