"""SimCSE with other positives: the augmentations and objectives of its tables 1 and 2 and its fixed mask.

Gao, Yao and Chen 2021, arXiv 2104.08821, tables 1 to 3. The released code has the dropout
positive alone (:mod:`stsbench.training.methods.simcse`); these follow the paper's text.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from stsbench.errors import CardError, choose
from stsbench.training.augmentation import texts
from stsbench.training.augmentation.fill import MaskedFill
from stsbench.training.augmentation.synonyms import load_synonyms
from stsbench.training.augmentation.texts import Augment
from stsbench.training.loop.gather import check_negatives, gather_views
from stsbench.training.objectives import info_nce
from stsbench.training.seams import Batch, Columns, Learner, Rows, stack_tokens
from stsbench.training.student import Student


class Changes(NamedTuple):
    """What a recipe sets of the changes of words; see :class:`SimCSEPositives`."""

    rate: float
    synonyms: str
    filler: str


WORD_CHANGES: Mapping[str, Callable[[Changes], Augment]] = {
    "crop": lambda c: partial(texts.crop, rate=c.rate),
    "delete_words": lambda c: partial(texts.delete_words, rate=c.rate),
    "delete_one_word": lambda c: texts.delete_one_word,
    "synonym": lambda c: partial(texts.replace_one_synonym, synonyms=load_synonyms(c.synonyms)),
    "masked_word": lambda c: partial(texts.replace_masked, fill=MaskedFill(c.filler), rate=c.rate),
}
SHARED = ("synonym", "masked_word")
"""The changes of words that read WordNet's open files or ask a model."""
OTHERS = ("next_sentence", "fixed_mask", "two_encoders")
"""The positives that change no word."""


class SimCSEPositives(Learner):
    """In-batch contrast of a sentence with a changed, following or twice-encoded one."""

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
        changes = Changes(rate, synonyms, filler or str(student.checkpoint.folder))
        self.made_ahead = positive not in SHARED
        self.augment = WORD_CHANGES[positive](changes) if positive in WORD_CHANGES else None
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
        first = self.views(["text"], rows)
        if self.augment is not None:
            new = [" ".join(self.augment(self.columns["text"][int(row)].split(), rng=rng)) for row in rows]
            tokens = self.student.tokenize(new)
            second = self.student.collate(tokens, np.arange(len(rows)))
        else:
            second = self.views(["text"], self._following(rows, rng))
        return {"first": first, "second": second}

    def _following(self, rows: Rows, rng: np.random.Generator) -> Rows:
        if self.positive != "next_sentence":
            return rows
        pairs = texts.next_sentences(np.asarray(self.columns["document_id"]), rng=rng, reach=self.reach)
        positives: Rows = pairs.positives[np.searchsorted(pairs.anchors, rows)]
        return positives

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """SimCSE's loss, one direction."""
        first, second = self._embed(batch["first"], batch["second"])
        return {"loss": info_nce(gather_views(first), gather_views(second), temperature=self.temperature)}

    def _embed(self, first: Any, second: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
        if self.second is not None:
            return self.student.embed(first), self.second.embed(second)
        if self.positive != "fixed_mask":
            pad = self.student.backbone.pad_token
            both = self.student.embed(stack_tokens([first, second], pad=pad))
            return both[: len(both) // 2], both[len(both) // 2 :]
        devices = [self.student.device] if self.student.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            one = self.student.embed(first)
        # The generator is where it was: the same units are dropped.
        return one, self.student.embed(second)
