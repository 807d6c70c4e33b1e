"""Encoders that are fitted on texts, on tasks: what they are fitted on, what is embedded, what results say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.bench.embedder import is_of_scored_task, read_texts_to_fit
from stsbench.bench.forecast import forecast_run
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, EncoderError, StsbenchError, UnknownName
from stsbench.core.provenance import add_texts
from stsbench.data.task import load_task
from stsbench.encoders.fitted import PostProcessed, texts_sha256, variant_specs
from stsbench.encoders.load import load_encoder, load_named
from stsbench.encoders.whitening import WhiteningMethod
from stsbench.results.folder import read_states
from stsbench.results.groups import group_by_encoder
from tests.encoders.fakes import Plain, hashed
from tests.own_tasks import evaluate, place, plan_of, task_of_own, telling

__all__ = ["place"]


def whitened(base: Plain | None = None, *, fit: str = "target", k: int | None = 3) -> PostProcessed:
    return PostProcessed(
        base or Plain(), WhiteningMethod(k, normalise=True), name="whitened", fit=fit
    )


class Own:
    """A user's own: it drops the words that are most frequent in the texts, and counts what it is given."""

    name, fingerprint = "own", "own-1"

    def __init__(self) -> None:
        self.given: list[list[str]] = []

    def encode(self, sentences: Sequence[str]) -> Any:
        raise AssertionError("it is fitted first")

    def fit_texts(self, sentences: Sequence[str]) -> Plain:
        self.given.append(list(sentences))
        return Plain("own, fitted", f"own-1 {texts_sha256(sentences)}")


def task_texts(place: Path, name: str) -> list[str]:
    task = load_task(name, data=place / "data", catalogue=Catalogue([place / "cards"]))
    return task.texts(repeated=True)


# --- which texts ---


