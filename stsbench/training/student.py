"""The student: a transformer with tokenizer and pooling in training, and its start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any, cast

import numpy as np
import torch
import transformers
from torch.utils.hooks import RemovableHandle

from stsbench.core.cards import BaseSection, StudentSection
from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.backends import open_device
from stsbench.encoders.base import FloatArray
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.encoders.engine.embed import embed_all
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.backbone import Backbone, load_model, load_tokenizer
from stsbench.encoders.transformer.flat import (
    attach_cpu_masks,
    evaluation_mode,
    layout_of,
    omits_padding,
    padding_computed,
)
from stsbench.encoders.transformer.pooling import POOLINGS, FirstTokenPooling, Pooling
from stsbench.numbers.statistics import IntArray
from stsbench.training.loop.on_cpu import Tokens, compute_in_parts

DROPOUT_FIELD = re.compile(
    r"(?!classifier|summary|pooler|qa|seq_classif)\w*(dropout(_prob|_rate)?|pdrop)"
)
"""The names of the dropouts of a model's body in configurations: BERT's ``hidden_dropout_prob``,
GPT-2's ``resid_pdrop``, ModernBERT's ``mlp_dropout``. Dropouts of heads for other tasks do not
match."""
Transform = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function from embedding output (b, t, h) and mask (b, t) to the input of the first layer."""


def dropouts(config: Mapping[str, Any]) -> dict[str, float]:
    """Return the dropout rates of a model's body by name, from its configuration.

    Dropouts of heads for other tasks are omitted.
    """
    values_by_name = {
        name: value for name, value in config.items() if DROPOUT_FIELD.fullmatch(name)
    }
    return {
        name: float(value)
        for name, value in values_by_name.items()
        # Not a bool, which is an int too.
        if type(value) in (int, float)
    }


def _replaced_config_fields(
    checkpoint: Checkpoint, dropout: float | None, layers: int | None
) -> dict[str, float]:
    """Return the fields of a checkpoint's configuration that get new values.

    Args:
        checkpoint: The checkpoint.
        dropout: The rate of every dropout; None to keep them.
        layers: The number of layers; None to keep all.

    Raises:
        EncoderError: The configuration names no dropout, or has too few layers.
    """
    config = checkpoint.config()
    settings: dict[str, float] = {}
    if dropout is not None:
        dropout_names = dropouts(config)
        if not dropout_names:
            examples = "hidden_dropout_prob, attention_dropout and the like"
            raise EncoderError(
                f"{checkpoint.folder}/config.json: names no dropout ({examples}) to replace"
            )
        settings |= dict.fromkeys(dropout_names, dropout)
    if layers is not None:
        # Different architectures name the number of layers differently.
        name = next((field for field in ("num_hidden_layers", "n_layers") if field in config), None)
        if name is None or not 1 <= layers <= config[name]:
            problem = "says not how many" if name is None else f"has {config[name]}"
            raise EncoderError(
                f"{checkpoint.folder}: cannot keep {layers} layers, its configuration {problem}"
            )
        settings[name] = layers
    return settings


def fresh_layers(model: Any, *widths: int, bias: bool = True) -> list[torch.nn.Linear]:  # noqa: ANN401
    """Make linear layers between these widths, with weights drawn as a transformer's are.

    Args:
        model: The transformer, whose ``initializer_range`` is the standard deviation (0.02 if it
            has none).
        widths: The sizes before, between and behind the layers: three make two layers.
        bias: Whether the layers have biases, which begin at zero.
    """
    layers = [torch.nn.Linear(*pair, bias=bias) for pair in zip(widths, widths[1:], strict=False)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight, std=getattr(model.config, "initializer_range", 0.02))
        if bias:
            torch.nn.init.zeros_(layer.bias)
    return layers


