from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from stsbench.evaluators.probe import kernels
from stsbench.evaluators.probe.compilation import entry, exp, helper


def test_exp_is_good_to_a_few_units_in_the_last_place():
    @helper
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
    assert entry(types.float64(types.float64))(made["double"])(4.0) == 8.0


def test_a_tie_goes_to_the_first_class():
    x = np.ones((20, 3), dtype=np.float32)
    for classes in (2, 5):
        found = np.full((1, 20), -1)
        kernels.predict(x, x, kernels.U, np.arange(20), np.ones((1, classes, 16), dtype=np.float32), found)
        assert found.tolist() == [[0] * 20]
