"""Tables: every printed number in its place, measured ones beside it, protocols and holes never mixed in silence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stsbench.cards import Catalogue
from stsbench.errors import CardError, ProtocolError, UnknownName
from stsbench.evaluators import EVALUATORS
from stsbench.leaderboard.layout import BEST, SECOND, Layout, lay_out
from stsbench.leaderboard.published import misprints, published_row, published_rows
from stsbench.leaderboard.specs import protocols, read_table, row_facts, table_names
from stsbench.leaderboard.table import AVERAGE, DELTA, EXACT, Cell, Column, Group, Number, Row, Table
from stsbench.leaderboard.tables import build_table
from stsbench.results import Result
from tests.made import SIMCSE, make_result

BOARDS = ["sts", "transfer", "multilingual", "probing", "all"]
PAPERS = [name for name in table_names() if name not in BOARDS]
STS = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
SENTEVAL = {"name": "senteval", "kfold": 10, "nhid": 0}


def sts(encoder: str, *scores: float, tasks: list[str] = STS, **changes: Any) -> list[Result]:
    """Results on the tasks, each score also as weighted mean, a point lower, and as Pearson, two points higher."""
    return [
        make_result(
            encoder,
            task,
            score,
            scores={"spearman.all": score, "spearman.wmean": score - 0.01, "pearson.wmean": score + 0.02},
            **changes,
        )
        for task, score in zip(tasks, scores, strict=True)
    ]


def row(table: Table, label: str) -> Row:
    (found,) = [one for one in table.rows() if one.label == label]
    return found


def shown(layout: Layout, label: str) -> list[str]:
    (found,) = [line for block in layout.blocks for line in block.lines if line.label + line.marks == label]
    return [cell.text + cell.deviation + cell.mark for cell in found.cells]


# What is shipped.


def test_all_tables_that_were_promised_are_there():
    promised = [f"sgopt-{n}" for n in range(1, 7)] + [f"consert-{n}" for n in (2, 3, 4)]
    promised += [f"declutr-{n}" for n in (1, 2, 3, 4)] + [f"simcse-{n}" for n in ("5", "e1", "b2", "b3", "c1")]
    assert {*promised, *BOARDS} <= set(table_names())
    assert table_names()[:5] == BOARDS


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_table_holds_every_number_printed_in_it_once(name):
    card, table = read_table(name), build_table(name)
    source = [one for one in published_rows().values() if (one.paper, one.table) == (card.paper, card.table)]
    printed = sorted((one.key, s.value, s.deviation or 0) for one in source for s in one.scores)
    filled = [
        (one.key, c.published) for one in table.rows() for key, c in one.cells.items() if key not in (EXACT, DELTA)
    ]
    assert sorted((key, n.value, n.deviation or 0) for key, n in filled if n) == printed
    assert [one.key for one in table.rows()] == [
        f"{card.paper}/{card.table}/{facts.row}" for group in card.groups for facts in row_facts(group)
    ]
    assert not any(one.is_measured for one in table.rows())


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_of_ours_has_rows_from_what_is_published(name):
    table = build_table(name)
    assert len(table.rows()) >= 9
    labels = [one.label for one in table.rows()]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("sgopt-1", "STS-B SICK-R STS12 STS13 STS14 STS15 STS16 Avg."),
        ("simcse-5", "STS12 STS13 STS14 STS15 STS16 STS-B SICK-R Avg."),
        ("simcse-e1", "MR CR SUBJ MPQA SST2 TREC MRPC Avg."),
        ("consert-2", "STS12 STS13 STS14 STS15 STS16 STS-B SICK-R Avg."),
        ("declutr-3", "SentLen WC TreeDepth TopConst BShift Tense SubjNum ObjNum SOMO CoordInv Avg."),
    ],
)
def test_columns_are_in_the_papers_order(name, heads):
    assert list(lay_out(build_table(name)).heads) == heads.split()


def test_groups_are_those_of_the_paper():
    groups = [(g.section, g.title, len(g.rows)) for g in build_table("simcse-5").groups]
    assert [size for _, _, size in groups] == [7, 4, 1, 7, 3, 1]
    assert [section for section, _, _ in groups] == ["Unsupervised"] * 3 + ["Supervised"] * 3
    titles = [group.title for group in build_table("sgopt-1").groups]
    assert titles[1:] == ["BERT-base", "BERT-large", "SBERT-base", "SBERT-large", "RoBERTa-base", "RoBERTa-large"]


def test_marks_say_what_is_quoted_scored_otherwise_and_misprinted():
    layout = lay_out(build_table("sgopt-1"))
    lines = {(b.title, line.label): line for b in layout.blocks for line in b.lines}
    assert lines["SBERT-base", "Flow, mean-2"].marks == "†‡"
    assert lines["BERT-base", "Flow, mean-2"].marks == ""
    assert lines["BERT-large", "Flow, mean-2"].cells[-1] == ("70.07", "±0.81", 0, "*")
    assert lines["SBERT-large", "Contrastive (BT)"].marks == "*"
    assert layout.legend[:2] == [
        "† taken over from SBERT, BERT-flow",
        "‡ scored otherwise than the columns say (wmean); not ranked",
    ]
    assert "* BERT-large, Flow, mean-2, Avg.: the row's mean is 69.74" in layout.legend


def test_every_misprint_in_a_table_is_marked():
    seen = {}
    for name in PAPERS:
        for one in build_table(name).rows():
            seen |= {(one.key, key): cell.misprint for key, cell in one.cells.items() if cell.misprint}
            seen |= {(one.key, ""): one.misprint} if one.misprint else {}
    papers = {(card.paper, card.table) for card in map(read_table, PAPERS)}
    listed = {key for key in misprints() if tuple(key[0].split("/")[:2]) in papers}
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
        **{"GloVe": -13.63, "fastText": -10.54, "InferSent": -3.10, "USE": -0.21, "Sent. Transformers": -1.91},
        **{"Transformer-small": -6.52, "Transformer-base": -6.40, "DeCLUTR-small": -1.60},
    }
    assert lay_out(table).heads[-2:] == ["Avg.‡", "Δ"]
    assert "‡ a mean over tasks that are scored in different ways" in lay_out(table).legend


def test_best_and_second_best_are_those_of_the_group():
    layout = lay_out(build_table("sgopt-1"))
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
            cells={"c": Cell(published=Number(v))} if v is not None else {},
            otherwise=otherwise if i else "",
        )
        for i, v in enumerate(values)
    ]
    table = Table(name="t", title="t", columns=[Column(key="c", head="c", better=better)], groups=[Group(rows=rows)])
    lines = [line for block in lay_out(table, "published").blocks for line in block.lines]
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


# Measured numbers.

UNROUNDED = (0.12344, 0.22344, 0.32344, 0.42344, 0.52344, 0.62344, 0.72344)


def test_measured_published_and_their_difference_stand_side_by_side():
    table = build_table("simcse-5", sts("simcse-bert-base", *UNROUNDED))
    cell = row(table, "SimCSE-BERT-base").cell("sts12")
    assert cell.published == Number(68.40, None, 2)
    assert cell.measured and cell.measured.value == pytest.approx(12.344)
    assert cell.measured.interval == pytest.approx((2.344, 22.344))
    assert cell.difference and cell.difference.value == pytest.approx(12.344 - 68.40)
    layout = lay_out(table)
    lines = [line for block in layout.blocks for line in block.lines]
    at = next(i for i, line in enumerate(lines) if line.label == "SimCSE-BERT-base")
    assert [line.label for line in lines[at + 1 : at + 3]] == ["measured", "difference"]
    assert [cell.text for cell in lines[at + 1].cells[:2]] == ["12.34", "22.34"]
    assert lines[at + 2].cells[0].text == "-56.06"


def test_averages_as_the_paper_rounds_them_and_exact():
    # Each cell loses 0.004 when it is rounded, and so does the mean of the cells.
    seven = row(build_table("simcse-5", sts("simcse-bert-base", *UNROUNDED)), "SimCSE-BERT-base")
    assert seven.cell(AVERAGE).measured == Number(42.34, None)
    exact = seven.cell(EXACT).measured
    assert exact and exact.value == pytest.approx(42.344)
    close = [0.10004, 0.10004, 0.10004, 0.10004, 0.10004, 0.10004, 0.10014]
    rounded = row(build_table("simcse-5", sts("simcse-bert-base", *close)), "SimCSE-BERT-base").cell(AVERAGE).measured
    # Of 10.00 six times and 10.01: 10.0014; the exact mean is 10.0054.
    assert rounded == Number(10.00, None)
    table = build_table("consert-2", sts("bert-base-last2-consert", *close))
    assert row(table, "BERT-base").cell(AVERAGE).measured == Number(10.01, None)
    assert shown(lay_out(table, "measured", exact=True), "BERT-base")[-1] == "10.005429"


def test_a_missing_cell_leaves_no_average():
    table = build_table("simcse-5", sts("simcse-bert-base", *UNROUNDED[:6], tasks=STS[:6]))
    assert row(table, "SimCSE-BERT-base").cell("stsb").measured
    assert row(table, "SimCSE-BERT-base").cell(AVERAGE).measured is None
    assert row(table, "SimCSE-BERT-base").cell(AVERAGE).published


def test_another_aggregation_is_read_from_the_same_result():
    results = [*sts("simcse-bert-base", *UNROUNDED), *sts("bert-base-first-last", *UNROUNDED)]
    table = build_table("simcse-b3", results)
    assert row(table, "SimCSE-BERT-base").cell("sts12").measured == pytest.approx((11.344, None, None, None))
    # STS-B has no subsets: all aggregations are one.
    no_subsets = make_result("simcse-bert-base", "stsb", 0.5, scores={"spearman.all": 0.5})
    assert row(build_table("simcse-b3", [no_subsets]), "SimCSE-BERT-base").cell("stsb").measured
    subsets = make_result("simcse-bert-base", "sts12", 0.5, scores={"spearman.all": 0.5})
    assert not row(build_table("simcse-b3", [subsets]), "SimCSE-BERT-base").is_measured


def probe(encoder: str, score: float, **fields: Any) -> Result:
    facts = {**protocols()["senteval"].fields["probe"], "name": "senteval", **fields}
    scores = {"accuracy": score, "f1": score + 0.1, "majority": 0.5}
    return make_result(encoder, "mrpc", score, protocol=facts, scores=scores)


def test_a_probe_of_other_fields_is_not_the_published_protocol():
    def measured(*results: Result) -> float | None:
        found = row(build_table("simcse-e1", results), "SimCSE-BERT-base").cell("mrpc").measured
        return found and found.value

    assert measured(probe("simcse-bert-base", 0.7)) == pytest.approx(70)
    # As a Result in memory has them.
    assert measured(probe("simcse-bert-base", 0.7, weight_decays=(1e-5, 1e-4, 1e-3, 1e-2)))
    for fields in ({"kfold": 5}, {"loss": "sum"}, {"name": "logreg"}, {"name": "senteval-fast"}):
        assert measured(probe("simcse-bert-base", 0.7, **fields)) is None
    assert measured(make_result("simcse-bert-base", "mrpc", 0.7, protocol=SENTEVAL, scores={"accuracy": 0.7})) is None
    other = make_result("simcse-bert-base", "mrpc", 0.7, protocol=SIMCSE, scores={"accuracy": 0.7}, split="validation")
    assert measured(other) is None


def test_protocols_are_those_of_the_evaluators():
    for name, facts in protocols().items():
        for evaluator, fields in facts.fields.items():
            known = dataclasses.asdict(EVALUATORS.load(evaluator).PROTOCOLS[name])
            # Which metric is the score says nothing: a Result holds them all.
            assert {
                k: list(v) if isinstance(v, tuple) else v for k, v in known.items() if k not in ("name", "metric")
            } == fields
        if facts.aggregation:
            known = dataclasses.asdict(EVALUATORS.load("sts").PROTOCOLS[name])
            assert (known["metric"], known["aggregation"]) == (facts.metric, facts.aggregation)


def test_seeds_are_a_mean_with_a_deviation_of_cells_and_average():
    results = [
        r
        for seed, shift in enumerate((0.0, 0.02))
        for r in sts("simcse-bert-base", *(s + shift for s in UNROUNDED), train_seed=seed, fingerprint=f"{seed}" * 64)
    ]
    one = row(build_table("simcse-5", results), "SimCSE-BERT-base")
    cell, average = one.cell("sts12").measured, one.cell(AVERAGE).measured
    assert cell == pytest.approx((13.344, 2**0.5, None, None))
    assert average and average.deviation == pytest.approx(2**0.5)


def test_two_states_of_an_encoder_are_two_rows():
    results = [*sts("simcse-bert-base", *UNROUNDED), *sts("simcse-bert-base", *UNROUNDED[::-1], fingerprint="f" * 64)]
    rows = [one for one in build_table("simcse-5", results).rows() if one.is_measured]
    assert [one.label for one in rows] == ["SimCSE-BERT-base", "SimCSE-BERT-base [ffffff]"]
    assert not rows[1].is_published and rows[0].is_published


def test_composite_is_measured_from_all_its_parts():
    card = read_table("declutr-2")
    assert card.average
    results = []
    for task in ("cr", "mr", "mpqa", "subj", "sst2", "sst5", "trec", "mrpc", "sicke", "snli"):
        split = Catalogue().task(task).score_split
        scores = {"accuracy": 0.5, "f1": 0.8} if task == "mrpc" else {"accuracy": 0.5}
        facts = {**protocols()["senteval"].fields["probe"], "name": "senteval"}
        results.append(make_result("declutr-base", task, 0.5, split=split, protocol=facts, scores=scores))
    for task in ("sickr-regression", "stsb-regression"):
        facts = {**protocols()["senteval"].fields["relatedness"], "name": "senteval", "metric": "pearson"}
        results.append(make_result("declutr-base", task, 0.9, protocol=facts, scores={"pearson": 0.9, "spearman": 0.5}))
    facts = {**protocols()["senteval"].fields["retrieval"], "name": "senteval"}
    results.append(make_result("declutr-base", "coco", 0.5, protocol=facts, scores={"mean_recall": 0.5}))
    results += [make_result("declutr-base", task, 0.9, scores={"spearman.mean": 0.5}) for task in STS[:5]]
    one = row(build_table("declutr-2", results), "DeCLUTR-base")
    # Sixteen tasks at 50 and MRPC at the mean of 50 and 80.
    assert one.cell(EXACT).measured == pytest.approx(((16 * 50 + 65) / 17, None, None, None))
    assert row(build_table("declutr-2", results[1:]), "DeCLUTR-base").cell(EXACT).measured is None
    assert row(build_table("all", results), "DeCLUTR-base").cell("sts").measured is None


# Boards of our own.


def test_measured_takes_the_place_of_published_on_a_board():
    table = build_table("sts", [*sts("simcse-bert-base", *UNROUNDED), *sts("mine", *UNROUNDED[::-1])])
    mine, simcse = row(table, "mine"), row(table, "SimCSE-BERT-base (unsup.)")
    assert mine.is_measured and not mine.is_published
    assert simcse.is_measured and simcse.key == "simcse/table-5/SimCSE-BERT-base"
    layout = lay_out(table)
    assert shown(layout, "SimCSE-BERT-base (unsup.)")[0] == "12.34"
    assert shown(layout, "SimCSE-RoBERTa-base (unsup.)†")[0] == "70.16"
    assert "† published, not measured here" in layout.legend
    assert [group.section for group in table.groups][-1] == "Others"


def test_a_board_is_sorted_by_average_within_each_group():
    for group in build_table("sts").groups:
        averages = [n.value for one in group.rows if (n := one.cell(AVERAGE).published)]
        assert averages == sorted(averages, reverse=True)


def test_a_board_holds_no_row_twice_that_papers_take_over_from_each_other():
    labels = [one.label for one in build_table("sts").rows()]
    assert len([label for label in labels if "IS-BERT" in label]) == 1
    assert len([label for label in labels if "GloVe" in label and "InferSent" not in label]) == 1
    keys = [one.key for one in build_table("sts").rows()]
    assert "simcse/table-b.2/SBERT (all)" in keys and "sgopt/table-1/SBERT-base Mean" not in keys


def test_averages_of_other_tables_are_columns_of_the_board_of_all():
    table = build_table("all", sts("minilm", *UNROUNDED))
    assert row(table, "all-MiniLM-L6-v2").cell("sts").measured == pytest.approx((42.344, None, None, None))
    assert row(table, "SimCSE-BERT-base (unsup.)").cell("transfer").published == Number(85.81, None, 2)
    assert AVERAGE not in [column.key for column in table.columns]
    # Ablations print nothing but an average.
    assert not [one for one in table.rows() if "tau" in one.label or "batch" in one.label]


def test_overlap_is_marked_on_boards():
    layout = lay_out(build_table("sts", sts("mine", *UNROUNDED, overlap="gold")))
    assert shown(layout, "mine¶") and shown(layout, "SBERT-base-NLI†§")


# Cards and tables of the user's own.

ENCODER = """
name = "Mine"
kind = "words"
method = "Mean"
backbone = "GloVe"
supervision = "none"
overlap = "none"
paper = "none"
license = "mine"
published = ["{}"]
"""


def own_card(tmp_path: Path, key: str) -> Catalogue:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "my-simcse.toml").write_text(ENCODER.format(key), encoding="utf-8")
    return Catalogue([tmp_path])


def test_a_card_of_the_users_own_can_name_a_published_row(tmp_path):
    catalogue = own_card(tmp_path, "simcse/table-5/SimCSE-BERT-base")
    one = row(build_table("simcse-5", sts("my-simcse", *UNROUNDED), catalogue), "SimCSE-BERT-base")
    assert one.encoder == "my-simcse" and one.cell("sts12").difference


def test_a_card_that_names_a_row_that_is_not_there_is_refused(tmp_path):
    catalogue = own_card(tmp_path, "simcse/table-5/SimCSE-BERT-bas")
    with pytest.raises(CardError, match="my-simcse.toml: key 'published': unknown published row .*; did you mean"):
        build_table("simcse-5", sts("my-simcse", *UNROUNDED), catalogue)


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


def test_a_table_of_the_users_own(tmp_path):
    table = build_table(own_table(tmp_path, OWN), sts("bert-base-mean", *UNROUNDED))
    assert [one.label for one in table.rows()] == ["BERT-base"]
    assert row(table, "BERT-base").cell("sts12").published == Number(49.07, None, 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "Mine"', 'titel = "Mine"', "mine.toml: unknown key 'titel'; did you mean 'title'"),
        ('paper = "bert-flow"', 'paper = "bert-flo"', "key 'paper': 'bert-flo' is none of papers.toml; did you mean"),
        ('"wmean"', '"wmaen"', "key 'protocol': 'wmaen' is none of protocols.toml; did you mean 'wmean'"),
        ('"BERT-base"', '"BERT-bas"', "no row 'BERT-bas' in bert-flow/table-2; did you mean 'BERT-base'"),
        ('"sts12"', '{task = "mrpc", metric = "acuracy"}', "metric 'acuracy' is unknown; did you mean 'accuracy'"),
        ('"sts12"', "{}", "columns: give either 'task' or 'average_of', not neither"),
        ('columns = ["stsb", "sts12"]', "", "give either 'suite' or 'columns'"),
        ("[[groups]]", "[board]\n[[groups]]", r"give either \[\[groups\]\] or \[board\]"),
        ('"stsb"', '{task = "stsb", protocol = ""}', "'stsb' has neither a metric nor a protocol"),
        ("[[groups]]", '[average]\ntask = "sts"\nof = ["sts13"]\n[[groups]]', "'of' names 'sts13', which is no column"),
        ('"stsb"', '{average_of = "simcse-1"}', "table 'simcse-1' has no average"),
        ("[[groups]]", '[average]\ntask = "sts"\ndelta = "Gone"\n[[groups]]', "'delta' names .*Gone', which is no row"),
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


def test_an_unknown_table_offers_the_nearest():
    with pytest.raises(UnknownName, match="unknown table 'sgopt1'; did you mean 'sgopt-1'"):
        build_table("sgopt1")
