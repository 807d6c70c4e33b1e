"""The published scores that the package ships: whole, unique, in range, named rightly, and their averages agree."""

from __future__ import annotations

import re
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stsbench.boards.published.rows import (
    METRICS,
    PublishedFacts,
    PublishedRow,
    PublishedScore,
    look_up_published_row,
    read_misprints,
    read_published_protocols,
    read_published_rows,
    read_sources,
    read_table_card,
)
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.table import TableNumber
from stsbench.core.catalogue import Catalogue, card_folder
from stsbench.core.errors import CardError, UnknownName
from tests.made import card_of

CATALOGUE = Catalogue()
FACTS = PublishedFacts.__struct_fields__
ROWS = read_published_rows()
SCORES = [(row, score) for row in ROWS.values() for score in row.scores]
DOWNSTREAM = "cr mr mpqa subj sst2 sst5 trec sicke sickr-regression stsb-regression coco sts12 sts13 sts14 sts15 sts16"
AVERAGES = {
    **{name: CATALOGUE.suites()[name].tasks for name in ("sts", "transfer", "probing")},
    "sbert-wk": [
        "sts12",
        "sts13",
        "sts14",
        "sts15",
        "sts16",
        "stsb-regression",
        "sickr-regression",
    ],
    "declutr": DOWNSTREAM.split(),
}


def test_no_score_is_there_twice():
    keys = Counter(
        (row.key, s.task, s.split, s.protocol, s.metric, s.aggregation) for row, s in SCORES
    )
    assert [key for key, times in keys.items() if times > 1] == []
    assert len(ROWS) > 600 and len(SCORES) > 3000


def test_scores_are_in_range():
    for row, score in SCORES:
        metric = METRICS[score.metric]
        low, high = (-100 if metric.better != "high" or "spearman" in score.metric else 0, 100)
        assert not metric.in_points or low <= score.value <= high, (row.key, score)
        assert metric.in_points or score.value >= 0, (row.key, score)
        assert score.deviation is None or 0 <= score.deviation < 5, (row.key, score)
        # Nothing looks like a fraction that was not made points.
        assert not metric.in_points or abs(score.value) > 1 or score.task in ("coco", "stsb"), (
            row.key,
            score,
        )


def test_a_protocol_says_its_metric_and_aggregation():
    for row, score in SCORES:
        if score.protocol:
            facts = read_published_protocols()[score.protocol]
            assert score.aggregation == facts.aggregation, row.key
            assert score.metric == facts.metric or not facts.aggregation, row.key


def test_every_name_exists():
    recipes = {path.stem for path in card_folder("trainers").glob("*.toml")}
    tasks = {*CATALOGUE.paths("tasks"), *CATALOGUE.suites(), *read_sources().extras}
    for row, score in SCORES:
        assert row.paper in read_sources().papers, row.key
        assert not row.quoted or row.quoted in read_sources().papers, row.key
        assert not row.encoder or row.encoder in {*CATALOGUE.paths("baselines"), *recipes}, row.key
        assert score.task in tasks, row.key
        assert row.key.count("/") == 2, row.key


def test_no_source_and_no_extra_task_is_named_for_nothing():
    assert {row.paper for row in ROWS.values()} | {row.quoted for row in ROWS.values()} - {
        ""
    } == set(read_sources().papers)
    assert {score.task for _, score in SCORES} >= set(read_sources().extras)
    assert all(
        paper.url.startswith("https://") and paper.title for paper in read_sources().papers.values()
    )


def test_cards_and_rows_name_each_other():
    of_cards = {name: CATALOGUE.encoder(name).published for name in CATALOGUE.paths("baselines")}
    for name, keys in of_cards.items():
        assert len(set(keys)) == len(keys), name
        for key in keys:
            assert look_up_published_row(key).encoder == name
    for row in ROWS.values():
        assert not row.encoder or row.encoder not in of_cards or row.key in of_cards[row.encoder], (
            row.key
        )


def test_facts_of_a_row_are_those_of_all_its_lines_and_of_its_card():
    for row in ROWS.values():
        for score in row.scores:
            assert {name: getattr(score, name) for name in FACTS} == {
                name: getattr(row, name) for name in FACTS
            }
        if row.encoder in CATALOGUE.paths("baselines"):
            card = CATALOGUE.encoder(row.encoder)
            assert (row.backbone, row.supervision, row.overlap) == (
                card.backbone,
                card.supervision,
                card.overlap,
            )


# Averages.


