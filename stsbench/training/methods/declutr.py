"""DeCLUTR: contrast a span of a document with spans around it, and guess hidden tokens in the same pass.

Giorgi et al. 2021, https://aclanthology.org/2021.acl-long.72, section 3; details, and how spans are drawn (section 3.1), of
the official code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from stsbench.core.cards import Count, NotNegative, Positive
from stsbench.core.errors import CardError, DataError
from stsbench.encoders.base import TokenIds
from stsbench.training import seams
from stsbench.training.loop.gather import gather_views
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import nt_xent
from stsbench.training.seams import Batch, Columns, HiddenShare, Learner, Losses, Rows

Span = tuple[int, int]
"""First token and the one behind the last."""
ANCHOR_LENGTHS = (4.0, 2.0)
"""Parameters of the Beta distribution of anchor lengths: long spans speak for their document."""
POSITIVE_LENGTHS = (2.0, 4.0)
"""The same for positives: short ones overlap less."""
Strategy = Literal["both", "subsuming", "adjacent"]


class Spans(NamedTuple):
    """Anchors, and for each the list of its positives."""

    anchors: list[Span]
    positives: list[list[Span]]


def sample_spans(
    n_tokens: int,
    *,
    anchors: int,
    positives: int,
    min_len: int,
    max_len: int,
    strategy: Strategy = "both",
    rng: np.random.Generator,
    where: str = "document",
) -> Spans:
    """Draw anchor spans and positive spans of one document.

    The document is cut into blocks of ``max_len`` tokens; each anchor lies within one, and neither that block
    nor its neighbours are used again, so two anchors are ``max_len`` tokens apart or more. (The paper's formula,
    a start anywhere in the document, is not what the code draws, nor does it say how anchors are kept apart.)

    Positives of ``strategy`` ``both`` overlap their anchor, lie next to it or inside it; of ``subsuming`` inside it; of
    ``adjacent`` next to it. The draws come from ``rng`` in the official code's order. Raises DataError: the document,
    called ``where``, is too short: it needs ``2 * anchors * max_len`` tokens.
    """
    if n_tokens < (needed := 2 * anchors * max_len):
        what = f"{where}: {n_tokens:,} tokens; {anchors} anchor(s) of up to {max_len} tokens need {needed:,}"
        raise DataError(f"{what}: leave short documents out, or take fewer or shorter anchors")
    blocks = list(range(0, n_tokens - max_len + 1, max_len))
    found = Spans([], [])
    for left in range(anchors, 0, -1):
        length = _length(rng, ANCHOR_LENGTHS, min_len, max_len)
        # Where choosing from the middle could leave too few blocks, choose the first or the last.
        chosen = int(rng.choice([0, len(blocks) - 1]) if len(blocks) // left < left else rng.integers(len(blocks)))
        start = int(rng.integers(blocks[chosen], blocks[chosen] + max_len - length + 1))
        del blocks[max(0, chosen - 1) : chosen + 2]
        anchor = (start, start + length)
        found.anchors.append(anchor)
        around = [STRATEGIES[strategy](anchor, n_tokens, min_len, max_len, rng) for _ in range(positives)]
        found.positives.append(around)
    return found


def _length(rng: np.random.Generator, shape: tuple[float, float], shortest: int, longest: int) -> int:
    return int(rng.beta(*shape) * (longest - shortest) + shortest)


def _subsuming(anchor: Span, n: int, min_len: int, max_len: int, rng: np.random.Generator) -> Span:
    start, end = anchor
    length = _length(rng, POSITIVE_LENGTHS, min_len, end - start)
    first = int(rng.integers(start, end - length + 1))
    return first, first + length


def _adjacent(anchor: Span, n: int, min_len: int, max_len: int, rng: np.random.Generator) -> Span:
    start, end = anchor
    length = _length(rng, POSITIVE_LENGTHS, min_len, max_len)
    # The official code never takes a span that begins the document; here it does where there is no other.
    before = [start - length] if start > length else []
    after = [end] if end + length <= n else []
    first = int(rng.choice(before + after or [start - length]))
    return first, first + length


def _both(anchor: Span, n: int, min_len: int, max_len: int, rng: np.random.Generator) -> Span:
    start, end = anchor
    length = _length(rng, POSITIVE_LENGTHS, min_len, max_len)
    first = int(rng.integers(max(0, start - length), min(end, n - length) + 1))
    return first, first + length


STRATEGIES: Mapping[Strategy, Callable[[Span, int, int, int, np.random.Generator], Span]] = {
    "both": _both,
    "subsuming": _subsuming,
    "adjacent": _adjacent,
}
"""An anchor, the document's tokens, the shortest and longest span, and a generator, to a positive."""


CHECKED = 2000
"""How many documents, the shortest, are tokenised before training to see whether they are long enough."""
TOKENIZE_AT_ONCE = 64


