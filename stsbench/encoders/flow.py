"""BERT-flow's normalising flow: a Glow over embeddings.

Source: https://arxiv.org/abs/2011.05864, section 3.

An embedding of d channels passes ``depth`` steps of actnorm, channel reversal (in place of the
paper's random permutation) and additive coupling; half of the channels leave, the others pass to
the next level. The output, all levels together, is standard normal if the flow fits. Names are
those of Glow. It is trained on pairs of texts, as by the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from stsbench.core.errors import EncoderError
from stsbench.encoders.base import (
    Encoder,
    FloatArray,
    IndexArray,
    NonNegativeFloat,
    PositiveInt,
    RowFunction,
)
from stsbench.encoders.fitted import EmbeddingTransform, Tensors, to_finite_float64
from stsbench.encoders.load import make_processor

LOG_SCALE_FACTOR = 3.0
"""Glow's factor on learned log-scales, which lets them move faster."""
EPSILON = 1e-6
"""Added to the deviations of channels, which may be zero."""
WEIGHTS_DEVIATION = 0.05
"""The standard deviation of the first weights of coupling networks."""
ADAM_BETAS = (0.9, 0.999)
"""The decay rates of the first and second moments of Adam."""
Decay = Literal["tf", "port"]
PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]


class ActNorm(nn.Module):
    """A shift, then a scale, for each channel.

    If it is ``fresh``, its next input sets both, so that this input comes out standardised.
    """

    fresh = False

    def __init__(self, channels: int) -> None:
        """Start as the identity."""
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shift and scale each channel of a batch (b, c).

        If ``self.fresh`` is set, this batch first decides the shift and the scale: its channels
        then come out with mean 0 and standard deviation 1. After that ``fresh`` is not set.
        """
        if self.fresh:
            with torch.no_grad():
                self.shift.copy_(-x.mean(dim=0))
                deviation = x.var(dim=0, unbiased=False).sqrt()
                # Divided by LOG_SCALE_FACTOR, because the output below multiplies by it.
                self.log_scale.copy_(-torch.log(deviation + EPSILON) / LOG_SCALE_FACTOR)
            self.fresh = False
        return (x + self.shift) * torch.exp(LOG_SCALE_FACTOR * self.log_scale)

    def log_determinant(self) -> torch.Tensor:
        """Return the log-determinant of the Jacobian, which is the same for every input."""
        return LOG_SCALE_FACTOR * self.log_scale.sum()


class Coupling(nn.Module):
    """Adds to the second half of the channels a small network's output for the first half.

    The volume does not change.
    """

    def __init__(self, channels: int, width: int, generator: torch.Generator) -> None:
        """Draw the weights of the network whose output is added to the second half of the channels.

        Its last layer is zero, so that it adds nothing at first. Each hidden layer is followed by
        a shift and scale (:class:`ActNorm`).

        Args:
            channels: The number of channels; if it is odd, the first half has one more.
            width: The size of the two hidden layers.
            generator: The source of the weights.
        """
        super().__init__()
        self.n_unchanged = channels - channels // 2
        self.inner = nn.ModuleList(
            [nn.Linear(self.n_unchanged, width, bias=False), nn.Linear(width, width, bias=False)]
        )
        self.norms = nn.ModuleList([ActNorm(width), ActNorm(width)])
        self.last = nn.Linear(width, channels // 2)
        self.last_log_scale = nn.Parameter(torch.zeros(channels // 2))
        for layer in self.inner:
            nn.init.normal_(layer.weight, 0.0, WEIGHTS_DEVIATION, generator=generator)  # type: ignore[arg-type]
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the channels (b, c); to the second half is added a function of the first half."""
        hidden = x[:, : self.n_unchanged]
        for layer, norm in zip(self.inner, self.norms, strict=True):
            hidden = torch.relu(norm(layer(hidden)))
        translation = self.last(hidden) * torch.exp(LOG_SCALE_FACTOR * self.last_log_scale)
        return torch.cat([x[:, : self.n_unchanged], x[:, self.n_unchanged :] + translation], dim=1)


