"""Code for accelerators, walked on the pretend one: all comes out as on the CPU, and nothing mixes devices.

Run by ``test_walks.py`` in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.encoders import accelerator
from stsbench.encoders.engine import embed as engine
from stsbench.encoders.transformer import flat
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.evaluators.probe.evaluator import PROTOCOLS as PROBE_PROTOCOLS, ProbeEvaluator
from stsbench.evaluators.retrieval import RetrievalEvaluator
from stsbench.training.loop import on_cpu
from stsbench.training.loop.batches import receive_batch
from tests.accelerator import pretend
from tests.encoders.transformer.segments import attend_literally
from tests.evaluators import test_retrieval
from tests.evaluators.probe import test_evaluator
from tests.training.methods import every_method
from tests.training.students import sentences, student

MODULE, ALIVE = pretend.set_up()
DEVICE = torch.device(pretend.NAME, 0)


@pytest.fixture(autouse=True)
def fresh_calls() -> None:
    MODULE.calls.clear()


@pytest.fixture(params=["padded", "flat"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How batches are laid out on the accelerator, which has literal attention over segments."""
    if request.param == "flat":
        monkeypatch.setattr(flat, "find_attention", lambda device: attend_literally)
        monkeypatch.setattr(on_cpu, "find_attention", lambda device: attend_literally)
    return str(request.param)


