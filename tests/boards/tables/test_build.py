"""The tables that are shipped: every printed number in its place, marks, groups, best and second best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stsbench.boards.published.rows import (
    ColumnFacts,
    list_rows,
    list_tables,
    read_misprints,
    read_published_rows,
    read_table_card,
)
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.column_scores import make_column_spec, select_column_results
from stsbench.boards.tables.columns import TableFiller
from stsbench.boards.tables.layout import BEST, SECOND, build_layout
from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.rows import AddedRow, describe_gaps, describe_hidden
from stsbench.boards.tables.table import (
    AVERAGE,
    DELTA,
    EXACT,
    QUOTED,
    TIED,
    Group,
    Row,
    Table,
    TableCell,
    TableColumn,
    TableNumber,
)
from stsbench.cli.wording import describe_error
from stsbench.core.catalogue import Catalogue
from stsbench.results.groups import group_by_encoder
from stsbench.results.record import Result
from tests.boards.shown import STS, UNROUNDED, row, shown, sts
from tests.made import make_result

BOARDS = ["sts", "transfer", "multilingual", "probing", "all"]
PAPERS = [name for name in list_tables() if name not in BOARDS]


# What is shipped.


def test_all_tables_that_were_promised_are_there():
    promised = [f"sgopt-{n}" for n in range(1, 7)] + [f"consert-{n}" for n in (2, 3, 4)]
    promised += ["bert-flow-1", "sgopt-figure-1", "sgopt-domain-shift"]
    promised += [f"declutr-{n}" for n in (1, 2, 3, 4)] + [
        f"simcse-{n}" for n in ("5", "e1", "b2", "b3", "c1")
    ]
    assert {*promised, *BOARDS} <= set(list_tables())
    assert list_tables()[:5] == BOARDS


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_table_holds_every_number_printed_in_it_once(name):
    card, table = read_table_card(name), build_table(name)
    source = [
        one
        for one in read_published_rows().values()
        if (one.paper, one.table) == (card.paper, card.table)
    ]
    printed = sorted((one.key, s.value, s.deviation or 0) for one in source for s in one.scores)
    filled = [
        (one.published_key, c.published)
        for one in table.rows()
        for key, c in one.cells.items()
        if key not in (EXACT, DELTA)
    ]
    assert sorted((key, n.value, n.deviation or 0) for key, n in filled if n) == printed
    assert [one.published_key for one in table.rows()] == [
        f"{card.paper}/{card.table}/{facts.row}"
        for group in card.groups
        for facts in list_rows(group)
    ]
    assert not any(one.is_measured for one in table.rows())


def test_a_number_of_a_board_names_the_published_row_that_prints_it():
    rows, several = read_published_rows(), set()
    for name in BOARDS:
        table = build_table(name)
        wanted = {column.key: column.spec for column in table.columns if column.spec}
        for one in table.rows():
            for key, cell in one.cells.items():
                assert bool(cell.published_key) == bool(cell.published), (name, one.label, key)
                if cell.published and key in wanted:
                    scores = rows[cell.published_key].scores
                    found = {
                        s.value
                        for s in scores
                        if (s.task, s.metric) == (wanted[key].task, wanted[key].metric)
                    }
                    # An average that is not printed is made of cells of the same row.
                    assert cell.published.value in found or (key in BOARDS and not found), (
                        name,
                        one.label,
                        key,
                    )
                if cell.published and cell.published_key != one.published_key:
                    several.add((name, one.label))
    assert len(several) > 30 and {name for name, _ in several} == {"all", "multilingual"}


def test_rows_without_an_average_are_sorted_by_the_first_column_that_they_fill():
    for group in build_table("all").groups:
        places = []
        for one in group.rows:
            filled = [n.value if (n := cell.published) else None for cell in one.cells.values()]
            first = next(place for place, value in enumerate(filled) if value is not None)
            places.append((first, -(filled[first] or 0)))
        assert places == sorted(places), group.section
    unsupervised = build_table("all").groups[0].rows
    assert unsupervised[0].cell("sts").published and unsupervised[-1].cell("sts").published is None


def test_a_name_that_is_a_misprint_is_right_on_boards_and_marked_in_the_papers_table():
    for name in ("multilingual", "all"):
        sections = {
            one.label: group.section for group in build_table(name).groups for one in group.rows
        }
        assert (
            sections["ECNU"] == sections["UMCC-DLSI-run2"] == "Trained on STS scores"
            and "ENCU" not in sections
        )
    layout = build_layout(build_table("sgopt-3"))
    assert "ENCU†*" in [
        line.label + line.symbols for block in layout.blocks for line in block.lines
    ]
    assert "* Task winner, supervised, ENCU: the team of SemEval-2017 is ECNU" in layout.legend


def test_rows_that_measure_different_things_stand_below_the_same_heads():
    table = build_table("bert-flow-1")
    shown = {
        line.label: [c.text for c in line.cells]
        for block in build_layout(table).blocks
        for line in block.lines
    }
    assert shown["Mean norm"] == ["0.95", "1.04", "1.22", "1.45"]
    assert shown["Mean dot product with the 7 nearest"] == ["0.72", "0.90", "1.17", "1.60"]
    assert [note for note in build_layout(table).legend if note[0] == "*"] == [
        "* 5,000 to 10,000: the column's head reads 5K to 1K"
    ]
    assert {one.metric for one in table.rows()} >= {"mean_norm", "knn3_distance", "knn5_dot"}


def test_differences_are_those_to_the_row_that_is_named():
    distances = {
        one.label: n.value
        for one in build_table("sgopt-5").rows()
        if (n := one.cell(DELTA).published)
    }
    assert {label: round(value, 2) for label, value in distances.items()} == {
        "L_opt2": -1.48,
        "L_opt1": -2.01,
        "SG (L_base)": -2.45,
        "SG-OPT (tau 0.01, lambda 0.1)": 0,
        "tau 0.1": -4.23,
        "tau 0.001": -0.46,
        "lambda 0": -0.86,
        "lambda 1": -1.44,
        "without projection head": -1.84,
    }


def test_rows_scored_otherwise_have_no_difference_to_others(tmp_path):
    text = """
