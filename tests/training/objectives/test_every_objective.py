"""What every objective does: exact gradients, float32 whatever the model computes in, and refusals in one line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.training.objectives import (
    dimension_contrast,
    info_nce,
    jsd_mutual_information,
    list_net,
    mixed_info_nce,
    nt_xent,
    off_dropout_info_nce,
    pair_features,
    queued_info_nce,
    quick_thoughts,
    self_guided,
)
from tests.training.objectives.every_objective import INPUTS, LABELS, LOSSES, MASK
from tests.training.tensors import in_batch_tension, made

A, B, C = (made(5, 7, key=key) for key in (1, 2, 3))
QUEUE, FILLED = made(5, 7, key=4), torch.tensor([True, True, True, False, False])
HIDDEN = made(4, 3, 7, key=5)
HEAT: dict[str, Any] = {"temperature": 0.05}


# No gradient flows through a mix.
@pytest.mark.parametrize("name", [name for name in LOSSES if not name.startswith("mixed")])
def test_gradients_are_exact(name):
    assert torch.autograd.gradcheck(lambda z: LOSSES[name](z, MASK, LABELS), (INPUTS.clone().requires_grad_(),))


@pytest.mark.parametrize("name", LOSSES)
def test_float32_at_least_whatever_the_model_computes_in(name):
    def loss(z: torch.Tensor) -> torch.Tensor:
        return LOSSES[name](z, MASK, LABELS)

    exact, single = loss(INPUTS), loss(INPUTS.float())
    assert (exact.dtype, single.dtype) == (torch.float64, torch.float32)
    assert single.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert (INPUTS[0].float() @ INPUTS[0].float().T).dtype == torch.bfloat16
        assert loss(INPUTS.float()).item() == single.item()
    for dtype in (torch.bfloat16, torch.float16):
        half = INPUTS.to(dtype).requires_grad_()
        found = loss(half)
        assert (found.dtype, found.item()) == (torch.float32, loss(half.float()).item())
        (gradient,) = torch.autograd.grad(found, half)
        assert gradient.dtype == dtype and gradient.isfinite().all()


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: info_nce(A, B[:4], **HEAT), ValueError, r"positive is \(4, 7\), but anchor is \(5, 7\)"),
    (lambda: info_nce(A, B, C[:1], **HEAT), ValueError, r"hard_negative is \(1, 7\), but anchor is \(5, 7\)"),
    (lambda: nt_xent(A[:, None], B[:, None], **HEAT), ValueError, r"view_a is \(5, 1, 7\); it must be \(b, d\)"),
    (lambda: nt_xent(A[:0], B[:0], **HEAT), ValueError, r"view_a is \(0, 7\)"),
    (lambda: info_nce(A, B, hard_negative_weight=0.5, **HEAT), StsbenchError, "without hard negatives"),
    (
        lambda: queued_info_nce(A, B, QUEUE, FILLED[:4], **HEAT),
        ValueError,
        r"queue is \(5, 7\) and filled \(4,\); they must be \(m, 7\) and \(m,\)",
    ),
    (lambda: mixed_info_nce(A[:1], B[:1], mixing=0.2, **HEAT), ValueError, "no other to be mixed with"),
    (lambda: mixed_info_nce(A, B, mixing=1.5, **HEAT), StsbenchError, r"mixing 1\.5: it is a share"),
    (
        lambda: mixed_info_nce(A, B, mixing=0.2, variant="papers", **HEAT),
        UnknownName,
        "unknown variant 'papers'; did you mean 'paper'",
    ),
    (lambda: off_dropout_info_nce(A, B, C[:4], **HEAT), ValueError, r"still is \(4, 7\), but anchor is \(5, 7\)"),
    (lambda: off_dropout_info_nce(A, B, C, positive_share=0.0, **HEAT), StsbenchError, "positive_share 0"),
    (lambda: dimension_contrast(A[:1], B[:1], **HEAT), ValueError, "one sentence has no variance"),
    (lambda: jsd_mutual_information(HIDDEN[:1], MASK[:1], A[:1]), ValueError, "one sentence has no negatives"),
    (
        lambda: jsd_mutual_information(HIDDEN, MASK[:4, 1:], A[:4]),
        ValueError,
        r"local is \(4, 3, 7\) and mask \(4, 2\)",
    ),
    (
        lambda: jsd_mutual_information(HIDDEN, MASK[:4], A[:3]),
        ValueError,
        r"local without its tokens is \(4, 7\), but pooled is \(3, 7\)",
    ),
    (lambda: quick_thoughts(A[:1], B[:1]), ValueError, "a passage of one sentence has no neighbours"),
    (lambda: quick_thoughts(A[:2], B[:3]), ValueError, r"second is \(3, 7\), but first is \(2, 7\)"),
    (lambda: list_net(A, B[1:]), ValueError, "teacher is"),
    (lambda: list_net(A[:1, :1], B[:1, :1]), ValueError, "give two at least"),
    (lambda: in_batch_tension(A, B[1:]), ValueError, r"2 is \(4, 7\), but 1 is \(5, 7\)"),
    (lambda: in_batch_tension(A[:0], B[:0]), ValueError, r"1 is \(0, 7\)"),
    (
        lambda: self_guided(A, HIDDEN, variant="opt4", **HEAT),
        UnknownName,
        "unknown self-guided variant 'opt4'; did you mean",
    ),
    *(
        (
            lambda variant=variant: self_guided(A[:4], HIDDEN, variant=variant, **HEAT),
            ValueError,
            rf"\(4, 3, 7\); variant '{variant}' takes one layer a sentence",
        )
        for variant in ("base", "opt1", "opt2", "opt2-released")
    ),
    (
        lambda: self_guided(A[:4], A[:4], variant="opt3", **HEAT),
        ValueError,
        r"hidden is \(4, 7\); it must be \(b, k, d\)",
    ),
    (lambda: self_guided(A[:4], HIDDEN[:, :0], variant="opt3", **HEAT), ValueError, r"hidden is \(4, 0, 7\)"),
    (
        lambda: self_guided(A, HIDDEN, variant="opt3", **HEAT),
        ValueError,
        r"each layer of hidden is \(4, 7\), but cls is \(5, 7\)",
    ),
    (lambda: pair_features(A, B, "sberd"), UnknownName, "unknown pair features 'sberd'; did you mean 'sbert'"),
    (
        lambda: pair_features(A, B, ["u", "|u-w|"]),
        UnknownName,
        r"unknown pair feature '\|u-w\|'; did you mean '\|u-v\|'",
    ),
    (lambda: pair_features(A, B, []), StsbenchError, "no pair features; name some of u, v"),
    (lambda: pair_features(A, B[:1], "sbert"), ValueError, r"v is \(1, 7\), but u is \(5, 7\)"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG)
def test_what_does_not_fit_is_one_line(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize("temperature", [0.0, -0.05, math.inf, math.nan])
def test_a_temperature_is_a_positive_number(temperature):
    calls: list[Callable[..., Any]] = [info_nce, nt_xent, dimension_contrast]
    for call in calls:
        with pytest.raises(StsbenchError, match=f"temperature {temperature}: it must be a positive number"):
            call(A, B, temperature=temperature)
    with pytest.raises(StsbenchError, match="it must be a positive number"):
        self_guided(A[:4], HIDDEN, temperature=temperature, variant="opt3")
