"""Cards and tables of the user's own: they join, or are refused in one line; no mixture of protocols is silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.boards.published import published_row
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.table import AVERAGE, EXACT, Number
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, ProtocolError, UnknownName
from tests.boards.shown import UNROUNDED, row, sts
from tests.core.test_catalogue import ENCODER


def own_card(tmp_path: Path, key: str) -> Catalogue:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "my-simcse.toml").write_text(ENCODER + f'published = ["{key}"]\n', encoding="utf-8")
    return Catalogue([tmp_path])


def of_mine(catalogue: Catalogue) -> str:
    """The hash that results of that card carry."""
    return catalogue.digest_of(catalogue.encoder("my-simcse"))


def test_a_card_of_the_users_own_can_name_a_published_row(tmp_path):
    catalogue = own_card(tmp_path, "simcse/table-5/SimCSE-BERT-base")
    one = row(
        build_table("simcse-5", sts("my-simcse", *UNROUNDED, encoder_card=of_mine(catalogue)), catalogue),
        "SimCSE-BERT-base",
    )
    assert one.encoder == "my-simcse" and one.cell("sts12").difference


def test_a_card_that_names_a_row_that_is_not_there_is_refused(tmp_path):
    catalogue = own_card(tmp_path, "simcse/table-5/SimCSE-BERT-bas")
    with pytest.raises(CardError, match="my-simcse.toml: key 'published': unknown published row .*; did you mean"):
        build_table("simcse-5", sts("my-simcse", *UNROUNDED, encoder_card=of_mine(catalogue)), catalogue)


OWN = """
title = "Mine"
paper = "bert-flow"
table = "table-2"
protocol = "wmean"
columns = ["stsb", "sts12"]
[[groups]]
rows = ["BERT-base"]
"""


def own_table(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "Mine"', 'titel = "Mine"', "mine.toml: unknown key 'titel'; did you mean 'title'"),
        (
            'paper = "bert-flow"',
            'paper = "bert-flo"',
            "key 'paper': 'bert-flo' is not one of papers.toml; did you mean",
        ),
        ('"wmean"', '"wmaen"', "key 'protocol': 'wmaen' is not one of protocols.toml; did you mean 'wmean'"),
        ('"BERT-base"', '"BERT-bas"', "no row 'BERT-bas' in bert-flow/table-2; did you mean 'BERT-base'"),
        ('"sts12"', '{task = "mrpc", metric = "acuracy"}', "metric 'acuracy' is unknown; did you mean 'accuracy'"),
        ('"sts12"', "{}", "columns: give either 'task' or 'average_of', not neither"),
        ('columns = ["stsb", "sts12"]', "", "give either 'suite' or 'columns'"),
        ("[[groups]]", "[board]\n[[groups]]", r"give either \[\[groups\]\] or \[board\]"),
        ('"stsb"', '{task = "stsb", protocol = ""}', "'stsb' has neither a metric nor a protocol"),
        (
            "[[groups]]",
            '[average]\ntask = "sts"\nof = ["sts13"]\n[[groups]]',
            "'of' names 'sts13', which is not a column",
        ),
        ('"stsb"', '{average_of = "simcse-1"}', "table 'simcse-1' has no average"),
        (
            "[[groups]]",
            '[average]\ntask = "sts"\n[delta]\nrow = "Gone"\n[[groups]]',
            r"\[delta\]: 'row' names .*Gone', which is not a row",
        ),
        ("[[groups]]", '[delta]\nrow = "BERT-base"\n[[groups]]', r"\[delta\]: the table has no average; name a column"),
        (
            "[[groups]]",
            '[delta]\nrow = "BERT-base"\ncolumn = "sts13"\n[[groups]]',
            r"\[delta\]: 'column' is 'sts13', which is not a column",
        ),
        (
            '["BERT-base"]',
            '[{row = "BERT-base", metric = "nrom"}]',
            "row 'BERT-base': metric 'nrom' is unknown",
        ),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path, old, new, message):
    assert old in OWN
    with pytest.raises(CardError, match=message):
        build_table(own_table(tmp_path, OWN.replace(old, new)))


def test_a_column_that_is_no_task_offers_the_nearest(tmp_path):
    with pytest.raises(UnknownName, match="unknown task 'sts122'; did you mean 'sts12'"):
        build_table(own_table(tmp_path, OWN.replace("sts12", "sts122")))


def test_a_mixture_that_is_not_declared_is_refused(tmp_path):
    with pytest.raises(
        ProtocolError, match=r"'bert-flow/table-2/Avg. GloVe': stsb is scored by 'simcse', .* by 'wmean'"
    ):
        build_table(own_table(tmp_path, OWN.replace('"BERT-base"', '"Avg. GloVe"')))
    declared = OWN.replace('"BERT-base"', '{row = "Avg. GloVe", protocol = "simcse"}')
    assert row(build_table(own_table(tmp_path, declared)), "Avg. GloVe").otherwise == "simcse"


def test_an_average_over_protocols_is_refused_unless_it_is_a_declared_composite(tmp_path):
    mixed = OWN.replace('"sts12"', '{task = "sts12", protocol = "mean"}') + '[average]\ntask = "sts"\n'
    mixed = mixed.replace('rows = ["BERT-base"]', "rows = []")
    with pytest.raises(
        CardError, match="over columns scored by mean spearman and wmean spearman; say composite = true"
    ):
        build_table(own_table(tmp_path, mixed))
    build_table(own_table(tmp_path, mixed + "composite = true\n"))


def test_rows_of_unknown_protocol_have_no_average_but_the_printed_one():
    table = build_table("consert-2")
    clear, ct = row(table, "CLEAR-base"), row(table, "BERT-base-CT")
    assert clear.otherwise == "unknown" and clear.cell(AVERAGE).published == Number(61.8, None, 1)
    assert clear.cell(EXACT).published is None and ct.cell(AVERAGE).published is None
    assert published_row(clear.key).quoted == "clear"
