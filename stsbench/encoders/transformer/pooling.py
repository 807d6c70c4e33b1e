"""Pooling, which makes one embedding of a sentence's hidden states.

Poolings are named by the indices of hidden states: 0 is the word embeddings, 1 the first layer, -1
the last. "First-last average" has meant both mean(1,-1) and mean(0,-1) in print: SimCSE's published
baseline averages with the word embeddings, its code with the first layer since 2022
(princeton-nlp/SimCSE, issue 285).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, ClassVar

from stsbench.core.errors import CardError, EncoderError, suggest
from stsbench.encoders.transformer.sbert_wk import MIN_LAYERS, wk_pool

if TYPE_CHECKING:
    import torch

    from stsbench.core.cards import StudentSection

    States = Sequence[torch.Tensor]
    Mask = torch.Tensor | None

POOLING_ALIASES = {"first_last": "mean(1,-1)", "static_last": "mean(0,-1)", "last2": "mean(-2,-1)"}
"""Further names of poolings."""
LIBRARY_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""The names of the poolings of sentence-transformers."""
_NAME_WITH_LAYERS = re.compile(r"(\w+)\((-?\d+(?:\s*,\s*-?\d+)*)\)")
"""A pooling's name with layers, for example ``mean(1,-1)``."""


@dataclass(frozen=True)
class Pooling(ABC):
    """A pooling of the hidden states of some layers; ``POOLINGS`` has each class by its name."""

    layers: tuple[int, ...] = (-1,)
    name: ClassVar[str]
    layer_form: ClassVar[str] = ""
    """Its name with layers: ``max(i)``, or ``mean(i,j)`` for several; empty if it has none."""
    works_without_layers: ClassVar[bool] = True
    """Whether its name without layers is valid, and means the last layer."""
    library: ClassVar[str] = ""
    """Its name in a folder of sentence-transformers, one of ``LIBRARY_POOLINGS``; empty if that
    library does not have it."""
    through_head: ClassVar[bool] = False
    """Whether the pooled state goes through the model's own head."""
    pools_mask_token: ClassVar[bool] = False
    """Whether it pools the ``[MASK]`` token of a template."""
    pools_second_copy: ClassVar[bool] = False
    """Whether it pools the second copy of the sentence in a template."""

    @staticmethod
    def parse(name: str) -> Pooling:
        """Return the pooling of a name, for example ``cls_before_pooler`` or ``mean(1,-1)``.

        ``POOLINGS`` has the class of each pooling by its name. A class may also have a form with
        layers, for example ``mean(i,j)``.

        Args:
            name: A name without layers, or a name with the indices of layers in parentheses, or
                one of the further names in ``POOLING_ALIASES``.

        Raises:
            CardError: There is no such pooling.
        """
        name = POOLING_ALIASES.get(name.strip(), name.strip())
        if name in POOLINGS and POOLINGS[name].works_without_layers:
            return POOLINGS[name]()
        # Its groups are the name before the parentheses, and the numbers in them.
        match = _NAME_WITH_LAYERS.fullmatch(name)
        if match is not None:
            name_before_layers = match[1]
            layers = tuple(int(layer) for layer in match[2].split(","))
            for pooling_class in POOLINGS.values():
                # The name in the form may differ from that without layers: 'cls(i)' is the form of
                # 'cls_before_pooler'. It is empty, and fits no name, if the class has none.
                form_name, _, parameters = pooling_class.layer_form.partition("(")
                # The form 'mean(i,j)' stands for any number of layers, 'max(i)' for one.
                fits_number = "," in parameters or len(layers) == 1
                if form_name == name_before_layers and fits_number:
                    return pooling_class(layers)
        classes = POOLINGS.values()
        names = [kind.name for kind in classes if kind.works_without_layers]
        forms = [kind.layer_form for kind in classes if kind.layer_form]
        choices = [*names, *forms, *POOLING_ALIASES]
        raise CardError(
            f"unknown pooling '{name}'{suggest(name, choices)}; known: {', '.join(choices)}"
        )

    def __str__(self) -> str:
        """Return the canonical name, which :meth:`parse` reads back."""
        if self.layers == (-1,) and self.works_without_layers:
            return self.name
        return f"{self.layer_form.partition('(')[0]}({','.join(map(str, self.layers))})"

    def layer_indices(self, depth: int) -> tuple[int, ...]:
        """Return the indices of the hidden states to pool, after a check that the model has them.

        They are ``self.layers``, which is (-1,) for a pooling named without layers. Index 0 is the
        word embeddings, 1 the first layer; negative ones count from the last layer.

        Args:
            depth: The number of the model's layers.

        Raises:
            EncoderError: The model has too few layers.
        """
        # With the word embeddings there are depth + 1 states.
        for layer in self.layers:
            if not -depth - 1 <= layer <= depth:
                raise EncoderError(
                    f"pooling '{self}' asks for layer {layer}; the model has {depth}"
                )
        return self.layers

    @abstractmethod
    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Return one embedding per sentence, (b, h), made from hidden states.

        Args:
            states: The states (b, t, h) of each layer that :meth:`layer_indices` returns.
            mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            chosen: Bool (b, t), true at the tokens to pool, for a pooling of the ``[MASK]`` token
                or of the second copy of the sentence; None for other poolings.
        """


class FirstTokenPooling(Pooling):
    """The first token's state as the layer outputs it."""

    name, layer_form, library = "cls_before_pooler", "cls(i)", "cls"
    last: ClassVar[bool] = False
    """Whether the last token is pooled instead."""

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Return the state of each sentence's first token as embeddings (b, h).

        A class that sets ``last`` takes that of the last token instead.

        Args:
            states: A list of the states (b, t, h) of one layer.
            mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            chosen: Not used.
        """
        import torch

        state = states[0]
        if mask is None:
            return state[:, -1 if self.last else 0]
        # Padding may be on either side; argmax is the position of the first 1 of a row.
        if self.last:
            positions = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
        else:
            positions = mask.argmax(dim=1)
        return state[torch.arange(len(state), device=state.device), positions]


class HeadPooling(FirstTokenPooling):
    """The first token through the model's own head (BERT's pooler, SimCSE's MLP)."""

    name, layer_form, through_head = "cls", "", True


