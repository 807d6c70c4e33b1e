from pathlib import Path

import numpy as np
import pytest
import torch

from stsbench.core.errors import TrainingError
from stsbench.encoders.load import load_encoder
from stsbench.encoders.words.recurrent import InferSentEncoder
from stsbench.training.words.infersent import InferSentTraining, Side
from tests.encoders.words.word_encoders import COMMON, VECTORS, waves
from tests.encoders.words.word_files import cache

__all__ = ["cache"]
pytestmark = pytest.mark.usefixtures("cache")
WORDS = [line.split()[0] for line in COMMON.splitlines()]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS[1] + COMMON)
    return str(path)


def make(vectors: str = "", **params) -> InferSentTraining:
    defaults = {"hidden": 2, "head_size": 3, "batch_size": 4}
    return InferSentTraining(vectors=vectors, **{**defaults, **params})


def side(seed: int) -> Side:
    lengths = torch.tensor([3, 1, 2, 3])
    vectors = waves((4, 3, 3), seed) * (torch.arange(3)[None, :, None] < lengths[:, None, None])
    return vectors, lengths


@pytest.mark.parametrize("version", [1, 2])
def test_logits_are_the_literal_ones(version):
    torch.manual_seed(0)
    model = make(version=version).make_model(3, 3).double()
    first, second = ((vectors.double(), lengths) for vectors, lengths in (side(1), side(2)))
    lstm = model.encoder.enc_lstm
    pooled = []
    for batch, lengths in (first, second):
        rows = []
        for vectors, length in zip(batch, lengths.tolist(), strict=True):
            top = lstm(vectors[None, :length])[0][0].amax(dim=0)
            # Version 1 learns with padding in the maximum, beside a longer sentence.
            rows.append(top.clamp(min=0) if version == 1 and length < 3 else top)
        pooled.append(torch.stack(rows))
    u, v = pooled
    x = torch.cat([u, v, (u - v).abs(), u * v], dim=1)
    for layer in model.head:
        assert isinstance(layer, torch.nn.Linear)
        x = x @ layer.weight.T + layer.bias
    torch.testing.assert_close(model(first, second), x, atol=1e-12, rtol=1e-12)


def test_a_step_is_the_released_one():
    training = make(learning_rate=0.7, clip=0.05)
    labels = torch.tensor([0, 1, 2, 1])
    torch.manual_seed(0)
    model, reference = training.make_model(3, 3), training.make_model(3, 3)
    reference.load_state_dict(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.7)
    loss = training.step(model, optimiser, side(1), side(2), labels)
    # As released: the summed loss, gradients divided by the batch, and the rate cut down to the norm.
    summed = torch.nn.functional.cross_entropy(reference(side(1), side(2)), labels, reduction="sum")
    summed.backward()  # type: ignore[no-untyped-call]
    norm = (
        sum(float((p.grad / 4).norm()) ** 2 for p in reference.parameters() if p.grad is not None)
        ** 0.5
    )
    assert norm > 0.05
    assert loss == pytest.approx(float(summed.detach()) / 4)
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(
            ours, theirs - 0.7 * 0.05 / norm * theirs.grad / 4, atol=1e-6, rtol=1e-5
        )
    assert optimiser.param_groups[0]["lr"] == 0.7


def pairs(n: int = 60) -> dict[str, list[str]]:
    """Pairs whose label is to be seen in the second sentence."""
    rng = np.random.default_rng(0)
    first = [" ".join(rng.choice(WORDS, size=rng.integers(1, 5))) for _ in range(n)]
    labels = [["no", "maybe", "yes"][i % 3] for i in range(n)]
    extra = {"no": "cat", "maybe": "on", "yes": "mat"}
    return {"first": first, "second": [f"the {extra[label]}" for label in labels], "label": labels}


@pytest.mark.parametrize("version", [1, 2])
def test_it_learns_a_small_set(tmp_path, vectors, version, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training = make(
        Path(vectors).name,
        version=version,
        hidden=16,
        head_size=16,
        epochs=45,
        learning_rate=0.5,
        shrink=1.0,
    )
    curve = training.fit(pairs(30), folder=tmp_path / "run", seed=1).curve
    assert curve[-1]["loss"] < 0.1 < curve[0]["loss"]
    assert max(point["accuracy"] for point in curve) == 1
    # The trained encoder finds its word vectors from any folder.
    monkeypatch.chdir("/")
    encoder = load_encoder(tmp_path / "run")
    assert isinstance(encoder, InferSentEncoder)
    assert encoder.config.version == version


def test_rate_falls_by_epoch_and_is_divided_without_a_better_accuracy(tmp_path, vectors):
    # A rate too small to change an answer: accuracy never rises again.
    curve = (
        make(vectors, learning_rate=1e-4, epochs=9).fit(pairs(30), folder=tmp_path, seed=1).curve
    )
    rates = [point["learning_rate"] for point in curve]
    assert rates == pytest.approx([1e-4, 1e-4 * 0.99 / 5, 1e-4 * 0.99 / 5 * 0.99 / 5])
    assert rates[-1] < 1e-5 < rates[-2]


def test_accuracies_are_compared_in_hundredths_of_a_point(vectors, monkeypatch):
    monkeypatch.setattr("stsbench.training.words.infersent.accuracy", lambda *_: 1 / 3)
    lesson = make(vectors).prepare(pairs(30), seed=1)
    # As released: 33.33 is not above 33.33.
    assert lesson.examine_round(0.3333) == (
        0.3333,
        {"accuracy": 0.3333, "learning_rate": pytest.approx(0.1 / 5)},
    )


def test_best_accuracy_is_kept_and_validation_watches(tmp_path, vectors):
    seen = []

    def validate(encoder) -> float:
        seen.append(encoder.encode(["the cat"]))
        return -float(len(seen))

    first, *curve = (
        make(vectors, epochs=2)
        .fit(pairs(), folder=tmp_path / "run", seed=1, validate=validate)
        .curve
    )
    untrained = seen.pop(0)
    assert first["score"] == -1 and [point["score"] for point in curve] == [-2, -3]
    kept = load_encoder(tmp_path / "run").encode(["the cat"])
    best = int(np.argmax([point["accuracy"] for point in curve]))
    np.testing.assert_array_equal(kept, seen[best])
    assert not np.array_equal(kept, untrained)
    files = ["checkpoints", "config.json", "curve.jsonl", "model.safetensors", "stsbench.json"]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == files


@pytest.mark.parametrize(
    ("n", "params", "message"),
    [
        (1, {}, "all pairs have the label 'no'"),
        (2, {}, "2 pairs, of which 2 to learn from"),
        (None, {"learning_rate": 1e30, "clip": 1e30}, "the loss is nan at step"),
    ],
)
def test_nothing_to_learn_from_is_one_line(tmp_path, vectors, n, params, message):
    columns = {name: values[:n] for name, values in pairs().items()}
    with pytest.raises(TrainingError, match=message):
        make(vectors, **params).fit(columns, folder=tmp_path, seed=1)
