"""The losses of the training methods: pure functions of tensors, mean-reduced, scalar out.

They know nothing of ranks: under several processes the caller gathers the rows first. Whatever
the model computes in, they compute in float32, or in float64 if that is what they are given.
"""

from __future__ import annotations

from stsbench.training.objectives.contrastive import info_nce, nt_xent

__all__ = ["info_nce", "nt_xent"]
