"""Which earlier results still count: what made them decides, by code, environment and embeddings of samples; no date does."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stsbench.bench import score
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.core import provenance
from stsbench.encoders.engine import drift
from stsbench.encoders.engine.drift import (
    METADATA_FILE,
    PROBE_SENTENCES,
    SKETCH_SIZE,
    shorten_embeddings,
)
from stsbench.encoders.fitted import PostProcessed, Variant, VariantEncoder
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.whitening import WhiteningMethod
from stsbench.results.folder import read_states, write_result
from stsbench.results.record import Result
from tests.encoders.fakes import Array, Plain
from tests.made import make_result
from tests.own_tasks import outside_run, place, plan_of

__all__ = ["place"]

OWN = """
import numpy as np


def embed(sentences):
    return np.array([[len(s) + 1, s.count(" "), FACTOR] for s in sentences], np.float32)


class Own:
    name, fingerprint = "own", "constant"

    def encode(self, sentences):
        return embed(sentences)


class Fitted(Own):
    def fit_texts(self, sentences):
        return Own()

    def encode(self, sentences):
        raise ValueError("nothing is fitted yet")


class Processor(Own):
    base = Own()

    def over(self, base):
        made = Processor()
        made.base = base
        return made

    def fit_texts(self, sentences):
        return self

    def encode(self, sentences):
        return self.base.encode(sentences) + np.float32(FACTOR)
"""


def edit(folder: Path, code: str) -> None:
    """Write the user's module; each time of another length, for Python takes a file of the same second and size for unchanged."""
    path = folder / "edited_class.py"
    longer = len(path.read_text()) if path.exists() else 0
    path.write_text(code.ljust(longer, "#") + "#")
    sys.modules.pop("edited_class", None)
    importlib.invalidate_caches()


@pytest.fixture
def edited(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Edits the module ``edited_class`` so that its ``FACTOR`` has this value."""
    monkeypatch.syspath_prepend(place)
    return lambda factor: edit(place, OWN.replace("FACTOR", factor))


class Outcome:
    """What a run has scored and noticed, and the score of each task."""

    def __init__(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, encoder: Any = "Own", **options: Any
    ) -> None:
        self.scored, self.noticed = list[str](), list[str]()
        listener = RunCallbacks(
            on_result=lambda result: self.scored.append(result.task), on_notice=self.noticed.append
        )
        listener = listener.with_raised_failures()
        if isinstance(encoder, str):
            options = {"encoders": [f"edited_class:{encoder}"], **options}
        self.results = list(run(plan_of(place, encoder, monkeypatch, **options), listener))
        self.scores = {result.task: result.score for result in self.results}


def rewritten(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the ``run`` block of all results, with a right digest."""
    for result in read_states(place / "results").results:
        change(result.run)
        write_result(result, place / "results")


def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "processor", lambda: "another processor")


STORES = st.sampled_from(["a", "b", None])
DATES = st.integers(-(10**8), 10**8)
STEPS = st.lists(
    st.tuples(st.sampled_from(["1", "60", "900"]), STORES, DATES, DATES), min_size=2, max_size=5
)


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_no_date_decides(tmp_path_factory, edited, place, monkeypatch, steps):
    out, stores = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("stores")
    expected: dict[str, float] = {}
    for factor, store, clock, date in steps:

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + timedelta(seconds=clock)  # noqa: B023 - used in this step alone

        monkeypatch.setattr(score, "datetime", Clock)
        monkeypatch.setattr(drift, "datetime", Clock)
        edited(factor)
        folder = None if store is None else stores / store
        (result,) = Outcome(
            place, monkeypatch, tasks="pets", results_folder=out, store=folder
        ).results
        alone = Outcome(
            place,
            monkeypatch,
            tasks="pets",
            results_folder=tmp_path_factory.mktemp("alone"),
            store=None,
        )
        assert result.score == alone.scores["pets"] == expected.setdefault(factor, result.score)
        result.run["created"] = (datetime.now(UTC) + timedelta(seconds=date)).isoformat(
            timespec="seconds"
        )
        write_result(result, out)
    assert len(set(expected.values())) == len(expected), "each factor has a score of its own"


@pytest.mark.parametrize(
    "encoder", ["Own", "Own+dimensions=2", "Own+embeddings=binary", "Processor", "Fitted"]
)
@pytest.mark.parametrize("stores", [(None, None), ("a", "b"), ("a", None), ("a", "a")])
def test_an_edited_class_is_scored_again_wherever_its_embeddings_are_stored(
    place, monkeypatch, edited, encoder, stores
):
    before, after = (None if store is None else place / store for store in stores)
    edited("1")
    assert len(Outcome(place, monkeypatch, encoder, store=before).scored) == 3
    assert Outcome(place, monkeypatch, encoder, store=before).scored == []
    edited("60")
    moved = Outcome(place, monkeypatch, encoder, store=after)
    assert len(moved.scored) == 3
    assert all("now embeds otherwise" in line or "scored again" in line for line in moved.noticed)
    again = Outcome(place, monkeypatch, encoder, store=after)
    assert (again.scored, again.noticed) == ([], [])