class MeanPooling(Pooling):
    """The mean over tokens; of several layers, the mean of their means (SimCSE, ConSERT)."""

    name, layer_form, library = "mean", "mean(i,j)", "mean"

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Return the mean over tokens and layers as embeddings (b, h).

        Args:
            states: The states (b, t, h) of each layer.
            mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            chosen: Not used.
        """
        sum_over_layers = reduce(add, map(_to_float32, states))
        return masked_mean(sum_over_layers, mask) / len(states)


class MaxPooling(Pooling):
    """The maximum over tokens."""

    name, layer_form, library = "max", "max(i)", "max"

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Return the largest value of each dimension over the tokens: embeddings (b, h).

        Args:
            states: A list of the states (b, t, h) of one layer.
            mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            chosen: Not used.
        """
        return masked_max(states[0], mask)


class LastTokenPooling(FirstTokenPooling):
    """The last token's state, on whichever side the padding is; for decoders."""

    name, layer_form, library, last = "last_token", "", "lasttoken", True


class MaskTokenPooling(Pooling):
    """The state of a template's ``[MASK]`` token (PromptBERT)."""

    name, pools_mask_token = "mask", True

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Return the state of the ``[MASK]`` token in the text around each sentence: (b, h).

        Args:
            states: A list of the states (b, t, h) of the last layer.
            mask: Not used.
            chosen: Bool (b, t), true at exactly one token of each row, ``[MASK]``.
        """
        return states[0][chosen]


class EchoPooling(Pooling):
    """The mean over a sentence's second copy in a template (echo embeddings, arXiv 2402.15449)."""

    name, pools_second_copy = "echo", True

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Return the mean over the tokens of each sentence's second copy: embeddings (b, h).

        The text of a sentence contains the sentence twice. The embedding of an empty sentence,
        whose second copy has no token, is zero.

        Args:
            states: A list of the states (b, t, h) of the last layer.
            mask: Not used.
            chosen: Bool (b, t), true at the tokens of the second copy.
        """
        return masked_mean(states[0], chosen)


class WordKernel(Pooling):
    """SBERT-WK over the layers from ``start`` on (arXiv 2002.06652)."""

    name, layer_form, works_without_layers = "wk", "wk(start)", False

    def layer_indices(self, depth: int) -> tuple[int, ...]:
        """Return the indices of all hidden states from a start on.

        State 0 is the word embeddings, as in the code of the paper (SBERT-WK). The start is the
        only number in ``self.layers``; a negative one counts from the last state. For example,
        ``wk(4)`` of a model with 12 layers has the states 4 to 12, nine of them.

        Args:
            depth: The number of the model's layers; there is one state more.

        Raises:
            EncoderError: They are fewer than ``MIN_LAYERS``, three.
        """
        start = self.layers[0]
        # For a start before the first state, a slice would begin at the first state.
        layers = tuple(range(depth + 1)[start:]) if start >= -depth - 1 else ()
        if len(layers) < MIN_LAYERS:
            raise EncoderError(
                f"pooling '{self}' leaves {len(layers)} of the model's {depth + 1} hidden states "
                f"(0 to {depth}); it needs {MIN_LAYERS} at least"
            )
        return layers

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Return the weighted sum over layers and tokens of SBERT-WK: embeddings (b, h).

        The weights are described in :func:`wk_pool`.

        Args:
            states: The states (b, t, h) of each layer, one after another.
            mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            chosen: Not used.
        """
        return wk_pool(states, mask)


