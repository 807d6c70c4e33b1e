from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats

from stsbench.core.errors import DataError, EncoderError
from stsbench.data.splits import LabelledSplit, PairSplit
from stsbench.evaluators.registry import EVALUATORS
from stsbench.evaluators.relatedness import (
    PROTOCOLS,
    RelatednessEvaluator,
    RelatednessProtocol,
    soft_labels,
)
from tests.evaluators.probe.helpers import Embedder, sentences

FloatArray = npt.NDArray[np.float64]
# A higher learning rate: on data this small, checks then fail before the epochs are over.
SMALL = replace(
    PROTOCOLS["senteval"], learning_rate=0.03, epoch_size=5, max_epochs=100, batch_size=16
)


def make_task(
    *, d: int = 6, sizes: tuple[int, int, int] = (90, 40, 50), noise: float = 0.4
) -> tuple[dict[str, PairSplit], Embedder]:
    """Pairs whose second embedding is the further from the first, the lower the gold score."""
    rng = np.random.default_rng(3)
    splits: dict[str, PairSplit] = {}
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    for tag, n in zip(("train", "validation", "test"), sizes, strict=True):
        gold = np.round(rng.uniform(0, 5, n) * 5) / 5
        gold[:4] = [0, 0, 5, 0.4]
        first = rng.normal(size=(n, d)) / d**0.5
        second = first + (noise * rng.normal(size=(n, d)) + (5 - gold[:, None]) / 5) / d**0.5
        texts1, texts2 = sentences(n, f"a{tag}", rng), sentences(n, f"b{tag}", rng)
        vectors.update(
            zip([*texts1, *texts2], np.concatenate([first, second]).astype(np.float32), strict=True)
        )
        splits[tag] = PairSplit(sentences1=texts1, sentences2=texts2, gold=gold, subset=[""] * n)
    return splits, Embedder(vectors)


class Reference(NamedTuple):
    predictions: FloatArray
    dev: float
    epochs: int


def reference(
    splits: dict[str, PairSplit],
    embed: Embedder,
    protocol: RelatednessProtocol,
    *,
    seed: int,
    dtype: torch.dtype,
) -> Reference:
    """The regressor as the paper and its code tell it, in plain torch, one step after another."""
    data = {name: sorted_features(split, embed) for name, split in splits.items()}
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(data["train"][0].shape[1], 5), torch.nn.Softmax(dim=-1)
    ).to(dtype)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    loss_of = torch.nn.MSELoss(reduction=protocol.loss)
    x, labels = (
        torch.tensor(data["train"][0], dtype=dtype),
        torch.tensor(loop_labels(data["train"][1]), dtype=dtype),
    )

    def predict(name: str) -> FloatArray:
        with torch.no_grad():
            return np.asarray(
                model(torch.tensor(data[name][0], dtype=dtype)).numpy() @ np.arange(1, 6)
            )

    best, failures, epochs, kept = -1.0, 0, 0, copy.deepcopy(model)
    while epochs <= protocol.max_epochs and failures <= protocol.tenacity:
        for _ in range(protocol.epoch_size):
            order = np.random.permutation(len(x))  # noqa: NPY002
            for start in range(0, len(x), protocol.batch_size):
                batch = order[start : start + protocol.batch_size]
                optimiser.zero_grad()
                loss_of(model(x[batch]), labels[batch]).backward()
                optimiser.step()
        epochs += protocol.epoch_size
        value = correlate(predict("validation"), data["validation"][1], protocol.selection)
        if value > best:
            best, kept = value, copy.deepcopy(model)
        else:
            failures += 1
    model = kept
    return Reference(predict("test"), best, epochs)


def correlate(x: FloatArray, y: FloatArray, metric: str) -> float:
    return float(
        stats.pearsonr(x, y).statistic if metric == "pearson" else stats.spearmanr(x, y).statistic
    )


def sorted_features(
    split: PairSplit, embed: Embedder
) -> tuple[npt.NDArray[np.float32], FloatArray, list[int]]:
    rows = zip(split.sentences1, split.sentences2, split.gold.tolist(), range(split.n), strict=True)
    rows = sorted(rows, key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]))  # type: ignore[assignment]
    first, second, gold, places = zip(*rows, strict=True)
    u, v = np.asarray(embed(first)), np.asarray(embed(second))
    return np.concatenate([np.abs(u - v), u * v], axis=1), np.array(gold), list(places)


def loop_labels(gold: FloatArray) -> npt.NDArray[np.float32]:
    labels = np.zeros((len(gold), 5), dtype=np.float32)
    for row, score in zip(labels, gold.tolist(), strict=True):
        for k in range(1, 6):
            if k == int(score):
                row[k - 1] = int(score) - score + 1
            if k == int(score) + 1:
                row[k - 1] = score - int(score)
    return labels


