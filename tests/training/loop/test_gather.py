"""Two processes with half a batch each give every contrastive loss and gradient of one with the whole."""

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MultipleNegativesRankingLoss
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from stsbench.training.loop.gather import gather_views, own_rows
from stsbench.training.loop.place import Place
from stsbench.training.objectives import (
    GivenEmbeddings,
    dimension_contrast,
    info_nce,
    jsd_mutual_information,
    library_loss,
    list_mle,
    list_net,
    mixed_info_nce,
    nt_xent,
    off_dropout_info_nce,
    pairs_in_batch,
    quick_thoughts,
    ranking_consistency,
    rankings,
    self_guided,
)
from tests.training.tensors import in_batch_tension, made

RANKS, B = 2, 6
INPUTS = made(B, 4, 5, key=1)
"""Four inputs a sentence: an anchor, its positive, its hard negative and one more layer."""
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]])
LABELS = torch.tensor([1, 0, 0, 1, 0, 0])
WEIGHT = made(5, 7, key=2)


def guided(variant: str, layers: int) -> Callable[..., torch.Tensor]:
    return lambda z, mask, labels: self_guided(z[:, 0], z[:, 1 : 1 + layers], temperature=0.05, variant=variant)


def similar(z: torch.Tensor, one: int, other: int) -> torch.Tensor:
    return rankings(z[:, one], z[:, other], temperature=0.5)


# Each of the embeddings (b, 4, d), a mask (b, 3) and labels (b,).
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "info_nce": lambda z, mask, labels: info_nce(z[:, 0], z[:, 1], temperature=0.05),
    "info_nce, hard negatives": lambda z, mask, labels: info_nce(
        z[:, 0], z[:, 1], z[:, 2], temperature=0.05, hard_negative_weight=0.7
    ),
    "nt_xent": lambda z, mask, labels: nt_xent(z[:, 0], z[:, 1], temperature=0.1),
    "base": guided("base", 1),
    "opt1": guided("opt1", 1),
    "opt2": guided("opt2", 1),
    "opt2-released": guided("opt2-released", 1),
    "opt3": guided("opt3", 3),
    "triplets": lambda z, mask, labels: library_loss(
        MultipleNegativesRankingLoss(GivenEmbeddings()), *z[:, :3].unbind(1)
    ),
    "contrastive tension in batch": lambda z, mask, labels: in_batch_tension(z[:, 0], z[:, 1]),
    "cosent": lambda z, mask, labels: library_loss(
        CoSENTLoss(GivenEmbeddings()), z[:, 0], z[:, 1], labels=labels + mask.sum(dim=1)
    ),
    "angle's contrast": lambda z, mask, labels: pairs_in_batch(
        z[:, 0], z[:, 1], torch.arange(2 * len(z)).roll(len(z))[:, None] == torch.arange(2 * len(z)), temperature=0.1
    ),
    "consistency": lambda z, mask, labels: ranking_consistency(z[:, 0], z[:, 1], temperature=0.1),
    "list_mle": lambda z, mask, labels: list_mle(similar(z, 0, 1), similar(z, 2, 2)),
    "list_net": lambda z, mask, labels: list_net(similar(z, 0, 1), similar(z, 2, 2)),
    "mutual information": lambda z, mask, labels: jsd_mutual_information(z[:, 1:], mask, z[:, 0]),
    "mixed negatives": lambda z, mask, labels: mixed_info_nce(z[:, 0], z[:, 1], temperature=0.05, mixing=0.2),
    "mixed negatives, released": lambda z, mask, labels: mixed_info_nce(
        z[:, 0], z[:, 1], temperature=0.05, mixing=0.2, variant="released"
    ),
    "off dropout": lambda z, mask, labels: off_dropout_info_nce(z[:, 0], z[:, 1], z[:, 2], temperature=0.05),
    "dimensions": lambda z, mask, labels: dimension_contrast(z[:, 0], z[:, 1], temperature=0.5),
    "quick-thoughts": lambda z, mask, labels: quick_thoughts(z[:, 0], z[:, 1]),
}
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}


