"""Methods that learn from pairs: SBERT's objectives, triplets in batches, and CoSENT and AnglE.

The latter two learn from the order of gold scores.
"""

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
    select_rows,
    with_weighted_sum,
)
from stsbench.training.loop.gather import gather_over_ranks, gather_pairs, has_many_ranks
from stsbench.training.methods.simcse import COLUMNS_BY_VIEWS
from stsbench.training.objectives import (
    feature_names,
    library_loss,
    make_loss,
    pair_features,
    pairs_in_batch,
)


class ScoredPairs(Learner):
    """A method whose batches are pairs and their scores."""

    chunks = True
    needs = ("first", "second", "score")

    def prepare(self, columns: Columns) -> None:
        """Store the corpus of scored pairs, and its scores (n,) as ``scores``.

        Args:
            columns: The corpus: ``first``, ``second`` and ``score``.

        Raises:
            DataError: A score is NaN or infinite.
        """
        super().prepare(columns)
        scores = np.array(list(columns["score"]), dtype=np.float64)
        wrong_rows = np.flatnonzero(~np.isfinite(scores))
        if len(wrong_rows):
            row = wrong_rows[0]
            raise DataError(
                f"row {row + 1}: score {scores[row]:g} is no number; leave the pair out"
            )
        self.scores = torch.from_numpy(scores)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch of b scored pairs of sentences.

        Args:
            rows: The rows of the pairs in the corpus, (b,).
            rng: Not used; other methods draw.

        Returns:
            ``views``, model inputs (2b, t) each: the first sentences of the pairs above the second
            ones; and ``scores``, float32 (b,).
        """
        return {
            "views": self.inputs(("first", "second"), rows),
            "scores": self.scores[torch.from_numpy(rows)].float(),
        }


NLI_LABELS = {"contradiction": 0, "entailment": 1, "neutral": 2}
"""The classes, numbered as in the authors' code."""


class SBERT(Learner):
    """Softmax over the relations of natural language inference; the classifier is not saved.

    Reimers and Gurevych 2019, https://aclanthology.org/D19-1410, section 3.
    """

    chunks = True
    needs = ("first", "second", "label")
    features: str | tuple[str, ...] = "sbert"
    """The input of the classifier: a preset (``sbert``: u, v, |u-v|), or features of pairs one by
    one, as ``|u-v|``."""
    bias: bool = True
    """Whether the classifier has a bias, as in the authors' code; the paper's formula has none."""

    def __post_init__(self) -> None:
        """Make the classifier of pairs: a linear layer from features of a pair to three classes.

        ``features`` is a list of features, such as |u-v| of the embeddings u and v, or the name of
        a preset of them. The classes are the labels of natural language inference (NLI).
        """
        # The names of the features, also if a preset was named.
        self.features = feature_names(self.features)
        # Each feature of a pair has the width of an embedding.
        input_width = self.student.backbone.width * len(self.features)
        self.classifier = torch.nn.Linear(input_width, len(NLI_LABELS))
        if not self.bias:
            self.classifier.register_parameter("bias", None)
        self.classifier.to(self.student.device)

    def prepare(self, columns: Columns) -> None:
        """Store the corpus, and the number of each pair's label, 0 to 2, as ``labels``, (n,).

        Args:
            columns: The corpus, with the columns ``first``, ``second`` and ``label``.

        Raises:
            UnknownName: A label is not one of the three of natural language inference (NLI).
        """
        super().prepare(columns)
        unknown_labels = [str(name) for name in columns["label"] if name not in NLI_LABELS]
        if unknown_labels:
            hint = f"known: {', '.join(NLI_LABELS)} (leave out pairs without one)"
            # The first one is named.
            raise UnknownName("label", unknown_labels[0], NLI_LABELS, hint=hint)
        self.labels = torch.tensor([NLI_LABELS[name] for name in columns["label"]])

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch of b labelled pairs of sentences.

        Args:
            rows: The rows of the pairs in the corpus, (b,).
            rng: Not used; other methods draw.

        Returns:
            ``views``, model inputs (2b, t) each: the first sentences of the pairs above the second
            ones; and ``labels``, the numbers of their classes, (b,).
        """
        return {
            "views": self.inputs(("first", "second"), rows),
            "labels": self.labels[torch.from_numpy(rows)],
        }

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return ``loss``, the cross-entropy of classifying pairs, and their ``accuracy``.

        Both are means over the pairs of this process.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of first sentences above
                those of second ones, and ``labels``, the numbers of the pairs' classes, (b,).
        """
        # (b, h) each: the embeddings of the first and of the second sentences.
        u, v = self.student.embed(batch["views"]).chunk(2)
        logits = self.classifier(pair_features(u, v, self.features)).float()
        accuracy = (logits.argmax(dim=1) == batch["labels"]).float().mean()
        return {
            "loss": torch.nn.functional.cross_entropy(logits, batch["labels"]),
            "accuracy": accuracy,
        }


