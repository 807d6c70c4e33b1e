"""A tiny masked language model to train, a corpus and a development split, all made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from stsbench.core.cards import BaseSection, SelectionSection, StudentSection, TrainingSection
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.training.learner import Learner
from stsbench.training.loop.batches import BatchPlan
from stsbench.training.loop.gather import ProcessGroup
from stsbench.training.loop.selection import LoopSettings
from stsbench.training.student import Student
from tests.encoders.made_checkpoints import save_bert

WORDS = (
    "a the dog cat bird fish man woman child runs sleeps eats sings swims jumps in on under near park house river "
    "tree big small red blue old young happy sad quickly slowly today never always"
).split()


def save_masked_lm(folder: Path) -> Path:
    """Save a BERT of three layers of 16 with its head as a masked language model and no pooler; random weights."""
    return save_bert(
        folder, "BertForMaskedLM", WORDS, positions=40, layers=3, initializer_range=0.2
    )


def sentences(count: int, *, seed: int = 0, longest: int = 9) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, longest))) for _ in range(count)]


def student(folder: Path, **options: Any) -> Student:
    """A student on the CPU, its fresh parts drawn from seed 0."""
    torch.manual_seed(0)
    given: dict[str, Any] = {"device": "cpu", "max_length": 16, **options}
    facts = {key: given.pop(key) for key in StudentSection.__struct_fields__ if key in given}
    start = {key: given.pop(key) for key in BaseSection.__struct_fields__ if key in given}
    return Student(
        find_checkpoint(str(folder)), StudentSection(**facts), BaseSection(**start), **given
    )


def run_facts(folder: Path, rows: int, **options: Any) -> LoopSettings:
    """A run of ten steps of eight rows, validated at every fifth."""
    training = TrainingSection(
        **{"batch_size": 8, "learning_rate": 1e-3, "steps": 10, **options.pop("training", {})}
    )
    batches = BatchPlan(training, rows, options.pop("seed", 0))
    selection = SelectionSection(**{"every": 5, **options.pop("selection", {})})
    return LoopSettings(
        **{
            "batches": batches,
            "selection": selection,
            "folder": folder,
            "processes": ProcessGroup.find("cpu"),
            "validate": spread,
            **options,
        }
    )


def spread(encoder: Any) -> float:
    """A score that training moves: how far apart a few sentences lie."""
    embeddings = encoder.encode(sentences(12, seed=9))
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return float(1 - (unit @ unit.T).mean())


def weights(learner: Learner) -> dict[str, np.ndarray[Any, Any]]:
    return {name: tensor.detach().numpy().copy() for name, tensor in learner.state_dict().items()}
