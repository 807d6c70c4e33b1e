"""The probe's products are those of float64, for every number of directions, whatever rows are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numba import types

from stsbench.evaluators.probe import kernels
from stsbench.evaluators.probe.kernels import (
    add_gradient,
    compiled_entry_point,
    compiled_helper,
    exp,
    fill_logits,
)


def test_a_tie_goes_to_the_first_class():
    x = np.ones((20, 3), dtype=np.float32)
    for classes in (2, 5):
        found = np.full((1, 20), -1)
        kernels.predict(
            x, x, kernels.U, np.arange(20), np.ones((1, classes, 16), dtype=np.float32), found
        )
        assert found.tolist() == [[0] * 20]


@pytest.mark.parametrize("directions", range(1, 10))
@pytest.mark.parametrize("columns", [1, 16, 37])
def test_logits_and_gradients_of_rows_where_they_lie(directions, columns):
    rng = np.random.default_rng(directions)
    x = rng.standard_normal((50, columns)).astype(np.float32)
    items = rng.integers(0, 50, 16)
    # The column after them is the bias, those behind it belong to others.
    weights = rng.standard_normal((directions, columns + 3)).astype(np.float32)
    z = np.full((directions, 16), np.nan, dtype=np.float32)
    fill_logits(x, items, columns, weights, z)
    rows = x[items].astype(np.float64)
    expected = weights[:, :columns].astype(np.float64) @ rows.T + weights[:, columns, None]
    np.testing.assert_allclose(z, expected, rtol=0, atol=2e-5)
    gradient = weights.copy()
    add_gradient(x, items, columns, z, gradient)
    expected = weights.astype(np.float64)
    expected[:, :columns] += z.astype(np.float64) @ rows
    expected[:, columns] += z.sum(axis=1)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-4)
    assert np.array_equal(gradient[:, columns + 1 :], weights[:, columns + 1 :])


def test_exp_is_good_to_a_few_units_in_the_last_place():
    @compiled_helper
    def all_of(x: npt.NDArray[np.float32]) -> None:
        for i in range(len(x)):
            x[i] = exp(x[i])

    x = np.linspace(-87, 88, 100_001, dtype=np.float32)
    found = x.copy()
    all_of(found)
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=3e-7)


def test_a_function_that_cannot_be_cached_is_compiled_all_the_same():
    made: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x", made)
    assert compiled_entry_point(types.float64(types.float64))(made["double"])(4.0) == 8.0
