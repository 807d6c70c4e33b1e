"""Which texts go into which request to a server, and which of them are asked for again.

A server may mix up the order of its answers, or change its model under one name. So some texts are asked for twice, in
another request and at another place: the first text of a run, alone right after its request and once more at the end; an
inner text of each request, drawn at random, in a later one; the last text, at the end. A text that every run asks for
shows whether the model is still that of earlier runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stsbench.encoders.base import FloatArray, IndexArray

MAX_SERVER_DRIFT = 0.1
"""How far an embedding may move with other texts in its request, as a share of its length: rounding in 8 bits moves it by .05."""


class RequestLimits(NamedTuple):
    """How much goes into one request; a text of more tokens goes alone."""

    texts: int
    tokens: int


def plan_requests(
    rows: IndexArray, costs: IndexArray, limits: RequestLimits, *, probe: int
) -> list[list[IndexArray]]:
    """Plan the requests for some texts, longest first, with those texts that are asked for again.

    Args:
        rows: The numbers of the texts, (n,), at least one.
        costs: How many tokens each text has, by its number.
        limits: How much goes into one request, with what is asked for again.
        probe: The number of the text that every run of several texts asks for.

    Returns:
        Lists of requests, each the numbers of its texts (m,). A list is sent when the one before it has been answered.
    """
    queue = deque(rows[np.argsort(-costs[rows], kind="stable")].tolist())
    first, last = queue[0], queue[-1]
    random = np.random.default_rng(len(rows))
    requests: list[list[int]] = []
    repeated = [probe] if len(rows) > 1 else []
    positions: dict[int, int] = {}
    while queue:
        request = [queue.popleft()]
        left = limits.tokens - costs[request[0]]
        again = next((row for row in repeated if limits.texts > 1 and costs[row] <= left), None)
        if again is not None:
            left -= costs[again]
        while (
            queue and len(request) + (again is not None) < limits.texts and costs[queue[0]] <= left
        ):
            left -= costs[queue[0]]
            request.append(queue.popleft())
        inner = request[1:-1]
        if again is not None:
            repeated.remove(again)
            free = [
                position for position in range(len(request) + 1) if position != positions.get(again)
            ]
            request.insert(random.choice(free), again)
        if inner:
            repeated.append(int(random.choice(inner)))
            positions[repeated[-1]] = request.index(repeated[-1])
        requests.append(request)
    if len(requests[-1]) > 1:
        repeated.append(last)
    if len(requests) > 1:
        repeated.append(first)
    alone = [[first]] if len(requests[0]) > 1 else []
    phases = [requests[:1], alone, requests[1:], _cut(list(dict.fromkeys(repeated)), costs, limits)]
    return [[np.array(request, dtype=np.int64) for request in phase] for phase in phases]


def _cut(rows: Sequence[int], costs: IndexArray, limits: RequestLimits) -> list[list[int]]:
    requests: list[list[int]] = []
    for row in rows:
        request = requests[-1] if requests else []
        if (
            not request
            or len(request) == limits.texts
            or costs[request].sum() + costs[row] > limits.tokens
        ):
            requests.append([])
        requests[-1].append(row)
    return requests


class RepeatedTexts:
    """The embeddings of texts that are asked for twice, as they came first."""

    def __init__(self, phases: Sequence[Sequence[IndexArray]], probe: int) -> None:
        """Find the texts that the phases of a plan ask for more than once; ``probe`` is asked for in each run."""
        rows, counts = np.unique(
            np.concatenate([rows for phase in phases for rows in phase]), return_counts=True
        )
        self._repeated = [*rows[counts > 1], probe]
        self.embeddings: dict[int, FloatArray] = {}
        """The first embedding (d,) of each, by the number of the text; an embedding of an earlier run can be added."""

    def largest_move(self, rows: IndexArray, embeddings: FloatArray) -> float:
        """Return how far embeddings (m, d) of these texts are from those that came before, as a share of their lengths.

        Those that come for the first time are kept.
        """
        moves = [0.0]
        for index in np.flatnonzero(np.isin(rows, self._repeated)):
            before = self.embeddings.setdefault(int(rows[index]), embeddings[index].copy())
            if before.shape != embeddings[index].shape:
                return float("inf")
            length = max(float(np.linalg.norm(before)), 1e-12)
            moves.append(float(np.linalg.norm(embeddings[index] - before)) / length)
        return max(moves)