@pytest.mark.parametrize("store", [None, "store"])
def test_an_edit_that_moves_nothing_scores_nothing_again(place, monkeypatch, edited, store):
    folder = store and place / store
    edited("1")
    first = Outcome(place, monkeypatch, store=folder)
    edited("1.0")
    again = Outcome(place, monkeypatch, store=folder)
    assert (again.scored, again.noticed, again.scores) == ([], [], first.scores)


@pytest.mark.parametrize("store", [None, "store"])
def test_samples_are_embedded_once_an_encoder_and_only_where_something_is_new(
    place, monkeypatch, store
):
    options = {"store": store and place / store, "seeds": (0, 1)}
    first = Plain()
    assert len(Outcome(place, monkeypatch, first, **options).scored) == 6
    assert sorted(first.sampled) == sorted(PROBE_SENTENCES)
    again = Plain()
    assert Outcome(place, monkeypatch, again, **options).scored == []
    assert not again.sampled and not again.calls, "its weights need not be loaded"
    on_another_machine(monkeypatch)
    elsewhere = Plain()
    assert Outcome(place, monkeypatch, elsewhere, **options).scored == []
    assert sorted(elsewhere.sampled) == sorted(PROBE_SENTENCES) and not elsewhere.calls
    if store:
        remembered = Plain()
        Outcome(place, monkeypatch, remembered, **options)
        assert not remembered.sampled, "the store knows that this machine embeds alike"


class Moved(Plain):
    """Embeds a share of each embedding's length away from what its fingerprint says."""

    def __init__(self, share: float = 0.0, dtype: str = "float32") -> None:
        super().__init__("moved", f"moved-{dtype}", d=32)
        self.share, self.dtype = share, dtype

    def encode(self, sentences: Sequence[str]) -> Array:
        rows = super().encode(sentences)
        turned = np.roll(rows, 1, axis=1) * np.where(np.arange(self.d) % 2, 1, -1).astype(
            np.float32
        )
        return rows + np.float32(self.share) * turned


@pytest.mark.parametrize(("dtype", "bound"), drift.MAX_DRIFT.items())
def test_results_are_compared_with_the_tolerance_of_the_store(place, monkeypatch, dtype, bound):
    Outcome(place, monkeypatch, Moved(dtype=dtype), store=None)
    on_another_machine(monkeypatch)
    assert Outcome(place, monkeypatch, Moved(0.5 * bound, dtype), store=None).scored == []
    assert len(Outcome(place, monkeypatch, Moved(2 * bound, dtype), store=None).scored) == 3


@given(st.integers(1, 1500), st.integers(0, 2**32 - 1), st.floats(1e-6, 1.0))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_sketch_moves_by_about_the_share_of_its_embedding(d, seed, share):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(5, d))
    moves = rng.normal(size=(5, d))
    moves *= (
        share
        * np.linalg.norm(rows, axis=1, keepdims=True)
        / np.linalg.norm(moves, axis=1, keepdims=True)
    )
    before, after = (
        shorten_embeddings(x.astype(np.float32)).astype(np.float64) for x in (rows, rows + moves)
    )
    assert before.shape == (5, SKETCH_SIZE)
    shares = np.linalg.norm(after - before, axis=1) / np.linalg.norm(before, axis=1)
    assert 0.5 * share < shares.max() < 4 * share


def test_a_result_of_an_earlier_version_is_believed_once_and_then_knows_its_code(
    place, monkeypatch, edited
):
    edited("1")
    encoders = ["edited_class:Own", "edited_class:Own+dimensions=2"]
    first = Outcome(place, monkeypatch, encoders=encoders, store=None)
    rewritten(place, lambda facts: facts.pop("origin"))
    items = {path: path.read_bytes() for path in place.glob("results/*/*.parquet")}
    on_another_machine(monkeypatch)
    believed = Outcome(place, monkeypatch, encoders=encoders, store=None)
    assert (believed.scored, believed.scores) == ([], first.scores)
    assert set(believed.noticed) == {score.NO_ORIGIN_NOTICE}
    assert {path: path.read_bytes() for path in place.glob("results/*/*.parquet")} == items
    again = Outcome(place, monkeypatch, encoders=encoders, store=None)
    assert (again.scored, again.noticed) == ([], [])
    edited("60")
    assert len(Outcome(place, monkeypatch, encoders=encoders, store=None).scored) == 6


