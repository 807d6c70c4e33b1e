"""A step in chunks, with layers computed again or compiled has the loss and the gradient of the plain one."""

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError
from stsbench.encoders.transformer import cpu_kernels
from stsbench.training.learner import Learner
from stsbench.training.loop import on_cpu
from stsbench.training.loop.loop import check_training_settings, prepare_learner
from stsbench.training.methods.own_encoders import ISBERT
from stsbench.training.methods.two_models import ContrastiveTension
from stsbench.training.methods.views import ConSERT
from tests.training.methods.every_method import CASES, DRAWN, made, precise
from tests.training.students import student

ROWS = 12


def facts(**options: Any) -> TrainingSection:
    return TrainingSection(batch_size=ROWS, learning_rate=1e-3, steps=1, **options)


def gradients(learner: Learner, options: TrainingSection) -> dict[str, torch.Tensor]:
    """The losses of one batch, and every gradient."""
    prepare_learner(learner, options)
    batch = learner.collate(np.arange(ROWS), np.random.default_rng(0))
    torch.manual_seed(7)
    losses = learner(**batch)
    losses["loss"].backward()
    found = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
    return {**found, **{f"loss {name}": value.detach() for name, value in losses.items()}}


def furthest(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """How far losses and the whole gradient are at most from where they should be, each as a share of its length."""
    assert found.keys() == wanted.keys() and sum(name.startswith("student.") for name in found) > 10
    losses = [name for name in wanted if name.startswith("loss ")]
    parts = [[name] for name in losses] + [[name for name in wanted if name not in losses]]
    apart = [length({name: found[name] - wanted[name] for name in some}) for some in parts]
    return max(
        # Two views without dropout are consistent but for rounding.
        far / max(length({name: wanted[name] for name in some}), 1e-9)
        for far, some in zip(apart, parts, strict=True)
    )


def length(tensors: dict[str, torch.Tensor]) -> float:
    return float(
        torch.stack([tensor.double().square().sum() for tensor in tensors.values()]).sum().sqrt()
    )


@pytest.mark.parametrize("case", CASES)
def test_chunks_have_the_loss_and_gradient_of_the_whole_batch(masked_lm, case):
    whole = gradients(precise(made(masked_lm, case)), facts())
    # 5 divides no number of texts here.
    assert furthest(gradients(precise(made(masked_lm, case)), facts(chunk=5)), whole) < 1e-6


@pytest.mark.parametrize("case", [*CASES, *DRAWN])
def test_products_of_onednn_have_the_loss_and_gradient_of_torch_s_own(masked_lm, case, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "MIN_CHOSEN_WEIGHTS", 0)
    found = []
    for by_onednn in (True, False):
        products = cpu_kernels.ProductChoice(by_onednn, by_onednn, by_onednn)
        monkeypatch.setattr(cpu_kernels, "fastest_products", lambda products=products: products)
        learner = made(masked_lm, case, dropout=0.1)
        found.append(gradients(learner, facts()))
        kinds = {type(module) for module in learner.modules()}
        assert (cpu_kernels.ChosenLinear in kinds) is by_onednn
    losses = [{name: each[name] for name in each if name.startswith("loss ")} for each in found]
    assert furthest(*found) < 1e-5
    for name, expected in losses[1].items():
        torch.testing.assert_close(losses[0][name], expected, rtol=1e-6, atol=1e-6)


def kept(compute: Any, part: Any, *, use_reentrant: bool) -> torch.Tensor:
    """In the place of a checkpoint: what was computed is kept."""
    results: torch.Tensor = compute(part)
    return results


@pytest.mark.parametrize("case", [*CASES, *DRAWN])
def test_dropout_and_all_other_draws_are_the_same_when_a_chunk_is_computed_again(
    masked_lm, case, monkeypatch
):
    again = gradients(made(masked_lm, case, dropout=0.3), facts(chunk=5))
    with monkeypatch.context() as patch:
        patch.setattr(on_cpu, "checkpoint", kept)
        once = gradients(made(masked_lm, case, dropout=0.3), facts(chunk=5))
    assert furthest(again, once) < 1e-6
    torch.manual_seed(8)
    assert furthest(gradients(made(masked_lm, case, dropout=0.0), facts(chunk=5)), once) > 1e-4


def activations(learner: Learner, options: TrainingSection) -> int:
    """Bytes that a batch's forward pass keeps for the backward one."""
    prepare_learner(learner, options)
    batch, seen = learner.collate(np.arange(20), np.random.default_rng(0)), dict[int, int]()

    def note(tensor: torch.Tensor) -> torch.Tensor:
        seen[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        learner(**batch)
    weights = {p.data_ptr() for p in learner.parameters()}
    return sum(size for place, size in seen.items() if place not in weights)


@pytest.mark.parametrize(
    ("options", "share"), [({"chunk": 4}, 0.1), ({"checkpointing": True}, 0.4)]
)
def test_what_is_computed_again_is_not_kept(masked_lm, options, share):
    case = "simcse, hard negatives"
    whole = activations(made(masked_lm, case, dropout=0.1), facts())
    assert 0 < activations(made(masked_lm, case, dropout=0.1), facts(**options)) < share * whole


@pytest.mark.parametrize("case", ["simcse, MLM", "consert, features", "declutr"])
@pytest.mark.parametrize("chunk", [None, 5])
def test_layers_that_are_computed_again_change_no_gradient(masked_lm, case, chunk):
    plain = gradients(made(masked_lm, case, dropout=0.3), facts(chunk=chunk))
    found = gradients(made(masked_lm, case, dropout=0.3), facts(chunk=chunk, checkpointing=True))
    assert furthest(found, plain) < 1e-6


SPREAD = {
    "simcse, triplets, MLM": 3,
    "declutr": 1,
    "esimcse": 2,
    "diffcse": 2,
    "mixcse": 2,
    "simcse++": 2,
    "promptbert": 2,
    "rankcse": 2,
    "tsdae": 1,
    "angle": 2,
}
"""Cases by how many views stand one below the other in their batches."""


def kept_beside(learner: Learner) -> dict[str, Any]:
    """What a method keeps beside weights: a queue, the statistics of batch norm."""
    return {
        name: values.tolist()
        for name, values in learner.named_buffers()
        if not name.startswith(("student.", "slow."))
    }


def work(rank: int, folder: str, base: str) -> None:
    """What each of two processes does: half of the batch, in chunks; the gradients into a file."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {}
    for case in SPREAD:
        learner = precise(made(Path(base), case))
        prepare_learner(learner, facts(chunk=5))
        spread = DistributedDataParallel(learner, find_unused_parameters=True)
        torch.manual_seed(7)
        loss = spread(**half(learner, rank))["loss"]
        loss.backward()
        grads = {
            name: p.grad.tolist() for name, p in learner.named_parameters() if p.grad is not None
        }
        found[case] = {**grads, "loss": loss.tolist(), "kept": kept_beside(learner)}
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def half(learner: Learner, rank: int) -> Any:
    return learner.collate(np.arange(6) + 6 * rank, np.random.default_rng(rank))


def joined(first: Any, second: Any, views: int) -> Any:
    """Both halves as one batch, view by view."""
    if isinstance(first, dict):
        return {
            n: joined(
                first[n], second[n], 1 if n in ("anchors", "first", "teacher_embeddings") else views
            )
            for n in first
        }
    if first.ndim == 1:
        return torch.cat([first, second])
    width = max(first.shape[1], second.shape[1])
    padded = [torch.nn.functional.pad(one, (0, width - one.shape[1])) for one in (first, second)]
    return torch.cat([one.chunk(views)[at] for at in range(views) for one in padded])


def test_two_processes_in_chunks_are_one_with_the_whole_batch(masked_lm, tmp_path):
    multiprocessing.set_forkserver_preload([__name__])
    start_processes(work, args=(str(tmp_path), str(masked_lm)), nprocs=2, start_method="forkserver")  # type: ignore[no-untyped-call]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for case, views in SPREAD.items():
        learner = precise(made(masked_lm, case))
        batch = joined(half(learner, 0), half(learner, 1), views)
        if "labels" in (
            hides := batch.get("hidden", batch.get("anchors", batch.get("original", {})))
        ):
            mask = batch.get("views", hides)["attention_mask"]
            hides["labels"][mask == 0] = -100
        loss = learner(**batch)["loss"]
        loss.backward()
        wanted = {n: p.grad for n, p in learner.named_parameters() if p.grad is not None}
        for rank in ranks:
            found = {
                name: torch.tensor(rank[case][name], dtype=grad.dtype)
                for name, grad in wanted.items()
            }
            for name, value in rank[case]["kept"].items():
                wished = dict(learner.named_buffers())[name]
                torch.testing.assert_close(
                    torch.tensor(value, dtype=wished.dtype), wished, rtol=1e-4, atol=1e-5
                )
            assert furthest(found, wanted) < 1e-6
        # What each of them prints is the loss of the whole batch, of hidden tokens too.
        assert [rank[case]["loss"] for rank in ranks] == pytest.approx(
            [float(loss.detach())] * 2, rel=1e-6
        )


@pytest.mark.parametrize(
    ("method", "params", "options", "says"),
    [
        (
            ISBERT,
            {"channels": 4},
            {"chunk": 4},
            "chunk: ISBERT's loss is not a function of embeddings alone \\(checkpoi",
        ),
        (
            ConSERT,
            {"objective": "joint", "views": ("none", "adversarial")},
            {"chunk": 4},
            "chunk: ConSERT's loss is",
        ),
        (
            ContrastiveTension,
            {},
            {"checkpointing": True},
            "checkpointing: ContrastiveTension runs its model as in tests",
        ),
    ],
)
def test_what_cannot_be_run_so_is_one_line(masked_lm, method, params, options, says):
    learner = method(student(masked_lm), **params)
    with pytest.raises(CardError, match=says):
        check_training_settings(learner, facts(**options))
    check_training_settings(learner, facts())


# Torch's own, when its compiler is imported.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.slow
def test_a_compiled_step_is_the_plain_one_and_weights_keep_their_names(masked_lm, monkeypatch):
    compile_ = torch.nn.Module.compile
    # Graphs are made as they would be, and run without a compiler.
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda self, **options: compile_(self, backend="aot_eager", **options),
    )
    for case, chunk in (("simcse, MLM", None), ("simcse, hard negatives", 5)):
        plain = gradients(made(masked_lm, case), facts(chunk=chunk))
        assert (
            furthest(gradients(made(masked_lm, case), facts(chunk=chunk, compile=True)), plain)
            < 1e-6
        )


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_what_changes_the_model_s_inside_is_not_compiled(masked_lm):
    with pytest.raises(
        CardError, match="compile: the method changes what is computed within the model"
    ):
        gradients(made(masked_lm, "consert, features"), facts(compile=True))
