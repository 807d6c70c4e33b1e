"""Pooling, which makes one embedding of a sentence's hidden states, and prompts.

Poolings are named by the indices of hidden states: 0 is the word embeddings, 1 the first layer, -1
the last. "First-last average" has meant both mean(1,-1) and mean(0,-1) in print: SimCSE's published
baseline averages with the word embeddings, its code with the first layer since 2022
(princeton-nlp/SimCSE, issue 285).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import CardError, EncoderError, suggest
from stsbench.encoders.base import IndexArray
from stsbench.encoders.metadata import valid_text

if TYPE_CHECKING:
    import torch

    States = Sequence[torch.Tensor]
    Mask = torch.Tensor | None

ALIASES = {"first_last": "mean(1,-1)", "static_last": "mean(0,-1)", "last2": "mean(-2,-1)"}
"""Further names of poolings."""
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
    """Its name in a folder of sentence-transformers; empty if the library does not have it."""
    through_head: ClassVar[bool] = False
    """Whether the pooled state goes through the model's own head."""
    pools_mask_token: ClassVar[bool] = False
    """Whether it pools the ``[MASK]`` token of a template."""
    pools_second_copy: ClassVar[bool] = False
    """Whether it pools the second copy of the sentence in a template."""

    @staticmethod
    def parse(name: str) -> Pooling:
        """Return the pooling of a name, for example ``cls_before_pooler`` or ``mean(1,-1)``.

        Args:
            name: A key of ``POOLINGS`` or ``ALIASES``, or a ``layer_form`` with layers.

        Raises:
            CardError: There is no such pooling.
        """
        name = ALIASES.get(name.strip(), name.strip())
        if name in POOLINGS and POOLINGS[name].works_without_layers:
            return POOLINGS[name]()
        if match := _NAME_WITH_LAYERS.fullmatch(name):
            layers = tuple(int(layer) for layer in match[2].split(","))
            for pooling_class in POOLINGS.values():
                # 'mean(i,j)' takes any number of layers, 'max(i)' one. 'cls(i)' is not the class
                # named 'cls' but FirstTokenPooling, so the form's own name is compared.
                form_name, _, parameters = pooling_class.layer_form.partition("(")
                if form_name == match[1] and ("," in parameters or len(layers) == 1):
                    return pooling_class(layers)
        classes = POOLINGS.values()
        names = [kind.name for kind in classes if kind.works_without_layers]
        forms = [kind.layer_form for kind in classes if kind.layer_form]
        choices = [*names, *forms, *ALIASES]
        raise CardError(
            f"unknown pooling '{name}'{suggest(name, choices)}; known: {', '.join(choices)}"
        )

    def __str__(self) -> str:
        """Return the canonical name, which :meth:`parse` reads back."""
        if self.layers == (-1,) and self.works_without_layers:
            return self.name
        return f"{self.layer_form.partition('(')[0]}({','.join(map(str, self.layers))})"

    def layer_indices(self, depth: int) -> tuple[int, ...]:
        """Return the indices of the hidden states to pool.

        Args:
            depth: The number of the model's layers; with the word embeddings as state 0 it has one
                state more.

        Raises:
            EncoderError: The model has too few layers.
        """
        for layer in self.layers:
            if not -depth - 1 <= layer <= depth:
                raise EncoderError(
                    f"pooling '{self}' asks for layer {layer}; the model has {depth}"
                )
        return self.layers

    @abstractmethod
    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Pool hidden states into embeddings (b, h).

        Args:
            states: The states (b, t, h) of each of :meth:`layer_indices`.
            mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            chosen: The tokens to pool, bool (b, t), if the pooling ``pools_mask_token`` or
                ``pools_second_copy``.
        """


class FirstTokenPooling(Pooling):
    """The first token's state as the layer outputs it."""

    name, layer_form, library = "cls_before_pooler", "cls(i)", "cls"
    last: ClassVar[bool] = False
    """Whether the last token is pooled instead."""

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Take the state of each sentence's first token, or of its last, as embeddings (b, h).

        Args:
            states: The states (b, t, h) of one layer.
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
        """Average over tokens and layers into embeddings (b, h).

        Args:
            states: The states (b, t, h) of each layer.
            mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            chosen: Not used.
        """
        return masked_mean(reduce(add, map(_to_float32, states)), mask) / len(states)