def test_the_words_for_texts(place, tmp_path):
    catalogue = Catalogue([place / "cards"])
    pets = load_task("pets", data=place / "data", catalogue=catalogue)

    def texts(fit: str) -> list[str]:
        return read_texts_to_fit(fit, task=pets, catalogue=catalogue, data=place / "data")

    assert texts("target") == texts("target+ungraded") == task_texts(place, "pets")
    split = pets.load("validation")
    # Pairs stay together.
    assert texts("target.validation")[::2] == list(split.sentences1)  # type: ignore[union-attr]
    assert texts("target.validation") == pets.texts(["validation"], repeated=True)
    assert len(texts("plants.test")) == 40
    own = tmp_path / "own.txt"
    own.write_text("b c\na\nb c\n")
    assert texts(str(own)) == ["b c", "a", "b c"]
    table = tmp_path / "own.csv"
    table.write_text('sent0,sent1\n"a, b",c\nd,e\n')
    assert texts(str(table)) == ["a, b", "c", "d", "e"]
    assert all(is_of_scored_task(fit) for fit in ("target", "target.test", "target+ungraded"))
    assert not any(is_of_scored_task(fit) for fit in ("stsb.test", "x.txt"))


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ("taget", "unknown text to fit on 'taget'; did you mean 'target'"),
        ("nli_triplet", "did you mean 'nli_triplets'"),
        ("pets.tset", "did you mean 'test'"),
        ("target.tset", "did you mean 'test'"),
        ("gone.txt", "corpus file 'gone.txt' does not exist"),
        ("nli_triplets", "the Hub is switched off"),
    ],
)
def test_texts_that_cannot_be_had(place, monkeypatch, fit, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((UnknownName, DataError), match=message):
        evaluate(place, whitened(fit=fit), "pets")


def test_ungraded_pairs_count_where_they_are_asked_for(monkeypatch):
    from stsbench.data.splits import PairSplit
    from stsbench.data.task import LoadedSplit

    catalogue = Catalogue()
    task = load_task("sts12", catalogue=catalogue)
    split = PairSplit(
        sentences1=["a"], sentences2=["b"], gold=np.zeros(1), subset=[""], ungraded=["c", "a"]
    )
    loaded = LoadedSplit(split=split, source="local")
    monkeypatch.setattr("stsbench.data.task.load_split", lambda *names, **where: loaded)
    assert read_texts_to_fit("target", task=task, catalogue=catalogue) == ["a", "b"]
    assert read_texts_to_fit("target+ungraded", task=task, catalogue=catalogue) == [
        "a",
        "b",
        "c",
        "a",
    ]


# --- runs ---


def test_each_task_has_a_fit_of_its_own(place):
    base = Plain()
    pets, plants = evaluate(place, whitened(base))
    for result, name in ((pets, "pets"), (plants, "plants")):
        texts = task_texts(place, name)
        assert result.fingerprint == add_texts(str(whitened().fingerprint), texts_sha256(texts))
        assert (result.overlap, result.encoder) == ("text", "whitened")
        assert result.notes[-1] == f"fitted on {len(texts)} sentences (target)"
        split: Any = load_task(
            name, data=place / "data", catalogue=Catalogue([place / "cards"])
        ).load("test")
        fitted = whitened().fit_texts(texts)
        a, b = (
            fitted.encode(side).astype(np.float64) for side in (split.sentences1, split.sentences2)
        )
        np.testing.assert_allclose(result.per_item["similarity"], (a * b).sum(axis=1), atol=1e-6)
    assert pets.state == plants.state == whitened().fingerprint


def test_the_bases_embeddings_come_from_its_store(place):
    first = evaluate(place, Plain())
    base = Plain()
    results = evaluate(place, whitened(base))
    # The validation splits are fitted on and were not embedded before.
    new = {text for call in base.calls for text in call}
    assert 0 < len(new) <= 16
    assert [r.run["encoded"] for r in results] == [0, 0]
    assert [r.run["from_store"] for r in results] == [r.run["encoded"] for r in first]
    again = Plain()
    same = evaluate(place, whitened(again, k=2))
    assert again.calls == []
    assert same[0].score != results[0].score
    assert len(list((place / "cache" / "store").iterdir())) == 1


def test_without_a_store_the_scores_are_the_same_and_nothing_is_written(place):
    without = evaluate(place, whitened(), store=None)
    assert not (place / "cache").exists()
    with_store = evaluate(place, whitened())
    assert [r.score for r in without] == [r.score for r in with_store]
    assert [r.fingerprint for r in without] == [r.fingerprint for r in with_store]


def test_texts_that_are_not_the_tasks(place):
    pets, plants, stones = evaluate(place, whitened(fit="stones.test"), "pets,plants,stones")
    assert len({r.fingerprint for r in (pets, plants, stones)}) == 1
    # Every task has the first sentences of the others.
    assert {r.overlap for r in (pets, plants, stones)} == {"text"}
    own = place / "own.txt"
    own.write_text("".join(f"a sentence {i} of my own\n" for i in range(9)))
    (result,) = evaluate(place, whitened(fit=str(own)), "pets")
    assert (result.overlap, result.notes[-1]) == ("unknown", "fitted on 9 sentences (own.txt)")


def test_a_task_without_texts_to_fit_on_is_told_and_left_out(place):
    (place / "data" / "pets-validation.tsv").unlink()
    told, listener = telling()
    results = evaluate(place, whitened(), on_error="skip", listener=listener)
    assert [result.task for result in results] == ["plants"]
    assert len(told) == 1
    assert told[0].startswith("whitened on pets: no data for pets (validation)")
    with pytest.raises(DataError, match=r"for pets \(validation\)"):
        evaluate(place, whitened())


def test_a_users_own_is_given_each_tasks_texts(place):
    own = Own()
    pets, plants = evaluate(place, own)
    assert own.given == [task_texts(place, "pets"), task_texts(place, "plants")]
    assert pets.fingerprint == add_texts(
        "own-1 of tests.bench.test_embed:Own", texts_sha256(own.given[0])
    )
    (plain,) = evaluate(place, Plain(), "pets")
    assert (pets.encoder, pets.score, pets.run["encoded"]) == ("own", plain.score, 60)


def test_a_run_finds_its_results_again(place, monkeypatch):
    def results(base: Plain) -> list[Any]:
        plan = plan_of(place, whitened(base), monkeypatch)
        return list(run(plan, RunCallbacks()))

    first = results(Plain())
    base = Plain()
    assert results(base) == [
        r for r in read_states(place / "results").results if r.task in ("pets", "plants", "stones")
    ]
    assert base.calls == []
    (place / "data" / "pets-validation.tsv").write_text(
        "".join(f"new {i}\tother {i}\t{i}\n" for i in range(4))
    )
    changed = results(base)
    assert {text.split()[0] for call in base.calls for text in call} == {"new", "other"}
    assert [a.fingerprint != b.fingerprint for a, b in zip(first, changed, strict=True)] == [
        True,
        False,
        False,
    ]
    # One encoder, though every task has a fit of its own.
    (runs,) = group_by_encoder(first)
    assert (runs.name, runs.overlap, len(runs.results)) == ("whitened", "text", 3)


def test_a_seed_is_the_results_own_fact(place, tmp_path):
    card = place / "cards" / "baselines" / "mine.toml"
    card.parent.mkdir()
    head = 'name = "m"\nkind = "{}"\nmethod = "m"\nbackbone = "none"\nsupervision = "none"\noverlap = "none"\n'
    card.write_text(
        head.format("tests.bench.test_embed:Seeded") + 'paper = "none"\nlicense = "none"\n'
    )
    catalogue = Catalogue([place / "cards"])
    for seed in (0, 1):
        known = load_named("mine", params={"seed": seed, "d": 5}, catalogue=catalogue)
        assert (known.name, known.train_seed) == ("mine+d=5", seed)
    (result,) = evaluate(place, known, "pets")
    assert result.train_seed == 1
    assert result.fingerprint == "seeded-1 of tests.bench.test_embed:Seeded(d=5, seed=1)"
    for params in ({"dimensions": 2}, {"embeddings": "int8", "calibration": "pets.test"}):
        seeded = load_encoder("tests.bench.test_embed:Seeded", params={"seed": 3, **params})
        (of_variant,) = evaluate(place, seeded, "pets")
        assert of_variant.train_seed == 3


class Seeded(Plain):
    """Embeddings that depend on a seed of fitting."""

    def __init__(self, seed: int = 0, d: int = 4) -> None:
        super().__init__("seeded", f"seeded-{seed}", d)
        self.train_seed = seed

    def encode(self, sentences: Sequence[str]) -> Any:
        return np.array(
            [hashed(f"{self.train_seed}{text}", self.d) for text in sentences], dtype=np.float32
        )


# Sentences a task, ungraded pairs among them: ConSERT, table 1. BERT-whitening and BERT-flow leave those out.
CONSERT = {
    "sts12": 6216,
    "sts13": 3000,
    "sts14": 7500,
    "sts15": 17000,
    "sts16": 18366,
    "stsb": 17256,
    "sickr": 19854,
}
GRADED = {**CONSERT, "sts15": 6000, "sts16": 2372}


@pytest.mark.data
@pytest.mark.parametrize("name", CONSERT)
def test_the_published_number_of_texts(name):
    task, catalogue = load_task(name), Catalogue()
    assert (
        len(read_texts_to_fit("target+ungraded", task=task, catalogue=catalogue)) == CONSERT[name]
    )
    assert len(read_texts_to_fit("target", task=task, catalogue=catalogue)) == GRADED[name]


SPEC = "tests.own_tasks:ENCODER"
GRID: dict[str, list[Any]] = {"embeddings": ["float32", "int8", "binary"], "dimensions": [8, 4]}


def all_variants(place: Path, monkeypatch: pytest.MonkeyPatch, base: Plain, **options: Any) -> Any:
    specs = variant_specs(SPEC, GRID, "stones.validation")
    return plan_of(place, base, monkeypatch, encoders=[SPEC, *specs], **options)


def test_nothing_is_encoded_twice(place, monkeypatch):
    base, told = Plain(d=8), []
    plan = all_variants(place, monkeypatch, base)
    listener = RunCallbacks(on_failure=lambda what, error: told.append(f"{what}: {error}"))
    results = list(run(plan, listener))
    assert told == []
    assert len(results) == 7 * 3
    texts = [text for call in base.calls for text in call]
    assert len(texts) == len(set(texts))
    # Whoever comes first embeds, and says so.
    assert {r.run["encoded"] > 0 for r in results if r.encoder == "plain"} == {True}
    assert {r.run["encoded"] for r in results if r.encoder != "plain"} == {0}
    calls = len(base.calls)
    assert list(run(plan, RunCallbacks()))[0].score == results[0].score
    assert len(base.calls) == calls


def test_a_forecast_counts_each_sentence_once(place, monkeypatch):
    specs = variant_specs(SPEC, {"dimensions": [8, 4, 2]})
    plan = plan_of(place, Plain(d=8), monkeypatch, encoders=specs)
    counted = [one.encoder_plan.sentences_to_embed for one in forecast_run(plan, RunCallbacks())]
    assert counted[0] is not None
    assert counted[0] > 0
    assert counted[1:] == [0, 0]


def test_results_say_what_was_done(place, monkeypatch):
    results = {
        (r.encoder, r.task): r
        for r in run(all_variants(place, monkeypatch, Plain(d=8)), RunCallbacks())
    }
    floats, bits = results["plain", "pets"], results["plain+dimensions=4+embeddings=binary", "pets"]
    integers = results["plain+calibration=stones.validation+dimensions=4+embeddings=int8", "pets"]
    sizes = [(r.run["dimensions"], r.run["vector_bytes"]) for r in (floats, bits, integers)]
    assert sizes == [(8, 32), (4, 1), (4, 4)]
    texts = task_of_own(place, "stones").texts(["validation"], repeated=True)
    assert integers.notes == [
        "fitted on 8 sentences (stones.validation)",
        "embeddings are int8: similarity and features are of these integers",
    ]
    assert bits.notes == ["embeddings are binary: similarity and features are of these bits"]
    assert str(integers.fingerprint).endswith(add_texts("", texts_sha256(texts)))
    assert {floats.overlap, bits.overlap} == {"unknown"}


def test_ranges_of_the_scored_sentences_are_marked(place):
    known = load_encoder(
        "tests.encoders.fakes:Plain", params={"embeddings": "int8", "calibration": "target"}
    )
    (result,) = evaluate(place, known, "pets")
    assert result.overlap == "text"


def test_scores_are_those_of_the_integers(place):
    known: Any = load_encoder(
        "tests.encoders.fakes:Plain", params={"embeddings": "int8", "calibration": "plants.test"}
    )
    (by_dot,) = evaluate(place, known, "pets", protocol="simcse(similarity=dot)")
    split: Any = task_of_own(place, "pets").load("test")
    fitted = known.fit_texts(task_of_own(place, "plants").texts(["test"], repeated=True))
    a, b = (fitted.encode(side).astype(int).tolist() for side in split.sides)
    dots = [float(sum(x * y for x, y in zip(v, w, strict=True))) for v, w in zip(a, b, strict=True)]
    assert by_dot.per_item["similarity"].tolist() == dots
    assert by_dot.protocol["similarity"] == "dot"


def test_hamming_needs_bits(place):
    with pytest.raises(
        StsbenchError, match="'hamming' counts bits that differ; .* `params=embeddings=binary`"
    ):
        evaluate(place, Plain(), "pets", protocol="simcse(similarity=hamming)")
    bits = load_encoder("tests.encoders.fakes:Plain", params={"embeddings": "ubinary", "d": 16})
    (found,) = evaluate(place, bits, "pets", protocol="simcse(similarity=hamming)")
    assert set(found.per_item["similarity"] % 1) == {0}
    assert found.per_item["similarity"].max() <= 0


def test_too_many_dimensions_and_unknown_texts_are_told_once(place):
    many = load_encoder("tests.encoders.fakes:Plain", params={"dimensions": 9})
    told, listener = telling()
    with pytest.raises(EncoderError, match="dimensions = 9: .* have 4"):
        evaluate(place, many, on_error="skip", listener=listener)
    unknown = load_encoder(
        "tests.encoders.fakes:Plain", params={"embeddings": "int8", "calibration": "nothing"}
    )
    assert evaluate(place, unknown, on_error="skip", listener=listener) == []
    start = "plain+calibration=nothing+embeddings=int8: unknown text to fit on 'nothing'; "
    assert told == [start + told[0].partition("; ")[2]]
    with pytest.raises(UnknownName, match="nothing"):
        evaluate(place, unknown)


def test_encoders_of_two_bases_have_their_own_scores(place, monkeypatch):
    pair = [
        "tests.encoders.fakes:Plain+d=8+dimensions=4",
        "tests.encoders.fakes:Plain+d=6+dimensions=4",
    ]
    both = [r.score for r in evaluate(place, ",".join(pair), "pets")]
    assert both == [evaluate(place, one, "pets")[0].score for one in pair]
