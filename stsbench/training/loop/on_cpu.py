"""Faster training steps on a CPU that learn the same: no padding, and fewer random bits.

The sentences of a batch go through a model end to end, and the states return to their positions. A
linear layer, a norm and an activation do not depend on where sentences begin. Attention gets their
positions, and is computed in groups of similar length, in few large products of matrices. So no
token of padding is computed, and each weight's gradient is computed once per step. Linear layers
multiply by oneDNN if that is faster than torch's own product. This module exists beside the
library's padded layers because it is faster: a step of 64 NLI triplets through a BERT of 4 layers
of 384 takes 1.8 s of one processor, the ordinary padded step 6.0 s (float32, AMD with AVX-512).
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.amp import custom_bwd, custom_fwd
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput

from stsbench.encoders.transformer.cpu_kernels import choose_products
from stsbench.training.loop.parts import cheapest_part_starts


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, without dropout, within a context.

    At the end the mode of each submodule is restored.
    """
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, training in modes:
            submodule.training = training


_RANDOM_BITS = 16
"""The random bits per element: a rate is met to within 8e-6."""


def draw_dropout_mask(shape: torch.Size, rate: float) -> tuple[torch.Tensor, float]:
    """Draw a dropout mask with torch's generator of the CPU.

    Args:
        shape: The shape of the mask.
        rate: The probability that an element is dropped.

    Returns:
        The mask, True at elements that are kept, and the factor of the kept elements.
    """
    # Of the 2^16 values of a random number, those by which an element is dropped.
    n_dropped_values = round(rate * 2**_RANDOM_BITS)
    # One draw of 64 bits makes four numbers of 16 bits, from -2^15 to 2^15 - 1.
    # (count + 3) // 4 is count / 4 rounded up.
    bits = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    random_numbers = bits.view(torch.int16)[: shape.numel()].view(shape)
    # The lowest values drop an element; the numbers begin at -2^15.
    lowest_kept_value = n_dropped_values - 2 ** (_RANDOM_BITS - 1)
    keep = random_numbers >= lowest_kept_value
    keep_probability = 1 - n_dropped_values / 2**_RANDOM_BITS
    return keep, 1 / keep_probability