class GlowFlow(nn.Module):
    """The flow: embeddings (b, d) to z (b, d); :meth:`fit` and :meth:`transform` take plain arrays.

    Attributes:
        losses_: The loss at each step of :meth:`fit`.
    """

    def __init__(
        self, d: int, *, levels: int = 2, depth: int = 3, width: int = 32, seed: int = 0
    ) -> None:
        """Make a flow with random weights; :meth:`initialise` must be called before it is used.

        Args:
            d: The size of an embedding; its dimensions are the channels.
            levels: The number of levels. After each but the last, half of the channels become part
                of the output, and the others go on to the next level.
            depth: The number of steps per level: each a normalisation and a coupling.
            width: The size of the hidden layers of the coupling networks.
            seed: The seed of the weights.

        Raises:
            EncoderError: d cannot be halved ``levels`` times.
        """
        super().__init__()
        if d % 2**levels:
            raise EncoderError(
                f"a flow of {levels} levels halves embeddings {levels} times; {d} cannot be"
            )
        self.d = d
        self.levels = levels
        self.depth = depth
        self.width = width
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        # The number of channels at each step: each level has half of those of the one before it,
        # and the steps of a level follow each other.
        channels_of_levels = [d // 2**level for level in range(levels)]
        channels_of_steps = np.repeat(channels_of_levels, depth).tolist()
        self.norms = nn.ModuleList([ActNorm(channels) for channels in channels_of_steps])
        self.couplings = nn.ModuleList(
            [Coupling(channels, width, generator) for channels in channels_of_steps]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output z (b, d) of the flow for embeddings (b, d).

        Each level is ``self.depth`` steps. After each level but the last, half of the channels
        leave: they are part of the output as they are. z has the channels that leave after each
        level, and then those of the last level.
        """
        leaving_channels = []
        for level in range(self.levels):
            steps = slice(level * self.depth, (level + 1) * self.depth)
            for norm, coupling in zip(self.norms[steps], self.couplings[steps], strict=True):
                # A coupling changes the second half only. The order of the channels is reversed
                # before it, so that each half is changed at every other step.
                x = coupling(norm(x).flip(1))
            if level < self.levels - 1:
                x, leaving = x.chunk(2, dim=1)
                leaving_channels.append(leaving)
        return torch.cat([*leaving_channels, x], dim=1)

    def initialise(self, x: torch.Tensor) -> torch.Tensor:
        """Set the shift and scale of every :class:`ActNorm` by a batch of embeddings (b, d).

        Each is set so that its output for this batch has mean 0 and standard deviation 1.

        Returns:
            The output z of the flow for the batch, (b, d).
        """
        for module in self.modules():
            if isinstance(module, ActNorm):
                module.fresh = True
        with torch.no_grad():
            z: torch.Tensor = self(x)
        return z

    def log_determinant(self) -> torch.Tensor:
        """Return the log-determinant of the Jacobian: only the actnorms change volume."""
        log_determinants: list[torch.Tensor] = [norm.log_determinant() for norm in self.norms]  # type: ignore[operator]
        return torch.stack(log_determinants).sum()

    def log_likelihood(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-likelihood (b,) of embeddings (b, d), in nats."""
        z = self(x)
        prior: torch.Tensor = -0.5 * (z**2 + math.log(2 * math.pi)).sum(dim=1)
        return prior + self.log_determinant()

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log-likelihood of a batch in bits per dimension, a scalar."""
        return -self.log_likelihood(x).mean() / (math.log(2) * self.d)

    def fit(self, x: npt.ArrayLike, method: FlowMethod | None = None) -> GlowFlow:
        """Train the flow anew on embeddings of pairs of texts, and return the flow itself.

        The loss at each step is stored in ``losses_``.

        Args:
            x: The embeddings (n, d); rows 2i and 2i + 1 are a pair.
            method: The settings of training, by default those of ``FlowMethod``. Its levels, depth,
                width and seed are replaced by the flow's, and its dropout has no effect.

        Raises:
            EncoderError: There are fewer than two pairs, another d, or a value that is not finite.
        """
        rows = to_finite_float64(x)
        if rows.shape[1] != self.d:
            raise EncoderError(
                f"a flow of d = {self.d} takes embeddings (n, {self.d}), not shape {rows.shape}"
            )
        method = replace(
            method or FlowMethod(),
            levels=self.levels,
            depth=self.depth,
            width=self.width,
            seed=self.seed,
        )
        trained, self.losses_ = method.train(rows.astype(np.float32))
        self.load_state_dict(trained.state_dict())
        return self

    def transform(self, x: npt.ArrayLike) -> FloatArray:
        """Return z (n, d), computed in float64: no embedding depends on its neighbours."""
        rows = torch.from_numpy(np.asarray(x, dtype=np.float64))
        with torch.inference_mode():
            z: FloatArray = deepcopy(self).double()(rows).numpy()
        return z.astype(np.float32)


class DecayedAdam:
    """Adam of BERT's first release: no bias correction, decay beside the gradient, a global clip.

    PyTorch's has a correction, and that of the recipes decays after its step. Also, an optimiser of
    PyTorch takes longer to import than a flow takes to train on STS-B's development and test
    sentences.
    """

    def __init__(self, flow: GlowFlow, method: FlowMethod) -> None:
        """Start with moments of zero, the running means of gradients and of their squares.

        Args:
            flow: The flow to train.
            method: The settings of the optimiser, such as its learning rate.
        """
        self.method = method
        self.parameters = list(flow.named_parameters())
        self.first_moments = [torch.zeros_like(parameter) for _, parameter in self.parameters]
        self.second_moments = [torch.zeros_like(parameter) for _, parameter in self.parameters]

    def step(self, loss: torch.Tensor) -> None:
        """Change the parameters of the flow by one step of Adam that makes a loss smaller.

        As in BERT's ``optimization.py``: the gradients are clipped by their norm over all
        parameters together. The moments, running means of the gradients and of their squares, are
        not corrected for their start at zero. The weight decay, a share of each parameter, is added
        to the update, outside the moments.

        Args:
            loss: A scalar that depends on all parameters of the flow.
        """
        method = self.method
        # `self.parameters` are pairs of a parameter's name in the flow and its tensor.
        gradients = torch.autograd.grad(loss, [parameter for _, parameter in self.parameters])
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        # 1 if the norm is below the limit, otherwise the limit divided by the norm.
        clip_factor = (method.clip / norm.clamp(min=method.clip)).item()
        beta1, beta2 = ADAM_BETAS  # 0.9 and 0.999, the shares of the old moments that are kept
        with torch.no_grad():
            for (name, parameter), first_moment, second_moment, gradient in zip(
                self.parameters, self.first_moments, self.second_moments, gradients, strict=True
            ):
                clipped = gradient * clip_factor
                first_moment.mul_(beta1).add_(clipped, alpha=1 - beta1)
                second_moment.mul_(beta2).addcmul_(clipped, clipped, value=1 - beta2)
                update = first_moment / (second_moment.sqrt() + method.epsilon)
                # With the setting "tf" all parameters decay, as in the authors' TensorFlow code;
                # with "port" all but the biases of the couplings' last layers, as in the PyTorch
                # port.
                has_no_decay = method.decay == "port" and name.endswith("last.bias")
                if not has_no_decay:
                    update = update + method.weight_decay * parameter
                parameter.sub_(update, alpha=method.learning_rate)


@dataclass(frozen=True, kw_only=True)
class FlowMethod(EmbeddingTransform):
    """The settings of a flow and its training; the defaults are those for a task's own sentences.

    They are of appendix B and the released code. On NLI the paper trains 0.15 epochs at 2e-5. The
    paper has two levels (table 7), its code three.
    """

    levels: PositiveInt = 2
    """The number of levels; half of the channels leave after all but the last."""
    depth: PositiveInt = 3
    """The number of steps per level."""
    width: PositiveInt = 32
    """The size of the hidden layers of the coupling networks."""
    epochs: PositiveFloat = 1.0
    """How often the pairs are read; a share of 1 reads that share of them."""
    learning_rate: PositiveFloat = 1e-3
    batch_pairs: PositiveInt = 32
    """The number of pairs in a batch."""
    weight_decay: NonNegativeFloat = 0.01
    decay: Decay = "tf"
    """The weights that decay: in the authors' TensorFlow code all (no name of theirs is excluded),
    in the PyTorch port all but the biases of the last layers."""
    clip: PositiveFloat = 1.0
    """The length at which the gradient of all parameters together is clipped."""
    epsilon: PositiveFloat = 1e-6
    """Added to the denominator of Adam's step."""
    seed: Annotated[int, msgspec.Meta(ge=0)] = 1234
    dropout: bool = False
    """The base's own dropout is on while fitting, as in both codes."""
    kind: ClassVar[str] = "flow"
    libraries: ClassVar[Sequence[str]] = ("torch",)
    """Training turns a difference in a last digit into more than rounding."""

    @property
    def reads_embeddings(self) -> bool:
        """Fitting reads the usual embeddings, not those with dropout, which are not stored."""
        return not self.dropout

    def train(self, x: FloatArray) -> tuple[GlowFlow, list[float]]:
        """Train a flow on embeddings of pairs of texts.

        The first sentences of the pairs of the first batch set the shifts and scales of the flow's
        normalisations. The loss of a batch is that of its first sentences plus that of its second
        sentences, as in the authors' code. Pairs that fill no whole batch are omitted, unless there
        are no others.

        Args:
            x: The embeddings, float32 (n, d). Rows 2i and 2i + 1 are a pair; a last row without a
                partner is not used.

        Returns:
            The flow, and its loss at each step: the sum of the two negative log-likelihoods, each
            in bits per dimension.

        Raises:
            EncoderError: There are fewer than two pairs, or d cannot be halved ``levels`` times.
        """
        if len(x) < 4:
            raise EncoderError(f"a flow needs at least two pairs of texts, not {len(x)} texts")
        losses: list[float] = []
        # Gradients are needed even if the caller embeds without them.
        with torch.inference_mode(False), torch.enable_grad():
            flow = GlowFlow(
                x.shape[1], levels=self.levels, depth=self.depth, width=self.width, seed=self.seed
            )
            adam = DecayedAdam(flow, method=self)
            # The indices of the pairs of each step's batch, in an order drawn by the seed.
            for pairs in self.batches(n_pairs=len(x) // 2):
                first_sentences = torch.from_numpy(x[2 * pairs])
                second_sentences = torch.from_numpy(x[2 * pairs + 1])
                is_first_batch = not losses
                if is_first_batch:
                    flow.initialise(first_sentences)
                loss = flow.loss(first_sentences) + flow.loss(second_sentences)
                losses.append(float(loss.detach()))
                adam.step(loss)
        return flow, losses

    def batches(self, n_pairs: int) -> Iterator[IndexArray]:
        """Yield the indices of the pairs of each training step, (b,).

        The order of the pairs is drawn anew for each epoch, by ``self.seed``. There are as many
        steps as ``self.epochs`` needs, which may be a share of one epoch; 1 at least.

        Args:
            n_pairs: The number of pairs; those of an epoch that fill no whole batch are omitted.
        """
        rng = np.random.default_rng(self.seed)
        batch_size = min(self.batch_pairs, n_pairs)
        n_steps = max(1, int(n_pairs / batch_size * self.epochs))
        batches_per_epoch = n_pairs // batch_size
        for step in range(n_steps):
            batch_index = step % batches_per_epoch
            if batch_index == 0:
                order = rng.permutation(n_pairs)
            start = batch_index * batch_size
            yield order[start : start + batch_size]

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Train a flow on the embeddings of sentences and return its parameters.

        Args:
            base: The encoder whose embeddings the flow will transform. With ``self.dropout`` it
                embeds with dropout here, as in training.
            sentences: Pairs of texts, one after another; a last one without a partner is not used.

        Returns:
            The parameters of the flow by their names in it, float32.

        Raises:
            EncoderError: There are fewer than two pairs, or embeddings cannot be halved often
                enough.
        """
        from stsbench.encoders.transformer.encoder import embed_with_dropout

        n_pairs = len(sentences) // 2
        paired_sentences = sentences[: 2 * n_pairs]
        if self.dropout:
            x = embed_with_dropout(base, paired_sentences, seed=self.seed)
        else:
            x = base.encode(paired_sentences)
        flow, _losses = self.train(x)
        return {name: parameter.detach().numpy() for name, parameter in flow.named_parameters()}

    def transform(self, learned: Tensors) -> RowFunction:
        """Return the function that gives z (n, d), see :meth:`GlowFlow.transform`."""
        d = len(learned["norms.0.shift"])
        flow = GlowFlow(d, levels=self.levels, depth=self.depth, width=self.width)
        flow.load_state_dict({name: torch.from_numpy(array) for name, array in learned.items()})
        return flow.transform


flow_encoder = make_processor(FlowMethod)
