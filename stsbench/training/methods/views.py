"""Contrasts of two damaged views of a sentence: made inside the encoder (ConSERT), or of its words (CLEAR)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from transformers import AddedToken

from stsbench.core.cards import Beta, NonNegativeFloat, PositiveFloat, PositiveInt, Share
from stsbench.core.errors import CardError, TrainingError, look_up
from stsbench.training import learner as seams, texts
from stsbench.training.augment import (
    embedding_dropout,
    feature_cutoff,
    fgv_noise,
    token_cutoff,
    token_shuffle,
)
from stsbench.training.learner import (
    Batch,
    Columns,
    ContrastiveLearner,
    HiddenShare,
    Learner,
    Losses,
    Rows,
)
from stsbench.training.loop.gather import gather_pairs, gather_views
from stsbench.training.objectives import feature_names, nt_xent, pair_features
from stsbench.training.student import Transform

CUTOFFS: dict[str, Callable[..., torch.Tensor]] = {
    "token_cutoff": token_cutoff,
    "feature_cutoff": feature_cutoff,
    "dropout": embedding_dropout,
}
VIEWS = dict.fromkeys(["none", "shuffle", *CUTOFFS, "adversarial"])


class ConSERT(Learner):
    """In-batch contrast of two views made inside the encoder, cross-entropy over labelled pairs, or both.

    Yan et al. 2021, arXiv 2105.11741, section 3; counts, weights and defaults of the released code.
    """

    objective: Literal["contrastive", "classification", "joint"] = "contrastive"
    """``contrastive`` learns from ``text`` alone; ``classification`` from ``first``, ``second`` and ``label`` (SBERT's
    objective); ``joint`` adds the contrast among the first sentences and that among the second to it."""
    views: tuple[str, str] = ("feature_cutoff", "shuffle")  # type: ignore[assignment]
    """How the two views are made: ``none``, ``shuffle``, ``token_cutoff``, ``feature_cutoff``, ``dropout``, ``adversarial``. Two views ``none`` are two encodings, alike where the student has no dropout."""
    positions_from_zero: bool = False
    """Shuffled positions count from 0, as released for RoBERTa too, whose own begin at 2."""
    token_cutoff_rate: Beta = 0.15
    feature_cutoff_rate: Beta = 0.2
    dropout_rate: Beta = 0.2
    noise_norm: float = 1.0
    """Of the adversarial view. The released code uses 0.01 without adversarial training, its command line says 1.0."""
    noise_normalised: bool = True
    """Each token's noise has that length (released); else it is the gradient times it (the paper, with 1.0)."""
    temperature: PositiveFloat = 0.1
    contrastive_weight: float = 0.15
    """Of the contrastive loss, also where there is no other (released)."""
    sides: Literal["sum", "mean"] = "sum"
    """The contrast is the sum of the two sides' means (released), or the mean over all 2n views, half of it."""
    features: str | tuple[str, ...] = "sbert"
    """What the classifier is given: ``sbert`` (the paper), ``consert-scripts``, or a list."""

    def __post_init__(self) -> None:
        self.classifies, self.contrasts = (
            self.objective != "contrastive",
            self.objective != "classification",
        )
        self.batch_negatives = "joint" if self.contrasts else ""
        for view in self.views:
            look_up("view", view, VIEWS)
        if "adversarial" in self.views and self.objective != "joint":
            raise CardError("adversarial views need labelled pairs; use objective = 'joint'")
        # Adversarial noise is a gradient taken within the model.
        self.chunks = "adversarial" not in self.views
        self.kinds: tuple[str, ...] = self.views if self.contrasts else ("none",)
        counts_on = bool(self.student.backbone.positions(torch.ones(1, 1)).any())
        if self.positions_from_zero and not ("shuffle" in self.kinds and counts_on):
            raise CardError(
                "positions_from_zero changes nothing: it is of view 'shuffle', for models like RoBERTa"
            )
        self.names = ("first", "second") if self.classifies else ("text",)
        self.needs = (*self.names, "label") if self.classifies else self.names
        self.noise = partial(fgv_noise, norm=self.noise_norm, normalise=self.noise_normalised)
        self.weight = self.contrastive_weight * (2 if self.sides == "sum" else 1)
        self.features = feature_names(self.features)
        # How each sentence is encoded before any noise is known: the views, and a clean one to make noise from.
        plain = tuple(kind for kind in self.kinds if kind != "adversarial")
        self.passes = (
            plain if len(plain) == len(self.kinds) or "none" in plain else (*plain, "none")
        )

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
        seed = int(rng.integers(2**62))
        generator = torch.Generator().manual_seed(seed)
        batch: Batch = {name: self.inputs([name], rows) for name in self.names}
        batch["positions"] = {}
        for name in self.names:
            mask = batch[name]["attention_mask"]
            own = None if self.positions_from_zero else self.student.backbone.positions(mask)
            for place, kind in enumerate(self.passes):
                if kind == "shuffle":
                    batch["positions"][f"{name} {place}"] = token_shuffle(
                        mask, generator=generator, position_ids=own
                    )
        if self.classifies:
            batch["labels"] = torch.from_numpy(self.labels[rows])
        return {**batch, "seed": seed + 1}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The loss and its parts."""
        generator = torch.Generator().manual_seed(batch["seed"])
        # Embeddings of the clean passes that the adversarial view moves: as released, their dropout included. A batch that
        # is run in parts is run in the same parts both times.
        noted: dict[str, list[torch.Tensor]] = {name: [] for name in self.names}
        plain = {
            name: list(self._plain(batch, name, generator, noted[name])) for name in self.names
        }
        losses: Losses = {}
        if self.classifies:
            clean = self.passes.index("none") if "none" in self.passes else 0
            features = pair_features(plain["first"][clean], plain["second"][clean], self.features)
            losses["classification"] = torch.nn.functional.cross_entropy(
                self.classifier(features), batch["labels"]
            )
        if self.contrasts:
            moved = iter(
                self._moved(losses["classification"], noted) if "adversarial" in self.kinds else []
            )
            each = []
            for name in self.names:
                left = iter(plain[name])
                views = [
                    self.student.embed(batch[name], transform=lambda embeddings, mask: next(moved))
                    if kind == "adversarial"
                    else next(left)
                    for kind in self.kinds
                ]
                each.append(nt_xent(*map(gather_views, views), temperature=self.temperature))
            losses["contrastive"] = torch.stack(each).sum()
        return seams.weighted_sum(losses, {"contrastive": self.weight})

    def _moved(
        self, loss: torch.Tensor, noted: Mapping[str, list[torch.Tensor]]
    ) -> list[torch.Tensor]:
        """Embeddings moved so that the loss rises, which keeps its own gradients."""
        outputs = [output for each in noted.values() for output in each]
        gradients = torch.autograd.grad(loss, outputs, retain_graph=True)
        return [output + self.noise(one) for output, one in zip(outputs, gradients, strict=True)]

    def _plain(
        self, batch: Batch, name: str, generator: torch.Generator, noted: list[torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        """The embeddings of each of the passes, (b, h)."""

        def note(embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            noted.append(embeddings)
            return embeddings

        for place, kind in enumerate(self.passes):
            transform: Transform | None = None
            if kind in CUTOFFS:
                transform = partial(
                    CUTOFFS[kind], rate=getattr(self, f"{kind}_rate"), generator=generator
                )
            elif kind == "none" and "adversarial" in self.kinds and not noted:
                transform = note
            shuffled = (
                {"position_ids": batch["positions"][f"{name} {place}"]} if kind == "shuffle" else {}
            )
            yield self.student.embed(
                {**batch[name], **shuffled}, transform=transform, generator=generator
            )


OPERATORS: Mapping[str, Callable[[CLEAR], texts.Augment]] = {
    "delete_words": lambda method: partial(texts.clear_delete_words, rate=method.word_rate),
    "delete_spans": lambda method: partial(
        texts.clear_delete_spans, rate=method.span_rate, spans=method.spans
    ),
    "reorder": lambda method: partial(
        texts.clear_reorder, rate=method.span_rate, pairs=method.spans
    ),
    "substitute": lambda method: partial(
        texts.replace_synonyms,
        rate=method.synonym_rate,
        synonyms=texts.load_synonyms(method.synonyms),
    ),
}
"""Ways to damage a sentence. Those that delete leave a mark; the last may read WordNet's open files."""
OperatorName = Literal["delete_words", "delete_spans", "reorder", "substitute"]