def of_row(row: PublishedRow) -> Iterator[tuple[PublishedScore, float]]:
    """Each printed average of a row with the mean of the cells that it is of."""
    for average in row.scores:
        tasks = AVERAGES.get(average.task, [])
        cells = [
            next((s for s in row.scores if s.task == t and s.split == average.split), None)
            for t in tasks
        ]
        values = [cell.value for cell in cells if cell is not None]
        if not tasks or len(values) < len(tasks):
            continue
        if average.task == "declutr":
            values.append(statistics.fmean(s.value for s in row.scores if s.task == "mrpc"))
        yield average, statistics.fmean(values)


def test_averages_are_the_means_of_their_rows_but_for_listed_misprints():
    checked, wrong = 0, set()
    for row in ROWS.values():
        for average, mean in of_row(row):
            checked += 1
            # Half a unit of the last digit for the average, and as much for means that were rounded to cells.
            if abs(average.value - mean) > 10.0**-average.decimals * 1.01:
                wrong.add((row.key, average.task))
    listed = {
        key
        for key, one in read_misprints().items()
        if one.kind in ("average", "rounding") and key[1] in AVERAGES
    }
    assert checked > 220
    assert wrong == listed


def test_misprints_name_printed_numbers_and_say_why():
    for (key, task), one in read_misprints().items():
        scores = [
            score for score in look_up_published_row(key).scores if not task or score.task == task
        ]
        assert scores and one.reason, key
        if one.expected and one.kind == "label":
            assert key.rpartition("/")[2] != one.expected
        elif one.expected:
            assert all(float(one.expected) != score.value for score in scores), key
        if one.kind in ("average", "rounding") and task in AVERAGES:
            ((_, mean),) = [(a, m) for a, m in of_row(look_up_published_row(key)) if a.task == task]
            assert float(one.expected) == round(mean, 2), key


def numbers(row: PublishedRow) -> dict[tuple[str, str, str], float]:
    return {(s.task, s.metric, s.aggregation): s.value for s in row.scores}


def test_rows_taken_over_are_those_of_their_source_but_for_listed_misprints():
    own: dict[str, list[dict[tuple[str, str, str], float]]] = {}
    for row in ROWS.values():
        own.setdefault("" if row.quoted else row.paper, []).append(numbers(row))
    differing, checked = set(), 0
    for row in ROWS.values():
        quoted = numbers(row)
        candidates = own.get(row.quoted, []) if row.quoted else []
        nearest = max(
            candidates,
            key=lambda one: sum(one.get(key) == value for key, value in quoted.items()),
            default={},
        )
        same = {key for key, value in quoted.items() if nearest.get(key) == value}
        if len(same) > 2:
            checked += 1
            differing |= {(row.key, key[0]) for key in quoted if key in nearest and key not in same}
    assert checked > 30
    assert differing == {
        key for key, one in read_misprints().items() if "whose number" in one.reason
    }


# Anchors: rows as their papers print them.

ANCHORS = {
    "sgopt/table-1/BERT-base Mean": "stsb 47.29 sickr 58.22 sts12 30.87 sts13 59.89 sts14 47.73 sts15 60.29 sts16 63.73 sts 52.57",
    "sgopt/table-1/BERT-base SG-OPT": "stsb 77.23 sickr 68.16 sts12 66.84 sts13 80.13 sts 74.62",
    "sgopt/table-2/mBERT SG-OPT": "sts14-es 82.74",
    "sgopt/table-3/mBERT SG": "sts17-ar-ar 57.09 sts17-es-es 78.93 sts17-en-en 78.24",
    "sgopt/table-5/lambda 0": "sts 73.76",
    "sgopt/table-6/WK": "stsb 197.03",
    "simcse/table-5/SimCSE-BERT-base": "sts12 68.40 sts13 82.41 sts14 74.38 sts15 80.91 sts16 78.56 stsb 76.85 sickr 72.23 sts 76.25",
    "simcse/table-5/SimCSE-RoBERTa-large (sup.)": "sts12 77.46 sts13 87.27 sts14 82.36 sts15 86.66 sts16 83.93 stsb 86.70 sickr 81.95 sts 83.76",
    "simcse/table-e.1/SimCSE-BERT-base": "mr 81.18 cr 86.46 subj 94.45 mpqa 88.88 sst2 85.50 trec 89.80 mrpc 74.43 transfer 85.81",
    "simcse/table-b.3/SimCSE-BERT-base (sup.)": "sts12 70.90 sts13 81.49 sts14 80.19 sts15 83.79 sts16 81.89 stsb 84.25 sickr 80.39 sts 80.41",
    "simcse/issue-285/BERT-base (first-last avg., layer 1)": "sts12 45.09 sts13 64.30 stsb 59.05 sts 60.73",
    "consert/table-2/ConSERT-base": "sts12 64.64 sts13 78.49 sts14 69.07 sts15 79.72 sts16 75.95 stsb 73.97 sickr 67.31 sts 72.74",
    "consert/table-3/ConSERT-large joint-unsup": "sts 81.28",
    "declutr/table-2/DeCLUTR-small": "cr 87.52 snli 73.59 sickr-regression 77.66 coco 60.85 sts12 63.66 declutr 77.50",
    "declutr/table-3/DeCLUTR-base": "length 84.62 wordcontent 68.98 oddmanout 65.08 probing 74.65",
    "bert-flow/table-2/BERT-base-flow (target)": "stsb 70.72 sickr 63.11 sts12 63.48",
    "diffcse/evaluation-notebook/DiffCSE-BERT-base (transfer)": "mr 82.69 cr 87.23 subj 95.23 mpqa 89.28 sst2 86.60 trec 90.40 mrpc 76.58 transfer 86.86",
    "pcl/readme/PCL-RoBERTa-large": "mr 84.49 cr 89.06 subj 94.67 mpqa 89.26 sst2 89.07 trec 94.20 mrpc 74.90 transfer 87.95",
    "scd/readme/SCD-RoBERTa-base": "mr 82.17 cr 87.76 subj 93.67 mpqa 85.69 sst2 88.19 trec 83.40 mrpc 76.23 transfer 85.30",
    "mteb/results/all-MiniLM-L6-v2": "sts12 72.3690 sickr-mteb 77.5825",
}


