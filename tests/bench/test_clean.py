"""Clean scores in a run: beside scores that stay as they are, of cells that are known too, and nothing embedded again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stsbench.bench.clean import compute_clean_score
from stsbench.bench.plan import CleanScoreSettings
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.core.errors import DataError, StsbenchError
from stsbench.data.corpora.corpus import Corpus, load_corpus
from stsbench.evaluators.probe.evaluator import PROTOCOLS as PROBES, ProbeEvaluator
from stsbench.evaluators.sts import StsEvaluator, StsProtocol
from stsbench.numbers.dependence import sentence_columns
from stsbench.results.record import CleanScore, Result, common_clean_scores, items_path
from tests.encoders.fakes import Plain
from tests.made import make_result
from tests.own_tasks import outside_run, place, plan_of, written

__all__ = ["place"]


@pytest.fixture
def text(place):
    """Training text that holds the first five sentences of the pets' pairs, in capitals, and all of the stones'."""
    rows = [
        (place / "data" / f"{task}.tsv").read_text().splitlines()[:n]
        for task, n in (("pets", 5), ("stones", 12))
    ]
    sentences = [line.split("\t")[1].upper() for one in rows for line in one]
    (place / "seen.txt").write_text("\n".join(sentences) + "\n")
    return str(place / "seen.txt")


def test_known_cells_get_it_and_nothing_else_changes(place, monkeypatch, text):
    plain = list(run(plan_of(place, Plain(), monkeypatch), RunCallbacks()))
    before, encoder = outside_run(place / "results"), Plain()
    results = list(
        run(plan_of(place, encoder, monkeypatch, clean=CleanScoreSettings([text])), RunCallbacks())
    )
    assert encoder.calls == [] and [one.score for one in results] == [one.score for one in plain]
    assert {one.task: one.clean[0].n for one in results} == {"pets": 25, "plants": 20, "stones": 0}
    pets, plants, stones = (one.clean[0] for one in results)
    assert pets.corpora == ["seen.txt"] and pets.score != results[0].score
    assert (plants.score, plants.interval) == (results[1].score, results[1].interval)
    assert stones.score is None and stones.interval is None
    after = outside_run(place / "results")
    for name, content in before.items():
        fields = after[name]
        if name.endswith(".json"):
            fields = json.loads(fields)
            assert fields.pop("clean")
            fields = json.dumps(fields)
        assert fields == content
    # The same again writes nothing, and without --clean it stays.
    last = written(place / "results")
    list(
        run(plan_of(place, Plain(), monkeypatch, clean=CleanScoreSettings([text])), RunCallbacks())
    )
    list(run(plan_of(place, Plain(), monkeypatch), RunCallbacks()))
    assert written(place / "results") == last


def test_a_first_run_makes_both(place, monkeypatch, text):
    settings = plan_of(place, Plain(), monkeypatch, tasks="pets", clean=CleanScoreSettings([text]))
    (result,) = run(settings, RunCallbacks())
    kept = np.arange(30) >= 5
    assert (
        result.clean[0].n == kept.sum()
        and items_path(result.path_in(settings.results_folder)).is_file()
    )


def test_what_cannot_be_had_is_told_and_the_score_stays(place, monkeypatch, text):
    with pytest.raises(StsbenchError, match="of no recipe"):
        list(
            run(
                plan_of(place, Plain(), monkeypatch, clean=CleanScoreSettings(["own"])),
                RunCallbacks(),
            )
        )
    list(run(plan_of(place, Plain(), monkeypatch, tasks="pets"), RunCallbacks()))
    for path in (place / "results").rglob("*.parquet"):
        path.unlink()
    # Without its items no score is believed: it is made again, and then has a clean score.
    notices: list[str] = []
    (result,) = run(
        plan_of(place, Plain(), monkeypatch, tasks="pets", clean=CleanScoreSettings([text])),
        RunCallbacks(on_notice=notices.append),
    )
    assert "scored again: " in notices[0] and "plain on pets" in notices[0]
    assert [score.n for score in result.clean] == [25]


def test_own_is_the_text_that_the_recipe_of_the_name_has(place, monkeypatch, text):
    asked: list[str] = []

    def loaded(name: str, **options: Any) -> Corpus:
        asked.append(name)
        return load_corpus(text)

    monkeypatch.setattr("stsbench.data.corpora.overlap.load_corpus", loaded)
    called = {"tests.own_tasks:ENCODER": "sup-simcse-bert-base"}
    left_out = CleanScoreSettings(["own"])
    (result,) = run(
        plan_of(place, Plain(), monkeypatch, tasks="pets", names=called, clean=left_out),
        RunCallbacks(),
    )
    assert (
        asked == ["nli_triplets"]
        and result.clean[0].corpora == ["nli_triplets"]
        and result.clean[0].n == 25
    )


# The score of a part of the items.

FIRST = [f"first {i}" for i in range(40)]
SECOND = [f"second {i}" for i in range(40)]
RNG = np.random.default_rng(0)
GOLD = RNG.integers(0, 6, 40).astype(np.float64)
SIMILARITY = GOLD / 10 + RNG.normal(0, 0.1, 40)


def scored_without(result: Result, sentences: list[str]) -> CleanScore:
    protocol = dict(result.protocol)
    evaluator: Any = (
        StsEvaluator(protocol=StsProtocol(**protocol))
        if "metric" in protocol
        else ProbeEvaluator(PROBES["senteval"])
    )
    return compute_clean_score(
        result,
        [(sentence,) for sentence in sentences],
        evaluator,
        CleanScoreSettings(["a text"]),
        "0" * 64,
    )


def correlated() -> Result:
    columns = {
        "subset": ["a"] * 40,
        "gold": GOLD,
        "similarity": SIMILARITY,
        **sentence_columns(FIRST, SECOND),
    }
    return make_result(per_item=columns, n=40, interval=(0.5, 1.0))


def test_a_correlation_is_that_of_the_items_left():
    found = scored_without(correlated(), ["first 3", "second 7", "second 3", "never seen"])
    kept = [i for i in range(40) if i not in (3, 7)]
    assert found.n == 38
    assert found.score == pytest.approx(
        stats.spearmanr(SIMILARITY[kept], GOLD[kept]).statistic, abs=1e-12
    )
    assert found.score is not None and found.interval is not None
    assert found.interval[0] < found.score < found.interval[1]


def test_where_nothing_is_held_it_is_the_score_itself():
    result = correlated()
    found = scored_without(result, ["of another task"])
    assert (found.n, found.score, found.interval) == (40, result.score, result.interval)


def test_a_share_is_that_of_the_items_left():
    correct = np.arange(40) % 4 != 0
    columns = {"prediction": np.zeros(40, np.int64), "correct": correct, **sentence_columns(FIRST)}
    protocol = {"name": "senteval", "kfold": 10}
    result = make_result(
        task="mr", per_item=columns, n=40, score=0.75, protocol=protocol, items="0" * 64
    )
    found = scored_without(result, ["first 1", "first 2"])
    assert (found.n, found.score) == (38, 28 / 38) and found.interval is not None


def test_too_few_items_or_one_gold_score_make_no_score():
    alike = [text for text, gold in zip(FIRST, GOLD, strict=True) if gold != 3]
    few, same = scored_without(correlated(), FIRST[:37]), scored_without(correlated(), alike)
    assert (few.n, few.score, few.interval) == (3, None, None) == (3, same.score, same.interval)


@pytest.mark.parametrize("aggregation", ["mean", "wmean"])
def test_a_subset_of_which_few_pairs_are_left_has_no_part_in_the_mean(aggregation):
    subset = ["a"] * 20 + ["b"] * 20
    parts = [
        stats.spearmanr(SIMILARITY[at : at + 20], GOLD[at : at + 20]).statistic for at in (0, 20)
    ]
    result = make_result(
        per_item={
            "subset": subset,
            "gold": GOLD,
            "similarity": SIMILARITY,
            **sentence_columns(FIRST, SECOND),
        },
        n=40,
        score=float(np.mean(parts)),
        protocol={
            "name": aggregation,
            "metric": "spearman",
            "aggregation": aggregation,
            "similarity": "cosine",
        },
    )
    found = scored_without(result, FIRST[21:])
    assert (found.n, found.left_out) == (20, ["b"])
    assert found.score == pytest.approx(parts[0], abs=1e-12)
    assert found.score is not None and found.interval is not None
    assert found.interval[0] < found.score < found.interval[1]
    ten = scored_without(result, FIRST[30:])
    first = stats.spearmanr(SIMILARITY[20:30], GOLD[20:30]).statistic
    weights = {"mean": [1, 1], "wmean": [20, 10]}[aggregation]
    assert (
        ten.score == pytest.approx(np.average([parts[0], first], weights=weights))
        and ten.left_out == []
    )
    none = scored_without(result, [*FIRST[9:20], *FIRST[21:]])
    assert (none.n, none.score, none.left_out) == (0, None, ["a", "b"])


def test_columns_that_tell_no_sentences_are_refused():
    with pytest.raises(
        DataError, match="no part of the items has a score: its per-item columns lack sentence1"
    ):
        scored_without(make_result(), ["a"])


def test_seeds_have_the_clean_scores_that_all_of_them_have():
    of: dict[str, Any] = {"text": "0" * 64, "n": 2, "score": 0.5, "interval": (0.4, 0.6)}
    one, near = (
        CleanScore(corpora=["a", "b"], near=None, **of),
        CleanScore(corpora=["a"], near=0.8, **of),
    )
    results = [make_result(clean=[one, near]), make_result(clean=[one])]
    assert common_clean_scores(results) == {"without a, b": [one, one]}
    assert list(common_clean_scores(results[:1])) == ["without a, b", "without a (near: 0.8)"]
