"""Every kind of encoder that computes in torch, layers, analyses and the store, walked on the pretended accelerator.

Run by ``test_walks.py`` in a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.analysis.context import make_analysis
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.encoders import accelerator
from stsbench.encoders.engine import embed as engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.fitted import PostProcessed
from stsbench.encoders.flow import FlowMethod
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.cross_encoder import CrossEncoder
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.whitening import (
    CalibrationMethod,
    TokenRemoval,
    TokenRemovalEncoder,
    WhiteningMethod,
)
from tests.accelerator import pretend
from tests.analysis.beds import bed
from tests.encoders.test_pairs import save_cross_encoder
from tests.encoders.words import word_encoders
from tests.own_tasks import outside_run, place, plan_of
from tests.training.students import sentences

__all__ = ["place"]

MODULE, ALIVE = pretend.set_up()
DEVICES = ("cpu", pretend.NAME)
SAVED = ["dense", "two poolings", "words", "lstm", "cnn", "prompted"]
TINY = ["bert", "roberta", "gpt2", "qwen", "mpnet"]
ANALYSES: dict[str, dict[str, Any]] = {
    "alignment": {},
    "similarity": {},
    "spectrum": {},
    "layers": {"poolings": ["mean", "cls"]},
    "errors": {},
    "neighbours": {},
    "robustness": {},
    "map": {},
}


def on_both(model: str | Path, texts: list[str], **params: Any) -> list[Any]:
    """Return the embeddings of an encoder on the CPU and on the accelerator."""
    embeddings = []
    for device in DEVICES:
        encoder: Any = load_encoder(str(model), params={**params, "device": device})
        embeddings.append(engine.embed_all(encoder, texts))
        assert str(encoder.device_used).partition(":")[0] == device
    return embeddings


@pytest.mark.parametrize("name", SAVED)
def test_checkpoints_of_sentence_transformers(saved, name):
    # Each has words of all vocabularies: without any, the maximum over no words is infinite.
    texts = [f"the dog {text}" for text in sentences(30)]
    on_cpu, on_device = on_both(saved[name], texts)
    assert np.abs(on_cpu - on_device).max() < 2e-6


@pytest.mark.parametrize("name", TINY)
def test_architectures_of_transformers(tiny, name):
    on_cpu, on_device = on_both(tiny[name], sentences(30), pooling="mean")
    assert np.abs(on_cpu - on_device).max() < 2e-5


@pytest.mark.parametrize("name", ["skip_thoughts", "quick_thoughts", "infersent 1", "infersent 2"])
def test_recurrent_encoders(tmp_path, name):
    kind, _, version = name.partition(" ")
    if version:
        vectors = word_encoders.write_vectors(tmp_path / "vectors.txt", int(version))
        folder = word_encoders.write_infersent(tmp_path / "model", vectors, int(version))
    else:
        folder = word_encoders.write_halves(tmp_path / "model", kind)
    on_cpu, on_device = on_both(folder, ["the cat sat on the mat .", "a cat", "a mat sat ."])
    assert np.abs(on_cpu - on_device).max() < 2e-6


def test_a_cross_encoder(bert, tmp_path):
    folder = str(save_cross_encoder(tmp_path / "cross", bert))
    first, second = sentences(20), sentences(20, seed=1)
    on_cpu, on_device = (
        CrossEncoder(folder, device=device).score_pairs(first, second) for device in DEVICES
    )
    assert np.abs(on_cpu - on_device).max() < 2e-6


METHODS: dict[str, Any] = {
    "whitening": WhiteningMethod(4),
    "calibration": CalibrationMethod(),
    "token removal": TokenRemoval(k=2),
    "flow": FlowMethod(),
}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_fitted_on_embeddings_of_the_accelerator(masked_lm, method):
    texts = sentences(60)
    embeddings = []
    for device in DEVICES:
        base = TransformerEncoder(str(masked_lm), pooling="mean", device=device)
        processor = TokenRemovalEncoder if method == "token removal" else PostProcessed
        fittable = processor(base, METHODS[method], name="b", fit="target")
        embeddings.append(fittable.fit_texts(texts).encode(texts[:20]))
    assert np.abs(embeddings[0] - embeddings[1]).max() < 1e-3


def tables_on_both(analysis: Any, masked_lm: Path, *poolings: str) -> list[Any]:
    """Return the tables of an analysis of encoders with these poolings, per device."""
    return [
        analysis.tables(
            bed(
                *(
                    TransformerEncoder(str(masked_lm), name=pooling, pooling=pooling, device=device)
                    for pooling in poolings
                )
            )
        )
        for device in DEVICES
    ]


@pytest.mark.parametrize("name", ANALYSES)
def test_analyses(masked_lm, name):
    tables = tables_on_both(make_analysis(name, ANALYSES[name]), masked_lm, "mean")
    assert any(tables[0].values())
    assert {key: len(rows) for key, rows in tables[0].items()} == {
        key: len(rows) for key, rows in tables[1].items()
    }


def test_scores_without_frequent_tokens_are_those_of_the_cpu(masked_lm, tmp_path):
    counts = tmp_path / "counts.txt"
    counts.write_text("the 900\na 500\nof 300\nman 90\ndog 40\n", encoding="utf-8")
    analysis = make_analysis("tokens", {"counts": str(counts), "removed": [0, 2]})
    scores = [
        [row["score"] for row in tables["removal"]]
        for tables in tables_on_both(analysis, masked_lm, "mean")
    ]
    assert len(set(scores[0])) == 2
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)


def test_the_change_of_a_score_is_that_of_the_cpu(masked_lm):
    changes = [
        tables["encoders"][1]["change"]
        for tables in tables_on_both(make_analysis("shift", {}), masked_lm, "mean", "max")
    ]
    assert changes[0]
    np.testing.assert_allclose(changes[0], changes[1], atol=1e-4)


def test_layers_have_the_scores_of_the_cpu(masked_lm):
    scores = []
    for device in DEVICES:
        encoder = TransformerEncoder(str(masked_lm), name="b", device=device)
        rows = make_analysis("layers", {"poolings": ["mean"]}).tables(bed(encoder))["layers"]
        scores.append([row["score"] for row in rows])
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)


def test_a_run_stores_and_reuses_what_the_accelerator_embeds(place, masked_lm, monkeypatch):
    encoder = TransformerEncoder(str(masked_lm), pooling="mean", device=pretend.NAME, name="b")
    plan = plan_of(place, encoder, monkeypatch, store=place / "store")
    results = list(run(plan, RunCallbacks()))
    assert len(results) == 3 and list((place / "store").rglob("*.npy"))
    assert {str(result.run["device"]).partition(":")[0] for result in results} == {pretend.NAME}
    before = outside_run(place / "results")
    monkeypatch.setattr(TransformerEncoder, "embed_tokens", None)
    assert [result.score for result in run(plan, RunCallbacks())] == [r.score for r in results]
    assert outside_run(place / "results") == before


def test_batches_are_as_large_as_is_fastest(masked_lm):
    encoder = TransformerEncoder(str(masked_lm), pooling="mean", device=pretend.NAME)
    memory = encoder.device_memory()
    assert memory is not None and memory.free == 1 << 30
    sizes: list[int] = []
    embed_tokens = encoder.embed_tokens

    def note_size(tokens: Any, rows: Any) -> Any:
        sizes.append(len(rows))
        return embed_tokens(tokens, rows)

    encoder.embed_tokens = note_size  # type: ignore[method-assign]
    texts = sentences(3000)
    embeddings = engine.Engine(encoder, EmbeddingStore(None))(texts)
    assert len(np.asarray(embeddings)) == 3000 and max(sizes) > 64


def test_auto_is_the_device_of_the_process(monkeypatch):
    monkeypatch.setattr(accelerator, "device_of_process", "auto")
    accelerator.use_device("pretend:0")
    assert accelerator.resolve_device_name("auto") == "pretend:0"
    assert accelerator.resolve_devices("1") == ("pretend:0",)
