"""Pooling: hidden states of the layers to one embedding a sentence, named by hidden-state index.

Index 0 is the word embeddings, 1 the first layer, -1 the last. "First-last average" has
meant both mean(1,-1) and mean(0,-1) in print: SimCSE's published baseline averages with the
word embeddings, its code with the first layer since 2022 (princeton-nlp/SimCSE, issue 285).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stsbench.errors import CardError, did_you_mean

if TYPE_CHECKING:
    import torch

Kind = Literal["cls", "cls_before_pooler", "mean", "max", "last_token", "mask", "wk"]
ALIASES = {
    "first_last": "mean(1,-1)",
    "static_last": "mean(0,-1)",
    "last2": "mean(-2,-1)",
}
_NAMES = ["cls", "cls_before_pooler", "mean", "max", "last_token", "mask", "mean(i,j)", "cls(i)", "max(i)", "wk(start)"]
_CALL = re.compile(r"(cls|mean|max|wk)\((-?\d+(?:\s*,\s*-?\d+)*)\)")


@dataclass(frozen=True)
class Pooling:
    """A pooling: what is done (``kind``) to which hidden states (``layers``)."""

    kind: Kind
    layers: tuple[int, ...] = (-1,)

    @classmethod
    def parse(cls, name: str) -> Pooling:
        """Read a pooling's name, such as ``mean``, ``cls_before_pooler`` or ``mean(1,-1)``.

        Raises:
            CardError: no such pooling; offers the nearest.
        """
        name = ALIASES.get(name.strip(), name.strip())
        if name in ("mean", "max", "last_token", "cls", "cls_before_pooler", "mask"):
            return cls(name)  # type: ignore[arg-type]
        if match := _CALL.fullmatch(name):
            layers = tuple(int(i) for i in match[2].split(","))
            kind = "cls_before_pooler" if match[1] == "cls" else match[1]
            if kind == "mean" or len(layers) == 1:
                return cls(kind, layers)  # type: ignore[arg-type]
        known = [*_NAMES, *ALIASES]
        raise CardError(f"unknown pooling '{name}'{did_you_mean(name, known)}; known: {', '.join(known)}")

    def __str__(self) -> str:
        """The canonical name, which :meth:`parse` reads back."""
        if self.layers == (-1,):
            return self.kind
        short = "cls" if self.kind == "cls_before_pooler" else self.kind
        return f"{short}({','.join(map(str, self.layers))})"


def pool(
    pooling: Pooling, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
) -> torch.Tensor:
    """Pool hidden states, one (b, t, h) a layer of ``pooling.layers``, into embeddings (b, h).

    ``mask`` is (b, t), 1 at tokens and 0 at padding; None means no padding at all. ``chosen``
    is bool (b, t), one true a row: the ``[MASK]`` token, for the pooling ``mask``.
    """
    state = states[0]
    match pooling.kind:
        case "mean":
            # SimCSE and ConSERT average the layers' means, which is the mean of the averages.
            for other in states[1:]:
                state = state + other
            return masked_mean(state / len(states), mask)
        case "max":
            if mask is not None:
                state = state.masked_fill(mask.unsqueeze(-1) == 0, float("-inf"))
            return state.max(dim=1).values
        case "last_token":
            return state[:, -1] if mask is None else state[_rows(state), _last(mask)]
        case "mask":
            if chosen is None:
                raise CardError("pooling 'mask' needs a prompt_template with the tokenizer's mask token")
            return state[chosen]
        case _:
            return state[:, 0] if mask is None else state[_rows(state), mask.argmax(dim=1)]


def masked_mean(state: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mean over tokens: (b, t, h) with mask (b, t) to (b, h)."""
    if mask is None:
        return state.mean(dim=1)
    weights = mask.unsqueeze(-1).to(state.dtype)
    return (state * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)


def _rows(state: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.arange(len(state), device=state.device)


def _last(mask: torch.Tensor) -> torch.Tensor:
    """The position of each row's last token, whichever side the padding is on."""
    return mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
