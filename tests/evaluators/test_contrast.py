"""Contrast sets against a literal computation, and items that share sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stsbench.core.errors import DataError, ProtocolError
from stsbench.data.splits import ContrastSplit, PairSplit, check_form
from stsbench.evaluators.base import Scores
from stsbench.evaluators.contrast import ContrastEvaluator, ContrastProtocol
from stsbench.numbers.dependence import merge_chains

CONTRAST = ContrastEvaluator.PROTOCOLS["contrast"]
Rows = Mapping[str, Sequence[float] | npt.NDArray[np.floating]]


def score(items: Sequence[Sequence[str]], rows: Rows, protocol=CONTRAST) -> Scores:
    """Score items, each an anchor, a positive and negatives, with embeddings by sentence."""
    anchors, positives, *negatives = (list(column) for column in zip(*items, strict=True))
    split = ContrastSplit(anchors=anchors, positives=positives, negatives=negatives)
    check_form(split, where="made")

    def embed(sentences: Sequence[str]):
        return np.array([rows[sentence] for sentence in sentences], dtype=np.float32)

    return ContrastEvaluator(protocol=protocol)({"test": split}, embed, seed=0)


def cosine(x, y) -> float:
    return float(np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y))


def test_scores_are_those_of_a_literal_computation():
    rng = np.random.default_rng(1)
    items = [[f"{side} {item}" for side in "apnm"] for item in range(60)]
    rows = {text: rng.normal(size=5).astype(np.float32) for item in items for text in item}
    found = score(items, rows)
    right = {"": 0, ".1": 0, ".2": 0}
    for a, p, n, m in ([np.float64(rows[text]) for text in item] for item in items):
        first, second = cosine(a, p) > cosine(a, n), cosine(a, p) > cosine(a, m)
        right[""] += first and second
        right[".1"] += first
        right[".2"] += second
    assert 0 < right[""] < min(right[".1"], right[".2"]) < 60
    expected = {f"accuracy{name}": n / 60 for name, n in right.items()}
    assert found.scores == pytest.approx({**expected, "chance": 1 / 3})
    assert found.score == found.scores["accuracy"] and found.notes == ()
    # No two items share a sentence: Wilson's interval.
    wilson = stats.binomtest(right[""], 60).proportion_ci(method="wilson")
    assert found.interval == pytest.approx(tuple(wilson), abs=1e-9)


def test_a_tie_is_wrong_and_rounding_decides_none():
    rows: dict[str, list[float]] = {
        "a": [1, 2, 3],
        "same": [0.3, 0.1, 0.7],
        "longer": [0.9, 0.3, 2.1],  # the cosine differs from that of "same" by rounding
        "other": [3, -2, 1],
        "zero": [0, 0, 0],
    }
    assert 0 < abs(cosine(rows["a"], rows["same"]) - cosine(rows["a"], rows["longer"])) < 1e-7
    rows["longer"] = [8 * value for value in rows["same"]]
    ties = [["a", "same", "same"], ["a", "same", "longer"], ["a", "longer", "same"]]
    found = score([*ties, ["a", "same", "other"], ["a", "zero", "same"]], rows)
    assert list(found.per_item["correct"]) == [0, 0, 0, 1, 0]
    assert found.scores == {"accuracy": 0.2, "chance": 0.5}
    assert found.zero_vectors == 1 and found.notes == (
        "1 item with a zero vector: similarity 0",
        "3 ties, counted as wrong",
    )
    # By dot product the longer one is more similar.
    longer = score(ties, rows, ContrastProtocol(name="contrast", similarity="dot"))
    assert list(longer.per_item["correct"]) == [0, 0, 1]


def test_every_sentence_alike_scores_nothing():
    rows: Rows = {text: [1, 2] for text in "apn"}
    found = score([["a", "p", "n"]], rows)
    assert found.score == 0 and found.notes == ("1 tie, counted as wrong",)


def test_items_of_a_chain_of_sentences_are_one_cluster():
    rng = np.random.default_rng(2)
    texts = [f"s{k}" for k in range(150)]
    items = [rng.choice(texts, size=4, replace=False).tolist() for _ in range(40)]
    items += [[f"{side} {k}" for side in "apnm"] for k in range(60)] * 2
    rows = {text: rng.normal(size=4) for item in items for text in item}
    found = score(items, rows)
    # The chains, by merging sets until none share a sentence.
    chains: list[set[str]] = []
    for item in items:
        linked = [chain for chain in chains if chain & set(item)]
        chains = [chain for chain in chains if chain not in linked]
        chains.append(set(item).union(*linked))
    cluster = [next(k for k, chain in enumerate(chains) if item[0] in chain) for item in items]
    assert 60 < len(chains) < 100 and max(Counter(cluster).values()) < len(items) / 2
    ids = np.array([[hash(text) % 2**40 for text in item] for item in items])
    assert len(set(zip(cluster, merge_chains(ids)[:, 0].tolist(), strict=True))) == len(chains)
    # Wilson's interval of a share over clusters, by Student's t.
    correct = np.asarray(found.per_item["correct"], dtype=np.float64)
    n, p = len(items), correct.mean()
    sums = np.array([(correct[np.equal(cluster, k)] - p).sum() for k in range(len(chains))])
    worth = n**2 / sum(count**2 for count in Counter(cluster).values())
    variance = (sums**2).sum() / n**2 * worth / (worth - 1)
    size = p * (1 - p) / variance
    t2 = stats.t.ppf(0.975, worth - 1) ** 2
    middle, half = p + t2 / 2 / size, (t2 * (p * (1 - p) / size + t2 / 4 / size**2)) ** 0.5
    bounds = ((middle - half) / (1 + t2 / size), (middle + half) / (1 + t2 / size))
    assert found.interval == pytest.approx(bounds, abs=1e-9)


def test_what_is_no_contrast_set_is_refused():
    pairs = PairSplit(sentences1=["a"], sentences2=["b"], gold=np.ones(1), subset=[""])
    with pytest.raises(DataError, match="scores anchors with positives and negatives"):
        ContrastEvaluator(protocol=CONTRAST)({"test": pairs}, embed=lambda _: None, seed=0)  # type: ignore[arg-type,return-value]
    with pytest.raises(ProtocolError, match="'cosin' is not one of .*; did you mean 'cosine'"):
        ContrastProtocol(name="contrast", similarity="cosin")
    for columns, problem in (([], "0 columns of negatives, not 1 to 6"), ([["n", "m"]], "2 rows")):
        split = ContrastSplit(anchors=["a"], positives=["p"], negatives=columns)
        with pytest.raises(DataError, match=problem):
            check_form(split, where="made")
