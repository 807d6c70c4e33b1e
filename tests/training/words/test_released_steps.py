"""A thousand steps of Quick-Thoughts and Skip-Thoughts beside the released update rules, literally, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stsbench.encoders.words.recurrent import ResetBeforeGru
from stsbench.training.words.recurrent_methods import QuickThoughtsTraining, SkipThoughtsTraining
from stsbench.training.words.rounds import PreparedTraining
from tests.encoders.words.word_encoders import sigmoid

Array = npt.NDArray[Any]
TEXT = {"text": ["a b", "b", "c a", "d d", "a", "b b", "c"]}
STEPS = 1000


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class LiteralAdam:
    """Adam as TensorFlow and the released Skip-Thoughts write it: epsilon beside a second mean that is not corrected."""

    def __init__(
        self,
        weights: dict[str, Array],
        *,
        first: float,
        second: float,
        correction: tuple[float, float],
    ):
        self.weights, self.shares, self.correction, self.t = weights, (first, second), correction, 0
        self.m = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.v = {name: np.zeros_like(weight) for name, weight in weights.items()}

    def step(self, rate: float, gradients: dict[str, Array]) -> None:
        self.t += 1
        rate *= np.sqrt(1 - self.correction[1] ** self.t) / (1 - self.correction[0] ** self.t)
        for name, gradient in gradients.items():
            self.m[name] = self.shares[0] * gradient + (1 - self.shares[0]) * self.m[name]
            self.v[name] = self.shares[1] * gradient**2 + (1 - self.shares[1]) * self.v[name]
            self.weights[name] -= rate * self.m[name] / (np.sqrt(self.v[name]) + 1e-8)


def start(lesson: PreparedTraining) -> dict[str, Array]:
    return {name: tensor.numpy().copy() for name, tensor in lesson.trained_tensors.items()}


def largest_error(
    lesson: PreparedTraining, weights: dict[str, Array], first: dict[str, Array]
) -> float:
    """The largest difference of a tensor from the literal one, as a share of the way that it moved."""
    return max(
        float(
            np.abs(tensor.numpy() - weights[name]).max() / np.abs(weights[name] - first[name]).max()
        )
        if np.any(weights[name] != first[name])
        else float(np.abs(tensor.numpy() - weights[name]).max())
        for name, tensor in lesson.trained_tensors.items()
    )


class Direction:
    """TensorFlow's GRU in one direction over words (b, t, w), and the gradients of its last state (b, h)."""

    def __init__(self, weights: dict[str, Array], prefix: str):
        self.prefix = prefix
        names = ("gates.weight", "gates.bias", "candidate.weight", "candidate.bias")
        self.gates, self.gates_bias, self.candidate, self.candidate_bias = (
            weights[prefix + name] for name in names
        )

    def forward(self, words: Array, lengths: Array) -> Array:
        state, self.tape = np.zeros((len(words), len(self.candidate))), []
        for t in range(words.shape[1]):
            joined = np.hstack([words[:, t], state])
            reset, update = np.split(sigmoid(joined @ self.gates.T + self.gates_bias), 2, axis=1)
            both = np.hstack([words[:, t], reset * state])
            new = np.tanh(both @ self.candidate.T + self.candidate_bias)
            reads = (t < lengths)[:, None]
            self.tape.append((state, joined, reset, update, both, new, reads))
            state = np.where(reads, update * state + (1 - update) * new, state)
        return state

    def backward(self, gradient: Array, size: int) -> tuple[Array, dict[str, Array]]:
        of = {
            name: np.zeros_like(getattr(self, name))
            for name in vars(self)
            if name not in ("prefix", "tape")
        }
        of_words = []
        for state, joined, reset, update, both, new, reads in reversed(self.tape):
            through, gradient = np.where(reads, gradient, 0), np.where(reads, 0, gradient)
            of_new = through * (1 - update) * (1 - new**2)
            of_both = of_new @ self.candidate
            of_reset = of_both[:, size:] * state * reset * (1 - reset)
            of_update = through * (state - new) * update * (1 - update)
            of_gates = np.hstack([of_reset, of_update])
            of_joined = of_gates @ self.gates
            of["candidate"] += of_new.T @ both
            of["candidate_bias"] += of_new.sum(axis=0)
            of["gates"] += of_gates.T @ joined
            of["gates_bias"] += of_gates.sum(axis=0)
            of_words.append(of_both[:, :size] + of_joined[:, :size])
            gradient = gradient + through * update + of_both[:, size:] * reset + of_joined[:, size:]
        names = {
            name: name.replace("_", ".") if "bias" in name else f"{name}.weight" for name in of
        }
        return np.stack(of_words[::-1], axis=1), {
            self.prefix + names[name]: value for name, value in of.items()
        }


def clipped(gradient: Array, limit: float) -> Array:
    return np.asarray(gradient * limit / max(np.sqrt((gradient**2).sum()), limit))


