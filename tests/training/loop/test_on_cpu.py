"""What speeds a CPU up changes no gradient."""

from typing import Any

import pytest
import torch

from stsbench.training.loop.on_cpu import speed_up
from stsbench.training.loop.unpadded import is_unpadded
from stsbench.training.methods.simcse import SimCSE
from tests.training.students import sentences, student

TEXTS = sentences(40, longest=15)


def gradients(folder: Any, *, fast: bool, times: int = 1, **params: Any) -> dict[str, torch.Tensor]:
    made = SimCSE(student(folder, dropout=0.0, language_model=bool(params)), **params)
    made.prepare({"text": TEXTS})
    if fast:
        speed_up(made)
    import numpy as np

    for _ in range(times):
        made(**made.collate(np.arange(40), np.random.default_rng(0)))["loss"].backward()
    return {name: p.grad for name, p in made.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("params", [{}, {"mlm_weight": 0.5}])
@pytest.mark.parametrize("times", [1, 2])
def test_gradients_are_those_of_the_plain_module_and_dense(masked_lm, params, times):
    plain, fast = (gradients(masked_lm, fast=one, times=times, **params) for one in (False, True))
    assert plain.keys() == fast.keys()
    for name, gradient in fast.items():
        assert not gradient.is_sparse
        torch.testing.assert_close(gradient, plain[name], atol=1e-6, rtol=1e-5)


def test_an_embedding_s_gradient_is_summed_row_by_row_unless_it_must_be_dense(masked_lm):
    for sparse, frozen, expected in ((True, False, True), (False, False, False), (True, True, False)):
        made = SimCSE(student(masked_lm))
        table = made.student.model.get_input_embeddings()
        table.requires_grad_(not frozen)
        speed_up(made, sparse=sparse)
        assert table.sparse is expected


@pytest.mark.parametrize(("compiled", "expected"), [(False, True), (True, False)])
def test_padding_is_left_out_unless_the_model_is_compiled(masked_lm, compiled, expected):
    made = SimCSE(student(masked_lm))
    speed_up(made, compiled=compiled)
    assert is_unpadded(made.student.model) is expected
