"""The whole evaluator against the literal toolkit on small tasks, and what its Scores hold."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import f1_score, precision_recall_fscore_support
from sklearn.model_selection import StratifiedKFold

from stsbench.core.errors import DataError
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.encoders.base import FloatArray
from stsbench.evaluators.base import Scores
from stsbench.evaluators.probe import items as pool_module
from stsbench.evaluators.probe.evaluator import PROTOCOLS, MinibatchProtocol, ProbeEvaluator
from stsbench.evaluators.probe.items import toolkit_order
from tests.evaluators.probe.helpers import (
    Embedder,
    IntArray,
    View,
    cuts,
    literal_reference,
    make_pairs,
    make_split,
)


def predictions(scores: Scores) -> IntArray:
    return np.asarray(scores.per_item["prediction"])


SMALL = MinibatchProtocol(
    name="small", kfold=3, batch_size=16, max_epochs=20, tenacity=2, weight_decays=(1e-4, 1e-1)
)


def sorted_arrays(split: LabelledSplit, embed: Embedder) -> tuple[FloatArray, IntArray, IntArray]:
    """Embeddings and labels in the toolkit's order, and that order."""
    order = toolkit_order(split)
    return np.asarray(embed(split.sentences))[order], split.labels[order], order


def three_splits(classes: int = 3) -> tuple[dict[str, LabelledSplit], Embedder]:
    names = {"train": 150, "validation": 60, "test": 80}
    made = {name: make_split(n, classes=classes, seed=n, tag=name) for name, n in names.items()}
    vectors = {text: row for _, embed in made.values() for text, row in embed.vectors.items()}
    return {name: split for name, (split, _) in made.items()}, Embedder(vectors)


@pytest.mark.parametrize(
    ("names", "nhid", "seed"),
    [("all", 0, 3), ("train test", 0, 0), ("train test", 0, 1), ("train validation test", 0, 0), ("train validation test", 6, 0)],
)  # fmt: skip
def test_every_scheme_is_the_toolkits(names, nhid, seed):
    given, embed = three_splits()
    rules = replace(SMALL, nhid=nhid)
    splits = {name: make_split(120)[0] if name == "all" else given[name] for name in names.split()}
    embed.vectors.update(make_split(120)[1].vectors)
    arrays = {name: sorted_arrays(split, embed) for name, split in splits.items()}
    x, y = (np.concatenate([one[at] for one in arrays.values()]) for at in (0, 1))
    ends = np.cumsum([split.n for split in splits.values()])
    at = {
        name: np.arange(end - splits[name].n, end) for name, end in zip(splits, ends, strict=True)
    }
    if names == "all":
        rounds = [(cut, cuts(cut[0], y, 3, 1111)) for cut in cuts(at["all"], y, 3, 1111)]
    else:
        fixed = [(at["train"], at["validation"])] if "validation" in at else None
        rounds = [((at["train"], at["test"]), fixed or cuts(at["train"], y, 3, 1111 + seed))]
    expected = literal_reference(x, y, rounds, rules, seed=1111 + seed)
    scores = ProbeEvaluator(rules)(splits, embed, seed=seed)
    tested = "all" if names == "all" else "test"
    assert (
        scores.score
        == scores.scores["accuracy"]
        == pytest.approx(expected.accuracy / 100, abs=1e-12)
    )
    assert scores.scores["dev_accuracy"] == pytest.approx(expected.dev_accuracy / 100, abs=1e-12)
    # Per item in the order of the split, not of the sorted rows.
    assert (
        predictions(scores)[arrays[tested][2]].tolist() == expected.predictions[at[tested]].tolist()
    )
    assert np.array_equal(scores.per_item["correct"], predictions(scores) == splits[tested].labels)


def test_scores_hold_what_readers_and_paired_tests_need():
    splits, embed = three_splits()
    splits["test"] = replace(splits["test"], classes=["red", "green", "blue"])
    scores = ProbeEvaluator(PROTOCOLS["logreg"], f1=True)(splits, embed, seed=0)
    truth, predicted = splits["test"].labels, predictions(scores)
    precision, recall, f1, support = precision_recall_fscore_support(truth, predicted)
    for c, name in enumerate(["red", "green", "blue"]):
        expected = {
            "precision": precision[c],
            "recall": recall[c],
            "f1": f1[c],
            "support": support[c],
        }
        assert scores.per_subset[name] == pytest.approx(expected)
    splits["test"] = replace(splits["test"], classes=["red"])
    unnamed = ProbeEvaluator(PROTOCOLS["logreg"])(splits, embed, seed=0)
    assert list(unnamed.per_subset.items()) == list(
        zip(["red", "1", "2"], scores.per_subset.values(), strict=True)
    )
    splits["test"] = replace(splits["test"], classes=["red", "green", "blue", "of no item"])
    (*_, empty) = ProbeEvaluator(PROTOCOLS["logreg"])(splits, embed, seed=0).per_subset.values()
    assert empty == {"precision": 0, "recall": 0, "f1": 0, "support": 0}
    assert scores.scores["f1"] == pytest.approx(
        f1_score(truth, predicted, labels=[1], average=None)[0]
    )
    assert scores.scores["majority"] == pytest.approx(
        27 / 80
    )  # class 0 of 150 training items cut evenly: the first
    assert scores.n == 80 and scores.zero_vectors == 0 and scores.notes == ()
    assert "Wilson" in scores.interval_method
    share, z, n = scores.score, 1.959963984540054, 80
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    assert scores.interval == pytest.approx((middle - half, middle + half), abs=1e-12)


