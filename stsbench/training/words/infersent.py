"""InferSent's training on labelled pairs (Conneau et al. 2017, arXiv 1705.02364, section 3; its released code)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.core.errors import TrainingError
from stsbench.encoders.converted import remembered_digest
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.words.recurrent import VERSIONS, BiLstm, InferSentConfig, Padding, pool_max
from stsbench.encoders.words.vectors import WordVectors, open_vectors
from stsbench.encoders.words.words import find_vectors, tokeniser
from stsbench.training.seams import Columns, Rows
from stsbench.training.words.rounds import Lesson, StandaloneMethod


class PairClassifier(nn.Module):
    """The encoder of both sentences and a head over (u, v, |u - v|, u * v).

    As released by default the head's three linear layers have nothing between them; ``nonlinear``
    puts a tanh behind the first two, and dropout before each.
    """

    def __init__(
        self, encoder: BiLstm, sizes: tuple[int, ...], *, padding: Padding, nonlinear: bool, dropout: float
    ) -> None:
        """Make the head's layers, from each of these sizes to the next."""
        super().__init__()
        self.encoder, self.padding = encoder, padding
        layers: list[nn.Module] = []
        for wide, narrow in pairwise(sizes):
            if nonlinear:
                layers += [*([nn.Tanh()] if layers else []), nn.Dropout(dropout)]
            layers.append(nn.Linear(wide, narrow))
        self.head = nn.Sequential(*layers)

    def forward(self, first: BatchSide, second: BatchSide) -> Tensor:
        """Return logits (b, c)."""
        u, v = (pool_max(self.encoder(side.vectors, side.lengths), self.padding) for side in (first, second))
        logits: Tensor = self.head(torch.cat([u, v, (u - v).abs(), u * v], dim=1))
        return logits


class BatchSide(NamedTuple):
    """One side of a batch: word vectors (b, t, w), zero where there is no word, and lengths (b,)."""

    vectors: Tensor
    lengths: Tensor


class LabelledPairs(NamedTuple):
    """Labelled pairs as rows of a table of word vectors (words + 1, w), whose last row is zero."""

    first: TokenIds
    second: TokenIds
    labels: Tensor
    table: Tensor

    def batch(self, rows: Rows) -> tuple[BatchSide, BatchSide, Tensor]:
        """Some pairs and their labels (b,)."""
        first, second = (self._side(tokens, rows) for tokens in (self.first, self.second))
        return first, second, self.labels[torch.from_numpy(rows)]

    def _side(self, tokens: TokenIds, rows: Rows) -> BatchSide:
        ids, _ = tokens.padded(rows, pad=-1)
        return BatchSide(self.table[torch.from_numpy(ids)], torch.from_numpy(tokens.lengths[rows]))


