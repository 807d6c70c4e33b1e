"""Batches divided into parts of similar length, or into chunks that are computed again.

On a CPU hardly any of what is computed then is padding. Chunks give the loss and the gradient of a
large batch in the memory of a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.checkpoint import checkpoint

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
    """Compute a row of results for each row of a right-padded batch, in parts or in chunks.

    On a CPU a part has rows of similar length, so hardly any of what is computed is padding. Chunks
    give the loss and the gradient of a large batch in the memory of a small one (GradCache, Gao et
    al. 2021, https://aclanthology.org/2021.repl4nlp-1.31): the backward pass computes them again,
    with the same dropout.

    Args:
        tokens: The batch; all tensors, (b, t) each, are cut to the part, whatever their names.
        compute: Computes the results (b', …) of a part (b', t'), the longest rows first. With a
            ``chunk`` it is called again in the backward pass, and may have no effect but its
            results.
        chunk: The maximum number of rows of a part; none of its activations are stored. None if
            there is no maximum.
        generator: The generator that ``compute`` draws from, beside torch's own.
        unpadded: Whether ``compute`` omits padding itself, so that parts need no similar lengths.

    Returns:
        The results in the order of the batch, (b, …).
    """
    mask = tokens["attention_mask"]
    # Rows of similar length, and the length of their longest.
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
    # Sort the results by the rows of the batch that they belong to.
    rows_of_results = torch.cat([rows for rows, _ in parts])
    return torch.cat(results)[torch.argsort(rows_of_results)]


def _recomputed_in_backward(
    compute: Callable[[Tokens], torch.Tensor], generator: torch.Generator | None
) -> Callable[[Tokens], torch.Tensor]:
    """Return ``compute`` with its activations computed again in the backward pass, not stored.

    Args:
        compute: Computes the results of a part of a batch.
        generator: A generator that it draws from, beside torch's own: its state is restored for the
            second computation, so that the draws are the same.
    """

    def compute_part(part: Tokens) -> torch.Tensor:
        generator_state = None if generator is None else generator.get_state()

        def compute_as_before(part: Tokens) -> torch.Tensor:
            if generator is not None and generator_state is not None:
                generator.set_state(generator_state)
            return compute(part)

        # ``checkpoint`` restores torch's own generators by itself.
        results: torch.Tensor = checkpoint(compute_as_before, part, use_reentrant=False)
        return results

    return compute_part


def split_by_length(mask: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """Split the rows of a right-padded batch into parts of similar length, the longest first.

    Args:
        mask: 1 at tokens and 0 at padding, (b, t).

    Yields:
        The rows of each part, (b',), and its width, the length of its longest row.
    """
    lengths, order = mask.sum(dim=1).sort(descending=True, stable=True)
    # A row without tokens needs a width too.
    widths = lengths.clamp(min=1).numpy()
    # The type in which the model multiplies matrices decides what a further part costs.
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    cuts = [*cheapest_part_starts(widths, part_cost=PART_COST[dtype]), len(widths)]
    for start, stop in zip(cuts, cuts[1:], strict=False):
        # The first row of a part is its longest.
        yield order[start:stop], int(widths[start])


def cheapest_part_starts(lengths: npt.NDArray[np.int64], part_cost: int) -> list[int]:
    """Divide rows into the consecutive parts that together cost least; return their first rows.

    The cost of a part is its rows times its longest row, plus ``part_cost``. This is dynamic
    programming over the first row of each part, in O(n^2).

    Args:
        lengths: The falling lengths of the rows, (n,).
        part_cost: The cost of a further part, in padded tokens.
    """
    n_rows = len(lengths)
    cost = np.full(n_rows + 1, np.iinfo(np.int64).max)  # of the first i rows, (n + 1,)
    cost[0] = 0
    starts = np.zeros(n_rows + 1, dtype=np.int64)  # of the last part of the first i rows
    for start in range(n_rows):
        # The cost of all rows before ``start`` is final; a part from here may end behind any row.
        total_cost = cost[start] + part_cost + lengths[start] * np.arange(1, n_rows - start + 1)
        improved = np.flatnonzero(total_cost < cost[start + 1 :]) + start + 1
        cost[improved] = total_cost[improved - start - 1]
        starts[improved] = start
    cuts: list[int] = []
    # From the end back: each part's start is the end of the part before.
    cut = n_rows
    while cut:
        cut = int(starts[cut])
        cuts.append(cut)
    return cuts[::-1]
