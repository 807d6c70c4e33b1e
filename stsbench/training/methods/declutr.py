"""DeCLUTR: contrast a span of a document with spans around it, and guess hidden tokens in the same pass.

Giorgi et al. 2021, https://aclanthology.org/2021.acl-long.72, section 3; details of the official code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stsbench.core.errors import CardError
from stsbench.encoders.base import TokenIds
from stsbench.training.loop.gather import gather_views
from stsbench.training.loop.parts import Tokens, by_length
from stsbench.training.masking import mean_of_rows, row_losses
from stsbench.training.objectives import nt_xent
from stsbench.training.seams import Batch, Columns, Learner, Rows, weighted_sum
from stsbench.training.spans import Span, Spans, sample_spans
from stsbench.training.student import Student

CHECKED = 2000
"""How many documents, the shortest, are tokenised before training to see whether they are long enough."""
TOKENIZE_AT_ONCE = 64


class DeCLUTR(Learner):
    """In-batch contrast of anchors and the mean of their positives, with masked language modelling of the anchors."""

    chunks = True
    needs = ("document",)

    def __init__(
        self,
        student: Student,
        *,
        anchors: int = 2,
        positives: int = 2,
        min_span: int = 32,
        max_span: int = 512,
        strategy: str = "both",
        temperature: float = 0.05,
        contrastive_weight: float = 1.0,
        mlm_weight: float = 1.0,
        mlm_rate: float = 0.15,
        respell: bool = False,
    ) -> None:
        """Choose a variant.

        Args:
            student: what is trained.
            anchors: spans a document.
            positives: spans around each anchor, whose embeddings are averaged.
            min_span: tokens of the shortest span.
            max_span: tokens of the longest; a document needs ``2 * anchors * max_span``.
            strategy: where positives lie.
            temperature: of the cosine.
            contrastive_weight: of the contrastive loss; 0 leaves it out. The published models were trained on
                four GPUs without the later ``scale_fix``, where its gradient was a quarter: 0.25 makes that again.
            mlm_weight: of masked language modelling; 0 leaves it out, and no token is hidden.
            mlm_rate: the share of tokens hidden in anchors.
            respell: spans are made text and tokenised again, as in the official code; else their tokens are kept,
                which differs where a span begins within a word.
        """
        super().__init__(student)
        if min(contrastive_weight, mlm_weight) < 0 or contrastive_weight == mlm_weight == 0:
            raise CardError(f"contrastive_weight {contrastive_weight}, mlm_weight {mlm_weight}: one must be above 0")
        self.sampling: dict[str, Any] = {
            "anchors": anchors,
            "positives": positives,
            "min_len": min_span,
            "max_len": max_span,
            "strategy": strategy,
        }
        self.temperature, self.contrastive_weight, self.respell = temperature, contrastive_weight, respell
        self.mlm_weight, self.mlm_rate = mlm_weight, mlm_rate
        self.before, self.after = self._special_tokens()

    @classmethod
    def wants_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Unless masked language modelling is left out."""
        return bool(params.get("mlm_weight", 1.0))

    def _special_tokens(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text."""
        tokenizer = self.student.backbone.tokenizer
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        whole = tokenizer("a")["input_ids"]
        at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        return whole[:at], whole[at + len(bare) :]

    def prepare(self, columns: Columns) -> None:
        """Take the documents, and check that the shortest are long enough.

        Raises:
            DataError: one is too short; says which. Of a large corpus another one may be found in training.
        """
        super().prepare(columns)
        lengths = np.fromiter(map(len, columns["document"]), dtype=np.int64)
        shortest = np.sort(np.argsort(lengths, kind="stable")[:CHECKED])
        for start in range(0, len(shortest), TOKENIZE_AT_ONCE):
            rows = shortest[start : start + TOKENIZE_AT_ONCE]
            self._sample(rows, self._tokenized(rows), np.random.default_rng(0))

    def _tokenized(self, rows: Rows) -> TokenIds:
        """The tokens of some documents, whole."""
        # One blank ahead: RoBERTa's tokenizers take the first word as others.
        texts = [" " + " ".join(self.columns["document"][row].split()) for row in rows.tolist()]
        tokenizer = self.student.backbone.tokenizer
        encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
        return TokenIds.from_lists(encoded["input_ids"])

    def _sample(self, rows: Rows, documents: TokenIds, rng: np.random.Generator) -> list[Spans]:
        """Spans of each of some documents."""
        found = []
        for row, length in zip(rows.tolist(), documents.lengths.tolist(), strict=True):
            words = " ".join(self.columns["document"][row][:100].split())[:40]
            where = f"document {row + 1} ('{words}…')"
            found.append(sample_spans(length, rng=rng, where=where, **self.sampling))
        return found

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Anchors (rows * anchors, t) with tokens hidden and their labels; positives, those of an anchor together."""
        documents = self._tokenized(rows)
        spans = list(enumerate(self._sample(rows, documents, rng)))
        anchors = self._inputs(documents, [(at, span) for at, found in spans for span in found.anchors])
        if self.mlm_weight:
            anchors = self.hide(anchors, rng, rate=self.mlm_rate)
        batch: Batch = {"anchors": anchors}
        if self.contrastive_weight:
            around = [(at, span) for at, found in spans for each in found.positives for span in each]
            batch["positives"] = self._inputs(documents, around)
        return batch

    def _inputs(self, documents: TokenIds, spans: Sequence[tuple[int, Span]]) -> Batch:
        """Model inputs (n, t) of spans of documents."""
        starts = documents.offsets
        pieces = [documents.ids[starts[at] + first : starts[at] + last] for at, (first, last) in spans]
        if self.respell:
            texts = [self.student.backbone.tokenizer.decode(piece.tolist()) for piece in pieces]
            tokens = self.student.tokenize(texts)
        else:
            room = (self.student.max_length or max(map(len, pieces)) + 2) - len(self.before) - len(self.after)
            tokens = TokenIds.from_lists([[*self.before, *piece[:room].tolist(), *self.after] for piece in pieces])
        return self.student.collate(tokens, np.arange(len(pieces)))

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """Both losses, from one pass over the anchors and one over the positives."""
        anchors, mlm = self._anchors(batch["anchors"])
        losses: dict[str, torch.Tensor] = {}
        if self.contrastive_weight:
            positives = self.student.embed(batch["positives"])
            mean = positives.view(len(anchors), -1, positives.shape[1]).mean(dim=1)
            losses["contrastive"] = nt_xent(gather_views(anchors), gather_views(mean), temperature=self.temperature)
        if mlm is not None:
            losses["mlm"] = mlm
        return weighted_sum(losses, {"contrastive": self.contrastive_weight, "mlm": self.mlm_weight})

    def _anchors(self, tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The embeddings of the anchors, and the loss of guessing what is hidden in them, of one pass."""

        def embed(part: Tokens) -> torch.Tensor:
            inputs = {name: part[name] for name in ("input_ids", "attention_mask")}
            *states, last = self.student.hidden_states(inputs, (*self.student.layers(), -1))
            embeddings = self.student.pooled(states, part["attention_mask"])
            if "labels" not in part:
                return embeddings
            # Beside each embedding stands the loss of what is hidden in its text.
            loss = row_losses(self.student.language_model, last, part["labels"])
            return torch.cat([embeddings, loss[:, None]], dim=1)

        found = by_length(tokens, embed, chunk=self.student.chunk, unpadded=self.student.unpadded)
        if "labels" not in tokens:
            return found, None
        return found[:, :-1], mean_of_rows(found[:, -1], tokens["labels"])
