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
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.amp import custom_bwd, custom_fwd
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from stsbench.encoders.transformer.cpu_kernels import choose_products
from stsbench.encoders.transformer.flat import (
    TokenLayout,
    find_attention,
    round_up_for_reuse,
    try_omitting_padding,
)

_RANDOM_BITS = 16
"""The random bits per element: a rate is met to within 8e-6."""


def draw_dropout_mask(shape: torch.Size, rate: float) -> tuple[torch.Tensor, float]:
    """Draw a dropout mask with torch's generator of the CPU, from 16 random bits per element.

    Args:
        shape: The shape of the mask.
        rate: The probability that an element is dropped, below 1; it is met to within 8e-6.

    Returns:
        The mask, True at elements that are kept, and the factor by which dropout multiplies the
        kept elements: 1 / the probability that an element is kept.
    """
    # Of the 2^16 possible random numbers, the number of those that drop an element.
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
        """Divide sentences into groups of similar length, and compute where each token goes.

        The tokens of all sentences are laid end to end: N tokens with h attention heads each. In a
        group each sentence is padded to the group's longest, and each head of each token is a row.
        The groups are in ``groups``; ``_head_of_row`` and ``_row_of_head`` map between the rows of
        all groups and the N * h heads.

        Args:
            lengths: The number of tokens of each sentence, the longest first, (n,).
            heads: The number of attention heads, h.
            size: The number of tokens N; it may exceed the sum of ``lengths``: the last tokens then
                belong to no sentence.
        """
        sentence_starts = np.cumsum(lengths) - lengths  # the first token of each sentence, (n,)
        # The first sentence of each group, and n at the end; a further group costs ``GROUP_COST``.
        cuts = [*cheapest_part_starts(lengths, GROUP_COST), len(lengths)]
        self.groups: list[LengthGroup] = []
        # For each row of all groups, the index of the head that is copied there, and whether the
        # row is a token's and not padding; one array per group.
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
            # (sentences, h, width): the index among all N * h heads, which are ordered by token.
            group_heads = tokens[:, None] * heads + np.arange(heads)[:, None]
            head_indices.append(group_heads.ravel())
            token_masks.append(np.broadcast_to(is_token[:, None], group_heads.shape).ravel())
            is_padding = None
            if not is_token.all():
                # The same for each head, with an axis that broadcasts over the queries.
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
        is_token_row = np.concatenate(token_masks)
        # The inverse: for each of the N h heads, its row among those of all groups. Heads of tokens
        # of no sentence, the last ones, have none and get 0.
        row_of_head = np.zeros(size * heads, dtype=np.int64)
        row_of_head[head_of_row[is_token_row]] = np.flatnonzero(is_token_row)
        self._n_token_rows = int(is_token_row.sum())
        # Filled up to a size that recurs, so that memory is reused.
        self._head_of_row = torch.from_numpy(
            np.pad(head_of_row, (0, round_up_for_reuse(n_rows) - n_rows))
        )
        self._row_of_head = torch.from_numpy(row_of_head)

    def to_group_order(self, values: torch.Tensor, *, zeros: bool = False) -> torch.Tensor:
        """Copy values from the order of tokens into the padded groups of similar sentences.

        Args:
            values: A vector of size d for each of the h heads of each of the N tokens, (N, h, d).
            zeros: Put zeros at padding, as gradients need; otherwise any value may be there.

        Returns:
            A vector for each row of all groups, (P h, d): P tokens, padding included, in h heads.
            Some more rows may follow, which no group reads.
        """
        head_values = values.reshape(-1, values.shape[-1])  # (N h, d)
        if not zeros:
            # For each row, the index of the head to copy there, of any token at padding.
            return head_values.index_select(0, self._head_of_row)
        rows = head_values.new_zeros((len(self._head_of_row), head_values.shape[1]))
        # ``_row_of_head``: for each head, its row. ``_n_token_rows``: the number of heads of tokens
        # of sentences; the tokens of no sentence come last, and go to no row.
        return rows.index_copy_(
            0, self._row_of_head[: self._n_token_rows], head_values[: self._n_token_rows]
        )

    def to_token_order(self, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Copy values from the padded groups of similar sentences back into the order of tokens.

        Args:
            values: A vector of size d for each row of all groups, (P h, d): P tokens, padding
                included, in h heads.
            shape: The shape to return, (N, h, d).

        Returns:
            A vector for each of the h heads of each of the N tokens; zeros at the tokens of no
            sentence, which come last.
        """
        # For each head of each token, its row.
        head_values = values.index_select(0, self._row_of_head)
        # The heads beyond this number belong to tokens of no sentence.
        head_values[self._n_token_rows :] = 0
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
        """Compute softmax(scale Q K^T) V for each sentence, and store what the gradient needs.

        Sentences of similar length make a group, which is computed at once.

        Args:
            ctx: Torch's store for the backward pass.
            arguments: Query, key and value, (N, h, d) each: N tokens of all sentences, h heads; the
                :class:`LengthGroups`; the scale; the dropout rate of the attention weights.

        Returns:
            The result, (N, h, d); zeros at tokens of no sentence.
        """
        *inputs, length_groups, scale, rate = arguments
        # (rows, d): in the order of the groups, padding included.
        q, k, v = (length_groups.to_group_order(tensor) for tensor in inputs)
        q.mul_(scale)
        # Its rows are written group by group below.
        result = torch.empty_like(q)
        all_weights = []
        masks = []
        for group in length_groups.groups:
            # ``rows_of`` returns the group's part of a tensor, (sentences * h, tokens, d), a view.
            scores = torch.bmm(group.rows_of(q), group.rows_of(k).transpose(1, 2))
            if group.is_padding is not None:
                scores.masked_fill_(group.is_padding, torch.finfo(scores.dtype).min)
            weights = torch.softmax(scores, dim=-1)
            # True at weights that are kept, and the factor of these.
            mask, ctx.dropout_scale = draw_dropout_mask(scores.shape, rate) if rate else (None, 1.0)
            # ``weights`` themselves if there is no mask.
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
        """Compute the gradients of query Q, key K and value V, (N, h, d) each.

        The result was W V, with W the attention weights after dropout: W = dropout(softmax(S)) and
        S = scale Q K^T. Let G be the gradient of the result. The gradient of V is W^T G. That of W
        is G V^T; it passes back through dropout and softmax to S, and from S to Q and K.

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
        # Their rows are written group by group below: one group is sentences of similar length.
        grad_q, grad_k, grad_v = (torch.empty_like(tensor) for tensor in (q, k, v))
        # ``rows_of`` returns the group's part of a tensor, (sentences * h, tokens, d), as a view:
        # ``out`` writes into the whole tensor. ``_apply_dropout`` multiplies by mask and factor;
        # without a mask it returns its argument.
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


def attend_in_groups(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: TokenLayout,
    *,
    scale: float,
    dropout: float,
    causal: bool,
    window: int | None,
) -> torch.Tensor:
    """Compute attention on a CPU: each token attends to all tokens of its own sentence.

    Sentences of similar length are computed at once, as a group.

    Args:
        query: The queries of the N tokens of all sentences, laid end to end, in h heads, (N, h, d).
        key: Their keys (N, h, d).
        value: Their values (N, h, d).
        layout: The lengths of the sentences in tokens, the longest first, and N, ``size``, which
            may exceed their sum: the last tokens are then filling. Its ``plans`` store the groups
            by number of heads, so that all layers of a model use the same.
        scale: The factor of the products of query and key.
        dropout: The dropout rate of the attention weights.
        causal: Whether a token attends to no token after it; must be False.
        window: How far a token attends; must be None.

    Returns:
        The weighted means of the values, (N, h, d).

    Raises:
        ValueError: Tokens do not attend to all of their sentence.
    """
    if causal or window is not None:
        raise ValueError("its tokens do not attend to all of their sentence")
    heads = query.shape[1]
    if heads not in layout.plans:
        layout.plans[heads] = LengthGroups(layout.lengths.numpy(), heads, layout.size)
    result: torch.Tensor = GroupedAttention.apply(  # type: ignore[no-untyped-call]
        query, key, value, layout.plans[heads], scale, dropout
    )
    return result


_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
"""Parameters of glibc's ``mallopt``."""


def speed_up(
    module: torch.nn.Module, *, precision: torch.dtype | None = None, compiled: bool = False
) -> None:
    """Prepare a module for faster training, in place.

    * Its transformers compute no padding, unless they are compiled.
    * On a CPU dropout modules are replaced by ones that draw fewer random bits.
    * On a CPU linear layers use the faster of several matrix products.
    * On a CPU the C library keeps freed memory; this holds for the whole process.

    Args:
        module: The module, with everything that is trained.
        precision: The type in which matrices are multiplied in training; None for their own.
        compiled: Whether its transformers are compiled by torch; these keep their own code.
    """
    for child in module.modules():
        # The transformer itself, not a model with a head around it.
        if isinstance(child, PreTrainedModel) and child is child.base_model and not compiled:
            # From now on it lays the sentences of a batch end to end, without padding, if it can.
            _speed_up_model(child, precision)
    if any(parameter.device.type != "cpu" for parameter in module.parameters()):
        return
    # The setting of the C library's memory; not all libraries have it.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        # Freed memory stays with the process for the next step, which needs as much: otherwise the
        # system would clear it and hand it out again.
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    # Only torch's own class: a subclass may do something else.
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            # The new module draws 16 random bits per element, and has the old one's rate and mode.
            if type(child) is torch.nn.Dropout and not child.inplace:
                setattr(parent, name, FewBitsDropout(child.p).train(child.training))
    if not compiled:
        # It measures for each linear layer which product is faster.
        choose_products(module)


def _speed_up_model(model: PreTrainedModel, precision: torch.dtype | None) -> None:
    """Let a transformer compute no padding in a precision, in place, if that can be done."""
    if model.device.type == "cpu":
        # Attention is in float32 here, whatever the precision is.
        try_omitting_padding(model, attend_in_groups)
    elif (attention := find_attention(model.device)) is not None:
        try_omitting_padding(model, attention, precision=precision, for_training=True)


Tokens = Mapping[str, torch.Tensor]
"""``input_ids`` and ``attention_mask``, both int64 (b, t), and perhaps ``position_ids``."""
PART_COST: Mapping[torch.dtype, int] = {torch.float32: 48, torch.bfloat16: 400, torch.float16: 400}
"""The cost of a further part, in padded tokens, by the type in which matrices are multiplied: each
part adds to every weight's gradient once more, and in few bits a token costs little beside."""


def compute_in_parts(
    tokens: Tokens,
    compute: Callable[[Tokens], torch.Tensor],
    *,
    chunk: int | None = None,
    generator: torch.Generator | None = None,
    unpadded: bool = False,
) -> torch.Tensor:
    """Compute a row of results for each row of a right-padded batch, part by part.

    On a CPU a part has rows of similar length, so that little padding is computed. On other
    devices, or with ``unpadded``, the whole batch is one part.

    With ``chunk`` these parts are divided further. Then a large batch needs the memory of a small
    one: no activations of a part are stored, and the backward pass computes them again, with the
    same dropout (GradCache, Gao et al. 2021, https://aclanthology.org/2021.repl4nlp-1.31).

    Args:
        tokens: The batch: tensors by any names, (b, t) each, among them ``attention_mask``.
        compute: A function from a part of the batch, (b', t') each, to its results (b', …). The
            rows of one of several parts come by length, the longest first; a batch that is one part
            is passed as it is. With ``chunk`` it is called again in the backward pass, so it must
            have no side effects.
        chunk: The maximum number of rows of a part; None if there is no maximum.
        generator: The generator that ``compute`` draws from, beside torch's own; None if there is
            none.
        unpadded: Whether ``compute`` omits padding itself, so that parts need no similar lengths.

    Returns:
        The results in the order of the batch, (b, …).
    """
    mask = tokens["attention_mask"]
    # For each part the indices of its rows, and the length of its longest row.
    rows_and_widths: Iterable[tuple[torch.Tensor, int]]
    # On a GPU a batch is not split by length: reading the lengths would wait for the device.
    if unpadded or mask.device.type != "cpu":
        all_rows = torch.arange(len(mask), device=mask.device)
        rows_and_widths = [(all_rows, mask.shape[1])]
    else:
        rows_and_widths = split_by_length(mask)
    parts = []
    for rows, width in rows_and_widths:
        parts += [(part_rows, width) for part_rows in torch.split(rows, chunk or len(mask))]
    if len(parts) < 2:
        return compute(tokens)
    compute_part = compute
    if chunk and torch.is_grad_enabled():
        compute_part = _recomputed_in_backward(compute, generator)
    results = [
        compute_part({name: values[rows][:, :width] for name, values in tokens.items()})
        for rows, width in parts
    ]
    # Sort the results into the order of the batch.
    rows_of_results = torch.cat([rows for rows, _ in parts])
    return torch.cat(results)[torch.argsort(rows_of_results)]


def _recomputed_in_backward(
    compute: Callable[[Tokens], torch.Tensor], generator: torch.Generator | None
) -> Callable[[Tokens], torch.Tensor]:
    """Return ``compute`` with its activations computed again in the backward pass, not stored.

    Args:
        compute: A function from a part of a batch to its results.
        generator: A generator that ``compute`` draws from, beside torch's own; its state is
            restored for the second computation, so that the draws are the same. None if there is
            none.
    """

    def compute_part(part: Tokens) -> torch.Tensor:
        """Return ``compute(part)``; the backward pass calls ``compute`` once more.

        Both calls draw the same numbers from ``generator``, an argument of the outer function.
        """
        generator_state = None if generator is None else generator.get_state()

        def compute_with_same_draws(part: Tokens) -> torch.Tensor:
            if generator is not None and generator_state is not None:
                generator.set_state(generator_state)
            return compute(part)

        # torch's ``checkpoint`` restores torch's own generators by itself.
        results: torch.Tensor = checkpoint(compute_with_same_draws, part, use_reentrant=False)
        return results

    return compute_part


def split_by_length(mask: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """Split the rows of a right-padded batch into parts of similar length, the longest first.

    Args:
        mask: 1 at tokens and 0 at padding, (b, t).

    Yields:
        For each part the indices of its rows in the batch, (b',), and its width, the length of its
        longest row.
    """
    lengths, order = mask.sum(dim=1).sort(descending=True, stable=True)
    # A row without tokens needs a width too.
    widths = lengths.clamp(min=1).numpy()
    # The type in which the model multiplies matrices decides what a further part costs.
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    # The first row of each part in the sorted order, and b at the end.
    cuts = [*cheapest_part_starts(widths, part_cost=PART_COST[dtype]), len(widths)]
    for start, stop in zip(cuts, cuts[1:], strict=False):
        # The first row of a part is its longest.
        yield order[start:stop], int(widths[start])


def cheapest_part_starts(lengths: npt.NDArray[np.int64], part_cost: int) -> list[int]:
    """Divide rows into the consecutive parts that together cost least; return their first rows.

    The rows of a part are padded to its longest, so a part costs its number of rows times the
    length of its longest row, plus ``part_cost``. The method is dynamic programming: the least cost
    of the first i rows, for rising i; it takes O(n^2).

    Args:
        lengths: The lengths of the rows, the longest first, (n,).
        part_cost: The cost of a further part, in padded tokens.

    Returns:
        The index of the first row of each part, rising from 0.
    """
    n_rows = len(lengths)
    # Element i is about the first i rows: their least cost, and the start of their last part.
    least_costs = np.full(n_rows + 1, np.iinfo(np.int64).max)
    least_costs[0] = 0
    last_starts = np.zeros(n_rows + 1, dtype=np.int64)
    for start in range(n_rows):
        # The least cost of the rows before ``start`` is final. A part from ``start`` may end behind
        # any later row: element k of ``costs`` is for the one that ends behind row start + k.
        part_sizes = np.arange(1, n_rows - start + 1)
        costs = least_costs[start] + part_cost + lengths[start] * part_sizes
        improved = np.flatnonzero(costs < least_costs[start + 1 :])
        least_costs[improved + start + 1] = costs[improved]
        last_starts[improved + start + 1] = start
    part_starts: list[int] = []
    # From the end back: the start of a part is the end of the part before.
    end = n_rows
    while end:
        end = int(last_starts[end])
        part_starts.append(end)
    return part_starts[::-1]
