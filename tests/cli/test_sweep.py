"""``stsbench sweep`` on a terminal of 80 columns."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.recipes.train_plan import read_recipe
from tests.studies.conftest import CARD, developing, workshop

__all__ = ["developing", "workshop"]


@pytest.fixture
def call(stsbench, developing, masked_lm, tmp_path, monkeypatch) -> list[str | Path]:
    monkeypatch.setattr("stsbench.cli.progress.train_progress", _unseen)
    Path("heat.toml").write_text(CARD)
    return ["sweep", "heat.toml", "--base", masked_lm, "--cards", tmp_path / "mine"]


def _unseen(plan):
    from contextlib import nullcontext

    return nullcontext(lambda progress: None)


def test_a_sweep_prints_its_table_and_writes_trials_winner_and_figure(stsbench, call):
    code, out, err = stsbench(*call, "--plot", "heat.svg")
    assert code == 0
    head, rule, *rows, best, score_it, _, trials = [
        line for line in out.splitlines() if "less than seeds" not in line
    ] + [""]
    assert head.split() == ["temperature", "dev", "validation", "±", "seeds"] and set(rule) == {"─"}
    assert len(out.splitlines()[0]) <= 80
    assert [line.split(": ")[0] for line in err.splitlines()] == [
        f"[{place}/4] temperature={value}, seed {seed}"
        for place, (value, seed) in enumerate([(0.05, 1), (0.05, 2), (0.5, 1), (0.5, 2)], 1)
    ]
    table = list(csv.DictReader(Path("sweeps/heat/trials.csv").read_text().splitlines()))
    first, second = ([row["temperature"], row["seed"], row["state"]] for row in table[:2])
    assert (first, second) == (["0.05", "1", "scored"], ["0.05", "2", "scored"])
    card = Path("sweeps/heat/trainers/little-heat.toml")
    said = (
        f"its card: {card}",
        "score it: stsbench run little",
        "all trials: sweeps/heat/trials.csv",
    )
    assert all(one in out for one in said)
    assert read_recipe("little-heat", Catalogue("sweeps/heat"))[1].params["temperature"] in (
        0.05,
        0.5,
    )
    assert Path("heat.svg").read_text().count("seed 1") == 1


def test_json_has_every_trial_with_mean_and_deviation(stsbench, call):
    first = json.loads(stsbench(*call, "--json").out)
    assert [len(row["seeds"]) for row in first["trials"]] == [2, 2]
    best = first["trials"][0]
    scores = [one["score"] for one in best["seeds"].values()]
    assert best["mean"] == pytest.approx(sum(scores) / 2) and best["deviation"] >= 0
    assert first["winners"][0]["encoder"] == best["encoder"]
    assert json.loads(stsbench(*call, "--json").out) == first


def test_a_dry_run_says_how_many_what_is_known_and_how_long(stsbench, call, monkeypatch):
    counts = {
        "sweep": "Temperatures", "settings": 2, "seeds": 2, "complete": 0, "unfinished": 0, "missing": 4,
    }  # fmt: skip
    with monkeypatch.context() as without_model:
        # A forecast loads no model, so that it cannot train one.
        without_model.setattr("stsbench.recipes.trainers.make_learner", None)
        assert stsbench.json(*call, "--dry-run") == counts
        assert "time        unknown before one is complete" in stsbench.fine(*call, "--dry-run")
    assert not Path("runs").exists() and not Path("sweeps").exists()
    assert stsbench(*call).code == 0
    assert "complete    4" in stsbench.fine(*call, "--dry-run")
    assert "seconds" not in stsbench.json(*call, "--dry-run")
    Path("heat.toml").write_text(CARD.replace("[0.05, 0.5]", "[0.05, 0.5, 0.7]"))
    assert 0 < stsbench.json(*call, "--dry-run")["seconds"] < 600
    code, out, err = stsbench(*call, "--dry-run", "--text", "nowhere.txt")
    assert code == 2 and "missing     6" in out and "missing: " in err and "nowhere.txt" in err


def test_what_fails_is_told_and_the_exit_code_says_so(stsbench, call):
    Path("heat.toml").write_text(
        CARD.replace("temperature = [0.05, 0.5]", "learning_rate = [1e30, 0.001]")
    )
    code, out, err = stsbench(*call)
    assert code == 2 and err.count("stsbench: little+learning_rate=1e+30@") == 1
    assert "failed" in out and "best of little: learning_rate=0.001" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "rai"], "unknown place of a sweep 'rai'; did you mean 'ray'"),
        (["--cores", "2"], "--cores has no effect without --on ray"),
        (["--on", "ray", "--device", "cpu"], "--device has no effect beside --on"),
        (["--plot", "a.txt"], "--plot 'a.txt': give a file that ends in"),
        (["--dry-run", "--plot", "a.svg"], "--plot has no effect beside --dry-run"),
    ],
)
def test_a_mistake_is_one_line(stsbench, call, words, says):
    assert says in stsbench.refused(*call, *words)