@pytest.mark.parametrize(
    ("requested", "notes"), [(3, ("nhid is 0, as the task's card says, not 3",)), (0, ())]
)
def test_a_requested_field_that_the_card_replaces_is_noted(requested, notes):
    splits, embed = three_splits()
    protocol = replace(PROTOCOLS["senteval-fast"], nhid=requested, max_epochs=1)  # type: ignore[call-arg]
    # The card also replaces what is as the protocol always is, without a note.
    scores = ProbeEvaluator(protocol, nhid=0, epoch_size=1)(splits, embed, seed=0)
    assert scores.notes == notes


def test_scores_are_rounded_as_the_toolkit_rounds_them():
    splits, embed = three_splits()
    exact = ProbeEvaluator(replace(SMALL, rounding=None), f1=True)(splits, embed, seed=2)
    rounded = ProbeEvaluator(SMALL, f1=True)(splits, embed, seed=2)
    # 44 of the 60 items of validation.
    assert (exact.scores["dev_accuracy"], rounded.scores["dev_accuracy"]) == (44 / 60, 0.7333)
    assert exact.score == np.asarray(exact.per_item["correct"]).astype(float).mean()
    assert rounded.score == round(exact.score, 4)
    assert rounded.scores["dev_accuracy"] == pytest.approx(exact.scores["dev_accuracy"], abs=1e-4)
    assert rounded.scores["f1"] == round(exact.scores["f1"], 4)


def test_a_class_that_is_answered_but_of_no_item_has_scores():
    answers = {"prediction": [0, 2, 1], "correct": [True, False, False], "label": [0, 1, 0]}
    items = {name: np.array(column) for name, column in answers.items()}
    per_subset = ProbeEvaluator(SMALL).recompute(items).per_subset
    assert {name: scores["support"] for name, scores in per_subset.items()} == {
        "0": 2,
        "1": 1,
        "2": 0,
    }


def test_without_an_item_of_class_1_its_f1_is_zero():
    answers = {"prediction": [0, 0], "correct": [True, True], "label": [0, 0]}
    items = {name: np.array(column) for name, column in answers.items()}
    scores = ProbeEvaluator(SMALL, f1=True).recompute(items)
    assert (scores.score, scores.scores["f1"]) == (1, 0)


@pytest.mark.parametrize("protocol", ["small", "logreg"])
def test_a_constant_embedding_is_scored_and_noted(protocol):
    labels = np.array([0] * 60 + [1] * 100)
    split = LabelledSplit(sentences=[f"w{i}" for i in range(160)], labels=labels)
    rules = SMALL if protocol == "small" else PROTOCOLS[protocol]
    for value in (0.25, 0.0):

        def embed(sentences, value=value):
            return View(np.full((len(sentences), 5), value, dtype=np.float32))

        scores = ProbeEvaluator(rules)({"all": split}, embed, seed=0)
        assert predictions(scores).tolist() == [1] * 160
        assert scores.scores["majority"] == pytest.approx(100 / 160)
        assert scores.score == pytest.approx(100 / 160, abs=1e-4)
        same = "every sentence has the same embedding: the classifier can only learn how frequent classes are"
        assert scores.notes == (
            (same,) if value else ("160 zero vectors among the embeddings", same)
        )


@pytest.mark.parametrize("protocol", ["small", "logreg"])
def test_a_task_read_from_disk_scores_the_same_within_bounded_memory(protocol, monkeypatch):
    split, embed = make_pairs(300, classes=3)
    dev, embed_dev = make_pairs(60, classes=3, seed=1)
    embed.vectors.update(embed_dev.vectors)
    splits = {"train": split, "validation": dev, "test": dev}
    views: list[View] = []

    def watched(sentences):
        views.append(embed(sentences))
        return views[-1]

    rules = SMALL if protocol == "small" else PROTOCOLS[protocol]
    whole = ProbeEvaluator(rules, features="concat_mul_abs")(splits, embed, seed=0)
    monkeypatch.setattr(pool_module, "MAX_CHUNK_BYTES", 40 * 2 * 6 * 4)  # forty pairs
    monkeypatch.setattr("stsbench.encoders.base.ROWS_AT_ONCE", 80)
    read = ProbeEvaluator(rules, features="concat_mul_abs", memory=0)(splits, watched, seed=0)
    assert np.array_equal(predictions(whole), predictions(read))
    assert whole.scores == read.scores
    assert len(views) == 6 and all(view.most_taken <= 80 for view in views)


class FromDisk(View):
    """Embeddings of a file: rows are copied when asked for, as a store copies them."""

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        return np.array(self.rows)


