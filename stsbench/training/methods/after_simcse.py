"""What was made of unsupervised SimCSE: other negatives (MixCSE, SimCSE++, ESimCSE), rankings or a second model beside it (RankCSE, DiffCSE)."""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
import transformers

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, Share
from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.tokens import TokenIds
from stsbench.training import learner as seams, objectives
from stsbench.training.learner import (
    IGNORED,
    Batch,
    ContrastiveLearner,
    HiddenShare,
    Losses,
    Rows,
    Size,
    rows_of,
)
from stsbench.training.loop.gather import gather_views, joint_mean, local_rows
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.methods.simcse import TwoViews
from stsbench.training.student import Student, fresh_layers
from stsbench.training.texts import load_masked_language_model


class MixCSE(TwoViews):
    """SimCSE with hard negatives mixed of a sentence's positive and another sentence, through which no gradient flows.

    Zhang, Zhang, Mensah, Liu and Mao 2022, https://doi.org/10.1609/aaai.v36i10.21428; details of the released code.
    """

    variant: Literal["paper", "released"] = "paper"
    """One mixed negative an anchor; or those of the whole batch, of anchors too."""
    mixing: Share = 0.2
    """Lambda, the positive's share of a mixed negative."""

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """SimCSE's loss with more negatives."""
        options: Any = {
            "temperature": self.temperature,
            "mixing": self.mixing,
            "variant": self.variant,
        }
        return {"loss": objectives.mixed_info_nce(*self.embed_views(batch["views"]), **options)}


