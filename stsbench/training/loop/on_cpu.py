"""What makes a step on a CPU faster and changes nothing that is learned: no padding, and fewer random bits.

The sentences of a batch go through a model end to end, and the states return to their places. A linear layer, a norm
and an activation know nothing of sentences; attention learns where they lie, and is computed in groups of like length,
in few large products of matrices. So no token of padding is computed, and each weight's gradient is made once a step.
It stands here beside the library's padded layers because it pays: a step of 64 NLI triplets through a BERT of 4 layers
of 384 takes 1.8 s of one processor, the plain padded step 6.0 s (float32, AMD with AVX-512).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.amp import custom_bwd, custom_fwd
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Compute as in tests, without dropout; then each module within has the mode that it had."""
    modes = [(one, one.training) for one in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for one, training in modes:
            one.training = training


_BITS = 16
"""Of randomness an element: a rate is met to within 8e-6."""


def draw_dropout_mask(shape: torch.Size, rate: float) -> tuple[torch.Tensor, float]:
    """Draw what a dropout of this rate keeps, bool of this shape, and what it is multiplied by; by torch's generator of the CPU."""
    dropped = round(rate * 2**_BITS)
    bits = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    drawn = bits.view(torch.int16)[: shape.numel()].view(shape)
    return drawn >= dropped - 2 ** (_BITS - 1), 1 / (1 - dropped / 2**_BITS)


class FewBitsDropout(torch.nn.Dropout):
    """``torch.nn.Dropout`` for a CPU; a rate of 0 or 1 is left to that."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Drop from values of any shape."""
        if not self.training or not 0 < self.p < 1:
            return super().forward(values)
        dropped: torch.Tensor = _Drop.apply(values, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, rate: float) -> torch.Tensor:  # noqa: ANN401 - torch's own
        keep, ctx.scale = draw_dropout_mask(values.shape, rate)
        ctx.save_for_backward(keep)
        return _dropped(values, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ANN401 - torch's own
        return _dropped(gradient, ctx.saved_tensors[0], ctx.scale), None


def _dropped(values: torch.Tensor, keep: torch.Tensor | None, grown: float) -> torch.Tensor:
    return values if keep is None else (values * keep).mul_(grown)


GROUP_COST = 48
"""What a group more costs, in padded tokens: from 20 to 200 a step takes as long."""


def round_up(count: int) -> int:
    """A count that recurs, at most 3% above: memory of a known size is had again, and a product of a known shape."""
    step = 1 << max(count.bit_length() - 6, 0)
    return -(-count // step) * step


class LengthGroup(NamedTuple):
    """Sentences whose attention is computed at once: rows of width, from a place among the rows of all groups on."""

    start: int
    rows: int
    width: int
    hidden: torch.Tensor | None
    """What is padding, bool (rows, 1, width); None: nothing."""

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """This group's part (rows, width, d) of the values (p, d) of all groups."""
        return values[self.start : self.start + self.rows * self.width].view(
            self.rows, self.width, -1
        )


class LengthGroups:
    """Where the heads of tokens laid end to end stand in groups of like length, padded to P tokens."""

    def __init__(self, lengths: npt.NDArray[np.int64], heads: int, size: int) -> None:
        """Cut sentences of falling lengths (n,); of the N = ``size`` tokens those after the sentences' own are of none."""
        first = np.cumsum(lengths) - lengths
        cuts = [*cheapest_cuts(lengths, GROUP_COST), len(lengths)]
        self.groups: list[LengthGroup] = []
        taken, real = [], []
        at = 0
        for begin, end in zip(cuts, cuts[1:], strict=False):
            columns = np.arange(lengths[begin])
            inside = columns < lengths[begin:end, None]
            tokens = np.where(inside, first[begin:end, None] + columns, 0)
            heads_of = tokens[:, None] * heads + np.arange(heads)[:, None]
            taken.append(heads_of.ravel())
            real.append(np.broadcast_to(inside[:, None], heads_of.shape).ravel())
            hidden = (
                None
                if inside.all()
                else torch.from_numpy(np.repeat(~inside, heads, axis=0)[:, None])
            )
            self.groups.append(LengthGroup(at, (end - begin) * heads, len(columns), hidden))
            at += heads_of.size
        where, is_real = np.concatenate(taken), np.concatenate(real)
        back = np.zeros(size * heads, dtype=np.int64)
        back[where[is_real]] = np.flatnonzero(is_real)
        self._own = int(is_real.sum())
        self._taken = torch.from_numpy(np.pad(where, (0, round_up(at) - at)))
        self._back = torch.from_numpy(back)

    def sort(self, values: torch.Tensor, *, zeros: bool = False) -> torch.Tensor:
        """Values (N, h, d) of heads as those of all groups (P h, d); at padding anything, or ``zeros``."""
        rows = values.reshape(-1, values.shape[-1])
        if not zeros:
            return rows.index_select(0, self._taken)
        groups = rows.new_zeros((len(self._taken), rows.shape[1]))
        return groups.index_copy_(0, self._back[: self._own], rows[: self._own])

    def put_back(self, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Values of all groups (P h, d) as those of heads, in their shape (N, h, d); zeros at tokens of no sentence."""
        rows = values.index_select(0, self._back)
        rows[self._own :] = 0
        return rows.view(shape)


class GroupedAttention(torch.autograd.Function):
    """softmax(scale Q K^T) V of each sentence's own tokens, with dropout of the weights at a rate.

    Given are query, key, value, :class:`LengthGroups`, scale and rate. Query, key, value and the result are (N, h, d), zeros at tokens of no sentence; under autocast they are taken in
    float32, which is as fast for small heads. Kept for the gradient are the weights of each sentence with itself, as
    torch keeps them where there is dropout, and a byte each for what was drawn.
    """

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, *given: Any) -> torch.Tensor:  # noqa: ANN401, D102 - torch's own
        *parts, groups, scale, rate = given
        q, k, v = (groups.sort(part) for part in parts)
        q.mul_(scale)
        result = torch.empty_like(q)
        weights, keeps = [], []
        for group in groups.groups:
            scores = torch.bmm(group.of(q), group.of(k).transpose(1, 2))
            if group.hidden is not None:
                scores.masked_fill_(group.hidden, torch.finfo(scores.dtype).min)
            share = torch.softmax(scores, dim=-1)
            keep, ctx.grown = draw_dropout_mask(scores.shape, rate) if rate else (None, 1.0)
            torch.bmm(_dropped(share, keep, ctx.grown), group.of(v), out=group.of(result))
            weights.append(share)
            keeps.append(keep)
        ctx.groups, ctx.scale = groups, scale
        ctx.save_for_backward(q, k, v, *weights, *keeps)
        return cast(torch.Tensor, groups.put_back(result, parts[0].shape))

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401, D102
        q, k, v, *rest = ctx.saved_tensors
        groups = ctx.groups.groups
        due = ctx.groups.sort(gradient, zeros=True)
        of_q, of_k, of_v = (torch.empty_like(part) for part in (q, k, v))
        for group, weights, keep in zip(
            groups, rest[: len(groups)], rest[len(groups) :], strict=True
        ):
            used = _dropped(weights, keep, ctx.grown)
            torch.bmm(used.transpose(1, 2), group.of(due), out=group.of(of_v))
            of_used = torch.bmm(group.of(due), group.of(v).transpose(1, 2))
            of_weights = _dropped(of_used, keep, ctx.grown)
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            torch.bmm(of_scores, group.of(k), out=group.of(of_q))
            torch.bmm(of_scores.transpose(1, 2), group.of(q), out=group.of(of_k))
        of_q.mul_(ctx.scale)
        return (
            *(ctx.groups.put_back(part, gradient.shape) for part in (of_q, of_k, of_v)),
            None,
            None,
            None,
        )


SHORT = 6
"""The longest sentence of the batch by which a model is tried first, in tokens."""
PLAIN, NAME = "sdpa", "stsbench_unpadded"
"""What transformers calls torch's own attention, and what it calls ours, which without a layout is that."""


class TokenLayout:
    """Where the tokens of a padded batch lie when its sentences are laid end to end, the longest first."""

    def __init__(self, mask: torch.Tensor) -> None:
        """Sort the sentences; a mask (b, t) is not 0 at the tokens that count."""
        real = mask != 0
        self._lengths, order = real.sum(dim=1).sort(descending=True, stable=True)
        self.shape = mask.shape
        self._at = torch.arange(mask.numel()).view(mask.shape)[order][real[order]]
        fill = round_up(len(self._at)) - len(self._at)
        self._taken = torch.cat([self._at, self._at[:1].expand(fill)])
        self._groups: dict[int, LengthGroups] = {}

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


class UnpaddedForward:
    """The forward of a model of transformers that leaves padding out."""

    TAKEN = frozenset({"input_ids", "attention_mask", "position_ids", "output_hidden_states"})

    def __init__(self, model: PreTrainedModel) -> None:
        """Stand before a model's own forward."""
        self._model, self._padded = model, model.forward
        self.padding = False
        """Compute that too."""
        self.layout: TokenLayout | None = None
        """Of the batch that is computed now."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:  # noqa: ANN401 - transformers is untyped
        """Return the model's output with states (b, t, h), zeros at padding; with other inputs as it stands."""
        known = inputs.keys() <= self.TAKEN and {"input_ids", "attention_mask"} <= inputs.keys()
        if args or not known or self.padding:
            return self._padded(*args, **inputs)
        ids, positions = inputs["input_ids"], inputs.get("position_ids")
        layout = self.layout = TokenLayout(inputs.pop("attention_mask"))
        inputs["input_ids"] = layout.join(ids)
        inputs["position_ids"] = layout.join(
            _positions(self._model, ids) if positions is None else positions
        )
        try:
            output = self._padded(**inputs, layout=layout)
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
    """Let a model on a CPU compute no padding, where its states are then the same: of BERT's and RoBERTa's kind."""
    plain = model.config._attn_implementation == PLAIN and getattr(model, "pooler", None) is None
    if not plain or is_unpadded(model) or model.device.type != "cpu":
        return
    expected = _states(model)
    model.set_attn_implementation(NAME)
    model.forward = UnpaddedForward(model)
    try:
        same = torch.allclose(
            _states(model), expected, rtol=0, atol=1e-4 * float(expected.abs().max())
        )
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        # Another architecture: it takes no layout, or its attention is not of this kind.
        same = False
    if not same:
        del model.forward
        model.set_attn_implementation(PLAIN)


def is_unpadded(model: PreTrainedModel) -> bool:
    """Whether a model leaves padding out."""
    return isinstance(model.forward, UnpaddedForward) and not model.forward.padding


@contextmanager
def padding_computed(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute its padding meanwhile, where its states there are asked for."""
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
    """How the batch lies that a model computes now; None: padded."""
    return model.forward.layout if isinstance(model.forward, UnpaddedForward) else None


@torch.no_grad()
def _states(model: PreTrainedModel) -> torch.Tensor:
    """All hidden states at the tokens of a made batch, as in tests."""
    mask = torch.arange(SHORT) < torch.tensor([SHORT - 2, SHORT, 1])[:, None]
    table = model.get_input_embeddings().num_embeddings
    ids = torch.arange(3, 3 + mask.numel()).view(mask.shape) % table
    with evaluating(model):
        states = model(
            input_ids=ids, attention_mask=mask.long(), output_hidden_states=True
        ).hidden_states
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
    *given: Any,  # noqa: ANN401
    layout: TokenLayout | None = None,
    **how: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:  # noqa: ANN401
    """Attention as transformers asks for it, of a module, heads (1, h, N, d) and a mask; to (1, N, h, d)."""
    if layout is None:
        plain: tuple[torch.Tensor, None] = sdpa_attention_forward(*given, **how)
        return plain
    if how.get("sliding_window") is not None:
        raise ValueError("an attention that sees so far only is left to its model")
    q, k, v = (part[0].transpose(0, 1) for part in given[1:4])
    _, heads, size = q.shape
    scale = size**-0.5 if how.get("scaling") is None else how["scaling"]
    result = GroupedAttention.apply(q, k, v, layout.groups(heads), scale, how.get("dropout", 0.0))  # type: ignore[no-untyped-call]
    return result[None], None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, AttentionMaskInterface()[PLAIN])


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of glibc's ``mallopt``."""


def speed_up(module: torch.nn.Module, *, compiled: bool = False) -> None:
    """Prepare all that is trained on a CPU, where models are not compiled also their layers; elsewhere nothing is done."""
    if any(parameter.device.type != "cpu" for parameter in module.parameters()):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        # The C library keeps what is freed for the next step, which needs as much: the system need not clear it anew.
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Dropout and not child.inplace:
                setattr(parent, name, FewBitsDropout(child.p).train(child.training))
    for child in module.modules():
        if isinstance(child, PreTrainedModel) and child is child.base_model and not compiled:
            leave_out_padding(child)


Tokens = Mapping[str, torch.Tensor]
"""``input_ids`` and ``attention_mask``, both int64 (b, t), and perhaps ``position_ids``."""
PART_COST: Mapping[torch.dtype, int] = {torch.float32: 48, torch.bfloat16: 400, torch.float16: 400}
"""What a part more costs, in padded tokens, by the numbers that matrices are multiplied in: each part adds to every
weight's gradient once more, and in few bits a token costs little beside."""


def by_length(
    tokens: Tokens,
    compute: Callable[[Tokens], torch.Tensor],
    *,
    chunk: int | None = None,
    generator: torch.Generator | None = None,
    unpadded: bool = False,
) -> torch.Tensor:
    """Compute a row of results for each row of a right-padded batch: on a CPU in parts of like length, or in chunks.

    Chunks give the loss and the gradient of a large batch in the memory of a small one (GradCache, Gao et al. 2021,
    https://aclanthology.org/2021.repl4nlp-1.31): the backward pass computes them again, with the same dropout.
    Of parts of like length hardly any of what is computed is padding.

    All of ``tokens``, (b, t) each, are cut to the part, whatever they are; ``compute`` makes of a part (b', t') its
    results (b', …), the longest rows first. Those are returned in the order of the batch, (b, …). With ``chunk`` a part
    has no more rows, none of its activations are kept, and ``compute`` is called again in the backward pass: it may
    leave nothing behind but its results. ``generator`` is what it draws from beside torch's own. ``unpadded``: it
    leaves padding out by itself, and nothing is cut for its sake.
    """
    mask = tokens["attention_mask"]
    # Lengths are on the host on a CPU alone: a GPU would have to be waited for.
    whole = unpadded or mask.device.type != "cpu"
    alike = (
        [(torch.arange(len(mask), device=mask.device), mask.shape[1])]
        if whole
        else parts_by_length(mask)
    )
    parts = [
        (some, width) for rows, width in alike for some in torch.split(rows, chunk or len(mask))
    ]
    if len(parts) < 2:
        return compute(tokens)
    run = _computed_twice(compute, generator) if chunk and torch.is_grad_enabled() else compute
    pieces = [
        run({name: values[rows][:, :width] for name, values in tokens.items()})
        for rows, width in parts
    ]
    return torch.cat(pieces)[torch.argsort(torch.cat([rows for rows, _ in parts]))]


def _computed_twice(
    compute: Callable[[Tokens], torch.Tensor], generator: torch.Generator | None
) -> Callable[[Tokens], torch.Tensor]:
    """The same results without what they were made from, which is computed again where gradients need it."""

    def run(part: Tokens) -> torch.Tensor:
        drawn = None if generator is None else generator.get_state()

        def compute_as_before(part: Tokens) -> torch.Tensor:
            if generator is not None and drawn is not None:
                generator.set_state(drawn)
            return compute(part)

        # It puts torch's own generators back by itself.
        results: torch.Tensor = checkpoint(compute_as_before, part, use_reentrant=False)
        return results

    return run


def parts_by_length(mask: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """Cut the rows of a mask (b, t) into parts, longest first: each part's rows (b',) and its width."""
    lengths, order = mask.sum(dim=1).sort(descending=True, stable=True)
    sizes = lengths.clamp(min=1).numpy()
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    cuts = [*cheapest_cuts(sizes, PART_COST[dtype]), len(sizes)]
    for start, stop in zip(cuts, cuts[1:], strict=False):
        yield order[start:stop], int(sizes[start])


def cheapest_cuts(lengths: npt.NDArray[np.int64], part_cost: int) -> list[int]:
    """Where parts of rows sorted by falling length (n,) begin, so that padded tokens and parts together cost least."""
    n = len(lengths)
    cost = np.full(n + 1, np.iinfo(np.int64).max)
    cost[0] = 0
    began = np.zeros(n + 1, dtype=np.int64)
    for start in range(n):
        # Where a part may begin is settled by now; it may end behind any row from here on.
        found = cost[start] + part_cost + lengths[start] * np.arange(1, n - start + 1)
        better = np.flatnonzero(found < cost[start + 1 :]) + start + 1
        cost[better] = found[better - start - 1]
        began[better] = start
    cuts: list[int] = []
    at = n
    while at:
        at = int(began[at])
        cuts.append(at)
    return cuts[::-1]
