"""Pooling: hidden states of the layers to one embedding a sentence, one class each, named by hidden-state index.

Index 0 is the word embeddings, 1 the first layer, -1 the last. "First-last average" has
meant both mean(1,-1) and mean(0,-1) in print: SimCSE's published baseline averages with the
word embeddings, its code with the first layer since 2022 (princeton-nlp/SimCSE, issue 285).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, ClassVar

from stsbench.core.errors import CardError, EncoderError, did_you_mean

if TYPE_CHECKING:
    import torch

ALIASES = {
    "first_last": "mean(1,-1)",
    "static_last": "mean(0,-1)",
    "last2": "mean(-2,-1)",
}
_CALL = re.compile(r"(\w+)\((-?\d+(?:\s*,\s*-?\d+)*)\)")


@dataclass(frozen=True)
class Pooling(ABC):
    """What is done to which hidden states (``layers``); a row of ``POOLINGS`` makes a class known by its name."""

    layers: tuple[int, ...] = (-1,)
    name: ClassVar[str]
    form: ClassVar[str] = ""
    """How it is written with layers, ``max(i)``, or ``mean(i,j)`` where it takes several; empty: of the last layer alone."""
    bare: ClassVar[bool] = True
    """Whether its name alone, of the last layer, is one."""
    library: ClassVar[str] = ""
    """The pooling of sentence-transformers that it is, in a folder saved or read; empty: there is none."""
    through_head: ClassVar[bool] = False
    """Whether the model's own head makes the embedding of what is pooled."""
    of_mask_token: ClassVar[bool] = False
    """Whether it pools the ``[MASK]`` token of a template."""
    of_second_copy: ClassVar[bool] = False
    """Whether it pools the second copy of the sentence in a template."""

    @staticmethod
    def parse(name: str) -> Pooling:
        """Read a pooling's name, such as ``mean``, ``cls_before_pooler`` or ``mean(1,-1)``.

        Raises:
            CardError: no such pooling; offers the nearest.
        """
        name = ALIASES.get(name.strip(), name.strip())
        if name in POOLINGS and POOLINGS[name].bare:
            return POOLINGS[name]()
        if match := _CALL.fullmatch(name):
            layers = tuple(int(layer) for layer in match[2].split(","))
            for kind in POOLINGS.values():
                if kind.form.partition("(")[0] == match[1] and ("," in kind.form or len(layers) == 1):
                    return kind(layers)
        known = [*known_names(), *ALIASES]
        raise CardError(f"unknown pooling '{name}'{did_you_mean(name, known)}; known: {', '.join(known)}")

    def __str__(self) -> str:
        """The canonical name, which :meth:`parse` reads back."""
        if self.layers == (-1,) and self.bare:
            return self.name
        return f"{self.form.partition('(')[0]}({','.join(map(str, self.layers))})"

    def states(self, depth: int) -> tuple[int, ...]:
        """The hidden states it needs of a model with this many layers.

        Raises:
            EncoderError: the model has no such layer, or too few.
        """
        for layer in self.layers:
            if not -depth - 1 <= layer <= depth:
                raise EncoderError(f"pooling '{self}' asks for layer {layer}; the model has {depth}")
        return self.layers

    @abstractmethod
    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Pool hidden states, one (b, t, h) for each of :meth:`states`, into embeddings (b, h).

        Args:
            states: the hidden states.
            mask: (b, t), 1 at tokens and 0 at padding; None means no padding at all.
            chosen: bool (b, t): the ``[MASK]`` token, for what is ``of_mask_token``; the tokens of the second copy, for
                what is ``of_second_copy``.
        """


class FirstToken(Pooling):
    """The first token's state as the layer leaves it."""

    name, form, library = "cls_before_pooler", "cls(i)", "cls"

    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return _one_token(states[0], mask, last=False)


class HeadPooling(FirstToken):
    """The first token through the model's own head (BERT's pooler, SimCSE's MLP)."""

    name, form, through_head = "cls", "", True