title = "Mine"
paper = "sgopt"
table = "table-1"
protocol = "simcse"
columns = ["stsb"]
[delta]
row = "SBERT-base Mean"
column = "stsb"
[[groups]]
rows = ["SBERT-base Mean", "SBERT-base SG", {row = "SBERT-base Flow", protocol = "wmean"}]
"""
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    distances = [
        one.cell(DELTA).published for one in build_table(str(tmp_path / "mine.toml")).rows()
    ]
    assert [one and round(one.value, 2) for one in distances] == [None, 4.07, None]


def test_groups_are_those_of_the_paper():
    groups = [(g.section, g.title, len(g.rows)) for g in build_table("simcse-5").groups]
    assert [size for _, _, size in groups] == [7, 4, 1, 7, 3, 1]
    assert [section for section, _, _ in groups] == ["Unsupervised"] * 3 + ["Supervised"] * 3
    titles = [group.title for group in build_table("sgopt-1").groups]
    assert titles[1:] == [
        "BERT-base",
        "BERT-large",
        "SBERT-base",
        "SBERT-large",
        "RoBERTa-base",
        "RoBERTa-large",
    ]


def test_marks_say_what_is_quoted_scored_otherwise_and_misprinted():
    layout = build_layout(build_table("sgopt-1"))
    lines = {(b.title, line.label): line for b in layout.blocks for line in b.lines}
    assert lines["SBERT-base", "Flow, mean-2"].symbols == "†‡§"
    assert lines["BERT-base", "Flow, mean-2"].symbols == "§"
    assert lines["BERT-base", "No tuning, CLS"].symbols == ""
    assert lines["BERT-large", "Flow, mean-2"].cells[-1] == ("70.07", "±0.81", 0, "*")
    assert lines["SBERT-large", "Contrastive (BT)"].symbols == "*§"
    assert layout.legend[:3] == [
        "† taken over from SBERT, BERT-flow",
        "‡ scored otherwise than the columns say (wmean); not ranked",
        "§ trained or fitted on text that overlaps the test sentences",
    ]
    assert "* BERT-large, Flow, mean-2, Avg.: the row's mean is 69.74" in layout.legend


def test_every_misprint_in_a_table_is_marked():
    seen: dict[tuple[str, str], str] = {}
    for name in PAPERS:
        for one in build_table(name).rows():
            seen |= {
                (one.published_key, key): cell.misprint
                for key, cell in one.cells.items()
                if cell.misprint
            }
            seen |= {(one.published_key, ""): one.misprint} if one.misprint else {}
    papers = {(card.paper, card.table) for card in map(read_table_card, PAPERS)}
    listed = {key for key in read_misprints() if tuple(key[0].split("/")[:2]) in papers}
    assert {(key, {AVERAGE: "sts"}.get(cell, cell)) for key, cell in seen} == {
        (key, "sts" if task == "transfer" else task) for key, task in listed
    }


def test_declutrs_composite_mean_and_its_distances_are_the_printed_ones():
    table = build_table("declutr-2")
    for one in table.rows():
        printed, exact = one.cell(AVERAGE).published, one.cell(EXACT).published
        assert (printed is None) == (exact is None) == (one.label == "QuickThoughts")
        assert not printed or not exact or printed.value == pytest.approx(exact.value, abs=0.0051)
    distances = {one.label: n.value for one in table.rows() if (n := one.cell(DELTA).published)}
    assert {label: round(value, 2) for label, value in distances.items()} == {
        "GloVe": -13.63,
        "fastText": -10.54,
        "InferSent": -3.10,
        "USE": -0.21,
        "Sent. Transformers": -1.91,
        "Transformer-small": -6.52,
        "Transformer-base": -6.40,
        "DeCLUTR-small": -1.60,
    }
    assert build_layout(table).heads[-2:] == ["Avg.‡", "Δ"]
    assert "‡ a mean over tasks that are scored in different ways" in build_layout(table).legend


def test_a_printed_average_over_unlike_scores_is_the_papers_own():
    average = row(build_table("declutr-2"), "GloVe").cell(AVERAGE).published
    assert average == TableNumber(65.47, decimals=2, published_key="declutr/table-2/GloVe")


def test_best_and_second_best_are_those_of_the_group():
    layout = build_layout(build_table("sgopt-1"))
    (base,) = [block for block in layout.blocks if block.title == "BERT-base"]
    ranks = {line.label: [cell.rank for cell in line.cells] for line in base.lines}
    assert ranks["Contrastive (SG-OPT)"] == [BEST, SECOND, BEST, BEST, BEST, BEST, BEST, BEST]
    assert ranks["Contrastive (SG)"] == [SECOND, BEST, 0, SECOND, SECOND, SECOND, SECOND, SECOND]
    assert ranks["Flow, mean-2"] == [0, 0, SECOND, 0, 0, 0, 0, 0]
    (sbert,) = [block for block in layout.blocks if block.title == "SBERT-base"]
    # 77.62 would be second best; it is a weighted mean.
    assert [line.cells[4].rank for line in sbert.lines] == [0, 0, 0, 0, 0, SECOND, BEST]


# Ranks.


def ranks(*values: float | None, better: Any = "high", otherwise: str = "") -> list[int]:
    rows = [
        Row(
            label=str(i),
            cells={"c": TableCell(published=TableNumber(v))} if v is not None else {},
            other_protocol=otherwise if i else "",
        )
        for i, v in enumerate(values)
    ]
    table = Table(
        name="t",
        title="t",
        columns=[TableColumn(key="c", head="c", better=better)],
        groups=[Group(rows=rows)],
    )
    lines = [line for block in build_layout(table, "published").blocks for line in block.lines]
    return [line.cells[0].rank for line in lines]


def test_ranks():
    assert ranks(1, 3, 2, 0) == [0, BEST, SECOND, 0]
    assert ranks(3, 3, 2, 2) == [BEST, BEST, SECOND, SECOND]
    # What prints the same is the same.
    assert ranks(3.001, 3.004, 1) == [BEST, BEST, SECOND]
    assert ranks(5) == [0]
    assert ranks(2, 1, better="low") == [SECOND, BEST]
    assert ranks(2, 1, better="") == [0, 0]
    assert ranks(1, 9, 8, otherwise="wmean") == [0, 0, 0]


CATALOGUE = Catalogue()


def made(name: str, results: list[Result], *added: AddedRow) -> Table:
    return build_table(name, results, CATALOGUE, added_rows=added)


def told(name: str, results: list[Result], where: str = "") -> list[str]:
    table = made(name, results, AddedRow("mine", "Ours", results))
    return [
        "; ".join(filter(None, describe_error(gap)))
        for one in table.rows()
        if one.is_added
        for gap in describe_gaps(one, table, CATALOGUE, where)
    ]


def test_a_further_state_of_an_encoder_is_a_row_of_its_own_in_a_papers_table():
    first, second = (
        sts("simcse-bert-base", *(score * share for score in UNROUNDED), fingerprint=fingerprint)
        for share, fingerprint in ((1, "aaaaaaaa"), (0.5, "bbbbbbbb"))
    )
    measured = [one for one in made("simcse-5", [*first, *second]).rows() if one.is_measured]
    assert [one.label for one in measured] == ["SimCSE-BERT-base", "SimCSE-BERT-base [bbbbbb]"]
    assert [bool(one.cell("sts12").published) for one in measured] == [True, False]
    averages = [one.cell(AVERAGE).measured for one in measured]
    assert [number and number.value for number in averages] == pytest.approx([42.34, 21.17])
    assert [list(one.results) for one in measured] == [first, second]


def test_no_two_rows_of_a_board_have_the_same_label():
    for name in BOARDS:
        for results in ([], sts("simcse-bert-base", *UNROUNDED)):
            labels = [one.label for one in build_table(name, results).rows()]
            assert len(set(labels)) == len(labels), name


def test_an_exact_average_has_four_more_decimals():
    layout = build_layout(made("simcse-5", sts("simcse-bert-base", *UNROUNDED)), exact=True)
    exact = {
        line.cells[-1].text
        for block in layout.blocks
        for line in block.lines
        if line.number_kind == "measured"
    }
    assert exact == {"42.344000"}


def test_a_listed_row_without_a_number_is_one_line():
    filled = Row(label="filled", cells={"c": TableCell(measured=TableNumber(1.0))})
    empty = Row(label="empty", cells={}, is_listed=True)
    table = Table(
        name="t",
        title="t",
        columns=[TableColumn(key="c", head="c")],
        groups=[Group(rows=[empty, filled, replace(empty, label="hidden", is_listed=False)])],
    )
    (block,) = build_layout(table, "both").blocks
    assert [(line.label, line.cells[0].text) for line in block.lines] == [
        ("empty", "–"),
        ("filled", "1.00"),
    ]


def test_a_mark_says_where_a_number_is_from():
    taken_over = Row(label="a", cells={}, source="SimCSE", quoted_from="SBERT")
    assert taken_over.explain_symbol(QUOTED) == "SBERT"
    assert replace(taken_over, quoted_from="").explain_symbol(QUOTED) == "SimCSE"
    assert taken_over.explain_symbol(TIED) == ""


def test_measured_differences_are_those_to_the_row_that_is_named(tmp_path):
    text = """