def test_features_of_many_pairs_are_never_all_in_memory(monkeypatch, tmp_path):
    n, d = 20_000, 64
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=n)
    sides = [f"p{i}" for i in range(n)], [f"h{i}" for i in range(n)]
    split = LabelledPairSplit(sentences1=sides[0], sentences2=sides[1], labels=labels)
    small = LabelledPairSplit(
        sentences1=sides[0][:300], sentences2=sides[1][:300], labels=labels[:300]
    )
    files = {}
    for side in "ph":
        files[side] = np.memmap(tmp_path / side, np.float32, "w+", shape=(n, d))
        files[side][:] = rng.normal(size=(n, d)) + labels[:, None]

    def peak_of(train: LabelledPairSplit, memory: int) -> int:
        rules = replace(SMALL, weight_decays=(1e-9,), epoch_size=1, max_epochs=1)
        probe = ProbeEvaluator(rules, features="concat_mul_abs", memory=memory)
        splits = {"train": train, "validation": small, "test": small}
        tracemalloc.start()
        scores = probe(
            splits, lambda sentences: FromDisk(files[sentences[0][0]][: len(sentences)]), seed=0
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert scores.score > 0.8
        return peak

    monkeypatch.setattr(pool_module, "MAX_CHUNK_BYTES", 1 << 18)
    monkeypatch.setattr("stsbench.encoders.base.ROWS_AT_ONCE", 128)
    peak_of(small, 0)  # imports
    # The embeddings are 10 MB and their features 20 MB; orders and labels take some dozens of bytes a pair.
    assert peak_of(split, memory=0) < 4e6
    assert 10e6 < peak_of(split, memory=1 << 30) < 16e6


def test_global_random_generators_are_left_alone():
    split, embed = make_split(60)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    expected = (
        np.random.RandomState(5).rand(),
        torch.rand(1, generator=torch.Generator().manual_seed(5)),
    )  # noqa: NPY002
    ProbeEvaluator(SMALL)({"all": split}, embed, seed=0)
    assert (np.random.rand(), torch.rand(1)) == expected  # noqa: NPY002


@pytest.mark.parametrize(("n", "k"), [(11, 2), (23, 5), (38, 5), (40, 5), (67, 10), (1000, 10)])
def test_a_score_over_folds_lies_in_the_range_of_its_items_and_may_be_either_end(n: int, k: int):
    """Against the toolkit's own arithmetic, over folds that scikit-learn makes of any labels."""
    rng = np.random.default_rng(n)
    evaluator = ProbeEvaluator(replace(PROTOCOLS["senteval"], kfold=k))
    for _ in range(40):
        labels = rng.permutation(np.arange(n) % int(rng.integers(1, 4)))
        folds = StratifiedKFold(k, shuffle=True, random_state=int(rng.integers(99)))
        parts = [held_out for _, held_out in folds.split(labels, labels)]
        large = [place for part in parts if len(part) > n // k for place in part]
        small = [place for part in parts if len(part) == n // k for place in part]
        # Right answers anywhere, or first in the folds of one size: the ends of the range.
        for places in (rng.permutation(n), [*large, *small], [*small, *large]):
            correct = np.zeros(n, dtype=bool)
            correct[places[: rng.integers(0, n + 1)]] = True
            points = [round(100 * int(correct[part].sum()) / len(part), 2) for part in parts]
            score = round(float(round(np.mean(points), 2)) / 100, 4)
            low, high = evaluator.score_range({"correct": correct}, "all")
            assert low - 1e-12 <= score <= high + 1e-12
            assert low <= correct.mean() <= high
            # Two roundings, of 1e-4 each, lie between the score and an end that is reached.
            if list(places) == [*large, *small]:
                assert score - low <= 2e-4 + 1e-12
            if list(places) == [*small, *large]:
                assert high - score <= 2e-4 + 1e-12


def test_a_score_of_a_test_split_is_its_share_as_it_is_rounded():
    correct = np.arange(700) < 433
    share = 433 / 700
    ends = ProbeEvaluator(PROTOCOLS["senteval"]).score_range({"correct": correct}, "test")
    assert ends == pytest.approx((share - 1e-4, share + 1e-4))
    exact = ProbeEvaluator(PROTOCOLS["logreg"]).score_range({"correct": correct}, "all")
    assert exact == (share, share)


def test_splits_of_no_scheme_or_without_classes_are_refused():
    split, embed = make_split(40)
    pairs = PairSplit(sentences1=["a"], sentences2=["b"], gold=np.ones(1), subset=[""])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"test": split, "validation": split}, r"it has \['test', 'validation'\]"),
        ({"all": pairs}, "that have a class"),
        ({"all": replace(split, labels=np.zeros(40, dtype=np.int64))}, "at least two classes"),
        ({"all": replace(split, sentences=[], labels=split.labels[:0])}, "empty"),
    ]
    for splits, message in cases:
        with pytest.raises(DataError, match=message):
            ProbeEvaluator(SMALL)(splits, embed, seed=0)