class CLEAR(ContrastiveLearner):
    """NT-Xent between two views with changed words, and masked language modelling of the sentence itself.

    Wu et al. 2020, https://arxiv.org/abs/2012.15466. The paper trains from scratch on BookCorpus and
    Wikipedia, with batches of 8,192; here training starts from a checkpoint. No code was
    published: the projection head, and that the language model sees the sentences undamaged, are
    from memory and not checked against the paper. The student learns the token ``[DEL]`` where an operator deletes.
    """

    first: OperatorName = "delete_words"
    second: OperatorName = "reorder"
    word_rate: Share = 0.7
    """The share of words that ``delete_words`` deletes."""
    span_rate: Share = 0.05
    """The length of a span as a share of the words, for ``delete_spans`` and ``reorder``."""
    spans: PositiveInt = 5
    """How many spans are deleted, or pairs of them change places."""
    synonym_rate: Share = 0.3
    """The share of words that ``substitute`` replaces."""
    synonyms: str = "wordnet"
    """Where from: ``wordnet`` or a table (see :mod:`stsbench.training.texts`)."""
    temperature: PositiveFloat = 0.1
    projection: Literal["mlp", "none"] = "mlp"
    """What the contrast goes through, and tests do not: two layers, or nothing."""
    mlm_weight: NonNegativeFloat = 1.0
    mlm_rate: HiddenShare = 0.15

    def __post_init__(self) -> None:
        student, chosen = self.student, (self.first, self.second)
        self.operators = [OPERATORS[name](self) for name in chosen]
        self.made_ahead = "substitute" not in chosen
        if any(name.startswith("delete") for name in chosen):
            # The tokenizer and the model take a fresh token, where they have none.
            student.backbone.tokenizer.add_tokens(
                [AddedToken(texts.DELETED, special=True)], special_tokens=True
            )
            model = student.language_model if student.language_model is not None else student.model
            if len(student.backbone.tokenizer) > model.get_input_embeddings().num_embeddings:
                model.resize_token_embeddings(len(student.backbone.tokenizer), mean_resizing=False)
        self.projector: torch.nn.Module = torch.nn.Identity()
        if self.projection == "mlp":
            linear = partial(
                torch.nn.Linear,
                student.backbone.width,
                student.backbone.width,
                device=student.device,
            )
            self.projector = torch.nn.Sequential(linear(), torch.nn.ReLU(), linear())

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Both views one below the other, (2b, t), and the sentences with tokens hidden."""
        changes = [texts.word_augmentation(operator, rng) for operator in self.operators]
        batch: Batch = {
            "views": self.inputs_of_texts(
                [change(text) for change in changes for text in self.texts_of(rows)]
            )
        }
        if self.mlm_weight:
            batch["hidden"] = self.hide(self.inputs(("text",), rows), rng, rate=self.mlm_rate)
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The sum of both losses, and each."""
        a, b = gather_pairs(self.projector(self.student.embed(batch["views"])), 2)
        contrastive = nt_xent(a, b, temperature=self.temperature)
        if not self.mlm_weight:
            return {"loss": contrastive}
        losses = {"contrastive": contrastive, "mlm": self.guessing_loss(batch["hidden"])}
        return seams.weighted_sum(losses, {"mlm": self.mlm_weight})