CHANGES: list[dict[str, Any]] = [
    {}, {"metric": "spearman", "selection": "spearman"}, {"loss": "sum"}, {"tenacity": 0}, {"max_epochs": 3}, {"batch_size": 13},
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("changed", CHANGES)
def test_training_and_scores_are_those_of_the_literal_loops(
    changed: dict[str, Any], dtype: torch.dtype
) -> None:
    splits, embed = make_task()
    protocol, test, seed = replace(SMALL, **changed), splits["test"], 4 if "loss" in changed else 0
    wanted = reference(splits, embed, protocol, seed=1111 + seed, dtype=dtype)
    predictions = np.empty(test.n)
    predictions[sorted_features(test, embed)[2]] = wanted.predictions
    scores = RelatednessEvaluator(protocol)(splits, embed, seed=seed)
    np.testing.assert_allclose(
        np.asarray(scores.per_item["prediction"], float), predictions, atol=2e-5
    )
    assert scores.per_item["gold"] == pytest.approx(test.gold)
    assert set(scores.scores) == {"pearson", "spearman", "mse", f"dev_{protocol.selection}"}
    assert scores.scores["pearson"] == pytest.approx(
        stats.pearsonr(predictions, test.gold).statistic, abs=1e-5
    )
    assert scores.scores["spearman"] == pytest.approx(
        stats.spearmanr(predictions, test.gold).statistic, abs=1e-3
    )
    assert scores.scores["mse"] == pytest.approx(((predictions - test.gold) ** 2).mean(), abs=1e-5)
    assert scores.scores[f"dev_{protocol.selection}"] == pytest.approx(wanted.dev, abs=1e-5)
    assert scores.score == scores.scores[protocol.metric]
    assert scores.interval[0] < scores.score < scores.interval[1]
    assert scores.n == test.n


def test_training_stops_early_and_late() -> None:
    """The cases above are worth something only if they stop at different places."""
    changes: list[dict[str, Any]] = [{}, {"tenacity": 0}, {"max_epochs": 3, "epoch_size": 2}]
    late, early, last = (
        reference(*make_task(), replace(SMALL, **changed), seed=1111, dtype=torch.float32).epochs
        for changed in changes
    )
    assert early < late < 105
    assert last == 4  # the first check beyond max_epochs


def test_soft_labels() -> None:
    gold = np.array([0, 0.25, 1, 3.2, 4.5, 5])
    wanted = [
        [0, 0, 0, 0, 0],
        [0.25, 0, 0, 0, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0.8, 0.2, 0],
        [0, 0, 0, 0.5, 0.5],
        [0, 0, 0, 0, 1],
    ]
    np.testing.assert_allclose(soft_labels(gold), np.array(wanted), atol=1e-6)
    many = np.round(np.random.default_rng(0).uniform(0, 5, 300), 3)
    np.testing.assert_array_equal(soft_labels(many), loop_labels(many))


def test_published_protocols() -> None:
    senteval, spearman = PROTOCOLS["senteval"], PROTOCOLS["senteval-spearman"]
    assert (senteval.metric, senteval.selection, senteval.base_seed) == ("pearson", "pearson", 1111)
    assert (senteval.batch_size, senteval.epoch_size, senteval.max_epochs, senteval.tenacity) == (
        64,
        50,
        1000,
        3,
    )
    assert (
        replace(senteval, name="senteval-spearman", metric="spearman", selection="spearman")
        == spearman
    )
    evaluator = EVALUATORS.load("relatedness")
    assert evaluator is RelatednessEvaluator
    assert next(iter(evaluator.PROTOCOLS)) == "senteval"


def test_an_encoder_that_tells_nothing_scores_0_with_a_note() -> None:
    splits, embed = make_task()
    for value in (0.0, 1.0):
        same = Embedder({text: np.full_like(row, value) for text, row in embed.vectors.items()})
        scores = RelatednessEvaluator(SMALL)(splits, same, seed=0)
        assert (scores.score, scores.interval) == (0.0, (-1.0, 1.0))
        assert any("same prediction" in note for note in scores.notes)
        assert scores.zero_vectors == (360 if value == 0 else 0)


def test_two_pairs_of_different_scores_are_enough_to_choose_by() -> None:
    splits, embed = make_task(sizes=(90, 40, 50))
    few = splits["validation"]
    two = PairSplit(
        sentences1=few.sentences1[1:3],
        sentences2=few.sentences2[1:3],
        gold=few.gold[1:3],
        subset=["", ""],
    )
    scores = RelatednessEvaluator(SMALL)({**splits, "validation": two}, embed, seed=0)
    assert abs(scores.scores["dev_pearson"]) == pytest.approx(1)


def test_what_is_of_no_use_is_an_error() -> None:
    splits, embed = make_task()
    test, evaluate = splits["test"], RelatednessEvaluator(SMALL)
    labelled = LabelledSplit(sentences=["a"], labels=np.zeros(1, np.int64))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"test": test}, "train, validation and test"),
        ({**splits, "train": labelled}, "pairs with gold scores"),
        (
            {**splits, "test": replace(test, gold=np.ones(test.n))},
            "'test' has fewer than two different gold scores",
        ),
        *(
            (
                {**splits, "test": replace(test, gold=test.gold + shift)},
                "'test' has gold scores outside 0 to 5",
            )
            for shift in (1, -1)
        ),
    ]
    for given, said in cases:
        with pytest.raises(DataError, match=said):
            evaluate(given, embed, seed=0)
    test_texts = {*test.sentences1, *test.sentences2}
    for texts in (embed.vectors.keys(), test_texts):
        scaled = {
            key: row * np.float32(1e30 if key in texts else 1) for key, row in embed.vectors.items()
        }
        with pytest.raises(EncoderError, match="too large"):
            evaluate(splits, Embedder(scaled), seed=0)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "pearson", "spearman"),
    [("sickr-regression", 0.86537, 0.79901), ("stsb-regression", 0.82099, 0.82446)],
)
def test_minilm_scores_as_under_the_toolkit(task: str, pearson: float, spearman: float) -> None:
    """The toolkit's own code on the same embeddings, on torch 2.13 and a CPU."""
    import stsbench

    (result,) = stsbench.evaluate("minilm", task, data=Path(os.environ["STSBENCH_DATA"]))
    assert result.score == pytest.approx(pearson, abs=3e-3)
    assert result.scores["spearman"] == pytest.approx(spearman, abs=3e-3)
