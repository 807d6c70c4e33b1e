"""CLEAR: masked language modelling with a contrast of two ways to damage a sentence.

Wu et al. 2020, https://arxiv.org/abs/2012.15466. The paper trains from scratch on BookCorpus and
Wikipedia, with batches of 8,192; here it is training that goes on from a checkpoint. No code was
published: the projection head, and that the language model sees the sentences undamaged, are
from memory and not checked against the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from transformers import AddedToken

from stsbench.errors import CardError, choose
from stsbench.training.augmentation.masking import masked_language_model_loss
from stsbench.training.augmentation.synonyms import load_synonyms
from stsbench.training.augmentation.texts import (
    DELETED,
    Augment,
    clear_delete_spans,
    clear_delete_words,
    clear_reorder,
    replace_synonyms,
)
from stsbench.training.loop.gather import check_negatives, gather_pairs
from stsbench.training.objectives import nt_xent
from stsbench.training.seams import Batch, Learner, Rows, stack_tokens
from stsbench.training.student import Student


class Strengths(NamedTuple):
    """What a recipe sets of the operators; see :class:`CLEAR`."""

    word_rate: float
    span_rate: float
    spans: int
    synonym_rate: float
    synonyms: str


class Operator(NamedTuple):
    """One way to damage a sentence, and whether it leaves the mark of what is deleted."""

    make: Callable[[Strengths], Augment]
    leaves_mark: bool = False
    reads_tables: bool = False
    """Whether it may read WordNet's open files."""


OPERATORS: Mapping[str, Operator] = {
    "delete_words": Operator(lambda s: partial(clear_delete_words, rate=s.word_rate), leaves_mark=True),
    "delete_spans": Operator(lambda s: partial(clear_delete_spans, rate=s.span_rate, spans=s.spans), leaves_mark=True),
    "reorder": Operator(lambda s: partial(clear_reorder, rate=s.span_rate, pairs=s.spans)),
    "substitute": Operator(
        lambda s: partial(replace_synonyms, rate=s.synonym_rate, synonyms=load_synonyms(s.synonyms)),
        reads_tables=True,
    ),
}


class CLEAR(Learner):
    """NT-Xent between two augmented views, and masked language modelling of the sentence itself."""

    chunks = True

    def __init__(
        self,
        student: Student,
        *,
        first: str = "delete_words",
        second: str = "reorder",
        word_rate: float = 0.7,
        span_rate: float = 0.05,
        spans: int = 5,
        synonym_rate: float = 0.3,
        synonyms: str = "wordnet",
        temperature: float = 0.1,
        projection: Literal["mlp", "none"] = "mlp",
        mlm_weight: float = 1.0,
        mlm_rate: float = 0.15,
    ) -> None:
        """Choose the operators.

        Args:
            student: what is trained; it learns the token ``[DEL]`` where an operator deletes.
            first: how the first view is made.
            second: how the second is.
            word_rate: the share of words that ``delete_words`` deletes.
            span_rate: the length of a span as a share of the words, for ``delete_spans`` and ``reorder``.
            spans: how many spans are deleted, or pairs of them change places.
            synonym_rate: the share of words that ``substitute`` replaces.
            synonyms: where from: ``wordnet`` or a table (see :mod:`stsbench.training.augmentation.synonyms`).
            temperature: of the cosine.
            projection: what the contrast goes through, and tests do not: two layers, or nothing.
            mlm_weight: of the language modelling; 0 for none.
            mlm_rate: the share of tokens hidden for it.
        """
        super().__init__(student)
        if mlm_weight < 0:
            raise CardError(f"mlm_weight {mlm_weight:g}: give 0 for none, or more")
        chosen = [choose("operator", name, OPERATORS) for name in (first, second)]
        strengths = Strengths(word_rate, span_rate, spans, synonym_rate, synonyms)
        self.operators = [operator.make(strengths) for operator in chosen]
        self.made_ahead = not any(operator.reads_tables for operator in chosen)
        if any(operator.leaves_mark for operator in chosen):
            _learn_deleted(student)
        width = student.backbone.width
        self.projection: torch.nn.Module = torch.nn.Identity()
        if choose("projection", projection, {"mlp": True, "none": False}):
            linear = partial(torch.nn.Linear, width, width, device=student.device)
            self.projection = torch.nn.Sequential(linear(), torch.nn.ReLU(), linear())
        self.temperature, self.mlm_weight, self.mlm_rate = temperature, mlm_weight, mlm_rate

    @classmethod
    def wants_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Unless its weight is 0."""
        return bool(params.get("mlm_weight", 1.0))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Both views one below the other, (2b, t), and the sentences with tokens hidden."""
        check_negatives(len(rows))
        pieces = []
        for operator in self.operators:
            texts = [" ".join(operator(self.columns["text"][row].split(), rng=rng)) for row in rows.tolist()]
            pieces.append(self.student.collate(self.student.tokenize(texts), np.arange(len(texts))))
        batch: Batch = {"views": stack_tokens(pieces, pad=self.student.backbone.pad_token)}
        if self.mlm_weight:
            tokens = self.views(("text",), rows)
            hidden, labels = self.hide(tokens, rng, rate=self.mlm_rate)
            batch["hidden"] = {**tokens, "input_ids": hidden, "labels": labels}
        return batch

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The sum of both losses, and each."""
        a, b = gather_pairs(self.projection(self.student.embed(batch["views"])), 2)
        contrastive = nt_xent(a, b, temperature=self.temperature)
        if not self.mlm_weight:
            return {"loss": contrastive}
        hidden = batch["hidden"]
        mlm = masked_language_model_loss(
            self.student.language_model,
            hidden["input_ids"],
            hidden["attention_mask"],
            hidden["labels"],
            chunk=self.student.chunk,
        )
        return {"loss": contrastive + self.mlm_weight * mlm, "contrastive": contrastive, "mlm": mlm}


def _learn_deleted(student: Student) -> None:
    """Give the tokenizer the token ``[DEL]`` and the model a fresh embedding of it, where they have none."""
    student.backbone.tokenizer.add_tokens([AddedToken(DELETED, special=True)], special_tokens=True)
    model = student.language_model if student.language_model is not None else student.model
    if len(student.backbone.tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(student.backbone.tokenizer), mean_resizing=False)
