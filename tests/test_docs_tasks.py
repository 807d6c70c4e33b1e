"""docs/tasks.md is all that a task card may say, and no more: keys, readers, parameters, options; what docs/training.md names is there."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import msgspec
import pytest

from stsbench.core.cards import FileSection, FileSource, HubSource, SplitSection, Suite, TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.data.readers.registry import READERS
from stsbench.data.task import load_task
from stsbench.evaluators.registry import EVALUATORS

TEXT = (Path(__file__).parents[1] / "docs" / "tasks.md").read_text(encoding="utf-8")
GIVEN = {"files", "split", "protocol"}
"""What stsbench itself hands to readers and evaluators."""


def tables(heading: str) -> list[list[list[str]]]:
    """The tables of a section: their rows, without the head."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"(?:^\|.*\|\n)+", section, re.M)
    return [
        [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()[2:]] for block in blocks
    ]


def keys(rows: list[list[str]]) -> dict[str, str]:
    found = {row[0].strip().strip("`"): row[1].strip() for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize(
    ("heading", "at", "record"),
    [
        ("The card", 0, TaskCard),
        ("`[splits.NAME]`", 0, SplitSection),
        ("`[local]`", 0, FileSource),
        ("`[local]`", 1, FileSection),
        ("`[hub]`", 0, HubSource),
        ("Suites", 0, Suite),
    ],
)
def test_every_key_of_a_card_is_in_the_page_and_the_reverse(heading, at, record):
    told = keys(tables(heading)[at])
    fields = {field.name: field for field in msgspec.structs.fields(record)}
    assert set(told) == set(fields)
    assert {name for name, default in told.items() if default == "required"} == {
        name for name, field in fields.items() if field.required
    }
    # Defaults that are values, written as TOML.
    values = {name: default.strip("`") for name, default in told.items() if default.startswith("`")}
    assert values == {name: msgspec.json.encode(fields[name].default).decode() for name in values}


def parameters(function: object) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters  # type: ignore[arg-type]
    return {name: one for name, one in found.items() if name not in GIVEN}


def test_every_reader_and_its_parameters_are_in_the_page_and_the_reverse():
    readers, params = tables("Readers")
    told = {row[0].strip().strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in readers}
    told = {name: told.get(next(iter(own), ""), own) for name, own in told.items()}  # "as `table`"
    assert told == {name: set(parameters(READERS.load(name))) for name in READERS.table}
    assert set(keys(params)) == set().union(*told.values())


def test_every_option_of_an_evaluator_is_in_the_page_and_the_reverse():
    probe, retrieval = map(keys, tables("`[options]`"))
    code = {name: set(parameters(EVALUATORS.load(name))) for name in EVALUATORS.table}
    assert code == {
        "probe": set(probe),
        "retrieval": set(retrieval),
        "sts": set(),
        "relatedness": set(),
        "contrast": set(),
    }


def test_every_evaluator_says_which_splits_it_needs():
    assert set(keys(tables("The card")[1])) == set(EVALUATORS.table)


def test_the_first_card_of_the_page_is_enough(tmp_path):
    place, card = re.search(r"^```toml\n# (\S+)\n(.*?)^```", TEXT, re.S | re.M).groups()  # type: ignore[union-attr]
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text(card, encoding="utf-8")
    (tmp_path / "pairs.csv").write_text(
        'sentence1,sentence2,score\n"a, b",c,1\nd,e,2.5\n', encoding="utf-8"
    )
    split = load_task("pairs", catalogue=Catalogue(tmp_path / "cards")).load()
    assert [list(side) for side in split.sides] == [["a, b", "d"], ["c", "e"]]


# What docs/training.md names is there.

TRAINING = (Path(__file__).parents[1] / "docs" / "training.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"(?:stsbench train|…) ([a-z][\w-]+)", TRAINING)))
)
def test_every_recipe_named_is_there(name):
    assert name in Catalogue().paths("trainers")


def test_every_value_that_an_ablation_replaces_is_one():
    from stsbench.cli.option_values import parse_assignments
    from stsbench.recipes.train_plan import read_recipe
    from stsbench.training.methods.registry import METHODS

    commands = re.findall(r"`stsbench train ([\w-]+)((?: --set (?:'[^']+'|[^ `]+))+)", TRAINING)
    methods = set()
    for recipe, given in commands:
        assign = parse_assignments([word for word in shlex.split(given) if word != "--set"])
        name, card = read_recipe(recipe, Catalogue(), params=assign)
        known = inspect.signature(METHODS.load(card.method)).parameters
        assert name.startswith(f"{recipe}+") and set(card.params) <= set(known)
        methods.add(card.method)
    assert {"simcse", "simcse_positives", "consert", "self_guided"} <= methods