def _parse_poolings(section: StudentSection, validation_pooling: str) -> list[Pooling]:
    """Return the poolings of training, tests and validation, in this order.

    Args:
        section: The recipe's section of the student; tests use the pooling of training if it names
            no other.
        validation_pooling: The pooling of validation; empty for that of tests.

    Raises:
        CardError: A student cannot be trained under one of them.
    """
    test_pooling = section.test_pooling or section.pooling
    names = (section.pooling, test_pooling, validation_pooling or test_pooling)
    poolings = [Pooling.parse(name) for name in names]
    for pooling in poolings:
        # A saved student needs a pooling that sentence-transformers has, or that of a mask token.
        if not pooling.library and not pooling.pools_mask_token:
            known_names = [kind.name for kind in POOLINGS.values() if kind.library]
            raise CardError(
                f"pooling '{pooling}' cannot be trained under; "
                f"choose one of {', '.join(known_names)}"
            )
    return poolings


def _choose_max_length(requested: int | None, limit: int | None) -> int | None:
    """Return the number of tokens at which inputs are cut: the requested one, or else the limit.

    Args:
        requested: The recipe's maximum length; None for the checkpoint's limit.
        limit: The longest input of the checkpoint's model; None if it has no limit.

    Raises:
        CardError: The requested length is above the limit, or below 3: two special tokens and one.
    """
    if requested is not None and not 3 <= requested <= (limit or requested):
        raise CardError(
            f"max_length {requested}: give 3 to {limit or 'any number'}, the checkpoint's limit"
        )
    return requested or limit


class PoolerHead(torch.nn.Module):
    """A linear layer and tanh over the first token: BERT's pooler, SimCSE's MLP."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - transformers is untyped
        """Draw a head for a transformer.

        Args:
            model: The transformer, for its size and the distribution of its weights.
        """
        super().__init__()
        (self.linear,) = fresh_layers(model, model.config.hidden_size, model.config.hidden_size)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Apply the head to the states (b, h) of first tokens; the result is (b, h) too."""
        return torch.tanh(self.linear(state))


