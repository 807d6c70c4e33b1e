"""SimCSE: contrast a sentence with its own second dropout mask, an entailed one, or one changed by augmentation.

Gao, Yao and Chen 2021, arXiv 2104.08821: unsupervised section 3, supervised section 4, other positives tables 1 to 3.
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
from stsbench.training import texts
from stsbench.training.learner import (
    Batch,
    Columns,
    ContrastiveLearner,
    HiddenShare,
    Losses,
    Rows,
    rows_of,
    weighted_sum,
)
from stsbench.training.loop.gather import gather_views
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import info_nce, nt_xent


class TwoViews(ContrastiveLearner):
    """Learns from each sentence twice, under two dropout masks; what is made of the two views is the method's."""

    views_by_dropout = True
    temperature: PositiveFloat = 0.05

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, and below them the same once more."""
        return {"views": self.inputs(("text", "text"), rows)}


PAIRING: dict[str, tuple[str, ...]] = {
    "dropout": ("text",),
    "pairs": ("anchor", "positive"),
    "triplets": ("anchor", "positive", "negative"),
    "two_negatives": ("anchor", "positive", "negative", "second_negative"),
}


class SimCSE(ContrastiveLearner):
    """In-batch contrast of two views, with hard negatives where the corpus has them."""

    views: Literal["dropout", "pairs", "triplets", "two_negatives"] = "dropout"  # type: ignore[assignment]
    """The positive is the sentence again, or the corpus's; ``two_negatives`` has two hard negatives a row (table 7)."""
    loss: Literal["one_direction", "symmetric"] = "one_direction"
    """As released, N - 1 negatives (N more with hard ones); or the 2N-sided NT-Xent of many tutorials."""
    temperature: PositiveFloat = 0.05
    similarity: Literal["cosine", "dot"] = "cosine"
    """``dot`` leaves the lengths in (table D.1); for ``one_direction`` alone."""
    hard_negative_weight: float = 0.0
    """Added to the logit of a row's own hard negative: alpha = exp(weight) in equation 8."""
    contrastive_weight: PositiveFloat = 1.0
    """The released code trained supervised models on four GPUs, where the gradient of the contrast was a quarter and
    that of masked language modelling whole: 0.25 makes that again."""
    mlm_weight: NonNegativeFloat = 0.0
    """Of the auxiliary masked language modelling (section 3 and table D.2)."""
    mlm_rate: HiddenShare = 0.15
    mlm_decoder: Literal["tied", "copied"] = "tied"
    """``copied`` as released: the layer that names the tokens begins as the word embeddings and is trained apart from
    them; ``tied``, the two stay one, as in the checkpoint."""
    legacy_masked_input: bool = False
    """The contrast too sees hidden tokens, as in the code of the paper's MLM tables (princeton-nlp/SimCSE, PR 121)."""
    two_encoders: bool = False
    """Positives and hard negatives are encoded by a second model, which begins as the first, is trained beside it and
    not kept (section 4)."""

    def __post_init__(self) -> None:
        self.names = self.needs = PAIRING[self.views]
        self.batch_negatives = "joint" if len(self.names) < 3 else ""
        if self.loss == "symmetric" and len(self.names) > 2:
            raise CardError("the symmetric loss takes no hard negatives; use views = 'pairs'")
        if self.loss == "symmetric" and self.similarity == "dot":
            raise CardError(
                "the symmetric loss is of cosines; use loss = 'one_direction' with similarity = 'dot'"
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
        """All views one below the other; with MLM, the same with tokens hidden."""
        batch: Batch = {
            "views": self.inputs(self.names * 2 if len(self.names) == 1 else self.names, rows)
        }
        if self.mlm_weight:
            batch["hidden"] = self.hide(batch["views"], rng, rate=self.mlm_rate)
            if self.legacy_masked_input:
                batch["views"]["input_ids"] = batch["hidden"]["input_ids"]
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrastive loss, and the auxiliary one where it is on."""
        anchor, positive, *hard = self.embed_views(
            batch["views"], max(2, len(self.names)), second=self.second
        )
        contrastive = self.contrast(anchor, positive, *([torch.cat(hard)] if hard else []))
        if not self.mlm_weight:
            return {"loss": self.contrastive_weight * contrastive}
        losses = {"contrastive": contrastive, "mlm": self.guessing_loss(batch["hidden"])}
        return weighted_sum(
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


class SimCSEPositives(ContrastiveLearner):
    """In-batch contrast of a sentence with a changed, following or twice-encoded one.

    The released code has the dropout positive alone, :class:`SimCSE`; these follow the paper's text. For a student
    without dropout at all, a recipe sets ``dropout = 0``.
    """

    positive: PositiveKind
    """The first five change the words; ``next_sentence`` needs an ordered corpus; ``fixed_mask`` encodes twice under the same
    dropout mask; ``two_encoders`` encodes the second view by a second model, trained beside the first and not kept."""
    rate: Share = 0.1
    """The share of words that ``crop`` and ``delete_words`` leave out and ``masked_word`` changes."""
    reach: PositiveInt = 1
    """How many following sentences ``next_sentence`` chooses among."""
    two_encoders: bool = False
    """Encode a changed or following sentence too by a second model (table 2)."""
    synonyms: str = "wordnet"
    """Or a table of synonyms."""
    filler: str = ""
    """The masked language model that fills words in; default the student's own start."""
    temperature: PositiveFloat = 0.05

    def __post_init__(self) -> None:
        if self.positive == "next_sentence":
            self.needs = ("text", "document_id")
        # They read WordNet's open files or ask a model.
        self.made_ahead = self.positive not in ("synonym", "masked_word")
        self.augment = WORD_CHANGES[self.positive](self) if self.positive in WORD_CHANGES else None
        if self.two_encoders and self.positive == "fixed_mask":
            raise CardError(
                "two encoders share no dropout mask; leave 'two_encoders' or positive = 'fixed_mask' out"
            )
        self.second = (
            copy.deepcopy(self.student)
            if self.two_encoders or self.positive == "two_encoders"
            else None
        )

    def prepare(self, columns: Columns) -> None:
        """Of an ordered corpus, the last sentence of a document is no anchor."""
        super().prepare(columns)
        self.anchors = np.arange(len(columns["text"]))
        if self.positive == "next_sentence":
            ids = np.asarray(columns["document_id"])
            self.anchors, _ = texts.next_sentences(ids, rng=np.random.default_rng(0))
            if not len(self.anchors):
                raise CardError(
                    "positive 'next_sentence': no document of the corpus has two sentences"
                )

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """Shuffled; a row without a next sentence stands for another that has one."""
        return rng.permutation(np.resize(self.anchors, count))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, and below them their positives."""
        following = rows
        if self.positive == "next_sentence":
            ids = np.asarray(self.columns["document_id"])
            anchors, positives = texts.next_sentences(ids, rng=rng, reach=self.reach)
            following = positives[np.searchsorted(anchors, rows)]
        others = self.texts_of(following)
        if self.augment is not None:
            others = [*map(texts.word_augmentation(self.augment, rng), others)]
        return {"views": self.inputs_of_texts([*self.texts_of(rows), *others])}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """SimCSE's loss, one direction."""
        tokens, is_fixed = batch["views"], self.positive == "fixed_mask"
        views = (
            self._under_one_mask(tokens)
            if is_fixed
            else self.embed_views(tokens, second=self.second)
        )
        return {"loss": info_nce(*views, temperature=self.temperature)}

    def _under_one_mask(self, tokens: Tokens) -> list[torch.Tensor]:
        b = len(tokens["input_ids"]) // 2
        devices = [self.student.device] if self.student.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            first = self.student.embed(rows_of(tokens, slice(b)))
        # The generator is where it was.
        return [*map(gather_views, (first, self.student.embed(rows_of(tokens, slice(b, None)))))]
