"""Plan which texts go into which request to a server, and which of them are sent again.

A server may mix up the order of its answers, or change its model under one name. So some texts are
sent twice, in another request and at another position: the first text of a run, alone right after
its request and once more at the end; an inner text of each request, drawn at random, in a later
one; the last text, at the end. A text that every run sends shows whether the model is still that
of earlier runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stsbench.encoders.base import FloatArray, IndexArray

MAX_SERVER_DRIFT = 0.1
"""How far an embedding may move with other texts in its request, as a share of its length.

Rounding in 8 bits moves it by 0.05.
"""


class RequestLimits(NamedTuple):
    """The size of one request; a text of more tokens goes alone."""

    texts: int
    tokens: int


def plan_requests(
    rows: IndexArray, costs: IndexArray, limits: RequestLimits, *, probe: int
) -> list[list[IndexArray]]:
    """Plan the requests for some texts, longest first, with the texts that are sent again.

    Args:
        rows: The numbers of the texts, (n,), at least one.
        costs: The number of tokens of each text, by the text's number.
        limits: The size of one request, texts that are sent again included.
        probe: The number of the text that every run of several texts sends.

    Returns:
        The requests of each phase, each the numbers of its texts (m,). A phase is sent when the one
        before it has been answered.
    """
    # A text that is sent again joins a later request, at another position than before: so a server
    # that mixes up the order of its answers is found.
    queue = deque(rows[np.argsort(-costs[rows], kind="stable")].tolist())
    first = queue[0]
    last = queue[-1]
    rng = np.random.default_rng(len(rows))  # the same texts have the same plan
    requests: list[list[int]] = []
    to_repeat = [probe] if len(rows) > 1 else []
    # The position of each text in its first request, which differs from that in its second.
    first_positions: dict[int, int] = {}
    while queue:
        request = [queue.popleft()]
        tokens_left = limits.tokens - costs[request[0]]
        repeated = None
        if limits.texts > 1:
            repeated = next((row for row in to_repeat if costs[row] <= tokens_left), None)
        max_new_texts = limits.texts
        if repeated is not None:
            tokens_left -= costs[repeated]
            max_new_texts -= 1
        while queue and len(request) < max_new_texts and costs[queue[0]] <= tokens_left:
            tokens_left -= costs[queue[0]]
            request.append(queue.popleft())
        inner_texts = request[1:-1]
        if repeated is not None:
            to_repeat.remove(repeated)
            positions = [
                position
                for position in range(len(request) + 1)
                if position != first_positions.get(repeated)
            ]
            request.insert(rng.choice(positions), repeated)
        if inner_texts:
            row = int(rng.choice(inner_texts))
            to_repeat.append(row)
            first_positions[row] = request.index(row)
        requests.append(request)
    if len(requests[-1]) > 1:
        to_repeat.append(last)
    if len(requests) > 1:
        to_repeat.append(first)
    # The first text alone shows whether an embedding depends on the other texts of its request.
    phases = [
        requests[:1],
        [[first]] if len(requests[0]) > 1 else [],
        requests[1:],
        _divide(list(dict.fromkeys(to_repeat)), costs, limits),
    ]
    return [[np.array(request, dtype=np.int64) for request in phase] for phase in phases]


def _divide(rows: Sequence[int], costs: IndexArray, limits: RequestLimits) -> list[list[int]]:
    """Divide texts into requests within the limits, in their order.

    Args:
        rows: The numbers of the texts.
        costs: The number of tokens of each text, by the text's number.
        limits: The size of one request; a text of more tokens goes alone.
    """
    requests: list[list[int]] = []
    for row in rows:
        request = requests[-1] if requests else []
        is_full = (
            not request
            or len(request) == limits.texts
            or costs[request].sum() + costs[row] > limits.tokens
        )
        if is_full:
            requests.append([])
        requests[-1].append(row)
    return requests


class RepeatedTexts:
    """The first embeddings of texts that are sent twice."""

    def __init__(self, phases: Sequence[Sequence[IndexArray]], probe: int) -> None:
        """Find the texts that a plan sends more than once.

        Args:
            phases: The requests of each phase.
            probe: The number of the text that each run sends.
        """
        sent_rows = np.concatenate([rows for phase in phases for rows in phase])
        distinct_rows, counts = np.unique(sent_rows, return_counts=True)
        self._rows = [*distinct_rows[counts > 1], probe]
        self.embeddings: dict[int, FloatArray] = {}
        """The first embedding (d,) of each text, by its number; may be set from an earlier run."""

    def largest_move(self, rows: IndexArray, embeddings: FloatArray) -> float:
        """Compare the embeddings of repeated texts with the first ones, and store first ones.

        Args:
            rows: The numbers of some texts, (m,).
            embeddings: Their embeddings, (m, d).

        Returns:
            The largest distance from the first embedding of a text, as a share of its length;
            infinity if the sizes differ, 0 if no text has an earlier embedding.
        """
        moves = [0.0]
        for index in np.flatnonzero(np.isin(rows, self._rows)):
            embedding = embeddings[index]
            first_embedding = self.embeddings.setdefault(int(rows[index]), embedding.copy())
            if first_embedding.shape != embedding.shape:
                return float("inf")
            length = max(float(np.linalg.norm(first_embedding)), 1e-12)
            moves.append(float(np.linalg.norm(embedding - first_embedding)) / length)
        return max(moves)
