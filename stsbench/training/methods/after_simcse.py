"""Successors of unsupervised SimCSE.

They have other negatives (MixCSE, SimCSE++, ESimCSE), learn rankings too (RankCSE), or train a
second model too (DiffCSE).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
import transformers

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, Share
from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.tokens import TokenIds
from stsbench.training import objectives
from stsbench.training.learner import (
    IGNORED_LABEL,
    Batch,
    ContrastiveLearner,
    HiddenShare,
    Losses,
    Rows,
    Size,
    language_model_head,
    select_rows,
    with_weighted_sum,
)
from stsbench.training.loop.gather import gather_over_ranks, mean_over_ranks, rows_of_this_rank
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.methods.simcse import TwoViews
from stsbench.training.student import Student, fresh_layers
from stsbench.training.texts import load_masked_language_model


class MixCSE(TwoViews):
    """SimCSE with hard negatives mixed from a sentence's positive and another sentence.

    No gradient flows through them. Zhang, Zhang, Mensah, Liu and Mao 2022,
    https://doi.org/10.1609/aaai.v36i10.21428; details of the released code.
    """

    variant: Literal["paper", "released"] = "paper"
    """``paper``: one mixed negative per anchor; ``released``: those of the whole batch, mixed from
    anchors too."""
    mixing: Share = 0.2
    """Lambda, the positive's share of a mixed negative."""

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return MixCSE's loss as ``loss``: SimCSE's, with negatives mixed from two sentences.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of the sentences twice.
        """
        # (ranks * b, h) each: two dropout masks make the views.
        anchor, positive = self.embed_views(batch["views"])
        loss = objectives.mixed_info_nce(
            anchor,
            positive,
            temperature=self.temperature,
            mixing=self.mixing,
            variant=self.variant,
        )
        return {"loss": loss}


class SimCSEPlusPlus(TwoViews):
    """SimCSE with negatives without dropout, and a contrast of dimensions beside that of sentences.

    Xu, Shao, Chen and Liu 2023, https://arxiv.org/abs/2305.13192; details as released. Each part
    can be omitted.
    """

    off_dropout: bool = True
    """Whether negatives are from a third pass, without dropout; otherwise they are SimCSE's."""
    positive_share: PositiveFloat = 1.0
    """The factor of the positive's cosine if negatives have no dropout."""
    dimension_weight: NonNegativeFloat = 0.1
    """The weight of the contrast of dimensions; 0 omits it."""
    dimension_temperature: PositiveFloat = 5.0

    def __post_init__(self) -> None:
        """Check that the factor of the positive's cosine has an effect."""
        if not self.off_dropout and self.positive_share != 1:
            raise CardError(
                "positive_share is of negatives without dropout; "
                "leave it out, or off_dropout = false"
            )

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return SimCSE++'s losses by name, and as ``loss`` their weighted sum.

        ``sentences`` contrasts sentences, and ``dimensions`` the dimensions of their embeddings. If
        the latter has the weight 0, ``loss`` is the former alone.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of the sentences twice.
        """
        tokens = batch["views"]
        anchor, positive = self.embed_views(tokens)
        if self.off_dropout:
            # Negatives are from a pass without dropout. It needs the first view only, as without
            # dropout both would be equal.
            sentence_tokens = select_rows(tokens, slice(len(tokens["input_ids"]) // 2))
            without_dropout = gather_over_ranks(self.student.embed(sentence_tokens, dropout=False))
            sentence_loss = objectives.off_dropout_info_nce(
                anchor,
                positive,
                without_dropout,
                temperature=self.temperature,
                positive_share=self.positive_share,
            )
        else:
            sentence_loss = objectives.info_nce(anchor, positive, temperature=self.temperature)
        if not self.dimension_weight:
            return {"loss": sentence_loss}
        dimension_loss = objectives.dimension_contrast(
            anchor, positive, temperature=self.dimension_temperature
        )
        losses = {"sentences": sentence_loss, "dimensions": dimension_loss}
        return with_weighted_sum(losses, {"dimensions": self.dimension_weight})


class ESimCSE(ContrastiveLearner):
    """SimCSE whose positives repeat sub-words, with negatives of a queue that a slow copy fills.

    Wu, Gao, Zang, Han, Wang and Hu 2022, https://arxiv.org/abs/2109.04380, section 3; details of
    the released code. Repetition and queue can each be omitted.
    """

    variant: Literal["paper", "released"] = "paper"
    """``paper``: the copy begins as the student with its head, and of n sub-words 0 to
    max(2, rate * n) are repeated. ``released``: it begins with fresh weights, which the released
    code never replaces by the checkpoint's, under the student's own head; 0 to
    min(10, rate * (n + 2)) - 1 are repeated."""
    repetition_rate: Share = 0.32
    """The maximum share of a sentence's sub-words that are repeated; 0 for none."""
    queue_size: Size = 160
    """The number of embeddings in the queue, 2.5 batches in the paper; 0 for no queue."""
    momentum: Share = 0.995
    """The share of itself that the copy keeps at each step."""
    temperature: PositiveFloat = 0.05

    def __post_init__(self) -> None:
        """Make ESimCSE's slow copy of the student, and an empty queue of embeddings.

        The student is the encoder in training. The copy is not trained, but follows the student's
        weights slowly; it fills the queue, whose embeddings are negatives. Without a queue there is
        no copy. Checkpoints store the modules and buffers under their names here.
        """
        student = self.student
        self.is_released = self.variant == "released"
        self.slow = copy.deepcopy(student).requires_grad_(False) if self.queue_size else None
        if self.slow is not None and self.is_released:
            fresh_model = transformers.AutoModel.from_config(student.model.config)
            # In the authors' code the copy begins with random weights, not the student's. Not
            # strict: the fresh model may have a pooler, which the student does not have.
            self.slow.model.load_state_dict(fresh_model.state_dict(), strict=False)
            # The student's own head (a linear layer and tanh, or None), no copy: it is trained with
            # the student.
            self.slow.head = student.head
        if self.slow is not None:
            # It stays in evaluation mode while the student is trained.
            self.set_dropout(self.slow, dropout=False)
        empty_queue = torch.zeros(self.queue_size, student.backbone.width, device=student.device)
        is_filled = torch.zeros(self.queue_size, dtype=torch.bool, device=student.device)
        self.queue = torch.nn.Buffer(empty_queue)
        """The embeddings of earlier batches, (queue_size, h), the oldest first."""
        self.filled = torch.nn.Buffer(is_filled)
        """True at each row of the queue that holds an embedding, bool (queue_size,)."""

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch: the sentences, and below them the same with some sub-words repeated.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the repetitions.

        Returns:
            ``views``, model inputs (2b, t) each; and ``first``, those of the sentences alone, which
            the slow copy of the student embeds for the queue of negatives.
        """
        tokens = self.student.tokenize(self.texts_of(rows))
        # The ids of all sentences one after the other, special tokens included. ``offsets`` are the
        # indices of the first token of each sentence, from 0, and the number of all tokens.
        ids_by_sentence = np.split(tokens.ids, tokens.offsets[1:-1])
        repeated_ids = [self._repeat_subwords(ids, rng) for ids in ids_by_sentence]
        view_tokens = TokenIds.join([tokens, TokenIds.from_lists(repeated_ids)])
        return {
            "views": self.student.collate(view_tokens, np.arange(len(view_tokens))),
            "first": self.student.collate(tokens, np.arange(len(tokens))),
        }

    def _repeat_subwords(self, ids: np.ndarray[Any, Any], rng: np.random.Generator) -> list[int]:
        """Return the token ids of a sentence, some of them, drawn at random, twice in a row.

        The first and the last token are never repeated, as they are special tokens. The maximum
        number of repetitions is the setting ``repetition_rate`` times the number of sub-words, at
        least 2; the authors' code (``is_released``) computes it differently.

        Args:
            ids: The token ids of the sentence, (t,).
            rng: The generator of all draws.
        """
        n_subwords = max(0, len(ids) - 2)
        if not self.repetition_rate:
            max_repeated = 0
        elif self.is_released:
            # The authors' code draws below this number, not up to it; counts the special tokens
            # too; and repeats fewer than 10.
            max_repeated = min(10, int(self.repetition_rate * len(ids))) - 1
        else:
            max_repeated = max(2, int(self.repetition_rate * n_subwords))
        max_tokens = self.student.checkpoint.max_length()
        # The repetitions for which the model's longest input has room; None is a model without
        # a limit.
        n_free = n_subwords if max_tokens is None else max_tokens - len(ids)
        max_repeated = max(0, min(max_repeated, n_subwords, n_free))
        n_repeated = int(rng.integers(max_repeated + 1))
        occurrences = np.ones(len(ids), dtype=np.int64)
        if n_repeated:
            # The first sub-word is at position 1, after a special token.
            positions = 1 + rng.choice(n_subwords, n_repeated, replace=False)
            occurrences[positions] = 2
        repeated: list[int] = np.repeat(ids, occurrences).tolist()
        return repeated

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return ESimCSE's loss as ``loss``, and in training add the sentences to the queue.

        The loss is SimCSE's, with the queue's embeddings of earlier sentences as further negatives.
        Without a queue there is no slow copy of the student (``slow``), which fills it.

        Args:
            batch: What :meth:`collate` made, model inputs: ``views``, the sentences twice, and
                ``first``, the sentences once.
        """
        anchor, positive = self.embed_views(batch["views"])
        if self.slow is None:
            return {"loss": objectives.info_nce(anchor, positive, temperature=self.temperature)}
        # Copies, because the queue is changed below, before the backward pass reads it.
        queue = self.queue.clone()
        is_filled = self.filled.clone()
        loss = objectives.queued_info_nce(
            anchor, positive, queue, is_filled, temperature=self.temperature
        )
        if self.training:
            self._update_queue(self.slow, batch["first"])
        return {"loss": loss}

    @torch.no_grad()
    def _update_queue(self, slow: Student, tokens: Tokens) -> None:
        """Move the slow copy's weights towards the student's, and add its embeddings to the queue.

        Each weight of the copy becomes momentum * itself + (1 - momentum) * the student's. The
        copy's embeddings of the sentences then replace the oldest of the queue.

        Args:
            slow: The slow copy of the student, the encoder in training.
            tokens: The model inputs of the batch's sentences.
        """
        for slow_parameter, student_parameter in zip(
            slow.parameters(), self.student.parameters(), strict=True
        ):
            # In the authors' variant both share one head, whose parameters are not moved.
            if slow_parameter is not student_parameter:
                slow_parameter.lerp_(student_parameter, 1 - self.momentum)
        new_embeddings = gather_over_ranks(slow.embed(tokens)).to(self.queue.dtype)
        is_filled = self.filled.new_ones(len(new_embeddings))
        self.queue.copy_(torch.cat([self.queue, new_embeddings])[-self.queue_size :])
        self.filled.copy_(torch.cat([self.filled, is_filled])[-self.queue_size :])


