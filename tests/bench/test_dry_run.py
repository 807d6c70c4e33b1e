"""What a run would do is what it then does, and telling it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stsbench.bench.cells import plan_cells
from stsbench.bench.dry_run import EncoderForecast, forecast_run
from stsbench.bench.listener import Listener
from stsbench.bench.run import run
from stsbench.encoders.fitted.fitted import PostProcessed
from stsbench.encoders.whitening import WhiteningMethod
from tests.encoders.fakes import Plain
from tests.own_tasks import place, plan_of, written

__all__ = ["place"]


def forecast(settings: Any) -> EncoderForecast:
    (found,) = forecast_run(settings, Listener())
    return found


def embedded(encoder: Plain) -> int:
    return sum(map(len, encoder.calls))


def test_it_tells_what_the_run_then_does_and_writes_nothing(place, monkeypatch):
    encoder = Plain()
    settings = plan_of(place, encoder, monkeypatch, seeds=(0, 1))
    before = written(place)
    first = forecast(settings)
    assert (first.part.name, first.part.done, first.part.missing) == ("plain", [], plan_cells(settings))
    assert written(place) == before and encoder.sampled == []
    assert first.seconds is None and first.embedding is not None
    encoder.calls.clear()
    list(run(settings, Listener()))
    assert first.part.to_embed == embedded(encoder) == 30 + 62
    held = written(place)
    after = forecast(settings)
    assert (after.part.done, after.part.missing, after.part.to_embed, after.seconds) == (plan_cells(settings), [], 0, 0)
    assert written(place) == held


def test_part_of_it_is_done(place, monkeypatch):
    list(run(plan_of(place, Plain(), monkeypatch, tasks="pets"), Listener()))
    more = forecast(plan_of(place, Plain(), monkeypatch, tasks="pets,plants", seeds=(0, 1)))
    assert [(cell.task, cell.seed) for cell in more.part.done] == [("pets", 0)]
    assert [(cell.task, cell.seed) for cell in more.part.missing] == [("pets", 1), ("plants", 0), ("plants", 1)]
    assert (more.part.to_embed, more.seconds) == (20, None)
    # Another encoder's results of the same task and protocol tell how long scoring takes.
    other = forecast(plan_of(place, Plain("other", "other-1"), monkeypatch, tasks="pets"))
    assert other.seconds is not None and other.seconds >= 0
    assert forecast(plan_of(place, Plain(), monkeypatch, tasks="pets", protocol="wmean")).seconds is None
    fresh = forecast(plan_of(place, Plain(), monkeypatch, tasks="pets", fresh=True))
    assert (len(fresh.part.done), len(fresh.part.missing), fresh.part.to_embed) == (0, 1, 0)


def test_encoders_that_are_fitted_on_texts(place, monkeypatch):
    base = Plain()
    whitened = PostProcessed(base, WhiteningMethod(3, normalise=True), name="whitened", fit="target")
    settings = plan_of(place, whitened, monkeypatch)
    first = forecast(settings)
    assert first.embedding is not None and not (place / "cache").exists()
    base.calls.clear()
    list(run(settings, Listener()))
    assert first.part.to_embed == embedded(base) > 92
    assert forecast(settings).part.missing == []
    monkeypatch.setattr("tests.own_tasks.ENCODER", Fitted())
    fitted = forecast(settings)
    assert (fitted.part.to_embed, fitted.embedding) == (None, None)


def test_time_of_embedding_is_that_of_a_sample(place, monkeypatch):
    now = [0.0]

    class Timed(Plain):
        """Takes a hundredth of a second a sentence, and five seconds to begin with."""

        def encode(self, sentences: Sequence[str]) -> Any:
            now[0] += 0.01 * len(sentences) + (5.0 if not self.calls else 0.0)
            return super().encode(sentences)

    monkeypatch.setattr("stsbench.bench.dry_run.time.perf_counter", lambda: now[0])
    encoder = Timed()
    settings = plan_of(place, encoder, monkeypatch)
    assert forecast(settings).embedding == pytest.approx(0.92)
    assert [sum(map(len, encoder.calls[:2])), len(encoder.calls) > 3] == [1 + 16, True]
    encoder.calls.clear()
    monkeypatch.setattr("stsbench.bench.dry_run.PROBE_SECONDS", 0.1)
    assert forecast(settings).embedding == pytest.approx(0.92)
    assert embedded(encoder) == 1 + 16
    list(run(settings, Listener()))
    encoder.calls.clear()
    assert forecast(settings).embedding == 0.0 and encoder.calls == []


def test_an_encoder_that_fails_is_told_before_it_is_run(place, monkeypatch):
    broken = Plain()
    monkeypatch.setattr(broken, "encode", lambda sentences: "nothing")
    told: list[str] = []
    settings = plan_of(place, broken, monkeypatch)
    (found,) = forecast_run(settings, Listener(failed=lambda what, error: told.append(what)))
    assert (told, found.embedding, len(found.part.missing)) == (["plain"], None, 3)


class Fitted:
    """A user's own, which only fitting makes an encoder."""

    name, fingerprint = "fitted", "fitted-1"

    def encode(self, sentences: Sequence[str]) -> Any:
        raise AssertionError("nothing is embedded")

    fit_texts = encode


def test_a_damaged_store_is_left_as_it_is(place, monkeypatch):
    settings = plan_of(place, Plain(), monkeypatch)
    list(run(settings, Listener()))
    block: Path = next((place / "cache").rglob("*.npy"))
    block.write_bytes(block.read_bytes()[:-4])
    held = written(place)
    fresh = plan_of(place, Plain(), monkeypatch, fresh=True)
    assert forecast(fresh).part.to_embed == 92
    assert written(place) == held


def test_what_cannot_be_had_is_told_and_the_rest_shown(place, monkeypatch):
    (place / "data" / "pets.tsv").unlink()
    told: list[str] = []
    settings = plan_of(place, Plain(), monkeypatch, encoders=["no-such-encoder", "tests.own_tasks:ENCODER"])
    (found,) = forecast_run(settings, Listener(failed=lambda what, error: told.append(what)))
    assert [cell.task for cell in found.part.missing] == ["plants", "stones"]
    assert told == ["no-such-encoder", "pets"]
