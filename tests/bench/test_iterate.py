from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import stsbench
from stsbench.bench.iteration import iterate
from stsbench.bench.progress import RunCallbacks
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, StsbenchError, UnknownName
from stsbench.data.task import Task
from stsbench.evaluators.sts import StsEvaluator
from tests.encoders.fakes import Plain
from tests.own_tasks import evaluate, place, telling

__all__ = ["place"]

# --- the stream ---


def test_a_result_is_there_as_soon_as_it_is_scored(place):
    scored: list[str] = []
    facts: dict[str, Any] = {"data": place / "data", "catalogue": Catalogue([place / "cards"])}
    stream = iterate(
        Plain(), "pets,plants", listener=RunCallbacks(on_scoring=scored.append), **facts
    )
    assert scored == []
    assert next(stream).task == "pets"
    assert scored == ["pets"]
    assert [result.task for result in stream] == ["plants"]


def test_several_encoders_come_one_after_the_other_and_tasks_are_read_once(place, monkeypatch):
    read: list[str] = []
    load = Task.load

    def noting(task: Task, split: str) -> Any:
        read.append(task.name)
        return load(task, split)

    monkeypatch.setattr(Task, "load", noting)
    results = evaluate(place, [Plain(), Plain("other", "o-1", d=3)], ["pets", "stones"])
    found = [(one.encoder, one.task) for one in results]
    assert found == [("plain", "pets"), ("plain", "stones"), ("other", "pets"), ("other", "stones")]
    assert read == ["pets", "stones"]


def test_a_dict_names_encoders(place):
    results = evaluate(
        place, {"three": lambda texts: Plain(d=3).encode(texts), "four": Plain()}, "stones"
    )
    alone = [evaluate(place, Plain(d=d), "stones", store=None)[0].score for d in (3, 4)]
    assert [one.encoder for one in results] == ["three", "four"]
    assert [one.score for one in results] == alone


def test_names_are_a_list_or_a_comma_list(place):
    plain = "tests.encoders.fakes:Plain"
    for both in (f"{plain}, tests.encoders.fakes:Neighbourly", [plain, Plain("other")]):
        assert len(evaluate(place, both, "stones")) == 2


def test_the_same_encoder_is_scored_once(place):
    encoder = Plain()
    assert len(evaluate(place, [encoder, Plain()], "stones")) == 1
    assert len(evaluate(place, [encoder, Plain(fingerprint="plain-2")], "stones")) == 2


def test_what_nothing_tells_apart_is_refused_before_anything_is_done(place):
    called: list[int] = []
    two = [lambda texts: called.append(1), lambda texts: called.append(2)]
    refused = "^two of the encoders are called 'lambda'; name several by a dict"
    with pytest.raises(StsbenchError, match=refused):
        evaluate(place, two, "stones")
    with pytest.raises(
        StsbenchError, match="name='mine' is for one encoder; name several by a dict"
    ):
        evaluate(place, [Plain(), Plain("other")], "stones", name="mine")
    assert called == []


def test_a_wrong_name_among_many_is_told_before_anything_is_done(place):
    encoder = Plain()
    with pytest.raises(UnknownName, match="mean 'minilm'") as caught:
        evaluate(place, [encoder, "minilmm"], "stones")
    assert (caught.value.kind, caught.value.name) == ("encoder", "minilmm")
    assert encoder.calls == []


# --- one encoder ---


def test_results_come_in_the_order_of_the_tasks(place):
    encoder = Plain()
    results = evaluate(place, encoder, ["stones", "mine", "pets"])
    assert [result.task for result in results] == ["stones", "plants", "pets"]
    assert [result.n for result in results] == [12, 20, 30]
    first = results[0]
    assert (first.encoder, first.fingerprint, first.split) == (
        "plain",
        "plain-1 of tests.encoders.fakes:Plain",
        "test",
    )
    assert first.encoder_card is None
    assert first.protocol["name"] == "simcse"
    columns = {"subset", "gold", "similarity", "euclidean", "manhattan", "sentence1", "sentence2"}
    assert set(first.per_item) == columns
    assert first.score == first.scores["spearman.all"]
    assert first.run["encoded"] == 24
    assert results[2].run["source"] == "local"
    # Sentences are embedded before the first score, and each once.
    texts = [text for call in encoder.calls for text in call]
    assert len(texts) == len(set(texts)) == 30 + 62


