"""What every objective does: exact gradients, float32 whatever the model computes in, and refusals in one line."""

from __future__ import annotations

import math
import re
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
    quick_thoughts,
    self_guided,
)
from tests.training.objectives.every_objective import INPUTS, LABELS, LOSSES, MASK
from tests.training.tensors import in_batch_tension, made

A, B, C = (made(5, 7, key=key) for key in (1, 2, 3))
HIDDEN = made(4, 3, 7, key=5)
HEAT: dict[str, Any] = {"temperature": 0.05}


# No gradient flows through a mix.
@pytest.mark.parametrize("name", [name for name in LOSSES if not name.startswith("mixed")])
def test_gradients_are_exact(name):
    assert torch.autograd.gradcheck(
        lambda z: LOSSES[name](z, MASK, LABELS), (INPUTS.clone().requires_grad_(),)
    )


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


ALONE = "it must be (b, d) with b at least 2"
WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: info_nce(A, B[:4], **HEAT), ValueError, "positive is (4, 7), but anchor is (5, 7)"),
    (
        lambda: info_nce(A, B, C[:1], **HEAT),
        ValueError,
        "hard_negative is (1, 7), but anchor is (5, 7)",
    ),
    (
        lambda: nt_xent(A[:, None], B[:, None], **HEAT),
        ValueError,
        "view_a is (5, 1, 7); it must be (b, d)",
    ),
    (lambda: nt_xent(A[:0], B[:0], **HEAT), ValueError, "view_a is (0, 7)"),
    (
        lambda: info_nce(A, B, hard_negative_weight=0.5, **HEAT),
        StsbenchError,
        "without hard negatives",
    ),
    (lambda: mixed_info_nce(A[:1], B[:1], mixing=0.2, **HEAT), ValueError, ALONE),
    (
        lambda: mixed_info_nce(A, B, mixing=0.2, variant="papers", **HEAT),
        UnknownName,
        "did you mean 'paper'",
    ),
    (
        lambda: off_dropout_info_nce(A, B, C[:4], **HEAT),
        ValueError,
        "without_dropout is (4, 7), but anchor is (5, 7)",
    ),
    (lambda: dimension_contrast(A[:1], B[:1], **HEAT), ValueError, ALONE),
    (lambda: jsd_mutual_information(HIDDEN[:1], MASK[:1], A[:1]), ValueError, ALONE),
    (lambda: jsd_mutual_information(HIDDEN, MASK[:4], A[:3]), ValueError, "but pooled is (3, 7)"),
    (lambda: quick_thoughts(A[:1], B[:1]), ValueError, ALONE),
    (lambda: quick_thoughts(A[:2], B[:3]), ValueError, "second is (3, 7), but first is (2, 7)"),
    (lambda: list_net(A, B[1:]), ValueError, "teacher is"),
    (lambda: list_net(A[:1, :1], B[:1, :1]), ValueError, ALONE),
    (lambda: in_batch_tension(A, B[1:]), ValueError, "2 is (4, 7), but 1 is (5, 7)"),
    (
        lambda: self_guided(A, HIDDEN, variant="opt4", **HEAT),
        UnknownName,
        "unknown self-guided variant 'opt4'; did",
    ),
    (
        lambda: self_guided(A, HIDDEN, variant="opt3", **HEAT),
        ValueError,
        "is (4, 7), but cls is (5, 7)",
    ),
    (
        lambda: pair_features(A, B, "sberd"),
        UnknownName,
        "unknown pair features 'sberd'; did you mean 'sbert'",
    ),
    (
        lambda: pair_features(A, B, "u"),
        UnknownName,
        "consert-scripts, or a list of u, v, |u-v|, u*v",
    ),
    (
        lambda: pair_features(A, B, ["u", "|u-w|"]),
        UnknownName,
        "unknown pair feature '|u-w|'; did you mean '|u-v|'",
    ),
    (lambda: pair_features(A, B, []), StsbenchError, "no pair features; name some of u, v"),
    (lambda: pair_features(A, B[:1], "sbert"), ValueError, "v is (1, 7), but u is (5, 7)"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG)
def test_what_does_not_fit_is_one_line(call, error, says):
    with pytest.raises(error, match=re.escape(says)):
        call()


@pytest.mark.parametrize("temperature", [0.0, -0.05, math.inf, math.nan])
def test_a_temperature_is_a_positive_number(temperature):
    calls: list[Callable[..., Any]] = [info_nce, nt_xent, dimension_contrast]
    for call in calls:
        with pytest.raises(
            StsbenchError, match=f"temperature {temperature}: it must be a positive number"
        ):
            call(A, B, temperature=temperature)
    with pytest.raises(StsbenchError, match=f"temperature {temperature}: "):
        self_guided(A[:4], HIDDEN, temperature=temperature, variant="opt3")
