"""An ablation carried out: each run once, and a table in which each number stands in its row and column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stsbench.bench.progress import RunCallbacks
from stsbench.boards.render.formats import render
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.table import Table
from stsbench.core.catalogue import Catalogue
from stsbench.encoders.runs import TrainedRun
from stsbench.studies.reproduction import (
    Reproduction,
    load_ablation,
    make_comparison_table,
    plan_scorings,
)
from stsbench.studies.trials import TrialCallbacks, TrialEnvironment, TrialOutcome
from tests.made import make_result

MINE = """
recipe = "little"
note = "A note of mine."

[figure]
title = "Mine"
paper = "simcse"
table = "figure-9"
columns = [
  {task = "quickstart-en", protocol = "simcse", head = "Quick"},
  {task = "training", metric = "steps", head = "Steps"},
  {task = "training", metric = "uniformity", head = "Uniformity"},
]

[[rows]]
row = "as it is"

[[rows]]
row = "the same again"
set = {temperature = 0.05}

[[rows]]
row = "hotter"
set = {temperature = 0.5}

[[rows]]
row = "broken"
set = {similarity = "dott"}

[[rows]]
row = "nobody's"
why = "nobody knows how"

[[rows]]
row = "ready"
encoder = "ready"
"""
READY = """
name = "Ready"
kind = "tests.made_up:Encoder"
method = "none"
backbone = "none"
supervision = "none"
overlap = "none"
paper = "none"
license = "none"
"""


def cells(table: Table) -> dict[str, list[str]]:
    lines = [line for block in build_layout(table, "measured").blocks for line in block.lines]
    return {line.label: [cell.text for cell in line.cells] for line in lines}


@pytest.fixture
def mine(workshop: TrialEnvironment, tmp_path: Path) -> TrialEnvironment:
    for place, text in (("trainers/tables/mine.toml", MINE), ("baselines/ready.toml", READY)):
        (tmp_path / "mine" / place).parent.mkdir(exist_ok=True)
        (tmp_path / "mine" / place).write_text(text)
    return workshop


def test_an_ablation_is_trained_once_a_run_and_its_table_filled(
    mine, masked_lm, trained: Callable[[], list[str]]
):
    ablation = load_ablation("mine", mine.catalogue)
    failed: list[tuple[str, str]] = []

    def carry_out() -> Table:
        planned = Reproduction(
            ablation=ablation, environment=mine, base=str(masked_lm), seeds=[0, 1]
        )
        hearing = RunCallbacks(on_failure=lambda what, error: failed.append((what, str(error))))
        return planned.run_ablation(TrialCallbacks(scoring=hearing))

    shown = cells(carry_out())
    once = trained()
    assert len(once) == 6 and len({*once}) == 6
    assert [what for what, _ in failed] == ["little+similarity=dott@0", "little+similarity=dott@1"]
    assert list(shown) == ["as it is", "the same again", "hotter", "broken", "nobody's ×", "ready"]
    assert shown["as it is"] == shown["the same again"] != shown["hotter"]
    assert shown["broken"] == shown["nobody's ×"] == ["–", "–", "–"] and shown["ready"][1:] == [
        "–",
        "–",
    ]
    runs = [
        TrainedRun.read(Path(folder))
        for folder in sorted((mine.results.parent / "runs" / "little").iterdir())
    ]
    steps = [run.chosen.step for run in runs if run.chosen]
    assert shown["as it is"][1] == f"{sum(steps) / 2:.2f}"
    again = carry_out()
    assert cells(again) == shown and trained()[len(once) :] == [
        one for one in once if "dott" in one
    ]
    assert again.notes[0] == "× nobody's: nobody knows how" and "A note of mine." in again.notes
    assert "| hotter |" in render([again], "markdown", show="measured")


def had(**scores: float) -> list[TrialOutcome]:
    """Results of one run on development splits of transfer tasks, each with a development accuracy."""
    way = {"name": "senteval-fast"}
    found = {task: {"dev_accuracy": score, "accuracy": 0.1} for task, score in scores.items()}
    return [
        TrialOutcome(
            results=[
                make_result("x", task, protocol=way, scores=one) for task, one in found.items()
            ]
        )
    ]


def test_a_suite_s_development_mean_needs_all_its_tasks():
    catalogue = Catalogue()
    ablation = load_ablation("simcse-table-d2", catalogue)
    assert ("transfer", "senteval-fast") in [
        (one.tasks, one.protocol) for one in plan_scorings(ablation, catalogue)
    ]
    tasks = catalogue.suites()["transfer"].tasks
    whole = had(**{task: 0.5 + at / 10 for at, task in enumerate(tasks)})
    rows = [whole, had(mr=0.9), [], []]
    shown = cells(make_comparison_table(ablation, rows, catalogue))
    # Paper, here and Δ of STS-B's development split, then the same of the seven tasks.
    assert shown["without MLM"] == ["86.2", "–", "–", "85.8", "80.0", "-5.8"]
    assert shown["lambda 0.01"] == ["85.7", "–", "–", "86.1", "–", "–"]


def test_the_paper_s_numbers_stand_beside_and_no_distance_is_shown_to_small_recipes():
    catalogue = Catalogue()
    for small, columns in (
        (False, ["STS-B dev, paper", "STS-B dev, here", "Δ"]),
        (True, ["STS-B dev, paper", "STS-B dev, here"]),
    ):
        ablation = load_ablation("simcse-table-3", catalogue, small=small)
        made = make_comparison_table(ablation, [[]] * len(ablation.lines), catalogue)
        assert [column.head for column in made.columns] == columns
        printed = [row[0] for row in cells(made).values()]
        assert printed == ["71.1", "72.6", "81.1", "82.5", "81.4", "80.5", "71.0", "43.6"]
        assert made.caption == "Dropout rates (SimCSE, Table 3)"
