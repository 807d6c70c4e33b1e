"""Boards with MTEB's scores: columns, means, marks and groups, and rows imported below a board of ours."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from stsbench.boards.mteb.board import MtebBoard, add_imported_rows
from stsbench.boards.mteb.scores import MtebResult, MtebResults
from stsbench.boards.render.formats import render
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.column_scores import is_scored_as_mteb
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.rows import AddedRow
from stsbench.boards.tables.table import Row, Table
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, ProtocolError, StsbenchError
from stsbench.data.mteb.facts import SplitAndSubset, read_mteb_facts
from stsbench.results.record import Result
from tests.made import SIMCSE, make_result

CATALOGUE = Catalogue()
SUITE = Suite(name="STS", tasks=["sts12", "sts13"])
ADDED = AddedRow(name="mine", label="", results=[])
WMEAN = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}


def scored(model: str, task: str, score: float, **changes: Any) -> MtebResult:
    """Return a result of MTEB's on all parts of a task, each with the same score."""
    facts = read_mteb_facts().tasks[task]
    parts = [SplitAndSubset(split, subset) for split in facts.splits for subset in facts.subsets]
    fields = {
        "revision": "rev",
        "data_revision": facts.revision,
        "mteb_version": "2.1.0",
        "scores": dict.fromkeys(parts, score),
        **changes,
    }
    return MtebResult(model=model, task=task, **fields)


def measured(encoder: str, task: str, score: float, **changes: Any) -> Result:
    scores = {"spearman.all": score, "pearson.all": score}
    return make_result(encoder, task, score, **{"scores": scores, **changes})


def make_boards(results: list[Result]) -> list[Table]:
    request = TableRequest(catalogue=CATALOGUE, results=results)
    return request.make_suite_boards("sts", SUITE, dict.fromkeys(SUITE.tasks, "test"))


def build_board(
    benchmark: str, *imported: MtebResult, results: list[Result] | None = None
) -> Table:
    board = MtebBoard(benchmark=benchmark, catalogue=CATALOGUE)
    return board.build("suite", benchmark, results or [], imported)


def find_row(table: Table, label: str) -> Row:
    return next(row for row in table.rows() if row.label == label)


def published_values(row: Row) -> dict[str, float]:
    return {key: cell.published.value for key, cell in row.cells.items() if cell.published}


def test_a_column_is_the_mean_over_subsets_and_splits():
    table = build_board(
        "MTEB(spa, v1)",
        scored(
            "org/name",
            "STSBenchmarkMultilingualSTS",
            0.0,
            scores={SplitAndSubset("dev", "es"): 0.5, SplitAndSubset("test", "es"): 0.7},
        ),
        scored(
            "org/name",
            "STS17",
            0.0,
            scores={SplitAndSubset("test", "es-es"): 0.2, SplitAndSubset("test", "es-en"): 0.4},
        ),
        scored("org/name", "STSES", 0.1),
        scored("org/name", "STS22", 0.9),
    )
    values = published_values(find_row(table, "org/name"))
    assert values["STSBenchmarkMultilingualSTS"] == pytest.approx(60)
    assert values["STS17"] == pytest.approx(30)
    # Each task counts once, however many subsets it has.
    assert values["average_exact"] == pytest.approx(fmean([60, 30, 10, 90]))


def test_a_task_without_one_of_its_subsets_has_no_score_and_the_row_no_mean():
    incomplete = scored("org/name", "STS17", 0, scores={SplitAndSubset("test", "es-es"): 0.2})
    values = published_values(
        find_row(
            build_board("MTEB(spa, v1)", incomplete, scored("org/name", "STSES", 0.1)), "org/name"
        )
    )
    assert values == {"STSES": 10.0}