@pytest.mark.parametrize("key", ANCHORS)
def test_a_row_is_as_its_paper_prints_it(key):
    words = ANCHORS[key].split()
    printed = {s.task: f"{s.value:.{s.decimals}f}" for s in look_up_published_row(key).scores}
    assert {task: printed[task] for task in words[::2]} == dict(
        zip(words[::2], words[1::2], strict=True)
    )


def test_what_was_not_read_in_a_source_says_so():
    kinds = Counter(score.verified for _, score in SCORES)
    assert set(kinds) == {"yes", "secondary", "figure", "no"} and kinds["yes"] > 2800
    assert all(
        row.paper in ("fastsent", "quick-thoughts", "use", "embeddinggemma")
        for row, s in SCORES
        if s.verified == "no"
    )


# The reader.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("paper,", "papre,", "line 2: Object contains unknown field 'papre'"),
        ("yes", "perhaps", "line 2: Invalid enum value 'perhaps'"),
        ("sts12", "", "line 2: Object missing required field 'task'"),
        ("0.20", "O.20", "line 2: Expected 'float"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, old, new, message):
    head = (
        "paper,table,row,task,split,metric,score,supervision,overlap,verified,encoder,deviation\n"
    )
    path = tmp_path / "scores.csv"
    path.write_text(
        (head + "p,t,r,sts12,test,spearman,70.10,none,none,yes,e,0.20\n").replace(old, new)
    )
    with pytest.raises(CardError, match=message):
        read_published_rows(path)


CATALOGUE = Catalogue()
PAPERS = ("sgopt", "simcse", "consert", "declutr")
TRAINERS = Path(__file__).parents[2] / "trainers"
TRAINING = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")

SYSTEMS = "a system of the shared task itself: its scores alone were published"
FIGURE = "read off a figure: 'stsbench run --set pooling=…' measures any layer and pooling"
ONE_VALUE = "a paper's recipe with one value replaced"
NOT_HERE = "a combination that no method here has"
ENSEMBLE = "two encoders' similarities added: no encoder of its own"

NO_ENCODER = {
    "sgopt/table-2/UMCC-DLSI-run2": SYSTEMS,
    "sgopt/table-3/Cosine baseline": SYSTEMS,
    "sgopt/table-3/ENCU": SYSTEMS,
    "sgopt/figure-1/(CLS|Mean|Max) layer \\d+ .read off.": FIGURE,
    "sgopt/page-ensemble/BERT-base BT . SG": ENSEMBLE,
    "sgopt/table-5/(tau|lambda) [\\d.]+": ONE_VALUE,
    "sgopt/table-5/without projection head": ONE_VALUE,
    "sgopt/figure-domain-shift/SG-OPT, NLI instead of STS-B": ONE_VALUE,
    "simcse/table-7/contradiction.neutral alpha 1.0": NOT_HERE,
    "simcse/table-[1-47]/.*": ONE_VALUE,
    "simcse/table-6/.*": ONE_VALUE,
    "simcse/table-d\\.[12]/.*": ONE_VALUE,
    "simcse/section-4/SimCSE-BERT-base .sup.., two encoders": NOT_HERE,
    "consert/table-4/batch \\d+": ONE_VALUE,
    "consert/section-5/ConSERT-base, no augmentation": ONE_VALUE,
}
"""Rows that no card claims, as patterns, and why. Most are scores on a development split."""