def test_the_score_is_the_evaluators(place):
    (result,) = evaluate(place, Plain(), "stones")
    task = stsbench.load_task("stones", data=place / "data", catalogue=Catalogue([place / "cards"]))
    split: Any = task.load("test")
    a, b = (
        Plain().encode(side).astype(np.float64) for side in (split.sentences1, split.sentences2)
    )
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(result.per_item["similarity"], cosines, rtol=1e-12)
    assert result.score == pytest.approx(spearmanr(cosines, split.gold).statistic, abs=1e-12)


def test_a_score_that_could_not_be_read_back_fails_alone(place, monkeypatch):
    score = StsEvaluator.__call__

    def times_hundred(self: StsEvaluator, splits: Any, embed: Any, *, seed: int) -> Any:
        found = score(self, splits, embed, seed=seed)
        return dataclasses.replace(found, score=100 * found.score) if found.n == 20 else found

    monkeypatch.setattr(StsEvaluator, "__call__", times_hundred)
    failures, listener = telling()
    results = evaluate(place, Plain(), "plants,stones", on_error="skip", listener=listener)
    assert [result.task for result in results] == ["stones"]
    assert len(failures) == 1 and "on plants cannot be kept: field 'score'" in failures[0]


class ConstantOn(Plain):
    """Gives every sentence of a task the same embedding, so that it cannot be scored."""

    def encode(self, sentences: Sequence[str]) -> Any:
        rows = super().encode(sentences)
        rows[
            [
                text.startswith("plants") or text.split()[-1] in map(str, range(20))
                for text in sentences
            ]
        ] = 1
        return rows


def test_a_task_that_fails_stops_or_is_told(place):
    told, listener = telling()
    with pytest.raises(EncoderError, match="the same embedding"):
        evaluate(place, ConstantOn(), "plants,pets")
    results = evaluate(place, ConstantOn(), "plants,pets", on_error="skip", listener=listener)
    assert [result.task for result in results] == ["pets"]
    assert len(told) == 1
    assert told[0].startswith(
        "plain on plants: the encoder gives every one of 40 sentences the same embedding"
    )


# --- the store ---


def test_stored_embeddings_are_used_again(place):
    evaluate(place, Plain())
    encoder = Plain()
    results = evaluate(place, encoder, "pets,plants,stones")
    assert sum(map(len, encoder.calls)) == 12
    assert [(r.run["encoded"], r.run["from_store"]) for r in results] == [
        (0, 60),
        (0, 40),
        (12, 12),
    ]
    evaluate(place, encoder, "stones", store=place / "elsewhere")
    assert sum(map(len, encoder.calls)) == 12 + 24
    assert any((place / "elsewhere").rglob("*.npy"))


def test_without_a_fingerprint_nothing_is_stored(place):
    encoder = Plain(fingerprint=None)
    for _ in range(2):
        (result,) = evaluate(place, encoder, "stones")
        assert (result.fingerprint, result.run["encoded"]) == (None, 24)
    assert sum(map(len, encoder.calls)) == 48
    assert not (place / "cache").exists()


@pytest.mark.parametrize(
    "fingerprints",
    [("my-encoder-" * 5 + "1", "my-encoder-" * 5 + "2"), ("a/../b", "b"), (" ", ".")],
)
def test_any_text_may_be_a_fingerprint(place, fingerprints):
    for fingerprint in fingerprints:
        encoder = Plain(fingerprint=fingerprint)
        evaluate(place, encoder, "stones")
        assert sum(map(len, encoder.calls)) == 24
    folders = [
        path for path in (place / "cache").rglob("*") if path.is_dir() and list(path.glob("*.npy"))
    ]
    assert len(folders) == 2
    assert {path.parent for path in folders} == {place / "cache" / "store"}