def test_a_result_of_an_earlier_version_is_not_believed_where_embeddings_were_set_aside(
    place, monkeypatch
):
    Outcome(place, monkeypatch, Plain())
    rewritten(place, lambda facts: facts.pop("origin"))
    (record,) = place.rglob(METADATA_FILE)
    record.write_text(
        json.dumps({**json.loads(record.read_text()), "since": "2026-01-01T00:00:01+00:00"})
    )
    # The date, of which no more is read than that there is one, is long before that of the results.
    assert len(Outcome(place, monkeypatch, Plain()).scored) == 3
    assert Outcome(place, monkeypatch, Plain()).scored == []


@pytest.mark.parametrize(
    "origin", [None, 3, [], {"samples": 3}, {"samples": "AAAA"}, {"environment": "other"}]
)
def test_an_origin_that_is_none_is_that_of_no_encoder(place, monkeypatch, origin):
    Outcome(place, monkeypatch, Plain(), store=None)
    rewritten(place, lambda facts: facts.update(origin=origin))
    assert len(Outcome(place, monkeypatch, Plain(), store=None).scored) == 3


def test_embeddings_of_two_environments_and_one_that_came_back(place, monkeypatch):
    # A file that the class reads has changed, which nothing of its code says; the packages changed later.
    Outcome(place, monkeypatch, Moved())
    with monkeypatch.context() as later:
        on_another_machine(later)
        assert len(Outcome(place, monkeypatch, Moved(0.5)).scored) == 3
        rewritten(place, lambda facts: None)
    assert Outcome(place, monkeypatch, Moved(0.5)).scored == [], "of the stored embeddings"
    Outcome(place, monkeypatch, Moved(), results_folder=place / "first", store=None)
    for path in place.glob("first/*/*"):
        (place / "results" / path.relative_to(place / "first")).write_bytes(path.read_bytes())
    assert len(Outcome(place, monkeypatch, Moved(0.5)).scored) == 3, (
        "made in this environment, of other embeddings"
    )


class Served(Plain):
    """An encoder of which each sentence costs."""

    def embed_into(self, sentences: Sequence[str], keep: Any) -> None:
        keep(np.arange(len(sentences)), self.encode(sentences))

    def count_tokens(self, sentences: Sequence[str]) -> int:
        return len(sentences)


def over_served(kind: str, served: Served) -> Any:
    variant = VariantEncoder(served, Variant(dimensions=2), [], name="short")
    whitening = WhiteningMethod(2, normalise=True)
    return {
        "itself": served,
        "variant": variant,
        "whitened": PostProcessed(served, whitening, name="white", fit="target"),
        "whitened variant": PostProcessed(variant, whitening, name="white", fit="target"),
    }[kind]


@pytest.mark.parametrize("kind", ["itself", "variant", "whitened", "whitened variant"])
@pytest.mark.parametrize("store", [None, "store"])
def test_no_samples_are_sent_to_a_server(place, monkeypatch, kind, store):
    monkeypatch.setattr(provenance, "is_own_class", lambda made: True)
    folder, served = store and place / store, Served()
    Outcome(place, monkeypatch, over_served(kind, served), store=folder)
    assert served.calls and not served.sampled
    on_another_machine(monkeypatch)
    again = Outcome(place, monkeypatch, over_served(kind, Served()), store=folder)
    assert (again.scored, again.noticed) == ([], []) and "origin" not in again.results[0].run


def test_without_a_fingerprint_nothing_is_recorded_or_sampled(place, monkeypatch):
    nameless = Plain("nameless", None)
    found: list[Result] = Outcome(place, monkeypatch, nameless).results
    assert not nameless.sampled and all("origin" not in result.run for result in found)


def test_what_made_a_result_is_outside_of_what_is_compared(place, monkeypatch):
    Outcome(place, monkeypatch, Plain(), store=None)
    before = outside_run(place / "results")
    on_another_machine(monkeypatch)
    Outcome(place, monkeypatch, Plain(), results_folder=place / "elsewhere", store=None)
    assert outside_run(place / "elsewhere") == before
    origins = [
        {result.run["origin"]["environment"] for result in read_states(place / folder).results}
        for folder in ("results", "elsewhere")
    ]
    assert [len(each) for each in origins] == [1, 1] and origins[0] != origins[1]


@pytest.mark.parametrize(
    ("state", "folder", "is_taken"),
    [(None, "other", True), (None, "own", False), (None, None, False), ("s", "own", False)],
)
def test_encoders_without_fingerprint_are_told_apart_by_their_folders(
    tmp_path, state, folder, is_taken
):
    result = make_result("mine", fingerprint=state, run={"folder": folder})
    write_result(result, tmp_path)

    class Unknown:
        name = "mine"
        fingerprint = None

        def encode(self, sentences):
            return np.ones((len(sentences), 2), dtype=np.float32)

    own = NamedEncoder(name="mine", encoder=Unknown(), folder_digest="own")
    assert score.is_name_taken(tmp_path, "mine", own) is is_taken
