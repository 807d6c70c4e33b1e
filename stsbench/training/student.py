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
from stsbench.encoders.transformer.pooling import (
    FirstTokenPooling,
    Pooling,
    parse_training_poolings,
)
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


def dropout_rates(config: Mapping[str, Any]) -> dict[str, float]:
    """Return the dropout rates of a transformer by name, from its configuration.

    Their names end with ``dropout``, ``dropout_prob``, ``dropout_rate`` or ``pdrop``. Those of the
    pooler and of heads for other tasks, such as a classifier, are omitted.

    Args:
        config: The fields of a configuration of transformers by name.
    """
    values_by_name = {
        name: value for name, value in config.items() if DROPOUT_FIELD.fullmatch(name)
    }
    return {
        name: float(value)
        for name, value in values_by_name.items()
        # Numbers only; ``isinstance`` would let True and False pass as int.
        if type(value) in (int, float)
    }


def _replaced_config_fields(
    checkpoint: Checkpoint, dropout: float | None, layers: int | None
) -> dict[str, float]:
    """Return the fields of a checkpoint's configuration to replace, with their new values.

    Args:
        checkpoint: The checkpoint.
        dropout: The new rate of every dropout; None to keep their rates.
        layers: The new number of layers; None to keep all.

    Returns:
        The new value by the name of the field; empty if nothing is replaced.

    Raises:
        EncoderError: The configuration names no dropout, or has too few layers.
    """
    config = checkpoint.config()
    new_values: dict[str, float] = {}
    if dropout is not None:
        dropout_names = list(dropout_rates(config))
        if not dropout_names:
            examples = "hidden_dropout_prob, attention_dropout and the like"
            raise EncoderError(
                f"{checkpoint.folder}/config.json: names no dropout ({examples}) to replace"
            )
        new_values |= dict.fromkeys(dropout_names, dropout)
    if layers is not None:
        # Different architectures name the number of layers differently.
        name = next((field for field in ("num_hidden_layers", "n_layers") if field in config), None)
        if name is None or not 1 <= layers <= config[name]:
            problem = "says not how many" if name is None else f"has {config[name]}"
            raise EncoderError(
                f"{checkpoint.folder}: cannot keep {layers} layers, its configuration {problem}"
            )
        new_values[name] = layers
    return new_values


def fresh_layers(model: Any, *widths: int, bias: bool = True) -> list[torch.nn.Linear]:  # noqa: ANN401
    """Make consecutive linear layers whose weights are drawn as those of a new transformer are.

    Args:
        model: The transformer. The ``initializer_range`` of its configuration is the standard
            deviation of the weights; 0.02 if it has none.
        widths: The dimensions before, between and behind the layers: three make two layers.
        bias: Whether the layers have biases, which begin at zero.
    """
    input_and_output_widths = zip(widths, widths[1:], strict=False)
    layers = [torch.nn.Linear(*pair, bias=bias) for pair in input_and_output_widths]
    for layer in layers:
        torch.nn.init.normal_(layer.weight, std=getattr(model.config, "initializer_range", 0.02))
        if bias:
            torch.nn.init.zeros_(layer.bias)
    return layers


def _choose_max_length(requested: int | None, limit: int | None) -> int | None:
    """Return the number of tokens at which inputs are cut: the requested one, or else the limit.

    Args:
        requested: The recipe's maximum length in tokens; None for the checkpoint's limit.
        limit: The longest input of the checkpoint's model in tokens; None if it has no limit.

    Returns:
        The number of tokens, special tokens included; None if inputs are not cut.

    Raises:
        CardError: The requested length is above the limit, or below 3: two special tokens and one.
    """
    if requested is None:
        return limit
    is_above_limit = limit is not None and requested > limit
    if requested < 3 or is_above_limit:
        raise CardError(
            f"max_length {requested}: give 3 to {limit or 'any number'}, the checkpoint's limit"
        )
    return requested


