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
    """The maximum number of texts."""
    tokens: int
    """The maximum number of tokens."""


def plan_requests(
    rows: IndexArray, costs: IndexArray, limits: RequestLimits, *, probe: int
) -> list[list[IndexArray]]:
    """Plan the requests to a server for some texts, the longest texts first.

    Some texts are sent again in a later request. If their embeddings differ then, the server mixes
    up its answers, or its model has changed.

    Args:
        rows: The numbers of the texts, (n,), at least one.
        costs: The number of tokens of each text, by the text's number.
        limits: The most texts and tokens of one request, texts that are sent again included.
        probe: The number of a text that every run of several texts sends, so that runs can be
            compared.

    Returns:
        The requests of each of four phases, each request the numbers of its texts (m,). The phases
        are: the first request; its longest text alone; the other requests; the texts that are
        still to be sent again. A phase begins when the one before it has been answered.
    """
    longest_first = rows[np.argsort(-costs[rows], kind="stable")].tolist()
    longest = longest_first[0]
    shortest = longest_first[-1]
    # Requests with all texts, and the numbers of texts that are still to be sent again.
    requests, to_repeat = _fill_requests(longest_first, costs, limits, probe)
    # In a request of one text no order can be mixed up.
    if len(requests[-1]) > 1:
        to_repeat.append(shortest)
    # With one request only, the longest text is sent again in the second phase, and not once more.
    if len(requests) > 1:
        to_repeat.append(longest)
    # If a text is sent alone too, it shows whether its embedding depends on the other texts.
    longest_alone = [[longest]] if len(requests[0]) > 1 else []
    last_repeats = _divide_into_requests(list(dict.fromkeys(to_repeat)), costs, limits)
    phases = [requests[:1], longest_alone, requests[1:], last_repeats]
    return [[np.array(request, dtype=np.int64) for request in phase] for phase in phases]


class _FilledRequests(NamedTuple):
    """Requests that hold each text once, some of them with a repeat of an earlier text."""

    requests: list[list[int]]
    """The numbers of the texts of each request."""
    to_repeat: list[int]
    """The numbers of the texts that are still to be sent again."""


def _fill_requests(
    longest_first: Sequence[int], costs: IndexArray, limits: RequestLimits, probe: int
) -> _FilledRequests:
    """Divide texts into requests, and repeat in each one a text of an earlier request if it fits.

    From each request an inner text, neither the first nor the last, is drawn to be repeated later.
    It is repeated at another position than before, so that a server which mixes up the order of its
    answers is noticed.

    Args:
        longest_first: The numbers of the texts, by falling cost.
        costs: The number of tokens of each text, by the text's number.
        limits: The most texts and tokens of one request, the repeated text included. A text of more
            tokens is alone in its request.
        probe: The number of a text that every run sends, which is not in ``longest_first``. If
            there are several texts, it is put into a request like a text to repeat.

    Returns:
        The requests, and the numbers of the drawn texts that are not repeated yet.
    """
    # The texts that are in no request yet.
    queue = deque(longest_first)
    # Seeded by the number of texts, so that the same texts have the same plan.
    rng = np.random.default_rng(len(queue))
    requests: list[list[int]] = []
    to_repeat = [probe] if len(queue) > 1 else []
    # The position in its first request of each text that is to be repeated.
    first_positions: dict[int, int] = {}
    while queue:
        request = [queue.popleft()]
        tokens_left = limits.tokens - costs[request[0]]
        # The first text to repeat that fits into this request; None if there is none.
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
            other_positions = [
                position
                for position in range(len(request) + 1)
                if position != first_positions.get(repeated)
            ]
            request.insert(rng.choice(other_positions), repeated)
        if inner_texts:
            row = int(rng.choice(inner_texts))
            to_repeat.append(row)
            first_positions[row] = request.index(row)
        requests.append(request)
    return _FilledRequests(requests, to_repeat)


def _divide_into_requests(
    rows: Sequence[int], costs: IndexArray, limits: RequestLimits
) -> list[list[int]]:
    """Divide texts into requests, in their order.

    Args:
        rows: The numbers of the texts.
        costs: The number of tokens of each text, by the text's number.
        limits: The most texts and tokens of one request; a text with more tokens is alone in one.

    Returns:
        For each request the numbers of its texts.
    """
    requests: list[list[int]] = []
    for row in rows:
        request = requests[-1] if requests else []
        has_room = bool(request) and (
            len(request) < limits.texts and costs[request].sum() + costs[row] <= limits.tokens
        )
        # A text that does not fit begins a new request, however long it is.
        if not has_room:
            requests.append([])
        requests[-1].append(row)
    return requests


class RepeatedTexts:
    """The first embeddings of texts that are sent twice, to be compared with the later ones."""

    def __init__(self, phases: Sequence[Sequence[IndexArray]], probe: int) -> None:
        """Find the texts that a plan sends more than once.

        Args:
            phases: The requests of each phase, each the numbers of its texts (m,).
            probe: The number of the text that every run sends. It counts as sent more than once,
                because it may be compared with the embedding of an earlier run.
        """
        sent_texts = np.concatenate([rows for phase in phases for rows in phase])
        distinct_texts, counts = np.unique(sent_texts, return_counts=True)
        self._repeated_texts = [*distinct_texts[counts > 1], probe]
        self.embeddings: dict[int, FloatArray] = {}
        """The first embedding (d,) of each text, by its number; may be set from an earlier run."""

    def largest_move(self, rows: IndexArray, embeddings: FloatArray) -> float:
        """Return how far embeddings are at most from the first embeddings of the same texts.

        Only texts that are sent more than once are compared, and the probe, the text that every run
        sends. For one that has no embedding yet, this one is stored as its first.

        Args:
            rows: The numbers of some texts, (m,).
            embeddings: Their embeddings, (m, d).

        Returns:
            The largest distance, as a share of the length of the first embedding; NaN if one is
            NaN. Infinity if the sizes differ; 0 if no text has an earlier embedding.
        """
        moves = [0.0]
        for index in np.flatnonzero(np.isin(rows, self._repeated_texts)):
            embedding = embeddings[index]
            first_embedding = self.embeddings.setdefault(int(rows[index]), embedding.copy())
            if first_embedding.shape != embedding.shape:
                return float("inf")
            first_length = max(float(np.linalg.norm(first_embedding)), 1e-12)
            moves.append(float(np.linalg.norm(embedding - first_embedding)) / first_length)
        return float(np.max(moves))
