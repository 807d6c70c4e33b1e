"""Recurrent layers over batches of sentences, for embedding and for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from stsbench.encoders.engine.tokens import TokenIds, plan_batches
from stsbench.encoders.seams import FloatArray
from stsbench.errors import choose

TOKEN_BUDGET = 4096
Padding = Literal["zeros", "batch", "masked"]
"""What a maximum over time does with padding, see :func:`pool_max`."""
GruCell = Literal["torch", "tensorflow"]
"""Which GRU: the reset gate after the recurrent product (PyTorch, Theano) or before it (TensorFlow)."""


class BiLstm(nn.Module):
    """InferSent's encoder: one bidirectional LSTM over word vectors."""

    def __init__(self, word_size: int, hidden: int) -> None:
        """Make the layer with torch's own initial weights."""
        super().__init__()
        self.enc_lstm = nn.LSTM(word_size, hidden, bidirectional=True, batch_first=True)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the states (b, t, 2h) of word vectors (b, t, w); exactly zero behind a sentence's end."""
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states: Tensor = pad_packed_sequence(self.enc_lstm(packed)[0], batch_first=True)[0]
        return states


def pool_max(states: Tensor, padding: Padding) -> Tensor:
    """Return the maximum over time (b, d) of states (b, t, d) that are zero behind a sentence's end.

    ``batch``: as InferSent 1 was released, padding's zeros take part, so that a sentence depends on
    whether a longer one stands beside it. ``zeros``: a zero takes part for every sentence: what
    InferSent 1 gives to all but the longest of a batch. ``masked``: as InferSent 2, whatever is
    exactly zero takes no part, true zeros too.
    """
    return choose("padding", padding, _MAXIMA)(states)


_MAXIMA: Mapping[str, Callable[[Tensor], Tensor]] = {
    "batch": lambda states: states.amax(dim=1),
    "zeros": lambda states: states.amax(dim=1).clamp(min=0),
    "masked": lambda states: states.masked_fill(states == 0, -1e9).amax(dim=1),
}


class Gru(nn.Module):
    """One GRU, in one direction or both; a sentence is its last state."""

    def __init__(self, word_size: int, hidden: int, *, bidirectional: bool = False, cell: GruCell = "torch") -> None:
        """Make the layer.

        Args:
            word_size: size of a word vector.
            hidden: size of the state, of each direction.
            bidirectional: read from both ends and join the two last states.
            cell: which GRU.
        """
        super().__init__()
        make = {"torch": self._torch, "tensorflow": ResetBeforeGru}[cell]
        self.directions = nn.ModuleList(make(word_size, hidden) for _ in range(2 if bidirectional else 1))

    @staticmethod
    def _torch(word_size: int, hidden: int) -> nn.Module:
        return LastState(word_size, hidden)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, d) of word vectors (b, t, w)."""
        forward = self.directions[0](vectors, lengths)
        if len(self.directions) == 1:
            last: Tensor = forward
            return last
        return torch.cat([forward, self.directions[1](reverse(vectors, lengths), lengths)], dim=1)


class LastState(nn.Module):
    """PyTorch's GRU, which is Theano's where the recurrent biases are zero."""

    def __init__(self, word_size: int, hidden: int) -> None:
        """Make the layer with torch's own initial weights, and no recurrent bias."""
        super().__init__()
        self.gru = nn.GRU(word_size, hidden, batch_first=True)
        for name, parameter in self.gru.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(parameter)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, h) of word vectors (b, t, w)."""
        packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
        last: Tensor = self.gru(packed)[1][0]
        return last


class ResetBeforeGru(nn.Module):
    """TensorFlow's GRU: the state is reset before its product, and gates begin open (bias 1)."""

    def __init__(self, word_size: int, hidden: int) -> None:
        """Make the layer: uniform weights as LSTM and GRU layers have them, gate biases 1, others 0."""
        super().__init__()
        self.gates = nn.Linear(word_size + hidden, 2 * hidden)
        self.candidate = nn.Linear(word_size + hidden, hidden)
        nn.init.ones_(self.gates.bias)
        nn.init.zeros_(self.candidate.bias)
        self.hidden = hidden

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, h) of word vectors (b, t, w)."""
        state = vectors.new_zeros(len(vectors), self.hidden)
        for step in range(vectors.shape[1]):
            word = vectors[:, step]
            reset, update = torch.sigmoid(self.gates(torch.cat([word, state], dim=1))).chunk(2, dim=1)
            candidate = torch.tanh(self.candidate(torch.cat([word, reset * state], dim=1)))
            new = update * state + (1 - update) * candidate
            state = torch.where((step < lengths).unsqueeze(1), new, state)
        return state


def reverse(vectors: Tensor, lengths: Tensor) -> Tensor:
    """Turn each sentence of a batch (b, t, w) round; padding stays behind it."""
    steps = torch.arange(vectors.shape[1], device=vectors.device)
    places = lengths.to(vectors.device).unsqueeze(1) - 1 - steps
    places = torch.where(places >= 0, places, steps)
    return vectors.gather(1, places.unsqueeze(2).expand_as(vectors))


def embed_planned(
    tokens: TokenIds, embed: Callable[[npt.NDArray[np.int64], Tensor], Tensor], *, d: int, batch: int | None = None
) -> FloatArray:
    """Embed sentences of at least one token in batches of like length, (n, d).

    Args:
        tokens: token ids of n sentences; an empty one gets the zero vector.
        embed: padded ids (b, t) and lengths (b,) to embeddings (b, d).
        d: embedding size.
        batch: sentences a batch, longest first; default by a token budget.
    """
    embeddings = np.zeros((len(tokens), d), dtype=np.float32)
    lengths = tokens.lengths
    with torch.inference_mode():
        for rows in _batches(lengths, batch):
            rows = rows[lengths[rows] > 0]
            if len(rows):
                ids, _ = tokens.padded(rows, pad=-1)
                embeddings[rows] = embed(ids, torch.from_numpy(lengths[rows])).float().cpu().numpy()
    return embeddings


def _batches(lengths: npt.NDArray[np.int64], batch: int | None) -> list[npt.NDArray[np.int64]]:
    if batch is None:
        return list(plan_batches(lengths, budget=TOKEN_BUDGET))
    order = np.argsort(-lengths)
    return [order[start : start + batch] for start in range(0, len(order), batch)]