class MaxPooling(Pooling):
    """The maximum over tokens."""

    name, layer_form, library = "max", "max(i)", "max"

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Take the largest value of each dimension over the tokens: embeddings (b, h).

        Args:
            states: The states (b, t, h) of one layer.
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
        """Take the state of the ``[MASK]`` token of each sentence's template: (b, h).

        Args:
            states: The states (b, t, h) of the last layer.
            mask: Not used.
            chosen: One token of each row, bool (b, t).
        """
        return states[0][chosen]


class EchoPooling(Pooling):
    """The mean over a sentence's second copy in a template (echo embeddings, arXiv 2402.15449)."""

    name, pools_second_copy = "echo", True

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Average over the second copy of each sentence into embeddings (b, h).

        Args:
            states: The states (b, t, h) of the last layer.
            mask: Not used.
            chosen: The tokens of the second copy, bool (b, t).
        """
        return masked_mean(states[0], chosen)


class WordKernel(Pooling):
    """SBERT-WK over the layers from ``start`` on (arXiv 2002.06652)."""

    name, layer_form, works_without_layers = "wk", "wk(start)", False

    def layer_indices(self, depth: int) -> tuple[int, ...]:
        """List the indices of all hidden states from the start on.

        The start is ``layers[0]``; a negative one counts from the last state. State 0 is the word
        embeddings, as in the paper's code: ``wk(4)`` of 12 layers is states 4 to 12, nine of them.

        Args:
            depth: The number of the model's layers, which has one state more.

        Raises:
            EncoderError: They are fewer than ``MIN_LAYERS``.
        """
        start = self.layers[0]
        # A slice would take a start before the first state as the first.
        layers = tuple(range(depth + 1)[start:]) if start >= -depth - 1 else ()
        if len(layers) < MIN_LAYERS:
            raise EncoderError(
                f"pooling '{self}' leaves {len(layers)} of the model's {depth + 1} hidden states "
                f"(0 to {depth}); it needs {MIN_LAYERS} at least"
            )
        return layers

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Weight layers and tokens by SBERT-WK into embeddings (b, h), see :func:`wk_pool`.

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
    """Mark the last place of a token in each row.

    Args:
        ids: Token ids (b, t).
        token: The id to look for, for example that of ``[MASK]``.

    Returns:
        Bool (b, t), with one True in each row that has the token and none in other rows.
    """
    is_token = ids == token
    # argmax finds the first True, so each row is read backwards; without one it gives position 0,
    # which the last line removes.
    last_positions = ids.shape[1] - 1 - is_token.flip(1).int().argmax(dim=1)
    is_last = is_token.new_zeros(is_token.shape).scatter(1, last_positions.unsqueeze(1), True)
    return is_last & is_token


def _to_float32(state: torch.Tensor) -> torch.Tensor:
    """Return states in float32, or in their own type if that is wider."""
    import torch

    return state.to(torch.promote_types(state.dtype, torch.float32))


# SBERT-WK (Wang and Kuo, 2020, https://arxiv.org/abs/2002.06652): tokens and layers are weighted by
# how much each adds to its neighbours. The published method is one QR decomposition for every token
# and layer, in a Python loop. It reads only lengths and inner products of R, so here the cosines
# between a token's states stand in for its QRs: with p_k the part of the state x_k inside the span
# of its neighbours, and m = neighbours + 1,
#
#     alignment_k = 1 / (2 m mean_j cos(x_j, x_k) ||x_k|| / ||p_k||)
#     novelty_k = ||x_k - p_k|| / ||x_k||
#
# ||p_k|| comes from eliminating the neighbours from the matrix of cosines (Cholesky without the
# roots). Cosines square the condition number, so all is float64: states of a float32 model that
# differ by an angle v carry a relative error of 6e-8 / v already. Elimination adds 1e-16 / v**2,
# which is smaller down to v = 2e-9, finer than float32 resolves.
#
# One quirk is kept of the published codes, the authors' and the one in sentence-transformers before
# 2.0. The neighbours of layer k are those at most ``window`` away, and both codes take the lower
# ones with the slice [k - window : k]. If its start is negative, it counts from the end, and the
# slice is empty: with window 2 layer 1 misses layer 0. The published scores have it.
Floats = npt.NDArray[np.float64]
WINDOW = 2
"""The distance in layers up to which states are neighbours."""
MIN_LAYERS = 3
"""With two states there is only one cosine of adjacent layers, whose variance is zero."""
TOKENS_AT_ONCE = 128
"""The number of tokens whose states are float64 at a time: 7 MB for 9 layers of 768."""
_MIN_SQUARED_SINE = 1e-12
"""A squared sine below this is rounding: the state lies in the span of its neighbours."""
_MIN_WEIGHT = 1e-30
"""Added to weights, far below any real one: if all are 0, it makes them equal."""


def wk_pool(states: Sequence[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:
    """Pool three consecutive hidden states or more into embeddings (b, h), float32 or wider.

    [CLS] is pooled; the last token, [SEP], is not, unless it is the only one. A token is the sum of
    its states weighted by alignment and novelty, a sentence the sum of its tokens weighted by the
    variance of the cosines between adjacent layers.

    If the formula divides 0 by 0, the weights are equal: for layers that are all the same, and
    tokens whose cosines do not vary. A zero state has no alignment and no novelty. NaN and infinity
    in a pooled token make the embedding NaN; elsewhere they are ignored. Everything is computed on
    the CPU, each sentence independently of the others to the last bit.

    Args:
        states: The hidden states, each (b, t, h).
        mask: 1 at tokens and 0 at padding on either side, (b, t); None if there is no padding.
    """
    import torch

    b, t, h = states[0].shape
    dtype = torch.promote_types(states[0].dtype, torch.float32)
    # Tokens of all sentences in one list: token i is number i % t of sentence i // t.
    arrays = [state.detach().to("cpu", dtype).reshape(b * t, h).numpy() for state in states]
    is_token = np.ones((b, t), dtype=np.bool_) if mask is None else mask.cpu().numpy() != 0
    pooled_tokens = np.flatnonzero(_without_last_tokens(is_token))
    neighbours = _layer_neighbours(len(states))
    weighted_sum = np.zeros((b, h))
    weight_sum = np.zeros((b, 1))
    for start in range(0, len(pooled_tokens), TOKENS_AT_ONCE):
        tokens = pooled_tokens[start : start + TOKENS_AT_ONCE]
        x = np.stack([array[tokens] for array in arrays], axis=1, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            layer_weights, token_weights = _wk_weights(x, neighbours)
            weighted_tokens = (layer_weights[:, None] @ x)[:, 0] * token_weights
        sentences = tokens // t
        # Several tokens have the same sentence: += would add only one of them.
        np.add.at(weighted_sum, sentences, weighted_tokens)
        np.add.at(weight_sum, sentences, token_weights)
    # A sentence without any token has weight 0 and stays 0, as in mean pooling.
    embeddings = weighted_sum / np.maximum(weight_sum, _MIN_WEIGHT / 2)
    return torch.from_numpy(embeddings).to(states[0].device, dtype)


def _without_last_tokens(is_token: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mask (b, t) without each sentence's last token, unless it has only one.

    SBERT-WK leaves out [SEP] but pools [CLS].
    """
    # At each position, the number of tokens there and to its right: 1 at the last token.
    tokens_from_here_on = is_token[:, ::-1].cumsum(axis=1)[:, ::-1]
    is_only_token = is_token.sum(axis=1, keepdims=True) == 1
    return is_token & ((tokens_from_here_on > 1) | is_only_token)  # type: ignore[no-any-return]