class DeCLUTR(Learner):
    """In-batch contrast of anchors and the mean of their positives, with masked language modelling of the anchors."""

    chunks = True
    needs = ("document",)
    anchors: Count = 2
    """Spans a document."""
    positives: Count = 2
    """Spans around each anchor, whose embeddings are averaged."""
    min_span: Count = 32
    max_span: Count = 512
    """Tokens of the longest span; a document needs ``2 * anchors * max_span``."""
    strategy: Strategy = "both"
    """Where positives lie."""
    temperature: Positive = 0.05
    contrastive_weight: NotNegative = 1.0
    """0 leaves it out. The published models were trained on four GPUs without the later ``scale_fix``, where the gradient of
    the contrast was a quarter: 0.25 makes that again."""
    mlm_weight: NotNegative = 1.0
    """Of masked language modelling; 0 leaves it out, and no token is hidden."""
    mlm_rate: HiddenShare = 0.15
    """The share of tokens hidden in anchors."""
    respell: bool = False
    """Spans are made text and tokenised again, as in the official code; else their tokens are kept, which differs where a
    span begins within a word."""

    def __post_init__(self) -> None:
        if not self.contrastive_weight and not self.mlm_weight:
            raise CardError("contrastive_weight 0, mlm_weight 0: one must be above 0")
        if self.min_span > self.max_span:
            raise CardError(f"spans of {self.min_span} to {self.max_span} tokens: min_span must be at most max_span")
        # What the tokenizer puts before and after a text.
        tokenizer = self.student.backbone.tokenizer
        bare, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
        at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        self.before, self.after = whole[:at], whole[at + len(bare) :]

    def prepare(self, columns: Columns) -> None:
        """Take the documents, and check that the shortest are long enough.

        Raises DataError: one is too short; says which. Of a large corpus another one may be found in training.
        """
        super().prepare(columns)
        lengths = np.fromiter(map(len, columns["document"]), dtype=np.int64)
        shortest = np.sort(np.argsort(lengths, kind="stable")[:CHECKED])
        for start in range(0, len(shortest), TOKENIZE_AT_ONCE):
            rows = shortest[start : start + TOKENIZE_AT_ONCE]
            self._sample(rows, self._tokenized(rows), np.random.default_rng(0))

    def _tokenized(self, rows: Rows) -> TokenIds:
        # One blank ahead: RoBERTa's tokenizers take the first word as others.
        texts = [" " + " ".join(self.columns["document"][row].split()) for row in rows.tolist()]
        tokenizer = self.student.backbone.tokenizer
        encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
        return TokenIds.from_lists(encoded["input_ids"])

    def _sample(self, rows: Rows, documents: TokenIds, rng: np.random.Generator) -> list[Spans]:
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
                where=f"document {row + 1} ('{words}…')",
            )
            found.append(drawn)
        return found

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Anchors (rows * anchors, t) with tokens hidden and their labels; positives, those of an anchor together."""
        documents = self._tokenized(rows)
        spans = list(enumerate(self._sample(rows, documents, rng)))
        anchors = self._span_inputs(documents, [(at, span) for at, found in spans for span in found.anchors])
        if self.mlm_weight:
            anchors = self.hide(anchors, rng, rate=self.mlm_rate)
        batch: Batch = {"anchors": anchors}
        if self.contrastive_weight:
            around = [(at, span) for at, found in spans for each in found.positives for span in each]
            batch["positives"] = self._span_inputs(documents, around)
        return batch

    def _span_inputs(self, documents: TokenIds, spans: Sequence[tuple[int, Span]]) -> Batch:
        starts = documents.offsets
        pieces = [documents.ids[starts[at] + first : starts[at] + last] for at, (first, last) in spans]
        if self.respell:
            return self.made_inputs([self.student.backbone.tokenizer.decode(one.tolist()) for one in pieces])
        room = (self.student.max_length or max(map(len, pieces)) + 2) - len(self.before) - len(self.after)
        tokens = TokenIds.from_lists([[*self.before, *piece[:room].tolist(), *self.after] for piece in pieces])
        return self.student.collate(tokens, np.arange(len(pieces)))

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Both losses, from one pass over the anchors and one over the positives."""
        tokens, student = batch["anchors"], self.student

        def embed(part: Tokens) -> torch.Tensor:
            inputs = {name: part[name] for name in ("input_ids", "attention_mask")}
            *states, last = student.hidden_states(inputs, (*student.layers(), -1))
            embeddings = student.pooled(states, part["attention_mask"])
            if not self.mlm_weight:
                return embeddings
            # Beside each embedding stands the loss of what is hidden in its text.
            loss = seams.row_losses(student.language_model, last, part["labels"])
            return torch.cat([embeddings, loss[:, None]], dim=1)

        anchors = student.by_length(tokens, embed, student.model)
        losses: Losses = {}
        if self.contrastive_weight:
            positives = student.embed(batch["positives"])
            width = positives.shape[1]
            mean = positives.view(len(anchors), -1, width).mean(dim=1)
            views = (gather_views(anchors[:, :width]), gather_views(mean))
            losses["contrastive"] = nt_xent(*views, temperature=self.temperature)
        if self.mlm_weight:
            losses["mlm"] = seams.mean_of_rows(anchors[:, -1], tokens["labels"])
        return seams.weighted_sum(losses, {"contrastive": self.contrastive_weight, "mlm": self.mlm_weight})
