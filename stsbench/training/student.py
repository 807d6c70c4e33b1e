"""The student: a transformer with its tokenizer and pooling, while it is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.hooks import RemovableHandle

from stsbench.encoders.checkpoints.checkpoint import Checkpoint
from stsbench.encoders.devices import open_device
from stsbench.encoders.engine.embed import embed_all
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.seams import FloatArray
from stsbench.encoders.transformer.backbone import Backbone
from stsbench.encoders.transformer.opening import load_tokenizer
from stsbench.encoders.transformer.pooling import POOLINGS, FirstToken, Pooling
from stsbench.errors import CardError, EncoderError
from stsbench.training.head import PoolerHead, check_place_for_head, make_head
from stsbench.training.loop.parts import Tokens, by_length
from stsbench.training.loop.unpadded import is_unpadded, layout_of, padding_computed
from stsbench.training.modes import evaluating
from stsbench.training.start import depth_settings, dropout_settings, dropouts, fresh_model, load_start

Transform = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Embedding output (b, t, h) and mask (b, t) to what the first layer sees instead."""


class Student(torch.nn.Module):
    """A backbone with the pooling it is trained under, and the one it is tested under.

    Pooling ``cls`` goes through a head of the student's own, a linear layer and tanh (SimCSE's
    MLP, section 6.3 of arXiv 2104.08821); saved, it is the transformer's pooler.

    Args:
        checkpoint: where it starts from.
        pooling: how embeddings are made in training.
        test_pooling: how they are made afterwards; default as in training.
        validation_pooling: how they are made where weights are chosen; default as in tests.
        max_length: longest input in tokens, special tokens included.
        dropout: replaces every dropout of the checkpoint's configuration.
        head: the pooling head of ``cls``: ``fresh``, or the ``checkpoint``'s pooler.
        language_model: also load the checkpoint's masked language model head.
        from_scratch: take the configuration alone, with fresh weights.
        layers: keep the first so many; default all.
        fresh_language_head: a checkpoint without a language model head is given a fresh one.
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        EncoderError: the checkpoint lacks what is asked for.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        pooling: str = "mean",
        test_pooling: str = "",
        validation_pooling: str = "",
        max_length: int | None = None,
        dropout: float | None = None,
        head: str = "fresh",
        language_model: bool = False,
        from_scratch: bool = False,
        layers: int | None = None,
        fresh_language_head: bool = False,
        device: str = "auto",
    ) -> None:
        """Load what is to be trained."""
        super().__init__()
        self.checkpoint, self.max_length = checkpoint, _longest(checkpoint, max_length)
        self.pooling, self.test_pooling = _trainable(pooling), _trainable(test_pooling or pooling)
        self.chunk: int | None = None
        """While training, so many texts go through the model at a time; None: the whole batch."""
        self.compiled = False
        self.validation_pooling = _trainable(validation_pooling) if validation_pooling else self.test_pooling
        place = open_device(device)
        settings = {**dropout_settings(checkpoint, dropout), **depth_settings(checkpoint, layers)}
        if from_scratch:
            whole, missing = fresh_model(checkpoint, settings, language_model=language_model), list[str]()
        else:
            whole, missing = load_start(
                checkpoint, settings, language_model=language_model, fresh_head=fresh_language_head
            )
        self.language_model = whole.to(place) if language_model else None
        model = whole.base_model.to(place)
        self.backbone = Backbone(load_tokenizer(checkpoint), model, place)
        self.model: Any = model
        self.head: PoolerHead | None = None
        poolings = (self.pooling, self.test_pooling, self.validation_pooling)
        if any(one.through_head for one in poolings):
            self.head = make_head(head, model, missing, checkpoint).to(place)
        if self.test_pooling.through_head:
            check_place_for_head(model.config)
        for one in poolings:
            one.states(self.backbone.depth)
        # A pooler that is no part of the head is not trained, and its gradient would be missed by other ranks.
        if getattr(model, "pooler", None) is not None:
            model.pooler = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return cast(torch.device, next(self.model.parameters()).device)

    @property
    def has_dropout(self) -> bool:
        """Whether its model drops anything in training."""
        return any(dropouts(self.model.config.to_dict()).values())

    def unpadded(self, tokens: Tokens) -> bool:
        """Whether its model leaves a batch's padding out, as training on a CPU lets it; tokens (b, t) each."""
        return is_unpadded(self.model, tokens["attention_mask"])

    def tokenize(self, texts: Sequence[str], *, max_length: int | None = None) -> TokenIds:
        """Return the token ids of each text, special tokens included."""
        return self.backbone.tokenize(texts, max_length=max_length or self.max_length)

    def collate(self, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """Return model inputs (b, t) of some of the tokenised texts, padded on the right, on the CPU."""
        ids, mask = tokens.padded(rows, pad=self.backbone.pad_token)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def embed(
        self,
        tokens: Tokens,
        *,
        transform: Transform | None = None,
        pooling: Pooling | None = None,
        generator: torch.Generator | None = None,
        dropout: bool = True,
    ) -> torch.Tensor:
        """Embed a batch under the training pooling: (b, t) to (b, h).

        On a CPU the batch is run without its padding, or in parts of like length, so that little of it is padding:
        the loss over the whole batch stays what it is. So it does in chunks.

        Args:
            tokens: (b, t) each.
            transform: what changes the embedding output.
            pooling: another than the training's.
            generator: what ``transform`` draws from.
            dropout: False: none, in training too.
        """
        asked, chunk = pooling or self.pooling, self.chunk if torch.is_grad_enabled() else None

        def compute(part: Tokens) -> torch.Tensor:
            with nullcontext() if dropout else evaluating(self):
                return self._embed_part(part, transform, asked)

        return by_length(tokens, compute, chunk=chunk, generator=generator, unpadded=self.unpadded(tokens))

    def _embed_part(self, tokens: Tokens, transform: Transform | None, pooling: Pooling) -> torch.Tensor:
        states = self.hidden_states(tokens, self.layers(pooling), transform=transform)
        return self.pooled(states, tokens["attention_mask"], pooling)

    def layers(self, pooling: Pooling | None = None) -> tuple[int, ...]:
        """The hidden states that a pooling takes, by default the training's."""
        return (pooling or self.pooling).states(self.backbone.depth)

    def pooled(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor, pooling: Pooling | None = None
    ) -> torch.Tensor:
        """Pool hidden states (b, t, h) of :meth:`layers` into embeddings (b, h)."""
        pooling = pooling or self.pooling
        if self.head is None or not pooling.through_head:
            return pooling.pool(states, mask)
        # The head stands on the first token of the last layer.
        embeddings: torch.Tensor = self.head(FirstToken().pool(states, mask))
        return embeddings

    def hidden_states(
        self,
        tokens: Tokens,
        layers: Sequence[int],
        *,
        transform: Transform | None = None,
        padding: bool = False,
    ) -> list[torch.Tensor]:
        """Return the hidden states (b, t, h) of these layers.

        Args:
            tokens: (b, t) each.
            layers: which, 0 being the embedding output.
            transform: changes the embedding output first.
            padding: the states at padding count too; otherwise they may be anything.
        """
        if transform is None and not padding:
            return self.backbone.hidden_states(tokens, layers)
        changed = nullcontext() if transform is None else self._embedding_hook(transform, tokens["attention_mask"])
        with changed, padding_computed(self.model) if padding else nullcontext():
            return self.backbone.padded_states(tokens, layers)

    def _embedding_hook(self, transform: Transform, mask: torch.Tensor) -> RemovableHandle:
        if self.compiled:
            raise CardError("[training] compile: the method changes what is computed within the model; leave it out")
        embeddings = getattr(self.model, "embeddings", None)
        if embeddings is None:
            raise EncoderError(f"{type(self.model).__name__} has no module 'embeddings' to change the output of")

        def change(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
            layout = layout_of(self.model)
            return transform(output, mask) if layout is None else layout.join(transform(layout.spread(output), mask))

        handle: RemovableHandle = embeddings.register_forward_hook(change)
        return handle

    def compile_model(self) -> None:
        """Compile the model, for batches of any size; its weights keep their names."""
        _ = self.backbone.minds_padding  # asked of a compiled model, it would be compiled again for the question
        self.model.compile(dynamic=True)
        self.compiled = True

    def encoder(self, name: str = "student") -> StudentEncoder:
        """The student as validation sees it, as it is now."""
        return StudentEncoder(self, name)


class StudentEncoder:
    """A student as an encoder: evaluation mode, the pooling of validation, no gradients."""

    fingerprint: str | None = None

    def __init__(self, student: Student, name: str) -> None:
        """Keep the student; its weights are never copied."""
        self.student, self.name = student, name

    @property
    def width(self) -> int:
        """Size of an embedding."""
        return self.student.backbone.width

    def embed(self, tokens: Tokens) -> torch.Tensor:
        """Embed a batch as validation does: (b, t) to (b, d)."""
        return self.student.embed(tokens, pooling=self.student.validation_pooling)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        if not len(sentences):
            return np.zeros((0, self.width), dtype=np.float32)
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""
        # Training may cut; a test sentence is read whole.
        return self.student.tokenize(sentences, max_length=self.student.checkpoint.max_length())

    def embed_tokens(self, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch."""
        student = self.student
        with evaluating(student), torch.inference_mode():
            batch = {name: values.to(student.device) for name, values in student.collate(tokens, rows).items()}
            embeddings: FloatArray = self.embed(batch).float().cpu().numpy()
        return embeddings


def _longest(checkpoint: Checkpoint, asked: int | None) -> int | None:
    limit = checkpoint.max_length()
    if asked is not None and not 3 <= asked <= (limit or asked):
        raise CardError(f"max_length {asked}: give 3 to {limit or 'any number'}, the checkpoint's limit")
    return asked or limit


def _trainable(name: str) -> Pooling:
    pooling = Pooling.parse(name)
    if not pooling.library and not pooling.of_mask_token:
        known = [kind.name for kind in POOLINGS.values() if kind.library]
        raise CardError(f"pooling '{pooling}' cannot be trained under; choose one of {', '.join(known)}")
    return pooling