def _layer_neighbours(n_states: int) -> npt.NDArray[np.int64]:
    """List the layers near each layer.

    Args:
        n_states: The number of hidden states.

    Returns:
        Row k, of 2 * ``WINDOW`` + 1 numbers, has the layers at most ``WINDOW`` away from layer k
        and ends with k itself; a layer with fewer neighbours has -1s before them.
    """
    layers = range(n_states)
    rows = []
    for k in layers:
        # SBERT-WK's code takes the layers below k by this slice. With a negative start it is empty:
        # layer 1 misses layer 0. The published scores have it, so it is kept.
        row = [*layers[k - WINDOW : k], *layers[k + 1 : k + 1 + WINDOW], k]
        rows.append([-1] * (2 * WINDOW + 1 - len(row)) + row)
    return np.array(rows)


class _Weights(NamedTuple):
    """The weights of n tokens in SBERT-WK."""

    layers: Floats
    """The weights of each token's layers, (n, l), with sum 1, by alignment and novelty."""
    tokens: Floats
    """The weights of the tokens in their sentences, (n, 1)."""


def _wk_weights(x: Floats, neighbours: npt.NDArray[np.int64]) -> _Weights:
    """Compute SBERT-WK's weights of tokens and of each token's layers.

    The formulas are those of arXiv 2002.06652, with cosines in place of QR decompositions. With p_k
    the part of state x_k in the span of its m - 1 neighbours, alignment is 1 / (2 m mean_j cos(x_j,
    x_k) ||x_k|| / ||p_k||), novelty ||x_k - p_k|| / ||x_k||. Each is divided by its sum over the
    layers, and a layer's weight is their mean. A token's weight is the variance of the cosines of
    adjacent layers.

    Args:
        x: The hidden states of n tokens in l layers, (n, l, h).
        neighbours: Row k has the layers near layer k and then k itself, -1 where there are fewer:
            (l, m), from :func:`_layer_neighbours`.
    """
    # The inner products of each token's layers, (n, l, l), are divided by the lengths below.
    cosines = x @ x.transpose(0, 2, 1)
    lengths = np.sqrt(np.einsum("nkk->nk", cosines))
    lengths[lengths == 0] = 1.0
    cosines /= lengths[:, :, None] * lengths[:, None, :]
    # The diagonal below the main one: the cosine of each layer with the one before it, (n, l - 1).
    adjacent_cosines = np.einsum("nkk->nk", cosines[:, 1:, :-1])
    token_weights = adjacent_cosines.var(axis=1, keepdims=True) + _MIN_WEIGHT
    exists = neighbours >= 0
    # The cosines among each layer's neighbours and itself, which is last: (n, l, m, m).
    near_cosines = cosines[:, neighbours[:, :, None], neighbours[:, None, :]]
    near_cosines[:, ~(exists[:, :, None] & exists[:, None, :])] = 0.0
    # -1 has picked the last layer; as a zero, a missing neighbour adds nothing to any sum.
    n_neighbours = exists[:, :-1].sum(axis=1)
    cosine_sum = near_cosines[:, :, -1, :-1].sum(axis=-1)
    cosine_sum[np.abs(cosine_sum) < _MIN_SQUARED_SINE] = _MIN_SQUARED_SINE
    inside, outside = _squared_parts(near_cosines)
    # With near_cosines of unit states, inside is ||p_k||^2 / ||x_k||^2 and outside is novelty^2.
    alignment = np.sqrt(inside) * n_neighbours / (2 * (n_neighbours + 1) * cosine_sum)
    alignment_sum = alignment.sum(axis=1, keepdims=True)
    is_zero = np.abs(alignment_sum) < _MIN_SQUARED_SINE
    alignment_weights = np.where(
        is_zero, 1 / x.shape[1], alignment / np.where(is_zero, 1.0, alignment_sum)
    )
    novelty = _MIN_WEIGHT + np.where(
        outside < _MIN_SQUARED_SINE, 0.0, np.sqrt(np.maximum(outside, 0.0))
    )
    novelty_weights = novelty / novelty.sum(axis=1, keepdims=True)
    return _Weights((alignment_weights + novelty_weights) / 2, token_weights)