def test_other_data_are_shown_and_marked_and_in_no_mean():
    table = build_board(
        "MTEB(deu, v1)",
        scored("org/name", "GermanSTSBenchmark", 0.8),
        scored("org/name", "STS22", 0.6, data_revision="6d1ba47164174a496b7fa5d3569dae26a6813b80"),
        scored(
            "org/other",
            "GermanSTSBenchmark",
            0.8,
            data_revision="e36907544d44c3a247898ed81540310442329e20",
        ),
        scored("org/other", "STS22", 0.6),
    )
    row = find_row(table, "org/name")
    assert published_values(row) == {"GermanSTSBenchmark": 80.0, "STS22": 60.0}
    assert row.cells["STS22"].misprint == (
        "data revision 6d1ba471, not known to hold the text of de9d86b3: in no average"
    )
    # An earlier revision that is known to hold the same text counts.
    assert published_values(find_row(table, "org/other"))["average"] == pytest.approx(70)
    text = render([table], "markdown")
    assert "60.00\\*" in text and "data revision 6d1ba471, not known to hold the text" in text


def test_public_scores_that_cannot_be_right_are_marked_and_in_no_mean():
    row = find_row(build_board("MTEB(eng, v2)"), "Gameselo/STS-multilingual-mpnet-base-v2")
    assert row.cells["STS17"].misprint == "divided by 100 twice, it seems: in no average"
    assert row.cells["STS12"].misprint == "" and "average" not in row.cells


def test_models_trained_on_a_task_are_marked_and_have_their_zero_shot_share():
    table = build_board("MTEB(deu, v1)")
    trained = find_row(table, "codefuse-ai/F2LLM-v2-8B")
    assert trained.overlap == "text"
    zero_shot = trained.cells["zero_shot"].published
    assert zero_shot and zero_shot.text == "50%"
    seen_three_of_nine = find_row(build_board("MTEB(eng, v2)"), "ByteDance-Seed/Seed1.5-Embedding")
    zero_shot = seen_three_of_nine.cells["zero_shot"].published
    assert zero_shot and zero_shot.text == "66%"
    assert find_row(table, "intfloat/multilingual-e5-small").overlap == ""


def test_a_measured_model_has_the_facts_of_its_row_of_mtebs():
    card = CATALOGUE.encoder_digest(CATALOGUE.encoder("minilm"))
    on_one_task = [
        measured("minilm", "stsb-raw", 0.8, encoder_card=card),
        measured("minilm+pooling=cls", "stsb-raw", 0.7),
        # Other weights under the card's parameters: what they were trained on is not known.
        measured("minilm+model=mine", "stsb-raw", 0.6),
    ]
    table = build_board("MTEB(eng, v2)", results=on_one_task)
    public = find_row(table, "sentence-transformers/all-MiniLM-L6-v2").cells
    for key in ("size", "zero_shot"):
        for name in ("minilm", "minilm+pooling=cls"):
            assert find_row(table, name).cells[key].measured == public[key].published
        assert key not in find_row(table, "minilm+model=mine").cells
    assert build_layout(table).heads[-2:] == ["Size", "Zero-shot"]
    assert any(note.startswith("zero-shot (the share") for note in table.notes)


def test_own_results_stand_in_the_same_columns():
    tasks = ("lcqmc", "pawsx-zh", "afqmc", "qbqtc", "atec", "bq", "cmteb-stsb")
    split_by_task = {task: CATALOGUE.task(task).score_split for task in tasks}
    # ATEC, BQ and STSB have a validation split, of which this benchmark takes the test split only.
    results = [
        measured("own", task, position / 10, split=split_by_task[task])
        for position, task in enumerate(tasks)
    ]
    table = build_board("MTEB(cmn, v1)", results=results)
    row = table.groups[0].rows[0]
    assert (table.groups[0].section, row.label) == ("Measured here", "own")
    values = {key: cell.measured.value for key, cell in row.cells.items() if cell.measured}
    assert values["PAWSX"] == pytest.approx(10) and values["average"] == pytest.approx(30)
    other_protocol = [measured("own", "lcqmc", 0.5, protocol={**SIMCSE, "similarity": "dot"})]
    assert build_board("MTEB(cmn, v1)", results=other_protocol).groups[0].section != "Measured here"


