"""The probe's products are those of float64, for every number of directions, whatever rows are asked for."""

import numpy as np
import pytest

from stsbench.evaluators.probe.products import add_gradient, logits


@pytest.mark.parametrize("directions", range(1, 10))
@pytest.mark.parametrize("columns", [1, 16, 37])
def test_logits_and_gradients_of_rows_where_they_lie(directions, columns):
    rng = np.random.default_rng(directions)
    x = rng.standard_normal((50, columns)).astype(np.float32)
    items = rng.integers(0, 50, 16)
    # The columns after them belong to others.
    weights = rng.standard_normal((directions, columns + 3)).astype(np.float32)
    z = np.full((directions, 16), np.nan, dtype=np.float32)
    logits(x, items, columns, weights, z)
    rows = x[items].astype(np.float64)
    np.testing.assert_allclose(z, weights[:, :columns].astype(np.float64) @ rows.T, rtol=0, atol=2e-5)
    gradient = weights.copy()
    add_gradient(x, items, columns, z, gradient)
    expected = weights.astype(np.float64)
    expected[:, :columns] += z.astype(np.float64) @ rows
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-4)
    assert np.array_equal(gradient[:, columns:], weights[:, columns:])
