"""Measured numbers in tables: only of the same protocol, seeds as deviations, averages rounded as asked; our own boards."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stsbench.boards.published.rows import (
    look_up_published_row,
    read_published_protocols,
    read_table_card,
)
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.table import AVERAGE, EXACT, TableNumber
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, ProtocolError, UnknownName
from stsbench.evaluators.registry import EVALUATORS
from stsbench.results.record import Result
from tests.boards.shown import STS, UNROUNDED, row, shown, sts
from tests.core.cards import ENCODER
from tests.made import SIMCSE, make_result

SENTEVAL = {"name": "senteval", "kfold": 10, "nhid": 0}


def test_measured_published_and_their_difference_stand_side_by_side():
    table = build_table("simcse-5", sts("simcse-bert-base", *UNROUNDED))
    cell = row(table, "SimCSE-BERT-base").cell("sts12")
    assert cell.published == TableNumber(
        68.40, decimals=2, published_key="simcse/table-5/SimCSE-BERT-base"
    )
    assert cell.measured and cell.measured.value == pytest.approx(12.344)
    assert cell.measured.interval == pytest.approx((2.344, 22.344))
    assert cell.difference and cell.difference.value == pytest.approx(12.344 - 68.40)
    layout = build_layout(table)
    lines = [line for block in layout.blocks for line in block.lines]
    at = next(i for i, line in enumerate(lines) if line.label == "SimCSE-BERT-base")
    assert [line.label for line in lines[at + 1 : at + 3]] == ["measured", "difference"]
    assert [cell.text for cell in lines[at + 1].cells[:2]] == ["12.34", "22.34"]
    assert lines[at + 2].cells[0].text == "-56.06"


def test_averages_as_the_paper_rounds_them_and_exact():
    # Each cell loses 0.004 when it is rounded, and so does the mean of the cells.
    seven = row(build_table("simcse-5", sts("simcse-bert-base", *UNROUNDED)), "SimCSE-BERT-base")
    assert seven.cell(AVERAGE).measured == TableNumber(42.34, None)
    exact = seven.cell(EXACT).measured
    assert exact and exact.value == pytest.approx(42.344)
    close = [0.10004, 0.10004, 0.10004, 0.10004, 0.10004, 0.10004, 0.10014]
    rounded = (
        row(build_table("simcse-5", sts("simcse-bert-base", *close)), "SimCSE-BERT-base")
        .cell(AVERAGE)
        .measured
    )
    # Of 10.00 six times and 10.01: 10.0014; the exact mean is 10.0054.
    assert rounded == TableNumber(10.00, None)
    table = build_table("consert-2", sts("bert-base-last2-consert", *close))
    assert row(table, "BERT-base").cell(AVERAGE).measured == TableNumber(10.01, None)
    assert shown(build_layout(table, "measured", exact=True), "BERT-base")[-1] == "10.005429"


def test_another_aggregation_is_read_from_the_same_result():
    results = [*sts("simcse-bert-base", *UNROUNDED), *sts("bert-base-first-last", *UNROUNDED)]
    table = build_table("simcse-b3", results)
    assert row(table, "SimCSE-BERT-base").cell("sts12").measured == pytest.approx(
        (11.344, None, None, None, 1, "", "")
    )
    # STS-B has no subsets: all aggregations are one.
    no_subsets = make_result("simcse-bert-base", "stsb", 0.5, scores={"spearman.all": 0.5})
    assert row(build_table("simcse-b3", [no_subsets]), "SimCSE-BERT-base").cell("stsb").measured
    subsets = make_result("simcse-bert-base", "sts12", 0.5, scores={"spearman.all": 0.5})
    assert not row(build_table("simcse-b3", [subsets]), "SimCSE-BERT-base").is_measured


def probe(encoder: str, score: float, **fields: Any) -> Result:
    facts = {**read_published_protocols()["senteval"].fields["probe"], "name": "senteval", **fields}
    scores = {"accuracy": score, "f1": score + 0.1, "majority": 0.5}
    return make_result(encoder, "mrpc", score, protocol=facts, scores=scores)


def test_a_probe_of_other_fields_is_not_the_published_protocol():
    def measured(*results: Result) -> float | None:
        found = row(build_table("simcse-e1", results), "SimCSE-BERT-base").cell("mrpc").measured
        return found and found.value

    assert measured(probe("simcse-bert-base", 0.7)) == pytest.approx(70)
    for fields in ({"kfold": 5}, {"loss": "sum"}, {"name": "logreg"}, {"name": "senteval-fast"}):
        assert measured(probe("simcse-bert-base", 0.7, **fields)) is None
    assert (
        measured(
            make_result(
                "simcse-bert-base", "mrpc", 0.7, protocol=SENTEVAL, scores={"accuracy": 0.7}
            )
        )
        is None
    )
    other = make_result(
        "simcse-bert-base",
        "mrpc",
        0.7,
        protocol=SIMCSE,
        scores={"accuracy": 0.7},
        split="validation",
    )
    assert measured(other) is None


def test_protocols_are_those_of_the_evaluators():
    for name, facts in read_published_protocols().items():
        for evaluator, fields in facts.fields.items():
            known = dataclasses.asdict(EVALUATORS.load(evaluator).PROTOCOLS[name])
            # A Result of STS holds all metrics and aggregations, others hold all metrics.
            open_fields = ("name", "metric", *(["aggregation"] if facts.aggregation else []))
            assert {
                k: list(v) if isinstance(v, tuple) else v
                for k, v in known.items()
                if k not in open_fields
            } == fields
        if facts.aggregation:
            known = dataclasses.asdict(EVALUATORS.load("sts").PROTOCOLS[name])
            assert (known["metric"], known["aggregation"]) == (facts.metric, facts.aggregation)


def test_an_encoder_of_other_parameters_passes_for_no_published_row():
    results = sts("simcse-bert-base+pooling=max", *UNROUNDED)
    assert not any(one.is_measured for one in build_table("simcse-5", results).rows())
    (own,) = [one for one in build_table("sts", results).rows() if one.is_measured]
    assert own.label == "SimCSE-BERT-base (unsup.)+pooling=max" and not own.published_key


def test_composite_is_measured_from_all_its_parts():
    card = read_table_card("declutr-2")
    assert card.average
    results = []
    for task in ("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec", "mrpc", "sicke", "snli"):
        split = Catalogue().task(task).score_split
        scores = {"accuracy": 0.5, "f1": 0.8} if task == "mrpc" else {"accuracy": 0.5}
        facts = {**read_published_protocols()["senteval"].fields["probe"], "name": "senteval"}
        results.append(
            make_result("declutr-base", task, 0.5, split=split, protocol=facts, scores=scores)
        )
    for task in ("sickr-regression", "stsb-regression"):
        facts = {
            **read_published_protocols()["senteval"].fields["relatedness"],
            "name": "senteval",
            "metric": "pearson",
        }
        results.append(
            make_result(
                "declutr-base", task, 0.9, protocol=facts, scores={"pearson": 0.9, "spearman": 0.5}
            )
        )
    facts = {**read_published_protocols()["senteval"].fields["retrieval"], "name": "senteval"}
    results.append(
        make_result("declutr-base", "coco", 0.5, protocol=facts, scores={"mean_recall": 0.5})
    )
    results += [
        make_result("declutr-base", task, 0.9, scores={"spearman.mean": 0.5}) for task in STS[:5]
    ]
    one = row(build_table("declutr-2", results), "DeCLUTR-base")
    # Sixteen tasks at 50 and MRPC at the mean of 50 and 80.
    assert one.cell(EXACT).measured == pytest.approx(
        ((16 * 50 + 65) / 17, None, None, None, 1, "", "")
    )
    assert row(build_table("declutr-2", results[1:]), "DeCLUTR-base").cell(EXACT).measured is None
    assert row(build_table("all", results), "DeCLUTR-base").cell("sts").measured is None


# Boards of our own.


def test_measured_takes_the_place_of_published_on_a_board():
    table = build_table(
        "sts", [*sts("simcse-bert-base", *UNROUNDED), *sts("mine", *UNROUNDED[::-1])]
    )
    mine, simcse = row(table, "mine"), row(table, "SimCSE-BERT-base (unsup.)")
    assert mine.is_measured and not mine.published_key
    assert simcse.is_measured and simcse.published_key == "simcse/table-5/SimCSE-BERT-base"
    layout = build_layout(table)
    assert shown(layout, "SimCSE-BERT-base (unsup.)")[0] == "12.34"
    assert shown(layout, "SimCSE-RoBERTa-base (unsup.)†")[0] == "70.16"
    assert "† published, not measured here" in layout.legend
    assert [group.section for group in table.groups][-1] == "Others"


def test_a_board_holds_no_row_twice_that_papers_take_over_from_each_other():
    labels = [one.label for one in build_table("sts").rows()]
    assert len([label for label in labels if "IS-BERT" in label]) == 1
    assert len([label for label in labels if "GloVe" in label and "InferSent" not in label]) == 1
    keys = [one.published_key for one in build_table("sts").rows()]
    assert "simcse/table-b.2/SBERT (all)" in keys and "sgopt/table-1/SBERT-base Mean" not in keys


def test_averages_of_other_tables_are_columns_of_the_board_of_all():
    table = build_table("all", sts("minilm", *UNROUNDED))
    assert row(table, "all-MiniLM-L6-v2").cell("sts").measured == pytest.approx(
        (42.344, None, None, None, 1, "", "")
    )
    assert row(table, "SimCSE-BERT-base (unsup.)").cell("transfer").published == TableNumber(
        85.81, decimals=2, published_key="simcse/table-e.1/SimCSE-BERT-base"
    )
    assert AVERAGE not in [column.key for column in table.columns]
    # Ablations print nothing but an average.
    assert not [one for one in table.rows() if "tau" in one.label or "batch" in one.label]


def majority_results() -> list[Result]:
    levels = {
        "mr": 50.0,
        "cr": 63.76,
        "subj": 50.0,
        "mpqa": 68.77,
        "sst2": 49.92,
        "trec": 18.8,
        "mrpc": 66.49,
    }
    splits = {"sst2": "test", "trec": "test", "mrpc": "test"}
    return [
        make_result(
            "mine",
            task,
            0.5,
            split=splits.get(task, "all"),
            scores={"majority": points / 100, "accuracy": 0.5},
        )
        for task, points in levels.items()
    ]


@pytest.mark.parametrize("name", ["simcse-e1", "transfer"])
def test_the_majority_baseline_stands_below_transfer_tables(name):
    table = build_table(name, majority_results())
    last = table.groups[-1]
    assert (last.section, [one.label for one in last.rows]) == ("Baseline", ["majority class"])
    assert shown(build_layout(table), "majority class") == [
        "50.00", "63.76", "50.00", "68.77", "49.92", "18.80", "66.49", "52.53",
    ]  # fmt: skip
    assert all(cell.rank == 0 for cell in build_layout(table).blocks[-1].lines[0].cells)
    assert "majority class" not in [one.label for one in build_table(name).rows()]
    assert build_layout(table, "published").blocks[-1].section != "Baseline"


def own_card(tmp_path: Path, key: str) -> Catalogue:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "my-simcse.toml").write_text(
        ENCODER + f'published = ["{key}"]\n', encoding="utf-8"
    )
    return Catalogue([tmp_path])


def of_mine(catalogue: Catalogue) -> str:
    return catalogue.encoder_digest(catalogue.encoder("my-simcse"))


def test_a_card_of_the_users_own_can_name_a_published_row(tmp_path):
    catalogue = own_card(tmp_path, "simcse/table-5/SimCSE-BERT-base")
    one = row(
        build_table(
            "simcse-5", sts("my-simcse", *UNROUNDED, encoder_card=of_mine(catalogue)), catalogue
        ),
        "SimCSE-BERT-base",
    )
    assert one.encoder == "my-simcse" and one.cell("sts12").difference


def test_a_second_encoder_of_a_published_row_has_its_own_name_and_overlap(tmp_path):
    catalogue = own_card(tmp_path, "simcse/table-5/SimCSE-BERT-base")
    results = sts("simcse-bert-base", *UNROUNDED, overlap="none")
    results += sts("my-simcse", *UNROUNDED, encoder_card=of_mine(catalogue), overlap="gold")
    second = row(build_table("simcse-5", results, catalogue), "SimCSE-BERT-base [my-simcse]")
    assert (second.encoder, second.overlap) == ("my-simcse", "gold")


def test_a_card_that_names_a_row_that_is_not_there_is_refused(tmp_path):
    catalogue = own_card(tmp_path, "simcse/table-5/SimCSE-BERT-bas")
    with pytest.raises(
        CardError, match="my-simcse.toml: key 'published': unknown published row .*; did you mean"
    ):
        build_table(
            "simcse-5", sts("my-simcse", *UNROUNDED, encoder_card=of_mine(catalogue)), catalogue
        )


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
        (
            'title = "Mine"',
            'titel = "Mine"',
            "mine.toml: unknown key 'titel'; did you mean 'title'",
        ),
        (
            'paper = "bert-flow"',
            'paper = "bert-flo"',
            "key 'paper': 'bert-flo' is not one of papers.toml; did you mean",
        ),
        ('["BERT-base"]', '[{encoder = "a"}]', "unknown key 'encoder' in .*; known: row, label, "),
        (
            'paper = "bert-flow"',
            "",
            r"'' is not one of papers.toml, .* write \[board\] in place of",
        ),
        ('"BERT-base"', '"minilm"', "no row 'minilm' in bert-flow/table-2, .*; `add=minilm` adds"),
        (
            '"wmean"',
            '"wmaen"',
            "key 'protocol': 'wmaen' is not one of protocols.toml; did you mean 'wmean'",
        ),
        (
            '"BERT-base"',
            '"BERT-bas"',
            "no row 'BERT-bas' in bert-flow/table-2; did you mean 'BERT-base'",
        ),
        (
            '"sts12"',
            '{task = "mrpc", metric = "acuracy"}',
            "metric 'acuracy' is unknown; did you mean 'accuracy'",
        ),
        ('"sts12"', "{}", "columns: give either 'task' or 'average_of', not neither"),
        ('columns = ["stsb", "sts12"]', "", "give either 'suite' or 'columns'"),
        ("[[groups]]", "[board]\n[[groups]]", r"give either \[\[groups\]\] or \[board\]"),
        ('"stsb"', '{task = "stsb", protocol = ""}', "'stsb' has neither a metric nor a protocol"),
        (
            "[[groups]]",
            '[average]\ntask = "sts"\nof = ["sts13"]\n[[groups]]',
            "'of' names 'sts13', which is not a column",
        ),
        (
            "[[groups]]",
            '[average]\ntask = "sts"\nof = ["stsb", []]\n[[groups]]',
            r"\[average\]: a list in 'of' is empty",
        ),
        ('"sts12"', '{task = "stsb", split = "test"}', "columns: 'stsb' stands there twice"),
        ('"stsb"', '{average_of = "simcse-1"}', "table 'simcse-1' has no average"),
        (
            "[[groups]]",
            '[average]\ntask = "sts"\n[delta]\nrow = "Gone"\n[[groups]]',
            r"\[delta\]: 'row' names .*Gone', which is not a row",
        ),
        (
            "[[groups]]",
            '[delta]\nrow = "BERT-base"\n[[groups]]',
            r"\[delta\]: the table has no average; name a column",
        ),
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


def test_columns_of_one_task_by_other_splits_metrics_and_protocols_have_their_own_scores(tmp_path):
    columns = """[
        "stsb",
        {task = "stsb", protocol = "simcse"},
        {task = "stsb", metric = "pearson"},
        {task = "stsb", metric = "pearson", split = "validation"},
    ]
    [board]
    """
    text = OWN.partition("[[groups]]")[0].replace('["stsb", "sts12"]', columns)
    table = build_table(own_table(tmp_path, text), sts("mine", 0.5, tasks=["stsb"]))
    one = row(table, "mine")
    numbers = [one.cell(column.key).measured for column in table.columns]
    assert [number and number.value for number in numbers] == [49.0, 50.0, 52.0, None]
    assert [column.key for column in table.columns] == [
        "stsb",
        "stsb.simcse",
        "stsb.pearson",
        "stsb.pearson.validation",
    ]


def test_a_column_that_is_no_task_offers_the_nearest(tmp_path):
    with pytest.raises(UnknownName, match="mean 'sts12'") as caught:
        build_table(own_table(tmp_path, OWN.replace("sts12", "sts122")))
    assert (caught.value.kind, caught.value.name) == ("task", "sts122")


def test_a_mixture_that_is_not_declared_is_refused(tmp_path):
    with pytest.raises(
        ProtocolError,
        match=r"'bert-flow/table-2/Avg. GloVe': stsb is scored by 'simcse', .* by 'wmean'",
    ):
        build_table(own_table(tmp_path, OWN.replace('"BERT-base"', '"Avg. GloVe"')))
    declared = OWN.replace('"BERT-base"', '{row = "Avg. GloVe", protocol = "simcse"}')
    assert row(build_table(own_table(tmp_path, declared)), "Avg. GloVe").other_protocol == "simcse"


def test_an_average_over_protocols_is_refused_unless_it_is_a_declared_composite(tmp_path):
    mixed = (
        OWN.replace('"sts12"', '{task = "sts12", protocol = "mean"}') + '[average]\ntask = "sts"\n'
    )
    mixed = mixed.replace('rows = ["BERT-base"]', "rows = []")
    with pytest.raises(
        CardError,
        match="over columns scored by mean spearman and wmean spearman; say composite = true",
    ):
        build_table(own_table(tmp_path, mixed))
    build_table(own_table(tmp_path, mixed + "composite = true\n"))


def test_rows_of_unknown_protocol_have_no_average_but_the_printed_one():
    table = build_table("consert-2")
    clear, ct = row(table, "CLEAR-base"), row(table, "BERT-base-CT")
    assert clear.other_protocol == "unknown" and clear.cell(AVERAGE).published == TableNumber(
        61.8, decimals=1, published_key=clear.published_key
    )
    assert clear.cell(EXACT).published is None and ct.cell(AVERAGE).published is None
    assert look_up_published_row(clear.published_key).quoted == "clear"