def test_seeds_are_averaged_within_a_column():
    results = [measured("own", "jsick", 0.4 + seed / 10, eval_seed=seed) for seed in (0, 1)]
    row = build_board("JMTEB(v2)", results=results).groups[0].rows[0]
    number = row.cells["JSICK"].measured
    assert number and number.value == pytest.approx(45)


def test_a_seed_that_was_scored_by_two_protocols_counts_once():
    results = [
        measured("a", "sts12", 0.8, train_seed=1),
        measured("a", "sts12", 0.8, train_seed=1, protocol={**SIMCSE, "name": "mteb"}),
        measured("a", "sts12", 0.6, train_seed=2),
    ]
    number = find_row(build_board("MTEB(eng, v2)", results=results), "a").cell("STS12").measured
    assert number and number.value == pytest.approx(70)


def test_a_row_that_is_measured_has_the_overlap_of_its_results():
    results = [measured("mine", "sts12", 0.8, overlap="gold")]
    assert find_row(build_board("MTEB(eng, v2)", results=results), "mine").overlap == "gold"


def test_imported_rows_stand_apart_and_are_marked():
    (board,) = make_boards([measured("a", "sts12", 0.5), measured("a", "sts13", 0.6)])
    imported = [
        scored("org/x", "STS12", 0.9),
        scored("org/x", "STS13", 0.8, mteb_version="1.12.0"),
        scored("org/y", "STS12", 0.7, data_revision="f" * 40),
        scored("org/z", "STSBenchmark", 0.7),
    ]
    table = add_imported_rows(board, imported, CATALOGUE)
    first, second = build_layout(table).blocks
    # Best is taken among the measured: with one row of them, none is.
    assert [[cell.text for cell in line.cells] for line in first.lines] == [
        ["50.00", "60.00", "55.00"]
    ]
    assert not any(cell.rank for cell in first.lines[0].cells)
    assert [line.label + line.symbols for line in second.lines] == ["org/x°", "org/y°"]
    assert [[cell.text + cell.symbol for cell in line.cells] for line in second.lines] == [
        ["90.00", "80.00", "85.00"],
        ["70.00*", "–", "–"],
    ]
    assert second.section.startswith("Imported from MTEB's result files")
    legend = build_layout(table).legend
    assert (
        "° imported from MTEB's result files, not measured here (mteb 1.12.0 to 2.1.0, mteb 2.1.0)"
        in legend
    )
    assert [
        line.label for block in build_layout(table, "measured").blocks for line in block.lines
    ] == ["a"]
    lines = list(csv.DictReader(io.StringIO(render([table], "csv"))))
    keys = ("side", "sts12", "sts13", "average", "average_exact")
    assert [lines[1][key] for key in keys] == ["imported", "90.0", "80.0", "85.0", "85.0"]
    assert lines[0]["side"] == "measured"
    for fmt in ("markdown", "latex", "html", "json"):
        assert "mteb 2.1.0" in render([table], fmt)


def test_imported_rows_have_a_board_of_their_own_where_none_is_scored_as_they_are():
    imported = MtebResults([scored("org/x", "STS12", 0.9)], problems=[])
    titles = {}
    for name, protocol in (("simcse", SIMCSE), ("wmean", WMEAN)):
        results = [make_result("a", "sts12", 0.5, protocol=protocol)]
        request = TableRequest(catalogue=CATALOGUE, results=results, imported=imported)
        titles[name] = [
            table.title.partition(",")[2].split()[1] for table in request.make_boards("sts").tables
        ]
    assert titles == {"simcse": ["simcse"], "wmean": ["wmean", "mteb"]}


