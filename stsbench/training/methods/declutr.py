"""DeCLUTR: contrast a span of a document with spans around it, and guess hidden tokens in the same pass.

Giorgi et al. 2021, https://aclanthology.org/2021.acl-long.72, section 3; details of the official code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, PositiveInt
from stsbench.core.errors import CardError
from stsbench.encoders.tokens import TokenIds
from stsbench.training import learner as seams
from stsbench.training.loop.gather import gather_views
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import nt_xent
from stsbench.training.spans import Span, Spans, Strategy, sample_spans

CHECKED = 2000
"""How many documents, the shortest, are tokenised before training to see whether they are long enough."""
TOKENIZE_AT_ONCE = 64


class DeCLUTR(seams.Learner):
    """In-batch contrast of anchors and the mean of their positives, with masked language modelling of the anchors."""

    chunks = True
    needs = ("document",)
    anchors: PositiveInt = 2
    """Spans a document."""
    positives: PositiveInt = 2
    """Spans around each anchor, whose embeddings are averaged."""
    min_span: PositiveInt = 32
    max_span: PositiveInt = 512
    """Tokens of the longest span; a document needs ``2 * anchors * max_span``."""
    strategy: Strategy = "both"
    """Where positives lie."""
    temperature: PositiveFloat = 0.05
    contrastive_weight: NonNegativeFloat = 1.0
    """0 leaves it out. The published models were trained on four GPUs without the later ``scale_fix``, where the
    gradient of the contrast was a quarter: 0.25 makes that again."""
    mlm_weight: NonNegativeFloat = 1.0
    """Of masked language modelling; 0 leaves it out, and no token is hidden."""
    mlm_rate: seams.HiddenShare = 0.15
    """The share of tokens hidden in anchors."""
    respell: bool = False
    """Spans are made text and tokenised again, as in the official code; else their tokens are kept, which differs where
    a span begins within a word."""

    def __post_init__(self) -> None:
        if not self.contrastive_weight and not self.mlm_weight:
            raise CardError("contrastive_weight 0, mlm_weight 0: one must be above 0")
        if self.min_span > self.max_span:
            raise CardError(
                f"spans of {self.min_span} to {self.max_span} tokens: min_span must be at most max_span"
            )
        # What the tokenizer puts before and after a text.
        tokenizer = self.student.backbone.tokenizer
        bare, whole = (
            tokenizer("a", add_special_tokens=False)["input_ids"],
            tokenizer("a")["input_ids"],
        )
        at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        self.before, self.after = whole[:at], whole[at + len(bare) :]

    def prepare(self, columns: seams.Columns) -> None:
        """Take the documents, and check that the shortest are long enough.

        Raises DataError: one is too short; says which. Of a large corpus another one may be found in training.
        """
        super().prepare(columns)
        lengths = np.fromiter(map(len, columns["document"]), dtype=np.int64)
        shortest = np.sort(np.argsort(lengths, kind="stable")[:CHECKED])
        for start in range(0, len(shortest), TOKENIZE_AT_ONCE):
            rows = shortest[start : start + TOKENIZE_AT_ONCE]
            self._sample(rows, self._tokenized(rows), np.random.default_rng(0))

    def _tokenized(self, rows: seams.Rows) -> TokenIds:
        # One blank ahead: RoBERTa's tokenizers take the first word as others.
        texts = [" " + " ".join(self.columns["document"][row].split()) for row in rows.tolist()]
        tokenizer = self.student.backbone.tokenizer
        encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
        return TokenIds.from_lists(encoded["input_ids"])

    def _sample(
        self, rows: seams.Rows, documents: TokenIds, rng: np.random.Generator
    ) -> list[Spans]:
        found = []
        for row, length in zip(rows.tolist(), documents.lengths.tolist(), strict=True):
            words = " ".join(self.columns["document"][row][:100].split())[:40]
            drawn = sample_spans(
                length,
                anchors=self.anchors,
                positives=self.positives,
                min_len=self.min_span,
                max_len=self.max_span,
                strategy=self.strategy,
                rng=rng,
                label=f"document {row + 1} ('{words}…')",
            )
            found.append(drawn)
        return found

    def collate(self, rows: seams.Rows, rng: np.random.Generator) -> seams.Batch:
        """Anchors (rows * anchors, t) with tokens hidden and their labels; positives, those of an anchor together."""
        documents = self._tokenized(rows)
        spans = list(enumerate(self._sample(rows, documents, rng)))
        anchors = self._span_inputs(
            documents, [(at, span) for at, found in spans for span in found.anchors]
        )
        if self.mlm_weight:
            anchors = self.hide(anchors, rng, rate=self.mlm_rate)
        batch: seams.Batch = {"anchors": anchors}
        if self.contrastive_weight:
            around = [
                (at, span) for at, found in spans for each in found.positives for span in each
            ]
            batch["positives"] = self._span_inputs(documents, around)
        return batch

    def _span_inputs(self, documents: TokenIds, spans: Sequence[tuple[int, Span]]) -> seams.Batch:
        starts = documents.offsets
        pieces = [
            documents.ids[starts[at] + first : starts[at] + last] for at, (first, last) in spans
        ]
        if self.respell:
            return self.inputs_of_texts(
                [self.student.backbone.tokenizer.decode(one.tolist()) for one in pieces]
            )
        room = (
            (self.student.max_length or max(map(len, pieces)) + 2)
            - len(self.before)
            - len(self.after)
        )
        tokens = TokenIds.from_lists(
            [[*self.before, *piece[:room].tolist(), *self.after] for piece in pieces]
        )
        return self.student.collate(tokens, np.arange(len(pieces)))

    def forward(self, **batch: Any) -> seams.Losses:  # noqa: ANN401 - what collate made
        """Both losses, from one pass over the anchors and one over the positives."""
        tokens, student = batch["anchors"], self.student

        def embed(part: Tokens) -> torch.Tensor:
            inputs = {name: part[name] for name in ("input_ids", "attention_mask")}
            *states, last = student.hidden_states(inputs, (*student.layers(), -1))
            embeddings = student.pool_states(states, part["attention_mask"])
            if not self.mlm_weight:
                return embeddings
            # Beside each embedding stands the loss of what is hidden in its text.
            loss = seams.row_losses(student.language_model, last, part["labels"])
            return torch.cat([embeddings, loss[:, None]], dim=1)

        anchors = student.compute_in_parts(tokens, embed, student.model)
        losses: seams.Losses = {}
        if self.contrastive_weight:
            positives = student.embed(batch["positives"])
            width = positives.shape[1]
            mean = positives.view(len(anchors), -1, width).mean(dim=1)
            views = (gather_views(anchors[:, :width]), gather_views(mean))
            losses["contrastive"] = nt_xent(*views, temperature=self.temperature)
        if self.mlm_weight:
            losses["mlm"] = seams.mean_of_rows(anchors[:, -1], tokens["labels"])
        return seams.weighted_sum(
            losses, {"contrastive": self.contrastive_weight, "mlm": self.mlm_weight}
        )
