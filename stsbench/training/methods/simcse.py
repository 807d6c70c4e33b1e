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
        """Check that SimCSE's settings fit each other, and choose the columns and the loss.

        ``student`` is the encoder in training. With ``two_encoders`` a copy of it embeds the
        positives and hard negatives. With an ``mlm_decoder`` of ``copied`` the output layer of
        masked language modelling gets weights of its own.

        Raises:
            CardError: Two settings contradict each other.
        """
        # The corpus's columns by the kind of views: ``text`` alone; ``anchor`` and ``positive``; or
        # these and one or two columns of hard negatives.
        self.needs = COLUMNS_BY_VIEWS[self.views]
        has_hard_negatives = len(self.needs) > 2
        # Without hard negatives all negatives of a sentence are the other sentences of the batch
        # that all processes train on together (``joint``); "" names no such batch.
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
        # Whether the two views of a sentence differ by dropout alone.
        self.views_by_dropout = self.views == "dropout" and not self.two_encoders
        # ``contrast`` is the loss, a function of anchors, positives and perhaps hard negatives.
        one_direction = partial(
            info_nce, hard_negative_weight=self.hard_negative_weight, similarity=self.similarity
        )
        contrast = nt_xent if self.loss == "symmetric" else one_direction
        self.contrast = partial(contrast, temperature=self.temperature)
        if self.mlm_weight and self.mlm_decoder == "copied":
            decoder: Any = self.student.language_model.get_output_embeddings()  # type: ignore[union-attr]
            # Until now it shared the weights of the word embeddings, of which this is a copy.
            decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make SimCSE's batch: the model inputs of all views of some sentences.

        ``needs`` are the names of the corpus's columns that the method learns from.

        Args:
            rows: The indices of the rows of the corpus, (b,).
            rng: The generator of the hidden tokens.

        Returns:
            ``views``, (views * b, t) each: the sentences, their positives and perhaps their hard
            negatives, one below the other. With masked language modelling also ``hidden``, the same
            with some tokens hidden, in each view others, and with ``labels``: the true ids of
            hidden tokens, and -100 at all others.
        """
        # A single column is embedded twice: its views differ by dropout.
        view_columns = self.needs * 2 if len(self.needs) == 1 else self.needs
        batch: Batch = {"views": self.inputs(view_columns, rows)}
        if self.mlm_weight:
            batch["hidden"] = self.hide_tokens(batch["views"], rng, rate=self.mlm_rate)
            # As in the code of the paper's MLM tables the contrast reads hidden tokens too.
            if self.legacy_masked_input:
                batch["views"]["input_ids"] = batch["hidden"]["input_ids"]
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return SimCSE's losses by name; ``loss`` is the one to train.

        It is the contrastive loss, times its weight. If masked language modelling has a weight, its
        weighted loss is added, and both are returned too, as ``contrastive`` and ``mlm``.

        Args:
            batch: What :meth:`collate` made: the model inputs ``views`` of all views, one below the
                other, and perhaps ``hidden``, the same with tokens hidden.
        """
        # One view per column of the corpus; a single column makes two views.
        n_views = max(2, len(self.needs))
        # (ranks * b, h) each: the views of the sentences of all processes. ``second`` is None or
        # the encoder of all views but the first.
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
        """Choose how positives are made: their words changed, a next sentence, a second encoder.

        ``positive`` is the name of the kind of positive; with two encoders the second one begins as
        a copy of the student, the encoder in training.

        Raises:
            CardError: Two encoders are to share a dropout mask, which is impossible.
        """
        # ``needs`` are the columns of the corpus that the method reads, otherwise ``text`` alone.
        if self.positive == "next_sentence":
            self.needs = ("text", "document_id")
        # Whether other processes can make batches: they cannot read WordNet's open files for
        # synonyms, nor run a model that fills in masked words.
        self.made_ahead = self.positive not in ("synonym", "masked_word")
        # A function of words and a generator that returns the changed words of a positive, made
        # from the method's settings; None for kinds that keep the words.
        make_change = WORD_CHANGES.get(self.positive)
        self.augment = None if make_change is None else make_change(self)
        if self.two_encoders and self.positive == "fixed_mask":
            raise CardError(
                "two encoders share no dropout mask; "
                "leave 'two_encoders' or positive = 'fixed_mask' out"
            )
        has_second_encoder = self.two_encoders or self.positive == "two_encoders"
        self.second = copy.deepcopy(self.student) if has_second_encoder else None

    def prepare(self, columns: Columns) -> None:
        """Store the corpus, and in ``anchors`` the rows whose sentences can be anchors.

        These are all rows; but if the positive is a next sentence of the document, the last
        sentence of each document is no anchor.

        Args:
            columns: The corpus: ``text``, and for next sentences ``document_id``.

        Raises:
            CardError: Positives are next sentences, and no document has two sentences.
        """
        super().prepare(columns)
        self.anchors = np.arange(len(columns["text"]))
        if self.positive == "next_sentence":
            document_ids = np.asarray(columns["document_id"])
            # The rows of anchors, and of their positives. Only the anchors are used here, which do
            # not depend on the draws; positives are drawn for each batch.
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

        A positive is the sentence itself or one of the next of its document, perhaps with its words
        changed.

        Args:
            rows: The rows of the corpus, (b,), all of them anchors, as :meth:`order` returns them:
                sentences that have a positive.
            rng: The generator of the next sentences and of the changes of words.

        Returns:
            ``views``: the model inputs, (2b, t) each.
        """
        positive_rows = rows
        if self.positive == "next_sentence":
            document_ids = np.asarray(self.columns["document_id"])
            anchors, positives = texts.next_sentences(document_ids, rng=rng, reach=self.reach)
            # For each anchor of the corpus one of its next ``reach`` sentences was drawn; the batch
            # needs those of its rows. The anchors are sorted, so the search finds each row.
            positive_rows = positives[np.searchsorted(anchors, rows)]
        positive_texts = self.texts_of(positive_rows)
        if self.augment is not None:
            # A function from a text to a text: it splits at white space and joins by blanks.
            change_words = texts.word_augmentation(self.augment, rng)
            positive_texts = [change_words(text) for text in positive_texts]
        return {"views": self.inputs_of_texts([*self.texts_of(rows), *positive_texts])}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return SimCSE's loss as ``loss``: each sentence finds its positive in the batch.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of the sentences above
                those of their positives.
        """
        tokens = batch["views"]
        # (ranks * b, h) each: sentences and positives of all processes. ``second`` is the encoder
        # of positives; None if the student embeds them.
        if self.positive == "fixed_mask":
            views = self._embed_under_one_mask(tokens)
        else:
            views = self.embed_views(tokens, second=self.second)
        return {"loss": info_nce(*views, temperature=self.temperature)}

    def _embed_under_one_mask(self, tokens: Tokens) -> list[torch.Tensor]:
        """Embed the two views of each sentence under the same dropout mask.

        Args:
            tokens: The model inputs, (2b, t) each, the second view below the first.

        Returns:
            The embeddings of the first views of all processes, and those of the second ones.
        """
        n_sentences = len(tokens["input_ids"]) // 2
        # Afterwards ``fork_rng`` restores the state of torch's generator.
        with fork_rng(self.student.device):
            first_view = self.student.embed(select_rows(tokens, slice(n_sentences)))
        # So this pass draws the same mask.
        second_view = self.student.embed(select_rows(tokens, slice(n_sentences, None)))
        return [gather_over_ranks(first_view), gather_over_ranks(second_view)]
