"""Pooling: hidden states of the layers to one embedding a sentence, one class each, named by hidden-state index; and prompts.

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
from typing import TYPE_CHECKING, Any, ClassVar

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
_CALL = re.compile(r"(\w+)\((-?\d+(?:\s*,\s*-?\d+)*)\)")


@dataclass(frozen=True)
class Pooling(ABC):
    """What is done to which hidden states (``layers``); a row of ``POOLINGS`` makes a class known by its name."""

    layers: tuple[int, ...] = (-1,)
    name: ClassVar[str]
    layer_form: ClassVar[str] = ""
    """How it is written with layers, ``max(i)``, or ``mean(i,j)`` where it takes several; empty: of the last layer alone."""
    works_without_layers: ClassVar[bool] = True
    """Whether its name alone, of the last layer, is one."""
    library: ClassVar[str] = ""
    """The pooling of sentence-transformers that it is, in a folder saved or read; empty: there is none."""
    through_head: ClassVar[bool] = False
    """Whether the model's own head makes the embedding of what is pooled."""
    pools_mask_token: ClassVar[bool] = False
    """Whether it pools the ``[MASK]`` token of a template."""
    pools_second_copy: ClassVar[bool] = False
    """Whether it pools the second copy of the sentence in a template."""

    @staticmethod
    def parse(name: str) -> Pooling:
        """Read a pooling's name, such as ``mean``, ``cls_before_pooler`` or ``mean(1,-1)``; raises CardError."""
        name = ALIASES.get(name.strip(), name.strip())
        if name in POOLINGS and POOLINGS[name].works_without_layers:
            return POOLINGS[name]()
        if match := _CALL.fullmatch(name):
            layers = tuple(int(layer) for layer in match[2].split(","))
            for kind in POOLINGS.values():
                if kind.layer_form.partition("(")[0] == match[1] and (
                    "," in kind.layer_form or len(layers) == 1
                ):
                    return kind(layers)
        kinds = POOLINGS.values()
        forms = [
            *(kind.name for kind in kinds if kind.works_without_layers),
            *(kind.layer_form for kind in kinds if kind.layer_form),
        ]
        known = [*forms, *ALIASES]
        raise CardError(
            f"unknown pooling '{name}'{suggest(name, known)}; known: {', '.join(known)}"
        )

    def __str__(self) -> str:
        """The canonical name, which :meth:`parse` reads back."""
        if self.layers == (-1,) and self.works_without_layers:
            return self.name
        return f"{self.layer_form.partition('(')[0]}({','.join(map(str, self.layers))})"

    def layer_indices(self, depth: int) -> tuple[int, ...]:
        """The hidden states it needs of a model with this many layers; raises EncoderError: it has too few."""
        for layer in self.layers:
            if not -depth - 1 <= layer <= depth:
                raise EncoderError(
                    f"pooling '{self}' asks for layer {layer}; the model has {depth}"
                )
        return self.layers

    @abstractmethod
    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """Pool hidden states, one (b, t, h) for each of :meth:`states`, into embeddings (b, h).

        The mask is (b, t), 1 at tokens and 0 at padding, None: no padding. Tokens are ``chosen``, bool (b, t), where it
        is ``pools_mask_token`` or ``pools_second_copy``.
        """


class FirstTokenPooling(Pooling):
    """The first token's state as the layer leaves it."""

    name, layer_form, library = "cls_before_pooler", "cls(i)", "cls"
    last: ClassVar[bool] = False

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        import torch

        state = states[0]
        if mask is None:
            return state[:, -1 if self.last else 0]
        at = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1) if self.last else mask.argmax(dim=1)
        return state[torch.arange(len(state), device=state.device), at]


class HeadPooling(FirstTokenPooling):
    """The first token through the model's own head (BERT's pooler, SimCSE's MLP)."""

    name, layer_form, through_head = "cls", "", True


class MeanPooling(Pooling):
    """The mean over tokens, of several layers the mean of their means: as SimCSE and ConSERT average."""

    name, layer_form, library = "mean", "mean(i,j)", "mean"

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return masked_mean(reduce(add, map(_wide, states)), mask) / len(states)


class MaxPooling(Pooling):
    """The maximum over tokens."""

    name, layer_form, library = "max", "max(i)", "max"

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return masked_max(states[0], mask)