class SBERTRegression(ScoredPairs):
    """Squared error between the cosine and the gold score, scaled to at most 1.

    It is that of SBERT's paper, section 3.
    """

    highest_score: PositiveFloat = 5.0
    """The highest score of the corpus; scores are divided by it."""

    def __post_init__(self) -> None:
        """Make the library's loss."""
        self.loss = make_loss("CosineSimilarityLoss")

    def prepare(self, columns: Columns) -> None:
        """Store the corpus of scored pairs, and scale its scores to 0 to 1.

        Args:
            columns: The corpus: ``first``, ``second`` and ``score``.

        Raises:
            DataError: A score is below 0 or above ``highest_score``, a setting of the method.
        """
        # Sets ``scores``, a tensor (n,) of float64: a copy, so that the column stays as it is.
        super().prepare(columns)
        wrong_rows = np.flatnonzero((self.scores < 0) | (self.scores > self.highest_score))
        if len(wrong_rows):
            row = wrong_rows[0]
            score = self.scores[row]
            remedy = "leave the pair out" if score < 0 else "set highest_score to the corpus's"
            raise DataError(
                f"row {row + 1}: score {score:g} is not from 0 to {self.highest_score:g}; {remedy}"
            )
        self.scores /= self.highest_score

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return the mean squared error."""
        u, v = self.student.embed(batch["views"]).chunk(2)
        return {"loss": library_loss(self.loss, u, v, labels=batch["scores"])}


class SBERTTriplets(ContrastiveLearner):
    """Each anchor finds its positive, over batches in which no text occurs twice.

    So sentence-transformers trains on NLI. Its MultipleNegativesRankingLoss, cosines times a scale
    of 20, softmax over all positives and negatives of the batch, is supervised SimCSE's loss at
    temperature 0.05. The difference is the order of the corpus.
    """

    views: Literal["pairs", "triplets"] = "triplets"  # type: ignore[assignment]
    """``pairs``: anchors with positives; ``triplets``: with negatives too."""
    scale: PositiveFloat = 20.0
    """The factor of the cosines; the inverse of SimCSE's temperature."""

    def __post_init__(self) -> None:
        """Choose the columns by ``views``, and make the library's loss."""
        self.needs = COLUMNS_BY_VIEWS[self.views]
        self.batch_negatives = "joint" if len(self.needs) < 3 else ""
        self.loss = make_loss("MultipleNegativesRankingLoss", scale=self.scale)

    def prepare(self, columns: Columns) -> None:
        """Store the corpus, and number its distinct texts, (n, columns)."""
        super().prepare(columns)
        self.texts = number_texts(*(columns[name] for name in self.needs)).T

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """Return the corpus's rows, (count,), in an order in which no batch has a text twice.

        The rows are shuffled. Then a batch takes the first remaining rows that share no text with
        each other; a row that shares one is deferred to a later batch. If the remaining rows cannot
        fill a batch so, they follow as they are, since a corpus with one text in most rows has no
        better order.

        Args:
            count: The number of rows of the corpus.
            rng: The generator of the shuffle.
            batch: The number of rows of a batch.
        """
        # A random permutation of the rows.
        remaining_rows = deque(super().order(count, rng, batch=batch).tolist())
        ordered_rows: list[int] = []
        while remaining_rows:
            batch_texts: set[int] = set()
            deferred_rows: list[int] = []
            batch_end = len(ordered_rows) + batch
            while remaining_rows and len(ordered_rows) < batch_end:
                row = remaining_rows.popleft()
                # The numbers of the row's texts; equal texts have equal numbers.
                row_texts = self.texts[row].tolist()
                if batch_texts.isdisjoint(row_texts):
                    ordered_rows.append(row)
                    batch_texts.update(row_texts)
                else:
                    deferred_rows.append(row)
            # Deferred rows come first in the next batch; ``extendleft`` would reverse their order.
            remaining_rows.extendleft(reversed(deferred_rows))
            is_batch_full = len(ordered_rows) == batch_end
            if not is_batch_full:
                ordered_rows += remaining_rows
                break
        return np.array(ordered_rows, dtype=np.int64)

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return the cross-entropy over the sentences of all ranks."""
        views = self.embed_views(batch["views"], len(self.needs))
        return {"loss": library_loss(self.loss, *views)}


class CoSENT(ScoredPairs):
    """The order of a batch's cosines, over all pairs of pairs with different scores.

    Only the order of the scores matters. Su 2022, https://kexue.fm/archives/8847; Huang et al.
    2024, https://doi.org/10.1109/TASLP.2024.3402087.
    """

    scale: PositiveFloat = 20.0
    """The factor of the cosines; 20 in the author's code."""

    def __post_init__(self) -> None:
        """Make the library's loss."""
        self.loss = make_loss("CoSENTLoss", scale=self.scale)

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return CoSENT's loss as ``loss``: pairs with a higher score need a higher cosine.

        It is log(1 + sum of exp(scale * (cosine of pair i - cosine of pair j))), over all pairs i
        and j of all processes in which i has the lower score; ``scale`` is a setting.

        Args:
            batch: What ``collate`` made: ``views``, the model inputs of first sentences above those
                of second ones, and ``scores`` (b,).
        """
        # (ranks * b, h) each: first and second sentences of the pairs of all processes.
        u, v = gather_pairs(self.student.embed(batch["views"]), views=2)
        return {"loss": library_loss(self.loss, u, v, labels=gather_over_ranks(batch["scores"]))}


class AnglE(ScoredPairs):
    """Three losses over one batch of pairs: two of order, by angle and by cosine, and a contrast.

    The angle is that of complex numbers. Li and Li 2024, arXiv 2309.12871,
    https://aclanthology.org/2024.acl-long.101; details of the official code, with its weights and
    scales for STS-B. A weight of 0 omits a loss.
    """

    angle_weight: NonNegativeFloat = 0.02
    cosine_weight: NonNegativeFloat = 1.0
    """The weight of the order by cosine, CoSENT's loss."""
    contrastive_weight: NonNegativeFloat = 1.0
    angle_scale: PositiveFloat = 20.0
    cosine_scale: PositiveFloat = 20.0
    temperature: PositiveFloat = 0.05
    """The temperature of the contrast."""
    lowest_positive: PositiveFloat = 1.0
    """The lowest score of a pair whose sentences are positives of each other in the contrast; 1 as
    released, and with the positives of "released" at least 1."""
    positives: Literal["own", "released"] = "own"
    """``released`` adds the positives that the code finds by mistake if scores are not 0 and 1: it
    multiplies a sentence's number by its score, and sentences with equal products are positives."""
    doubled_texts: Literal["keep", "drop"] = "keep"
    """``drop`` as released: a batch omits pairs with a text that it has already; in one process
    only."""

    def __post_init__(self) -> None:
        """Select AnglE's losses with a weight above 0, and make the two that rank pairs by score.

        Raises:
            CardError: All weights are 0.
        """
        weights = {
            name: getattr(self, f"{name}_weight") for name in ("angle", "cosine", "contrastive")
        }
        self.weights = {name: weight for name, weight in weights.items() if weight}
        """The weights above 0, by the name of the loss."""
        if not self.weights:
            raise CardError("angle_weight, cosine_weight and contrastive_weight: give one above 0")
        # Losses of sentence-transformers; the contrast is computed by ``pairs_in_batch``.
        self.order_losses = {
            "angle": make_loss("AnglELoss", scale=self.angle_scale),
            "cosine": make_loss("CoSENTLoss", scale=self.cosine_scale),
        }

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch of scored pairs of sentences.

        If the setting ``doubled_texts`` is "drop", pairs with a text that the batch has already are
        omitted, as in AnglE's official code.

        Args:
            rows: The rows of the pairs in the corpus.
            rng: Not used; other methods draw.

        Returns:
            ``views``, model inputs (2b, t) each: the first sentences of the b remaining pairs above
            the second ones; and ``scores`` (b,).

        Raises:
            CardError: Pairs are to be omitted, but several processes train, or no pair would stay.
        """
        # ``views`` and ``scores`` of all pairs.
        batch = super().collate(rows, rng)
        if self.doubled_texts == "keep":
            return batch
        # Each process would omit another number of pairs, but their batches must have one size.
        if has_many_ranks():
            raise CardError(
                "doubled_texts 'drop' leaves processes unlike batches; train in one, or use 'keep'"
            )
        # The positions of the pairs in the batch.
        kept_pairs = torch.tensor(_pairs_with_new_texts(batch["views"]["input_ids"]))
        if not len(kept_pairs):
            raise CardError("doubled_texts 'drop': a batch has no pair of two texts; use 'keep'")
        # The second sentence of a pair is len(rows) rows below the first.
        view_rows = torch.cat([kept_pairs, kept_pairs + len(rows)])
        return {
            "views": select_rows(batch["views"], view_rows),
            "scores": batch["scores"][kept_pairs],
        }

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return AnglE's losses by name, and as ``loss`` their weighted sum.

        They are over the pairs of all training processes. ``weights`` are the weights above 0 by
        the name of the loss: ``angle`` and ``cosine`` rank pairs by score, ``contrastive`` is a
        contrast within the batch.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of first sentences above
                those of second ones, and ``scores`` (b,).
        """
        # (ranks * b, h) each: first and second sentences of the pairs of all processes.
        u, v = gather_pairs(self.student.embed(batch["views"]), views=2)
        scores = gather_over_ranks(batch["scores"])
        losses = {}
        for name in self.weights:
            if name in self.order_losses:
                losses[name] = library_loss(self.order_losses[name], u, v, labels=scores)
            else:
                # Which of the 2 * ranks * b sentences are positives of which, (2rb, 2rb).
                positives = self.positive_mask(scores)
                losses[name] = pairs_in_batch(u, v, positives, temperature=self.temperature)
        return with_weighted_sum(losses, self.weights)

    def positive_mask(self, scores: torch.Tensor) -> torch.Tensor:
        """Return which sentences of a batch of b pairs are positives of which, bool (2b, 2b).

        Row and column i < b are the first sentence of pair i, and b + i is its second sentence. The
        positive of a sentence is the other one of its pair, if the pair's score is at least
        ``lowest_positive``. With the setting ``positives`` of "released", an error of AnglE's
        official code is repeated, which adds some sentences of other pairs.

        Args:
            scores: The gold score of each pair, (b,).
        """
        b = len(scores)
        sentences = torch.arange(2 * b, device=scores.device)
        # The other sentence of each sentence's pair.
        partners = sentences.roll(b)
        has_high_score = (scores >= self.lowest_positive).repeat(2)
        # Sentence j is a positive of i if the number of j is the number of i's partner.
        numbers = sentences
        partner_numbers = partners
        if self.positives == "released":
            # The official code numbers the sentences pair after pair (0 and 1 are a pair), and
            # multiplies the numbers by the scores, rounded down. That is right for the scores 0
            # and 1; other scores give equal numbers to some sentences of different pairs too. A
            # pair whose score is rounded down to 0 has no positives.
            pairwise_numbers = 2 * (sentences % b) + sentences // b
            whole_scores = scores.floor().long().repeat(2)
            has_high_score &= whole_scores > 0
            numbers = pairwise_numbers * whole_scores
            partner_numbers = pairwise_numbers[partners] * whole_scores
        is_partner = partner_numbers[:, None] == numbers[None, :]
        return is_partner & has_high_score[:, None] & has_high_score[None, :]


def _pairs_with_new_texts(ids: torch.Tensor) -> list[int]:
    """Return the positions of the pairs that AnglE's official code keeps in a batch.

    It keeps a pair if neither of its texts occurred before in the batch. If a pair is dropped for
    its second text, its first text still counts as one that occurred.

    Args:
        ids: The padded token ids, (2b, t), first texts above second ones.
    """
    # A text is the tuple of its token ids.
    batch_texts: set[tuple[int, ...]] = set()
    kept_pairs = []
    first_texts, second_texts = ids.chunk(2)
    pairs = zip(first_texts.tolist(), second_texts.tolist(), strict=True)
    for position, pair_texts in enumerate(pairs):
        is_new = True
        for text in map(tuple, pair_texts):
            if text in batch_texts:
                is_new = False
                break
            batch_texts.add(text)
        if is_new:
            kept_pairs.append(position)
    return kept_pairs
