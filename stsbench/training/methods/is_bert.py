"""IS-BERT: convolutions over a transformer's tokens, taught to share information with their own sentence.

Zhang et al. 2020, https://aclanthology.org/2020.emnlp-main.124.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stsbench.core.errors import CardError, choose
from stsbench.encoders.base import Encoder
from stsbench.encoders.transformer.pooling import Mean, masked_mean
from stsbench.training.loop.gather import check_negatives
from stsbench.training.loop.parts import Tokens
from stsbench.training.objectives import jsd_mutual_information
from stsbench.training.seams import Batch, Learner, Rows
from stsbench.training.student import Student, StudentEncoder, save_student

ACTIVATIONS: Mapping[str, Callable[[], torch.nn.Module]] = {"none": torch.nn.Identity, "relu": torch.nn.ReLU}


class ISBERT(Learner):
    """A student with convolutions between its last layer and its mean, which stay at test time.

    Each process of several takes negatives from its own sentences alone.
    """

    def __init__(
        self,
        student: Student,
        *,
        widths: list[int] | None = None,
        channels: int | None = None,
        activation: str = "none",
        mask_padding: bool = True,
    ) -> None:
        """Add the convolutions.

        Args:
            student: what is trained; its pooling must be ``mean``.
            widths: of the convolutions, in tokens; default 1, 3, 5.
            channels: of each; default a third of the transformer's size, or as many as there are widths.
            activation: after them: ``none`` as released, ``relu`` as in the paper.
            mask_padding: convolutions see zeros at padding, as beyond a sentence's ends. Without, they see
                the states of padding while training, as in the released code: the loss then depends
                on how wide a batch is. At test time padding is always masked.
        """
        super().__init__(student)
        from sentence_transformers.sentence_transformer.modules import CNN

        widths = widths or [1, 3, 5]
        if wrong := [width for width in widths if width < 1 or width % 2 == 0]:
            raise CardError(f"widths: {wrong[0]} is not odd; a state for each token needs odd widths")
        if {str(one) for one in (student.pooling, student.test_pooling, student.validation_pooling)} != {"mean"}:
            raise CardError("IS-BERT averages the convolutions' output: each pooling must be 'mean'")
        channels = channels or student.backbone.width // len(widths)
        self.cnn = CNN(student.backbone.width, out_channels=channels, kernel_sizes=widths).to(student.device)
        self.activate = choose("activation", activation, ACTIVATIONS)()
        self.mask_padding = mask_padding

    def local_states(self, tokens: Tokens, *, mask_padding: bool = True) -> torch.Tensor:
        """The convolutions' output for each token, (b, t, channels * widths)."""
        layers = Mean().states(self.student.backbone.depth)
        (states,) = self.student.hidden_states(tokens, layers, padding=not mask_padding)
        if mask_padding:
            states = states * tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        local: torch.Tensor = self.cnn({"token_embeddings": states})["token_embeddings"]
        activated: torch.Tensor = self.activate(local)
        return activated

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, once."""
        check_negatives(len(rows), gathered=False)
        return {"views": self.views(("text",), rows)}

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """Minus the estimate of the mutual information of tokens and sentences."""
        tokens = batch["views"]
        local = self.local_states(tokens, mask_padding=self.mask_padding)
        pooled = masked_mean(local, tokens["attention_mask"])
        return {"loss": jsd_mutual_information(local, tokens["attention_mask"], pooled)}

    def encoders(self) -> list[Encoder]:
        """The student with its convolutions."""
        return [_Convolved(self)]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the transformer, the convolutions and the mean as modules of sentence-transformers.

        Two modules stand for what that library's convolutions lack: weights of 1 that leave padding
        out, and for an activation a layer that passes on what it is given.
        """
        from sentence_transformers.sentence_transformer.modules import Dense, WordWeights

        size = self.student.model.get_input_embeddings().num_embeddings
        between: list[Any] = [WordWeights([str(number) for number in range(size)], {}), self.cnn]
        if not isinstance(self.activate, torch.nn.Identity):
            width = self.cnn.get_embedding_dimension()
            between.append(
                Dense(
                    width,
                    width,
                    bias=False,
                    activation_function=self.activate,
                    init_weight=torch.eye(width),
                    module_input_name="token_embeddings",
                )
            )
        save_student(self.student, folder, between)


class _Convolved(StudentEncoder):
    """The student with its convolutions as an encoder."""

    def __init__(self, learner: ISBERT) -> None:
        super().__init__(learner.student, "student")
        self.learner = learner

    @property
    def width(self) -> int:
        return int(self.learner.cnn.get_embedding_dimension())

    def embed(self, tokens: Tokens) -> torch.Tensor:
        return masked_mean(self.learner.local_states(tokens), tokens["attention_mask"])
