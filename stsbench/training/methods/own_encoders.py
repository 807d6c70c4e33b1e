"""Methods whose encoder is more than a pooling: templates (PromptBERT), convolutions (IS-BERT).

The templates have a mask token, whose state is the embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from stsbench.core.cards import PositiveFloat, PositiveInt
from stsbench.core.errors import CardError
from stsbench.encoders.base import Encoder
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.flat import omits_padding
from stsbench.encoders.transformer.pooling import (
    MaskTokenPooling,
    MeanPooling,
    last_occurrences,
    masked_mean,
)
from stsbench.encoders.transformer.prompt import PLACEHOLDER, Prompt, cut_to_fit
from stsbench.training.learner import Batch, ContrastiveLearner, Learner, Losses, Rows
from stsbench.training.loop.gather import gather_over_ranks
from stsbench.training.loop.on_cpu import Tokens, compute_in_parts
from stsbench.training.objectives import info_nce, jsd_mutual_information
from stsbench.training.saving import save_student
from stsbench.training.student import PoolerHead, Student, StudentEncoder


class MaskTemplate:
    """A prompt with a placeholder for a sentence and a mask token, tokenised for a student.

    Raises:
        CardError: The tokenizer has no mask token, or the prompt does not have exactly one mask
            token and one placeholder.
    """

    def __init__(self, prompt: Prompt, student: Student) -> None:
        """Tokenise a template in which sentences are embedded by the state of its mask token.

        Args:
            prompt: The template: a text with one placeholder for a sentence and one mask token.
            student: The encoder in training, for its tokenizer and maximum length.

        Raises:
            CardError: The template has another number of placeholders or mask tokens than one, or
                the tokenizer has no mask token.
        """
        tokenizer: Any = student.backbone.tokenizer
        mask = tokenizer.mask_token
        # ``n_copies`` is the number of placeholders.
        if mask is None or prompt.n_copies != 1 or prompt.template.count(mask) != 1:
            raise CardError(
                f"template '{prompt.template}' needs one {PLACEHOLDER} where the sentence goes "
                f"and one {mask}"
            )
        # The token ids of the text before the placeholder, and of the text behind it.
        ids_before, ids_after = (
            tokenizer(text)["input_ids"] for text in prompt.template.split(PLACEHOLDER)
        )
        self.prompt = prompt
        self.student = student
        # The tokenizer puts a special token at both ends of each text, as with BERT and RoBERTa;
        # those next to the placeholder are omitted.
        self.n_before = len(ids_before) - 1
        """The number of tokens before a sentence."""
        self.ids = [*ids_before[:-1], *ids_after[1:]]
        """The token ids of the template without a sentence, special tokens included."""
        self.size = len(self.ids)
        """The number of tokens without a sentence, special tokens included."""

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of sentences in the template, special tokens included.

        A sentence that is too long for the model's maximum length is cut at its end, the template
        never.

        Args:
            sentences: The sentences.
        """
        cut_sentences = cut_to_fit(
            self.student.backbone.tokenizer, self.prompt, sentences, self.student.max_length
        )
        return self.student.tokenize(self.prompt.wrap(cut_sentences))

    def without_sentence(self, lengths: torch.Tensor) -> Tokens:
        """Return the model inputs of the template without a sentence, once for each length.

        The tokens behind the placeholder get the positions that they have behind a sentence of this
        length. So the template's embedding is the part of a sentence's embedding that comes from
        the template, and can be subtracted from it (PromptBERT, arXiv 2201.04337, template
        denoising).

        Args:
            lengths: The lengths of k sentences in tokens, without special tokens, (k,).

        Returns:
            Token ids, mask and position ids by name, (k, t) each, t being the template's length.
        """
        ids = torch.tensor(self.ids, device=lengths.device).repeat(len(lengths), 1)
        mask = torch.ones_like(ids)
        # Those that the model itself gives: from 0, or RoBERTa's from 2.
        positions = self.student.backbone.positions(mask).clone()
        positions[:, self.n_before :] += lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


