"""A loaded model with its tokenizer: token ids in, hidden states out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from stsbench.encoders.checkpoints.checkpoint import Checkpoint
from stsbench.encoders.devices import free_memory, sent_to
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.runtimes.backends import Backend
from stsbench.encoders.runtimes.network import Network
from stsbench.encoders.seams import DeviceMemory
from stsbench.encoders.transformer.adapters import Adapter
from stsbench.encoders.transformer.opening import load_model, load_tokenizer, valid_text
from stsbench.encoders.transformer.padding import by_lengths, padding_matters, states_by_length
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.errors import EncoderError

TOKENIZE_AT_ONCE = 8192


class Backbone:
    """A transformer and its tokenizer: what embeds, and what is trained."""

    def __init__(self, tokenizer: Any, model: Any, device: torch.device) -> None:  # noqa: ANN401 - transformers
        """Take a loaded tokenizer and model."""
        self.tokenizer, self.model, self.device = tokenizer, model, device
        pad = self.tokenizer.pad_token_id
        self.pad_token = int(pad if pad is not None else self.tokenizer.eos_token_id or 0)
        self.mask_token = self.tokenizer.mask_token_id
        self.special_tokens = int(self.tokenizer.num_special_tokens_to_add())
        self.depth, self.width = _depth_and_width(model.config)
        # RoBERTa and its kin number positions by the ids themselves, from where padding ends.
        embeddings = getattr(model, "embeddings", None)
        self._numbers_itself = hasattr(embeddings, "padding_idx") and not isinstance(embeddings, torch.nn.Embedding)
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        backend: Backend,
        *,
        pooling: Pooling,
        adapters: Sequence[Adapter] = (),
        bidirectional: bool = False,
    ) -> Backbone:
        """Load an ``AutoModel`` in evaluation mode, to be run by a backend, and its tokenizer.

        Raises:
            EncoderError: weights are missing or do not fit, or there is no such device; or an adapter is of another
                model, or attention cannot be made bidirectional.
        """
        place = backend.place
        tokenizer = load_tokenizer(checkpoint)

        def make(dtype: str) -> Any:  # noqa: ANN401 - transformers
            model, missing = load_model(transformers.AutoModel, checkpoint, dtype=dtype)
            _check_pooler(missing, checkpoint, needs_pooler=pooling.through_head)
            for adapter in adapters:
                model = adapter.merged_into(model)
            model = model.eval()
            if bidirectional:
                attend_both_ways(model)
            return model

        network = Network(
            folder=checkpoint.weights[0].parent,
            state={
                "files": checkpoint.digests(),
                "adapters": [one.digests() for one in adapters],
                "bidirectional": bidirectional,
            },
            make=make,
            layers=pooling.states,
            through_head=pooling.through_head,
        )
        return cls(tokenizer, backend.model(network), place)

    def tokenize(self, sentences: Sequence[str], *, max_length: int | None) -> TokenIds:
        """Return the token ids of each sentence with special tokens, cut at ``max_length`` tokens."""
        parts = []
        for start in range(0, len(sentences), TOKENIZE_AT_ONCE):
            encoded = self.tokenizer(
                [valid_text(sentence) for sentence in sentences[start : start + TOKENIZE_AT_ONCE]],
                truncation=max_length is not None,
                max_length=max_length,
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            parts.append(TokenIds.from_lists(encoded["input_ids"]))
        tokens = TokenIds.join(parts)
        # Asked each time: training may add some.
        known = int(self.model.get_input_embeddings().num_embeddings)
        if len(tokens.ids) and tokens.ids.max() >= known:
            raise EncoderError(
                f"the tokenizer gives token {tokens.ids.max()}, the model knows {known}: not of one checkpoint"
            )
        return tokens

    def collate(self, tokens: TokenIds, rows: npt.NDArray[np.int64], *, left: bool) -> dict[str, torch.Tensor]:
        """Return model inputs (b, t); a batch without padding has no attention mask.

        Positions count tokens and never padding, so that neighbours in a batch do not matter.
        A model that cannot be told positions has its padding on the right whatever was asked.
        """
        left = left and (self._numbers_itself or self._takes_positions)
        ids, mask = tokens.padded(rows, pad=self.pad_token, left=left)
        batch = {"input_ids": sent_to(self.device, ids)}
        if not mask.all():
            batch["attention_mask"] = sent_to(self.device, mask)
            if left and not self._numbers_itself:
                batch["position_ids"] = (batch["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        return batch

    def memory(self) -> DeviceMemory | None:
        """What its device has left for batches; None on a CPU."""
        # While a layer computes: all states that may be asked for, and some 24 of their widths of its own.
        return free_memory(self.device, (self.depth + 25) * self.width * self.model.dtype.itemsize)

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the position ids (b, t) that the model itself gives a batch with its padding on the right.

        Raises:
            EncoderError: the model cannot be told other positions than its own.
        """
        if not self._takes_positions:
            raise EncoderError(f"{type(self.model).__name__} takes no positions; leave out what changes them")
        if self._numbers_itself:
            return mask.cumsum(dim=1) * mask + int(self.model.embeddings.padding_idx)
        return torch.arange(mask.shape[1], device=mask.device).expand_as(mask)

    def hidden_states(self, batch: Mapping[str, torch.Tensor], layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the hidden states (b, t, h) of these layers."""
        if "attention_mask" in batch and self.minds_padding:
            return states_by_length(batch, lambda part: self.padded_states(part, layers))
        return self.padded_states(batch, layers)

    @cached_property
    def minds_padding(self) -> bool:
        """Whether the states of tokens depend on the padding beside them, mask or not: a convolution, a Fourier transform."""
        # Not asked of other runtimes: a file in int8 may round by what else is in a batch, padding or not.
        return isinstance(self.model, torch.nn.Module) and padding_matters(self.model, self.pad_token, self.device)

    def padded_states(self, batch: Mapping[str, torch.Tensor], layers: Sequence[int]) -> list[torch.Tensor]:
        """The hidden states (b, t, h) of a batch as it stands, whether or not padding is minded."""
        if tuple(layers) == (-1,):
            return [self.model(**batch).last_hidden_state]
        states = self.model(**batch, output_hidden_states=True).hidden_states
        return [states[layer] for layer in layers]

    def pooler_output(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the first token through the model's own head (b, h)."""
        if "attention_mask" in batch and self.minds_padding:
            pooled = batch["input_ids"].new_zeros((len(batch["input_ids"]), self.width), dtype=self.model.dtype)
            for rows, part in by_lengths(batch):
                pooled[rows] = self._pooler_output(part)
            return pooled
        return self._pooler_output(batch)

    def _pooler_output(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        output: torch.Tensor | None = getattr(self.model(**batch), "pooler_output", None)
        if output is None:
            raise EncoderError(f"{type(self.model).__name__} has no pooler; use pooling 'cls_before_pooler'")
        return output


def attend_both_ways(model: Any) -> None:  # noqa: ANN401 - transformers is untyped
    """Let each token of a decoder see those after it, as transformers does where a configuration is not causal.

    Raises:
        EncoderError: the model does not heed it.
    """
    model.config.is_causal = False
    for module in model.modules():
        if hasattr(module, "is_causal"):
            # What the kernels ask where no token is padding.
            module.is_causal = False
    ids = torch.tensor([[1, 2, 3], [1, 2, 4]], device=model.device)
    with torch.inference_mode():
        first, second = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    if torch.equal(first, second):
        raise EncoderError(f"{type(model).__name__} cannot attend both ways here; leave 'bidirectional' out")


def _depth_and_width(config: Any) -> tuple[int, int]:  # noqa: ANN401 - transformers is untyped
    try:
        return int(config.num_hidden_layers), int(config.hidden_size)
    except (AttributeError, TypeError, ValueError) as error:
        raise EncoderError(f"a model of type '{config.model_type}' does not say its layers and hidden size") from error


def _check_pooler(missing: Sequence[str], checkpoint: Checkpoint, *, needs_pooler: bool) -> None:
    """Refuse weights that would be random, a pooler's only where it is used."""
    lost = [key for key in missing if needs_pooler or "pooler" not in key]
    if lost and all("pooler" in key for key in lost):
        raise EncoderError(
            f"{checkpoint.folder}: the checkpoint has no pooler weights, so its head would be random; "
            "use pooling 'cls_before_pooler'"
        )
    if lost:
        raise EncoderError(f"{checkpoint.folder}: the weights lack '{lost[0]}' ({len(lost)} tensors in all)")
