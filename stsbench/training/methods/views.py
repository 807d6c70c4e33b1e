"""Contrasts of two damaged views of a sentence: made inside the encoder (ConSERT), or of its words (CLEAR)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from transformers import AddedToken

from stsbench.core.errors import CardError, TrainingError, UnknownName, choose
from stsbench.training.augment import embedding_dropout, feature_cutoff, fgv_noise, token_cutoff, token_shuffle
from stsbench.training.loop.gather import check_negatives, gather_pairs, gather_views
from stsbench.training.loop.parts import Tokens
from stsbench.training.objectives import feature_names, nt_xent, pair_features
from stsbench.training.seams import Batch, Columns, Learner, Rows, stack_tokens, weighted_sum
from stsbench.training.student import Student, Transform
from stsbench.training.texts import (
    DELETED,
    Augment,
    clear_delete_spans,
    clear_delete_words,
    clear_reorder,
    load_synonyms,
    replace_synonyms,
)

CUTOFFS: dict[str, Callable[..., torch.Tensor]] = {
    "token_cutoff": token_cutoff,
    "feature_cutoff": feature_cutoff,
    "dropout": embedding_dropout,
}
OBJECTIVES = {"contrastive": (False, True), "classification": (True, False), "joint": (True, True)}
"""Whether pairs are classified, and whether views are contrasted."""
SIDES = {"sum": 2, "mean": 1}
VIEWS = ("none", "shuffle", *CUTOFFS, "adversarial")


class ConSERT(Learner):
    """In-batch contrast of two views made inside the encoder, cross-entropy over labelled pairs, or both.

    Yan et al. 2021, arXiv 2105.11741, section 3; counts, weights and defaults of the released code.

    Args:
        objective: ``contrastive`` learns from ``text`` alone; ``classification`` from ``first``,
            ``second`` and ``label`` (SBERT's objective); ``joint`` adds the contrast among the
            first sentences and that among the second to it.
        views: how the two views are made, of ``none``, ``shuffle``, ``token_cutoff``,
            ``feature_cutoff``, ``dropout`` and ``adversarial``. Two views ``none`` are two
            encodings, alike where the student has no dropout.
        positions_from_zero: shuffled positions count from 0, as released for RoBERTa too, whose own begin at 2.
        token_cutoff_rate: the share of tokens cut.
        feature_cutoff_rate: the share of columns cut.
        dropout_rate: the share of elements cut.
        noise_norm: of the adversarial view. The released code uses 0.01 without adversarial
            training, its command line says 1.0.
        noise_normalised: each token's noise has that length (released); else it is the gradient
            times it (the paper, with 1.0).
        temperature: of the cosine.
        contrastive_weight: of the contrastive loss, also where there is no other (released).
        sides: the contrast is the ``sum`` of the two sides' means (released), or the ``mean``
            over all 2n views, half of it.
        features: what the classifier is given: ``sbert`` (the paper), ``consert-scripts``, or a list.
    """

    def __init__(
        self,
        student: Student,
        *,
        objective: Literal["contrastive", "classification", "joint"] = "contrastive",
        views: tuple[str, str] = ("feature_cutoff", "shuffle"),
        positions_from_zero: bool = False,
        token_cutoff_rate: float = 0.15,
        feature_cutoff_rate: float = 0.2,
        dropout_rate: float = 0.2,
        noise_norm: float = 1.0,
        noise_normalised: bool = True,
        temperature: float = 0.1,
        contrastive_weight: float = 0.15,
        sides: Literal["sum", "mean"] = "sum",
        features: str | tuple[str, ...] = "sbert",
    ) -> None:
        """Choose a variant."""
        super().__init__(student)
        self.classifies, self.contrasts = choose("objective", objective, OBJECTIVES)
        for view in views:
            if view not in VIEWS:
                raise UnknownName("view", view, VIEWS, hint=f"known: {', '.join(VIEWS)}")
        if "adversarial" in views and objective != "joint":
            raise CardError("adversarial views need labelled pairs; use objective = 'joint'")
        # Adversarial noise is a gradient taken within the model.
        self.chunks = "adversarial" not in views
        self.kinds = views if self.contrasts else ("none",)
        self.positions_from_zero = positions_from_zero
        if positions_from_zero and (
            "shuffle" not in self.kinds or not student.backbone.positions(torch.ones(1, 1)).any()
        ):
            raise CardError(
                "positions_from_zero changes nothing here: it is of view 'shuffle', for models like RoBERTa"
            )
        self.names = ("first", "second") if self.classifies else ("text",)
        self.needs = (*self.names, "label") if self.classifies else self.names
        self.rates = {
            "token_cutoff": token_cutoff_rate,
            "feature_cutoff": feature_cutoff_rate,
            "dropout": dropout_rate,
        }
        for kind, rate in self.rates.items():
            if not 0 <= rate < 1:
                raise CardError(f"{kind}_rate {rate}: give at least 0 and less than 1")
        self.noise = partial(fgv_noise, norm=noise_norm, normalise=noise_normalised)
        self.temperature, self.weight = temperature, contrastive_weight * choose("sides", sides, SIDES)
        self.features = feature_names(features)

    @property
    def passes(self) -> tuple[str, ...]:
        """How each sentence is encoded before any noise is known: the views, and a clean one to make noise from."""
        plain = tuple(kind for kind in self.kinds if kind != "adversarial")
        return plain if len(plain) == len(self.kinds) or "none" in plain else (*plain, "none")

    def prepare(self, columns: Columns) -> None:
        """The classifier has an output for each label there is."""
        super().prepare(columns)
        if not self.classifies:
            return
        names = sorted(set(columns["label"]))
        if len(names) < 2:
            raise TrainingError(f"all pairs have the label '{names[0]}'; a classifier needs two")
        numbers = {name: number for number, name in enumerate(names)}
        self.labels = np.array([numbers[name] for name in columns["label"]], dtype=np.int64)
        width = self.student.backbone.width * len(self.features)
        self.classifier = torch.nn.Linear(width, len(names)).to(self.student.device)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The tokens by column, shuffled positions, labels, and the seed of what is drawn inside the encoder."""
        if self.contrasts:
            check_negatives(len(rows))
        seed = int(rng.integers(2**62))
        generator = torch.Generator().manual_seed(seed)
        batch: Batch = {name: self.views([name], rows) for name in self.names}
        batch["positions"] = {
            f"{name} {place}": self._shuffled(batch[name]["attention_mask"], generator)
            for name in self.names
            for place, kind in enumerate(self.passes)
            if kind == "shuffle"
        }
        if self.classifies:
            batch["labels"] = torch.from_numpy(self.labels[rows])
        return {**batch, "seed": seed + 1}

    def _shuffled(self, mask: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        own = self.student.backbone.positions(mask)
        return token_shuffle(mask, generator=generator, position_ids=None if self.positions_from_zero else own)

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The loss and its parts."""
        generator = torch.Generator().manual_seed(batch["seed"])
        disturbances = {name: Disturbance() for name in self.names}
        plain = {name: list(self._plain(batch, name, generator, disturbances[name])) for name in self.names}
        losses: dict[str, torch.Tensor] = {}
        if self.classifies:
            clean = self.passes.index("none") if "none" in self.passes else 0
            features = pair_features(plain["first"][clean], plain["second"][clean], self.features)
            losses["classification"] = torch.nn.functional.cross_entropy(self.classifier(features), batch["labels"])
        if self.contrasts:
            if "adversarial" in self.kinds:
                Disturbance.aim(list(disturbances.values()), losses["classification"], self.noise)
            each = [self._contrast(batch[name], plain[name], disturbances[name]) for name in self.names]
            losses["contrastive"] = torch.stack(each).sum()
        return weighted_sum(losses, {"contrastive": self.weight})

    def _plain(
        self, batch: Batch, name: str, generator: torch.Generator, disturbance: Disturbance
    ) -> Iterator[torch.Tensor]:
        """The embeddings of each of the passes, (b, h)."""
        tokens = batch[name]
        for place, kind in enumerate(self.passes):
            transform: Transform | None = None
            if kind in CUTOFFS:
                transform = partial(CUTOFFS[kind], rate=self.rates[kind], generator=generator)
            elif kind == "none" and "adversarial" in self.kinds and not disturbance.outputs:
                transform = disturbance.note
            shuffled = {"position_ids": batch["positions"][f"{name} {place}"]} if kind == "shuffle" else {}
            yield self.student.embed({**tokens, **shuffled}, transform=transform, generator=generator)

    def _contrast(self, tokens: Tokens, plain: list[torch.Tensor], disturbance: Disturbance) -> torch.Tensor:
        """NT-Xent of the two views of one column."""
        left = iter(plain)
        views = [
            self.student.embed(tokens, transform=disturbance.apply()) if kind == "adversarial" else next(left)
            for kind in self.kinds
        ]
        return nt_xent(gather_views(views[0]), gather_views(views[1]), temperature=self.temperature)


class Disturbance:
    """The adversarial view of one column: embeddings of a clean pass, moved along the gradient of a loss.

    As released, the noise is added to that pass's own embeddings, their dropout included. A batch
    that is run in parts is run in the same parts both times.
    """

    def __init__(self) -> None:
        """Nothing noted yet."""
        self.outputs: list[torch.Tensor] = []
        self.moved: list[torch.Tensor] = []

    def note(self, embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Remember the embeddings of the clean pass."""
        self.outputs.append(embeddings)
        return embeddings

    @staticmethod
    def aim(all_of_them: list[Disturbance], loss: torch.Tensor, noise: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Move the embeddings so that the loss rises; the loss keeps its own gradients."""
        outputs = [output for one in all_of_them for output in one.outputs]
        gradients = iter(torch.autograd.grad(loss, outputs, retain_graph=True))
        for one in all_of_them:
            one.moved = [output + noise(next(gradients)) for output in one.outputs]

    def apply(self) -> Transform:
        """A transform for another pass, which puts the moved embeddings in place of its own."""
        left = iter(self.moved)
        return lambda embeddings, mask: next(left)


class Operator(NamedTuple):
    """One way to damage a sentence, made of the parameters of :class:`CLEAR`."""

    make: Callable[[Mapping[str, Any]], Augment]
    leaves_mark: bool = False
    """Whether a mark stands for what is deleted."""
    reads_tables: bool = False
    """Whether it may read WordNet's open files."""


OPERATORS: Mapping[str, Operator] = {
    "delete_words": Operator(lambda p: partial(clear_delete_words, rate=p["word_rate"]), leaves_mark=True),
    "delete_spans": Operator(
        lambda p: partial(clear_delete_spans, rate=p["span_rate"], spans=p["spans"]), leaves_mark=True
    ),
    "reorder": Operator(lambda p: partial(clear_reorder, rate=p["span_rate"], pairs=p["spans"])),
    "substitute": Operator(
        lambda p: partial(replace_synonyms, rate=p["synonym_rate"], synonyms=load_synonyms(p["synonyms"])),
        reads_tables=True,
    ),
}


class CLEAR(Learner):
    """NT-Xent between two views with changed words, and masked language modelling of the sentence itself.

    Wu et al. 2020, https://arxiv.org/abs/2012.15466. The paper trains from scratch on BookCorpus and
    Wikipedia, with batches of 8,192; here training starts from a checkpoint. No code was
    published: the projection head, and that the language model sees the sentences undamaged, are
    from memory and not checked against the paper.
    """

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
            synonyms: where from: ``wordnet`` or a table (see :mod:`stsbench.training.texts`).
            temperature: of the cosine.
            projection: what the contrast goes through, and tests do not: two layers, or nothing.
            mlm_weight: of the language modelling; 0 for none.
            mlm_rate: the share of tokens hidden for it.
        """
        super().__init__(student)
        if mlm_weight < 0:
            raise CardError(f"mlm_weight {mlm_weight:g}: give 0 for none, or more")
        chosen = [choose("operator", name, OPERATORS) for name in (first, second)]
        params = {
            "word_rate": word_rate,
            "span_rate": span_rate,
            "spans": spans,
            "synonym_rate": synonym_rate,
            "synonyms": synonyms,
        }
        self.operators = [operator.make(params) for operator in chosen]
        self.made_ahead = not any(operator.reads_tables for operator in chosen)
        if any(operator.leaves_mark for operator in chosen):
            # The tokenizer and the model take a fresh token, where they have none.
            student.backbone.tokenizer.add_tokens([AddedToken(DELETED, special=True)], special_tokens=True)
            model = student.language_model if student.language_model is not None else student.model
            if len(student.backbone.tokenizer) > model.get_input_embeddings().num_embeddings:
                model.resize_token_embeddings(len(student.backbone.tokenizer), mean_resizing=False)
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
        pieces = [self.changed_views(operator, rows, rng) for operator in self.operators]
        batch: Batch = {"views": stack_tokens(pieces, pad=self.student.backbone.pad_token)}
        if self.mlm_weight:
            batch["hidden"] = self.hide(self.views(("text",), rows), rng, rate=self.mlm_rate)
        return batch

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The sum of both losses, and each."""
        a, b = gather_pairs(self.projection(self.student.embed(batch["views"])), 2)
        contrastive = nt_xent(a, b, temperature=self.temperature)
        if not self.mlm_weight:
            return {"loss": contrastive}
        losses = {"contrastive": contrastive, "mlm": self.guessing_loss(batch["hidden"])}
        return weighted_sum(losses, {"mlm": self.mlm_weight})