POOLINGS: dict[str, type[Pooling]] = {
    HeadPooling.name: HeadPooling,
    FirstTokenPooling.name: FirstTokenPooling,
    MeanPooling.name: MeanPooling,
    MaxPooling.name: MaxPooling,
    LastTokenPooling.name: LastTokenPooling,
    MaskTokenPooling.name: MaskTokenPooling,
    EchoPooling.name: EchoPooling,
    WordKernel.name: WordKernel,
}
"""Every pooling by name; to add one, write a class above and add its row here."""


def parse_training_poolings(section: StudentSection, validation_pooling: str) -> list[Pooling]:
    """Return the poolings for training, for tests and for validation, in this order.

    A pooling makes an embedding of the hidden states of a sentence's tokens. Tests score the
    trained encoder; validation scores it during training.

    Args:
        section: The recipe's section about the encoder to train, with the names of the poolings;
            tests use the pooling of training if it names no other.
        validation_pooling: The name of the pooling for validation; empty for that of tests.

    Raises:
        CardError: One of them is no pooling under which an encoder can be trained.
    """
    test_pooling = section.test_pooling or section.pooling
    names = (section.pooling, test_pooling, validation_pooling or test_pooling)
    poolings = [Pooling.parse(name) for name in names]
    for pooling in poolings:
        # A trained encoder is saved for sentence-transformers too: so that library must have the
        # pooling (``library`` is its name there), or it is that of a mask token.
        if pooling.library not in LIBRARY_POOLINGS and not pooling.pools_mask_token:
            trainable_names = [
                kind.name for kind in POOLINGS.values() if kind.library or kind.pools_mask_token
            ]
            raise CardError(
                f"pooling '{pooling}' cannot be trained under; choose one of "
                f"{', '.join(trainable_names)}; or let 'library' in its class, which is "
                f"'{pooling.library}', name a pooling of sentence-transformers: "
                f"{', '.join(LIBRARY_POOLINGS)}"
            )
    return poolings


def masked_mean(state: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the mean over tokens, in float32 or wider: (b, t, h) with mask (b, t) to (b, h)."""
    state = _to_float32(state)
    if mask is None:
        return state.mean(dim=1)
    mask = mask.unsqueeze(-1)
    return state.masked_fill(mask == 0, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def masked_max(state: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the maximum over tokens: (b, t, h) with mask (b, t) to (b, h)."""
    if mask is not None:
        state = state.masked_fill(mask.unsqueeze(-1) == 0, float("-inf"))
    return state.amax(dim=1)


def last_occurrences(ids: torch.Tensor, token: int) -> torch.Tensor:
    """Return where a token occurs for the last time in each row of a matrix of token ids.

    Args:
        ids: Token ids (b, t).
        token: The id to look for, for example that of ``[MASK]``.

    Returns:
        Bool (b, t), with one True in each row that has the token and none in other rows.
    """
    is_token = ids == token
    # argmax gives the first True, so each row is read backwards. In a row without the token it
    # gives a position of another token, which the last line removes.
    last_positions = ids.shape[1] - 1 - is_token.flip(1).int().argmax(dim=1)
    is_last = is_token.new_zeros(is_token.shape).scatter(1, last_positions.unsqueeze(1), True)
    return is_last & is_token


def _to_float32(state: torch.Tensor) -> torch.Tensor:
    """Return states in float32, or in their own type if that is wider."""
    import torch

    return state.to(torch.promote_types(state.dtype, torch.float32))
