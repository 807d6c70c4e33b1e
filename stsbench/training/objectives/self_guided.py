"""The self-guided losses: a sentence's [CLS] against the layers of a fixed copy of the same encoder.

Kim et al., 2021, https://arxiv.org/abs/2106.07345, section 3. c_i is a sentence's [CLS], h_ik its
k-th hidden state pooled, both after the projection head; e(u, v) = exp(cosine / temperature).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F

from stsbench.core.errors import choose
from stsbench.training.objectives.contrastive import check_rows, cosines, first_wins, in_float32, info_nce, nt_xent


@in_float32
def self_guided(cls: torch.Tensor, hidden: torch.Tensor, *, temperature: float, variant: str) -> torch.Tensor:
    """Return a self-guided contrastive loss, mean over its anchors.

    * ``base`` (SG): NT-Xent over the c_i and the h_i, 2b anchors.
    * ``opt1``: the c_i alone are anchors, ``-log e(c_i, h_i) / (sum_{j != i} e(c_i, c_j) + sum_j e(c_i, h_j))``.
    * ``opt2``: no c_j either, ``-log e(c_i, h_i) / sum_j e(c_i, h_j)``.
    * ``opt3`` (SG-OPT): every layer a positive, ``-log e(c_i, h_ik) / (e(c_i, h_ik) + sum_{j != i, l} e(c_i, h_jl))``,
      mean over b * k.
    * ``opt2-released``: opt2 as the authors' code computes it. Its denominator lacks one negative: the
      first h_j of the batch that is not the sentence's own. The order of the batch then matters.

    The released code stops with an error on ``base``, and equals the paper on ``opt1`` and ``opt3``.

    Args:
        cls: (b, d).
        hidden: (b, k, d); k is 1, a layer already drawn for each sentence, but for ``opt3``.
        temperature: divides the cosines; 0.01 in the paper.
        variant: which of the above.

    Raises:
        UnknownName: no such variant.
        ValueError: several layers for a variant that takes one.
    """
    chosen = choose("self-guided variant", variant, SELF_GUIDED)
    if hidden.ndim != 3 or hidden.shape[1] == 0:
        raise ValueError(f"hidden is {tuple(hidden.shape)}; it must be (b, k, d) with k at least 1")
    if not chosen.every_layer and hidden.shape[1] != 1:
        raise ValueError(f"hidden is {tuple(hidden.shape)}; variant '{variant}' takes one layer a sentence, (b, 1, d)")
    check_rows(cls=cls, **{"each layer of hidden": hidden[:, 0]})
    return chosen.loss(cls, hidden, temperature)


def _opt1(cls: torch.Tensor, hidden: torch.Tensor, temperature: float) -> torch.Tensor:
    own = torch.eye(len(cls), dtype=torch.bool, device=cls.device)
    others = cosines(cls, cls).masked_fill(own, -torch.inf)
    return first_wins(torch.cat([cosines(cls, hidden[:, 0]), others], dim=1) / temperature)  # (b, 2b)


def _opt2_released(cls: torch.Tensor, hidden: torch.Tensor, temperature: float) -> torch.Tensor:
    logits = cosines(cls, hidden[:, 0]) / temperature  # (b, b)
    dropped = torch.zeros_like(logits, dtype=torch.bool)
    dropped[1:, 0] = dropped[:1, 1:2] = True
    return first_wins(logits.masked_fill(dropped, -torch.inf))


def _opt3(cls: torch.Tensor, hidden: torch.Tensor, temperature: float) -> torch.Tensor:
    b, k, _ = hidden.shape
    logits = cosines(cls, hidden.flatten(0, 1)).view(b, b, k) / temperature
    own = torch.eye(b, dtype=torch.bool, device=cls.device)
    negatives = logits.masked_fill(own[:, :, None], -torch.inf).flatten(1).logsumexp(dim=1)
    return -F.logsigmoid(logits[own] - negatives[:, None]).mean()


class SelfGuidedVariant(NamedTuple):
    """A loss of [CLS], hidden states and temperature; and whether it takes every layer, or one drawn for a sentence."""

    loss: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
    every_layer: bool = False


SELF_GUIDED: Mapping[str, SelfGuidedVariant] = {
    "base": SelfGuidedVariant(lambda cls, hidden, temperature: nt_xent(cls, hidden[:, 0], temperature=temperature)),
    "opt1": SelfGuidedVariant(_opt1),
    "opt2": SelfGuidedVariant(lambda cls, hidden, temperature: info_nce(cls, hidden[:, 0], temperature=temperature)),
    "opt3": SelfGuidedVariant(_opt3, every_layer=True),
    "opt2-released": SelfGuidedVariant(_opt2_released),
}


def anchored_l2(parameters: Mapping[str, torch.Tensor], initial: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the squared distance of all parameters from their initial values, summed: the self-guided regulariser.

    No mean and no weights: the paper multiplies it by 0.1. At the start it is 0, its gradient too.
    Parameters that are frozen add 0.

    Args:
        parameters: those of the encoder that is tuned, by name.
        initial: their values to start with, by the same names.

    Raises:
        ValueError: names or shapes differ.
    """
    if not parameters or parameters.keys() != initial.keys():
        strange = sorted(parameters.keys() ^ initial.keys())[:3]
        raise ValueError(
            f"parameters and their initial values differ in {', '.join(strange) or 'nothing: both are empty'}"
        )
    distances = []
    for name, parameter in parameters.items():
        if initial[name].shape != parameter.shape:
            raise ValueError(f"{name} is {tuple(parameter.shape)}, but was {tuple(initial[name].shape)}")
        # It keeps no difference for the backward pass, a whole model of them.
        wide = torch.promote_types(parameter.dtype, torch.float32)
        distances.append(F.mse_loss(parameter.to(wide), initial[name].detach().to(wide), reduction="sum"))
    return torch.stack(distances).sum()
