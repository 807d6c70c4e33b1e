"""Cards of ablations: every name in them is one, every value fits its recipe, and no row of a table is left out."""

from __future__ import annotations

import csv
import inspect
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from stsbench.boards.published.rows import FOLDER as PUBLISHED
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, Remedy, UnknownName
from stsbench.recipes.train_plan import TrainPlan
from stsbench.studies.reproduction import (
    ABLATIONS_FOLDER,
    Ablation,
    Reproduction,
    load_ablation,
    plan_scorings,
)
from stsbench.studies.trials import TrialEnvironment
from stsbench.training.methods.registry import METHODS

CARDS = Catalogue()
ALL = [(name, small) for name in CARDS.paths(ABLATIONS_FOLDER) for small in (False, True)]
WANTED = {
    *(f"simcse-table-{number}" for number in ("1", "2", "3", "4", "6", "7", "d1", "d2", "e1")), "simcse-figure-2",
    "consert-table-4", "consert-figure-5", "consert-figure-6", "consert-figure-7", "sgopt-table-5", "sgopt-ensemble",
    "declutr-figure-2", "declutr-figure-3", "sbert-table-6", "bert-flow-table-5", "simcse-section-4",
}  # fmt: skip


def plans(ablation: Ablation, **options: Any) -> list[list[TrainPlan]]:
    return Reproduction(
        ablation=ablation, environment=TrialEnvironment(results=Path(), catalogue=CARDS), **options
    ).plans_by_line


def test_the_papers_tables_are_there():
    assert set(CARDS.paths(ABLATIONS_FOLDER)) == WANTED


@pytest.mark.parametrize(("name", "small"), ALL)
def test_every_value_is_one_of_its_recipe_s(name, small):
    made = load_ablation(name, CARDS, small=small)
    known = {*CARDS.corpora()}
    for plan in chain(*plans(made)):
        card = plan.card
        taken = inspect.signature(METHODS.load(card.method)).parameters
        assert set(card.params) <= set(taken) and card.data.corpus in known
        assert not small or not card.base.model or plan.name.startswith("sbert-bert-base-stsb-only")


@pytest.mark.parametrize(("name", "small"), ALL)
def test_no_two_rows_of_one_ablation_are_the_same_training_but_by_intent(name, small):
    made = load_ablation(name, CARDS, small=small)
    runs: dict[str, list[str]] = {}
    for line, of_line in zip(made.lines, plans(made, seeds=[0]), strict=True):
        for card in (plan.card for plan in of_line):
            runs.setdefault(
                repr([card.base, card.data, card.student, card.training, card.params]), []
            ).append(line.label)
    shared = {tuple(labels) for labels in runs.values() if len(labels) > 1}
    assert shared <= SAME


SAME = {
    # What a table prints in several places, or a figure's parts have in common.
    ("SG-OPT (L_opt3)", "SG-OPT (tau 0.01, lambda 0.1)"),
    ("QQP (134k), 134k sampled", "QQP (134k)"),
    ("SBERT-NLI-base pooling mean", "SBERT-NLI-base features (u,v,|u-v|)"),
    ("two anchors", "two positives", "positives beside, across and within"),
    ("one anchor", "one positive", "positives beside the anchor"),
}


@pytest.mark.parametrize("name", sorted(WANTED))
def test_published_keys_are_rows_that_fill_a_column(name):
    with (PUBLISHED / "published.csv").open(newline="") as stream:
        printed: dict[str, set[str]] = {}
        for row in csv.DictReader(stream):
            printed.setdefault(f"{row['paper']}/{row['table']}/{row['row']}", set()).add(
                row["task"]
            )
    made = load_ablation(name, CARDS)
    tasks = {task for one in plan_scorings(made, CARDS) for task in str(one.tasks).split(",")} | {
        "training"
    }
    for line in made.lines:
        assert not line.published or printed[line.published] & tasks, line.label


def test_what_cannot_be_had_says_why():
    lines = [line for name, small in ALL for line in load_ablation(name, CARDS, small=small).lines]
    assert sum(bool(line.irreproducible_reason) for line in lines) > 5
    assert all(
        bool(line.irreproducible_reason) + bool(line.recipe) + bool(line.encoder) == 1
        for line in lines
    )
    assert all(not re.search(r"[.;]$", line.irreproducible_reason) for line in lines)


def card(folder: Path, text: str) -> Ablation:
    (folder / "trainers" / "tables").mkdir(parents=True)
    (folder / "trainers" / "tables" / "mine.toml").write_text(text)
    return load_ablation("mine", Catalogue(folder))


FIGURE = '[figure]\ntitle = "Mine"\npaper = "simcse"\ntable = "figure-9"\ncolumns = [{task = "sts12", protocol = "simcse"}]\n'


def test_an_empty_text_leaves_out_of_the_small_one_what_the_paper_s_has():
    lines = {line.label: line for line in load_ablation("simcse-table-7", CARDS, small=True).lines}
    assert lines["no hard negative"].replaced == {"views": "pairs"}
    papers = {line.label: line for line in load_ablation("simcse-table-7", CARDS).lines}
    assert papers["no hard negative"].replaced["where"] == "label = entailment"


def test_a_user_s_own_ablation_is_found_by_its_name(tmp_path):
    row = '[[rows]]\nrow = "mine"\nrecipe = "simcse-small"\nset = {temperature = 0.1}\n'
    made = card(tmp_path, f"{FIGURE}{row}")
    ((plan,),) = plans(made, base="b", seeds=[4], extra_values={"steps": 2})
    assert (plan.name, plan.seed, plan.base) == ("simcse-small+steps=2+temperature=0.1", 4, "b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'{FIGURE}[[rows]]\nrow = "a"\nrecipe = "simcse-smal"\n', "did you mean 'simcse-small'"),
        (f'{FIGURE}[[rows]]\nrow = "a"\nencoder = "minilmm"\n', "did you mean 'minilm'"),
        (f'{FIGURE}[[rows]]\nrow = "a"\nwhy = "b"\npublished = "simcse/table-3/p 0.3"\n', "did you mean 'simcse/table-3"),
        (f'{FIGURE}[[rows]]\nrow = "a"\n', "row 'a': names no recipe"),
        (f'{FIGURE}[[rows]]\nrow = "a"\nrecipe = "simcse-small"\nwhy = "b"\n', "give one of 'recipe', 'encoder' and 'why'"),
        (f'{FIGURE}[[rows]]\nrow = "a"\nrecip = "simcse-small"\n', "recip"),
        (f'table = "simcse-3"\n{FIGURE}[[rows]]\nrow = "a"\nwhy = "b"\n', "give either 'table' or .figure."),
        ('table = "simcse-3"\n[[rows]]\nrow = "p 0.3"\nwhy = "b"\n', "row 'p 0.3' is none of table 'simcse-3'; did you mean 'p 0"),
        ('table = "simcse-3"\n[[rows]]\nrow = "p 0.0"\nwhy = "b"\n', "no row for 'p 0.01' of table 'simcse-3'"),
        ('table = "simcse-33"\n[[rows]]\nrow = "p 0.0"\nwhy = "b"\n', "did you mean 'simcse-3"),
    ],
)  # fmt: skip
def test_a_wrong_card_is_one_line(tmp_path, text, says):
    with pytest.raises((CardError, UnknownName), match=says):
        card(tmp_path, text)


def test_an_unknown_ablation_offers_the_nearest():
    with pytest.raises(UnknownName, match="mean 'simcse-table-3'") as caught:
        load_ablation("simcse-3", CARDS)
    assert caught.value.remedy == Remedy("list", {"kind": "ablations"})