def test_only_boards_scored_as_mteb_scores_take_imported_rows():
    def takes_imported(protocol: dict[str, Any]) -> bool:
        (board,) = make_boards([make_result("a", "sts12", 0.5, protocol=protocol)])
        return is_scored_as_mteb(board.columns)

    assert takes_imported(SIMCSE)
    others = (WMEAN, {**SIMCSE, "similarity": "dot"}, {"name": "senteval"})
    assert not any(map(takes_imported, others))
    assert is_scored_as_mteb(build_table("sts").columns)
    with pytest.raises(ProtocolError, match="'transfer' is not scored as MTEB scores"):
        add_imported_rows(build_table("transfer"), [], CATALOGUE)


def test_people_are_a_row_apart_with_the_intervals_that_few_pairs_allow():
    table = build_board("HUME(v1)")
    *_, models, people = table.groups
    assert "baseline/Human" not in {row.label for row in models.rows}
    (row,) = people.rows
    assert people.section.startswith("People, not a model")
    values = published_values(row)
    assert values["HUMESTSBenchmark"] == pytest.approx(80.3532)
    # Their files name subsets by codes of three letters.
    assert values["HUMESTS22"] == pytest.approx(fmean([67.5452, 78.3585, 58.7268]))
    assert values["average_exact"] == pytest.approx(fmean([82.6478, 91.2131, 80.3532, 68.210167]))
    number = row.cells["HUMESTSBenchmark"].published
    assert number and number.interval
    error = 1.959964 * ((1 + 0.803532**2 / 2) / (50 - 3)) ** 0.5
    expected = [100 * math.tanh(math.atanh(0.803532) + sign * error) for sign in (-1, 1)]
    assert number.interval == pytest.approx(expected, abs=1e-4)
    (note,) = [note for note in table.notes if note.startswith("people (HUME): ")]
    assert "HUMESTSBenchmark 65.3–89.3 (50 pairs), HUMESTS22 51.7–78.0 (90 pairs)" in note
    content = render([table], "csv", show="published")
    (record,) = [
        line for line in csv.DictReader(io.StringIO(content)) if line["row"] == "people (HUME)"
    ]
    assert float(record["HUMESTSBenchmark_low"]) == pytest.approx(expected[0], abs=1e-4)
    assert "73.44–84.71" in render([table], "markdown", show="published")
    # No other board has them.
    assert all("People" not in group.section for group in build_board("MTEB(rus, v1)").groups)


def make_filtered(**choices: Any) -> Table:
    from stsbench.boards.tables.filters import RowFilter

    request = TableRequest(catalogue=CATALOGUE, show="published", row_filter=RowFilter(**choices))
    (table,) = request.make_boards("mteb-deu-v1-sts").tables
    return table


def test_rows_are_chosen_by_language_size_licence_and_weights():
    everything = make_filtered()
    table = make_filtered(
        language="deu", max_parameters=500_000_000, license="Apache", only_open=True, top=3
    )
    rows = table.rows()
    assert len(rows) == 3 < len(everything.rows())
    for row in rows:
        traits = row.traits
        assert "deu" in traits.languages and traits.is_open
        assert traits.parameters and traits.parameters <= 500_000_000
        assert traits.license.startswith("apache")
    assert table.notes[-1].startswith(f"{len(everything.rows()) - 3} rows are not shown, ")
    assert table.notes[-1].endswith(
        "(German, at most 500M parameters, licence Apache, open weights, the first 3 of each group)"
    )


def test_rows_are_sorted_by_a_column_with_gaps_last():
    values = [
        cell.published.value
        for row in make_filtered(sort="stS22").rows()
        if (cell := row.cells.get("STS22")) and cell.published
    ]
    assert values == sorted(values, reverse=True)
    sizes = [row.traits.parameters for row in make_filtered(sort="size").rows()]
    known_sizes = [size for size in sizes if size]
    assert known_sizes == sorted(known_sizes) and sizes[: len(known_sizes)] == known_sizes


def test_a_choice_that_no_row_fits_is_an_error():
    with pytest.raises(
        DataError, match=r"no row fits: \d+ rows are not shown, \d+ of .* \(German, at most 0.001M"
    ):
        make_filtered(language="deu", max_parameters=1000)


