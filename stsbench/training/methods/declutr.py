"""DeCLUTR: contrast a span of a document with spans around it, and guess hidden tokens too.

Both losses are from the same pass. Giorgi et al. 2021, https://aclanthology.org/2021.acl-long.72,
section 3; details of the official code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, PositiveInt
from stsbench.core.errors import CardError
from stsbench.encoders.tokens import TokenIds
from stsbench.training.learner import (
    Batch,
    Columns,
    HiddenShare,
    Learner,
    Losses,
    Rows,
    label_loss_sums,
    mean_label_loss,
    with_weighted_sum,
)
from stsbench.training.loop.gather import gather_over_ranks
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import nt_xent
from stsbench.training.spans import Span, Spans, Strategy, sample_spans

N_CHECKED_DOCUMENTS = 2000
"""The number of documents, the shortest, whose length in tokens is checked before training."""
N_DOCUMENTS_AT_ONCE = 64
"""The number of documents that are tokenised in one call."""


class DeCLUTR(Learner):
    """In-batch contrast of anchors and their mean positives, with masked language modelling.

    Tokens are hidden in the anchors.
    """

    chunks = True
    needs = ("document",)
    anchors: PositiveInt = 2
    """The number of anchors per document."""
    positives: PositiveInt = 2
    """The number of spans around each anchor, whose embeddings are averaged."""
    min_span: PositiveInt = 32
    """The number of tokens of the shortest span."""
    max_span: PositiveInt = 512
    """The number of tokens of the longest span; a document needs ``2 * anchors * max_span``."""
    strategy: Strategy = "both"
    """The location of positives, see :func:`stsbench.training.spans.sample_spans`."""
    temperature: PositiveFloat = 0.05
    contrastive_weight: NonNegativeFloat = 1.0
    """The weight of the contrast; 0 omits it. The published models were trained on four GPUs
    without the later ``scale_fix``, where the gradient of the contrast was a quarter: 0.25
    reproduces that."""
    mlm_weight: NonNegativeFloat = 1.0
    """The weight of masked language modelling; 0 omits it, and no token is hidden."""
    mlm_rate: HiddenShare = 0.15
    """The share of tokens hidden in anchors."""
    respell: bool = False
    """Whether spans become text and are tokenised again, as in the official code; otherwise their
    tokens are used, which differ if a span begins within a word."""

    def __post_init__(self) -> None:
        """Check DeCLUTR's settings, and find the special tokens before and after a text.

        Raises:
            CardError: Both losses have the weight 0, or the shortest span exceeds the longest.
        """
        if not self.contrastive_weight and not self.mlm_weight:
            raise CardError("contrastive_weight 0, mlm_weight 0: one must be above 0")
        if self.min_span > self.max_span:
            raise CardError(
                f"spans of {self.min_span} to {self.max_span} tokens: "
                "min_span must be at most max_span"
            )
        # A text of one word with and without special tokens, such as [CLS] a [SEP].
        tokenizer = self.student.backbone.tokenizer
        word_ids = tokenizer("a", add_special_tokens=False)["input_ids"]
        text_ids = tokenizer("a")["input_ids"]
        # The index of the word's tokens among those of the text.
        word_start = next(
            start
            for start in range(len(text_ids))
            if text_ids[start : start + len(word_ids)] == word_ids
        )
        self.special_ids_before = text_ids[:word_start]
        self.special_ids_after = text_ids[word_start + len(word_ids) :]

    def prepare(self, columns: Columns) -> None:
        """Store the documents, and check that the 2,000 of fewest characters have enough tokens.

        This is no proof: a document of more characters may have fewer tokens. Then it is found too
        short in training.

        Args:
            columns: The corpus, with the column ``document``.

        Raises:
            DataError: A document is too short; the message names it.
        """
        super().prepare(columns)
        lengths = np.fromiter(map(len, columns["document"]), dtype=np.int64)
        # In the order of the corpus, so that an error names the first one.
        shortest_rows = np.sort(np.argsort(lengths, kind="stable")[:N_CHECKED_DOCUMENTS])
        for start in range(0, len(shortest_rows), N_DOCUMENTS_AT_ONCE):
            rows = shortest_rows[start : start + N_DOCUMENTS_AT_ONCE]
            # The spans themselves are not used: drawing them raises the error.
            self._draw_spans(rows, self._tokenize_documents(rows), np.random.default_rng(0))

    def _tokenize_documents(self, rows: Rows) -> TokenIds:
        """Tokenise the documents of some rows, without special tokens."""
        # With a blank before it, RoBERTa's tokenizers treat the first word like the others.
        texts = [" " + " ".join(self.columns["document"][row].split()) for row in rows.tolist()]
        tokenizer = self.student.backbone.tokenizer
        encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
        return TokenIds.from_lists(encoded["input_ids"])

    def _draw_spans(self, rows: Rows, documents: TokenIds, rng: np.random.Generator) -> list[Spans]:
        """Draw the anchor spans and positive spans of each document of a batch.

        An anchor lies anywhere in the document; ``strategy`` names where its positives lie: inside
        it, next to it, or overlapping it.

        Args:
            rows: The rows of the documents in the corpus, (b,), for messages.
            documents: The token ids of the documents, without special tokens.
            rng: The generator of the spans.

        Returns:
            For each document its anchors, and for each anchor its positives. A span is the index of
            its first token and the one behind its last.

        Raises:
            DataError: A document has fewer than 2 * ``anchors`` * ``max_span`` tokens.
        """
        spans_by_document = []
        for row, length in zip(rows.tolist(), documents.lengths.tolist(), strict=True):
            # At most 40 characters of the document, for messages.
            first_words = " ".join(self.columns["document"][row][:100].split())[:40]
            spans = sample_spans(
                length,
                anchors=self.anchors,
                positives=self.positives,
                min_len=self.min_span,
                max_len=self.max_span,
                strategy=self.strategy,
                rng=rng,
                label=f"document {row + 1} ('{first_words}…')",
            )
            spans_by_document.append(spans)
        return spans_by_document

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch: the model inputs of anchor spans and positive spans of some documents.

        Args:
            rows: The rows of the documents in the corpus, (b,).
            rng: The generator of the spans and of the hidden tokens.

        Returns:
            ``anchors``, (b * anchors per document, t) each, and ``positives``, as many for each
            anchor, one anchor's after the other's. With masked language modelling the anchors have
            tokens hidden, and ``labels``, their true ids. Without a contrast there are no
            ``positives``.
        """
        documents = self._tokenize_documents(rows)
        # The index of a span's document in the batch, and the span.
        anchor_spans: list[tuple[int, Span]] = []
        positive_spans: list[tuple[int, Span]] = []
        for document, spans in enumerate(self._draw_spans(rows, documents, rng)):
            anchor_spans += [(document, span) for span in spans.anchors]
            for anchor_positives in spans.positives:
                positive_spans += [(document, span) for span in anchor_positives]
        anchors = self._span_inputs(documents, anchor_spans)
        if self.mlm_weight:
            anchors = self.hide_tokens(anchors, rng, rate=self.mlm_rate)
        batch: Batch = {"anchors": anchors}
        if self.contrastive_weight:
            batch["positives"] = self._span_inputs(documents, positive_spans)
        return batch

    def _span_inputs(self, documents: TokenIds, spans: Sequence[tuple[int, Span]]) -> Batch:
        """Return the model inputs of spans of tokens, (number of spans, t) each.

        Args:
            documents: The token ids of the batch's documents, without special tokens.
            spans: For each span the index of its document in the batch, and the indices of its
                first token and of the one behind its last.
        """
        # The first token of each document among all ids.
        offsets = documents.offsets
        span_ids = [
            documents.ids[offsets[document] + start : offsets[document] + stop]
            for document, (start, stop) in spans
        ]
        if self.respell:
            # DeCLUTR's official code turns spans into text, which is tokenised again, and gets
            # special tokens then.
            tokenizer = self.student.backbone.tokenizer
            return self.inputs_of_texts([tokenizer.decode(ids.tolist()) for ids in span_ids])
        # Without a limit of the model, room for the longest span and two special tokens.
        max_length = self.student.max_length or max(map(len, span_ids)) + 2
        max_span_ids = max_length - len(self.special_ids_before) - len(self.special_ids_after)
        ids_with_special = [
            [*self.special_ids_before, *ids[:max_span_ids].tolist(), *self.special_ids_after]
            for ids in span_ids
        ]
        tokens = TokenIds.from_lists(ids_with_special)
        return self.student.collate(tokens, np.arange(len(span_ids)))

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return DeCLUTR's losses by name, and as ``loss`` their weighted sum.

        ``contrastive`` contrasts each anchor span with the mean of its positive spans; ``mlm`` is
        the loss of guessing the hidden tokens of anchors. A loss of weight 0 is absent. One pass of
        the model over the anchors serves both.

        Args:
            batch: What :meth:`collate` made, model inputs: ``anchors`` with tokens hidden, and
                ``positives``, as many for each anchor, one anchor's after the other's.
        """
        tokens = batch["anchors"]
        student = self.student

        def embed_with_losses(part: Tokens) -> torch.Tensor:
            """Return the embeddings (b', h) of some anchors, perhaps with a column of losses."""
            inputs = {name: part[name] for name in ("input_ids", "attention_mask")}
            # The layers that the pooling uses, and the last one for the language model's head.
            *states, last_states = student.hidden_states(inputs, (*student.layers(), -1))
            embeddings = student.pool_states(states, part["attention_mask"])
            if not self.mlm_weight:
                return embeddings
            # A part must have a single tensor of results. So the summed loss of the hidden tokens
            # of each text is a further column beside the embeddings: (b', h + 1).
            loss_sums = label_loss_sums(student.language_model, last_states, part["labels"])
            return torch.cat([embeddings, loss_sums[:, None]], dim=1)

        # On a CPU in parts of similar length, unless the model (the last argument) omits padding.
        anchor_results = student.compute_in_parts(tokens, embed_with_losses, student.model)
        losses: Losses = {}
        if self.contrastive_weight:
            positives = student.embed(batch["positives"])
            width = positives.shape[1]
            anchors = anchor_results[:, :width]
            # (anchors, positives, h): the mean of an anchor's positives is its only positive.
            mean_positives = positives.view(len(anchors), -1, width).mean(dim=1)
            losses["contrastive"] = nt_xent(
                gather_over_ranks(anchors),
                gather_over_ranks(mean_positives),
                temperature=self.temperature,
            )
        if self.mlm_weight:
            loss_sums = anchor_results[:, -1]
            losses["mlm"] = mean_label_loss(loss_sums, tokens["labels"])
        return with_weighted_sum(
            losses, {"contrastive": self.contrastive_weight, "mlm": self.mlm_weight}
        )
