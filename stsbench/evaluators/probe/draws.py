"""The toolkit's random draws, reproduced: folds, batch orders, first weights.

The toolkit seeds numpy's and torch's global generators anew for every classifier. Draws depend on
sizes alone, so that all classifiers of one training size share them; here they come from generators
of our own, whose streams are the same.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import IndexArray
from stsbench.errors import DataError

if TYPE_CHECKING:
    import torch


class Orders:
    """The order of the training items in each epoch, for one training size; drawn when first asked for.

    With ``holdout``, the first draw of the stream sets aside that share of the items: ``kept`` and
    ``held_out`` are their positions, and the epochs permute what is kept.
    """

    def __init__(self, seed: int, n: int, *, holdout: float = 0.0) -> None:
        """Start the stream for n items.

        Raises:
            DataError: too few items to hold any out.
        """
        self._rng = np.random.RandomState(seed)  # noqa: NPY002 - the toolkit's generator
        self._lock = threading.Lock()
        self._epochs: list[npt.NDArray[np.int32]] = []
        self.held_out, self.kept = np.empty(0, dtype=np.int64), np.arange(n)
        if holdout:
            drawn = self._rng.permutation(n)
            self.held_out, self.kept = np.split(drawn, [int(holdout * n)])
            if not len(self.held_out):
                raise DataError(f"{n} training items are too few to hold {holdout:.0%} of them out")

    def epoch(self, at: int) -> IndexArray:
        """The order of epoch ``at``: positions within ``kept``, (len(kept),)."""
        with self._lock:
            while len(self._epochs) <= at:
                self._epochs.append(self._rng.permutation(len(self.kept)).astype(np.int32))
            return self._epochs[at].astype(np.int64)


def stratified_folds(labels: IndexArray, k: int, seed: int) -> list[tuple[IndexArray, IndexArray]]:
    """The k stratified folds of these labels (n,): training and held-out positions.

    Raises:
        DataError: no class has k items.
    """
    from sklearn.model_selection import StratifiedKFold

    if np.bincount(labels).max(initial=0) < k:
        raise DataError(f"{len(labels)} labelled items are too few for {k} folds")
    with warnings.catch_warnings():
        # A class rarer than k is missing from some folds: so in the toolkit.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return list(StratifiedKFold(k, shuffle=True, random_state=seed).split(np.empty((len(labels), 0)), labels))


def first_weights(seed: int, sizes: tuple[int, ...]) -> tuple[list[torch.Tensor], torch.Generator]:
    """The weights and biases that torch's linear layers of these sizes start from, after seeding.

    Args:
        seed: the classifier's.
        sizes: features, hidden units if there are any, classes.

    Returns:
        Weight (out, in) and bias (out,) of each layer, and the generator as they left it.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        weight = torch.empty(fan_out, fan_in)
        torch.nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator)
        bound = fan_in**-0.5
        tensors += [weight, torch.empty(fan_out).uniform_(-bound, bound, generator=generator)]
    return tensors, generator
