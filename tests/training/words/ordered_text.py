"""A small text whose neighbouring sentences share a subject and no word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stsbench.encoders.base import Encoder

_SUBJECTS = {
    "cat": ["the cat sleeps here", "a kitten purrs softly", "its whiskers twitch slowly"],
    "sea": ["waves hit this beach", "salty water rises again", "the tide pulls sand"],
    "car": ["an engine starts loudly", "four wheels turn fast", "this road bends left"],
    "tea": ["she boils some water", "leaves fill one pot", "he pours two cups"],
    "sun": ["light fills every room", "bright morning comes early", "shadows grow short now"],
}
_order = np.random.default_rng(0).choice(list(_SUBJECTS), size=20)
STORY: Mapping[str, Sequence[Any]] = {
    "text": [sentence for subject in _order for _ in range(2) for sentence in _SUBJECTS[subject]],
    "document_id": [i for i in range(20) for _ in range(6)],
}


def neighbours_are_near(encoder: Encoder) -> bool:
    """Whether sentences of one subject are far nearer to each other, in the mean, than to others'."""
    cosines = np.asarray(
        np.corrcoef(
            encoder.encode([sentence for subject in _SUBJECTS.values() for sentence in subject])
        )
    )
    subject = np.arange(len(cosines)) // 3
    same = subject[:, None] == subject
    return bool(cosines[same & (cosines < 1 - 1e-9)].mean() > cosines[~same].mean() + 0.3)
