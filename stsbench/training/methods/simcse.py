"""SimCSE: contrast a sentence with itself under another dropout mask, or with another positive.

Other positives are an entailed sentence, or one changed by augmentation. Gao, Yao and Chen 2021,
arXiv 2104.08821: unsupervised section 3, supervised section 4, other positives tables 1 to 3.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from stsbench.core.errors import CardError
from stsbench.encoders.accelerator import fork_rng
from stsbench.training import texts
from stsbench.training.learner import (
    Batch,
    Columns,
    ContrastiveLearner,
    HiddenShare,
    Losses,
    Rows,
    select_rows,
    with_weighted_sum,
)
from stsbench.training.loop.gather import gather_over_ranks
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import info_nce, nt_xent


class TwoViews(ContrastiveLearner):
    """A method that embeds each sentence twice, under two dropout masks."""

    views_by_dropout = True
    temperature: PositiveFloat = 0.05

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch: the sentences, and below them the same again."""
        return {"views": self.inputs(("text", "text"), rows)}


COLUMNS_BY_VIEWS: dict[str, tuple[str, ...]] = {
    "dropout": ("text",),
    "pairs": ("anchor", "positive"),
    "triplets": ("anchor", "positive", "negative"),
    "two_negatives": ("anchor", "positive", "negative", "second_negative"),
}
"""The columns of the corpus by the name of the views."""


class SimCSE(ContrastiveLearner):
    """In-batch contrast of two views, with hard negatives if the corpus has them."""

    views: Literal["dropout", "pairs", "triplets", "two_negatives"] = "dropout"  # type: ignore[assignment]
    """The positive is the sentence again, or the corpus's; ``two_negatives`` has two hard negatives
    per row (table 7)."""
    loss: Literal["one_direction", "symmetric"] = "one_direction"
    """As released, N - 1 negatives (N more with hard negatives); or the 2N-sided NT-Xent of many
    tutorials."""
    temperature: PositiveFloat = 0.05
    similarity: Literal["cosine", "dot"] = "cosine"
    """``dot`` depends on the lengths too (table D.1); only for ``one_direction``."""
    hard_negative_weight: float = 0.0
    """A number added to the logit of a row's own hard negative: alpha = exp(weight) in equation
    8."""
    contrastive_weight: PositiveFloat = 1.0
    """The weight of the contrast. The released code trained supervised models on four GPUs, where
    the gradient of the contrast was a quarter, and that of masked language modelling whole: 0.25
    reproduces that."""
    mlm_weight: NonNegativeFloat = 0.0
    """The weight of the auxiliary masked language modelling (section 3 and table D.2)."""
    mlm_rate: HiddenShare = 0.15
    mlm_decoder: Literal["tied", "copied"] = "tied"
    """``copied`` as released: the output layer begins as the word embeddings and is trained
    independently; ``tied``: the two remain one, as in the checkpoint."""
    legacy_masked_input: bool = False
    """Whether the contrast has hidden tokens too, as in the code of the paper's MLM tables
    (princeton-nlp/SimCSE, PR 121)."""
    two_encoders: bool = False
    """Whether a second model encodes positives and hard negatives. It begins as the first, is
    trained with it, and is not saved (section 4)."""

    def __post_init__(self) -> None:
        """Check that the settings fit each other, and choose the columns and the loss.

        For two encoders the student is copied; a ``copied`` decoder gets weights of its own.
        """
        self.needs = COLUMNS_BY_VIEWS[self.views]
        # A third column has hard negatives of each row, so that even a batch of one row has
        # negatives; otherwise all are from the joint batch.
        has_hard_negatives = len(self.needs) > 2
        self.batch_negatives = "" if has_hard_negatives else "joint"
        if self.loss == "symmetric" and has_hard_negatives:
            raise CardError("the symmetric loss takes no hard negatives; use views = 'pairs'")
        if self.loss == "symmetric" and self.similarity == "dot":
            raise CardError(
                "the symmetric loss is of cosines; "
                "use loss = 'one_direction' with similarity = 'dot'"
            )
        if self.two_encoders and self.mlm_weight:
            raise CardError(
                "two encoders have no masked language modelling beside them; leave 'mlm_weight' out"
            )
        self.second = copy.deepcopy(self.student) if self.two_encoders else None
        self.views_by_dropout = self.views == "dropout" and not self.two_encoders
        one_direction = partial(
            info_nce, hard_negative_weight=self.hard_negative_weight, similarity=self.similarity
        )
        self.contrast = partial(
            nt_xent if self.loss == "symmetric" else one_direction, temperature=self.temperature
        )
        if self.mlm_weight and self.mlm_decoder == "copied":
            decoder: Any = self.student.language_model.get_output_embeddings()  # type: ignore[union-attr]
            decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch: all views one below the other; with MLM, the same with tokens hidden.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the hidden tokens.
        """
        # A single column is embedded twice: its views differ by dropout.
        view_columns = self.needs * 2 if len(self.needs) == 1 else self.needs
        batch: Batch = {"views": self.inputs(view_columns, rows)}
        if self.mlm_weight:
            batch["hidden"] = self.hide_tokens(batch["views"], rng, rate=self.mlm_rate)
            if self.legacy_masked_input:
                batch["views"]["input_ids"] = batch["hidden"]["input_ids"]
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return the contrastive loss, with masked language modelling if it has a weight.

        Args:
            batch: What :meth:`collate` made: ``views``, and perhaps ``hidden``.
        """
        # A single column makes two views.
        n_views = max(2, len(self.needs))
        anchor, positive, *hard_negatives = self.embed_views(
            batch["views"], n_views, second=self.second
        )
        if hard_negatives:
            contrastive = self.contrast(anchor, positive, torch.cat(hard_negatives))
        else:
            contrastive = self.contrast(anchor, positive)
        if not self.mlm_weight:
            return {"loss": self.contrastive_weight * contrastive}
        losses = {"contrastive": contrastive, "mlm": self.hidden_token_loss(batch["hidden"])}
        return with_weighted_sum(
            losses, {"contrastive": self.contrastive_weight, "mlm": self.mlm_weight}
        )