class PoolerHead(torch.nn.Module):
    """A linear layer and tanh over the first token: BERT's pooler, SimCSE's MLP."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - transformers is untyped
        """Make the linear layer of the head, with random weights.

        The head is applied to the hidden state of a sentence's first token.

        Args:
            model: The transformer: the layer has the dimensions of its hidden states, and weights
                drawn as a new transformer's are.
        """
        super().__init__()
        # A list of one layer.
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
            checkpoint: The checkpoint to start from; for fresh weights only its configuration and
                tokenizer are used.
            section: The recipe's section about the encoder: pooling, dropout, head and maximum
                length. The dropout replaces every dropout of the configuration. The head belongs to
                pooling ``cls``: fresh, or with the weights of the checkpoint's pooler.
            start: The recipe's section ``[base]``: whether to start from fresh weights, and the
                number of layers.
            validation_pooling: The name of the pooling for the validation by which weights are
                selected; by default that of tests.
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
        self.poolings = parse_training_poolings(section, validation_pooling)
        # That of training is called ``pooling``.
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
        # The transformer without the head of the language model.
        self.model: Any = loaded_model.base_model.to(torch_device)
        self.backbone = Backbone(load_tokenizer(checkpoint), self.model, torch_device)
        self.head: PoolerHead | None = None
        # ``through_head`` is true of pooling ``cls`` alone.
        if any(pooling.through_head for pooling in self.poolings):
            self.head = self._make_head(missing, fresh=section.head == "fresh").to(torch_device)
        for pooling in self.poolings:
            # Only a check: it raises if the model has too few layers for the pooling.
            pooling.layer_indices(self.backbone.depth)
        # The transformer's own pooler is not trained: the head, if any, has copied its weights. If
        # several processes train, the others would wait for its gradient.
        if getattr(self.model, "pooler", None) is not None:
            self.model.pooler = None

    def _load_start_model(
        self, settings: Mapping[str, float], start: BaseSection, language_model: bool
    ) -> tuple[Any, list[str]]:
        """Load or make the model to start training from, on the CPU.

        Args:
            settings: The fields of the configuration to replace, with their new values.
            start: The recipe's section ``[base]``. With ``from_scratch`` all weights are fresh;
                with ``fresh_language_head`` only those of the language model head may be.
            language_model: Load a masked language model, not the transformer alone.

        Returns:
            The model, and the names of its weights that the checkpoint lacks, which are fresh; no
            names for a model from scratch.

        Raises:
            EncoderError: The checkpoint lacks a weight that may not be fresh: any but those of a
                pooler and, on request, of the language model head.
        """
        folder = self.checkpoint.folder
        model_class: Any = transformers.AutoModel
        if language_model:
            model_class = transformers.AutoModelForMaskedLM
        if start.from_scratch:
            options = {"local_files_only": True, "trust_remote_code": False, **settings}
            config = transformers.AutoConfig.from_pretrained(str(folder), **options)
            return model_class.from_config(config), []
        loaded_model, missing = load_model(
            model_class, self.checkpoint, dtype="float32", **settings
        )
        # Weights whose names begin so must be in the checkpoint: by default all; if the language
        # model head may be fresh, only those of the transformer.
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
        """Make the head of pooling ``cls``: a linear layer over the state of the first token.

        BERT has such a layer, called its pooler. A trained head is saved as the pooler.

        Args:
            missing: The names of the weights that the checkpoint lacks. If a pooler's are among
                them, the pooler of the loaded model has random weights and is not used.
            fresh: Draw the weights of the head, instead of copying those of the pooler.

        Raises:
            EncoderError: The checkpoint has no pooler to copy, or its architecture has none as
                which the head could be saved.
        """
        model = self.model
        head = PoolerHead(model)
        if not fresh:
            pooler: Any = getattr(model, "pooler", None)
            is_random = any("pooler" in weight_name for weight_name in missing)
            # ``dense`` is the linear layer of a pooler.
            if not hasattr(pooler, "dense") or is_random:
                raise EncoderError(
                    f"{self.checkpoint.folder}: has no pooler to start from; use head = 'fresh'"
                )
            head.linear.load_state_dict(pooler.dense.state_dict())
        if self.test_pooling.through_head:
            # A model without memory for weights, made only to see whether its class has a pooler:
            # ``model`` may have lost its own.
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
            name: The name of the pooling, for example ``mask``.
            reason: Why the method needs it; the error message begins with this.

        Raises:
            CardError: One of the poolings differs.
        """
        # The poolings of training, tests and validation, in this order.
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
        """Make a batch of some tokenised texts: model inputs on the CPU, padded on the right.

        Args:
            tokens: The token ids of all texts.
            rows: The indices of the texts of the batch, (b,).

        Returns:
            ``input_ids`` and ``attention_mask`` by name, (b, t) each.
        """
        ids, mask = tokens.pad(rows, pad_token=self.backbone.pad_token)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def compute_in_parts(
        self,
        tokens: Tokens,
        compute: Callable[[Tokens], torch.Tensor],
        model: Any = None,  # noqa: ANN401
    ) -> torch.Tensor:  # noqa: ANN401
        """Compute a row of results for each row of a batch, part by part.

        On a CPU rows of similar length make a part, to compute little padding; on a GPU all rows
        are one part. If ``self.chunk`` is set, a part has at most so many rows, to save memory.

        Args:
            tokens: The batch: tensors by name, (b, t) each.
            compute: A function from a part of the batch, (b', t') each, to its results (b', …).
            model: The model that ``compute`` runs: if it computes no padding anyway, the batch is
                not divided by length. None if that is unknown.

        Returns:
            The results in the order of the batch, (b, …).
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
        """Embed a batch of texts, part by part if that saves time or memory.

        On a CPU the batch is run without its padding, or in parts of similar length. While
        gradients are computed, a part has at most ``self.chunk`` texts, if that is set. The results
        are the same as for the whole batch.

        Args:
            tokens: The model inputs by name, (b, t) each.
            transform: A change of the embedding output, the input of the first layer: a function
                of it (b, t, h) and of the mask (b, t). It may draw from ``generator``. None for no
                change.
            pooling: How an embedding is made of hidden states; by default as in training.
            generator: The generator that ``transform`` draws from; the backward pass restores its
                state, to compute a part again with the same draws.
            dropout: False to compute without dropout even in training.

        Returns:
            The embeddings (b, h).
        """

        def embed_part(part: Tokens) -> torch.Tensor:
            # ``self.layers``: the indices of the hidden states that the pooling uses.
            # ``evaluation_mode`` is torch's evaluation mode, without dropout, for the block.
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
        """Pool hidden states of tokens into embeddings of sentences, (b, h).

        Args:
            states: The hidden states (b, t, h) of each layer that the pooling uses.
            mask: 1 at tokens and 0 at padding, (b, t).
            pooling: The pooling, by default that of training.
        """
        pooling = pooling or self.pooling
        # ``self.head``: the linear layer and tanh of pooling ``cls``; None if no pooling needs it.
        if self.head is None or not pooling.through_head:
            return pooling.pool(states, mask)
        # Pooling ``cls``: the head is applied to the first token of the last layer.
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
        """Compute the hidden states (b, t, h) of some layers of the model.

        Args:
            tokens: The model inputs by name, (b, t) each.
            layers: The indices of the hidden states; 0 is the embedding output.
            transform: A change of the embedding output before the first layer; None for no change.
            padding: Compute the states at padding too; otherwise they may have any value.

        Returns:
            The states of each of ``layers``.
        """
        if transform is None and not padding:
            return self.backbone.hidden_states(tokens, layers)
        with ExitStack() as contexts:
            if transform is not None:
                # The model applies the transform until the end of the block.
                contexts.enter_context(self._embedding_hook(transform, tokens["attention_mask"]))
            if padding:
                # Within the block the model computes padding too.
                contexts.enter_context(padding_computed(self.model))
            return self.backbone.padded_states(tokens, layers)

    def _embedding_hook(self, transform: Transform, mask: torch.Tensor) -> RemovableHandle:
        """Register a hook in the model that changes the embedding output of every forward pass.

        The embedding output is the input of the model's first layer.

        Args:
            transform: A function from the embedding output (b, t, h) and the mask to the changed
                one.
            mask: 1 at tokens and 0 at padding, (b, t).

        Returns:
            A handle; it is a context manager, at whose end the hook is removed.

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
            """Return the changed output of the model's module of embeddings.

            ``transform``, an argument of the outer function, makes the change.
            """
            # How the tokens of the batch are laid end to end; None if the model computes padding.
            layout = layout_of(self.model)
            if layout is None:
                return transform(output, mask)
            # Without padding the output is one row of all tokens, but the transform needs a row
            # per sentence (b, t, h): so it is spread into rows, and then joined again.
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
        """Make an encoder of a model in training; it shares the weights, which are never copied.

        Args:
            student: The model in training with its tokenizer and poolings.
            name: The name of the encoder.
            embed_batch: A function from model inputs (b, t) to embeddings (b, width); by default
                the student embeds them, with the pooling of validation.
            width: The dimensions of the embeddings; by default those of the student.
            apply_template: A function from sentences to the texts to embed; by default the
                sentences themselves.
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
        """Embed some tokenised sentences as one batch.

        Args:
            tokens: The token ids of all sentences.
            rows: The indices of the sentences of the batch, (b,).

        Returns:
            The embeddings (b, d).
        """
        student = self.student
        # ``evaluation_mode`` switches dropout off for the block.
        with evaluation_mode(student), torch.inference_mode():
            host_batch = student.collate(tokens, rows)
            batch = {name: values.to(student.device) for name, values in host_batch.items()}
            # The model reads the lengths of sentences from the mask in the CPU's memory, instead of
            # waiting for a GPU.
            attach_cpu_masks(batch, host_batch)
            # ``self.embed_batch``: a function from the model inputs to pooled embeddings.
            embeddings: FloatArray = self.embed_batch(batch).float().cpu().numpy()
        return embeddings
