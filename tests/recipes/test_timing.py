"""What is timed, and what is reckoned of a few steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import stsbench.recipes.timing as timing_module
from stsbench.cards.catalogue import Catalogue
from stsbench.data.task import load_task
from stsbench.encoders.seams import FloatArray
from stsbench.recipes.timing import TimingPlan, measure
from tests.cli.little_recipe import RECIPE
from tests.training.students import sentences

WHITENED = """
name = "Counted, whitened"
kind = "whitening"
method = "Whitening"
backbone = "none"
supervision = "none"
overlap = "text"
paper = "ours"
license = "none"

[params]
base = "tests.recipes.test_timing:Counted"
"""


class Counted:
    """Remembers how many sentences it was given at a time."""

    name, fingerprint = "counted", "counted-1"
    calls: list[int] = []

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        self.calls.append(len(sentences))
        lengths = np.array([[len(s), s.count(" "), s.count("e"), 1.0] for s in sentences], dtype=np.float32)
        return lengths.reshape(-1, 4)


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    Counted.calls.clear()


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a recipe and an encoder that is fitted."""
    for kind, name, text in (("trainers", "little", RECIPE), ("baselines", "counted-white", WHITENED)):
        (tmp_path / "mine" / kind).mkdir(parents=True)
        (tmp_path / "mine" / kind / f"{name}.toml").write_text(text)
    (tmp_path / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine"


def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which every look takes a second."""
    clock = itertools.count()
    monkeypatch.setattr(timing_module, "perf_counter", lambda: float(next(clock)))


def test_inference_is_in_batches_and_at_once(monkeypatch):
    ticks(monkeypatch)
    plan = TimingPlan(
        encoders=["tests.recipes.test_timing:Counted"], recipes=[], task="quickstart-en", batch_size=7, rounds=2
    )
    timings = measure(plan)
    n = len(load_task("quickstart-en").texts(["test"], repeated=True))
    whole, rest = divmod(n, 7)
    a_round = [*[7] * whole, *([rest] if rest else []), n]
    # The first batch is not counted.
    assert Counted.calls == [7, *a_round, *a_round]
    (row,) = timings.rows
    assert (row.inference, row.at_once, row.size, row.training) == (whole + bool(rest), 1.0, 4, None)
    assert timings.sentences == n and timings.processor and timings.threads >= 1


def test_fitting_is_timed_anew_each_time(cards):
    plan = TimingPlan(
        encoders=["counted-white"], recipes=[], task="quickstart-en", rounds=1, catalogue=Catalogue([cards])
    )
    texts = load_task("quickstart-en").texts(repeated=True)
    for _ in range(2):
        Counted.calls.clear()
        (row,) = measure(plan).rows
        assert row.training is not None and row.training.seconds > 0
        assert row.training.texts == len(texts) == Counted.calls[1]
        assert row.method == "Whitening"


def plan_of_little(cards: Path, masked_lm: Path, *, steps: int | None = None) -> TimingPlan:
    return TimingPlan(
        encoders=[],
        recipes=["little"],
        base=str(masked_lm),
        task="quickstart-en",
        rounds=1,
        steps=steps,
        device="cpu",
        catalogue=Catalogue([cards]),
    )


def test_a_recipe_is_trained_whole(cards, masked_lm):
    plan = plan_of_little(cards, masked_lm)
    (row,) = measure(plan).rows
    assert row.training is not None
    assert (row.training.steps, row.training.measured, row.training.validations) == (12, 12, 3)
    assert (row.training.batch_size, row.training.corpus, row.size) == (8, "text.txt", 16)
    assert not list(cards.parent.glob("runs*"))


def test_the_whole_is_reckoned_from_some_steps(cards, masked_lm, monkeypatch):
    plan = plan_of_little(cards, masked_lm, steps=2)
    ticks(monkeypatch)
    (row,) = measure(plan).rows
    assert row.training is not None and row.training.measured == 2
    # One validation of a second, between two looks at the clock; both steps the two other seconds of three.
    assert row.training.seconds == 12 * 1.0 + 3 * 1.0


def test_early_stopping_is_off(cards, masked_lm):
    path = cards / "trainers" / "little.toml"
    path.write_text(path.read_text().replace("every = 4", 'every = 1\npatience = 1\npatience_counts = "declines"'))
    plan = plan_of_little(cards, masked_lm)
    (row,) = measure(plan).rows
    assert row.training is not None and row.training.measured == 12