def _squared_parts(near_cosines: Floats) -> tuple[Floats, Floats]:
    """Split each state by its neighbours' span; return the squared lengths inside and outside it.

    States are scaled to length 1, so the two add up to 1, or to 0 for a zero state. This is
    Gaussian elimination of a symmetric matrix: what is left of its last entry is the part that no
    neighbour explains.

    Args:
        near_cosines: The cosines among the neighbours of each layer and itself, which is last,
            (n, l, m, m). They are overwritten: each neighbour is eliminated from them in turn.

    Returns:
        The squared lengths inside the span and outside it, (n, l) each.
    """
    inside = np.zeros(near_cosines.shape[:2])
    for i in range(near_cosines.shape[-1] - 1):
        pivot = near_cosines[:, :, i, i].copy()
        # A neighbour within the span of those before it adds no direction.
        is_spanned = pivot < _MIN_SQUARED_SINE
        pivot[is_spanned] = 1.0
        column = near_cosines[..., i] / pivot[..., None]
        column[is_spanned] = 0.0
        inside += column[..., -1] * near_cosines[:, :, -1, i]
        near_cosines -= column[..., None] * near_cosines[..., i, None, :]
    return inside, near_cosines[..., -1, -1]


PLACEHOLDER = "{}"
"""The place of the sentence in a template."""
SENTENCE_ENDINGS = (".", "?", '"', "'")
"""The ends of a sentence for PromptBERT's evaluation; an exclamation mark is not among them."""