@dataclass(frozen=True, kw_only=True)
class InferSentTraining(StandaloneMethod):
    """Train InferSent; the defaults are the released code's.

    SGD whose rate falls by ``decay`` an epoch and is divided by ``shrink`` after an epoch without a
    better accuracy on held-out pairs, until it is below ``min_rate``; a gradient longer than
    ``clip`` shortens the step. The weights of the best accuracy are kept, not those of the best
    ``validate``, which only watches.
    """

    needs: ClassVar[tuple[str, ...]] = ("first", "second", "label")
    vectors: str
    version: Literal[1, 2] = 1
    hidden: int = 2048
    head_size: int = 512
    nonlinear: bool = False
    dropout: float = 0.0
    batch_size: int = 64
    epochs: int = 20
    learning_rate: float = 0.1
    decay: float = 0.99
    shrink: float = 5.0
    min_rate: float = 1e-5
    clip: float = 5.0
    tokens: str = "whitespace"
    lowercase: bool = False
    held_out: float = 0.1
    """The share of pairs, the last ones, that accuracy is taken on."""

    def prepare(self, columns: Columns, seed: int) -> Lesson:
        """Read the columns ``first``, ``second`` and ``label``, see :class:`StandaloneMethod`."""
        path = find_vectors(self.vectors).path
        digest, rng = remembered_digest(path), np.random.default_rng(seed)
        vectors = open_vectors(path, sha256=digest)
        pairs, classes = self._read(columns, vectors)
        cut = round(len(pairs.labels) * (1 - self.held_out))
        if not 0 < cut < len(pairs.labels):
            raise TrainingError(
                f"{len(pairs.labels)} pairs, of which {cut} to learn from; give more, or another held_out"
            )
        model = self.model(vectors.shape[1], classes)
        optimiser = torch.optim.SGD(model.parameters(), lr=self.learning_rate)
        steps = -(-cut // self.batch_size)

        def batches() -> Iterator[Rows]:
            order = rng.permutation(cut)
            yield from (order[start : start + self.batch_size] for start in range(0, cut, self.batch_size))

        def learn(rows: Rows, step: int) -> tuple[float, int]:
            if step and step % steps == 0:
                optimiser.param_groups[0]["lr"] *= self.decay
            return self.step(model, optimiser, *pairs.batch(rows)), 1

        def examine(best: float) -> tuple[float, dict[str, float]]:
            correct = accuracy(model, pairs, np.arange(cut, len(pairs.labels)))
            if correct <= best:
                optimiser.param_groups[0]["lr"] /= self.shrink
            return correct, {"accuracy": correct, "learning_rate": optimiser.param_groups[0]["lr"]}

        return Lesson(
            tensors=model.state_dict(),
            optimiser=optimiser,
            saved={
                "kind": "infersent",
                "config": InferSentConfig(
                    version=self.version,
                    word_size=vectors.shape[1],
                    hidden=self.hidden,
                    vectors=self.vectors,
                    vectors_sha256=digest,
                    lowercase=self.lowercase,
                ),
                "tensors": model.encoder.state_dict(),
                "params": {"tokens": self.tokens},
            },
            batches=batches,
            learn=learn,
            steps=steps,
            tokens=len(pairs.first.ids) + len(pairs.second.ids),
            examine=examine,
            finished=lambda: optimiser.param_groups[0]["lr"] < self.min_rate,
        )

    def model(self, word_size: int, classes: int) -> PairClassifier:
        """Make encoder and head; version 1 is trained with padding in the maximum, as it was."""
        padding: Padding = "batch" if self.version == 1 else "masked"
        sizes = (4 * 2 * self.hidden, self.head_size, self.head_size, classes)
        encoder = BiLstm(word_size, self.hidden)
        return PairClassifier(encoder, sizes, padding=padding, nonlinear=self.nonlinear, dropout=self.dropout)

    def step(
        self,
        model: PairClassifier,
        optimiser: torch.optim.Optimizer,
        first: BatchSide,
        second: BatchSide,
        labels: Tensor,
    ) -> float:
        """Learn from one batch and return its mean loss; the rate is shortened for this step alone."""
        model.train()
        optimiser.zero_grad()
        # Summed and divided by the batch in the released code.
        loss = nn.functional.cross_entropy(model(first, second), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))
        group = optimiser.param_groups[0]
        rate = group["lr"]
        group["lr"] = rate * min(1.0, self.clip / norm) if norm > 0 else rate
        optimiser.step()
        group["lr"] = rate
        return float(loss.detach())

    def _read(self, columns: Columns, vectors: WordVectors) -> tuple[LabelledPairs, int]:
        """Look up the words of all pairs; without a known word, a sentence is one zero vector."""
        split, facts = tokeniser(self.tokens, lowercase=self.lowercase), VERSIONS[self.version]
        sides = [[[facts.bos, *split(text), facts.eos] for text in columns[name]] for name in ("first", "second")]
        listed = sorted({word for side in sides for sentence in side for word in sentence})
        found = vectors.find(listed)
        kept = np.flatnonzero(found >= 0)
        table = torch.from_numpy(np.pad(vectors.take(found[kept]), ((0, 1), (0, 0))))
        rows = {listed[i]: row for row, i in enumerate(kept.tolist())}
        ids = [[[rows[w] for w in sentence if w in rows] or [len(rows)] for sentence in side] for side in sides]
        names = sorted(set(columns["label"]))
        if len(names) < 2:
            raise TrainingError(f"all pairs have the label '{names[0] if names else ''}': nothing to learn")
        labels = torch.tensor([names.index(label) for label in columns["label"]])
        return LabelledPairs(TokenIds.from_lists(ids[0]), TokenIds.from_lists(ids[1]), labels, table), len(names)


def accuracy(model: PairClassifier, pairs: LabelledPairs, rows: Rows, *, batch: int = 64) -> float:
    """The share of pairs that a classifier gets right."""
    model.eval()
    correct = 0
    with torch.inference_mode():
        for start in range(0, len(rows), batch):
            first, second, labels = pairs.batch(rows[start : start + batch])
            correct += int((model(first, second).argmax(dim=1) == labels).sum())
    return correct / len(rows)