def quick_thoughts_gradients(
    weights: dict[str, Array], sentences: list[list[int]], limit: float
) -> dict[str, Array]:
    """Clipped tensor by tensor; a table's is clipped as one row for each word that was read, before rows are summed."""
    lengths, size = np.array([len(one) for one in sentences]), weights["f.embedding"].shape[1]
    ids = np.array([one + [0] * (max(lengths) - len(one)) for one in sentences])
    steps = np.arange(ids.shape[1])
    turned = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    runs, ends = {}, {}
    for half in "fg":
        words = weights[f"{half}.embedding"][ids]
        runs[half] = [Direction(weights, f"{half}.gru.directions.{i}.") for i in range(2)]
        orders = (words, np.take_along_axis(words, turned[:, :, None], axis=1))
        ends[half] = np.hstack(
            [run.forward(order, lengths) for run, order in zip(runs[half], orders, strict=True)]
        )
    scores = ends["f"] @ ends["g"].T
    np.fill_diagonal(scores, 0)
    targets = np.eye(len(ids), k=1) + np.eye(len(ids), k=-1)
    targets /= targets.sum(axis=1, keepdims=True)
    of_scores = (np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - targets) / len(ids)
    np.fill_diagonal(of_scores, 0)
    gradients: dict[str, Array] = {}
    for half, of_ends in (("f", of_scores @ ends["g"]), ("g", of_scores.T @ ends["f"])):
        ahead, back = (
            run.backward(of_end, size)
            for run, of_end in zip(runs[half], np.hsplit(of_ends, 2), strict=True)
        )
        gradients |= {
            name: clipped(gradient, limit) for name, gradient in (ahead[1] | back[1]).items()
        }
        of_words = clipped(
            ahead[0] + np.take_along_axis(back[0], turned[:, :, None], axis=1), limit
        )
        gradients[f"{half}.embedding"] = np.zeros_like(weights[f"{half}.embedding"])
        np.add.at(gradients[f"{half}.embedding"], ids, of_words)
    return gradients


def test_quick_thoughts_takes_the_steps_of_tensorflow():
    # Tiny first word vectors have gradients of the size of epsilon; later ones are above the limit.
    training = QuickThoughtsTraining(word_size=2, hidden=2, batch_size=3, clip=1e-3, scale=1e-6)
    lesson = training.prepare(TEXT, seed=1)
    weights, first = start(lesson), start(lesson)
    adam = LiteralAdam(weights, first=0.1, second=0.001, correction=(0.9, 0.999))
    rows_of = {word: row for row, word in enumerate(lesson.encoder_files.words)}
    sentences = [[rows_of[word] for word in text.split()] for text in TEXT["text"]]
    batches = list(lesson.batches())
    for step in range(STEPS):
        batch = batches[step % len(batches)]
        lesson.learn_batch(batch, step)
        adam.step(5e-4, quick_thoughts_gradients(weights, [sentences[row] for row in batch], 1e-3))
    assert largest_error(lesson, weights, first) <= 1e-6


@pytest.mark.parametrize(("limit", "steps"), [(2.3, 200), (1e-6, STEPS)])
def test_skip_thoughts_takes_the_released_steps(limit, steps):
    training = SkipThoughtsTraining(word_size=2, hidden=3, batch_size=2, clip=limit)
    lesson = training.prepare(TEXT, seed=1)
    assert lesson.optimiser is not None
    parameters = lesson.optimiser.param_groups[0]["params"]
    gradients: dict[str, Array] = {}
    for name, parameter in zip(lesson.trained_tensors, parameters, strict=True):
        if parameter.requires_grad:
            parameter.register_hook(
                lambda gradient, name=name: gradients.update({name: gradient.numpy().copy()})
            )
    weights, first = start(lesson), start(lesson)
    # The release: b1 = 0.1 and b2 = 0.001 stand for the new gradient's share, and for the correction.
    adam = LiteralAdam(weights, first=0.1, second=0.001, correction=(0.1, 0.001))
    batches, too_long = list(lesson.batches()), 0
    for step in range(steps):
        lesson.learn_batch(batches[step % len(batches)], step)
        # The released GRU has one bias a gate.
        learned = {name: gradient for name, gradient in gradients.items() if "bias_hh" not in name}
        squares = sum((gradient**2).sum() for gradient in learned.values())
        if squares > limit**2:
            learned = {
                name: gradient / np.sqrt(squares) * limit for name, gradient in learned.items()
            }
            too_long += 1
        adam.step(2e-4, learned)
    assert 0 < too_long < steps if limit > 1 else too_long == steps
    assert largest_error(lesson, weights, first) <= 1e-6
    assert not any(
        tensor.any() for name, tensor in lesson.trained_tensors.items() if "bias_hh" in name
    )


def test_quick_thoughts_begins_as_tensorflow_does():
    torch.manual_seed(0)
    layer = ResetBeforeGru(620, 600)
    # Glorot's bound: the root of six by the rows and the columns of the kernel.
    for weight, bound in ((layer.gates.weight, 0.0498), (layer.candidate.weight, 0.0574)):
        assert float(weight.detach().abs().max()) == pytest.approx(bound, abs=5e-5)
        assert float(weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.01)
    assert layer.gates.bias.eq(1).all() and layer.candidate.bias.eq(0).all()
