"""IS-BERT: literal convolutions and mutual information, what padding may change, and a folder that keeps all of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from stsbench.training.loop import loop
from stsbench.training.methods.own_encoders import ISBERT
from stsbench.training.objectives import jsd_mutual_information
from tests.training.methods.runs import first_batch, values
from tests.training.students import run_facts, sentences, student

TEXTS = [*sentences(23, seed=1, longest=12), "dog"]


def learner(folder: Path, **params: Any) -> ISBERT:
    made = ISBERT(student(folder), **params)
    made.prepare({"text": TEXTS})
    return made


def literal_local(made: ISBERT, text: str, *, relu: bool) -> np.ndarray[Any, Any]:
    """Each convolution token by token over one sentence without padding, zeros beyond its ends; float64."""
    tokens = made.student.collate(made.student.tokenize([text]), np.arange(1))
    with torch.no_grad():
        states = made.student.model(**tokens).last_hidden_state[0].double().numpy()
    columns = []
    for conv in made.cnn.convs:
        weight, bias = conv.weight.detach().double().numpy(), conv.bias.detach().double().numpy()
        width = weight.shape[2]
        padded = np.pad(states, ((width // 2, width // 2), (0, 0)))
        rows = [
            sum(weight[:, :, k] @ padded[at + k] for k in range(width)) + bias
            for at in range(len(states))
        ]
        columns.append(np.stack(rows))
    local: np.ndarray[Any, Any] = np.concatenate(columns, axis=1)
    return np.maximum(local, 0) if relu else local


@pytest.mark.parametrize(
    ("params", "size"),
    [({}, 15), ({"activation": "relu"}, 15), ({"widths": [3, 7], "channels": 4}, 8)],
)
def test_loss_and_embeddings_are_the_literal_ones(masked_lm, params, size):
    made = learner(masked_lm, **params).eval()
    local = [
        literal_local(made, text, relu=params.get("activation") == "relu") for text in TEXTS[:8]
    ]
    pooled = [states.mean(axis=0) for states in local]
    found = made.encoders()[0].encode(TEXTS[:8])
    assert found.shape == (8, size)
    np.testing.assert_allclose(found, pooled, atol=1e-5)
    states = pad_sequence([torch.from_numpy(one) for one in local], batch_first=True)
    mask = torch.arange(states.shape[1]) < torch.tensor([len(one) for one in local])[:, None]
    wanted = jsd_mutual_information(states, mask, torch.from_numpy(np.stack(pooled))).item()
    assert values(made, first_batch(made))["loss"] == pytest.approx(wanted, abs=1e-5)


def widened(batch: dict[str, Any], by: int) -> dict[str, Any]:
    tokens = {
        name: torch.nn.functional.pad(values, (0, by)) for name, values in batch["views"].items()
    }
    return {"views": tokens}


def test_only_masked_padding_changes_nothing(masked_lm):
    masked, released = learner(masked_lm).eval(), learner(masked_lm, mask_padding=False).eval()
    batch = first_batch(masked)
    assert values(masked, batch)["loss"] == pytest.approx(
        values(masked, widened(batch, 4))["loss"], abs=1e-6
    )
    assert abs(values(released, batch)["loss"] - values(masked, batch)["loss"]) > 1e-4
    # The longest sentence of the batch meets padding only now.
    assert abs(values(released, batch)["loss"] - values(released, widened(batch, 4))["loss"]) > 1e-5


@pytest.mark.parametrize("params", [{}, {"activation": "relu"}, {"mask_padding": False}])
def test_a_saved_folder_keeps_the_convolutions_in_both_libraries(masked_lm, tmp_path, params):
    from sentence_transformers import SentenceTransformer

    made = learner(masked_lm, **params)
    loop.train_learner(made, run_facts(tmp_path / "run", 24))
    made.save(tmp_path / "saved")
    validated = made.encoders()[0].encode(TEXTS)
    opened = load_encoder(tmp_path / "saved")
    assert isinstance(opened, SentenceTransformerEncoder)
    assert (
        json.loads((tmp_path / "saved" / "stsbench.json").read_text())["kind"]
        == "sentence_transformer"
    )
    np.testing.assert_allclose(opened.encode(TEXTS), validated, atol=1e-5)
    # Whatever the neighbours in a batch, and so whatever the padding.
    np.testing.assert_allclose(opened.encode(["dog"])[0], validated[-1], atol=1e-5)
    np.testing.assert_allclose(made.encoders()[0].encode(["dog"])[0], validated[-1], atol=1e-5)
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), validated, atol=1e-5)
    bare = made.student.encoder().encode(TEXTS)
    assert (
        bare.shape != validated.shape
        and opened.encode([]).shape == made.encoders()[0].encode([]).shape
    )
