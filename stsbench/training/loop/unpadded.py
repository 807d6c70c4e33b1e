"""A batch without its padding, on a CPU: its sentences go through a model end to end, and the states return to their places.

A linear layer, a norm and an activation know nothing of sentences; attention is told where they lie. So no token of
padding is computed, and each weight's gradient is made once a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput

from stsbench.training.loop.attention import LengthGroups, attend, round_up
from stsbench.training.modes import evaluating

SHORT = 6
"""The longest sentence of the batch by which a model is tried first, in tokens."""
PLAIN, NAME = "sdpa", "stsbench_unpadded"
"""What transformers calls torch's own attention, and what it calls ours, which without a layout is that."""


class TokenLayout:
    """Where the tokens of a padded batch lie when its sentences are laid end to end, the longest first.

    Args:
        mask: (b, t), not 0 at the tokens that count.
    """

    def __init__(self, mask: torch.Tensor) -> None:
        """Sort the sentences."""
        real = mask != 0
        self._lengths, order = real.sum(dim=1).sort(descending=True, stable=True)
        self.shape = mask.shape
        self._at = torch.arange(mask.numel()).view(mask.shape)[order][real[order]]
        fill = round_up(len(self._at)) - len(self._at)
        self._taken = torch.cat([self._at, self._at[:1].expand(fill)])
        self._groups: dict[int, LengthGroups] = {}
        self.windows: set[int] = set()
        """Of attentions that see so far only; none is kept to here, so no sentence may be longer."""

    def join(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values (b, t, …) at its tokens, end to end (1, N, …); after them the first, again and again."""
        return values.flatten(0, 1).index_select(0, self._taken)[None]

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return values (1, N, …) in their places (b, t, …), zeros between."""
        whole = values.new_zeros((self.shape.numel(), *values.shape[2:]))
        spread = whole.index_copy(0, self._at, values[0, : len(self._at)])
        return spread.view(*self.shape, *values.shape[2:])

    def groups(self, heads: int) -> LengthGroups:
        """The groups of an attention of so many heads; made once."""
        if heads not in self._groups:
            self._groups[heads] = LengthGroups(self._lengths.numpy(), heads, len(self._taken))
        return self._groups[heads]


class Unpadded:
    """The forward of a model of transformers that leaves padding out."""

    TAKEN = frozenset({"input_ids", "attention_mask", "position_ids", "output_hidden_states"})

    def __init__(self, model: PreTrainedModel) -> None:
        """Stand before a model's own forward."""
        self._model, self._padded = model, model.forward
        self.padding = False
        """Compute that too."""
        self.layout: TokenLayout | None = None
        """Of the batch that is computed now."""
        self.reach: float = math.inf
        """Sentences of so many tokens see all of themselves in every layer; batches of longer ones are computed padded."""

    def takes(self, mask: torch.Tensor) -> bool:
        """Whether a batch of this mask (b, t) is computed without its padding."""
        return not self.padding and mask.shape[1] <= self.reach

    def __call__(self, *args: Any, **inputs: Any) -> Any:  # noqa: ANN401 - transformers is untyped
        """Return the model's output with states (b, t, h), zeros at padding; with other inputs as it stands."""
        known = inputs.keys() <= self.TAKEN and {"input_ids", "attention_mask"} <= inputs.keys()
        if args or not known or not self.takes(inputs["attention_mask"]):
            return self._padded(*args, **inputs)
        ids, positions = inputs["input_ids"], inputs.get("position_ids")
        layout = self.layout = TokenLayout(inputs.pop("attention_mask"))
        inputs["input_ids"] = layout.join(ids)
        inputs["position_ids"] = layout.join(_positions(self._model, ids) if positions is None else positions)
        try:
            output = self._padded(**inputs, layout=layout)
        finally:
            self.layout = None
            self.reach = min(self.reach, *layout.windows, math.inf)
        states = getattr(output, "hidden_states", None)
        return BaseModelOutput(
            last_hidden_state=layout.spread(output.last_hidden_state),
            hidden_states=None if states is None else tuple(layout.spread(state) for state in states),
        )


def leave_out_padding(model: PreTrainedModel) -> None:
    """Let a model on a CPU compute no padding, where its states are then the same: of BERT's and RoBERTa's kind."""
    plain = model.config._attn_implementation == PLAIN and getattr(model, "pooler", None) is None
    if not plain or is_unpadded(model) or model.device.type != "cpu":
        return
    forward = Unpadded(model)
    same = _is_same(model, forward, SHORT)
    # An attention that sees so far is the same up to there, as it must be seen to be.
    if same and math.isfinite(forward.reach):
        most = getattr(model.config, "max_position_embeddings", None) or forward.reach
        same = _is_same(model, forward, int(min(forward.reach, most)))
    if same and forward.reach > 1:
        model.set_attn_implementation(NAME)
        model.forward = forward


def _is_same(model: PreTrainedModel, forward: Unpadded, longest: int) -> bool:
    """Whether a model's states without padding are those with it; it is left as it was."""
    expected = _states(model, longest)
    model.set_attn_implementation(NAME)
    model.forward = forward
    try:
        return torch.allclose(_states(model, longest), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        # Another architecture: it takes no layout, or its attention is not of this kind.
        return False
    finally:
        del model.forward
        model.set_attn_implementation(PLAIN)


def is_unpadded(model: PreTrainedModel, mask: torch.Tensor | None = None) -> bool:
    """Whether a model leaves padding out: at all, or that of a batch with this mask (b, t)."""
    forward = model.forward
    return isinstance(forward, Unpadded) and (mask is None or forward.takes(mask))


@contextmanager
def padding_computed(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute its padding meanwhile, where its states there are asked for."""
    forward = model.forward
    if not isinstance(forward, Unpadded):
        yield
        return
    forward.padding = True
    try:
        yield
    finally:
        forward.padding = False


def layout_of(model: PreTrainedModel) -> TokenLayout | None:
    """How the batch lies that a model computes now; None: padded."""
    return model.forward.layout if isinstance(model.forward, Unpadded) else None


@torch.no_grad()
def _states(model: PreTrainedModel, longest: int) -> torch.Tensor:
    """All hidden states at the tokens of a made batch, as in tests."""
    mask = torch.arange(longest) < torch.tensor([longest - 2, longest, 1])[:, None]
    table = model.get_input_embeddings().num_embeddings
    ids = torch.arange(3, 3 + mask.numel()).view(mask.shape) % table
    with evaluating(model):
        states = model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
    return torch.stack([state[mask] for state in states])


def _positions(model: Any, ids: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - transformers is untyped
    """The positions (b, t) that a model itself gives a batch: RoBERTa and its kin count from where padding ends."""
    padding = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    if padding is None:
        return torch.arange(ids.shape[1]).expand_as(ids)
    counted = (ids != padding).long()
    positions: torch.Tensor = counted.cumsum(dim=1) * counted + padding
    return positions


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    layout: TokenLayout | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **rest: Any,  # noqa: ANN401 - transformers' own
) -> tuple[torch.Tensor, None]:
    """Attention of heads (1, h, N, d) as transformers asks for it; to (1, N, h, d)."""
    if layout is None:
        plain: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **rest
        )
        return plain
    if rest.get("sliding_window") is not None:
        layout.windows.add(int(rest["sliding_window"]))
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    return attend(q, k, v, layout.groups(query.shape[1]), scale=scale, rate=dropout)[None], None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, AttentionMaskInterface()[PLAIN])