class LastTokenPooling(FirstTokenPooling):
    """The last token's state, whichever side the padding is on: of decoders."""

    name, layer_form, library, last = "last_token", "", "lasttoken", True


class MaskTokenPooling(Pooling):
    """The state of a template's ``[MASK]`` token (PromptBERT)."""

    name, pools_mask_token = "mask", True

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return states[0][chosen]


class EchoPooling(Pooling):
    """The mean over the sentence's second copy in a template (echo embeddings, arXiv 2402.15449)."""

    name, pools_second_copy = "echo", True

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
        return masked_mean(states[0], chosen)


class WordKernel(Pooling):
    """SBERT-WK over the layers from ``start`` on (arXiv 2002.06652)."""

    name, layer_form, works_without_layers = "wk", "wk(start)", False

    def layer_indices(self, depth: int) -> tuple[int, ...]:
        """All states from the given one on, which may be counted from the last; raises EncoderError: under three.

        State 0 is the word embeddings, as in the paper's code: ``wk(4)`` of 12 layers is states 4 to 12, nine of them.
        """
        start = self.layers[0]
        layers = tuple(range(depth + 1)[start:]) if start >= -depth - 1 else ()
        if len(layers) < MIN_LAYERS:
            what = f"leaves {len(layers)} of the model's {depth + 1} hidden states (0 to {depth})"
            raise EncoderError(f"pooling '{self}' {what}; it needs {MIN_LAYERS} at least")
        return layers

    def pool(self, states: States, mask: Mask, chosen: Mask = None) -> torch.Tensor:
        """See :meth:`Pooling.pool`."""
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
"""Every pooling; adding one is a class above and its row here."""


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


def last_occurrences(ids: torch.Tensor, token: int) -> torch.Tensor:
    """Mark each row's last token of this id: (b, t) to bool (b, t); a row without any has none marked."""
    found = ids == token
    last = ids.shape[1] - 1 - found.flip(1).int().argmax(dim=1)
    return found.new_zeros(found.shape).scatter(1, last.unsqueeze(1), True) & found


def _wide(state: torch.Tensor) -> torch.Tensor:
    import torch

    return state.to(torch.promote_types(state.dtype, torch.float32))


# SBERT-WK (Wang and Kuo, 2020, https://arxiv.org/abs/2002.06652): tokens and layers weighted by how much each adds to its neighbours. The
# published way is one QR decomposition for every token and layer, in a Python loop. All that it reads of R are lengths and inner products,
# so here the cosines between a token's states stand in for its QRs: with p_k the part of the state x_k inside the span of its neighbours,
# and m = neighbours + 1,
#
#     alignment_k = 1 / (2 m mean_j cos(x_j, x_k) ||x_k|| / ||p_k||),  novelty_k = ||x_k - p_k|| / ||x_k||
#
# ||p_k|| comes from eliminating the neighbours from the matrix of cosines (Cholesky without the roots). Cosines square the condition
# number, so all is float64: states of a float32 model that differ by an angle v carry a relative error of 6e-8 / v already, elimination
# adds 1e-16 / v**2, which is smaller down to v = 2e-9, finer than float32 resolves.
#
# Of the published codes, the authors' and the one in sentence-transformers before 2.0, one quirk is kept. The
# neighbours of layer k are those at most ``window`` away, and both codes take the lower ones with the slice [k - window : k]. Where its
# start is negative it counts from the end, and the slice is empty: with window 2 layer 1 misses layer 0. The published scores have it.
Floats = npt.NDArray[np.float64]
WINDOW = 2
MIN_LAYERS = 3
"""With two states there is one cosine between adjacent layers, and its variance weighs no token."""
CHUNK = 128
"""Tokens whose states are float64 at a time: 7 MB at 9 layers of 768."""
_DEPENDENT = 1e-12
"""A squared sine below this is rounding: the state lies in the span of its neighbours."""
_FLOOR = 1e-30
"""Added to weights, far below any real one: where all are 0, it makes them equal."""


