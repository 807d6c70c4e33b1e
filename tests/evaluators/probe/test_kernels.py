from __future__ import annotations

import numpy as np

from stsbench.evaluators.probe import kernels


def test_a_tie_goes_to_the_first_class():
    x = np.ones((20, 3), dtype=np.float32)
    for classes in (2, 5):
        found = np.full((1, 20), -1)
        kernels.predict(x, x, kernels.U, np.arange(20), np.ones((1, classes, 16), dtype=np.float32), found)
        assert found.tolist() == [[0] * 20]