class Mean(Pooling):
    """The mean over tokens, of several layers the mean of their means: as SimCSE and ConSERT average."""

    name, form, library = "mean", "mean(i,j)", "mean"

    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return masked_mean(reduce(add, map(_wide, states)), mask) / len(states)


class Max(Pooling):
    """The maximum over tokens."""

    name, form, library = "max", "max(i)", "max"

    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return masked_max(states[0], mask)


class LastToken(Pooling):
    """The last token's state, whichever side the padding is on: of decoders."""

    name, library = "last_token", "lasttoken"

    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return _one_token(states[0], mask, last=True)


class MaskToken(Pooling):
    """The state of a template's ``[MASK]`` token (PromptBERT)."""

    name, of_mask_token = "mask", True

    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Pooling.pool`; raises CardError without a chosen token."""
        if chosen is None:
            raise CardError("pooling 'mask' needs a prompt_template with the tokenizer's mask token")
        return states[0][chosen]


class Echo(Pooling):
    """The mean over the sentence's second copy in a template (echo embeddings, arXiv 2402.15449)."""

    name, of_second_copy = "echo", True

    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Pooling.pool`; raises CardError without chosen tokens."""
        if chosen is None:
            raise CardError("pooling 'echo' needs a prompt_template with two {} where the sentence goes")
        return masked_mean(states[0], chosen)


class WordKernel(Pooling):
    """SBERT-WK over the layers from ``start`` on (arXiv 2002.06652)."""

    name, form, bare = "wk", "wk(start)", False

    def states(self, depth: int) -> tuple[int, ...]:
        """All layers from the first one on; raises EncoderError."""
        from stsbench.encoders.transformer.wk import wk_layers

        return wk_layers(self.layers[0], depth)

    def pool(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor | None, chosen: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        from stsbench.encoders.transformer.wk import wk_pool

        return wk_pool(states, mask)


POOLINGS: dict[str, type[Pooling]] = {
    HeadPooling.name: HeadPooling,
    FirstToken.name: FirstToken,
    Mean.name: Mean,
    Max.name: Max,
    LastToken.name: LastToken,
    MaskToken.name: MaskToken,
    Echo.name: Echo,
    WordKernel.name: WordKernel,
}
"""Every pooling; adding one is a class above and its name here."""


def known_names() -> list[str]:
    """What can be given as a pooling, layers as letters."""
    kinds = POOLINGS.values()
    return [*(kind.name for kind in kinds if kind.bare), *(kind.form for kind in kinds if kind.form)]


def masked_mean(state: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mean over tokens, in float32 at least: (b, t, h) with mask (b, t) to (b, h)."""
    state = _wide(state)
    if mask is None:
        return state.mean(dim=1)
    mask = mask.unsqueeze(-1)
    return state.masked_fill(mask == 0, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def masked_max(state: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Maximum over tokens: (b, t, h) with mask (b, t) to (b, h)."""
    if mask is not None:
        state = state.masked_fill(mask.unsqueeze(-1) == 0, float("-inf"))
    return state.amax(dim=1)


def last_of(ids: torch.Tensor, token: int) -> torch.Tensor:
    """Mark each row's last token of this id: (b, t) to bool (b, t); a row without any has none marked."""
    found = ids == token
    last = ids.shape[1] - 1 - found.flip(1).int().argmax(dim=1)
    return found.new_zeros(found.shape).scatter(1, last.unsqueeze(1), True) & found


def _wide(state: torch.Tensor) -> torch.Tensor:
    """Sixteen bits are too few for sums."""
    import torch

    return state.to(torch.promote_types(state.dtype, torch.float32))


def _one_token(state: torch.Tensor, mask: torch.Tensor | None, *, last: bool) -> torch.Tensor:
    """The first or last token of each row, whichever side the padding is on."""
    import torch

    if mask is None:
        return state[:, -1 if last else 0]
    at = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1) if last else mask.argmax(dim=1)
    return state[torch.arange(len(state), device=state.device), at]