class RankCSE(TwoViews):
    """SimCSE whose two views rank a batch in the same order, and in the order of teachers.

    Liu et al. 2023, arXiv 2305.16726, https://aclanthology.org/2023.acl-long.771.
    """

    teachers: tuple[str, ...] = ()
    """The names of encoders, whose embeddings come from the store; the encoder of a recipe with
    seed 1 is ``recipe@1``."""
    teacher_weights: tuple[PositiveFloat, ...] | None = None
    """The weights of the teachers' similarities, one per teacher; by default equal."""
    ranking: Literal["listmle", "listnet"] = "listmle"
    """The part of a teacher's ranking to learn: the whole order, or which sentence is first."""
    ranking_temperature: PositiveFloat = 0.05
    """The temperature of the student's similarities in the distillation."""
    teacher_temperature: PositiveFloat = 0.025
    """The temperature of the teachers' similarities, only for ``listnet``: half of the student's in
    the paper, the same in the released code."""
    consistency_weight: NonNegativeFloat = 1.0
    """The weight of the consistency, which has the contrast's temperature."""
    ranking_weight: NonNegativeFloat = 1.0
    """The weight of the distillation; 0 omits it, and needs no teachers."""
    formulas: Literal["paper", "released"] = "paper"
    """The formulas as the paper prints them, or with the additions of the released code; see the
    objectives."""

    def __post_init__(self) -> None:
        """Check RankCSE's teachers, and compute the share of each in their mean similarities.

        Teachers are encoders whose similarities of sentences the student learns to rank by; with a
        ``ranking_weight`` of 0 there are none. ``teacher_weights`` are by default equal.

        Raises:
            CardError: There is no teacher, or not one weight for each.
        """
        if not self.ranking_weight:
            self.teachers = ()
        weights = self.teacher_weights or (1.0,) * len(self.teachers)
        if self.ranking_weight and (not self.teachers or len(weights) != len(self.teachers)):
            settings = f"teachers {list(self.teachers)}, teacher_weights {list(weights)}"
            advice = (
                "give encoders to learn from, `params='teachers=[\"NAME\"]'`, "
                "and one weight above 0 for each"
            )
            raise CardError(f"{settings}: {advice}; or ranking_weight 0")
        self.teacher_shares = [weight / sum(weights) for weight in weights]
        """The share of each teacher in the mean of their similarities, in the teachers' order."""

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make RankCSE's batch: sentences, and the embeddings of them by each teacher.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the draws of a batch.

        Returns:
            ``views``, the model inputs (2b, t) of the sentences twice; and if there are teachers,
            ``teacher_embeddings``: by the name of the teacher its embeddings (b, d), where d
            differs among teachers.
        """
        batch = super().collate(rows, rng)
        if self.teachers:
            embeddings_by_teacher = {}
            # ``teachers`` are names. ``teacher_embeddings``, which the trainer has set, are
            # functions from rows of the corpus to embeddings computed before, arrays (b, d).
            for name, read_embeddings in zip(self.teachers, self.teacher_embeddings, strict=True):
                embeddings_by_teacher[name] = torch.from_numpy(read_embeddings(rows))
            batch["teacher_embeddings"] = embeddings_by_teacher
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return RankCSE's losses by name, and as ``loss`` their weighted sum.

        They are over the sentences of all training processes; a loss of weight 0 is absent.
        ``contrastive`` is SimCSE's, with weight 1. ``consistency`` compares the rankings of the
        batch's sentences by the two views of each. ``ranking`` compares the student's rankings with
        the teachers'.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of the sentences twice;
                with teachers also ``teacher_embeddings``.
        """
        # The embeddings of both views, (ranks * b, h) each: those of all processes.
        views = self.embed_views(batch["views"])
        losses = {"contrastive": objectives.info_nce(*views, temperature=self.temperature)}
        if self.consistency_weight:
            losses["consistency"] = objectives.ranking_consistency(
                *views, temperature=self.temperature, formulas=self.formulas
            )
        # There are no teachers with a ``ranking_weight`` of 0.
        if self.teachers:
            student_rankings = objectives.rankings(*views, temperature=self.ranking_temperature)
            teacher_rankings = self._mean_teacher_rankings(batch["teacher_embeddings"])
            if self.ranking == "listmle":
                losses["ranking"] = objectives.list_mle(
                    student_rankings, teacher_rankings, formulas=self.formulas
                )
            else:
                losses["ranking"] = objectives.list_net(student_rankings, teacher_rankings)
        return with_weighted_sum(
            losses, {"consistency": self.consistency_weight, "ranking": self.ranking_weight}
        )

    def _mean_teacher_rankings(
        self, embeddings_by_teacher: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the weighted mean of the teachers' cosines, divided by the teacher temperature.

        Each teacher's share in the mean is in ``teacher_shares``.

        Args:
            embeddings_by_teacher: By the name of each teacher its embeddings of the sentences of
                this training process (rank), (b, d); d differs among teachers.

        Returns:
            The means for all pairs of sentences of all processes, (ranks * b, ranks * b).
        """
        weighted_rankings = []
        for name, share in zip(self.teachers, self.teacher_shares, strict=True):
            embeddings = gather_over_ranks(embeddings_by_teacher[name])
            ranking = objectives.rankings(
                embeddings, embeddings, temperature=self.teacher_temperature
            )
            weighted_rankings.append(share * ranking)
        return torch.stack(weighted_rankings).sum(dim=0)


class DiffCSE(TwoViews):
    """In-batch contrast under a projection, and detection of replaced tokens from the embedding.

    The projection has batch norm; the detector is conditioned on the projected embedding. Chuang et
    al. 2022, https://arxiv.org/abs/2204.10298, section 3; details of the released code. The student
    embeds without a head of its own: the projection replaces it in training, and is not saved.
    """

    variant: Literal["paper", "released"] = "paper"
    """``paper``: hidden tokens are replaced by the generator's draws; ``released``: all tokens but
    the first by its likeliest guesses, with dropout, and padding counts in the mean over tokens."""
    detection_weight: PositiveFloat = 0.005
    """Lambda, the weight of replaced-token detection."""
    mask_rate: HiddenShare = 0.3
    """The share of tokens hidden from the generator."""
    generator: str = ""
    """A masked language model with the student's vocabulary, which is not trained: a folder or a
    name on the Hub; default: the student's own checkpoint."""
    generator_revision: str = "unpinned"
    """Its commit on the Hub."""

    def __post_init__(self) -> None:
        """Make the modules of DiffCSE beside the student, the encoder in training.

        * ``projection``: layers between an embedding and the contrast.
        * ``guesser``: the generator, a masked language model that is not trained; it guesses hidden
          tokens of sentences.
        * ``discriminator`` and ``detector``: a second transformer, and a linear layer, that learn
          to detect which tokens are guesses.

        Checkpoints store the modules under these names.

        Raises:
            EncoderError: The generator has another vocabulary than the student, or is no masked
                language model.
        """
        student = self.student
        width = student.backbone.width
        self.is_released = self.variant == "released"
        # Two layers, each followed by batch norm; the last batch norm has no weights.
        first_layer, last_layer = fresh_layers(student.model, width, 2 * width, width, bias=False)
        norms = [torch.nn.BatchNorm1d(2 * width), torch.nn.BatchNorm1d(width, affine=False)]
        self.projection = torch.nn.Sequential(
            first_layer, norms[0], torch.nn.ReLU(), last_layer, norms[1]
        ).to(student.device)
        # Another transformer, trained to detect; it begins as the student.
        self.discriminator = copy.deepcopy(student)
        self.detector = torch.nn.Linear(width, 2).to(student.device)
        generator_checkpoint = student.checkpoint
        if self.generator:
            generator_checkpoint = find_checkpoint(self.generator, revision=self.generator_revision)
        tokenizer, self.guesser = load_masked_language_model(generator_checkpoint)
        if tokenizer.get_vocab() != student.backbone.tokenizer.get_vocab():
            raise EncoderError(
                f"{generator_checkpoint.folder}: a generator must have the student's vocabulary; "
                "choose another"
            )
        self.guesser.requires_grad_(False).to(student.device)
        # In the authors' code the generator guesses with dropout. In the paper's variant it has
        # none: it stays in evaluation mode while the student is trained.
        self.set_dropout(self.guesser, dropout=self.is_released)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch: the sentences twice, and the same with tokens hidden."""
        batch = super().collate(rows, rng)
        return {**batch, "hidden": self.hide_tokens(batch["views"], rng, rate=self.mask_rate)}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return DiffCSE's losses by name, and as ``loss`` their weighted sum.

        ``contrastive`` is SimCSE's loss, with weight 1; ``detection`` is that of detecting replaced
        tokens.

        Args:
            batch: What :meth:`collate` made, model inputs: ``views``, the sentences twice, and
                ``hidden``, the same with tokens hidden.
        """
        tokens = batch["views"]
        # The views of the sentences of all processes, so that the projection's batch norm is over
        # all of them.
        first, second = self.projection(torch.cat(self.embed_views(tokens))).chunk(2)
        contrastive = objectives.info_nce(first, second, temperature=self.temperature)
        # The token ids (2b, t), some of them replaced by a language model's guesses.
        edited_ids = self.replace_hidden_tokens(tokens, batch["hidden"])
        # Each process detects tokens in its own sentences, by its own rows of the embeddings.
        own_embeddings = torch.cat([rows_of_this_rank(first), rows_of_this_rank(second)])
        detection = self.detect(tokens, edited_ids, own_embeddings)
        losses = {"contrastive": contrastive, "detection": detection}
        return with_weighted_sum(losses, {"detection": self.detection_weight})

    @torch.no_grad()
    def replace_hidden_tokens(self, tokens: Tokens, hidden: Tokens) -> torch.Tensor:
        """Return the token ids (b, t) with some replaced by guesses of a masked language model.

        In the paper's variant the hidden tokens are replaced by draws from the model's
        probabilities. In that of the authors' code (``is_released``) all tokens but the first are
        replaced by the likeliest ones.

        Args:
            tokens: The model inputs of the sentences, (b, t) each.
            hidden: The same with tokens hidden, and ``labels``: the true ids of hidden tokens, and
                ``IGNORED_LABEL`` at all others.
        """
        is_replaced = hidden["labels"] != IGNORED_LABEL
        if self.is_released:
            # All tokens but the first, [CLS]; no padding.
            is_replaced = tokens["attention_mask"].bool().clone()
            is_replaced[:, 0] = False

        def replace_tokens(part: Tokens) -> torch.Tensor:
            """Return the edited token ids (b', t) of some rows of the batch.

            The tensors of ``part`` are (b', t'), cut to the longest row. ``guesser`` is the masked
            language model, whose head makes logits (tokens, vocabulary) of hidden states.
            """
            ids = part["input_ids"]
            is_replaced_part = part["is_replaced"]
            states = self.guesser.base_model(
                input_ids=ids, attention_mask=part["attention_mask"]
            ).last_hidden_state
            logits = language_model_head(self.guesser)(states[is_replaced_part]).float()
            if self.is_released:
                guesses = logits.argmax(dim=1)
            else:
                guesses = torch.multinomial(logits.softmax(dim=1), 1)[:, 0]
            edited_ids = part["original_ids"].masked_scatter(is_replaced_part, guesses)
            # The results of all parts must have the width t of the batch.
            missing_width = tokens["input_ids"].shape[1] - ids.shape[1]
            return F.pad(edited_ids, (0, missing_width))

        inputs = {**hidden, "is_replaced": is_replaced, "original_ids": tokens["input_ids"]}
        # On a CPU in parts of similar length, unless the model (the last argument) omits padding.
        edited = self.student.compute_in_parts(inputs, replace_tokens, self.guesser.base_model)
        # Padding, which was filled with 0, gets its ids back.
        return torch.where(tokens["attention_mask"].bool(), edited, tokens["input_ids"])

    def detect(
        self, tokens: Tokens, edited_ids: torch.Tensor, sentence_embeddings: torch.Tensor
    ) -> torch.Tensor:
        """Compute the cross-entropy of detecting which tokens were replaced, a scalar.

        The discriminator, a transformer, reads the edited sentences, each with its embedding in the
        place of the first token's; so the embedding must tell what the sentence was. The result is
        the mean over the tokens of all training processes. In the authors' code (``is_released``)
        padding counts as tokens too.

        Args:
            tokens: The model inputs of the sentences, (b, t) each.
            edited_ids: The sentences' token ids with some replaced, (b, t).
            sentence_embeddings: The projected embeddings of the sentences, (b, h).
        """
        mask = tokens["attention_mask"]
        counted_mask = torch.ones_like(mask) if self.is_released else mask

        def compute_losses(part: Tokens) -> torch.Tensor:
            """Return the summed loss over the tokens of each row of a part of the batch, (b',).

            ``part`` holds tensors (b', t'): token ids, masks, which tokens are replaced, and in
            ``row`` the index of the row in the batch.
            """
            first_embeddings = sentence_embeddings[part["row"][:, 0], None]  # (b', 1, h)

            def replace_first(embeddings: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
                first = first_embeddings.to(embeddings.dtype)
                return torch.cat([first, embeddings[:, 1:]], dim=1)

            # The last layer's states (b', t', h). ``transform`` changes the input of the first
            # layer; with ``padding`` the states at padding are computed too.
            (states,) = self.discriminator.hidden_states(
                {"input_ids": part["input_ids"], "attention_mask": part["token_mask"]},
                (-1,),
                transform=replace_first,
                padding=self.is_released,
            )
            logits = self.detector(states).float().transpose(1, 2)  # (b', 2, t')
            token_losses = F.cross_entropy(logits, part["is_replaced"].long(), reduction="none")
            return (token_losses * part["attention_mask"]).sum(dim=1)

        inputs = {
            "input_ids": edited_ids,
            # The mask of the counted tokens decides how the batch is cut into parts; the model
            # attends by ``token_mask``.
            "attention_mask": counted_mask,
            "token_mask": mask,
            "is_replaced": (edited_ids != tokens["input_ids"]) & mask.bool(),
            # The index of each row in the batch.
            "row": torch.arange(len(mask), device=mask.device)[:, None],
        }
        # The last argument is the model: if it omits padding, the batch is not cut by length.
        losses = self.student.compute_in_parts(
            inputs, compute_losses, None if self.is_released else self.discriminator.model
        )
        return mean_over_ranks(losses.sum(), counted_mask.sum())
