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

from stsbench.core.errors import CardError, choose
from stsbench.training import texts
from stsbench.training.loop.gather import check_negatives, gather_pairs, gather_views
from stsbench.training.loop.parts import Tokens
from stsbench.training.objectives import info_nce, nt_xent
from stsbench.training.seams import Batch, Columns, Learner, Rows, stack_tokens, weighted_sum
from stsbench.training.student import Student
from stsbench.training.texts import Augment, MaskedFill, load_synonyms


class TwoViews(Learner):
    """Learns from each sentence twice, under two dropout masks; what is made of the two views is the method's."""

    chunks = True
    by_dropout = True

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, and below them the same once more."""
        check_negatives(len(rows))
        return {"views": self.views(("text", "text"), rows)}

    def embed_views(self, tokens: Tokens) -> list[torch.Tensor]:
        """The embeddings of both views, each (ranks * b, h)."""
        return gather_pairs(self.student.embed(tokens), 2)


PAIRING: dict[str, tuple[str, ...]] = {
    "dropout": ("text",),
    "pairs": ("anchor", "positive"),
    "triplets": ("anchor", "positive", "negative"),
    "two_negatives": ("anchor", "positive", "negative", "second_negative"),
}


class SimCSE(Learner):
    """In-batch contrast of two views, with hard negatives where the corpus has them."""

    chunks = True

    def __init__(
        self,
        student: Student,
        *,
        views: Literal["dropout", "pairs", "triplets", "two_negatives"] = "dropout",
        loss: Literal["one_direction", "symmetric"] = "one_direction",
        temperature: float = 0.05,
        similarity: Literal["cosine", "dot"] = "cosine",
        hard_negative_weight: float = 0.0,
        contrastive_weight: float = 1.0,
        mlm_weight: float = 0.0,
        mlm_rate: float = 0.15,
        mlm_decoder: Literal["tied", "copied"] = "tied",
        legacy_masked_input: bool = False,
        two_encoders: bool = False,
    ) -> None:
        """Choose a variant.

        Args:
            student: what is trained.
            views: the positive is the sentence again (``dropout``), or the corpus's; ``two_negatives`` has two hard negatives
                a row (table 7).
            loss: ``one_direction`` as released, N - 1 negatives (N more with hard ones);
                ``symmetric``, the 2N-sided NT-Xent of many tutorials.
            temperature: divides the similarities.
            similarity: ``dot`` leaves the lengths in (table D.1); for ``one_direction`` alone.
            hard_negative_weight: added to the logit of a row's own hard negative: alpha = exp(weight)
                in equation 8.
            contrastive_weight: of the contrastive loss. The released code trained supervised models on four GPUs, where
                its gradient was a quarter and that of masked language modelling whole: 0.25 makes that again.
            mlm_weight: of the auxiliary masked language modelling; 0 for none (section 3 and table D.2).
            mlm_rate: the share of tokens hidden for it.
            mlm_decoder: ``copied`` as released: the layer that names the tokens begins as the word embeddings and is
                trained apart from them; ``tied``, the two stay one, as in the checkpoint.
            legacy_masked_input: the contrast too sees hidden tokens, as in the code that made the
                paper's MLM tables (princeton-nlp/SimCSE, pull request 121).
            two_encoders: positives and hard negatives are encoded by a second model, which begins as the first, is trained
                beside it and not kept (section 4).
        """
        super().__init__(student)
        self.names = self.needs = choose("views", views, PAIRING)
        if loss == "symmetric" and len(self.names) > 2:
            raise CardError("the symmetric loss takes no hard negatives; use views = 'pairs'")
        if loss == "symmetric" and similarity == "dot":
            raise CardError("the symmetric loss is of cosines; use loss = 'one_direction' with similarity = 'dot'")
        if mlm_weight < 0:
            raise CardError(f"mlm_weight {mlm_weight:g}: give 0 for none, or more; the paper has 0.1")
        if contrastive_weight <= 0:
            raise CardError(f"contrastive_weight {contrastive_weight:g}: give more than 0; 1 is the paper's")
        if two_encoders and mlm_weight:
            raise CardError("two encoders have no masked language modelling beside them; leave 'mlm_weight' out")
        self.second = copy.deepcopy(student) if two_encoders else None
        self.by_dropout = views == "dropout" and not two_encoders
        one_direction = partial(info_nce, hard_negative_weight=hard_negative_weight, similarity=similarity)
        losses: dict[str, Callable[..., torch.Tensor]] = {"one_direction": one_direction, "symmetric": nt_xent}
        self.contrast = partial(choose("loss", loss, losses), temperature=temperature)
        self.contrastive_weight, self.mlm_weight = contrastive_weight, mlm_weight
        self.mlm_rate, self.legacy_masked_input = mlm_rate, legacy_masked_input
        if mlm_weight and choose("mlm_decoder", mlm_decoder, {"tied": False, "copied": True}):
            decoder: Any = student.language_model.get_output_embeddings()  # type: ignore[union-attr]
            decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())

    @classmethod
    def wants_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Where the auxiliary objective is on."""
        return bool(params.get("mlm_weight", 0.0))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """All views one below the other; with MLM, the same with tokens hidden."""
        if len(self.names) < 3:
            check_negatives(len(rows))
        batch: Batch = {"views": self.views(self.names * 2 if len(self.names) == 1 else self.names, rows)}
        if self.mlm_weight:
            batch["hidden"] = self.hide(batch["views"], rng, rate=self.mlm_rate)
            if self.legacy_masked_input:
                batch["views"]["input_ids"] = batch["hidden"]["input_ids"]
        return batch

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The contrastive loss, and the auxiliary one where it is on."""
        anchor, positive, *hard = self._embed(batch["views"])
        contrastive = self.contrast(anchor, positive, *([torch.cat(hard)] if hard else []))
        if not self.mlm_weight:
            return {"loss": self.contrastive_weight * contrastive}
        losses = {"contrastive": contrastive, "mlm": self.guessing_loss(batch["hidden"])}
        return weighted_sum(losses, {"contrastive": self.contrastive_weight, "mlm": self.mlm_weight})

    def _embed(self, tokens: Tokens) -> list[torch.Tensor]:
        """The embeddings of each view, (b, h)."""
        views = max(2, len(self.names))
        if self.second is None:
            return gather_pairs(self.student.embed(tokens), views)
        rows = len(tokens["input_ids"]) // views
        first = self.student.embed({name: values[:rows] for name, values in tokens.items()})
        others = self.second.embed({name: values[rows:] for name, values in tokens.items()})
        return [gather_views(first), *gather_pairs(others, views - 1)]


WORD_CHANGES: Mapping[str, Callable[[Mapping[str, Any]], Augment]] = {
    "crop": lambda params: partial(texts.crop, rate=params["rate"]),
    "delete_words": lambda params: partial(texts.delete_words, rate=params["rate"]),
    "delete_one_word": lambda params: texts.delete_one_word,
    "synonym": lambda params: partial(texts.replace_one_synonym, synonyms=load_synonyms(params["synonyms"])),
    "masked_word": lambda params: partial(texts.replace_masked, fill=MaskedFill(params["filler"]), rate=params["rate"]),
}
"""Positives that change the words, each made of the parameters of :class:`SimCSEPositives`."""
SHARED = ("synonym", "masked_word")
"""The changes of words that read WordNet's open files or ask a model."""
OTHERS = ("next_sentence", "fixed_mask", "two_encoders")
"""The positives that change no word."""


