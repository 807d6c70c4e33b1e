"""The arrays that numbers are made of: scores and gold in double precision, and whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
"""Scores, gold and similarities; embeddings are float32, see ``encoders.seams``."""
IntArray = npt.NDArray[np.int64]