def wk_pool(states: Sequence[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:
    """Pool three consecutive hidden states or more, each (b, t, h), into embeddings (b, h), float32 or wider.

    ``mask`` is (b, t), 1 at tokens and 0 at padding on either side, None: no padding. [CLS] is kept; the last token,
    [SEP], is left out unless it is the only one. A token is the sum of its states weighted by alignment and novelty, a
    sentence the sum of its tokens weighted by the variance of the cosines between adjacent layers.

    Where the formula divides 0 by 0 the weights are equal: layers that are all alike, tokens whose cosines do not vary.
    A zero state has no alignment and no novelty. NaN and infinity in a token that counts make the embedding NaN;
    elsewhere they are ignored. All is done on the CPU, each sentence by itself to the last bit.
    """
    import torch

    b, t, h = states[0].shape
    dtype = torch.promote_types(states[0].dtype, torch.float32)
    arrays = [state.detach().to("cpu", dtype).reshape(b * t, h).numpy() for state in states]
    attended = np.ones((b, t), dtype=np.bool_) if mask is None else mask.cpu().numpy() != 0
    after = attended[:, ::-1].cumsum(axis=1)[:, ::-1]  # attended tokens from here on
    kept = np.flatnonzero(attended & ((after > 1) | (attended.sum(axis=1, keepdims=True) == 1)))
    # Of each layer and then itself, (l, 2 window + 1); -1 for one that it has not. The first slice is that of the published codes.
    every = range(len(states))
    rows = [[*every[k - WINDOW : k], *every[k + 1 : k + 1 + WINDOW]] for k in every]
    neighbours = np.array(
        [[-1] * (2 * WINDOW - len(row)) + [*row, k] for k, row in enumerate(rows)]
    )
    total, weight = np.zeros((b, h)), np.zeros((b, 1))
    for start in range(0, len(kept), CHUNK):
        tokens = kept[start : start + CHUNK]
        x = np.stack([array[tokens] for array in arrays], axis=1, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            alpha, spread = _weights(x, neighbours)
            pooled = (alpha[:, None] @ x)[:, 0] * spread
        np.add.at(total, tokens // t, pooled)
        np.add.at(weight, tokens // t, spread)
    # A row without any token has weight 0 and stays 0, as in mean pooling.
    return torch.from_numpy(total / np.maximum(weight, _FLOOR / 2)).to(states[0].device, dtype)


def _weights(x: Floats, neighbours: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Of tokens x (n, l, h) the weights of their layers (n, l), with sum 1, by alignment and novelty; and their own (n, 1)."""
    cosines = x @ x.transpose(0, 2, 1)
    lengths = np.sqrt(np.einsum("nkk->nk", cosines))
    lengths[lengths == 0] = 1.0
    cosines /= lengths[:, :, None] * lengths[:, None, :]
    spread = np.einsum("nkk->nk", cosines[:, 1:, :-1]).var(axis=1, keepdims=True) + _FLOOR
    there = neighbours >= 0
    near = cosines[:, neighbours[:, :, None], neighbours[:, None, :]]
    near[:, ~(there[:, :, None] & there[:, None, :])] = 0.0
    count, shared = there[:, :-1].sum(axis=1), near[:, :, -1, :-1].sum(axis=-1)
    inside = np.zeros_like(shared)
    for i in range(neighbours.shape[1] - 1):
        pivot = near[:, :, i, i].copy()
        # Where its predecessors span it, it adds no direction.
        spanned = pivot < _DEPENDENT
        pivot[spanned] = 1.0
        column = near[..., i] / pivot[..., None]
        column[spanned] = 0.0
        inside += column[..., -1] * near[:, :, -1, i]
        near -= column[..., None] * near[..., i, None, :]
    outside = near[..., -1, -1]
    shared[np.abs(shared) < _DEPENDENT] = _DEPENDENT
    alignment = np.sqrt(inside) * count / (2 * (count + 1) * shared)
    scale = alignment.sum(axis=1, keepdims=True)
    level = np.abs(scale) < _DEPENDENT
    aligned = np.where(level, 1 / x.shape[1], alignment / np.where(level, 1.0, scale))
    novelty = _FLOOR + np.where(outside < _DEPENDENT, 0.0, np.sqrt(np.maximum(outside, 0.0)))
    return (aligned + novelty / novelty.sum(axis=1, keepdims=True)) / 2, spread


PLACE = "{}"
"""Where the sentence goes in a template."""
ENDINGS = (".", "?", '"', "'")
"""What PromptBERT's evaluation takes for the end of a sentence; an exclamation mark is not among them."""


@dataclass(frozen=True)
class Prompt:
    """What is put around every sentence before it is tokenised: ``text`` before it, or a ``template``.

    ``add_full_stop`` first puts a full stop after a sentence that does not end in one of ``. ? " '``. Raises CardError:
    both are given, or the template has neither one place for the sentence nor two.
    """

    text: str = ""
    template: str = ""
    add_full_stop: bool = False

    def __post_init__(self) -> None:
        """Check what is given."""
        if self.text and self.template:
            raise CardError("give 'prompt' or 'prompt_template', not both")
        if self.template and self.n_copies not in (1, 2):
            raise CardError(
                "prompt_template needs one {} where the sentence goes, or two for echo embeddings"
            )

    @property
    def n_copies(self) -> int:
        """How often the sentence stands in what is embedded."""
        return self.template.count(PLACE) if self.template else 1

    def fingerprint_fields(self) -> list[str]:
        """What decides an embedding, for its fingerprint."""
        escaped = self.text.replace("{", "{{").replace("}", "}}")
        return [
            self.text,
            self.template or f"{escaped}{PLACE}",
            *(["add_full_stop"] if self.add_full_stop else []),
        ]

    def wrap(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the sentences with this text around each."""
        if self.add_full_stop:
            sentences = [with_full_stop(sentence) for sentence in sentences]
        parts = self.template.split(PLACE) if self.template else [self.text, ""]
        return (
            [sentence.join(parts) for sentence in sentences]
            if any(parts) or len(parts) > 2
            else sentences
        )


def with_full_stop(sentence: str) -> str:
    """Return the sentence with the full stop that PromptBERT's evaluation adds; the empty one stays empty."""
    return sentence if not sentence or sentence.endswith(ENDINGS) else f"{sentence}."


def cut_to_fit(
    tokenizer: Any,  # noqa: ANN401
    prompt: Prompt,
    sentences: Sequence[str],
    max_length: int | None,  # noqa: ANN401
) -> list[str]:  # noqa: ANN401 - transformers
    """The sentences as valid text, cut at their ends until they and their template have ``max_length`` tokens.

    Raises CardError: the template alone has more. EncoderError: the tokenizer does not tell which token is which text.
    """
    texts = [valid_text(sentence) for sentence in sentences]
    if max_length is not None and texts:
        for row, ids in enumerate(_ids(tokenizer, prompt.wrap(texts))):
            if len(ids) > max_length:
                texts[row] = _cut(tokenizer, prompt, texts[row], max_length)
    return texts


def _ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:  # noqa: ANN401 - transformers
    found: list[list[int]] = tokenizer(list(texts), return_attention_mask=False, verbose=False)[
        "input_ids"
    ]
    return found


def _cut(tokenizer: Any, prompt: Prompt, sentence: str, max_length: int) -> str:  # noqa: ANN401 - transformers
    ends = [end for _, end in _offsets(tokenizer, sentence, add_special_tokens=False)]
    text, kept = sentence, len(ends)
    while (over := len(_ids(tokenizer, prompt.wrap([text]))[0]) - max_length) > 0:
        if not kept:
            raise CardError(
                f"max_length {max_length} leaves nothing of a sentence beside prompt_template"
            )
        kept = max(0, kept - -(-over // prompt.n_copies))
        text = sentence[: ends[kept - 1]] if kept else ""
    return text


def _offsets(tokenizer: Any, text: str, **options: bool) -> list[tuple[int, int]]:  # noqa: ANN401 - transformers
    if not tokenizer.is_fast:
        what = f"{type(tokenizer).__name__} does not tell which token is which text"
        raise EncoderError(f"{what}; a template of two {{}} needs it")
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False, **options)
    found: list[tuple[int, int]] = encoded["offset_mapping"]
    return found


def second_copy_spans(tokenizer: Any, prompt: Prompt, sentences: Sequence[str]) -> IndexArray:  # noqa: ANN401 - transformers
    """Which tokens are of the sentence's second copy, also in part, (n, 2): the first, and the one after the last."""
    before, between, _ = prompt.template.split(PLACE)
    spans = np.zeros((len(sentences), 2), dtype=np.int64)
    for row, (text, sentence) in enumerate(zip(prompt.wrap(sentences), sentences, strict=True)):
        copy = with_full_stop(sentence) if prompt.add_full_stop else sentence
        start = len(before) + len(copy) + len(between)
        of_copy = [
            at
            for at, (a, b) in enumerate(_offsets(tokenizer, text))
            if a < start + len(copy) and b > start
        ]
        if of_copy:
            spans[row] = of_copy[0], of_copy[-1] + 1
    return spans
