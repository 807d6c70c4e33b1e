"""``dtype=int8``: one option, its cost, and what refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stsbench.bench import int8_cost
from stsbench.encoders import backends
from stsbench.encoders.load import load_encoder
from tests.encoders.tiny import SENTENCES
from tests.own_tasks import VALIDATED, write_data

TASK = ("--tasks", "quickstart-en")


@pytest.fixture
def runtime() -> None:
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="the extra 'onnx' is not installed")


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cards with a small task that stands for STS-B."""
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    card = VALIDATED.format(task="mine", n=4).replace("n = 4\n", "n = 40\n")
    (tmp_path / "cards" / "tasks" / "mine.toml").write_text(card)
    write_data(tmp_path, "mine-validation", 40)
    monkeypatch.setattr(int8_cost, "TASK", "mine")
    return tmp_path / "cards"


def test_the_cost_of_int8_is_measured_once_and_told(
    runtime, stsbench, tiny, cards, tmp_path, monkeypatch
):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    call = ["run", f"{tiny['bert']}+dtype=int8", *TASK, "--no-store"]
    call += ["--data", tmp_path, "--cards", cards]
    code, _, err = stsbench(*call)
    told = "int8 moves the score on 40 pairs of STS-B's development split by "
    assert code == 0 and told in err, err
    (path,) = (tmp_path / "results").glob("*/*.json")
    result = json.loads(path.read_text())
    assert result["run"]["dtype"] == "int8" and result["encoder"].endswith("+dtype=int8")
    (folder,) = (tmp_path / "cache" / "exported").iterdir()
    (cost,) = folder.glob("cost-*.json")
    kept = json.loads(cost.read_text())
    assert kept["interval"][0] <= kept["difference"] <= kept["interval"][1] and kept["n"] == 40
    assert [path.name for path in folder.glob("*.onnx*")] == ["model_int8.onnx"]

    monkeypatch.delattr(int8_cost, "_measure")
    assert stsbench(*call, "--fresh").err.count(told) == 1


def test_int8_without_sts_b_says_so(runtime, stsbench, tiny):
    err = stsbench("run", tiny["bert"], "--set", "dtype=int8", *TASK).err
    assert "the cost of int8 is not measured, because STS-B's development split is not" in err


def test_int8_is_near_float32_and_no_sentence_depends_on_its_batch(runtime, tiny):
    encoder = load_encoder(str(tiny["bert"]), params={"dtype": "int8"})
    exact = load_encoder(str(tiny["bert"]))
    assert encoder.fingerprint != exact.fingerprint
    embeddings, expected = encoder.encode(SENTENCES), exact.encode(SENTENCES)
    lengths = np.linalg.norm(expected, axis=1)
    moved = np.linalg.norm(embeddings - expected, axis=1) / np.where(lengths > 0, lengths, 1)
    assert 1e-3 < np.median(moved) < 0.2
    np.testing.assert_allclose(encoder.encode(SENTENCES[:1]), embeddings[:1], atol=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("backend=openvino", "unknown dtype 'int8' of backend 'openvino'; known: float32, bfl"),
        ("device=cuda", "dtype 'int8' runs on the CPU here, not on 'cuda'; leave 'device' out"),
        ("file=a.onnx", "dtype 'int8' makes a file itself; leave 'file' or 'dtype' out"),
    ],
)
def test_what_int8_is_not_for_is_refused(stsbench, tiny, monkeypatch, params, message):
    monkeypatch.setattr(backends, "find_spec", lambda name: object())
    spec = f"{tiny['bert']}+dtype=int8+{params}"
    assert message in stsbench.refused("run", spec, *TASK)


def test_int8_names_the_packages_that_it_lacks(stsbench, tiny, monkeypatch):
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    error = stsbench.refused("run", f"{tiny['bert']}+dtype=int8", *TASK)
    assert "dtype 'int8' needs onnxruntime, onnx, onnxscript; run: pip install 'stsb" in error
