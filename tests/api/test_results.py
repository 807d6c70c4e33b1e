from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stsbench
from stsbench.api.results import FailedCell, Results, make_grid_columns
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError
from stsbench.results.groups import group_by_encoder
from stsbench.results.record import Result, items_path
from tests.api.notebook import page_of
from tests.cli.commands import Command
from tests.encoders.fakes import Plain
from tests.made import SIMCSE, make_result, read_items

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
TASKS = ["quickstart-en", "quickstart-es-en"]


@pytest.fixture
def two() -> Results:
    return stsbench.evaluate([Plain(), Plain("other", "o-1", d=3)], TASKS, store=None)


def path_of(result: Result) -> Path:
    assert result.path is not None
    return result.path


# --- a sequence ---


def test_it_is_a_sequence_that_does_not_change(two):
    assert len(two) == 4
    assert two[0].task == two[-1].task.replace("es-", "")
    assert isinstance(two[1:], Results) and len(two[1:]) == 3
    assert [result.encoder for result in reversed(two)] == ["other", "other", "plain", "plain"]
    assert two[2] in two and two.index(two[2]) == 2
    assert not hasattr(two, "append")
    with pytest.raises(IndexError):
        two[4]


def test_its_text_is_one_line(two):
    assert repr(two) == "<Results, 4 results: 2 encoders (plain, other) on 2 tasks>"
    assert repr(two[:1]) == "<Results, 1 result: 1 encoder (plain) on 1 task>"
    assert (
        repr(Results(failures=[FailedCell("plain on stsb", DataError("no data"))]))
        == "<Results, none, 1 failed>"
    )


def test_what_nothing_tells_apart_is_refused():
    first, second = (
        stsbench.evaluate(lambda texts, d=d: Plain(d=d).encode(texts), "quickstart-en", store=None)
        for d in (3, 4)
    )
    with pytest.raises(
        StsbenchError, match="two encoders are called 'lambda', .* give evaluate a name= for each"
    ):
        first + second
    assert len(first + first) == 2


# --- a frame ---


def test_a_frame_has_a_row_a_result(two):
    frame = two.to_frame()
    assert list(frame.encoder) == ["plain", "plain", "other", "other"]
    assert list(frame.score) == [result.score for result in two]
    assert [(row.low, row.high) for row in frame.itertuples()] == [
        result.interval for result in two
    ]
    assert set(frame.protocol) == {"simcse"}
    assert list(frame.n) == [300, 100, 300, 100]
    wide = two.to_frame(scores=True)
    assert list(wide["pearson.all"]) == [result.scores["pearson.all"] for result in two]
    assert set(frame.columns) < set(wide.columns)
    assert list(Results().to_frame().columns) == list(frame.columns)


# --- the grid ---


def cells(*results: Any) -> dict[str, Any]:
    columns = make_grid_columns(results, Catalogue())
    (runs,) = group_by_encoder(results)
    return {column.head: column.make_cell(runs.results) for column in columns}


def test_a_suite_has_its_mean_and_another_choice_one_of_its_own():
    found = cells(*(make_result(task=task, score=at / 10) for at, task in enumerate(STS)))
    assert list(found) == [*STS, "mean of STS"]
    assert found["mean of STS"].score == pytest.approx(0.3)
    assert found["mean of STS"].interval is None
    some = cells(*(make_result(task=task, score=0.5) for task in STS[:3]))
    assert list(some) == [*STS[:3], "mean of 3"]


def test_other_protocols_and_splits_have_no_common_mean():
    mean = {**SIMCSE, "name": "mean", "aggregation": "mean"}
    found = cells(make_result(score=0.5), make_result(task="sts13", score=0.5, protocol=mean))
    assert list(found) == ["sts12", "sts13"]
    validation = make_result(score=0.3, split="validation")
    found = cells(make_result(score=0.5), make_result(score=0.4, protocol=mean), validation)
    assert list(found) == ["sts12, simcse", "sts12, mean", "sts12 (validation)"]


def test_two_usual_splits_of_a_task_have_two_heads():
    found = cells(make_result(score=0.5), make_result(score=0.4, split="all"))
    assert {head: cell.score for head, cell in found.items()} == {
        "sts12 (test)": 0.5,
        "sts12 (all)": 0.4,
    }