class PromptBERT(ContrastiveLearner):
    """In-batch contrast of a sentence in two templates, without each template's own embedding."""

    template: str = 'This sentence of "{}" means [MASK] .'
    """The template of anchors, and of every sentence in tests."""
    second_template: str = 'This sentence : "{}" means [MASK] .'
    """The template of positives; if it is the first one, views differ by dropout alone."""
    temperature: PositiveFloat = 0.05
    denoise: bool = True
    """Whether to subtract the embedding that a template has without a sentence, at the positions
    that it has around it."""
    head: bool = True
    """Whether the contrast is under a linear layer and tanh, which is not saved."""
    add_full_stop: bool = True
    """Whether a sentence without a full stop gets one in tests; it never does in training."""
    validation: Literal["as_tests", "released"] = "as_tests"
    """The embeddings by which weights are selected: those of tests, or, as in the released code,
    denoised and without the full stop."""

    def __post_init__(self) -> None:
        """Tokenise PromptBERT's two templates, and make the head between embedding and loss.

        A sentence is embedded in a template, by the state of its mask token. ``test_prompt`` is the
        first template as tests use it, perhaps with a full stop added to sentences.

        Raises:
            CardError: The student has another pooling, or a template lacks its mask token.
        """
        self.student.require_pooling(
            "mask", reason="PromptBERT embeds by the mask token of its templates"
        )
        prompts = [Prompt(template=text) for text in (self.template, self.second_template)]
        self.templates = [MaskTemplate(prompt, self.student) for prompt in prompts]
        self.test_prompt = replace(prompts[0], add_full_stop=self.add_full_stop)
        # A linear layer with fresh weights, and tanh; or no head.
        self.projector = PoolerHead(self.student.model) if self.head else torch.nn.Identity()
        self.projector.to(self.student.device)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch: the sentences in the first template above those in the second."""
        tokens = TokenIds.join(
            [template.tokenize(self.texts_of(rows)) for template in self.templates]
        )
        return {"views": self.student.collate(tokens, np.arange(len(tokens)))}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return PromptBERT's loss as ``loss``: a contrast of each sentence in two templates.

        It is over the sentences of all training processes. With ``denoise`` the embedding of the
        template is subtracted from that of the sentence in it.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of the sentences in the
                first template above those in the second.
        """
        # Of each template the last layer's states of the mask token, (b, h), and the attention
        # masks, (b, t).
        views = self.mask_states(batch["views"]).chunk(2)
        masks = batch["views"]["attention_mask"].chunk(2)
        if self.denoise:
            # `self.templates` holds the two MaskTemplates, in the order of the views.
            views = tuple(map(self.subtract_template, views, masks, self.templates))
        # Of all processes, (p*b, h); gradients flow back to the rows of each.
        anchor, positive = (gather_over_ranks(self.projector(view)) for view in views)
        return {"loss": info_nce(anchor, positive, temperature=self.temperature)}

    def mask_states(self, tokens: Tokens) -> torch.Tensor:
        """Return the last layer's state of each row's mask token, (b, h).

        The batch is computed in parts of similar length, or in chunks to save memory.

        Args:
            tokens: The model inputs, (b, t) each, with one mask token of the template in each row.
        """
        mask_token_id = self.student.backbone.tokenizer.mask_token_id

        def embed(part: Tokens) -> torch.Tensor:
            """Return the states of the mask tokens of some rows, (b', h)."""
            # A list of one array: the last layer's states, (b', t, h).
            states = self.student.hidden_states(part, (-1,))
            # Pool the last mask token of each row, since a sentence may hold one itself: the last
            # argument is bool (b', t'), True there.
            return MaskTokenPooling().pool(
                states, part["attention_mask"], last_occurrences(part["input_ids"], mask_token_id)
            )

        # ``chunk`` is the most rows of a part in training. A model that omits padding itself needs
        # no parts of similar length.
        chunk = self.student.chunk if torch.is_grad_enabled() else None
        return compute_in_parts(
            tokens, embed, chunk=chunk, unpadded=omits_padding(self.student.model)
        )

    def subtract_template(
        self, embeddings: torch.Tensor, mask: torch.Tensor, template: MaskTemplate
    ) -> torch.Tensor:
        """Subtract from sentences' embeddings that of the template without a sentence, (b, h).

        The template's tokens get the positions that they have around the sentence, which depend
        only on the sentence's length. So sentences of one length share the template's embedding:
        it is computed once, with one dropout mask.

        Args:
            embeddings: The embeddings of sentences in the template, (b, h).
            mask: 1 at the tokens of sentence and template, and 0 at padding, (b, t).
            template: The template.
        """
        # ``size`` counts the template's tokens, special ones included.
        sentence_lengths = mask.sum(dim=1) - template.size
        # The distinct lengths, and for each sentence the index of its length among them.
        lengths, length_indices = sentence_lengths.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        template_tokens = template.without_sentence(lengths)
        # The last layer's states of its mask token, one per length, (k, h).
        template_embeddings = self.mask_states(template_tokens)
        return embeddings - template_embeddings[length_indices]

    def encoders(self) -> list[Encoder]:
        """Return the encoder to validate: the student with sentences in the first template.

        The setting ``validation`` decides how. With ``as_tests`` a sentence is embedded as in
        tests, by ``test_prompt``: a full stop may be added. Otherwise, as in PromptBERT's code, the
        template's embedding is subtracted, and no full stop is added to the sentence.

        Returns:
            A list of this one encoder.
        """
        if self.validation == "as_tests":
            encoder = StudentEncoder(
                self.student, embed_batch=self.mask_states, apply_template=self.test_prompt.wrap
            )
            return [encoder]
        first_template = self.templates[0]

        def embed_without_template(tokens: Tokens) -> torch.Tensor:
            states = self.mask_states(tokens)
            return self.subtract_template(states, tokens["attention_mask"], first_template)

        return [
            StudentEncoder(
                self.student,
                embed_batch=embed_without_template,
                apply_template=first_template.prompt.wrap,
            )
        ]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the transformer, and the template that sentences are embedded in."""
        save_student(self.student, folder, prompt=self.test_prompt)


class ISBERT(Learner):
    """A student with convolutions between its last layer and its mean.

    They learn to share information with their own sentence, and are used in tests too. Zhang et al.
    2020, https://aclanthology.org/2020.emnlp-main.124. If several processes train, the negatives of
    each are its own sentences.
    """

    batch_negatives = "own"
    widths: tuple[int, ...] = (1, 3, 5)
    """The widths of the convolutions, in tokens."""
    channels: PositiveInt | None = None
    """The number of channels of each; by default the transformer's size divided by the number of
    widths, so a third."""
    activation: Literal["none", "relu"] = "none"
    """The activation after them: ``none`` as released, ``relu`` as in the paper."""
    mask_padding: bool = True
    """Whether convolutions get zeros at padding, as beyond a sentence's ends. Otherwise they get
    the states of padding in training, as in the released code: the loss then depends on the width
    of a batch. In tests padding is always masked."""

    def __post_init__(self) -> None:
        """Check IS-BERT's settings, and make the convolutions over the states of tokens.

        ``widths`` are the numbers of tokens that a convolution reads, one convolution for each;
        ``channels`` is the number of output channels of each; None for the default.

        Raises:
            CardError: A width is even or below 1, or there is none; or the student has another
                pooling than ``mean``.
        """
        from sentence_transformers.sentence_transformer.modules import CNN

        student = self.student
        if not all(width > 0 and width % 2 for width in self.widths or [0]):
            raise CardError(
                f"widths {list(self.widths)}: a state for each token needs odd widths, at least one"
            )
        student.require_pooling("mean", reason="IS-BERT averages the convolutions' output")
        # By default the convolutions together have about the model's width.
        channels = self.channels or student.backbone.width // len(self.widths)
        self.cnn = CNN(student.backbone.width, out_channels=channels, kernel_sizes=self.widths).to(
            student.device
        )
        self.activate = torch.nn.ReLU() if self.activation == "relu" else torch.nn.Identity()

    def convolve_tokens(self, tokens: Tokens, *, mask_padding: bool = True) -> torch.Tensor:
        """Run the model and the convolutions over its last layer's states, with their activation.

        Args:
            tokens: The model inputs, (b, t) each.
            mask_padding: Set states of padding to zero before the convolutions, which read
                neighbours and so reach beyond the last token.

        Returns:
            The output for each token, (b, t, channels * number of widths).
        """
        layers = MeanPooling().layer_indices(self.student.backbone.depth)  # the last layer
        # Without the mask the convolutions read the states of padding: the model must compute them.
        (states,) = self.student.hidden_states(tokens, layers, padding=not mask_padding)
        if mask_padding:
            states = states * tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        convolved = self.cnn({"token_embeddings": states})["token_embeddings"]
        activated: torch.Tensor = self.activate(convolved)
        return activated

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return minus the estimated mutual information of tokens and sentences."""
        tokens = batch["views"]
        local = self.convolve_tokens(tokens, mask_padding=self.mask_padding)
        pooled = masked_mean(local, tokens["attention_mask"])
        return {"loss": jsd_mutual_information(local, tokens["attention_mask"], pooled)}

    def encoders(self) -> list[Encoder]:
        """Return the encoder to validate: the student with its convolutions.

        The mean of the convolutions' output over tokens is the embedding.

        Returns:
            A list of this one encoder.
        """

        def embed_by_mean(tokens: Tokens) -> torch.Tensor:
            """Return the embeddings of a batch, (b, channels * number of widths)."""
            return masked_mean(self.convolve_tokens(tokens), tokens["attention_mask"])

        return [
            StudentEncoder(
                self.student,
                embed_batch=embed_by_mean,
                width=int(self.cnn.get_embedding_dimension()),
            )
        ]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the trained encoder as modules of sentence-transformers.

        They are the transformer, the convolutions and a mean over tokens. Two further modules do
        what the library's convolutions cannot: one before them sets the states of padding to zero;
        one behind them applies the activation, if there is one, as a dense layer whose weights are
        the identity.

        Args:
            folder: The folder to write.
            chosen: Not used; it is the index of the encoder to write, and there is only one.
        """
        from sentence_transformers.sentence_transformer.modules import Dense, WordWeights

        n_tokens = self.student.model.get_input_embeddings().num_embeddings
        # ``WordWeights`` multiplies the state of each token by its word's weight, and padding by 0.
        # No word has a weight of its own (the empty dict), so all tokens get the default of 1.
        vocabulary = [str(token_id) for token_id in range(n_tokens)]
        middle_modules: list[Any] = [WordWeights(vocabulary, {}), self.cnn]
        if self.activation != "none":
            width = self.cnn.get_embedding_dimension()
            options = {"activation_function": self.activate, "init_weight": torch.eye(width)}
            middle_modules.append(
                Dense(width, width, bias=False, module_input_name="token_embeddings", **options)
            )
        save_student(self.student, folder, middle_modules)
