"""Pictures: what each analysis draws of tables, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stsbench.analysis.context import Tables
from stsbench.analysis.inside import TokenFrequency
from stsbench.analysis.mistakes import Mistakes
from stsbench.analysis.pairs import AlignmentAndUniformity, GoldAgainstCosine
from stsbench.analysis.robustness import EDITS, Robustness
from stsbench.analysis.space import Neighbours, SentenceMap, Spectrum
from stsbench.analysis.training import DomainShift
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain


def titles(chart: Any) -> list[str]:
    return [axes.get_title() for axes in chart.axes[:2]]


def groups(chart: Any) -> list[str]:
    return [label.get_text() for label in chart.axes[0].get_yticklabels()]


def texts(chart: Any) -> list[str]:
    return [text.get_text() for text in chart.axes[0].texts]


def first_line(chart: Any) -> list[float]:
    points: list[float] = chart.axes[0].lines[0].get_xdata().tolist()
    return points


def lines(chart: Any) -> int:
    return len(chart.axes[0].lines)


NUMBERS = {"encoder": "a", "alignment": 0.2, "uniformity": -2.0, "score": 0.8}
COST = {
    "encoder": "a",
    "slicing": "names",
    "kind": "none",
    "excess": 1.0,
    "excess_low": -1.0,
    "excess_high": 3.0,
}
BAND = {"encoder": "a", "norm": 2.0, **{f"distance_{k}": 3.0 for k in (3, 5, 7)}}


@pytest.mark.parametrize(
    ("analysis", "tables", "look", "seen"),
    [
        (AlignmentAndUniformity(), {"encoders": [NUMBERS], "training": [{**NUMBERS, "step": 1}] * 2}, titles, ["", "a, validations"]),
        (GoldAgainstCosine(), None, titles, ["plain", "other"]),
        # What is below a millionth of the largest is rounding.
        (Spectrum(), {"values": [{"encoder": "a", "index": at, "value": x} for at, x in ((1, 1.0), (2, 0.1), (3, 1e-9))]}, first_line, [1, 2]),
        (SentenceMap(above=2.5, pairs=4), None, lines, 4),
        (Neighbours(), None, texts, ["100.0", "13.2", "13.2", "100.0"]),
        (DomainShift(), None, groups, ["other"]),
        (Robustness(), None, groups, [f"{name} *" if edit.changes_meaning else name for name, edit in EDITS.items()]),
        (Mistakes(), {"slices": [COST, {**COST, "kind": "same"}]}, groups, ["names: none", "names: same"]),
        (TokenFrequency(picture="bands"), {"bands": [{**BAND, "from": at, "to": at + 1} for at in (0, 1)]}, texts, ["1.00"] * 8),
        (
            TokenFrequency(),
            {"removal": [{"encoder": "a", "removed": k, "score": 0.5, "low": 0.4, "high": 0.6} for k in (0, 1, 8)]},
            first_line,
            [0, 1, 8],
        ),
    ],
)  # fmt: skip
def test_a_picture_is_of_the_tables(
    analysis: Any, tables: Tables | None, look: Callable[[Any], Any], seen: Any
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    given = tables or analysis.tables(bed(Plain(), Plain("other", d=9)))
    chart = analysis.draw(given, "mine")
    assert look(chart) == seen
    written = chart.to_bytes("svg").decode()
    assert not any(row["sentence"] in written for row in given.get("neighbours", []))


@pytest.mark.parametrize(
    "analysis",
    [
        AlignmentAndUniformity(),
        GoldAgainstCosine(),
        Spectrum(),
        SentenceMap(above=2.5, pairs=4),
        Neighbours(),
        Robustness(),
        Mistakes(),
        DomainShift(),
    ],
    ids=lambda analysis: type(analysis).__name__,
)
def test_no_picture_holds_a_sentence(analysis: Any) -> None:
    matplotlib_text = pytest.importorskip("matplotlib.text", reason="needs the extra plots")
    context = bed(Plain(), Plain("other", d=9))
    chart = analysis.draw(analysis.tables(context), "title of the picture")
    texts_in_picture = [text.get_text() for text in chart.findobj(matplotlib_text.Text)]
    assert any(text.strip() for text in texts_in_picture)
    sentences = {sentence for sentence in context.loaded_task.texts() if len(sentence) > 3}
    assert sentences
    for text in texts_in_picture:
        assert not any(sentence in text for sentence in sentences)
