"""Masked language modelling: the pre-training of BERT, on from a checkpoint or from scratch.

Devlin et al. 2019, https://aclanthology.org/N19-1423, section 3.1, without next sentence prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stsbench.training.augmentation.masking import masked_language_model_loss
from stsbench.training.loop.saving import save_student
from stsbench.training.seams import Batch, Learner, Rows
from stsbench.training.student import Student


class MaskedLanguageModel(Learner):
    """Guess hidden tokens. What is saved has its head still, and opens as an encoder too."""

    chunks = True

    def __init__(self, student: Student, *, rate: float = 0.15) -> None:
        """Choose the share of tokens that are hidden; of those 80% are masked, 10% another token, 10% left."""
        super().__init__(student)
        self.rate = rate

    @classmethod
    def wants_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Always."""
        return True

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Texts with tokens hidden, and the labels."""
        tokens = self.views(["text"], rows)
        tokens["input_ids"], labels = self.hide(tokens, rng, rate=self.rate)
        return {**tokens, "labels": labels}

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The loss of guessing."""
        loss = masked_language_model_loss(
            self.student.language_model,
            batch["input_ids"],
            batch["attention_mask"],
            batch["labels"],
            chunk=self.student.chunk,
        )
        return {"loss": loss}

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the language model, head and all: a base for further training, and an encoder."""
        save_student(self.student, folder, language_model=True)