def test_the_json_of_a_board_holds_facts_beside_scores():
    table = make_filtered(top=1)
    (content,) = json.loads(render([table], "json"))
    cells = content["groups"][0]["rows"][0]["cells"]
    assert cells["size"]["published"]["text"] == "278M"


def test_a_users_files_of_mtebs_have_the_columns_of_the_benchmark():
    imported = MtebResults(
        [
            scored("org/x", "GermanSTSBenchmark", 0.8),
            scored("org/x", "STS22", 0.6),
            scored("codefuse-ai/F2LLM-v2-8B", "STS22", 0.5, mteb_version="unknown"),
            scored("codefuse-ai/F2LLM-v2-8B", "STS22", 0.4, revision="older"),
        ],
        problems=["one file"],
    )
    request = TableRequest(catalogue=CATALOGUE, imported=imported)
    boards = request.make_boards("mteb-deu-v1-sts")
    (table,) = boards.tables
    assert [column.key for column in table.columns][:2] == ["GermanSTSBenchmark", "STS22"]
    (group,) = table.groups
    assert group.section.startswith("Imported") and boards.omitted == ["one file"]
    assert published_values(find_row(table, "org/x"))["average"] == pytest.approx(70)
    trained = find_row(table, "codefuse-ai/F2LLM-v2-8B")
    assert (trained.overlap, trained.imported) == ("text", "mteb 2.1.0")
    notes = "\n".join(table.notes)
    assert "1 model has results of several revisions" in notes and "noise" not in notes
    request = replace(request, imported=MtebResults(imported.results[:1], []))
    (table,) = request.make_boards(table.name).tables
    assert "no score yet: STS22" in build_layout(table).legend


@pytest.mark.parametrize(
    ("parameter", "changes"),
    [
        ("ranks", {"ranks": True}),
        ("add", {"added": [ADDED]}),
        ("significance_against", {"reference": ADDED}),
    ],
)
def test_what_a_board_with_mtebs_scores_does_not_have_is_refused(parameter, changes):
    request = TableRequest(catalogue=CATALOGUE, show="both", **changes)
    with pytest.raises(StsbenchError, match=f"`{parameter}` has no effect on a board with MTEB"):
        request.make_boards("mteb-eng-v2-sts")


def test_imported_rows_of_a_board_of_ours_say_what_was_joined_and_trained_on():
    (board,) = make_boards([measured("a", "sts12", 0.5), measured("a", "sts13", 0.6)])
    model = "codefuse-ai/F2LLM-v2-8B"
    imported = [
        scored(model, "STS12", 0.9, mteb_version="unknown"),
        scored(model, "STS13", 0.8, revision="older"),
        scored(model, "STS22", 0.8, revision="oldest"),
    ]
    table = add_imported_rows(board, imported, CATALOGUE)
    row = find_row(table, model)
    assert row.imported == "mteb 2.1.0, of unknown version"
    assert row.overlap == "text"
    assert table.notes[-1].startswith("1 model has results of several revisions")


def test_published_numbers_need_no_results():
    request = TableRequest(catalogue=CATALOGUE, show="published")
    (table,) = request.make_boards("sts").tables
    assert table.name == "sts" and len(table.rows()) > 100
    with pytest.raises(DataError, match="no published scores of suite 'sts22'") as error:
        request.make_boards("sts22")
    assert "`suite=mteb-eng-v2-sts`" in error.value.hint


def test_exact_scores_have_all_digits_of_the_table():
    assert "94.65 |" in render([make_row_of_mteb()], "markdown", show="published")
    text = render([make_row_of_mteb()], "markdown", show="published", exact=True)
    assert "94.6543 |" in text


def make_row_of_mteb() -> Table:
    """Return a board of a single row with a score of four decimals in points."""
    table = build_board("MTEB(deu, v1)", scored("org/x", "STS22", 0.946543))
    return replace(table, groups=table.groups[:1])