title = "Mine"
paper = "simcse"
table = "table-5"
protocol = "simcse"
columns = ["stsb"]
[delta]
row = "SBERT-base"
column = "stsb"
[[groups]]
rows = ["SBERT-base", "SimCSE-BERT-base"]
"""
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    scores = {"sbert-bert-base": 0.5, "simcse-bert-base": 0.75}
    results = [sts(name, score, tasks=["stsb"])[0] for name, score in scores.items()]
    first, second = build_table(str(tmp_path / "mine.toml"), results).rows()
    assert first.cell(DELTA).measured is None
    difference = second.cell(DELTA).measured
    assert difference is not None and difference.value == pytest.approx(25)


def test_results_that_are_in_no_row_are_told_where_measured_ones_are_shown():
    results = sts("mine", *UNROUNDED)
    request = TableRequest(catalogue=CATALOGUE, results=[*results, *sts("minilm", *UNROUNDED)])
    (advice,) = request.make_table("simcse-5").advice
    assert str(advice).startswith("results of mine, minilm are in no row of 'simcse-5'")
    published = replace(request, show="published").make_table("simcse-5")
    assert published.advice == [] and len(published.tables) == 1


def test_a_task_without_subsets_has_the_same_score_by_every_average_of_them():
    for task, is_taken in (("stsb", True), ("sts12", False)):
        result = make_result("mine", task, 0.623, scores={"spearman.all": 0.623})
        spec = make_column_spec(ColumnFacts(task=task), "wmean", "spearman", CATALOGUE)
        assert bool(select_column_results([result], spec)) is is_taken


def test_an_added_row_stands_in_a_group_below_the_papers_own():
    results = sts("mine", *UNROUNDED)
    table = made("simcse-5", results, AddedRow("mine", "Ours", results))
    assert [(group.title, len(group.rows)) for group in table.groups][-1] == ("Measured here", 1)
    assert (
        shown(build_layout(table), "Ours")
        == "12.34 22.34 32.34 42.34 52.34 62.34 72.34 42.34".split()
    )
    plain = made("simcse-5", results)
    # The paper's best stay its best.
    assert [group.rows for group in table.groups][:-1] == [group.rows for group in plain.groups]


def test_added_rows_are_ranked_among_all_rows_of_the_table():
    first, second = sts("mine", *UNROUNDED), sts("other", *(score / 2 for score in UNROUNDED))
    table = made(
        "simcse-5", [*first, *second], AddedRow("mine", "A", first), AddedRow("other", "", second)
    )
    *_, block = build_layout(table).blocks
    # Rows of the paper are better than both.
    assert [(line.label, line.cells[0].rank) for line in block.lines] == [("A", 0), ("other", 0)]
    best = sts("mine", *([0.99] * len(UNROUNDED)))
    *_, block = build_layout(made("simcse-5", [*best], AddedRow("mine", "A", best))).blocks
    assert [(line.label, line.cells[0].rank) for line in block.lines] == [("A", BEST)]


def test_on_a_board_the_row_that_is_there_has_the_label():
    results = sts("mine", *UNROUNDED)
    table = made("sts", results, AddedRow("mine", "Ours", results))
    assert row(table, "Ours").encoder == "mine" and "mine" not in [
        one.label for one in table.rows()
    ]
    assert len(table.rows()) == len(made("sts", results).rows())
    assert row(made("sts", results, AddedRow("mine", "", results)), "mine").is_added


def test_what_a_row_lacks_is_told_with_the_command_that_fills_it():
    assert told("simcse-5", sts("mine", *UNROUNDED)) == []
    line = "row 'Ours' has no {}; to fill it: stsbench run mine --tasks {} --protocol {}"
    assert told("simcse-5", sts("mine", *UNROUNDED[:5], tasks=STS[:5])) == [
        line.format("STS-B, SICK-R", "stsb,sickr", "simcse")
    ]
    # A column of another table's mean is a suite; columns of several protocols are several commands.
    assert told("all", sts("mine", *UNROUNDED)) == [
        line.format("Transfer, Probing", "transfer,probing", "senteval"),
        line.format("STS14 Spanish, STS17 es-es, STS17 ar-ar, STS17 en-en", "sts14-es,sts17-es-es,sts17-ar-ar,sts17-en-en", "semeval"),
    ]  # fmt: skip


def test_the_command_names_the_split_and_the_folder_and_quotes_names():
    results = sts("a b+prompt='x'", 0.5, tasks=["sts12"])
    (line,) = told("simcse-7", results, "my results")
    quoted = """'a b+prompt='"'"'x'"'"''"""
    assert line.endswith(
        f"stsbench run {quoted} --tasks stsb --protocol simcse --split validation --results 'my results'"
    )


def test_what_no_run_measures_is_told_so():
    (line,) = told("sgopt-6", sts("mine", *UNROUNDED))
    assert line == "row 'Ours' has no Training, Inference, which no evaluator measures"
    first, second = told("declutr-2", sts("mine", *UNROUNDED))
    assert "sickr-regression" in first and "--protocol senteval" in first
    assert second.endswith("--protocol mean")


def unseen(name: str, *results: Any) -> str:
    card, runs = read_table_card(name), group_by_encoder(results, CATALOGUE)
    return describe_hidden(made(name, list(results)), TableFiller.from_card(card, CATALOGUE), runs)


def test_results_without_a_row_are_told():
    mine = sts("mine", *UNROUNDED)
    assert unseen("simcse-5", *mine, *sts("simcse-bert-base", *UNROUNDED)) == (
        "results of mine are in no row of 'simcse-5'; `add=NAME` shows them, such as `add=mine`"
    )
    five = [result for at in range(5) for result in sts(f"mine {at}", *UNROUNDED)]
    assert "mine 0, mine 1, mine 2 and 2 more" in unseen(
        "simcse-5", *five
    ) and "`add='mine 0'`" in unseen("simcse-5", *five)
    assert (
        unseen("simcse-e1", *mine) == ""
        and unseen("simcse-5", *sts("simcse-bert-base", *UNROUNDED)) == ""
    )


def test_an_encoder_in_several_states_is_several_rows():
    results = [
        *sts("mine", *UNROUNDED, fingerprint="a" * 64),
        *sts("mine", *UNROUNDED[::-1], fingerprint="b" * 64),
    ]
    table = made("simcse-5", results, AddedRow("mine", "Ours", results))
    assert [one.label for one in table.groups[-1].rows] == ["Ours [aaaaaa]", "Ours [bbbbbb]"]
