"""A padded batch in parts: on a CPU of like length, so that hardly any of what is computed is padding; or in chunks.

Chunks give the loss and the gradient of a large batch in the memory of a small one (GradCache, Gao et al. 2021,
https://aclanthology.org/2021.repl4nlp-1.31): of each only the results are kept, and the backward pass computes it
again, with the same dropout, for the gradient of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.checkpoint import checkpoint

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
    """Compute a row of results for each row of a right-padded batch: on a CPU in parts of like length.

    All of ``tokens``, (b, t) each, are cut to the part, whatever they are; ``compute`` makes of a part (b', t') its results
    (b', …), the longest rows first. Those are returned in the order of the batch, (b, …). With ``chunk`` a part has no more rows,
    none of its activations are kept, and ``compute`` is called again in the backward pass: it may leave nothing behind but its
    results. ``generator`` is what it draws from beside torch's own. ``unpadded``: it leaves padding out by itself, and nothing
    is cut for its sake.
    """
    parts = list(_parts(tokens["attention_mask"], chunk, unpadded=unpadded))
    if len(parts) < 2:
        return compute(tokens)
    run = _computed_twice(compute, generator) if chunk and torch.is_grad_enabled() else compute
    pieces = [run({name: values[rows][:, :width] for name, values in tokens.items()}) for rows, width in parts]
    return torch.cat(pieces)[torch.argsort(torch.cat([rows for rows, _ in parts]))]


def _parts(mask: torch.Tensor, chunk: int | None, *, unpadded: bool) -> Iterator[tuple[torch.Tensor, int]]:
    """Each part's rows and width. Lengths are on the host on a CPU alone: a GPU would have to be waited for."""
    n, t = mask.shape
    whole = unpadded or mask.device.type != "cpu"
    parts = [(torch.arange(n, device=mask.device), t)] if whole else parts_by_length(mask)
    for rows, width in parts:
        yield from ((some, width) for some in torch.split(rows, chunk or n))


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
