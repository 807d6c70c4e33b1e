"""Variants of one encoder in a run: nothing is encoded twice, and results say what was done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.bench.dry_run import forecast_run
from stsbench.bench.listener import Listener
from stsbench.bench.run import run
from stsbench.bench.shared import Shared
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.fitted.fitted import texts_digest
from stsbench.encoders.fitted.variants import variant_specs
from stsbench.encoders.loading import load_encoder
from stsbench.errors import EncoderError, UnknownName
from stsbench.provenance.identity import fitted_on
from tests.encoders.fakes import Plain
from tests.own_tasks import evaluate, place, plan_of, task_of_own

__all__ = ["place"]

SPEC = "tests.own_tasks:ENCODER"
GRID: dict[str, list[Any]] = {"embeddings": ["float32", "int8", "binary"], "dimensions": [8, 4]}


def all_variants(place: Path, monkeypatch: pytest.MonkeyPatch, base: Plain, **options: Any) -> Any:
    specs = variant_specs(SPEC, GRID, "stones.validation")
    return plan_of(place, base, monkeypatch, encoders=[SPEC, *specs], **options)


def test_nothing_is_encoded_twice(place, monkeypatch):
    base, told = Plain(d=8), []
    plan = all_variants(place, monkeypatch, base)
    listener = Listener(failed=lambda what, error: told.append(f"{what}: {error}"))
    results = list(run(plan, listener))
    assert told == []
    assert len(results) == 7 * 3
    texts = [text for call in base.calls for text in call]
    assert len(texts) == len(set(texts))
    # Whoever comes first embeds, and says so.
    assert {r.run["encoded"] > 0 for r in results if r.encoder == "plain"} == {True}
    assert {r.run["encoded"] for r in results if r.encoder != "plain"} == {0}
    calls = len(base.calls)
    assert list(run(plan, Listener()))[0].score == results[0].score
    assert len(base.calls) == calls


def test_a_forecast_counts_each_sentence_once(place, monkeypatch):
    specs = variant_specs(SPEC, {"dimensions": [8, 4, 2]})
    plan = plan_of(place, Plain(d=8), monkeypatch, encoders=specs)
    counted = [one.part.to_embed for one in forecast_run(plan, Listener())]
    assert counted[0] is not None
    assert counted[0] > 0
    assert counted[1:] == [0, 0]


def test_results_say_what_was_done(place, monkeypatch):
    results = {(r.encoder, r.task): r for r in run(all_variants(place, monkeypatch, Plain(d=8)), Listener())}
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
    assert str(integers.fingerprint).endswith(fitted_on("", texts_digest(texts)))
    assert {floats.overlap, bits.overlap} == {"unknown"}


def test_ranges_of_the_scored_sentences_are_marked(place):
    known = load_encoder("tests.encoders.fakes:Plain", params={"embeddings": "int8", "calibration": "target"})
    (result,) = evaluate(place, known, "pets")
    assert result.overlap == "text"


def test_scores_are_those_of_the_integers(place):
    known: Any = load_encoder("tests.encoders.fakes:Plain", params={"embeddings": "int8", "calibration": "plants.test"})
    (by_dot,) = evaluate(place, known, "pets", protocol="simcse(similarity=dot)")
    split: Any = task_of_own(place, "pets").load("test")
    fitted = known.fit_texts(task_of_own(place, "plants").texts(["test"], repeated=True))
    a, b = (fitted.encode(side).astype(int).tolist() for side in split.sides)
    dots = [float(sum(x * y for x, y in zip(v, w, strict=True))) for v, w in zip(a, b, strict=True)]
    assert by_dot.per_item["similarity"].tolist() == dots
    assert by_dot.protocol["similarity"] == "dot"


def test_hamming_needs_bits(place):
    with pytest.raises(Exception, match="similarity 'hamming' counts bits that differ; .* --set embeddings=binary"):
        evaluate(place, Plain(), "pets", protocol="simcse(similarity=hamming)")
    bits = load_encoder("tests.encoders.fakes:Plain", params={"embeddings": "ubinary", "d": 16})
    (found,) = evaluate(place, bits, "pets", protocol="simcse(similarity=hamming)")
    assert set(found.per_item["similarity"] % 1) == {0}
    assert found.per_item["similarity"].max() <= 0


def test_too_many_dimensions_and_unknown_texts_are_told_once(place):
    many = load_encoder("tests.encoders.fakes:Plain", params={"dimensions": 9})
    told: list[str] = []
    listener = Listener(failed=lambda what, error: told.append(f"{what}: {error}"))
    with pytest.raises(EncoderError, match="dimensions = 9: the embeddings have 4"):
        evaluate(place, many, on_error="skip", listener=listener)
    unknown = load_encoder("tests.encoders.fakes:Plain", params={"embeddings": "int8", "calibration": "nothing"})
    assert evaluate(place, unknown, on_error="skip", listener=listener) == []
    assert told == ["pets, plants: unknown text to fit on 'nothing'; " + told[0].partition("; ")[2]]
    with pytest.raises(UnknownName, match="nothing"):
        evaluate(place, unknown)


def test_a_seed_of_the_base_is_kept(place):
    for params in ({"dimensions": 2}, {"embeddings": "int8", "calibration": "pets.test"}):
        known = load_encoder("tests.bench.test_embedder:Seeded", params={"seed": 3, **params})
        (result,) = evaluate(place, known, "pets")
        assert result.train_seed == 3


def test_an_engine_is_held_for_one_base_alone():
    shared, first, second = Shared(), Plain("one"), Plain("two")
    held = shared.engine(first, lambda: Engine(first), only_look=False)
    np.asarray(held.view(["a"]))
    assert shared.engine(first, lambda: Engine(first), only_look=False) is held
    assert held.engine.encoded_among(["a"]) == 0
    assert held.view(["a"]) is held.view(["a"])
    assert shared.engine(first, lambda: Engine(first), only_look=True) is not held
    other = shared.engine(second, lambda: Engine(second), only_look=False)
    # Whoever holds the first one still has it.
    assert (held.engine.encoder, other.engine.encoder) == (first, second)
    assert other.uncounted(["a", "b", "a"]) == ["a", "b"]
    assert other.uncounted(["b", "c"]) == ["c"]
    shared.let_go()
    assert shared.engine(second, lambda: Engine(second), only_look=False) is not other


def test_encoders_of_two_bases_have_their_own_scores(place, monkeypatch):
    pair = ["tests.encoders.fakes:Plain+d=8+dimensions=4", "tests.encoders.fakes:Plain+d=6+dimensions=4"]
    both = [r.score for r in evaluate(place, ",".join(pair), "pets")]
    assert both == [evaluate(place, one, "pets")[0].score for one in pair]
