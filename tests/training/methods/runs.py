"""What every method's tests do: train it a little, cut a run off and resume it, open what it saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from stsbench.encoders.load import load_encoder
from stsbench.training.learner import Batch, Learner
from stsbench.training.loop import loop
from stsbench.training.objectives import nt_xent
from stsbench.training.student import Student
from tests.training.students import run_facts, sentences, weights


class Killed(BaseException):
    """As a kill: nothing may be written after it."""


def first_batch(learner: Learner, rows: int = 8, *, seed: int = 0) -> Batch:
    return learner.collate(np.arange(rows), np.random.default_rng(seed))


def values(learner: Learner, batch: Batch) -> dict[str, float]:
    return {name: float(loss.detach()) for name, loss in learner(**batch).items()}


def embedded(learner: Learner, batch: Batch, *students: Student) -> list[torch.Tensor]:
    """The embeddings (b, h) that these students make while the learner computes a batch's loss, in their order."""
    seen: list[torch.Tensor] = []

    def watched(embed: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*arguments: Any, **options: Any) -> torch.Tensor:
            seen.append(embed(*arguments, **options))
            return seen[-1]

        return call

    with pytest.MonkeyPatch.context() as patch:
        for one in students:
            patch.setattr(one, "embed", watched(one.embed))
        learner(**batch)
    return seen


def literal_nt_xent(a: torch.Tensor, b: torch.Tensor, temperature: float) -> float:
    """In float64, as the objectives' tests hold it to a literal one."""
    return nt_xent(a.detach().double(), b.detach().double(), temperature=temperature).item()


def literal_guessing(learner: Learner, hidden: Batch) -> float:
    """The mean cross-entropy of hidden tokens, one by one in float64, from the language model's own logits."""
    model: Any = learner.student.language_model
    with torch.no_grad():
        inputs = {name: hidden[name] for name in ("input_ids", "attention_mask")}
        shares = model(**inputs).logits.double().log_softmax(dim=-1)
    return -float(
        np.mean(
            [shares[i, j, hidden["labels"][i, j]] for i, j in (hidden["labels"] != -100).nonzero()]
        )
    )


class Trained(NamedTuple):
    """A learner at the end of its run, with the run's curve."""

    learner: Learner
    curve: list[dict[str, Any]]

    def same_as(self, other: Trained) -> bool:
        """Whether curve and weights are the other's to the bit."""
        found, wanted = weights(self.learner), weights(other.learner)
        return (
            self.curve == other.curve
            and found.keys() == wanted.keys()
            and all((found[name] == wanted[name]).all() for name in wanted)
        )


def whole_and_resumed(
    fresh: Callable[[], Learner],
    folder: Path,
    rows: int,
    *,
    at: int = 4,
    keep: str = "best",
    **training: Any,
) -> tuple[Trained, Trained]:
    """An undisturbed run, which moves the weights, and one that is cut off after a step and resumed."""
    selection = {"every": 3, "keep": keep}
    options: dict[str, Any] = {
        "training": {"steps": 6, **training},
        "selection": selection,
        "checkpoint_seconds": 0.0,
    }
    before, whole, resumed = weights(fresh()), fresh(), fresh()
    curve = loop.train_learner(whole, run_facts(folder / "whole", rows, **options)).curve
    assert any((before[name] != after).any() for name, after in weights(whole).items())

    def killer(progress: Any) -> None:
        if progress.step == at:
            raise Killed

    with pytest.raises(Killed):
        loop.train_learner(fresh(), run_facts(folder / "cut", rows, on_progress=killer, **options))
    outcome = loop.train_learner(resumed, run_facts(folder / "cut", rows, **options), resume=True)
    return Trained(whole, curve), Trained(resumed, outcome.curve)


def reopened_apart(learner: Learner, folder: Path) -> float:
    """How far the embeddings of the encoder that opens the saved folder are at most from those of the trained one."""
    learner.save(folder)
    texts = sentences(9, seed=5)
    return float(
        np.abs(load_encoder(str(folder)).encode(texts) - learner.encoders()[0].encode(texts)).max()
    )
