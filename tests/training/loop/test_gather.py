"""Two processes with half a batch each give every contrastive loss and gradient of one with the whole."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from stsbench.training.loop.gather import ProcessGroup, gather_over_ranks, rows_of_this_rank
from tests.training.objectives.every_objective import INPUTS, LABELS, LOSSES, MASK
from tests.training.tensors import made

RANKS, B = 2, 6
WEIGHT = made(5, 7, key=2)


TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}


class Encoder(torch.nn.Module):
    """One layer, and the loss of the gathered embeddings, as a method has it."""

    def __init__(
        self, loss: Callable[..., torch.Tensor], dtype: torch.dtype, *, gathers: bool = True
    ) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(WEIGHT.to(dtype, copy=True))
        self.loss, self.gathers = loss, gathers

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        inputs, *rest = batch
        tensors = [torch.tanh(inputs @ self.weight), *rest]
        return self.loss(*map(gather_over_ranks, tensors)) if self.gathers else self.loss(*tensors)


def loss_and_gradient(model: torch.nn.Module, rows: slice, dtype: torch.dtype) -> list[Any]:
    loss = model(INPUTS[rows].to(dtype), MASK[rows], LABELS[rows])
    loss.backward()
    (parameter,) = model.parameters()
    assert parameter.grad is not None
    return [loss.item(), parameter.grad.tolist()]


def work(rank: int, folder: str) -> None:
    """What each process does: its own rows, every loss; the results into a file."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS
    )
    share = B // RANKS
    rows = slice(rank * share, (rank + 1) * share)
    found = {
        f"{name}, {dtype}": loss_and_gradient(
            DistributedDataParallel(Encoder(loss, dtype)), rows, dtype
        )
        for name, loss in LOSSES.items()
        for dtype in TOLERANCES
    }
    alone = Encoder(LOSSES["nt_xent"], torch.float64, gathers=False)
    found["not gathered"] = loss_and_gradient(DistributedDataParallel(alone), rows, torch.float64)
    found["agreed"] = [
        ProcessGroup(rank, RANKS, "cpu").agree(rank == wishing) for wishing in range(RANKS)
    ]
    joined = gather_over_ranks(torch.arange(6).view(3, 2) + 10 * rank)
    found["joined"], found["own"] = joined.tolist(), rows_of_this_rank(joined).tolist()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    # What the two import is imported once.
    multiprocessing.set_forkserver_preload([__name__])
    start_processes(work, args=(str(folder),), nprocs=RANKS, start_method="forkserver")  # type: ignore[no-untyped-call]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", LOSSES)
def test_two_processes_are_one_with_the_joined_batch(name, dtype, ranks):
    loss, gradient = loss_and_gradient(Encoder(LOSSES[name], dtype), slice(None), dtype)
    expected, tolerance = torch.tensor(gradient, dtype=torch.float64), TOLERANCES[dtype]
    assert expected.abs().max() > 1e-3
    for rank in ranks:
        found, averaged = rank[f"{name}, {dtype}"]
        assert found == pytest.approx(loss, rel=tolerance)
        averaged = torch.tensor(averaged, dtype=torch.float64)
        torch.testing.assert_close(averaged, expected, rtol=tolerance, atol=tolerance)


def test_without_gathering_the_loss_is_another(ranks):
    loss, gradient = loss_and_gradient(
        Encoder(LOSSES["nt_xent"], torch.float64), slice(None), torch.float64
    )
    for rank in ranks:
        found, averaged = rank["not gathered"]
        assert abs(found - loss) > 0.01
        assert (torch.tensor(averaged) - torch.tensor(gradient)).abs().max() > 0.01


def test_rows_are_joined_in_the_order_of_the_ranks(ranks):
    joined = [[0, 1], [2, 3], [4, 5], [10, 11], [12, 13], [14, 15]]
    assert [rank["joined"] for rank in ranks] == [joined, joined]
    assert [rank["own"] for rank in ranks] == [joined[:3], joined[3:]]


def test_all_do_what_the_first_process_wishes(ranks):
    assert [rank["agreed"] for rank in ranks] == [[True, False]] * RANKS
    assert ProcessGroup(0, 1, "cpu").agree(True) and not ProcessGroup(0, 1, "cpu").agree(False)


def test_alone_nothing_is_gathered():
    x = made(3, 2, key=1).requires_grad_()
    assert gather_over_ranks(x) is x and rows_of_this_rank(x) is x
