"""IS-BERT: convolutions over a transformer's tokens, taught to share information with their own sentence.

Zhang et al. 2020, https://aclanthology.org/2020.emnlp-main.124.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch

from stsbench.core.errors import CardError
from stsbench.encoders.base import Encoder
from stsbench.encoders.transformer.pooling import Mean, masked_mean
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import jsd_mutual_information
from stsbench.training.seams import Learner, Losses
from stsbench.training.student import StudentEncoder, save_student


class ISBERT(Learner):
    """A student with convolutions between its last layer and its mean, which stay at test time.

    Each process of several takes negatives from its own sentences alone.
    """

    batch_negatives = "own"
    widths: tuple[int, ...] = (1, 3, 5)
    """Of the convolutions, in tokens."""
    channels: int | None = None
    """Of each; default a third of the transformer's size, or as many as there are widths."""
    activation: Literal["none", "relu"] = "none"
    """After them: ``none`` as released, ``relu`` as in the paper."""
    mask_padding: bool = True
    """Convolutions see zeros at padding, as beyond a sentence's ends. Without, they see the states of padding while training,
    as in the released code: the loss then depends on how wide a batch is. At test time padding is always masked."""

    def __post_init__(self) -> None:
        from sentence_transformers.sentence_transformer.modules import CNN

        student = self.student
        if wrong := [width for width in self.widths if width < 1 or width % 2 == 0]:
            raise CardError(f"widths: {wrong[0]} is not odd; a state for each token needs odd widths")
        student.need_pooling("mean", "IS-BERT averages the convolutions' output")
        channels = self.channels or student.backbone.width // len(self.widths)
        self.cnn = CNN(student.backbone.width, out_channels=channels, kernel_sizes=self.widths).to(student.device)
        self.activate = torch.nn.ReLU() if self.activation == "relu" else torch.nn.Identity()

    def local_states(self, tokens: Tokens, *, mask_padding: bool = True) -> torch.Tensor:
        """The convolutions' output for each token, (b, t, channels * widths)."""
        layers = Mean().states(self.student.backbone.depth)
        (states,) = self.student.hidden_states(tokens, layers, padding=not mask_padding)
        if mask_padding:
            states = states * tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        activated: torch.Tensor = self.activate(self.cnn({"token_embeddings": states})["token_embeddings"])
        return activated

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Minus the estimate of the mutual information of tokens and sentences."""
        tokens = batch["views"]
        local = self.local_states(tokens, mask_padding=self.mask_padding)
        pooled = masked_mean(local, tokens["attention_mask"])
        return {"loss": jsd_mutual_information(local, tokens["attention_mask"], pooled)}

    def encoders(self) -> list[Encoder]:
        """The student with its convolutions."""

        def embed(tokens: Tokens) -> torch.Tensor:
            return masked_mean(self.local_states(tokens), tokens["attention_mask"])

        return [StudentEncoder(self.student, embed=embed, width=int(self.cnn.get_embedding_dimension()))]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the transformer, the convolutions and the mean as modules of sentence-transformers.

        Two modules stand for what that library's convolutions lack: weights of 1 that leave padding
        out, and for an activation a layer that passes on what it is given.
        """
        from sentence_transformers.sentence_transformer.modules import Dense, WordWeights

        size = self.student.model.get_input_embeddings().num_embeddings
        between: list[Any] = [WordWeights([str(number) for number in range(size)], {}), self.cnn]
        if self.activation != "none":
            width = self.cnn.get_embedding_dimension()
            options = {"activation_function": self.activate, "init_weight": torch.eye(width)}
            between.append(Dense(width, width, bias=False, module_input_name="token_embeddings", **options))
        save_student(self.student, folder, between)
