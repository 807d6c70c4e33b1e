from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from stsbench.cli.main import main
from stsbench.encoders import quantise
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from tests.encoders.tiny import SENTENCES

CASES = {
    "onnx-int8": ("onnxruntime", "made int8 by the dynamic quantisation of onnxruntime"),
    "openvino-int8": ("nncf", "measured on 12 sentences of a.txt (sha256 "),
}


@pytest.fixture(params=CASES)
def kind(request: pytest.FixtureRequest) -> str:
    """A conversion to int8; skipped where what it needs is not installed."""
    pytest.importorskip(
        CASES[request.param][0], reason=f"{CASES[request.param][0]} is not installed"
    )
    return str(request.param)


def convert(kind: str, source: str | Path, folder: Path, out: str = "out") -> list[str]:
    (folder / "a.txt").write_text("".join(f"sentence {i} of a file\n" for i in range(12)))
    text = ["--text", str(folder / "a.txt")] if kind == "openvino-int8" else []
    return ["convert", kind, str(source), str(folder / out), *text]


@pytest.mark.parametrize(
    ("made", "of"), [("bert", TransformerEncoder), ("dense", SentenceTransformerEncoder)]
)
def test_a_checkpoint_becomes_an_int8_one_that_says_how_it_was_made(
    kind, made, of, tiny, saved, tmp_path, capsys
):
    source = {**tiny, **saved}[made]
    before = {path: path.stat().st_mtime_ns for path in Path(source).rglob("*")}
    assert main(convert(kind, source, tmp_path)) == 0
    printed = capsys.readouterr()
    params = dict(
        word.split("=") for word in shlex.split(printed.out.partition("run it with: ")[2])[5::2]
    )
    encoder = load_encoder(tmp_path / "out", params=params)
    assert isinstance(encoder, TransformerEncoder | SentenceTransformerEncoder)
    assert (type(encoder), encoder.dtype, printed.err) == (of, "int8", "")
    assert CASES[kind][1] in encoder.notes[1]
    exact = load_encoder(source).encode(SENTENCES)
    assert 1e-4 < np.median(np.abs(encoder.encode(SENTENCES) - exact)) < 0.2
    np.testing.assert_array_equal(load_encoder(tmp_path / "out").encode(SENTENCES), exact)
    assert {path: path.stat().st_mtime_ns for path in Path(source).rglob("*")} == before
    # What is there is not written over, and what is int8 is not made int8 again.
    assert main(convert(kind, source, tmp_path)) == 2
    again = "+".join(
        [
            str(tmp_path / "out"),
            *(f"{key}={value}" for key, value in params.items() if key == "file"),
        ]
    )
    assert main(convert(kind, again, tmp_path, out="twice")) == 2
    errors = capsys.readouterr().err
    assert "is there already" in errors and "is int8 already" in errors
    assert not list(tmp_path.glob("*.partial*"))


def test_what_is_missing_is_told(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quantise, "find_spec", lambda name: None)
    assert main(convert("openvino-int8", tiny["bert"], tmp_path)) == 2
    assert "pip install 'stsbench[nncf]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
