"""Published scores that are too near to the next better one for a test to see."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import json
import math
import tomllib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stsbench.boards.tables.detectable import MEAN, detectable_gap, read_spread
from stsbench.cli.main import main
from stsbench.results.folder import write_result
from stsbench.results.record import digest_columns
from tests.boards.scored import sts
from tests.significance.pairs import told

ROOT = Path(__file__).parents[3]
STS = {"sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"}


def printed(capsys, *words: str) -> str:
    assert main(["leaderboard", *words]) == 0
    return str(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("first", "second", "c"), [(75.0, 74.0, 0.6), (40.0, 85.0, 0.9), (0, 0, 0)]
)
def test_the_bound_is_that_of_two_correlated_errors(first, second, c):
    rng = np.random.default_rng(0)
    kappa = 0.02
    common, *own = rng.standard_normal((3, 200_000))
    scales = [kappa * (1 - (score / 100) ** 2) for score in (first, second)]
    errors = [
        scale * (math.sqrt(c) * common + math.sqrt(1 - c) * part)
        for scale, part in zip(scales, own, strict=True)
    ]
    simulated = 100 * float(np.quantile(np.abs(errors[1] - errors[0]), 0.95))
    # The quantile of 200,000 draws has an error of 0.2%.
    assert detectable_gap(first, second, kappa, c) == pytest.approx(simulated, rel=0.01)


def test_the_bound_at_its_edges():
    assert detectable_gap(75, 75, 0.02, c=1) == pytest.approx(0, abs=1e-6)
    assert detectable_gap(75, 75, 0, c=0.5) == 0
    assert detectable_gap(100, 100, 0.02, c=0.5) == 0
    bounds = [detectable_gap(75, 74, 0.02, c) for c in (0.9, 0.6, 0.0, -1.0)]
    assert bounds == sorted(bounds) and bounds[-1] > bounds[0] > 0


def test_errors_of_all_columns_come_with_the_package():
    spread = read_spread()
    assert spread.columns.keys() == STS | {MEAN} and spread.encoders >= 10 <= spread.families + 10
    for column in spread.columns.values():
        assert column.kappas[0] <= column.kappa <= column.kappas[1]
        assert -1 < column.c_range[0] <= column.c <= column.c_range[1] < 1 and column.pairs >= 10


def test_marks_are_of_neighbours_in_the_order_of_each_column(capsys):
    (table,) = json.loads(printed(capsys, "--table", "simcse-5", "--detectable", "--json"))
    columns = {column["key"]: column.get("task", MEAN) for column in table["columns"]}
    spread, marks = read_spread(), 0
    for group in table["groups"]:
        rows = [row for row in group["rows"] if not row.get("scored_otherwise")]
        for key in (*STS, "average"):
            column = spread.columns[columns[key]]
            cells = [row["cells"][key] for row in rows if "misprint" not in row["cells"][key]]
            ordered = sorted(cells, key=lambda cell: -cell["published"]["value"])
            assert "bound" not in ordered[0] and "is_near" not in ordered[0]
            for next_better, cell in itertools.pairwise(ordered):
                better, value = (each["published"]["value"] for each in (next_better, cell))
                a, b = (column.kappa * (1 - (score / 100) ** 2) for score in (value, better))
                bound = 196 * math.sqrt(a * a + b * b - 2 * column.c * a * b)
                assert cell["bound"] == pytest.approx(bound, rel=1e-3)
                assert cell.get("is_near", False) == (better - value < cell["bound"])
                marks += cell.get("is_near", False)
    assert marks > 10
    (note,) = [note for note in table["notes"] if note.startswith("~")]
    for part in ("fixed seeds", "c = ", "No items of these rows are at hand"):
        assert part in note


def test_every_format_has_the_marks(capsys):
    words = ("--table", "simcse-5", "--detectable", "--show", "published", "--format")
    (table,) = json.loads(printed(capsys, *words[:3], "--json"))
    cells = [
        cell for group in table["groups"] for row in group["rows"] for cell in row["cells"].values()
    ]
    n_marks = sum(cell.get("is_near", False) for cell in cells)
    text = printed(capsys, *words[:5])
    assert text.count("~") == n_marks + 1
    assert printed(capsys, *words, "markdown").count("\\~") == n_marks + 1
    assert printed(capsys, *words, "latex").count("\\textasciitilde{}") == n_marks + 1
    html = printed(capsys, *words, "html")
    assert html.count(">~</a>") == n_marks
    records = list(csv.DictReader(io.StringIO(printed(capsys, *words, "csv"))))
    near = [
        value for record in records for key, value in record.items() if key.endswith("_is_near")
    ]
    assert near.count("True") == n_marks and near.count("False") > 0
    assert all(float(record["average_bound"] or 1) > 0 for record in records)
    # Nothing of it without the option.
    plain = printed(capsys, *words[:2], "--show", "published")
    assert "~" not in plain


def test_neighbours_on_a_board_of_mtebs_are_marked(capsys):
    words = ("--suite", "mteb-deu-v1-sts", "--show", "published", "--detectable", "--json")
    (table,) = json.loads(printed(capsys, *words))
    (group,) = table["groups"]
    spread = read_spread()
    pairs_of_tasks = {"stsb": 1379, "sickr": 4927, "sts12": 3108, "sts13": 1500, "sts14": 3750}
    pairs_of_tasks |= {"sts15": 3000, "sts16": 1186}
    scaled = min(
        spread.columns[task].kappa * math.sqrt(n_pairs) for task, n_pairs in pairs_of_tasks.items()
    )
    # GermanSTSBenchmark is the mean of two splits, STS22 is its German part.
    kappas = {
        "GermanSTSBenchmark": scaled * math.sqrt(1 / 1500 + 1 / 1379) / 2,
        "STS22": scaled / math.sqrt(514),
    }
    c = spread.columns[MEAN].c
    rows = [row["cells"] for row in group["rows"] if "average" in row["cells"]]
    values = [
        {key: cells[key]["published"]["value"] for key in (*kappas, "average")} for cells in rows
    ]
    assert len(rows) == 127 and "bound" not in rows[0]["average"]
    for cells, row, better in zip(rows[1:], values[1:], values, strict=False):
        variance = 0.0
        for task, kappa in kappas.items():
            a, b = (kappa * (1 - (scores[task] / 100) ** 2) for scores in (row, better))
            variance += a * a + b * b - 2 * c * a * b
        bound = 196 * math.sqrt(variance) / 2
        assert cells["average"]["bound"] == pytest.approx(bound, rel=1e-3)
        assert cells["average"].get("is_near", False) == (
            better["average"] - row["average"] < bound
        )
    n_near = sum(cells["average"].get("is_near", False) for cells in rows)
    assert f"{n_near} of 126 gaps between neighbours are smaller" in " ".join(table["notes"])
    # The best and second best of a task, whatever their means.
    first, second, *_ = sorted(
        (cells["STS22"] for cells in rows), key=lambda cell: -cell["published"]["value"]
    )
    assert "bound" not in first and second["bound"] > 0
    assert table["notes"][-1].startswith("~ nearer to the next better published score")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--table", "simcse-e1", "--detectable"],
            "what a test could see is known only of Spearman",
        ),
        (["--suite", "sts", "--detectable"], "--detectable"),
        (["--suite", "mteb-deu-v1-sts", "--detectable"], "--detectable"),
        (["--table", "simcse-5", "--detectable", "--show", "measured"], "--detectable"),
    ],
)
def test_what_cannot_be_marked_is_refused(words, message, capsys):
    assert main(["leaderboard", *words]) == 2
    output = capsys.readouterr()
    assert message in output.err and output.out == ""


def test_the_page_has_the_measured_errors_and_the_table_that_the_command_prints(
    capsys, monkeypatch
):
    page = (ROOT / "docs/published.md").read_text(encoding="utf-8")
    for name, column in read_spread().columns.items():
        low, high = column.c_range
        assert f"| {name} | {column.kappa:.4f} | {column.c:.2f} | {low:.2f}–{high:.2f} | " in page
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr("sys.argv", ["spread", "published"])
    importlib.import_module("benchmarks.spread").main()
    printed_table = capsys.readouterr().out.strip()
    assert len(printed_table.splitlines()) == 6 and printed_table in page


def test_errors_are_measured_again_from_items(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(1)
    gold = rng.standard_normal(400)
    for encoder, seed in (("a", 0), ("b", 0), ("c", 1), ("d", 2)):
        noise = np.random.default_rng(seed).standard_normal((7, 400))
        for task, task_noise in zip(sorted(STS), noise, strict=True):
            own = 0.2 * rng.standard_normal(400)
            result = told(sts(encoder, task, gold, gold + task_noise + own))
            items = digest_columns(result.per_item)
            write_result(msgspec.structs.replace(result, items=items), tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    words = [
        "measure",
        "--results",
        str(tmp_path),
        "--family",
        "a,b",
        "--family",
        "c",
        "--family",
        "d",
    ]
    monkeypatch.setattr("sys.argv", ["spread", *words])
    importlib.import_module("benchmarks.spread").main()
    measured = tomllib.loads(capsys.readouterr().out)
    assert (measured["encoders"], measured["families"]) == (4, 3)
    for name in STS:
        column = measured["columns"][name]
        # Fisher: the error of a correlation of n independent pairs is about 1 / sqrt(n).
        assert column["kappa"] == pytest.approx(1 / 20, rel=0.2)
        # Encoders with the same noise err together, others hardly.
        assert column["c_relatives"] > 0.8 > 0.5 > column["c"]
        assert 0.8 < column["ratio"][0] <= column["ratio"][1] < 1.25