@contextmanager
def counted_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Count what waits for the accelerator: copies to the CPU, and numbers that Python reads."""
    waits: list[str] = []
    run_on_cpu = pretend.run_on_cpu

    def run_and_count(func: Any, args: Any, kwargs: Any) -> Any:
        result = run_on_cpu(func, args, kwargs)
        is_copy = isinstance(result, torch.Tensor) and not isinstance(result, pretend.PretendTensor)
        if is_copy or "_local_scalar_dense" in func._schema.name:
            waits.append(func._schema.name)
        return result

    with monkeypatch.context() as patches:
        patches.setattr(pretend, "run_on_cpu", run_and_count)
        yield waits


def test_a_batch_is_computed_without_waiting_and_a_flat_one_without_padding(
    masked_lm, layout, monkeypatch
):
    encoder = TransformerEncoder(str(masked_lm), device=pretend.NAME)
    tokens, rows = encoder.tokenize(sentences(40)), np.arange(40)
    model = encoder.backbone.model
    assert bool(encoder.backend.padding_reason) is (layout == "padded")
    assert flat.omits_padding(model) is (layout == "flat")
    assert not encoder.backbone.depends_on_padding
    shapes = []
    model.embeddings.register_forward_hook(
        lambda module, inputs, output: shapes.append(output.shape[:2])
    )
    with counted_waits(monkeypatch) as waits:
        encoder.embed_tokens(tokens, rows)
    # The embeddings come to the CPU; nothing else does.
    assert len(waits) == 1, waits
    n_tokens = tokens.lengths.sum()
    assert shapes == [(1, n_tokens) if layout == "flat" else (40, tokens.lengths.max())]


def test_the_batch_of_a_training_is_computed_without_waiting(masked_lm, layout, monkeypatch):
    monkeypatch.setattr(every_method, "student", partial(student, device=pretend.NAME))
    learner = every_method.made(masked_lm, "simcse")
    on_cpu.speed_up(learner, precision=torch.float32)
    assert flat.omits_padding(learner.student.model) is (layout == "flat")
    assert not learner.student.backbone.depends_on_padding
    batch = learner.collate(np.arange(8), np.random.default_rng(2))
    with counted_waits(monkeypatch) as waits:
        moved = receive_batch(batch, learner.student.device)
        learner(**moved)["loss"].backward()
    # With padding, transformers looks whether there is any.
    assert bool(waits) is (layout == "padded")


def test_tensors_of_two_devices_do_not_meet():
    ours, cpu = torch.ones(3, device=DEVICE), torch.ones(3)
    with pytest.raises(RuntimeError, match="all tensors must be on one device"):
        ours + cpu
    assert torch.equal((ours + cpu.to(DEVICE)).cpu(), cpu + cpu)


def test_what_torch_tells_of_a_device():
    assert accelerator.resolve_device_name("auto") == pretend.NAME
    assert accelerator.resolve_device_name("cpu") == "cpu"
    [found] = accelerator.list_accelerators()
    assert found.device == "pretend:0"
    assert accelerator.device_product_name(DEVICE) == "Pretend 1"
    assert accelerator.free_memory_bytes(DEVICE) == 1 << 30
    accelerator.synchronize(DEVICE)
    assert accelerator.empty_cache()
    assert MODULE.calls[-2:] == ["synchronize", "empty_cache"]


def test_random_numbers_of_a_device_are_restored():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with accelerator.fork_rng(DEVICE):
        torch.rand(7, device=DEVICE)
    assert torch.equal(torch.rand(4), expected) and "get_rng_state" in MODULE.calls


@pytest.mark.parametrize(
    "pooling", ["mean", "cls_before_pooler", "max", "last_token", "first_last", "wk(1)"]
)
def test_embeddings_are_those_of_the_cpu(masked_lm, layout, pooling):
    texts = sentences(40)
    expected, embeddings = (
        engine.embed_all(TransformerEncoder(str(masked_lm), pooling=pooling, device=device), texts)
        for device in ("cpu", pretend.NAME)
    )
    # Angles between layers make rounding larger.
    tolerance = 4e-6 if pooling == "wk(1)" else 2e-6
    assert np.abs(embeddings - expected).max() < tolerance


@pytest.mark.parametrize("case", [*every_method.CASES, *every_method.WHOLE])
def test_a_step_of_every_method_is_that_of_the_cpu(masked_lm, layout, monkeypatch, case):
    losses, norms = [], []
    for device in ("cpu", pretend.NAME):
        monkeypatch.setattr(every_method, "student", partial(student, device=device))
        learner = every_method.made(masked_lm, case)
        if layout == "flat" and device == pretend.NAME:
            on_cpu.speed_up(learner)
        torch.manual_seed(5)
        batch = learner.collate(np.arange(8), np.random.default_rng(2))
        loss = learner(**receive_batch(batch, learner.student.device))["loss"]
        loss.backward()
        losses.append(loss.item())
        gradients = [p.grad for p in learner.parameters() if p.grad is not None]
        assert all(gradient.device.type == learner.student.device.type for gradient in gradients)
        norms.append(sum(float(gradient.double().square().sum()) for gradient in gradients))
    assert abs(losses[0] - losses[1]) < 2e-6 * max(1, abs(losses[0]))
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


def test_retrieval_is_that_of_the_cpu():
    splits, embed = test_retrieval.make_task()
    scores = [
        RetrievalEvaluator(test_retrieval.SMALL, device=device)(splits, embed, seed=0).score
        for device in ("cpu", pretend.NAME)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


@pytest.mark.parametrize(("protocol", "hidden"), [("senteval", 0), ("senteval", 6), ("logreg", 0)])
def test_probes_are_those_of_the_cpu(protocol, hidden):
    splits, embed = test_evaluator.three_splits()
    settings: Any = PROBE_PROTOCOLS[protocol]
    if hidden:
        settings = replace(settings, nhid=hidden, max_epochs=4)
    scores = [
        ProbeEvaluator(settings, device=device)(splits, embed, seed=0).score
        for device in ("cpu", pretend.NAME)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=0.02)


def test_a_full_memory_is_emptied_once_before_batches_are_halved(masked_lm):
    encoder = TransformerEncoder(str(masked_lm), pooling="mean", device=pretend.NAME)
    texts = sentences(30)
    expected = engine.embed_all(encoder, texts)
    embed_tokens, sizes = encoder.embed_tokens, []

    def embed_few_tokens(tokens: Any, rows: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 10:
            raise torch.OutOfMemoryError("out of memory")
        return embed_tokens(tokens, rows)

    encoder.embed_tokens = embed_few_tokens  # type: ignore[method-assign]
    MODULE.calls.clear()
    assert np.abs(engine.embed_all(encoder, texts) - expected).max() < 2e-6
    assert MODULE.calls.count("empty_cache") == 1
    # The same batch again after the cache was emptied, then its halves.
    assert sizes[0] == sizes[1] == 30 and max(sizes[2:]) < 30
