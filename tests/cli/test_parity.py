"""``parity``: faults planted in an encoder are found, rounding is let pass, and exit codes tell which."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import HASHED, QUICK, Command

FAULTY = '''
import numpy as np
from own_encoders import Hashed


class Rounded(Hashed):
    """The same, rounded as half precision rounds."""

    def __init__(self):
        super().__init__(name="rounded")
        self.fingerprint = "rounded"

    def encode(self, sentences):
        return super().encode(sentences).astype(np.float16).astype(np.float32)


class Scaled(Hashed):
    """The same at length 1: cosines do not tell."""

    def __init__(self):
        super().__init__(name="scaled")
        self.fingerprint = "scaled"

    def encode(self, sentences):
        rows = super().encode(sentences)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-9)
'''


@pytest.fixture
def faulty(stsbench: Command) -> Command:
    Path("faulty.py").write_text(FAULTY)
    return stsbench


def found(stsbench: Command, first: str, second: str, *options: str) -> tuple[int, Any]:
    """The exit code, and what was found."""
    code, out, err = stsbench("parity", first, second, *QUICK, *options, "--json")
    assert err == ""
    return code, json.loads(out)


FAULTS: Mapping[str, str] = {
    "pooling": "+pooling=cls_before_pooler",
    "prompt": "+prompt='a dog: '",
    "truncation": "+max_length=24",
    "layer": "+pooling=mean(-2,-1)",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_transformer_is_found(stsbench: Command, tiny: Mapping[str, Path], fault: str):
    folder = str(tiny["bert"])
    code, facts = found(stsbench, folder, folder + FAULTS[fault])
    assert (code, facts["same"], facts["verdict"]) == (1, False, "different")
    assert any("have a cosine below 0.99" in reason for reason in facts["reasons"])


def test_rounding_is_the_same_for_practical_purposes(faulty: Command):
    code, facts = found(faulty, HASHED[1], "faulty:Rounded")
    assert (code, facts["verdict"]) == (
        0,
        "same to rounding" if facts["distance"] <= 1e-4 else "same for practical purposes",
    )
    code, facts = found(faulty, HASHED[1], "faulty:Scaled")
    assert (code, facts["verdict"]) == (0, "same for practical purposes")
    assert facts["distance"] > 0.9
    assert any("lengths differ" in reason for reason in facts["reasons"])


def test_other_forms_are_compared_by_scores_alone(stsbench: Command):
    code, facts = found(stsbench, HASHED[1], f"{HASHED[1]}+dimensions=4")
    assert (code, facts["rows"], facts["distance"]) == (1, [], None)
    assert "embeddings of other forms (32 × float32, 4 × float32) are compared by scores alone" in facts["reasons"]
    assert facts["neighbour"]["cosines"][0] != facts["neighbour"]["cosines"][1]
    # A margin as wide as that lets all pass.
    assert found(stsbench, HASHED[1], f"{HASHED[1]}+dimensions=4", "--margin", "100")[0] == 0