class FewBitsDropout(torch.nn.Dropout):
    """``torch.nn.Dropout`` for a CPU; at a rate of 0 or 1 it is torch's own."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Drop elements of values of any shape."""
        if not self.training or not 0 < self.p < 1:
            return super().forward(values)
        dropped: torch.Tensor = _Drop.apply(values, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _Drop(torch.autograd.Function):
    """Dropout by a mask of few random bits, and the gradient through it."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, rate: float) -> torch.Tensor:  # noqa: ANN401 - torch's own
        keep, ctx.scale = draw_dropout_mask(values.shape, rate)
        ctx.save_for_backward(keep)
        return _apply_dropout(values, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ANN401 - torch's own
        return _apply_dropout(gradient, ctx.saved_tensors[0], ctx.scale), None


def _apply_dropout(values: torch.Tensor, keep: torch.Tensor | None, scale: float) -> torch.Tensor:
    """Return values with a dropout mask and its factor applied; unchanged if there is no mask."""
    return values if keep is None else (values * keep).mul_(scale)


GROUP_COST = 48
"""The cost of a further group, in padded tokens. With any value from 20 to 200 a step is
equally fast."""


def round_up(count: int) -> int:
    """Round a count up, by at most 3%, to one that recurs.

    Then memory is reused, and so are the preparations for a product of this shape.
    """
    step = 1 << max(count.bit_length() - 6, 0)
    return math.ceil(count / step) * step


class LengthGroup(NamedTuple):
    """Sentences whose attention is computed at once, as consecutive rows of all groups' values."""

    # The first of its rows among those of all groups; their number, one per sentence and head; and
    # the tokens of each, padding included.
    start: int
    rows: int
    width: int
    is_padding: torch.Tensor | None
    """True at padding, bool (rows, 1, width); None if there is no padding."""

    def rows_of(self, values: torch.Tensor) -> torch.Tensor:
        """Return this group's part (rows, width, d) of the values (p, d) of all groups."""
        return values[self.start : self.start + self.rows * self.width].view(
            self.rows, self.width, -1
        )


class LengthGroups:
    """The order of a batch's tokens for attention: sentences of similar length in padded groups.

    In a model the tokens of all sentences are laid end to end, N tokens with h heads each.
    Attention needs the tokens of a sentence as rows of one matrix: so sentences of similar length
    make a group, padded to its longest. P is the number of tokens of all groups with padding; each
    head is a row of its own, so that all groups together have P h rows.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], heads: int, size: int) -> None:
        """Divide sentences into groups.

        Args:
            lengths: The falling lengths of the sentences, (n,).
            heads: The number of attention heads, h.
            size: The number of tokens N; tokens after those of the sentences belong to no sentence.
        """
        sentence_starts = np.cumsum(lengths) - lengths  # the first token of each sentence, (n,)
        # The first sentence of each group, and the end.
        cuts = [*cheapest_part_starts(lengths, GROUP_COST), len(lengths)]
        self.groups: list[LengthGroup] = []
        # For each row of all groups, the index of the head that is copied there, and whether it is
        # a token's, not padding.
        head_indices = []
        token_masks = []
        n_rows = 0
        for first_sentence, stop_sentence in zip(cuts, cuts[1:], strict=False):
            # The first sentence of a group is its longest.
            columns = np.arange(lengths[first_sentence])
            is_token = columns < lengths[first_sentence:stop_sentence, None]
            # (sentences, width): the position of each token end to end; 0, any token, at padding.
            positions = sentence_starts[first_sentence:stop_sentence, None] + columns
            tokens = np.where(is_token, positions, 0)
            # (sentences, h, width): the index among the N h heads, those of one token after those
            # of the other.
            group_heads = tokens[:, None] * heads + np.arange(heads)[:, None]
            head_indices.append(group_heads.ravel())
            token_masks.append(np.broadcast_to(is_token[:, None], group_heads.shape).ravel())
            is_padding = None
            if not is_token.all():
                is_padding = torch.from_numpy(np.repeat(~is_token, heads, axis=0)[:, None])
            self.groups.append(
                LengthGroup(
                    start=n_rows,
                    rows=(stop_sentence - first_sentence) * heads,
                    width=len(columns),
                    is_padding=is_padding,
                )
            )
            n_rows += group_heads.size
        head_of_row = np.concatenate(head_indices)
        is_real = np.concatenate(token_masks)
        # The inverse: for each of the N h heads, its row among those of all groups. Heads of tokens
        # of no sentence, the last ones, have none and get 0.
        row_of_head = np.zeros(size * heads, dtype=np.int64)
        row_of_head[head_of_row[is_real]] = np.flatnonzero(is_real)
        self._n_real = int(is_real.sum())
        # Filled up to a size that recurs, so that memory is reused.
        self._head_of_row = torch.from_numpy(np.pad(head_of_row, (0, round_up(n_rows) - n_rows)))
        self._row_of_head = torch.from_numpy(row_of_head)

    def to_group_order(self, values: torch.Tensor, *, zeros: bool = False) -> torch.Tensor:
        """Copy values of all heads (N, h, d) into the rows of all groups, (P h, d).

        Args:
            values: A vector of size d for each head of each token.
            zeros: Put zeros at padding, as gradients need; otherwise any value may be there.
        """
        head_values = values.reshape(-1, values.shape[-1])  # (N h, d)
        if not zeros:
            return head_values.index_select(0, self._head_of_row)
        rows = head_values.new_zeros((len(self._head_of_row), head_values.shape[1]))
        # The heads of sentences' tokens are the first ones.
        return rows.index_copy_(0, self._row_of_head[: self._n_real], head_values[: self._n_real])

    def to_token_order(self, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Copy values of all groups back to the heads of tokens: undo :meth:`to_group_order`.

        They are zeros at tokens of no sentence.

        Args:
            values: A vector of size d for each row of all groups, (P h, d).
            shape: The shape to return, (N, h, d).
        """
        head_values = values.index_select(0, self._row_of_head)
        # The heads of tokens of no sentence are the last ones.
        head_values[self._n_real :] = 0
        return head_values.view(shape)


class GroupedAttention(torch.autograd.Function):
    """softmax(scale Q K^T) V of each sentence's own tokens, with dropout of the weights at a rate.

    The arguments are query, key, value, :class:`LengthGroups`, scale and rate. Query, key, value
    and the result are (N, h, d), zeros at tokens of no sentence. Under autocast they are converted
    to float32, which is as fast for small heads. For the gradient it stores the attention weights
    of each sentence, as torch does if there is dropout, and a byte per element of the dropout
    masks.
    """

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:  # noqa: ANN401 - torch's own
        """Compute the attention of all groups, and store what the gradient needs.

        Args:
            ctx: Torch's store for the backward pass.
            arguments: Query, key and value, (N, h, d) each; the groups; the scale; the dropout
                rate.
        """
        *inputs, length_groups, scale, rate = arguments
        q, k, v = (length_groups.to_group_order(tensor) for tensor in inputs)
        q.mul_(scale)
        # Filled group by group below.
        result = torch.empty_like(q)
        all_weights = []
        masks = []
        for group in length_groups.groups:
            scores = torch.bmm(group.rows_of(q), group.rows_of(k).transpose(1, 2))
            if group.is_padding is not None:
                scores.masked_fill_(group.is_padding, torch.finfo(scores.dtype).min)
            weights = torch.softmax(scores, dim=-1)
            mask, ctx.dropout_scale = draw_dropout_mask(scores.shape, rate) if rate else (None, 1.0)
            dropped_weights = _apply_dropout(weights, mask, ctx.dropout_scale)
            # Written into the group's rows of the result.
            torch.bmm(dropped_weights, group.rows_of(v), out=group.rows_of(result))
            all_weights.append(weights)
            masks.append(mask)
        ctx.length_groups = length_groups
        ctx.scale = scale
        ctx.save_for_backward(q, k, v, *all_weights, *masks)
        return cast(torch.Tensor, length_groups.to_token_order(result, inputs[0].shape))

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        """Compute the gradients of query, key and value, (N, h, d) each.

        With W the dropped weights and G the gradient of the result: that of V is W^T G, that of W
        is G V^T, which passes back through dropout and softmax to the scores S, and from there to Q
        and K.

        Args:
            ctx: What the forward pass has stored.
            gradient: The gradient of the result, G, (N, h, d).

        Returns:
            The three gradients, and None for groups, scale and rate.
        """
        q, k, v, *weights_and_masks = ctx.saved_tensors
        length_groups: LengthGroups = ctx.length_groups
        groups = length_groups.groups
        all_weights = weights_and_masks[: len(groups)]
        masks = weights_and_masks[len(groups) :]
        grad_result = length_groups.to_group_order(gradient, zeros=True)
        # Filled group by group below, in the rows of all groups.
        grad_q, grad_k, grad_v = (torch.empty_like(tensor) for tensor in (q, k, v))
        for group, weights, mask in zip(groups, all_weights, masks, strict=True):
            group_grad = group.rows_of(grad_result)
            dropped_weights = _apply_dropout(weights, mask, ctx.dropout_scale)
            torch.bmm(dropped_weights.transpose(1, 2), group_grad, out=group.rows_of(grad_v))
            grad_dropped = torch.bmm(group_grad, group.rows_of(v).transpose(1, 2))
            grad_weights = _apply_dropout(grad_dropped, mask, ctx.dropout_scale)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            torch.bmm(grad_scores, group.rows_of(k), out=group.rows_of(grad_q))
            torch.bmm(grad_scores.transpose(1, 2), group.rows_of(q), out=group.rows_of(grad_k))
        # The stored query is scaled already, so the gradient of K needs no scale.
        grad_q.mul_(ctx.scale)
        return (
            *(
                length_groups.to_token_order(tensor, gradient.shape)
                for tensor in (grad_q, grad_k, grad_v)
            ),
            None,
            None,
            None,
        )


PROBE_LENGTH = 6
"""The longest sentence of the batch by which a model is tested first, in tokens."""
TORCH_ATTENTION = "sdpa"
"""The name in transformers of torch's own attention."""
UNPADDED_ATTENTION = "stsbench_unpadded"
"""The name in transformers of our attention, which without a layout is torch's."""


class TokenLayout:
    """The positions of the tokens of a padded batch when its sentences are laid end to end.

    The longest sentence is first.
    """

    def __init__(self, mask: torch.Tensor) -> None:
        """Sort the sentences by length, the longest first.

        Args:
            mask: Not 0 at the tokens of the batch, (b, t).
        """
        is_token = mask != 0
        self._lengths, order = is_token.sum(dim=1).sort(descending=True, stable=True)
        self.shape = mask.shape
        positions = torch.arange(mask.numel()).view(mask.shape)  # in the flattened batch
        self._token_positions = positions[order][is_token[order]]
        # Filled up, by the first token, to a length that recurs, so that memory is reused.
        n_fill = round_up(len(self._token_positions)) - len(self._token_positions)
        self._joined_positions = torch.cat(
            [self._token_positions, self._token_positions[:1].expand(n_fill)]
        )
        self._groups: dict[int, LengthGroups] = {}

    def join(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values (b, t, …) at the tokens, end to end (1, N, …).

        After the last token the first is repeated, up to a length that recurs.
        """
        return values.flatten(0, 1).index_select(0, self._joined_positions)[None]

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Return values (1, N, …) in their positions in the batch (b, t, …), zeros at padding."""
        zeros = values.new_zeros((self.shape.numel(), *values.shape[2:]))
        padded = zeros.index_copy(0, self._token_positions, values[0, : len(self._token_positions)])
        return padded.view(*self.shape, *values.shape[2:])

    def length_groups(self, heads: int) -> LengthGroups:
        """Return the groups of an attention with this number of heads; computed once."""
        if heads not in self._groups:
            self._groups[heads] = LengthGroups(
                lengths=self._lengths.numpy(), heads=heads, size=len(self._joined_positions)
            )
        return self._groups[heads]


class UnpaddedForward:
    """The forward of a model of transformers, without computing padding."""

    SUPPORTED_INPUTS = frozenset(
        {"input_ids", "attention_mask", "position_ids", "output_hidden_states"}
    )

    def __init__(self, model: PreTrainedModel) -> None:
        """Wrap the model's own forward."""
        self._model = model
        self._padded_forward = model.forward
        self.padding = False
        """Whether to compute padding too."""
        self.layout: TokenLayout | None = None
        """The layout of the batch that is being computed; None between batches."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:  # noqa: ANN401 - transformers is untyped
        """Return the model's output with states (b, t, h), zeros at padding.

        The tokens of all sentences go through the model end to end, as one row of N tokens; our
        attention keeps the sentences apart by the layout. With unsupported inputs it is the output
        of the model's own forward.

        Args:
            args: Positional arguments; with any of them the model's own forward is used.
            inputs: The inputs of the model by name.
        """
        has_required = {"input_ids", "attention_mask"} <= inputs.keys()
        is_supported = has_required and inputs.keys() <= self.SUPPORTED_INPUTS
        if args or not is_supported or self.padding:
            return self._padded_forward(*args, **inputs)
        ids = inputs["input_ids"]
        positions = inputs.get("position_ids")
        if positions is None:
            positions = _default_positions(self._model, ids)
        layout = TokenLayout(inputs.pop("attention_mask"))
        self.layout = layout
        inputs["input_ids"] = layout.join(ids)
        inputs["position_ids"] = layout.join(positions)
        try:
            output = self._padded_forward(**inputs, layout=layout)
        finally:
            self.layout = None
        states = getattr(output, "hidden_states", None)
        return BaseModelOutput(
            last_hidden_state=layout.spread(output.last_hidden_state),
            hidden_states=None
            if states is None
            else tuple(layout.spread(state) for state in states),
        )


def leave_out_padding(model: PreTrainedModel) -> None:
    """Replace the forward of a model on a CPU by one without padding, if its states stay the same.

    The states of a small batch are compared; they are equal for models like BERT and RoBERTa. A
    model whose states differ, one with a pooler, and one with another attention than torch's keep
    their forward.

    Args:
        model: A model of transformers without a head, changed in place.
    """
    has_pooler = getattr(model, "pooler", None) is not None
    is_supported = model.config._attn_implementation == TORCH_ATTENTION and not has_pooler
    if not is_supported or omits_padding(model) or model.device.type != "cpu":
        return
    padded_states = _probe_states(model)
    model.set_attn_implementation(UNPADDED_ATTENTION)
    model.forward = UnpaddedForward(model)
    try:
        tolerance = 1e-4 * float(padded_states.abs().max())
        is_equal = torch.allclose(_probe_states(model), padded_states, rtol=0, atol=tolerance)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        # Another architecture: it has no argument ``layout``, or another kind of attention.
        is_equal = False
    if not is_equal:
        del model.forward
        model.set_attn_implementation(TORCH_ATTENTION)


def omits_padding(model: PreTrainedModel) -> bool:
    """Return whether a model computes no padding."""
    return isinstance(model.forward, UnpaddedForward) and not model.forward.padding


@contextmanager
def padding_computed(model: PreTrainedModel) -> Iterator[None]:
    """Within the block, let a model compute the states of padding tokens, which are needed."""
    forward = model.forward
    if not isinstance(forward, UnpaddedForward):
        yield
        return
    forward.padding = True
    try:
        yield
    finally:
        forward.padding = False


def layout_of(model: PreTrainedModel) -> TokenLayout | None:
    """Return the layout of the batch that a model is computing; None if it is padded."""
    return model.forward.layout if isinstance(model.forward, UnpaddedForward) else None


@torch.no_grad()
def _probe_states(model: PreTrainedModel) -> torch.Tensor:
    """Compute all hidden states at the tokens of a synthetic batch, (layers, tokens, h).

    There is no dropout. The batch has three sentences of different lengths, not in the order of
    length, so that a layout that mixes them up is noticed.

    Args:
        model: A model of transformers.
    """
    mask = torch.arange(PROBE_LENGTH) < torch.tensor([PROBE_LENGTH - 2, PROBE_LENGTH, 1])[:, None]
    vocabulary_size = model.get_input_embeddings().num_embeddings
    # Any ids will do, if they differ: (3, PROBE_LENGTH).
    ids = torch.arange(3, 3 + mask.numel()).view(mask.shape) % vocabulary_size
    with evaluating(model):
        states = model(
            input_ids=ids, attention_mask=mask.long(), output_hidden_states=True
        ).hidden_states
    return torch.stack([state[mask] for state in states])


def _default_positions(model: Any, ids: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - transformers is untyped
    """Return the positions (b, t) that a model itself would assign to a batch.

    Most count from 0. RoBERTa and similar models count tokens from ``padding_idx + 1`` on, and give
    padding the position ``padding_idx``.

    Args:
        model: A model of transformers.
        ids: The token ids of the batch, (b, t).
    """
    padding = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    if padding is None:
        return torch.arange(ids.shape[1]).expand_as(ids)
    is_token = (ids != padding).long()
    positions: torch.Tensor = is_token.cumsum(dim=1) * is_token + padding
    return positions


def _attend(
    *arguments: Any,  # noqa: ANN401
    layout: TokenLayout | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:  # noqa: ANN401
    """Compute attention, without padding if there is a layout, with the interface of transformers.

    Args:
        arguments: A module, heads (1, h, N, d) of query, key and value, and a mask, which is not
            read with a layout.
        layout: The layout of the batch; None, and torch's own attention, if it is padded.
        options: Further arguments of transformers: ``scaling``, ``dropout``, ``sliding_window``.

    Returns:
        The result (1, N, h, d), and None in place of the attention's weights.
    """
    if layout is None:
        torch_result: tuple[torch.Tensor, None] = sdpa_attention_forward(*arguments, **options)
        return torch_result
    if options.get("sliding_window") is not None:
        raise ValueError("an attention with a sliding window is left to its model")
    _, query, key, value, *_ = arguments
    # From (1, h, N, d) to (N, h, d).
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    _, heads, head_size = q.shape
    scale = options.get("scaling")
    if scale is None:
        scale = head_size**-0.5
    rate = options.get("dropout", 0.0)
    groups = layout.length_groups(heads)
    result = GroupedAttention.apply(q, k, v, groups, scale, rate)  # type: ignore[no-untyped-call]
    return result[None], None


AttentionInterface.register(UNPADDED_ATTENTION, _attend)
AttentionMaskInterface.register(UNPADDED_ATTENTION, AttentionMaskInterface()[TORCH_ATTENTION])


_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
"""Parameters of glibc's ``mallopt``."""


def speed_up(module: torch.nn.Module, *, compiled: bool = False) -> None:
    """Prepare a module for training on a CPU, in place; on other devices nothing is changed.

    Dropout modules are replaced by ones that draw fewer random bits, transformers compute no
    padding, and linear layers use the faster products. For the whole process, the C library keeps
    freed memory.

    Args:
        module: All that is trained.
        compiled: Whether its transformers are compiled; these keep their own forward.
    """
    if any(parameter.device.type != "cpu" for parameter in module.parameters()):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        # Freed memory stays with the process for the next step, which needs as much: otherwise the
        # system would clear it and hand it out again.
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    # Only torch's own class: a subclass may do something else.
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Dropout and not child.inplace:
                setattr(parent, name, FewBitsDropout(child.p).train(child.training))
    for child in module.modules():
        if isinstance(child, PreTrainedModel) and child is child.base_model and not compiled:
            leave_out_padding(child)
    if not compiled:
        choose_products(module)