class SimCSEPositives(Learner):
    """In-batch contrast of a sentence with a changed, following or twice-encoded one.

    The released code has the dropout positive alone, :class:`SimCSE`; these follow the paper's text.
    """

    chunks = True

    def __init__(
        self,
        student: Student,
        *,
        positive: str,
        rate: float = 0.1,
        reach: int = 1,
        two_encoders: bool = False,
        synonyms: str = "wordnet",
        filler: str = "",
        temperature: float = 0.05,
    ) -> None:
        """Choose the positive.

        Args:
            student: what is trained; without dropout at all, its recipe sets ``dropout = 0``.
            positive: ``crop``, ``delete_words``, ``delete_one_word``, ``synonym`` and ``masked_word``
                change the words; ``next_sentence`` needs an ordered corpus; ``fixed_mask`` encodes
                twice under the same dropout mask; ``two_encoders`` encodes the second view by a second
                model, trained beside the first and not kept.
            rate: the share of words that ``crop`` and ``delete_words`` leave out and ``masked_word`` changes.
            reach: how many following sentences ``next_sentence`` chooses among.
            two_encoders: encode a changed or following sentence too by a second model (table 2).
            synonyms: ``wordnet``, or a table of synonyms.
            filler: the masked language model that fills words in; default the student's own start.
            temperature: of the cosine.
        """
        super().__init__(student)
        choose("positive", positive, dict.fromkeys([*WORD_CHANGES, *OTHERS]))
        self.positive, self.reach, self.temperature = positive, reach, temperature
        if positive == "next_sentence":
            self.needs = ("text", "document_id")
        params = {"rate": rate, "synonyms": synonyms, "filler": filler or str(student.checkpoint.folder)}
        self.made_ahead = positive not in SHARED
        self.augment = WORD_CHANGES[positive](params) if positive in WORD_CHANGES else None
        if two_encoders and positive == "fixed_mask":
            raise CardError("two encoders share no dropout mask; leave 'two_encoders' or positive = 'fixed_mask' out")
        self.second = copy.deepcopy(student) if two_encoders or positive == "two_encoders" else None

    def prepare(self, columns: Columns) -> None:
        """Of an ordered corpus, the last sentence of a document is no anchor."""
        super().prepare(columns)
        self.anchors = np.arange(len(columns["text"]))
        if self.positive == "next_sentence":
            ids = np.asarray(columns["document_id"])
            self.anchors = texts.next_sentences(ids, rng=np.random.default_rng(0)).anchors
            if not len(self.anchors):
                raise CardError("positive 'next_sentence': no document of the corpus has two sentences")

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """Shuffled; a row without a next sentence stands for another that has one."""
        return rng.permutation(np.resize(self.anchors, count))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, and beside them their positives."""
        check_negatives(len(rows))
        following = rows
        if self.positive == "next_sentence":
            pairs = texts.next_sentences(np.asarray(self.columns["document_id"]), rng=rng, reach=self.reach)
            following = pairs.positives[np.searchsorted(pairs.anchors, rows)]
        changed = None if self.augment is None else self.changed_views(self.augment, rows, rng)
        second = changed or self.views(["text"], following)
        return {"first": self.views(["text"], rows), "second": second}

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """SimCSE's loss, one direction."""
        first, second = self._embed(batch["first"], batch["second"])
        return {"loss": info_nce(gather_views(first), gather_views(second), temperature=self.temperature)}

    def _embed(self, first: Tokens, second: Tokens) -> tuple[torch.Tensor, ...]:
        if self.second is not None:
            return self.student.embed(first), self.second.embed(second)
        if self.positive != "fixed_mask":
            return self.student.embed(stack_tokens([first, second], pad=self.student.backbone.pad_token)).chunk(2)
        devices = [self.student.device] if self.student.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            one = self.student.embed(first)
        # The generator is where it was: the same units are dropped.
        return one, self.student.embed(second)