def test_versions_of_a_task_share_no_column_and_no_mean():
    results = [make_result("a", "sts12", data="d" * 64), make_result("b", "sts12", data="e" * 64)]
    results.append(make_result("b", "sts13"))
    heads = [column.head for column in make_grid_columns(Results(results), Catalogue())]
    assert heads == [
        "sts12, data and card dddddd cccccc",
        "sts12, data and card eeeeee cccccc",
        "sts13",
    ]


def test_seeds_are_put_together():
    seeds = [make_result("a", train_seed=seed, score=score) for seed, score in ((1, 0.5), (2, 0.7))]
    cell = cells(*seeds)["sts12"]
    assert (cell.score, cell.deviation) == (pytest.approx(0.6), pytest.approx(math.sqrt(0.02)))
    # A mean over tasks of other seeds is none.
    more = [make_result("a", task="sts13", train_seed=seed, score=0.5) for seed in (1, 3)]
    assert cells(*seeds, *more)["mean of 2"] is None


def test_the_same_results_twice_are_no_seeds(two):
    columns = make_grid_columns(two, Catalogue())
    once, twice = (
        [column.make_cell(results.runs[0].results) for column in columns]
        for results in (two, two + two)
    )
    assert once == twice


# --- in a notebook ---


def test_a_notebook_shows_encoders_by_tasks(two):
    page = page_of(two)
    for result in two:
        low, high = result.interval
        assert f">{100 * result.score:.2f}<br>" in page
        assert f">{100 * low:.2f} to {100 * high:.2f}</span>" in page
    assert ">mean of 2</th>" in page
    assert page.count("<tr>") == 3
    # Colours are those of the page, light or dark.
    assert not {"color:", "background", "<style", "#fff"} & {
        word for word in ("color:", "background", "<style", "#fff") if word in page
    }


def test_names_are_text_in_a_notebook():
    name = "<script>alert('$x$')</script>\u202e"
    page = page_of(
        Results([make_result(name, score=0.5)], failures=[FailedCell("<b>", DataError("<i>"))])
    )
    assert "<script" not in page and "<b>" not in page and "<i>" not in page
    assert "&lt;script&gt;alert(&#x27;&#36;x&#36;&#x27;)&lt;/script&gt;\\u202e" in page
    assert "failed: &lt;b&gt;: &lt;i&gt;" in page


# --- files ---


def test_saved_results_are_those_of_a_run(two, tmp_path):
    files = two.save(tmp_path / "results")
    again = stsbench.read_results(tmp_path / "results")
    assert sorted(map(path_of, again)) == sorted(files)
    by_cell = {(result.encoder, result.task): result for result in again}
    for result in two:
        same = by_cell[result.encoder, result.task]
        assert (same.score, same.items, same.run) == (result.score, result.items, result.run)
        np.testing.assert_array_equal(
            read_items(path_of(same))["similarity"], result.per_item["similarity"]
        )
    # What was read is written again with its columns, or without where they are gone.
    items_path(files[0]).unlink()
    with pytest.warns(UserWarning, match=": 1 of 4 results, "):
        copies = stsbench.read_results(tmp_path / "results").save(str(tmp_path / "copy"))
    assert sum(items_path(copy).exists() for copy in copies) == 3
    assert [copy.read_bytes() for copy in copies] == [
        path_of(result).read_bytes() for result in again
    ]


def test_saved_files_are_those_of_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran = Command(capsys)("run", "minilm", "--tasks", "quickstart-en")
    (file,) = stsbench.evaluate("minilm", "quickstart-en").save("mine")
    other = Path("results", *file.parts[1:])
    assert ran.code == 0
    assert items_path(file).read_bytes() == items_path(other).read_bytes()
    first, second = (json.loads(path.read_text()) for path in (file, other))
    assert {key for key in first if first[key] != second[key]} <= {"run", "digest"}
    assert first.keys() == second.keys()


# --- compared and drawn ---


def test_scores_are_drawn(two):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    figure = two.plot()
    (axes,) = figure.axes
    dots = {round(float(line.get_xdata()[0]), 6) for line in axes.lines if len(line.get_xdata())}
    assert {round(100 * result.score, 6) for result in two} < dots
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [*TASKS, "mean of 2"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain", "other"]
    assert two[:2].plot().get_suptitle() == "plain"