class Student(torch.nn.Module):
    """A backbone with the pooling of training and the pooling of tests.

    Pooling ``cls`` uses a head of the student, a linear layer and tanh (SimCSE's MLP, section 6.3
    of arXiv 2104.08821); when saved, it is the transformer's pooler.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        section: StudentSection = StudentSection(),  # noqa: B008 - nothing changes it
        start: BaseSection = BaseSection(),  # noqa: B008
        *,
        validation_pooling: str = "",
        language_model: bool = False,
        device: str = "auto",
    ) -> None:
        """Load the model to be trained, with its tokenizer, poolings and head.

        Args:
            checkpoint: The checkpoint to start from, or whose configuration to start from.
            section: The pooling, dropout, head and maximum length. The dropout replaces every
                dropout of the configuration; the head is that of ``cls``, fresh or the checkpoint's
                pooler. Inputs are cut at the maximum length in tokens, special tokens included.
            start: Whether to start from fresh weights, and the number of layers.
            validation_pooling: The pooling by which weights are selected; by default that of tests.
            language_model: Load the checkpoint's masked language model head too.
            device: The device to compute on; ``auto`` chooses one.

        Raises:
            CardError: The maximum length or a pooling is not possible.
            EncoderError: The checkpoint lacks something that is requested.
        """
        super().__init__()
        self.checkpoint = checkpoint
        self.max_length = _choose_max_length(section.max_length, limit=checkpoint.max_length())
        """The number of tokens at which inputs are cut, special tokens included; None for none."""
        self.poolings = _parse_poolings(section, validation_pooling)
        self.pooling, self.test_pooling, self.validation_pooling = self.poolings
        self.chunk: int | None = None
        """The number of texts that go through the model at a time in training; None for the whole
        batch."""
        self.compiled = False
        """Whether the model is compiled."""
        torch_device = open_device(device)
        config_fields = _replaced_config_fields(checkpoint, section.dropout, start.layers)
        # ``missing`` are the names of the weights that the checkpoint lacks.
        loaded_model, missing = self._load_start_model(config_fields, start, language_model)
        self.language_model = loaded_model.to(torch_device) if language_model else None
        self.model: Any = loaded_model.base_model.to(torch_device)
        self.backbone = Backbone(load_tokenizer(checkpoint), self.model, torch_device)
        self.head: PoolerHead | None = None
        if any(pooling.through_head for pooling in self.poolings):
            self.head = self._make_head(missing, fresh=section.head == "fresh").to(torch_device)
        for pooling in self.poolings:
            # Raises if the model has too few layers.
            pooling.layer_indices(self.backbone.depth)
        # A pooler that is no part of the head is not trained, and other ranks would wait for its
        # gradient.
        if getattr(self.model, "pooler", None) is not None:
            self.model.pooler = None

    def _load_start_model(
        self, settings: Mapping[str, float], start: BaseSection, language_model: bool
    ) -> tuple[Any, list[str]]:
        """Load or make the model to start from, on the CPU.

        Args:
            settings: The fields of the configuration that are replaced.
            start: The recipe's section ``[base]``: ``from_scratch`` starts from fresh weights,
                ``fresh_language_head`` from the checkpoint's with a fresh language model head.
            language_model: Load a masked language model, not the transformer alone.

        Returns:
            The model, and the names of its weights that the checkpoint lacks, which are fresh; no
            names for a model from scratch.

        Raises:
            EncoderError: The checkpoint lacks a weight that may not be fresh: any but those of a
                pooler and, on request, of the language model head.
        """
        folder = self.checkpoint.folder
        model_class: Any = (
            transformers.AutoModelForMaskedLM if language_model else transformers.AutoModel
        )
        if start.from_scratch:
            options = {"local_files_only": True, "trust_remote_code": False, **settings}
            config = transformers.AutoConfig.from_pretrained(str(folder), **options)
            return model_class.from_config(config), []
        loaded_model, missing = load_model(
            model_class, self.checkpoint, dtype="float32", **settings
        )
        # Only weights with this prefix must be in the checkpoint: those of the transformer if its
        # head is fresh, otherwise all.
        required_prefix = ""
        if start.fresh_language_head and language_model:
            required_prefix = f"{loaded_model.base_model_prefix}."
        missing_required = [
            name for name in missing if "pooler" not in name and name.startswith(required_prefix)
        ]
        if missing_required:
            part = "its head as a language model, " if language_model else ""
            raise EncoderError(
                f"{folder}: the weights lack {part}'{missing_required[0]}' "
                f"({len(missing_required)} tensors in all)"
            )
        return loaded_model, missing

    def _make_head(self, missing: Sequence[str], *, fresh: bool) -> PoolerHead:
        """Make the head of pooling ``cls``, fresh or with the weights of the checkpoint's pooler.

        Args:
            missing: The names of the weights that the checkpoint lacks. With a pooler's among them
                the loaded model's pooler is random, so there is none to start from.
            fresh: Draw the weights of the head, instead of copying those of the pooler.

        Raises:
            EncoderError: The checkpoint has no pooler, or the model has none to save the head as.
        """
        model = self.model
        head = PoolerHead(model)
        if not fresh:
            pooler: Any = getattr(model, "pooler", None)
            if not hasattr(pooler, "dense") or any("pooler" in key for key in missing):
                raise EncoderError(
                    f"{self.checkpoint.folder}: has no pooler to start from; use head = 'fresh'"
                )
            head.linear.load_state_dict(pooler.dense.state_dict())
        if self.test_pooling.through_head:
            # A model without memory for weights, made only to see whether its class has a pooler.
            with torch.device("meta"):
                plain_model: Any = transformers.AutoModel.from_config(model.config)
            if not hasattr(getattr(plain_model, "pooler", None), "dense"):
                problem = (
                    f"pooling 'cls': {type(plain_model).__name__} has no pooler to save the head as"
                )
                raise EncoderError(
                    f"{problem}; use it in training alone, with test_pooling = 'cls_before_pooler'"
                )
        return head

    def require_pooling(self, name: str, reason: str) -> None:
        """Check that training, validation and tests all use the pooling that a method needs.

        Args:
            name: The pooling, for example ``mask``.
            reason: Why the method needs it, the begin of the message.

        Raises:
            CardError: One of the poolings differs.
        """
        for pooling in self.poolings:
            if str(pooling) != name:
                raise CardError(f"{reason}: each pooling must be '{name}'")

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return cast(torch.device, next(self.model.parameters()).device)

    def tokenize(self, texts: Sequence[str], *, max_length: int | None = None) -> TokenIds:
        """Return the token ids of each text, special tokens included."""
        return self.backbone.tokenize(texts, max_length=max_length or self.max_length)

    def collate(self, tokens: TokenIds, rows: IntArray) -> dict[str, torch.Tensor]:
        """Return the model inputs (b, t) of some tokenised texts, on the CPU.

        They are padded on the right.

        Args:
            tokens: The token ids of all texts.
            rows: The texts of the batch, (b,).
        """
        ids, mask = tokens.pad(rows, pad_token=self.backbone.pad_token)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def compute_in_parts(
        self,
        tokens: Tokens,
        compute: Callable[[Tokens], torch.Tensor],
        model: Any = None,  # noqa: ANN401
    ) -> torch.Tensor:  # noqa: ANN401
        """Compute a row of results for each row of a batch, in parts or in chunks.

        Parts have rows of similar length, see
        :func:`stsbench.training.loop.on_cpu.compute_in_parts`; chunks have the student's size.

        Args:
            tokens: The batch; all tensors, (b, t) each, are cut to the part.
            compute: Computes the results (b', …) of a part (b', t').
            model: The model that it runs; if that computes no padding, the batch is not cut into
                parts of similar length. None for any other.
        """
        return compute_in_parts(
            tokens, compute, chunk=self.chunk, unpadded=model is not None and omits_padding(model)
        )

    def embed(
        self,
        tokens: Tokens,
        *,
        transform: Transform | None = None,
        pooling: Pooling | None = None,
        generator: torch.Generator | None = None,
        dropout: bool = True,
    ) -> torch.Tensor:
        """Embed a batch, in parts if that saves computing or memory; the results stay the same.

        On a CPU the batch is run without its padding, or in parts of similar length, so that little
        of it is padding. While gradients are computed it is also run in chunks of ``chunk`` texts.

        Args:
            tokens: The model inputs, (b, t) each.
            transform: A change of the embedding output; it may draw from ``generator``.
            pooling: The pooling, by default that of training.
            generator: The generator of the transform's draws, whose state chunks must restore.
            dropout: False to compute without dropout even in training.

        Returns:
            The embeddings (b, h).
        """

        def embed_part(part: Tokens) -> torch.Tensor:
            with nullcontext() if dropout else evaluation_mode(self):
                states = self.hidden_states(part, self.layers(pooling), transform=transform)
                return self.pool_states(states, part["attention_mask"], pooling)

        chunk = self.chunk if torch.is_grad_enabled() else None
        return compute_in_parts(
            tokens, embed_part, chunk=chunk, generator=generator, unpadded=omits_padding(self.model)
        )

    def layers(self, pooling: Pooling | None = None) -> tuple[int, ...]:
        """Return the indices of the hidden states that a pooling uses.

        Without a pooling it is that of training.
        """
        return (pooling or self.pooling).layer_indices(self.backbone.depth)

    def pool_states(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor, pooling: Pooling | None = None
    ) -> torch.Tensor:
        """Pool hidden states into embeddings (b, h).

        Args:
            states: The hidden states (b, t, h) of each layer that :meth:`layers` names.
            mask: 1 at tokens and 0 at padding, (b, t).
            pooling: The pooling, by default that of training.
        """
        pooling = pooling or self.pooling
        if self.head is None or not pooling.through_head:
            return pooling.pool(states, mask)
        # The head is applied to the first token of the last layer.
        embeddings: torch.Tensor = self.head(FirstTokenPooling().pool(states, mask))
        return embeddings

    def hidden_states(
        self,
        tokens: Tokens,
        layers: Sequence[int],
        *,
        transform: Transform | None = None,
        padding: bool = False,
    ) -> list[torch.Tensor]:
        """Compute the hidden states (b, t, h) of some layers.

        Args:
            tokens: The model inputs, (b, t) each.
            layers: The indices of the hidden states; 0 is the embedding output.
            transform: A change of the embedding output before the first layer.
            padding: Compute the states at padding too; otherwise they may have any value.
        """
        if transform is None and not padding:
            return self.backbone.hidden_states(tokens, layers)
        with ExitStack() as contexts:
            if transform is not None:
                # Applies the transform until the end of the block.
                contexts.enter_context(self._embedding_hook(transform, tokens["attention_mask"]))
            if padding:
                contexts.enter_context(padding_computed(self.model))
            return self.backbone.padded_states(tokens, layers)

    def _embedding_hook(self, transform: Transform, mask: torch.Tensor) -> RemovableHandle:
        """Register a hook that transforms the embedding output of every forward pass.

        Args:
            transform: Changes the embedding output (b, t, h), given the mask.
            mask: 1 at tokens and 0 at padding, (b, t).

        Raises:
            CardError: The model is compiled, and would not call the hook.
            EncoderError: The model has no module of embeddings.
        """
        if self.compiled:
            raise CardError(
                "[training] compile: the method changes what is computed within the model; "
                "leave it out"
            )
        embeddings = getattr(self.model, "embeddings", None)
        if embeddings is None:
            raise EncoderError(
                f"{type(self.model).__name__} has no module 'embeddings' to change the output of"
            )

        def change_output(
            module: torch.nn.Module,
            inputs: Any,  # noqa: ANN401
            output: torch.Tensor,
        ) -> torch.Tensor:
            layout = layout_of(self.model)
            if layout is None:
                return transform(output, mask)
            # Without padding the output is one row of all tokens; the transform needs a row per
            # sentence.
            return layout.remove_padding(transform(layout.restore_padding(output), mask))

        handle: RemovableHandle = embeddings.register_forward_hook(change_output)
        return handle

    def encoder(self, name: str = "student") -> StudentEncoder:
        """Return the student as an encoder for validation, with its current weights."""
        return StudentEncoder(self, name)


class StudentEncoder:
    """A student as an encoder: evaluation mode, the pooling of validation, no gradients."""

    fingerprint: str | None = None

    def __init__(
        self,
        student: Student,
        name: str = "student",
        *,
        embed_batch: Callable[[Tokens], torch.Tensor] | None = None,
        width: int | None = None,
        apply_template: Callable[[Sequence[str]], Sequence[str]] = lambda sentences: sentences,
    ) -> None:
        """Store the student; its weights are never copied.

        Args:
            student: The student.
            name: The name of the encoder.
            embed_batch: Embeds a batch (b, t) to (b, width); by default the student with the
                pooling of validation.
            width: The width of the embeddings; by default that of the student.
            apply_template: Puts sentences into a template.
        """
        self.student = student
        self.name = name
        self.width = width or student.backbone.width
        self.apply_template = apply_template
        self.embed_batch = embed_batch or (
            lambda tokens: student.embed(tokens, pooling=student.validation_pooling)
        )

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        if not len(sentences):
            return np.zeros((0, self.width), dtype=np.float32)
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""
        # Training may cut a text; a test sentence is embedded whole.
        return self.student.tokenize(
            self.apply_template(sentences), max_length=self.student.checkpoint.max_length()
        )

    def embed_tokens(self, tokens: TokenIds, rows: IntArray) -> FloatArray:
        """Return the embeddings (b, d) of some tokenised sentences as one batch.

        Args:
            tokens: The token ids of all sentences.
            rows: The sentences of the batch, (b,).
        """
        student = self.student
        with evaluation_mode(student), torch.inference_mode():
            host_batch = student.collate(tokens, rows)
            batch = {name: values.to(student.device) for name, values in host_batch.items()}
            attach_cpu_masks(batch, host_batch)
            embeddings: FloatArray = self.embed_batch(batch).float().cpu().numpy()
        return embeddings
