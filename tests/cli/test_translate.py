"""``stsbench data back-translate``."""

from __future__ import annotations

import json

import pytest

from tests.training.marian import LINES, make_marian

pytest.importorskip("sentencepiece", reason="needs sentencepiece (extra translate)")
pytest.importorskip("sacremoses", reason="needs sacremoses (extra translate)")


def test_back_translate(stsbench, tmp_path):
    models = [make_marian(tmp_path / name, seed=seed) for seed, name in enumerate(("there", "back"))]
    (tmp_path / "in.txt").write_text("\n".join(LINES[:2]) + "\n")
    command = ("data", "back-translate", tmp_path / "in.txt", tmp_path / "out.csv")
    options = ("--forward", models[0], "--backward", models[1], "--max-tokens", "21", "--mode", "sampling")
    out = stsbench.fine(*command, *options, "--seed", "3")
    assert "2 pairs of 2 distinct sentences" in out
    assert json.loads((tmp_path / "out.csv.json").read_text())["backward"]["seed"] == 3
    assert "already exists" in stsbench.refused(*command, *options)
    error = stsbench.refused("data", "back-translate", tmp_path / "in.txt", tmp_path / "b.csv", "--forward", tmp_path)
    assert "no source.spm; is it a Marian translation model?" in error
    assert "name it c.csv" in stsbench.refused("data", "back-translate", tmp_path / "in.txt", tmp_path / "c.txt")
