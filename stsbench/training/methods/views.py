"""Contrasts of two damaged views of a sentence.

The views are made inside the encoder (ConSERT), or of its words (CLEAR).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from transformers import AddedToken

from stsbench.core.cards import Beta, NonNegativeFloat, PositiveFloat, PositiveInt, Share
from stsbench.core.errors import CardError, TrainingError, look_up
from stsbench.training import texts
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
    with_weighted_sum,
)
from stsbench.training.loop.gather import gather_over_ranks, gather_pairs
from stsbench.training.objectives import feature_names, nt_xent, pair_features
from stsbench.training.student import Transform

CUTOFFS: dict[str, Callable[..., torch.Tensor]] = {
    "token_cutoff": token_cutoff,
    "feature_cutoff": feature_cutoff,
    "dropout": embedding_dropout,
}
"""Functions that set a share of embeddings to zero, by the name of the view."""
VIEWS = dict.fromkeys(["none", "shuffle", *CUTOFFS, "adversarial"])


class ConSERT(Learner):
    """In-batch contrast of two views made inside the encoder, cross-entropy over pairs, or both.

    Yan et al. 2021, arXiv 2105.11741, section 3; counts, weights and defaults of the released code.
    """

    objective: Literal["contrastive", "classification", "joint"] = "contrastive"
    """``contrastive`` learns from ``text`` alone; ``classification`` from ``first``, ``second`` and
    ``label`` (SBERT's objective); ``joint`` adds to it the contrast among the first sentences and
    that among the second ones."""
    views: tuple[str, str] = ("feature_cutoff", "shuffle")  # type: ignore[assignment]
    """The two views: ``none``, ``shuffle``, ``token_cutoff``, ``feature_cutoff``, ``dropout``,
    ``adversarial``. Two views ``none`` are two encodings, equal if the student has no dropout."""
    positions_from_zero: bool = False
    """Whether shuffled positions count from 0, as released for RoBERTa too, whose own begin at
    2."""
    token_cutoff_rate: Beta = 0.15
    feature_cutoff_rate: Beta = 0.2
    dropout_rate: Beta = 0.2
    noise_norm: float = 1.0
    """The norm of the adversarial view's noise. The released code uses 0.01 without adversarial
    training, its command line has 1.0."""
    noise_normalised: bool = True
    """Whether each token's noise has that length (released); otherwise it is the gradient times it
    (the paper, with 1.0)."""
    temperature: PositiveFloat = 0.1
    contrastive_weight: float = 0.15
    """The weight of the contrastive loss, even if there is no other loss (released)."""
    sides: Literal["sum", "mean"] = "sum"
    """The contrast is the sum of the two sides' means (released), or the mean over all 2n views,
    half of that."""
    features: str | tuple[str, ...] = "sbert"
    """The input of the classifier: ``sbert`` (the paper), ``consert-scripts``, or a list of
    features."""

    def __post_init__(self) -> None:
        """Check that ConSERT's settings fit each other, and plan the passes through the encoder.

        ``objective`` names what is trained: the contrast of two views of each sentence, the
        classification of labelled pairs, or both (``joint``). ``views`` names the kinds of the two
        views.

        Raises:
            UnknownName: There is no such kind of view.
            CardError: Two settings contradict each other.
        """
        self.classifies = self.objective != "contrastive"
        self.contrasts = self.objective != "classification"
        # The negatives of a contrast are the other sentences of the batch of all processes.
        self.batch_negatives = "joint" if self.contrasts else ""
        for view in self.views:
            # Only the check: it raises UnknownName for a name that is not in ``VIEWS``.
            look_up("view", view, VIEWS)
        if "adversarial" in self.views and self.objective != "joint":
            raise CardError("adversarial views need labelled pairs; use objective = 'joint'")
        # Whether a batch may be computed in chunks. Adversarial noise forbids it: it is made of a
        # gradient within the model.
        self.chunks = "adversarial" not in self.views
        # The kinds of the views that are computed; ``none`` is the unchanged sentence, the only one
        # that a classification without a contrast needs.
        self.kinds: tuple[str, ...] = self.views if self.contrasts else ("none",)
        # Whether the model's positions of tokens begin above 0, as RoBERTa's do.
        starts_above_zero = bool(self.student.backbone.positions(torch.ones(1, 1)).any())
        if self.positions_from_zero and not ("shuffle" in self.kinds and starts_above_zero):
            raise CardError(
                "positions_from_zero changes nothing: it is of view 'shuffle', "
                "for models like RoBERTa"
            )
        # The columns of the corpus with sentences, and all that the method reads.
        self.names = ("first", "second") if self.classifies else ("text",)
        self.needs = (*self.names, "label") if self.classifies else self.names
        # A function from a gradient to adversarial noise.
        self.noise_from_gradient = partial(
            fgv_noise, norm=self.noise_norm, normalise=self.noise_normalised
        )
        # ``nt_xent`` is the mean over all views. With ``sides = "sum"`` the contrast is instead the
        # mean over the first views plus that over the second ones, which is twice as much.
        self.nt_xent_weight = self.contrastive_weight * (2 if self.sides == "sum" else 1)
        self.features = feature_names(self.features)
        # The kinds of passes of each sentence through the encoder before adversarial noise is
        # known: one for each other view. The noise is made of the gradient of a clean pass
        # ("none"), which is added if it is no view itself.
        self.passes = tuple(kind for kind in self.kinds if kind != "adversarial")
        if "adversarial" in self.kinds and "none" not in self.passes:
            self.passes = (*self.passes, "none")

    def prepare(self, columns: Columns) -> None:
        """Store the corpus; if pairs are classified, make a classifier with an output per label.

        Labels are numbered in alphabetical order; ``labels`` (n,) are the numbers of the pairs.

        Args:
            columns: The corpus: sentences, and ``label`` if pairs are classified.

        Raises:
            TrainingError: All pairs have the same label.
        """
        super().prepare(columns)
        if not self.classifies:
            return
        names = sorted(set(columns["label"]))
        if len(names) < 2:
            raise TrainingError(f"all pairs have the label '{names[0]}'; a classifier needs two")
        numbers = {name: number for number, name in enumerate(names)}
        self.labels = np.array([numbers[name] for name in columns["label"]], dtype=np.int64)
        # The inputs of the classifier: features of a pair, such as |u-v|, each as wide as an
        # embedding.
        width = self.student.backbone.width * len(self.features)
        self.classifier = torch.nn.Linear(width, len(names)).to(self.student.device)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make ConSERT's batch.

        ``names`` are the columns of the corpus with sentences; ``passes`` are the kinds of passes
        of each sentence through the encoder, for example ``shuffle``, which permutes the positions
        of its tokens.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of a seed, from which all other draws come.

        Returns:
            * for each column of ``names`` the model inputs of its sentences, (b, t) each;
            * ``positions``: position ids (b, t), permuted among the tokens of each sentence, [CLS]
              and [SEP] included, by a key such as ``first 1``: the column and the index of the pass
              that shuffles;
            * ``labels``, the numbers of the pairs' classes, (b,), if pairs are classified;
            * ``seed``, for the draws within the encoder.
        """
        seed = int(rng.integers(2**62))
        generator = torch.Generator().manual_seed(seed)
        batch: Batch = {name: self.inputs([name], rows) for name in self.names}
        batch["positions"] = {}
        for name in self.names:
            mask = batch[name]["attention_mask"]
            # None: positions from 0; otherwise those of the model, RoBERTa's from 2.
            position_ids = (
                None if self.positions_from_zero else self.student.backbone.positions(mask)
            )
            for index, kind in enumerate(self.passes):
                if kind == "shuffle":
                    batch["positions"][f"{name} {index}"] = token_shuffle(
                        mask, generator=generator, position_ids=position_ids
                    )
        if self.classifies:
            batch["labels"] = torch.from_numpy(self.labels[rows])
        # Another seed than that of the shuffles, so that the draws differ from theirs.
        return {**batch, "seed": seed + 1}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return ConSERT's losses by name, and as ``loss`` their weighted sum.

        ``classification`` is the cross-entropy of classifying pairs, with weight 1; ``contrastive``
        contrasts the two views of each sentence. The settings decide whether both or one of them is
        used.

        Args:
            batch: What :meth:`collate` made: model inputs by column of the corpus, shuffled
                ``positions``, ``labels`` of pairs, and a ``seed``.
        """
        generator = torch.Generator().manual_seed(batch["seed"])
        # By column the embedding outputs (the input of the first layer) of the clean pass. The
        # adversarial view adds noise to them, with their dropout, as ConSERT's code does.
        clean_outputs: dict[str, list[torch.Tensor]] = {name: [] for name in self.names}
        # By column the embeddings (b, h) of each pass through the encoder; ``passes`` are the kinds
        # of the passes.
        passes_by_name: dict[str, list[torch.Tensor]] = {}
        for name in self.names:
            # It also appends the clean outputs to the list that it gets.
            passes = self._embed_passes(batch, name, generator, clean_outputs[name])
            passes_by_name[name] = list(passes)
        losses: Losses = {}
        if self.classifies:
            losses["classification"] = self._classify(passes_by_name, batch["labels"])
        if self.contrasts:
            noisy_outputs: Sequence[torch.Tensor] = ()
            if "adversarial" in self.kinds:
                noisy_outputs = self._add_noise(losses["classification"], clean_outputs)
            losses["contrastive"] = self._contrast(batch, passes_by_name, noisy_outputs)
        return with_weighted_sum(losses, {"contrastive": self.nt_xent_weight})

    def _classify(
        self, passes_by_name: Mapping[str, Sequence[torch.Tensor]], labels: torch.Tensor
    ) -> torch.Tensor:
        """Compute the cross-entropy of classifying pairs by their clean embeddings, a scalar.

        ``passes`` are the kinds of passes of each sentence through the encoder; ``none`` is the
        clean one. Without a clean pass the embeddings of the first pass are classified. The mean is
        over the pairs of this process.

        Args:
            passes_by_name: By column of the corpus (``first``, ``second``) the embeddings (b, h) of
                each pass.
            labels: The numbers of the pairs' classes, (b,).
        """
        clean_index = self.passes.index("none") if "none" in self.passes else 0
        first = passes_by_name["first"][clean_index]
        second = passes_by_name["second"][clean_index]
        logits = self.classifier(pair_features(first, second, self.features))
        return torch.nn.functional.cross_entropy(logits, labels)

    def _contrast(
        self,
        batch: Batch,
        passes_by_name: Mapping[str, Sequence[torch.Tensor]],
        noisy_outputs: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Compute the contrast (NT-Xent) of the two views of each sentence, summed over columns.

        ``kinds`` are the kinds of the two views. The adversarial one is embedded here, the other
        ones were embedded before.

        Args:
            batch: The batch that :meth:`collate` made.
            passes_by_name: By column of the corpus the embeddings (b, h) of each pass before, in
                the order of ``kinds`` without the adversarial one.
            noisy_outputs: For the adversarial view the embedding outputs with noise, in the order
                of the columns; a batch that is run in parts has one per part, the same parts as
                before.

        Returns:
            The contrast over the sentences of all training processes, a scalar.
        """
        next_noisy_outputs = iter(noisy_outputs)

        def use_noisy_output(embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            """Replace the embedding output by the next one with noise."""
            return next(next_noisy_outputs)

        contrasts = []
        for name in self.names:
            next_passes = iter(passes_by_name[name])
            views = []
            for kind in self.kinds:
                if kind == "adversarial":
                    views.append(self.student.embed(batch[name], transform=use_noisy_output))
                else:
                    views.append(next(next_passes))
            first_view, second_view = map(gather_over_ranks, views)
            contrasts.append(nt_xent(first_view, second_view, temperature=self.temperature))
        return torch.stack(contrasts).sum()

    def _add_noise(
        self, loss: torch.Tensor, clean_outputs: Mapping[str, list[torch.Tensor]]
    ) -> list[torch.Tensor]:
        """Return embedding outputs with noise by which the loss rises (ConSERT's adversarial view).

        The embedding output is the input of the encoder's first layer. The noise is the loss's
        gradient at it, by default of length 1 at each token, times the setting ``noise_norm``.

        Args:
            loss: The classification loss, a scalar.
            clean_outputs: By column of the corpus the embedding outputs (b, t, h) that the loss was
                computed from; several if a batch was run in parts.

        Returns:
            The outputs with noise, one column's after the other's.
        """
        outputs = list(chain.from_iterable(clean_outputs.values()))
        # The graph is retained, as the backward pass of the loss needs it once more.
        gradients = torch.autograd.grad(loss, outputs, retain_graph=True)
        return [
            output + self.noise_from_gradient(gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
        ]

    def _embed_passes(
        self, batch: Batch, name: str, generator: torch.Generator, recorded: list[torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        """Yield the embeddings (b, h) of each pass of some sentences, except the adversarial one.

        ``passes`` are the kinds of the passes: ``shuffle``, a cutoff, or ``none``, the clean one. A
        cutoff sets parts of the embedding output, the input of the first layer, to zero.

        Args:
            batch: The batch that :meth:`collate` made.
            name: The column of the corpus to embed.
            generator: The generator of the cutoffs.
            recorded: An empty list. If a view is adversarial, the embedding output of the first
                clean pass is appended to it, in several tensors if the batch is run in parts.
        """

        def record_output(embeddings: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            """Append the embedding output to ``recorded``, and return it unchanged."""
            recorded.append(embeddings)
            return embeddings

        for index, kind in enumerate(self.passes):
            # A change of the embedding output.
            transform: Transform | None = None
            # Functions of the embedding output and the mask, by the name of the kind.
            if kind in CUTOFFS:
                transform = partial(
                    CUTOFFS[kind], rate=getattr(self, f"{kind}_rate"), generator=generator
                )
            elif kind == "none" and "adversarial" in self.kinds and not recorded:
                transform = record_output
            tokens = dict(batch[name])
            if kind == "shuffle":
                tokens["position_ids"] = batch["positions"][f"{name} {index}"]
            # The generator is passed too: if the backward pass computes a chunk again, its state is
            # restored, and the cutoff is the same.
            yield self.student.embed(tokens, transform=transform, generator=generator)


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
"""Functions that make a damage of sentences from the method's parameters, by name. Those that
delete leave a marker; the last may read WordNet's open files."""
OperatorName = Literal["delete_words", "delete_spans", "reorder", "substitute"]


class CLEAR(ContrastiveLearner):
    """NT-Xent between two views with changed words, and masked language modelling of the sentence.

    Wu et al. 2020, https://arxiv.org/abs/2012.15466. The paper trains from scratch on BookCorpus
    and Wikipedia, with batches of 8,192; here training starts from a checkpoint. No code was
    published: the projection head, and that the language model gets the undamaged sentences, are
    from memory and not checked against the paper. The student learns the token ``[DEL]`` if an
    operator deletes.
    """

    first: OperatorName = "delete_words"
    second: OperatorName = "reorder"
    word_rate: Share = 0.7
    """The share of words that ``delete_words`` deletes."""
    span_rate: Share = 0.05
    """The length of a span as a share of the words, for ``delete_spans`` and ``reorder``."""
    spans: PositiveInt = 5
    """The maximum number of deleted spans, or of swapped pairs of spans."""
    synonym_rate: Share = 0.3
    """The share of words that ``substitute`` replaces."""
    synonyms: str = "wordnet"
    """The source of synonyms: ``wordnet`` or a table (see :mod:`stsbench.training.texts`)."""
    temperature: PositiveFloat = 0.1
    projection: Literal["mlp", "none"] = "mlp"
    """The projection of the contrast, which tests do not use: two layers, or none."""
    mlm_weight: NonNegativeFloat = 1.0
    mlm_rate: HiddenShare = 0.15

    def __post_init__(self) -> None:
        """Make CLEAR's two changes of words, and the projection between embedding and loss.

        ``first`` and ``second`` name the changes, each of which makes a view of a sentence. Some
        put a marker in the place of deleted words; a tokenizer and model that lack this token get
        it, in place.
        """
        student = self.student
        operator_names = (self.first, self.second)
        # Functions of words and a generator that return new words, made from the method's settings.
        self.operators = [OPERATORS[name](self) for name in operator_names]
        # Whether other processes can make batches: they cannot share WordNet's open files, from
        # which synonyms may come.
        self.made_ahead = "substitute" not in operator_names
        if any(name.startswith("delete") for name in operator_names):
            student.backbone.tokenizer.add_tokens(
                [AddedToken(texts.DELETION_MARKER, special=True)], special_tokens=True
            )
            model = student.language_model if student.language_model is not None else student.model
            if len(student.backbone.tokenizer) > model.get_input_embeddings().num_embeddings:
                # The new rows are random.
                model.resize_token_embeddings(len(student.backbone.tokenizer), mean_resizing=False)
        self.projector: torch.nn.Module = torch.nn.Identity()
        if self.projection == "mlp":
            make_linear = partial(
                torch.nn.Linear,
                student.backbone.width,
                student.backbone.width,
                device=student.device,
            )
            self.projector = torch.nn.Sequential(make_linear(), torch.nn.ReLU(), make_linear())

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make CLEAR's batch: two views of each sentence, made by two changes of its words.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the changes of words and of the hidden tokens.

        Returns:
            ``views``, model inputs (2b, t) each: the first views above the second ones; and if
            masked language modelling has a weight, ``hidden``, the unchanged sentences with tokens
            hidden, and ``labels``, their true ids.
        """
        # Functions from a text to a text: they split at white space and join by blanks.
        changes = [texts.word_augmentation(operator, rng) for operator in self.operators]
        view_texts = [change(text) for change in changes for text in self.texts_of(rows)]
        batch: Batch = {"views": self.inputs_of_texts(view_texts)}
        if self.mlm_weight:
            batch["hidden"] = self.hide_tokens(
                self.inputs(("text",), rows), rng, rate=self.mlm_rate
            )
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return CLEAR's losses by name, and as ``loss`` their weighted sum.

        ``contrastive`` contrasts the two views of each sentence, over the sentences of all training
        processes. ``mlm`` is the loss of masked language modelling; if its weight is 0, ``loss`` is
        the contrast alone.

        Args:
            batch: What :meth:`collate` made, model inputs: ``views``, the first views above the
                second ones, and ``hidden``, sentences with tokens hidden.
        """
        first_views, second_views = gather_pairs(
            self.projector(self.student.embed(batch["views"])), views=2
        )
        contrastive = nt_xent(first_views, second_views, temperature=self.temperature)
        if not self.mlm_weight:
            return {"loss": contrastive}
        losses = {"contrastive": contrastive, "mlm": self.hidden_token_loss(batch["hidden"])}
        return with_weighted_sum(losses, {"mlm": self.mlm_weight})
