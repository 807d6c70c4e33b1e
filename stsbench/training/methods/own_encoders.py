"""Methods whose encoder is more than a pooling: templates with a mask token (PromptBERT), convolutions (IS-BERT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from stsbench.core.cards import PositiveFloat
from stsbench.core.errors import CardError
from stsbench.encoders.base import Encoder
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.pooling import (
    PLACEHOLDER,
    MaskTokenPooling,
    MeanPooling,
    Prompt,
    cut_to_fit,
    last_occurrences,
    masked_mean,
)
from stsbench.training.learner import Batch, ContrastiveLearner, Learner, Losses, Rows
from stsbench.training.loop.gather import gather_views
from stsbench.training.loop.on_cpu import Tokens, compute_in_parts, is_unpadded
from stsbench.training.objectives import info_nce, jsd_mutual_information
from stsbench.training.student import PoolerHead, Student, StudentEncoder, save_student


class MaskTemplate:
    """A prompt with one place for a sentence and one mask token, as a student's tokenizer reads it.

    Raises CardError: the tokenizer has no mask token, or the prompt not one of it or of places for
    a sentence.
    """

    def __init__(self, prompt: Prompt, student: Student) -> None:
        """Read the prompt."""
        tokenizer: Any = student.backbone.tokenizer
        mask = tokenizer.mask_token
        if mask is None or prompt.n_copies != 1 or prompt.template.count(mask) != 1:
            raise CardError(
                f"template '{prompt.template}' needs one {PLACEHOLDER} where the sentence goes and one {mask}"
            )
        first, last = (tokenizer(part)["input_ids"] for part in prompt.template.split(PLACEHOLDER))
        self.prompt, self.student = prompt, student
        # One special token stands at each end, as with BERT and RoBERTa.
        self.before, self.own = len(first) - 1, [*first[:-1], *last[1:]]
        self.size = len(self.own)
        """Tokens without a sentence, special ones included."""

    def tokens(self, sentences: Sequence[str]) -> TokenIds:
        """The token ids of sentences in the template; one that is too long is cut, never the template."""
        cut = cut_to_fit(
            self.student.backbone.tokenizer, self.prompt, sentences, self.student.max_length
        )
        return self.student.tokenize(self.prompt.wrap(cut))

    def alone(self, lengths: torch.Tensor) -> Tokens:
        """The template without a sentence, at the positions that it has around sentences of so many tokens (k,): (k, t)."""
        ids = torch.tensor(self.own, device=lengths.device).repeat(len(lengths), 1)
        mask = torch.ones_like(ids)
        positions = self.student.backbone.positions(mask).clone()
        positions[:, self.before :] += lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


class PromptBERT(ContrastiveLearner):
    """In-batch contrast of a sentence in two templates, with what each template says by itself taken off."""

    template: str = 'This sentence of "{}" means [MASK] .'
    """Around anchors, and around every sentence in tests."""
    second_template: str = 'This sentence : "{}" means [MASK] .'
    """Around positives; the same one leaves dropout alone to tell the views apart."""
    temperature: PositiveFloat = 0.05
    denoise: bool = True
    """Take off the embedding that a template has without a sentence, at the positions it has around it."""
    head: bool = True
    """The contrast is under a linear layer and tanh, which is dropped afterwards."""
    add_full_stop: bool = True
    """In tests, put a full stop after a sentence that has none; never in training."""
    validation: Literal["as_tests", "released"] = "as_tests"
    """How weights are chosen: as tests embed, or as in the released code, denoised and without the full stop."""

    def __post_init__(self) -> None:
        self.student.require_pooling("mask", "PromptBERT embeds by the mask token of its templates")
        prompts = [Prompt(template=text) for text in (self.template, self.second_template)]
        self.templates = [MaskTemplate(prompt, self.student) for prompt in prompts]
        self.tested = replace(prompts[0], add_full_stop=self.add_full_stop)
        self.projector = PoolerHead(self.student.model) if self.head else torch.nn.Identity()
        self.projector.to(self.student.device)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences in the first template above those in the second."""
        tokens = TokenIds.join(
            [template.tokens(self.texts_of(rows)) for template in self.templates]
        )
        return {"views": self.student.collate(tokens, np.arange(len(tokens)))}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrastive loss over the sentences of all ranks."""
        views = self.at_mask(batch["views"]).chunk(2)
        masks = batch["views"]["attention_mask"].chunk(2)
        if self.denoise:
            views = tuple(map(self.denoised, views, masks, self.templates))
        anchor, positive = (gather_views(self.projector(view)) for view in views)
        return {"loss": info_nce(anchor, positive, temperature=self.temperature)}

    def at_mask(self, tokens: Tokens) -> torch.Tensor:
        """The last layer's state of each row's mask token, (b, h)."""
        mask = self.student.backbone.tokenizer.mask_token_id

        def embed(part: Tokens) -> torch.Tensor:
            states = self.student.hidden_states(part, (-1,))
            return MaskTokenPooling().pool(
                states, part["attention_mask"], last_occurrences(part["input_ids"], mask)
            )

        chunk = self.student.chunk if torch.is_grad_enabled() else None
        return compute_in_parts(
            tokens, embed, chunk=chunk, unpadded=is_unpadded(self.student.model)
        )

    def denoised(
        self, embeddings: torch.Tensor, mask: torch.Tensor, template: MaskTemplate
    ) -> torch.Tensor:
        """Embeddings (b, h) less the template's own; sentences of one length have that in common, with its dropout."""
        own = mask.sum(dim=1) - template.size
        lengths, which = own.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return embeddings - self.at_mask(template.alone(lengths))[which]

    def encoders(self) -> list[Encoder]:
        """The student in its first template."""
        first, as_tests = self.templates[0], self.validation == "as_tests"

        def embed(tokens: Tokens) -> torch.Tensor:
            states = self.at_mask(tokens)
            return states if as_tests else self.denoised(states, tokens["attention_mask"], first)

        return [
            StudentEncoder(
                self.student,
                embed_batch=embed,
                apply_template=(self.tested if as_tests else first.prompt).wrap,
            )
        ]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the transformer, and the template that sentences are embedded in."""
        save_student(self.student, folder, prompt=self.tested)


class ISBERT(Learner):
    """A student with convolutions between its last layer and its mean, taught to share information with their own sentence.

    They stay at test time. Zhang et al. 2020, https://aclanthology.org/2020.emnlp-main.124. Each
    process of several takes negatives from its own sentences alone.
    """

    batch_negatives = "own"
    widths: tuple[int, ...] = (1, 3, 5)
    """Of the convolutions, in tokens."""
    channels: int | None = None
    """Of each; default a third of the transformer's size, or as many as there are widths."""
    activation: Literal["none", "relu"] = "none"
    """After them: ``none`` as released, ``relu`` as in the paper."""
    mask_padding: bool = True
    """Convolutions see zeros at padding, as beyond a sentence's ends. Without, they see the states of padding while training,
    as in the released code: the loss then depends on how wide a batch is. At test time padding is
    always masked."""

    def __post_init__(self) -> None:
        from sentence_transformers.sentence_transformer.modules import CNN

        student = self.student
        if wrong := [width for width in self.widths if width < 1 or width % 2 == 0]:
            raise CardError(
                f"widths: {wrong[0]} is not odd; a state for each token needs odd widths"
            )
        student.require_pooling("mean", "IS-BERT averages the convolutions' output")
        channels = self.channels or student.backbone.width // len(self.widths)
        self.cnn = CNN(student.backbone.width, out_channels=channels, kernel_sizes=self.widths).to(
            student.device
        )
        self.activate = torch.nn.ReLU() if self.activation == "relu" else torch.nn.Identity()

    def local_states(self, tokens: Tokens, *, mask_padding: bool = True) -> torch.Tensor:
        """The convolutions' output for each token, (b, t, channels * widths)."""
        layers = MeanPooling().layer_indices(self.student.backbone.depth)
        (states,) = self.student.hidden_states(tokens, layers, padding=not mask_padding)
        if mask_padding:
            states = states * tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        activated: torch.Tensor = self.activate(
            self.cnn({"token_embeddings": states})["token_embeddings"]
        )
        return activated

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Minus the estimate of the mutual information of tokens and sentences."""
        tokens = batch["views"]
        local = self.local_states(tokens, mask_padding=self.mask_padding)
        pooled = masked_mean(local, tokens["attention_mask"])
        return {"loss": jsd_mutual_information(local, tokens["attention_mask"], pooled)}

    def encoders(self) -> list[Encoder]:
        """The student with its convolutions."""

        def embed(tokens: Tokens) -> torch.Tensor:
            return masked_mean(self.local_states(tokens), tokens["attention_mask"])

        return [
            StudentEncoder(
                self.student, embed_batch=embed, width=int(self.cnn.get_embedding_dimension())
            )
        ]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the transformer, the convolutions and the mean as modules of sentence-transformers.

        Two modules stand for what that library's convolutions lack: weights of 1 that leave padding
        out, and for an activation a layer that passes on what it is given.
        """
        from sentence_transformers.sentence_transformer.modules import Dense, WordWeights

        size = self.student.model.get_input_embeddings().num_embeddings
        between: list[Any] = [WordWeights([str(number) for number in range(size)], {}), self.cnn]
        if self.activation != "none":
            width = self.cnn.get_embedding_dimension()
            options = {"activation_function": self.activate, "init_weight": torch.eye(width)}
            between.append(
                Dense(width, width, bias=False, module_input_name="token_embeddings", **options)
            )
        save_student(self.student, folder, between)
