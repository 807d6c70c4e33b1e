"""BERT-flow's normalising flow: a Glow over embeddings (https://arxiv.org/abs/2011.05864, section 3).

An embedding of d channels passes ``depth`` steps of actnorm, channel reversal (what the paper
calls a random permutation) and additive coupling; then half of the channels leave, and the
other half goes on to the next level. What comes out, all levels together, is standard normal
if the flow fits. Names are those of Glow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn

SCALE = 3.0
"""Glow's factor on learned log-scales, which lets them move faster."""
EPSILON = 1e-6
WEIGHTS_DEVIATION = 0.05


class ActNorm(nn.Module):
    """A shift, then a scale, for each channel; set by :meth:`initialise` so that its first input comes out standard."""

    def __init__(self, channels: int) -> None:
        """Make it the identity."""
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def initialise(self, x: torch.Tensor) -> None:
        """Set shift and scale from a batch (b, c)."""
        with torch.no_grad():
            self.shift.copy_(-x.mean(dim=0))
            deviation = x.var(dim=0, unbiased=False).sqrt()
            self.log_scale.copy_(-torch.log(deviation + EPSILON) / SCALE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the standardised channels (b, c)."""
        return (x + self.shift) * torch.exp(SCALE * self.log_scale)

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        """Return what :meth:`forward` was given."""
        return y * torch.exp(-SCALE * self.log_scale) - self.shift

    def log_determinant(self) -> torch.Tensor:
        """The log-determinant of its Jacobian, the same for every input."""
        return SCALE * self.log_scale.sum()


class Coupling(nn.Module):
    """Adds to the second half of the channels what a small network makes of the first; volume is kept."""

    def __init__(self, channels: int, width: int, generator: torch.Generator) -> None:
        """Draw the network's weights; its last layer is zero, so that it adds nothing at first."""
        super().__init__()
        self.kept = channels - channels // 2
        self.inner = nn.ModuleList([nn.Linear(self.kept, width, bias=False), nn.Linear(width, width, bias=False)])
        self.norms = nn.ModuleList([ActNorm(width), ActNorm(width)])
        self.last = nn.Linear(width, channels // 2)
        self.last_log_scale = nn.Parameter(torch.zeros(channels // 2))
        for layer in self.inner:
            nn.init.normal_(layer.weight, 0.0, WEIGHTS_DEVIATION, generator=generator)  # type: ignore[arg-type]
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def added(self, first: torch.Tensor, *, initialise: bool = False) -> torch.Tensor:
        """Return what is added, (b, c // 2)."""
        h = first
        for layer, norm in zip(self.inner, self.norms, strict=True):
            h = layer(h)
            if initialise:
                norm.initialise(h)  # type: ignore[operator]
            h = torch.relu(norm(h))
        made: torch.Tensor = self.last(h) * torch.exp(SCALE * self.last_log_scale)
        return made

    def forward(self, x: torch.Tensor, *, initialise: bool = False) -> torch.Tensor:
        """Return the coupled channels (b, c)."""
        first, second = x[:, : self.kept], x[:, self.kept :]
        return torch.cat([first, second + self.added(first, initialise=initialise)], dim=1)

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        """Return what :meth:`forward` was given."""
        first, second = y[:, : self.kept], y[:, self.kept :]
        return torch.cat([first, second - self.added(first)], dim=1)


class GlowFlow(nn.Module):
    """The flow: embeddings (b, d) to z (b, d), and back.

    The paper's table 7 says two levels; its code's default is three.
    """

    def __init__(self, d: int, *, levels: int = 2, depth: int = 3, width: int = 32, seed: int = 0) -> None:
        """Draw the weights; :meth:`initialise` must see a batch before the flow means anything.

        Args:
            d: the size of embeddings, which must halve evenly at every level.
            levels: after each but the last, half of the channels leave.
            depth: steps a level.
            width: the hidden size of the coupling networks.
            seed: of the weights.

        Raises:
            ValueError: d does not halve ``levels`` times.
        """
        super().__init__()
        if d % 2**levels:
            raise ValueError(f"{d} channels cannot be halved {levels} times")
        self.d, self.levels, self.depth, self.width = d, levels, depth, width
        generator = torch.Generator().manual_seed(seed)
        sizes = [d // 2**level for level in range(levels)]
        self.norms = nn.ModuleList([ActNorm(c) for c in sizes for _ in range(depth)])
        self.couplings = nn.ModuleList([Coupling(c, width, generator) for c in sizes for _ in range(depth)])

    def _steps(self, level: int) -> Iterator[tuple[ActNorm, Coupling]]:
        for place in range(level * self.depth, (level + 1) * self.depth):
            yield self.norms[place], self.couplings[place]  # type: ignore[misc]

    def forward(self, x: torch.Tensor, *, initialise: bool = False) -> torch.Tensor:
        """Return z (b, d): what left after each level, then what is left at the end."""
        left = []
        for level in range(self.levels):
            for norm, coupling in self._steps(level):
                if initialise:
                    norm.initialise(x)
                x = coupling(norm(x).flip(1), initialise=initialise)
            if level < self.levels - 1:
                x, gone = x.chunk(2, dim=1)
                left.append(gone)
        return torch.cat([*left, x], dim=1)

    def initialise(self, x: torch.Tensor) -> torch.Tensor:
        """Set every actnorm from a batch (b, d), each from what reaches it; returns its z, which is standardised."""
        with torch.no_grad():
            z: torch.Tensor = self(x, initialise=True)
        return z

    def inverse(self, z: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (b, d) of z (b, d)."""
        sizes = [self.d // 2 ** (level + 1) for level in range(self.levels - 1)]
        *left, x = torch.split(z, [*sizes, self.d - sum(sizes)], dim=1)
        for level in reversed(range(self.levels)):
            if level < self.levels - 1:
                x = torch.cat([x, left[level]], dim=1)
            for norm, coupling in reversed(list(self._steps(level))):
                x = norm.inverse(coupling.inverse(x).flip(1))
        return x

    def log_determinant(self) -> torch.Tensor:
        """The log-determinant of the flow's Jacobian: that of its actnorms, all else keeps volume."""
        logs: list[torch.Tensor] = [norm.log_determinant() for norm in self.norms]  # type: ignore[operator]
        return torch.stack(logs).sum()

    def log_likelihood(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-likelihood (b,) of embeddings (b, d), in nats."""
        z = self(x)
        prior: torch.Tensor = -0.5 * (z**2 + math.log(2 * math.pi)).sum(dim=1)
        return prior + self.log_determinant()

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log-likelihood of a batch in bits per dimension, a scalar."""
        return -self.log_likelihood(x).mean() / (math.log(2) * self.d)