class Encoder(torch.nn.Module):
    """One layer, and the loss of the gathered embeddings, as a method has it."""

    def __init__(self, loss: Callable[..., torch.Tensor], dtype: torch.dtype, *, gathers: bool = True) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(WEIGHT.to(dtype, copy=True))
        self.loss, self.gathers = loss, gathers

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        inputs, *rest = batch
        tensors = [torch.tanh(inputs @ self.weight), *rest]
        return self.loss(*map(gather_views, tensors)) if self.gathers else self.loss(*tensors)


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
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    share = B // RANKS
    rows = slice(rank * share, (rank + 1) * share)
    found = {
        f"{name}, {dtype}": loss_and_gradient(DistributedDataParallel(Encoder(loss, dtype)), rows, dtype)
        for name, loss in LOSSES.items()
        for dtype in TOLERANCES
    }
    alone = Encoder(LOSSES["nt_xent"], torch.float64, gathers=False)
    found["not gathered"] = loss_and_gradient(DistributedDataParallel(alone), rows, torch.float64)
    found["agreed"] = [Place(rank, RANKS, "cpu").agree(rank == wishing) for wishing in range(RANKS)]
    joined = gather_views(torch.arange(6).view(3, 2) + 10 * rank)
    found["joined"], found["own"] = joined.tolist(), own_rows(joined).tolist()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


FOUR = made(8, 3, 5, key=3)
"""Eight triplets, for four processes."""


class AsReleased(torch.nn.Module):
    """SimCSE's and DeCLUTR's released way with many GPUs: others' embeddings come without a gradient."""

    def __init__(self, *, exact: bool, part: str) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(WEIGHT.double())
        self.exact, self.part = exact, part

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        z = torch.tanh(inputs @ self.weight)
        if self.part == "mlm":
            # A mean over what one process holds, as the loss of hidden tokens is.
            return z.square().mean()
        z = gather_views(z) if self.exact else self.gathered(z)
        if self.part == "declutr":
            return nt_xent(z[:, 0], z[:, 1], temperature=0.05)
        return info_nce(z[:, 0], z[:, 1], z[:, 2], temperature=0.05)

    @staticmethod
    def gathered(z: torch.Tensor) -> torch.Tensor:
        pieces = [torch.zeros_like(z) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, z.detach())
        pieces[dist.get_rank()] = z
        return torch.cat(pieces)


def gradient_of(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    model(inputs).backward()
    (parameter,) = model.parameters()
    assert parameter.grad is not None
    return parameter.grad


CASES = [(exact, part) for exact in (False, True) for part in ("simcse", "declutr", "mlm")]


def work_of_four(rank: int, folder: str) -> None:
    """The gradients that four processes average, of two triplets each."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=4)
    own = FOUR[2 * rank : 2 * rank + 2].double()
    found = {
        str((exact, part)): gradient_of(DistributedDataParallel(AsReleased(exact=exact, part=part)), own).tolist()
        for exact, part in CASES
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def test_as_released_four_gpus_take_a_quarter_of_the_contrast_and_all_of_the_masked_words(tmp_path):
    multiprocessing.set_forkserver_preload([__name__])
    start_processes(work_of_four, args=(str(tmp_path),), nprocs=4, start_method="forkserver")  # type: ignore[no-untyped-call]
    four = json.loads((tmp_path / "0.json").read_text())
    for exact, part in CASES:
        joined = gradient_of(AsReleased(exact=True, part=part), FOUR.double())
        share = 1.0 if exact or part == "mlm" else 0.25
        assert joined.abs().max() > 1e-3
        torch.testing.assert_close(torch.tensor(four[str((exact, part))], dtype=torch.float64), share * joined)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of the two processes."""
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
    loss, gradient = loss_and_gradient(Encoder(LOSSES["nt_xent"], torch.float64), slice(None), torch.float64)
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
    assert Place(0, 1, "cpu").agree(True) and not Place(0, 1, "cpu").agree(False)


def test_alone_nothing_is_gathered():
    x = made(3, 2, key=1).requires_grad_()
    assert gather_views(x) is x and own_rows(x) is x
