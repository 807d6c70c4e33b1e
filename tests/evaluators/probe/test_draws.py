"""The random streams are those of numpy's and torch's global generators after seeding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stsbench.errors import DataError
from stsbench.evaluators.probe.draws import Orders, first_weights, stratified_folds


@pytest.mark.parametrize("sizes", [(384, 2), (768, 6), (30, 7, 3)])
def test_first_weights_are_those_of_linear_layers_made_after_seeding(sizes):
    tensors, generator = first_weights(1111, sizes)
    with torch.random.fork_rng():
        torch.manual_seed(1111)
        layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
        expected = [parameter for layer in layers for parameter in layer.parameters()]
        after = torch.rand(3)
    assert all(torch.equal(a, b) for a, b in zip(tensors, expected, strict=True))
    assert torch.equal(torch.rand(3, generator=generator), after)


def test_orders_are_permutations_of_the_seeded_stream():
    np.random.seed(1112)  # noqa: NPY002
    expected = [np.random.permutation(50) for _ in range(3)]  # noqa: NPY002
    orders = Orders(1112, 50)
    assert [orders.epoch(at).tolist() for at in (2, 0, 1)] == [expected[at].tolist() for at in (2, 0, 1)]
    assert orders.kept.tolist() == list(range(50))


def test_a_holdout_is_the_first_draw_of_the_stream():
    np.random.seed(1111)  # noqa: NPY002
    drawn = np.random.permutation(99)  # noqa: NPY002
    epoch = np.random.permutation(95)  # noqa: NPY002
    orders = Orders(1111, 99, holdout=0.05)
    assert orders.held_out.tolist() == drawn[:4].tolist()
    assert orders.kept.tolist() == drawn[4:].tolist()
    assert orders.epoch(0).tolist() == epoch.tolist()


def test_too_few_items_cannot_be_held_out():
    with pytest.raises(DataError, match="19 training items are too few to hold 5% of them out"):
        Orders(1111, 19, holdout=0.05)


def test_folds_are_stratified_and_rare_classes_are_borne():
    labels = np.array([0] * 20 + [1] * 20 + [2] * 2)
    folds = stratified_folds(labels, 5, 1111)
    assert sorted(np.concatenate([held_out for _, held_out in folds]).tolist()) == list(range(42))
    assert all((labels[held_out] == 0).sum() == 4 for _, held_out in folds)
    with pytest.raises(DataError, match="4 labelled items are too few for 3 folds"):
        stratified_folds(np.array([0, 0, 1, 1]), 3, 1111)
