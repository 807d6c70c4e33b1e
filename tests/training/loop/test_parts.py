"""Parts of like length: every row once, cut where that costs least, and gradients as of the whole batch."""

from itertools import combinations

import numpy as np
import pytest
import torch

from stsbench.training.loop.on_cpu import PART_COST, Tokens, compute_in_parts, split_by_length


def mask_of(lengths: list[int]) -> torch.Tensor:
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def cost(lengths: list[int], cuts: tuple[int, ...], part_cost: int) -> int:
    ends = [*cuts[1:], len(lengths)]
    return sum(
        part_cost + (end - start) * lengths[start] for start, end in zip(cuts, ends, strict=True)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(5))
def test_cuts_are_the_cheapest_there_are(seed, dtype):
    lengths = np.random.default_rng(seed).integers(1, 500, 9).tolist()
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        parts = list(split_by_length(mask_of(lengths)))
    assert sorted(row for rows, _ in parts for row in rows.tolist()) == list(range(9))
    assert all(max(lengths[row] for row in rows.tolist()) == width for rows, width in parts)
    falling, part_cost = sorted(lengths, reverse=True), PART_COST[dtype]
    every = [(0, *cuts) for count in range(9) for cuts in combinations(range(1, 9), count)]
    best = min(cost(falling, cuts, part_cost) for cuts in every)
    assert sum(part_cost + len(rows) * width for rows, width in parts) == best


def test_what_leaves_padding_out_by_itself_is_run_whole_or_in_chunks():
    mask = mask_of([3, 60, 4, 58, 2, 1])
    for chunk, expected in ((None, [6]), (4, [4, 2])):
        seen: list[int] = []

        def compute(part: Tokens, seen: list[int] = seen) -> torch.Tensor:
            seen.append(len(part["attention_mask"]))
            return part["attention_mask"].sum(dim=1)

        found = compute_in_parts({"attention_mask": mask}, compute, chunk=chunk, unpadded=True)
        assert seen == expected and found.tolist() == [3, 60, 4, 58, 2, 1]


def test_results_and_gradients_stand_where_their_rows_do():
    torch.manual_seed(0)
    table = torch.nn.Embedding(50, 4)
    mask = mask_of([3, 60, 4, 58, 2, 1])
    ids = torch.randint(50, mask.shape) * mask

    def compute(part: Tokens) -> torch.Tensor:
        states: torch.Tensor = table(part["input_ids"]) * part["attention_mask"].unsqueeze(-1)
        return states.sum(dim=1).tanh()

    tokens = {"input_ids": ids, "attention_mask": mask}
    found = []
    for rows in (compute_in_parts(tokens, compute), compute(tokens)):
        loss = (rows * torch.arange(6.0)[:, None]).sum()
        found.append((rows.detach(), *torch.autograd.grad(loss, table.weight)))
    assert len(list(split_by_length(mask))) > 1
    for in_parts, whole in zip(*found, strict=True):
        torch.testing.assert_close(in_parts, whole)
