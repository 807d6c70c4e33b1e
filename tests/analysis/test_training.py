"""Differences from the first encoder, by hand; seeds of one recipe are one encoder."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from scipy import stats

import stsbench
from stsbench.analysis.training import DomainShift, SweepCells, recipe_value
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, UnknownName
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain


def score(encoder: Plain) -> float:
    (subject,) = bed(encoder).subjects()
    return float(stats.spearmanr(subject.cosines, subject.pairs().gold).statistic)


def test_each_is_held_against_the_first():
    encoders = [Plain("target", d=4), Plain("other", d=9), Plain("third", d=16)]
    found = DomainShift().tables(bed(*encoders))["encoders"]
    scores = [score(encoder) for encoder in encoders]
    assert [row["score"] for row in found] == pytest.approx(scores)
    assert [row["change"] for row in found[1:]] == pytest.approx(
        [one - scores[0] for one in scores[1:]]
    )
    assert found[0]["change"] is None and found[0]["deviation"] is None
    assert all(row["low"] < row["change"] < row["high"] for row in found[1:])


def test_one_encoder_is_not_enough():
    with pytest.raises(DataError, match="shift compares encoders"):
        DomainShift().tables(bed(Plain()))


def results(**scores: Any) -> list[Any]:
    """Made results, only of what is read of them: encoders' names and scores."""

    class Made:
        def __init__(self, encoder: str, score: float) -> None:
            self.encoder, self.score = encoder, score

    return [Made(name, score) for name, given in scores.items() for score in given]


def swept(cells: dict[str, list[float]], **given: Any) -> Any:
    analysis = SweepCells(**given)
    return analysis, analysis.tables(bed(names=["simcse-small"], made=results(**cells)))


NUMBERS = {
    "simcse-small": [0.60, 0.62],
    "simcse-small+temperature=0.01": [0.5],
    "simcse-small+temperature=1.0": [0.4, 0.5, 0.6],
    "sg-small+temperature=1.0": [0.1],
}
PAIRS = {
    f"simcse-small+views=('{a}', '{b}')": [x]
    for a, b, x in (("cut", "cut", 0.1), ("cut", "mix", 0.2))
}


def test_scores_are_means_over_seeds_and_the_recipe_has_its_own_value():
    _, tables = swept(NUMBERS)
    rows = {row["value"]: row for row in tables["points"]}
    own = recipe_value("simcse-small", "temperature", Catalogue())
    assert (
        set(rows) == {own, 0.01, 1.0}
        and own == stsbench.Catalogue().recipe("simcse-small").params["temperature"]
    )
    assert (rows[1.0]["score"], rows[1.0]["seeds"]) == (pytest.approx(0.5), 3)
    assert rows[1.0]["deviation"] == pytest.approx(statistics.stdev([0.4, 0.5, 0.6]))
    assert rows[0.01]["deviation"] is None


def test_two_keys_or_two_values_make_a_grid():
    _, pairs = swept(PAIRS)
    assert [(row["row"], row["column"], row["score"]) for row in pairs["grid"]] == [
        ("cut", "cut", 0.1),
        ("cut", "mix", 0.2),
    ]
    assert pairs["points"] == []
    # Names have lists, as they are written in TOML.
    _, lists = swept({name.replace("(", "[").replace(")", "]"): x for name, x in PAIRS.items()})
    assert lists == pairs
    _, keys = swept({"simcse-small+batch_size=16+temperature=0.1": [0.3]})
    assert [(row["key"], row["row"], row["column"]) for row in keys["grid"]] == [
        ("batch_size x temperature", "16", "0.1")
    ]


def test_what_is_not_there_is_told():
    with pytest.raises(
        DataError,
        match="there are no results of 'simcse-small' with values replaced for quickstart-en",
    ):
        swept({"simcse-small": [0.5]})
    with pytest.raises(DataError, match="for quickstart-en are of one setting"):
        swept({"simcse-small+batch_size=16+steps=4+temperature=0.1": [0.5]})
    analysis, tables = swept({**NUMBERS, "simcse-small+batch_size=16": [0.3]})
    with pytest.raises(
        DataError,
        match="the results vary batch_size and temperature; draw one: `params=by=batch_size`",
    ):
        analysis.draw(tables, "mine")
    with pytest.raises(UnknownName, match="mean 'temperature'") as caught:
        SweepCells(by="temprature").draw(tables, "mine")
    assert (caught.value.kind, caught.value.name) == ("key of the sweep", "temprature")


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (NUMBERS, []),
        (PAIRS, ["10.0", "20.0"]),
        ({"simcse-small+pooling=max": [0.3], "simcse-small+pooling=cls": [0.4]}, []),
    ],
)
def test_the_picture_of_sweeps_is_of_what_was_replaced(cells, texts):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis, tables = swept(cells)
    chart = analysis.draw(tables, "mine")
    assert [text.get_text() for text in chart.axes[0].texts] == texts
    assert chart.to_bytes("svg")


def test_what_all_cells_have_replaced_alike_is_of_the_recipe_and_no_setting():
    sweep = {
        "simcse-small+steps=40+every=20": [0.72],
        "simcse-small+steps=40+every=20+temperature=0.2": [0.66],
        "simcse-small+steps=40+every=20+temperature=0.02": [0.73],
    }
    analysis, tables = swept(sweep)
    own = recipe_value("simcse-small", "temperature", Catalogue())
    assert {row["value"]: row["score"] for row in tables["points"]} == {
        own: 0.72,
        0.2: 0.66,
        0.02: 0.73,
    }
    assert {row["recipe"] for row in tables["points"]} == {
        "simcse-small+every=20+steps=40"
    } and tables["grid"] == []
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    assert "temperature" in str(analysis.draw(tables, "").get_supxlabel())
