"""Methods that learn from pairs: SBERT's objectives, triplets in batches, and gold scores by order (CoSENT, AnglE)."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import numpy as np
import torch

from stsbench.core.cards import NonNegativeFloat, PositiveFloat
from stsbench.core.errors import CardError, DataError, UnknownName
from stsbench.data.corpora.corpus import number_texts
from stsbench.training.learner import (
    Batch,
    Columns,
    ContrastiveLearner,
    Learner,
    Losses,
    Rows,
    rows_of,
    weighted_sum,
)
from stsbench.training.loop.gather import gather_pairs, gather_views, has_many_ranks
from stsbench.training.methods.simcse import PAIRING
from stsbench.training.objectives import (
    feature_names,
    library_loss,
    make_loss,
    pair_features,
    pairs_in_batch,
)


class ScoredPairs(Learner):
    """A batch is pairs and their scores; a method says what of the scores it learns from."""

    chunks = True
    needs = ("first", "second", "score")

    def prepare(self, columns: Columns) -> None:
        """Take the scores, (n,); raises DataError where one is no number."""
        super().prepare(columns)
        scores = np.array(list(columns["score"]), dtype=np.float64)
        if len(wrong := np.flatnonzero(~np.isfinite(scores))):
            raise DataError(
                f"row {wrong[0] + 1}: score {scores[wrong[0]]:g} is no number; leave the pair out"
            )
        self.scores = torch.from_numpy(scores)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """First sentences above second ones, and their scores (b,)."""
        return {
            "views": self.inputs(("first", "second"), rows),
            "scores": self.scores[torch.from_numpy(rows)].float(),
        }


LABELS = {"contradiction": 0, "entailment": 1, "neutral": 2}
"""The classes, numbered as in the authors' code."""


