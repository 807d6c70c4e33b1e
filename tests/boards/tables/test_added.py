"""Rows that are added to tables: where they stand, what they lack, and which results have no row."""

from __future__ import annotations

from typing import Any

from stsbench.boards.published import read_table_card
from stsbench.boards.tables.build import make_table
from stsbench.boards.tables.columns import Filler, plan
from stsbench.boards.tables.rows import Added, lacks, not_shown
from stsbench.boards.tables.table import BEST, Table, lay_out
from stsbench.core.catalogue import Catalogue
from stsbench.results.groups import gather_runs
from stsbench.results.record import Result
from tests.boards.shown import STS, UNROUNDED, row, shown, sts

CATALOGUE = Catalogue()


def made(name: str, results: list[Result], *added: Added) -> Table:
    return make_table(name, read_table_card(name), results, CATALOGUE, added)


def told(name: str, results: list[Result], where: str = "") -> list[str]:
    table = made(name, results, Added("mine", "Ours", results))
    return [line for one in table.rows() if one.is_added for line in lacks(one, table, CATALOGUE, where)]


def test_an_added_row_stands_in_a_group_below_the_papers_own():
    results = sts("mine", *UNROUNDED)
    table = made("simcse-5", results, Added("mine", "Ours", results))
    assert [(group.title, len(group.rows)) for group in table.groups][-1] == ("Measured here", 1)
    assert shown(lay_out(table), "Ours") == "12.34 22.34 32.34 42.34 52.34 62.34 72.34 42.34".split()
    plain = made("simcse-5", results)
    # The paper's best stay its best.
    assert [group.rows for group in table.groups][:-1] == [group.rows for group in plain.groups]


def test_added_rows_are_ranked_among_themselves():
    first, second = sts("mine", *UNROUNDED), sts("other", *(score / 2 for score in UNROUNDED))
    table = made("simcse-5", [*first, *second], Added("mine", "A", first), Added("other", "", second))
    *_, block = lay_out(table).blocks
    assert [(line.label, line.cells[0].rank) for line in block.lines] == [("A", BEST), ("other", 2)]


def test_on_a_board_the_row_that_is_there_has_the_label():
    results = sts("mine", *UNROUNDED)
    table = made("sts", results, Added("mine", "Ours", results))
    assert row(table, "Ours").encoder == "mine" and "mine" not in [one.label for one in table.rows()]
    assert len(table.rows()) == len(made("sts", results).rows())
    assert row(made("sts", results, Added("mine", "", results)), "mine").is_added


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
    assert line == "row 'Ours' has no Training, Inference, which 'stsbench run' does not measure"
    first, second = told("declutr-2", sts("mine", *UNROUNDED))
    assert "sickr-regression" in first and "--protocol senteval" in first
    assert second.endswith("--protocol mean")


def unseen(name: str, *results: Any) -> str:
    card, runs = read_table_card(name), gather_runs(results, CATALOGUE)
    filler = Filler(card, plan(card, CATALOGUE), CATALOGUE)
    return not_shown(made(name, list(results)), filler, runs)


def test_results_without_a_row_are_told():
    mine = sts("mine", *UNROUNDED)
    assert unseen("simcse-5", *mine, *sts("simcse-bert-base", *UNROUNDED)) == (
        "results of mine are in no row of 'simcse-5'; --add NAME shows them, such as --add mine"
    )
    five = [result for at in range(5) for result in sts(f"mine {at}", *UNROUNDED)]
    assert "mine 0, mine 1, mine 2 and 2 more" in unseen("simcse-5", *five) and "--add 'mine 0'" in unseen(
        "simcse-5", *five
    )
    assert unseen("simcse-e1", *mine) == "" and unseen("simcse-5", *sts("simcse-bert-base", *UNROUNDED)) == ""


def test_an_encoder_in_several_states_is_several_rows():
    results = [*sts("mine", *UNROUNDED, fingerprint="a" * 64), *sts("mine", *UNROUNDED[::-1], fingerprint="b" * 64)]
    table = made("simcse-5", results, Added("mine", "Ours", results))
    assert [one.label for one in table.groups[-1].rows] == ["Ours [aaaaaa]", "Ours [bbbbbb]"]
