"""How BERT-flow's flow is trained: its optimiser, its batches of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from stsbench.encoders.fitted.flow_recipe import FlowRecipe
from stsbench.encoders.flow import GlowFlow
from stsbench.encoders.seams import FloatArray
from stsbench.errors import EncoderError

EmbedRows = Callable[[Sequence[int]], FloatArray]
"""Rows of the texts to the embeddings (b, d) that the flow is trained on."""
MOMENTS = (0.9, 0.999)


def train_flow(embed: EmbedRows, n: int, d: int, recipe: FlowRecipe) -> tuple[GlowFlow, list[float]]:
    """Train a flow on n texts, (2i, 2i + 1) being pairs; returns it with its loss at each step.

    The first batch's first sentences set the actnorms. The loss of a batch is that of its first
    sentences plus that of its second ones, in bits per dimension, as in the authors' code. A
    remainder that fills no batch is left out, unless there is no other.

    Args:
        embed: gives embeddings of rows.
        n: number of texts, even.
        d: the size of embeddings.
        recipe: all the rest.

    Raises:
        EncoderError: there are fewer than two pairs, or d cannot be halved that often.
    """
    if n < 4:
        raise EncoderError(f"a flow needs at least two pairs of texts, not {n} texts")
    if d % 2**recipe.levels:
        raise EncoderError(f"a flow of {recipe.levels} levels halves embeddings {recipe.levels} times; {d} cannot be")
    with torch.inference_mode(False):
        flow = GlowFlow(d, levels=recipe.levels, depth=recipe.depth, width=recipe.width, seed=recipe.seed)
    adam = DecayedAdam(flow, recipe)
    losses: list[float] = []
    # Also where the caller embeds without gradients.
    with torch.inference_mode(False), torch.enable_grad():
        for pairs in batches(n // 2, recipe):
            first, second = (torch.from_numpy(embed([2 * int(i) + side for i in pairs])) for side in (0, 1))
            if not losses:
                flow.initialise(first)
            loss = flow.loss(first) + flow.loss(second)
            losses.append(float(loss.detach()))
            adam.step(loss)
    return flow, losses


def batches(pairs: int, recipe: FlowRecipe) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """The pairs of each step, (b,); each epoch in another order."""
    rng = np.random.default_rng(recipe.seed)
    size = min(recipe.batch_pairs, pairs)
    steps = max(1, int(pairs / size * recipe.epochs))
    a_round = pairs // size
    for step in range(steps):
        if step % a_round == 0:
            order = rng.permutation(pairs)
        place = step % a_round * size
        yield order[place : place + size]


class DecayedAdam:
    """Adam as in BERT's first release: no bias correction, decay beside the gradient, clipping by global norm.

    Torch's has a correction, and that of the recipes decays after its step; an optimiser of torch's also takes
    longer to be imported than a flow takes to be trained on STS-B's development and test sentences.
    """

    def __init__(self, flow: GlowFlow, recipe: FlowRecipe) -> None:
        """Start with moments of zero."""
        self.recipe = recipe
        self.named = list(flow.named_parameters())
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for _, p in self.named]

    def is_decayed(self, name: str) -> bool:
        """Whether the parameter of this name is decayed."""
        return self.recipe.decay == "tf" or not name.endswith("last.bias")

    def step(self, loss: torch.Tensor) -> None:
        """Take one step down the gradient of a loss."""
        gradients = torch.autograd.grad(loss, [p for _, p in self.named])
        norm = torch.stack([g.norm() for g in gradients]).norm()
        shrink = (self.recipe.clip / norm.clamp(min=self.recipe.clip)).item()
        with torch.no_grad():
            for (name, p), (m, v), gradient in zip(self.named, self.moments, gradients, strict=True):
                g = gradient * shrink
                m.mul_(MOMENTS[0]).add_(g, alpha=1 - MOMENTS[0])
                v.mul_(MOMENTS[1]).addcmul_(g, g, value=1 - MOMENTS[1])
                update = m / (v.sqrt() + self.recipe.epsilon)
                if self.is_decayed(name):
                    update = update + self.recipe.weight_decay * p
                p.sub_(update, alpha=self.recipe.learning_rate)
