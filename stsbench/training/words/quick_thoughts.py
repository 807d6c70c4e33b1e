"""Quick-Thoughts' training: find the neighbours among a batch of text (Logeswaran and Lee 2018, arXiv 1803.02893)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.seams import Encoder
from stsbench.encoders.words.folder import write_word_folder
from stsbench.encoders.words.gru_halves import Half, HalvesConfig, QuickThoughtsEncoder
from stsbench.encoders.words.recurrent import Gru, GruCell
from stsbench.encoders.words.tokenisers import tokeniser
from stsbench.errors import TrainingError
from stsbench.training.loop.resuming import TrainingState
from stsbench.training.objectives import quick_thoughts
from stsbench.training.seams import Columns, Rows
from stsbench.training.words.rounds import Round, StandaloneMethod, TrainingJob, WeightsKeeper, run_steps
from stsbench.training.words.vocabulary import Vocabulary, read_ordered

UNKNOWN = "<unk>"


class QuickThoughts(nn.Module):
    """Two encoders, f and g, each with its own word vectors."""

    def __init__(self, words: int, word_size: int, hidden: int, *, cell: GruCell, scale: float) -> None:
        """Make the layers; word vectors are uniform within ``scale``."""
        super().__init__()
        self.f, self.g = (QuickHalf(words, word_size, hidden, cell=cell, scale=scale) for _ in range(2))

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return both encoders' embeddings (b, 2h) of sentences (b, t)."""
        return self.f(ids, lengths), self.g(ids, lengths)


class QuickHalf(nn.Module):
    """One encoder."""

    def __init__(self, words: int, word_size: int, hidden: int, *, cell: GruCell, scale: float) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(words, word_size).uniform_(-scale, scale))
        self.gru = Gru(word_size, hidden, bidirectional=True, cell=cell)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return embeddings (b, 2h) of sentences (b, t)."""
        last: Tensor = self.gru(self.embedding[ids], lengths)
        return last


@dataclass(frozen=True, kw_only=True)
class QuickThoughtsTraining(StandaloneMethod):
    """Train Quick-Thoughts; the defaults are the released configuration's (trained word vectors).

    Batches are stretches of the text in its order, over the borders of documents too, and follow
    each other in order; sentences are cut at ``max_words``.
    """

    word_size: int = 620
    hidden: int = 600
    """Size of the state of each of an encoder's two directions."""
    cell: GruCell = "tensorflow"
    vocabulary: int = 50001
    batch_size: int = 400
    epochs: int = 1
    learning_rate: float = 5e-4
    clip: float = 5.0
    max_words: int = 30
    scale: float = 0.1
    tokens: str = "whitespace"
    lowercase: bool = False
    every: int = 1000
    steps: int | None = None

    def learn_all(self, columns: Columns, job: TrainingJob) -> list[Round]:
        """Train on the column ``text``, see :class:`StandaloneMethod`."""
        split = tokeniser(self.tokens, lowercase=self.lowercase)
        sentences, _, vocabulary = read_ordered(columns, split, specials=(UNKNOWN,), limit=self.vocabulary)
        cut = (sentence[: self.max_words] for sentence in sentences if sentence)
        tokens = TokenIds.from_lists(vocabulary.ids(cut, unknown=UNKNOWN))
        if len(tokens) < self.batch_size:
            raise TrainingError(f"{len(tokens)} sentences make no batch of {self.batch_size}; lower batch_size")
        model = QuickThoughts(len(vocabulary), self.word_size, self.hidden, cell=self.cell, scale=self.scale)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        learnt = TrainingState(model.state_dict(), optimiser)
        keeper = WeightsKeeper(job, lambda to: self._write(to, model, vocabulary), self._load, learnt)
        batches = (rows for _ in range(self.epochs) for rows in self.batches(len(tokens)))
        planned = len(tokens) // self.batch_size * self.epochs
        job.clock.expect(planned, len(tokens.ids) * self.epochs, limit=self.steps, done=keeper.step)

        def learn(rows: Rows) -> float:
            return self.step(model, optimiser, tokens, rows)

        return run_steps(batches, learn, keeper, every=self.every, steps=self.steps)

    def batches(self, sentences: int) -> Iterator[Rows]:
        """One epoch's batches; what is left over at the text's end is not a whole one."""
        for start in range(0, sentences - self.batch_size + 1, self.batch_size):
            yield np.arange(start, start + self.batch_size)

    def step(self, model: QuickThoughts, optimiser: torch.optim.Optimizer, tokens: TokenIds, rows: Rows) -> float:
        """Learn from one batch and return its loss."""
        ids, _ = tokens.padded(rows, pad=0)
        f, g = model(torch.from_numpy(ids), torch.from_numpy(tokens.lengths[rows]))
        loss = quick_thoughts(f, g)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), self.clip)
        optimiser.step()
        return float(loss.detach())

    def _write(self, folder: Path, model: QuickThoughts, vocabulary: Vocabulary) -> None:
        half = Half(word_size=self.word_size, hidden=self.hidden, bidirectional=True, cell=self.cell)
        config = HalvesConfig(halves={"f": half, "g": half}, unknown=UNKNOWN, lowercase=self.lowercase)
        params = {"tokens": self.tokens}
        write_word_folder(
            folder,
            kind="quick_thoughts",
            config=config,
            tensors=model.state_dict(),
            words=vocabulary.words,
            params=params,
        )

    def _load(self, folder: Path) -> Encoder:
        return QuickThoughtsEncoder(str(folder), tokens=self.tokens)