PositiveKind = Literal[
    "crop",
    "delete_words",
    "delete_one_word",
    "synonym",
    "masked_word",
    "next_sentence",
    "fixed_mask",
    "two_encoders",
]
WORD_CHANGES: Mapping[str, Callable[[SimCSEPositives], texts.Augment]] = {
    "crop": lambda method: partial(texts.crop, rate=method.rate),
    "delete_words": lambda method: partial(texts.delete_words, rate=method.rate),
    "delete_one_word": lambda method: texts.delete_one_word,
    "synonym": lambda method: partial(
        texts.replace_synonyms, synonyms=texts.load_synonyms(method.synonyms), single=True
    ),
    "masked_word": lambda method: partial(
        texts.replace_masked,
        fill=texts.MaskedFill(method.filler or str(method.student.checkpoint.folder)),
        rate=method.rate,
    ),
}
"""Functions that make the change of words of a positive from the method's parameters."""


class SimCSEPositives(ContrastiveLearner):
    """In-batch contrast of a sentence with a changed, following or twice-encoded one.

    The released code has only the dropout positive, :class:`SimCSE`; these follow the paper's text.
    For a student without dropout, a recipe sets ``dropout = 0``.
    """

    positive: PositiveKind
    """The kind of positive. The first five change the words; ``next_sentence`` needs an ordered
    corpus; ``fixed_mask`` encodes twice under the same dropout mask; ``two_encoders`` encodes the
    second view by a second model, which is trained with the first and not saved."""
    rate: Share = 0.1
    """The share of words that ``crop`` and ``delete_words`` delete and ``masked_word`` changes."""
    reach: PositiveInt = 1
    """The number of following sentences among which ``next_sentence`` chooses."""
    two_encoders: bool = False
    """Whether a second model encodes the changed or following sentence (table 2)."""
    synonyms: str = "wordnet"
    """``wordnet``, or the path of a table of synonyms."""
    filler: str = ""
    """The masked language model that fills words in; default: the student's own checkpoint."""
    temperature: PositiveFloat = 0.05

    def __post_init__(self) -> None:
        """Choose the change of words, and copy the student if there are two encoders."""
        if self.positive == "next_sentence":
            self.needs = ("text", "document_id")
        # These two changes read WordNet's open files or run a model, which other processes cannot.
        self.made_ahead = self.positive not in ("synonym", "masked_word")
        # A function that changes the words of a positive; None for kinds that keep them.
        self.augment = WORD_CHANGES[self.positive](self) if self.positive in WORD_CHANGES else None
        if self.two_encoders and self.positive == "fixed_mask":
            raise CardError(
                "two encoders share no dropout mask; "
                "leave 'two_encoders' or positive = 'fixed_mask' out"
            )
        self.second = (
            copy.deepcopy(self.student)
            if self.two_encoders or self.positive == "two_encoders"
            else None
        )

    def prepare(self, columns: Columns) -> None:
        """Store the corpus and the rows of its anchors.

        The last sentence of a document of an ordered corpus is no anchor.

        Raises:
            CardError: No document has two sentences.
        """
        super().prepare(columns)
        self.anchors = np.arange(len(columns["text"]))
        if self.positive == "next_sentence":
            document_ids = np.asarray(columns["document_id"])
            # Which rows are anchors does not depend on the draws; the positives are drawn per
            # batch.
            self.anchors, _ = texts.next_sentences(document_ids, rng=np.random.default_rng(0))
            if not len(self.anchors):
                raise CardError(
                    "positive 'next_sentence': no document of the corpus has two sentences"
                )

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """Return the rows shuffled; a row without a next sentence is replaced by another row."""
        return rng.permutation(np.resize(self.anchors, count))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch: the sentences, and below them their positives.

        A positive is the sentence itself or one that follows it, perhaps with its words changed.

        Args:
            rows: The rows of the corpus, (b,), all of them anchors, as :meth:`order` returns them.
            rng: The generator of the following sentences and of the changes of words.

        Returns:
            ``views``: the model inputs, (2b, t) each.
        """
        positive_rows = rows
        if self.positive == "next_sentence":
            document_ids = np.asarray(self.columns["document_id"])
            anchors, positives = texts.next_sentences(document_ids, rng=rng, reach=self.reach)
            # Following sentences are drawn for the whole corpus, of which the batch takes its own.
            # The anchors ascend, and each row is one of them, so that the search finds its place.
            positive_rows = positives[np.searchsorted(anchors, rows)]
        positive_texts = self.texts_of(positive_rows)
        if self.augment is not None:
            positive_texts = [*map(texts.word_augmentation(self.augment, rng), positive_texts)]
        return {"views": self.inputs_of_texts([*self.texts_of(rows), *positive_texts])}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return SimCSE's loss, in one direction."""
        tokens = batch["views"]
        if self.positive == "fixed_mask":
            views = self._embed_under_one_mask(tokens)
        else:
            views = self.embed_views(tokens, second=self.second)
        return {"loss": info_nce(*views, temperature=self.temperature)}

    def _embed_under_one_mask(self, tokens: Tokens) -> list[torch.Tensor]:
        """Embed both views under the same dropout mask.

        Args:
            tokens: The model inputs, (2b, t) each, the second view below the first.
        """
        n_sentences = len(tokens["input_ids"]) // 2
        with fork_rng(self.student.device):
            first_view = self.student.embed(select_rows(tokens, slice(n_sentences)))
        # The state of the generator is restored, so this pass draws the same mask.
        second_view = self.student.embed(select_rows(tokens, slice(n_sentences, None)))
        return [gather_over_ranks(first_view), gather_over_ranks(second_view)]
