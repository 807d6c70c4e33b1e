from __future__ import annotations

from pathlib import Path

import pytest

import stsbench
from stsbench.api.calls import compare as compare_encoders
from stsbench.api.results import EncoderComparison, Results
from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import TestSettings
from tests.api.notebook import page_of
from tests.encoders.fakes import Plain

TASKS = "quickstart-en,quickstart-es-en"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    encoders = [Plain(), Plain("other", "o-1", d=3), Plain("third", "t-1", d=2)]
    stsbench.evaluate(encoders, TASKS, store=None).save(place)
    return place


def test_encoders_are_compared_by_name_by_folder_and_as_results(folder, tmp_path):
    held = stsbench.read_results(folder)
    mine = {name: [one for one in held if one.encoder == name] for name in ("plain", "other")}
    wanted = compare(mine, tasks=TASKS.split(","), settings=TestSettings(seed=3))
    ways = [
        compare_encoders("plain", "other", results=folder, tasks=TASKS, seed=3),
        compare_encoders(mine["plain"], Results(mine["other"]), tasks=TASKS, seed=3),
        Results([*mine["plain"], *mine["other"]]).compare(tasks=TASKS.split(","), seed=3),
    ]
    for found in ways:
        assert isinstance(found, EncoderComparison)
        assert list(found.differences) == list(wanted.differences)
    apart = compare_encoders(
        folder / "plain", str(folder / "other"), tasks=TASKS, results=tmp_path / "none", seed=3
    )
    assert [one.difference for one in apart.differences] == [
        one.difference for one in wanted.differences
    ]
    assert list(apart.encoders) == [str(folder / "plain"), str(folder / "other")]
    single = compare_encoders(mine["plain"][0], mine["other"][0])
    assert [one.task for one in single.differences] == ["quickstart-en"]
    mixed = compare_encoders("third", held[:2], results=folder)
    assert list(mixed.encoders) == ["third", held[0].encoder]
    with pytest.raises(StsbenchError, match="'plain' and 'other' have no task in common"):
        compare_encoders("plain", "other", results=folder, tasks="sts12")
    turned = compare_encoders(held[:2], "third", results=folder)
    assert list(turned.encoders) == [held[0].encoder, "third"]
    assert turned.differences[0].difference == -mixed.differences[0].difference


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("plain", "othr"),
            r"unknown encoder 'othr'; did you mean 'other' or 'third'\?; .* has results of ",
        ),
        (("plain", "plain"), "compare was given 'plain' twice"),
        (("plain",), "there is 'plain' alone"),
    ],
)
def test_wrong_names_are_told(folder, names, message):
    with pytest.raises(StsbenchError, match=message) as caught:
        compare_encoders(*names, results=folder)
    assert isinstance(caught.value, UnknownName) is ("othr" in names)


def test_a_comparison_is_shown_as_text_as_data_and_as_a_page(folder):
    found = compare_encoders("plain", "other", results=folder)
    assert repr(found).splitlines() == [*found.sentences, *found.notes]
    assert len(found.sentences) == 1
    frame = found.to_frame()
    assert list(frame.task) == ["quickstart-en", "quickstart-es-en", "mean of 2 tasks"]
    assert list(frame.difference) == [one.difference for one in found.differences]
    assert list(zip(frame.interval_low, frame.interval_high, strict=True)) == [
        d.interval for d in found.differences
    ]
    page = page_of(found)
    assert ">A = plain, B = other<" in page and "A = other" not in page
    assert "A = plain, B = other" in found.to_markdown() and r"\begin{tabular}" in found.to_latex()
    assert f">{100 * found.differences[0].scores[0]:.2f}</td>" in page
    assert page.count("<table>") == 1


def test_differences_are_drawn(folder):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    found = compare_encoders("plain", "other", "third", results=folder, all_pairs=True)
    figure = found.plot()
    (axes,) = figure.axes
    dots = {
        round(float(line.get_xdata()[0]), 6) for line in axes.lines if len(line.get_xdata()) == 1
    }
    assert dots == {round(100 * one.difference, 6) for one in found.differences}
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 3
