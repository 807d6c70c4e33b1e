"""Heads of rows in HTML: rows of one name told apart, and what details say."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from stsbench.boards.published import table_names
from stsbench.boards.render import render
from stsbench.boards.render.html import parameters_said, set_apart
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.table import Group, Number, Row, Table, TableCell, TableColumn, Traits


def test_details_lead_to_paper_model_and_the_source_of_a_row():
    text = render([build_table("simcse-5")], "html")
    facts = re.search(r'<span class="facts">(simcse-bert-base ·.*?)</span>', text)
    assert facts is not None
    assert facts[1] == (
        "simcse-bert-base · SimCSE · BERT-base · 109M parameters · supervision: none · 2021"
        ' · <a href="https://arxiv.org/abs/2104.08821" aria-label="paper: SimCSE-BERT-base">paper</a>'
        ' · <a href="https://huggingface.co/princeton-nlp/unsup-simcse-bert-base-uncased"'
        ' aria-label="model: SimCSE-BERT-base">model</a>'
        ' · published: <a href="https://arxiv.org/abs/2104.08821">simcse/table-5/SimCSE-BERT-base</a>'
    )


@pytest.mark.parametrize(
    ("count", "said"), [(22_713_216, "22.7M"), (99_960_000, "100M"), (6.7e9, "6700M"), (4e5, "0.4M")]
)
def test_parameters_are_told_in_millions(count, said):
    assert parameters_said(int(count)) == said


def named(*rows: Row, **facts: str) -> list[str]:
    """What tells these rows apart."""
    table = Table(name="n", title="n", columns=[], groups=[Group(rows=rows, **facts)])
    found = set_apart(table)
    return [found[id(row)].text if id(row) in found else "" for row in rows]


def test_rows_of_one_name_are_told_apart_by_what_differs():
    row = Row(label="x", cells={}, traits=Traits("M", "BERT-base", "none"))
    large, nli = Traits("M", "BERT-large", "none"), Traits("M", "BERT-base", "nli")
    assert named(row, replace(row, label="y")) == ["", ""]
    assert named(row, replace(row, traits=large)) == ["BERT-base", "BERT-large"]
    assert named(row, replace(row, traits=nli)) == ["supervision none", "supervision nli"]
    both = replace(row, traits=Traits("M", "BERT-large", "nli"))
    assert named(row, replace(row, traits=large), both)[2] == "BERT-large, supervision nli"
    old, new = (replace(row, key=f"{paper}/table-1/x") for paper in ("sbert", "sgopt"))
    assert named(old, new) == ["SBERT 2019, table 1", "SG-OPT 2021, table 1"]
    assert named(old, replace(old, key="sbert/table-2/x")) == ["SBERT 2019, table 1", "SBERT 2019, table 2"]
    # Nothing differs.
    assert named(row, replace(row)) == ["no. 1", "no. 2"]


def test_every_row_of_a_page_has_a_name_of_its_own():
    for name in table_names():
        table = build_table(name)
        apart = set_apart(table)
        names = [row.label + (apart[id(row)].text if id(row) in apart else "") for row in table.rows()]
        assert len(names) == len(set(names)), name


def test_what_the_title_of_a_group_says_is_told_without_groups_only():
    text = render([build_table("sgopt-1")], "html")
    assert '<span class="name">No tuning, CLS</span><span class="apart grouped"> BERT-base</span>' in text
    alike = [Row(label="x", cells={"a": TableCell(published=Number(1.0))}, encoder=name) for name in "ab"]
    table = Table(name="n", title="n", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=alike)])
    assert '<span class="name">x</span><span class="apart"> a</span>' in render([table], "html")


def test_a_long_name_breaks_before_a_parameter():
    row = Row(label="minilm+pooling=max", cells={"a": TableCell(published=Number(1.0))})
    table = Table(name="n", title="n", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=[row])])
    assert '<span class="name">minilm<wbr>+pooling=max</span>' in render([table], "html")