ABLATION_CARDS = [tomllib.loads(path.read_text()) for path in (TRAINERS / "tables").glob("*.toml")]
ABLATIONS = {
    *(
        f"{card.paper}/{card.table}"
        for card in (read_table_card(c["table"]) for c in ABLATION_CARDS if "table" in c)
    ),
    *(
        row["published"].rpartition("/")[0]
        for card in ABLATION_CARDS
        for row in card["rows"]
        if "published" in row
    ),
}
"""The tables that 'stsbench reproduce' prints."""
COMMANDS = {"sgopt/figure-domain-shift": "SG, trained on NLI"}
"""What docs/training.md calls the rows of others."""


def claims() -> Iterator[tuple[str, str]]:
    """Each claimed row with the name, of an encoder's card or a recipe, that claims it."""
    for name in [*CATALOGUE.paths("baselines"), *CATALOGUE.paths("trainers")]:
        known = CATALOGUE.find_encoder(name, card_of(name))
        assert known is not None
        yield from ((key, name) for key in known.published)


CLAIMABLE = {key: row for key, row in read_published_rows().items() if row.paper in PAPERS}
CLAIMED = {key for key, _ in claims()}


def reason(key: str) -> str:
    return next((why for pattern, why in NO_ENCODER.items() if re.fullmatch(pattern, key)), "")


@pytest.mark.parametrize("key", CLAIMABLE)
def test_a_row_is_claimed_or_listed(key):
    assert key in CLAIMED or reason(key), f"no card and no recipe claims '{key}'"


def test_ablations_have_their_command():
    tables = {
        f"{row.paper}/{row.table}" for key, row in CLAIMABLE.items() if reason(key) == ONE_VALUE
    }
    assert tables - ABLATIONS == set(COMMANDS)
    for table, words in COMMANDS.items():
        lines = [
            line
            for line in TRAINING.splitlines()
            if line.startswith("| ") and words in line.split("|")[1]
        ]
        assert any("--set" in line or "--data" in line for line in lines), table


@pytest.mark.parametrize(
    "name", sorted({*CATALOGUE.paths("baselines")} & {*CATALOGUE.paths("trainers")})
)
def test_rows_of_a_card_and_of_a_recipe_of_the_same_name_are_found_under_it(name):
    known = CATALOGUE.find_encoder(name, card_of(name))
    assert known is not None
    assert {*CATALOGUE.encoder(name).published, *CATALOGUE.recipe(name).published} == set(
        known.published
    )
    assert len(known.published) == len(set(known.published))


def test_rows_of_recent_years_stand_on_the_board_with_their_source():
    rows = {row.label: row for row in build_table("sts").rows()}
    means = {
        label: row.cells["average"].published.value
        for label, row in rows.items()
        if "average" in row.cells and row.cells["average"].published
    }
    assert means["OPT 6.7B PromptEOL"] == 79.08
    assert rows["prompteol-llama-7b"].traits.backbone == "LLaMA"
    assert rows["bellm-llama-7b-nli"].traits.year == 2024
    # A row of the repository replaces what another board says of it.
    assert means["CARDS-RoBERTa-base"] == 78.83
    assert "RoBERTa-base CARDS" not in rows
    assert rows["BERT-base + Smooth K2 Loss (tuned)"].overlap == "gold"
    recent = [
        score
        for key in ROWS
        if key.split("/")[0] in ("prompteol", "tncse", "denosent", "syncse")
        for score in look_up_published_row(key).scores
    ]
    assert len(recent) == 8 * (14 + 4 + 1 + 1)
    assert all("seeds not stated" in score.note for score in recent)


def test_each_source_is_a_table_that_prints_all_its_scores():
    rows_by_source: dict[str, list[PublishedRow]] = {}
    for row in ROWS.values():
        rows_by_source.setdefault(f"{row.paper}/{row.table}", []).append(row)
    for name, rows in rows_by_source.items():
        table = build_table(name, (), CATALOGUE)
        columns = [column.key for column in table.columns]
        assert len(columns) == len(set(columns)), name
        printed = [
            (row.published_key, cell.published.value)
            for row in table.rows()
            for cell in row.cells.values()
            if cell.published
        ]
        expected = [(row.key, score.value) for row in rows for score in row.scores]
        assert sorted(printed) == sorted(expected), name
    (ct,) = [row for row in build_table("ct/readme").rows() if row.label == "BERT-Base-CT"]
    assert ct.cells["stsb.test.spearman.all"].published == TableNumber(
        73.31, decimals=2, published_key="ct/readme/BERT-Base-CT"
    )
    with pytest.raises(UnknownName, match="unknown table 'ct/readm'"):
        build_table("ct/readm")
