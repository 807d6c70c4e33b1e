"""ESimCSE: SimCSE whose positives repeat some words, with negatives of a queue that a slowly moving copy fills.

Wu, Gao, Zang, Han, Wang and Hu 2022, https://arxiv.org/abs/2109.04380, section 3; details of the released code.
"""

from __future__ import annotations

import copy
from typing import Any, Literal, Self

import numpy as np
import torch
import transformers

from stsbench.encoders.engine.tokens import TokenIds
from stsbench.errors import CardError, choose
from stsbench.training.loop.gather import check_negatives, gather_pairs, gather_views
from stsbench.training.loop.parts import Tokens
from stsbench.training.objectives import info_nce, queued_info_nce
from stsbench.training.seams import Batch, Learner, Rows, stack_tokens
from stsbench.training.student import Student


class ESimCSE(Learner):
    """In-batch contrast of a sentence with itself, some of its sub-words said twice; more negatives of batches before."""

    chunks = True
    queue: torch.Tensor
    filled: torch.Tensor

    def __init__(
        self,
        student: Student,
        *,
        variant: Literal["paper", "released"] = "paper",
        repetition_rate: float = 0.32,
        queue_size: int = 160,
        momentum: float = 0.995,
        temperature: float = 0.05,
    ) -> None:
        """Choose a variant; repetition and queue can each be left out.

        Args:
            student: what is trained.
            variant: ``paper``, the copy begins as the student, head and all, and of n sub-words 0 to max(2, rate * n) are
                repeated. ``released``, it begins with fresh weights, which the released code never replaces by the
                checkpoint's, under the student's own head; 0 to min(10, rate * (n + 2)) - 1 are repeated.
            repetition_rate: the greatest share of a sentence's sub-words that are repeated; 0 for none.
            queue_size: embeddings in the queue, 2.5 batches in the paper; 0 for no queue.
            momentum: the share of itself that the copy keeps at each step.
            temperature: of the cosine.
        """
        super().__init__(student)
        if not 0 <= repetition_rate <= 1 or queue_size < 0 or not 0 <= momentum <= 1:
            raise CardError(
                f"repetition_rate {repetition_rate:g}, queue_size {queue_size}, momentum {momentum:g}: "
                "give shares from 0 to 1, and 0 or more"
            )
        self.released = choose("variant", variant, {"paper": False, "released": True})
        self.repetition_rate, self.momentum, self.temperature = repetition_rate, momentum, temperature
        self.slow = self._make_slow() if queue_size else None
        width, place = student.backbone.width, student.device
        self.register_buffer("queue", torch.zeros(queue_size, width, device=place))
        self.register_buffer("filled", torch.zeros(queue_size, dtype=torch.bool, device=place))
        self.train(self.training)

    def _make_slow(self) -> Student:
        """The copy that fills the queue."""
        slow = copy.deepcopy(self.student).requires_grad_(False)
        if self.released:
            fresh = transformers.AutoModel.from_config(slow.model.config)
            # It may have a pooler, which the student has not.
            slow.model.load_state_dict(fresh.state_dict(), strict=False)
            slow.head = self.student.head
        return slow

    def train(self, mode: bool = True) -> Self:
        """As every module, but the copy always computes as in tests."""
        super().train(mode)
        if self.slow is not None:
            self.slow.eval()
        return self

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, and beside them the same with some sub-words repeated."""
        check_negatives(len(rows))
        tokens = self.student.tokenize([self.columns["text"][row] for row in rows.tolist()])
        lists = [self._repeated(one, rng) for one in np.split(tokens.ids, tokens.offsets[1:-1])]
        every = np.arange(len(rows))
        return {
            "first": self.student.collate(tokens, every),
            "second": self.student.collate(TokenIds.from_lists(lists), every),
        }

    def _repeated(self, ids: np.ndarray[Any, Any], rng: np.random.Generator) -> list[int]:
        """The token ids of a sentence with some said twice, never the first nor the last, which are special."""
        inner = max(0, len(ids) - 2)
        limit = self.student.checkpoint.max_length()
        room = inner if limit is None else limit - len(ids)
        most = min(self._most(inner), inner, room) if self.repetition_rate else 0
        count = int(rng.integers(max(0, most) + 1))
        times = np.ones(len(ids), dtype=np.int64)
        times[1 + rng.choice(inner, count, replace=False) if count else []] = 2
        repeated: list[int] = np.repeat(ids, times).tolist()
        return repeated

    def _most(self, inner: int) -> int:
        """How many of a sentence's sub-words are repeated at most."""
        if self.released:
            return min(10, int(self.repetition_rate * (inner + 2))) - 1
        return max(2, int(self.repetition_rate * inner))

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """SimCSE's loss with the queue's negatives; then the sentences join the queue."""
        tokens = stack_tokens([batch["first"], batch["second"]], pad=self.student.backbone.pad_token)
        anchor, positive = gather_pairs(self.student.embed(tokens), 2)
        if self.slow is None:
            return {"loss": info_nce(anchor, positive, temperature=self.temperature)}
        # A copy: the queue moves on before the backward pass.
        queue, filled = self.queue.clone(), self.filled.clone()
        loss = queued_info_nce(anchor, positive, queue, filled, temperature=self.temperature)
        if self.training:
            self._move_on(self.slow, batch["first"])
        return {"loss": loss}

    @torch.no_grad()
    def _move_on(self, slow: Student, tokens: Tokens) -> None:
        """Move the copy towards the student, and put its embeddings of these sentences in place of the oldest."""
        pairs = [(slow.model, self.student.model)]
        if slow.head is not None and self.student.head is not None and slow.head is not self.student.head:
            pairs.append((slow.head, self.student.head))
        for kept, new in pairs:
            for mine, theirs in zip(kept.parameters(), new.parameters(), strict=True):
                mine.lerp_(theirs, 1 - self.momentum)
        latest = gather_views(slow.embed(tokens)).to(self.queue.dtype)
        size = len(self.queue)
        self.queue.copy_(torch.cat([self.queue, latest])[-size:])
        self.filled.copy_(torch.cat([self.filled, self.filled.new_ones(len(latest))])[-size:])
