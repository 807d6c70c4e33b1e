"""Masked language modelling: which tokens are hidden, and the loss of guessing them.

Devlin et al. 2019, section 3.1: 15% of the tokens, of those 80% become ``[MASK]``, 10% a
random token, 10% stay; special tokens and padding are never among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stsbench.training.loop.gather import joint_mean
from stsbench.training.loop.on_cpu import is_unpadded
from stsbench.training.loop.parts import Tokens, by_length

IGNORED = -100


def mask_tokens(
    ids: torch.Tensor,
    maskable: torch.Tensor,
    *,
    mask_token: int,
    vocabulary: int,
    rate: float = 0.15,
    rng: np.random.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hide a share of the maskable tokens, each drawn by itself.

    Ids and ``maskable``, false at special tokens and padding, are (b, t); ``vocabulary`` is the number of ids that a random
    token is drawn from. Returns the ids with tokens hidden, and the labels: the true id where one was chosen, else -100.
    """
    chosen = torch.from_numpy(rng.random(ids.shape) < rate) & maskable
    fate = torch.from_numpy(rng.random(ids.shape))
    random_ids = torch.from_numpy(rng.integers(0, vocabulary, ids.shape))
    hidden = torch.where(chosen & (fate < 0.8), mask_token, ids)
    hidden = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, hidden)
    return hidden, torch.where(chosen, ids, IGNORED)


def masked_language_model_loss(model: Any, hidden: Tokens, *, chunk: int | None = None) -> torch.Tensor:  # noqa: ANN401
    """The mean cross-entropy over all hidden tokens, of all ranks together; 0 where none is hidden.

    ``hidden`` has ``input_ids`` with tokens hidden, ``attention_mask`` and ``labels``, (b, t) each. Of ``chunk`` texts at a
    time no activations are kept.
    """

    def lose(part: Tokens) -> torch.Tensor:
        states = model.base_model(input_ids=part["input_ids"], attention_mask=part["attention_mask"]).last_hidden_state
        return row_losses(model, states, part["labels"])

    unpadded = is_unpadded(model.base_model)
    return mean_of_rows(by_length(hidden, lose, chunk=chunk, unpadded=unpadded), hidden["labels"])


def row_losses(model: Any, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """The cross-entropy of each text's hidden tokens, summed: from last hidden states (b, t, h) and labels (b, t), (b,)."""
    hidden = labels != IGNORED
    each = torch.nn.functional.cross_entropy(
        language_model_head(model)(states[hidden]).float(), labels[hidden], reduction="none"
    )
    return torch.zeros(labels.shape, device=each.device).masked_scatter(hidden, each).sum(dim=1)


def mean_of_rows(losses: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over the hidden tokens of all ranks, from :func:`row_losses` (b,) and the labels (b, t)."""
    return joint_mean(losses.sum(), (labels != IGNORED).sum())


def language_model_head(model: Any) -> Any:  # noqa: ANN401
    """The part of a masked language model that goes from hidden states to logits."""
    for name in ("cls", "lm_head", "predictions"):
        if (head := getattr(model, name, None)) is not None:
            return head
    if hasattr(model, "vocab_transform"):  # DistilBERT has its head in pieces
        return torch.nn.Sequential(
            model.vocab_transform, model.activation, model.vocab_layer_norm, model.vocab_projector
        )
    raise TypeError(f"{type(model).__name__} has no masked language model head that is known")