@dataclass(frozen=True)
class Prompt:
    """The text that is put around every sentence before it is tokenised.

    Attributes:
        text: A text before the sentence.
        template: A text with one place for the sentence, or two; in place of ``text``.
        add_full_stop: First put a full stop after a sentence that does not end in one of
            ``. ? " '``.

    Raises:
        CardError: There are both a text and a template, or the template has neither one place for
            the sentence nor two.
    """

    text: str = ""
    template: str = ""
    add_full_stop: bool = False

    def __post_init__(self) -> None:
        """Check the text and the template."""
        if self.text and self.template:
            raise CardError("give 'prompt' or 'prompt_template', not both")
        if self.template and self.n_copies not in (1, 2):
            raise CardError(
                "prompt_template needs one {} where the sentence goes, or two for echo embeddings"
            )

    @property
    def n_copies(self) -> int:
        """The number of copies of the sentence in the text to embed."""
        return self.template.count(PLACEHOLDER) if self.template else 1

    def fingerprint_fields(self) -> list[str]:
        """List everything that can change an embedding, for its fingerprint.

        A text is also given as the template that it equals, with its own braces doubled.
        """
        escaped = self.text.replace("{", "{{").replace("}", "}}")
        return [
            self.text,
            self.template or f"{escaped}{PLACEHOLDER}",
            *(["add_full_stop"] if self.add_full_stop else []),
        ]

    def wrap(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the sentences with this text around each, which are then ready to be tokenised."""
        if self.add_full_stop:
            sentences = [with_full_stop(sentence) for sentence in sentences]
        parts = self.template.split(PLACEHOLDER) if self.template else [self.text, ""]
        if parts == ["", ""]:
            return sentences
        # As in "a{}b{}c": the sentence goes between each two parts.
        return [sentence.join(parts) for sentence in sentences]


def with_full_stop(sentence: str) -> str:
    """Return the sentence with the full stop that PromptBERT's evaluation adds.

    The empty sentence stays empty.
    """
    return sentence if not sentence or sentence.endswith(SENTENCE_ENDINGS) else f"{sentence}."


def cut_to_fit(
    tokenizer: Any,  # noqa: ANN401 - transformers is untyped
    prompt: Prompt,
    sentences: Sequence[str],
    max_length: int | None,
) -> list[str]:
    """Return the sentences as valid text, cut at their ends so that nothing of the prompt is cut.

    Args:
        tokenizer: A tokenizer of transformers.
        prompt: The text around each sentence.
        sentences: The sentences.
        max_length: The maximum number of tokens of a sentence with its prompt; None for any number.

    Raises:
        CardError: The prompt alone has more tokens.
        EncoderError: The tokenizer does not give the positions of tokens in the text.
    """
    texts = [valid_text(sentence) for sentence in sentences]
    if max_length is not None and texts:
        for row, ids in enumerate(_token_ids(tokenizer, prompt.wrap(texts))):
            if len(ids) > max_length:
                texts[row] = _cut_sentence(
                    tokenizer, prompt, sentence=texts[row], max_length=max_length
                )
    return texts


def _token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:  # noqa: ANN401 - transformers
    """Return the token ids of each text, with special tokens and uncut."""
    encoded = tokenizer(list(texts), return_attention_mask=False, verbose=False)
    ids_of_texts: list[list[int]] = encoded["input_ids"]
    return ids_of_texts


def _cut_sentence(tokenizer: Any, prompt: Prompt, sentence: str, max_length: int) -> str:  # noqa: ANN401 - transformers
    """Cut a sentence at its end until it fits into the maximum length together with its prompt.

    Args:
        tokenizer: A fast tokenizer of transformers.
        prompt: The text around the sentence, which is not cut.
        sentence: The sentence without the prompt.
        max_length: The maximum number of tokens, special tokens included.

    Raises:
        CardError: The prompt alone is too long.
        EncoderError: The tokenizer does not tell where tokens are in the text.
    """
    token_ends = [end for _, end in _token_offsets(tokenizer, sentence, add_special_tokens=False)]
    n_tokens = len(token_ends)
    text = sentence
    # Repeated, as the cut text may have other tokens at its end than the whole one.
    while (excess := len(_token_ids(tokenizer, prompt.wrap([text]))[0]) - max_length) > 0:
        if not n_tokens:
            raise CardError(
                f"max_length {max_length} leaves nothing of a sentence beside prompt_template"
            )
        # Each copy of the sentence in the prompt loses its share of the excess.
        n_tokens = max(0, n_tokens - math.ceil(excess / prompt.n_copies))
        text = sentence[: token_ends[n_tokens - 1]] if n_tokens else ""
    return text


def _token_offsets(tokenizer: Any, text: str, **options: bool) -> list[tuple[int, int]]:  # noqa: ANN401 - transformers
    """Locate each token in a text: its first character, and the one after its last.

    Args:
        tokenizer: A tokenizer of transformers.
        text: The text to tokenise.
        options: Options of the tokenizer's call, such as ``add_special_tokens``.

    Raises:
        EncoderError: The tokenizer does not give them.
    """
    if not tokenizer.is_fast:
        raise EncoderError(
            f"{type(tokenizer).__name__} does not tell which token is which text; "
            "a template of two {} needs it"
        )
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False, **options)
    offsets: list[tuple[int, int]] = encoded["offset_mapping"]
    return offsets


def second_copy_spans(tokenizer: Any, prompt: Prompt, sentences: Sequence[str]) -> IndexArray:  # noqa: ANN401 - transformers
    """Return the tokens of each sentence's second copy, (n, 2): the first, and one after the last.

    A token that belongs to the copy in part is among them. The span of an empty copy is (0, 0).

    Args:
        tokenizer: A fast tokenizer of transformers.
        prompt: A prompt whose template has two places for the sentence.
        sentences: The sentences without the prompt.
    """
    before, between, _ = prompt.template.split(PLACEHOLDER)
    spans = np.zeros((len(sentences), 2), dtype=np.int64)
    for row, (text, sentence) in enumerate(zip(prompt.wrap(sentences), sentences, strict=True)):
        copy = with_full_stop(sentence) if prompt.add_full_stop else sentence
        # In characters of the wrapped text: what is before the first copy, it, what is between.
        copy_start = len(before) + len(copy) + len(between)
        copy_stop = copy_start + len(copy)
        copy_tokens = [
            position
            for position, (start, stop) in enumerate(_token_offsets(tokenizer, text))
            if start < copy_stop and stop > copy_start
        ]
        if copy_tokens:
            spans[row] = copy_tokens[0], copy_tokens[-1] + 1
    return spans