class SBERT(Learner):
    """Softmax over the relations of natural language inference; the classifier is gone afterwards.

    Reimers and Gurevych 2019, https://aclanthology.org/D19-1410, section 3.
    """

    chunks = True
    needs = ("first", "second", "label")
    features: str | tuple[str, ...] = "sbert"
    """What the classifier is given: a preset (``sbert``: u, v, |u-v|), or features of pairs one by one, as ``|u-v|``."""
    bias: bool = True
    """Whether the classifier has one, as in the authors' code; the paper's formula has none."""

    def __post_init__(self) -> None:
        self.features = feature_names(self.features)
        self.classifier = torch.nn.Linear(
            self.student.backbone.width * len(self.features), len(LABELS)
        )
        if not self.bias:
            self.classifier.register_parameter("bias", None)
        self.classifier.to(self.student.device)

    def prepare(self, columns: Columns) -> None:
        """Number the labels. Raises DataError: a label that is not one of the three."""
        super().prepare(columns)
        if unknown := [str(name) for name in columns["label"] if name not in LABELS]:
            hint = f"known: {', '.join(LABELS)} (leave out pairs without one)"
            raise UnknownName("label", unknown[0], LABELS, hint=hint)
        self.labels = torch.tensor([LABELS[name] for name in columns["label"]])

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """First sentences above second ones, and the labels (b,)."""
        return {
            "views": self.inputs(("first", "second"), rows),
            "labels": self.labels[torch.from_numpy(rows)],
        }

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The cross-entropy, and beside it the share of pairs classified rightly."""
        u, v = self.student.embed(batch["views"]).chunk(2)
        logits = self.classifier(pair_features(u, v, self.features)).float()
        accuracy = (logits.argmax(dim=1) == batch["labels"]).float().mean()
        return {
            "loss": torch.nn.functional.cross_entropy(logits, batch["labels"]),
            "accuracy": accuracy,
        }


class SBERTRegression(ScoredPairs):
    """Squared error between the cosine and the gold score, scaled to at most 1 (section 3 of SBERT's paper)."""

    highest_score: PositiveFloat = 5.0
    """Of the corpus; scores are divided by it."""

    def __post_init__(self) -> None:
        self.loss = make_loss("CosineSimilarityLoss")

    def prepare(self, columns: Columns) -> None:
        """Bring the scores to 0 to 1; raises DataError where one is below 0 or above the highest."""
        super().prepare(columns)
        if len(wrong := np.flatnonzero((self.scores < 0) | (self.scores > self.highest_score))):
            what = f"row {wrong[0] + 1}: score {self.scores[wrong[0]]:g} is not from 0 to {self.highest_score:g}"
            raise DataError(f"{what}; set highest_score to the corpus's")
        self.scores /= self.highest_score

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The mean squared error."""
        u, v = self.student.embed(batch["views"]).chunk(2)
        return {"loss": library_loss(self.loss, u, v, labels=batch["scores"])}


class SBERTTriplets(ContrastiveLearner):
    """Each anchor finds its positive, over batches in which no text occurs twice, as sentence-transformers trains on NLI.

    Its MultipleNegativesRankingLoss, cosines times a scale of 20, softmax over all positives and negatives of the
    batch, is supervised SimCSE's loss at temperature 0.05. What differs is the order of the corpus.
    """

    views: Literal["pairs", "triplets"] = "triplets"  # type: ignore[assignment]
    """Anchors with positives, or with negatives too."""
    scale: PositiveFloat = 20.0
    """Of the cosine; the inverse of SimCSE's temperature."""

    def __post_init__(self) -> None:
        self.needs = PAIRING[self.views]
        self.batch_negatives = "joint" if len(self.needs) < 3 else ""
        self.loss = make_loss("MultipleNegativesRankingLoss", scale=self.scale)

    def prepare(self, columns: Columns) -> None:
        """Number the distinct texts, (n, columns)."""
        super().prepare(columns)
        self.texts = number_texts(*(columns[name] for name in self.needs)).T

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """Shuffled, then rows put off that share a text with one before them in their batch.

        A batch takes the first rows left that share none. Where no more such are left, the last
        rows come as they are: a corpus with one text in most rows has no other order.
        """
        waiting = deque(super().order(count, rng, batch=batch).tolist())
        placed: list[int] = []
        while waiting:
            seen: set[int] = set()
            put_off: list[int] = []
            full = len(placed) + batch
            while waiting and len(placed) < full:
                row = waiting.popleft()
                texts = self.texts[row].tolist()
                if seen.isdisjoint(texts):
                    placed.append(row)
                    seen.update(texts)
                else:
                    put_off.append(row)
            waiting.extendleft(reversed(put_off))
            if len(placed) < full:
                placed += waiting
                break
        return np.array(placed, dtype=np.int64)

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The cross-entropy over the sentences of all ranks."""
        columns = self.embed_views(batch["views"], len(self.needs))
        return {"loss": library_loss(self.loss, *columns)}


class CoSENT(ScoredPairs):
    """The order of a batch's cosines, over all pairs of pairs whose scores differ; what the scores are does not count.

    Su 2022, https://kexue.fm/archives/8847; Huang et al. 2024, https://doi.org/10.1109/TASLP.2024.3402087.
    """

    scale: PositiveFloat = 20.0
    """Of the cosines; 20 in the author's code."""

    def __post_init__(self) -> None:
        self.loss = make_loss("CoSENTLoss", scale=self.scale)

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The logarithm of one plus the sum over wrongly ordered pairs, those of all ranks together."""
        u, v = gather_pairs(self.student.embed(batch["views"]), 2)
        return {"loss": library_loss(self.loss, u, v, labels=gather_views(batch["scores"]))}


class AnglE(ScoredPairs):
    """Three losses over one batch of pairs: two of order, by the angle of complex numbers and by cosine, and one of contrast.

    Li and Li 2024, arXiv 2309.12871, https://aclanthology.org/2024.acl-long.101; details of the official code, weights
    and scales its values for STS-B. A weight of 0 leaves a loss out.
    """

    angle_weight: NonNegativeFloat = 0.02
    cosine_weight: NonNegativeFloat = 1.0
    """Of the order by cosine, CoSENT's loss."""
    contrastive_weight: NonNegativeFloat = 1.0
    angle_scale: PositiveFloat = 20.0
    cosine_scale: PositiveFloat = 20.0
    temperature: PositiveFloat = 0.05
    """Of the contrast."""
    lowest_positive: PositiveFloat = 1.0
    """Pairs of this score and above are positives in the contrast, as released; others have none."""
    positives: Literal["own", "released"] = "own"
    """``released`` with the others that the code takes for positives by mistake where scores are not 0 and 1: it
    multiplies a sentence's number by its score, and equal products meet."""
    doubled_texts: Literal["keep", "drop"] = "keep"
    """``drop`` as released: a batch lacks the pairs of which it has a text already; in one process alone."""

    def __post_init__(self) -> None:
        weights = {
            name: getattr(self, f"{name}_weight") for name in ("angle", "cosine", "contrastive")
        }
        self.weights = {name: weight for name, weight in weights.items() if weight}
        if not self.weights:
            raise CardError("angle_weight, cosine_weight and contrastive_weight: give one above 0")
        self.orders = {
            "angle": make_loss("AnglELoss", scale=self.angle_scale),
            "cosine": make_loss("CoSENTLoss", scale=self.cosine_scale),
        }

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """First sentences above second ones, and their scores, all (b, …); of doubled texts the first alone, if asked for."""
        batch = super().collate(rows, rng)
        if self.doubled_texts == "keep":
            return batch
        if has_many_ranks():
            raise CardError(
                "doubled_texts 'drop' leaves processes unlike batches; train in one, or use 'keep'"
            )
        kept = torch.tensor(_without_doubled(batch["views"]["input_ids"]))
        if not len(kept):
            raise CardError("doubled_texts 'drop': a batch has no pair of two texts; use 'keep'")
        both = torch.cat([kept, kept + len(rows)])
        return {"views": rows_of(batch["views"], both), "scores": batch["scores"][kept]}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The weighted sum, over the pairs of all ranks, and its parts."""
        u, v = gather_pairs(self.student.embed(batch["views"]), 2)
        scores = gather_views(batch["scores"])
        parts = {
            name: library_loss(self.orders[name], u, v, labels=scores)
            if name in self.orders
            else pairs_in_batch(u, v, self.targets(scores), temperature=self.temperature)
            for name in self.weights
        }
        return weighted_sum(parts, self.weights)

    def targets(self, scores: torch.Tensor) -> torch.Tensor:
        """Which sentences are positives of which, bool (2b, 2b), all first sentences before all second ones."""
        b = len(scores)
        rows = torch.arange(2 * b, device=scores.device)
        partners = rows.roll(b)
        positive = (scores >= self.lowest_positive).repeat(2)
        numbers, others = rows, partners
        if self.positives == "released":
            # The code has each pair's sentences side by side, and scores cut to whole numbers.
            times = scores.floor().long().repeat(2)
            side_by_side = 2 * (rows % b) + rows // b
            numbers, others = side_by_side * times, side_by_side[partners] * times
        return (others[:, None] == numbers[None, :]) & positive[:, None] & positive[None, :]


def _without_doubled(ids: torch.Tensor) -> list[int]:
    """Which pairs the official code's collator keeps, of padded ids (2b, t): neither text is one it has read before."""
    seen: set[tuple[int, ...]] = set()
    kept = []
    for number, texts in enumerate(
        zip(*(map(tuple, view.tolist()) for view in ids.chunk(2)), strict=True)
    ):
        for text in texts:
            if text in seen:
                break
            seen.add(text)
        else:
            kept.append(number)
    return kept