class SimCSEPlusPlus(TwoViews):
    """SimCSE with negatives that have no dropout, and a contrast of dimensions beside that of sentences.

    Xu, Shao, Chen and Liu 2023, https://arxiv.org/abs/2305.13192; details as released. Each part can be left out.
    """

    off_dropout: bool = True
    """Negatives are of a third pass, without dropout; else SimCSE's."""
    positive_share: PositiveFloat = 1.0
    """Multiplies the positive's cosine, where negatives have no dropout."""
    dimension_weight: NonNegativeFloat = 0.1
    """Of the contrast of dimensions; 0 leaves it out."""
    dimension_temperature: PositiveFloat = 5.0

    def __post_init__(self) -> None:
        if not self.off_dropout and self.positive_share != 1:
            raise CardError(
                "positive_share is of negatives without dropout; leave it out, or off_dropout = false"
            )

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrast of sentences, and beside it that of dimensions."""
        tokens = batch["views"]
        anchor, positive = self.embed_views(tokens)
        if self.off_dropout:
            once = rows_of(tokens, slice(len(tokens["input_ids"]) // 2))
            still = gather_views(self.student.embed(once, dropout=False))
            options = {"temperature": self.temperature, "positive_share": self.positive_share}
            sentences = objectives.off_dropout_info_nce(anchor, positive, still, **options)
        else:
            sentences = objectives.info_nce(anchor, positive, temperature=self.temperature)
        if not self.dimension_weight:
            return {"loss": sentences}
        dimensions = objectives.dimension_contrast(
            anchor, positive, temperature=self.dimension_temperature
        )
        parts = {"sentences": sentences, "dimensions": dimensions}
        return seams.weighted_sum(parts, {"dimensions": self.dimension_weight})


class ESimCSE(ContrastiveLearner):
    """SimCSE whose positives repeat some sub-words, with negatives of a queue that a slowly moving copy fills.

    Wu, Gao, Zang, Han, Wang and Hu 2022, https://arxiv.org/abs/2109.04380, section 3; details of the released code.
    Repetition and queue can each be left out.
    """

    variant: Literal["paper", "released"] = "paper"
    """``paper``, the copy begins as the student, head and all, and of n sub-words 0 to max(2, rate * n) are repeated.
    ``released``, it begins with fresh weights, which the released code never replaces by the checkpoint's, under the
    student's own head; 0 to min(10, rate * (n + 2)) - 1 are repeated."""
    repetition_rate: Share = 0.32
    """The greatest share of a sentence's sub-words that are repeated; 0 for none."""
    queue_size: Size = 160
    """Embeddings in the queue, 2.5 batches in the paper; 0 for no queue."""
    momentum: Share = 0.995
    """The share of itself that the copy keeps at each step."""
    temperature: PositiveFloat = 0.05

    def __post_init__(self) -> None:
        student = self.student
        self.released = self.variant == "released"
        self.slow = copy.deepcopy(student).requires_grad_(False) if self.queue_size else None
        if self.slow is not None and self.released:
            fresh = transformers.AutoModel.from_config(student.model.config)
            # It may have a pooler, which the student has not.
            self.slow.model.load_state_dict(fresh.state_dict(), strict=False)
            self.slow.head = student.head
        if self.slow is not None:
            self.set_dropout(self.slow, dropout=False)
        size, device = self.queue_size, student.device
        self.queue = torch.nn.Buffer(torch.zeros(size, student.backbone.width, device=device))
        self.filled = torch.nn.Buffer(torch.zeros(size, dtype=torch.bool, device=device))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, and below them the same with some sub-words repeated."""
        tokens = self.student.tokenize(self.texts_of(rows))
        lists = [self._repeated(one, rng) for one in np.split(tokens.ids, tokens.offsets[1:-1])]
        both = TokenIds.join([tokens, TokenIds.from_lists(lists)])
        views, first = (self.student.collate(one, np.arange(len(one))) for one in (both, tokens))
        return {"views": views, "first": first}

    def _repeated(self, ids: np.ndarray[Any, Any], rng: np.random.Generator) -> list[int]:
        """The token ids of a sentence with some said twice, never the first nor the last, which are special."""
        inner = max(0, len(ids) - 2)
        limit = self.student.checkpoint.max_length()
        # As released it stops one short, and counts the special tokens in.
        most = min(10, int(self.repetition_rate * len(ids))) - 1
        if not self.released:
            most = max(2, int(self.repetition_rate * inner))
        most = (
            min(most, inner, inner if limit is None else limit - len(ids))
            if self.repetition_rate
            else 0
        )
        count = int(rng.integers(max(0, most) + 1))
        times = np.ones(len(ids), dtype=np.int64)
        times[1 + rng.choice(inner, count, replace=False) if count else []] = 2
        repeated: list[int] = np.repeat(ids, times).tolist()
        return repeated

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """SimCSE's loss with the queue's negatives; then the sentences join the queue."""
        anchor, positive = self.embed_views(batch["views"])
        if self.slow is None:
            return {"loss": objectives.info_nce(anchor, positive, temperature=self.temperature)}
        # A copy: the queue moves on before the backward pass.
        queue, filled = self.queue.clone(), self.filled.clone()
        loss = objectives.queued_info_nce(
            anchor, positive, queue, filled, temperature=self.temperature
        )
        if self.training:
            self._move_on(self.slow, batch["first"])
        return {"loss": loss}

    @torch.no_grad()
    def _move_on(self, slow: Student, tokens: Tokens) -> None:
        """Move the copy towards the student, and put its embeddings of these sentences in place of the oldest."""
        for mine, theirs in zip(slow.parameters(), self.student.parameters(), strict=True):
            if mine is not theirs:
                mine.lerp_(theirs, 1 - self.momentum)
        latest = gather_views(slow.embed(tokens)).to(self.queue.dtype)
        for kept, new in ((self.queue, latest), (self.filled, self.filled.new_ones(len(latest)))):
            kept.copy_(torch.cat([kept, new])[-self.queue_size :])


class RankCSE(TwoViews):
    """SimCSE whose two views rank a batch alike, and as teachers do.

    Liu et al. 2023, arXiv 2305.16726, https://aclanthology.org/2023.acl-long.771.
    """

    teachers: tuple[str, ...] = ()
    """Encoders by name, whose embeddings come from the store; a recipe's of seed 1 is ``recipe@1``."""
    teacher_weights: tuple[PositiveFloat, ...] | None = None
    """Of their similarities, one each; default alike."""
    ranking: Literal["listmle", "listnet"] = "listmle"
    """How a teacher's ranking is learned: the whole order, or what comes first."""
    ranking_temperature: PositiveFloat = 0.05
    """Of the student's similarities in the distillation."""
    teacher_temperature: PositiveFloat = 0.025
    """Of the teachers', for ``listnet`` alone: half of the student's in the paper, the same in the released code."""
    consistency_weight: NonNegativeFloat = 1.0
    """Of the consistency, which has the contrast's temperature."""
    ranking_weight: NonNegativeFloat = 1.0
    """Of the distillation; 0 leaves it out, and needs no teachers."""
    formulas: Literal["paper", "released"] = "paper"
    """As the paper prints them, or with what the released code adds, see the objectives."""

    def __post_init__(self) -> None:
        if not self.ranking_weight:
            self.teachers = ()
        weights = self.teacher_weights or (1.0,) * len(self.teachers)
        if self.ranking_weight and (not self.teachers or len(weights) != len(self.teachers)):
            given = f"teachers {list(self.teachers)}, teacher_weights {list(weights)}"
            learn = "give encoders to learn from, --set 'teachers=[\"NAME\"]', and one weight above 0 for each"
            raise CardError(f"{given}: {learn}; or ranking_weight 0")
        self.shares = [weight / sum(weights) for weight in weights]

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences twice, and each teacher's embeddings of them."""
        batch = super().collate(rows, rng)
        if self.teachers:
            taught = zip(self.teachers, self.teacher_embeddings, strict=True)
            batch["taught"] = {
                name: torch.from_numpy(embeddings_of(rows)) for name, embeddings_of in taught
            }
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The sum of the losses, over the sentences of all ranks, and its parts."""
        views = self.embed_views(batch["views"])
        parts = {"contrastive": objectives.info_nce(*views, temperature=self.temperature)}
        if self.consistency_weight:
            parts["consistency"] = objectives.ranking_consistency(
                *views, temperature=self.temperature, formulas=self.formulas
            )
        if self.teachers:
            own = objectives.rankings(*views, temperature=self.ranking_temperature)
            all_taught = [gather_views(batch["taught"][name]) for name in self.teachers]
            each = [
                objectives.rankings(taught, taught, temperature=self.teacher_temperature)
                for taught in all_taught
            ]
            # The mean of the teachers' cosines, (b, b), by their weights.
            theirs = torch.stack(
                [share * one for share, one in zip(self.shares, each, strict=True)]
            ).sum(dim=0)
            if self.ranking == "listmle":
                parts["ranking"] = objectives.list_mle(own, theirs, formulas=self.formulas)
            else:
                parts["ranking"] = objectives.list_net(own, theirs)
        return seams.weighted_sum(
            parts, {"consistency": self.consistency_weight, "ranking": self.ranking_weight}
        )


class DiffCSE(TwoViews):
    """In-batch contrast under a projection with batch norm, and replaced-token detection given the projected embedding.

    Chuang et al. 2022, https://arxiv.org/abs/2204.10298, section 3; details of the released code. The student embeds
    without a head of its own: the projection takes its place, and is dropped after training.
    """

    variant: Literal["paper", "released"] = "paper"
    """``paper``, hidden tokens are replaced by what the generator draws; ``released``, all tokens but the first by what
    it, with dropout, holds likeliest, and padding counts in the mean over tokens."""
    detection_weight: PositiveFloat = 0.005
    """Lambda, of replaced-token detection."""
    mask_rate: HiddenShare = 0.3
    """The share of tokens hidden from the generator."""
    generator: str = ""
    """A masked language model with the student's vocabulary, which stays as it is: a folder or a name on the Hub;
    default: the student's own start."""
    generator_revision: str = "unpinned"
    """Its commit on the Hub."""

    def __post_init__(self) -> None:
        student, width = self.student, self.student.backbone.width
        self.released = self.variant == "released"
        # Two layers, each followed by batch norm; the last of these has no weights.
        first, last = fresh_layers(student.model, width, 2 * width, width, bias=False)
        norms = [torch.nn.BatchNorm1d(2 * width), torch.nn.BatchNorm1d(width, affine=False)]
        self.projection = torch.nn.Sequential(first, norms[0], torch.nn.ReLU(), last, norms[1]).to(
            student.device
        )
        self.discriminator = copy.deepcopy(student)
        self.detector = torch.nn.Linear(width, 2).to(student.device)
        named = self.generator
        start = (
            find_checkpoint(named, revision=self.generator_revision)
            if named
            else student.checkpoint
        )
        tokenizer, self.guesser = load_masked_language_model(start)
        if tokenizer.get_vocab() != student.backbone.tokenizer.get_vocab():
            raise EncoderError(
                f"{start.folder}: a generator must have the student's vocabulary; choose another"
            )
        self.guesser.requires_grad_(False).to(student.device)
        self.set_dropout(self.guesser, dropout=self.released)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences twice, and the same with tokens hidden."""
        batch = super().collate(rows, rng)
        return {**batch, "hidden": self.hide(batch["views"], rng, rate=self.mask_rate)}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrastive loss, and that of telling which tokens were replaced."""
        tokens = batch["views"]
        # Batch norm counts the sentences of all ranks.
        first, second = self.projection(torch.cat(self.embed_views(tokens))).chunk(2)
        contrastive = objectives.info_nce(first, second, temperature=self.temperature)
        edited = self.edit(tokens, batch["hidden"])
        detection = self.detect(tokens, edited, torch.cat([local_rows(first), local_rows(second)]))
        parts = {"contrastive": contrastive, "detection": detection}
        return seams.weighted_sum(parts, {"detection": self.detection_weight})

    @torch.no_grad()
    def edit(self, tokens: Tokens, hidden: Tokens) -> torch.Tensor:
        """The token ids (b, t) with some replaced by the generator's guesses."""
        guessed = hidden["labels"] != IGNORED
        if self.released:
            guessed = tokens["attention_mask"].bool().clone()
            guessed[:, 0] = False

        def fill(part: Tokens) -> torch.Tensor:
            ids, where = part["input_ids"], part["guessed"]
            states = self.guesser.base_model(
                input_ids=ids, attention_mask=part["attention_mask"]
            ).last_hidden_state
            logits = seams.language_model_head(self.guesser)(states[where]).float()
            guesses = (
                logits.argmax(dim=1)
                if self.released
                else torch.multinomial(logits.softmax(dim=1), 1)[:, 0]
            )
            width = tokens["input_ids"].shape[1] - ids.shape[1]
            return F.pad(part["shown"].masked_scatter(where, guesses), (0, width))

        given = {**hidden, "guessed": guessed, "shown": tokens["input_ids"]}
        edited = self.student.compute_in_parts(given, fill, self.guesser.base_model)
        return torch.where(tokens["attention_mask"].bool(), edited, tokens["input_ids"])

    def detect(self, tokens: Tokens, edited: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy, over the tokens of all ranks, of telling which of them were replaced.

        ``edited`` are the sentences' ids with some replaced, (b, t); ``vectors`` what stands in the place of the first
        token's embedding, (b, h).
        """
        mask = tokens["attention_mask"]
        counted = torch.ones_like(mask) if self.released else mask

        def lose(part: Tokens) -> torch.Tensor:
            given = vectors[part["row"][:, 0], None]
            (states,) = self.discriminator.hidden_states(
                {"input_ids": part["input_ids"], "attention_mask": part["real"]},
                (-1,),
                transform=lambda embeddings, _: torch.cat(
                    [given.to(embeddings.dtype), embeddings[:, 1:]], dim=1
                ),
                padding=self.released,
            )
            logits = self.detector(states).float().transpose(1, 2)
            each = F.cross_entropy(logits, part["replaced"].long(), reduction="none")
            return (each * part["attention_mask"]).sum(dim=1)

        given = {
            "input_ids": edited,
            # What counts is computed: the parts are as wide as this says.
            "attention_mask": counted,
            "real": mask,
            "replaced": (edited != tokens["input_ids"]) & mask.bool(),
            "row": torch.arange(len(mask), device=mask.device)[:, None],
        }
        losses = self.student.compute_in_parts(
            given, lose, None if self.released else self.discriminator.model
        )
        return joint_mean(losses.sum(), counted.sum())
