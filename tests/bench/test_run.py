"""How a run's work is done: each task read once, each encoder's sentences embedded once, cells in their order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stsbench.bench.forecast import EncoderForecast, forecast_run
from stsbench.bench.plan import EncoderPlan, RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import RunContext, run, run_locally
from stsbench.data.task import load_split
from stsbench.encoders.fitted import PostProcessed
from stsbench.encoders.whitening import WhiteningMethod
from stsbench.results.record import Result
from tests.encoders.fakes import Plain
from tests.own_tasks import TASKS, outside_run, place, plan_of, telling, written

__all__ = ["place"]

FIRST, SECOND, THIRD = Plain("first", "first-1"), Plain("second", None), Plain("second", None)
BOTH = ("tests.bench.test_run:FIRST", "tests.bench.test_run:SECOND")
SEEDS = (0, 1, 2)


def settings_of(place: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> RunPlan:
    monkeypatch.setattr("tests.bench.test_run.FIRST", Plain("first", "first-1"))
    monkeypatch.setattr("tests.bench.test_run.SECOND", Plain("second", None))
    return plan_of(place, Plain(), monkeypatch, **{"encoders": BOTH, "seeds": SEEDS, **options})


@pytest.mark.parametrize("store", ["default", None])
def test_tasks_are_read_once_and_sentences_embedded_once(place, monkeypatch, store):
    reads: Counter[tuple[str, str]] = Counter()

    def counted(name: str, card: Any, split: str, **options: Any) -> Any:
        reads[name, split] += 1
        return load_split(name, card, split, **options)

    monkeypatch.setattr("stsbench.data.task.load_split", counted)
    scored: list[str] = []
    settings = settings_of(place, monkeypatch, store=store)
    results = list(run(settings, RunCallbacks(on_scoring=scored.append)))
    order = [
        (encoder, task, seed) for encoder in ("first", "second") for task in TASKS for seed in SEEDS
    ]
    assert [(one.encoder, one.task, one.eval_seed) for one in results] == order
    assert scored == [task for _, task, _ in order]
    # The other split of a task of one's own is read to find copies of test items in it.
    assert reads == {(task, split): 1 for task in TASKS for split in ("test", "validation")}
    for encoder in (FIRST, SECOND):
        embedded = Counter(text for call in encoder.calls for text in call)
        assert len(embedded) == 92 and set(embedded.values()) == {1}
    # Only the first seed of a task embedded something.
    pets = [one for one in results if one.task == "pets" and one.encoder == "second"]
    assert [(one.run["encoded"], one.run["from_store"]) for one in pets] == [
        (60, 0),
        (0, 60),
        (0, 60),
    ]


def test_two_that_nothing_tells_apart_do_not_become_one(place, monkeypatch):
    monkeypatch.setattr("tests.bench.test_run.SECOND", Plain("second", None))
    both = ("tests.bench.test_run:SECOND", "tests.bench.test_run:THIRD")
    failures, listener = telling()
    assert len(list(run(plan_of(place, Plain(), monkeypatch, encoders=both), listener))) == len(
        TASKS
    )
    assert (
        len(failures) == 1
        and "two of the encoders are called 'second'; name each by `names`" in failures[0]
    )


def test_what_a_seed_lacks_is_made_alone(place, monkeypatch):
    list(run(settings_of(place, monkeypatch, seeds=(0, 2)), RunCallbacks()))
    scored: list[str] = []
    settings = settings_of(place, monkeypatch, encoders=BOTH[:1])
    results = list(run(settings, RunCallbacks(on_scoring=scored.append)))
    assert scored == list(TASKS)
    assert [one.eval_seed for one in results] == [0, 1, 2] * 3
    assert FIRST.calls == []


def test_cells_carried_out_apart_make_the_same_results(place, monkeypatch):
    list(run(settings_of(place, monkeypatch, results_folder=place / "whole"), RunCallbacks()))

    def scattered(work: RunContext, parts: Sequence[EncoderPlan]) -> Iterator[Result]:
        for part in reversed(parts):
            for cell in reversed(part.cells):
                yield from run_locally(work, [dataclasses.replace(part, cells=[cell])])

    settings = settings_of(place, monkeypatch, store=place / "another")
    assert len(list(run(settings, RunCallbacks(), executor=scattered))) == len(settings.cells) == 18
    assert outside_run(place / "results") == outside_run(place / "whole")


def forecast(settings: Any) -> EncoderForecast:
    (found,) = forecast_run(settings, RunCallbacks())
    return found


def embedded(encoder: Plain) -> int:
    return sum(map(len, encoder.calls))


def test_it_tells_what_the_run_then_does_and_writes_nothing(place, monkeypatch):
    encoder = Plain()
    settings = plan_of(place, encoder, monkeypatch, seeds=(0, 1))
    before = written(place)
    first = forecast(settings)
    assert (
        first.encoder_plan.name,
        first.encoder_plan.current_results,
        first.encoder_plan.missing_cells,
    ) == ("plain", {}, settings.cells)
    assert written(place) == before and encoder.sampled == []
    assert first.scoring_seconds is None and first.embedding_seconds is not None
    encoder.calls.clear()
    list(run(settings, RunCallbacks()))
    assert first.encoder_plan.sentences_to_embed == embedded(encoder) == 30 + 62
    # Verdicts on known results are kept where they can be made again.
    forecast(settings)
    held = written(place)
    after = forecast(settings)
    assert (
        list(after.encoder_plan.current_results),
        after.encoder_plan.missing_cells,
        after.encoder_plan.sentences_to_embed,
        after.scoring_seconds,
    ) == (
        settings.cells,
        [],
        0,
        0,
    )
    assert written(place) == held


def test_part_of_it_is_done(place, monkeypatch):
    list(run(plan_of(place, Plain(), monkeypatch, tasks="pets"), RunCallbacks()))
    more = forecast(plan_of(place, Plain(), monkeypatch, tasks="pets,plants", seeds=(0, 1)))
    assert [(cell.task, cell.seed) for cell in more.encoder_plan.current_results] == [("pets", 0)]
    assert [(cell.task, cell.seed) for cell in more.encoder_plan.missing_cells] == [
        ("pets", 1),
        ("plants", 0),
        ("plants", 1),
    ]
    assert (more.encoder_plan.sentences_to_embed, more.scoring_seconds) == (20, None)
    # Another encoder's results of the same task and protocol tell how long scoring takes.
    other = forecast(plan_of(place, Plain("other", "other-1"), monkeypatch, tasks="pets"))
    assert other.scoring_seconds is not None and other.scoring_seconds >= 0
    assert (
        forecast(
            plan_of(place, Plain(), monkeypatch, tasks="pets", protocol="wmean")
        ).scoring_seconds
        is None
    )
    fresh = forecast(plan_of(place, Plain(), monkeypatch, tasks="pets", fresh=True))
    assert (
        len(fresh.encoder_plan.current_results),
        len(fresh.encoder_plan.missing_cells),
        fresh.encoder_plan.sentences_to_embed,
    ) == (0, 1, 0)


def test_encoders_that_are_fitted_on_texts(place, monkeypatch):
    base = Plain()
    whitened = PostProcessed(
        base, WhiteningMethod(3, normalise=True), name="whitened", fit="target"
    )
    settings = plan_of(place, whitened, monkeypatch)
    first = forecast(settings)
    assert first.embedding_seconds is not None and not (place / "cache").exists()
    base.calls.clear()
    list(run(settings, RunCallbacks()))
    assert first.encoder_plan.sentences_to_embed == embedded(base) > 92
    assert forecast(settings).encoder_plan.missing_cells == []
    monkeypatch.setattr("tests.own_tasks.ENCODER", Fitted())
    fitted = forecast(settings)
    assert (fitted.encoder_plan.sentences_to_embed, fitted.embedding_seconds) == (None, None)


def test_time_of_embedding_is_that_of_a_sample(place, monkeypatch):
    now = [0.0]

    class Timed(Plain):
        """Takes a hundredth of a second a sentence, and five seconds to begin with."""

        def encode(self, sentences: Sequence[str]) -> Any:
            now[0] += 0.01 * len(sentences) + (5.0 if not self.calls else 0.0)
            return super().encode(sentences)

    monkeypatch.setattr("stsbench.bench.forecast.time.perf_counter", lambda: now[0])
    encoder = Timed()
    settings = plan_of(place, encoder, monkeypatch)
    assert forecast(settings).embedding_seconds == pytest.approx(0.92)
    assert [sum(map(len, encoder.calls[:2])), len(encoder.calls) > 3] == [1 + 16, True]
    encoder.calls.clear()
    monkeypatch.setattr("stsbench.bench.forecast.MIN_SAMPLE_SECONDS", 0.1)
    assert forecast(settings).embedding_seconds == pytest.approx(0.92)
    assert embedded(encoder) == 1 + 16
    list(run(settings, RunCallbacks()))
    encoder.calls.clear()
    assert forecast(settings).embedding_seconds == 0.0 and encoder.calls == []


def test_an_encoder_that_fails_is_told_before_it_is_run(place, monkeypatch):
    broken = Plain()
    monkeypatch.setattr(broken, "encode", lambda sentences: "nothing")
    told: list[str] = []
    settings = plan_of(place, broken, monkeypatch)
    (found,) = forecast_run(
        settings, RunCallbacks(on_failure=lambda what, error: told.append(what))
    )
    assert (told, found.embedding_seconds, len(found.encoder_plan.missing_cells)) == (
        ["plain"],
        None,
        3,
    )


class Fitted:
    """A user's own, which only fitting makes an encoder."""

    name, fingerprint = "fitted", "fitted-1"

    def encode(self, sentences: Sequence[str]) -> Any:
        raise AssertionError("nothing is embedded")

    fit_texts = encode


def test_a_damaged_store_is_left_as_it_is(place, monkeypatch):
    settings = plan_of(place, Plain(), monkeypatch)
    list(run(settings, RunCallbacks()))
    block: Path = next((place / "cache").rglob("*.npy"))
    block.write_bytes(block.read_bytes()[:-4])
    held = written(place)
    fresh = plan_of(place, Plain(), monkeypatch, fresh=True)
    assert forecast(fresh).encoder_plan.sentences_to_embed == 92
    assert written(place) == held
