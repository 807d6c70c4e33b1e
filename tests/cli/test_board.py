"""``stsbench leaderboard`` over a folder of results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stsbench.encoders.engine import embed
from stsbench.results.folder import write_result
from tests.cli.commands import HASHED, QUICK, one_line
from tests.made import SIMCSE, make_result

STS = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
LONG = "an-encoder-with-a-rather-long-name"
# As people read it; which cells are set in bold is the renderers' matter.
BOARD = f"""\
STS, protocol simcse (spearman, all), signature 25234f9c

| encoder | STS12 | STS13 | STS14 | STS15 | STS16 | STS-B | SICK-R | Avg. |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| better | 60.00 | 61.00 | 62.00 | 63.00 | 64.00 | 65.00 | 66.00 | 63.00 |
| {LONG} | 50.00 | 51.00 | 52.00 | 53.00 | 54.00 | 55.00 | 56.00 | 53.00 |
| hole | 90.00 | – | – | – | – | – | – | – |

no 95% interval of the mean of better, {LONG}: per-item columns are missing or broken; run: \
stsbench run --fresh better {LONG} --tasks {",".join(STS)}

signature:25234f9c \\| tasks:{"+".join(sorted(STS))} \\| split:test \\| n:21 \\| cards:b3529d88e921 \\| \
data:bfb7e374eb24 \\| protocol:simcse \\| metric:spearman \\| aggregation:all \\| similarity:cosine
"""
MARKDOWN = ("leaderboard", "--protocol", "simcse", "--format", "markdown")


def plain(text: str) -> str:
    return re.sub(r"\*\*|</?u>", "", text)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    for encoder, base in ((LONG, 0.50), ("better", 0.60)):
        for at, task in enumerate(STS):
            write_result(make_result(encoder, task, base + at / 100), folder)
    write_result(make_result("hole", "sts12", 0.9), folder)
    wmean = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}
    write_result(make_result("better", "sts12", 0.1, protocol=wmean), folder)
    return folder


def test_markdown_on_the_terminal_and_into_a_file(stsbench, results, tmp_path):
    printed = stsbench.fine(*MARKDOWN)
    assert plain(printed) == BOARD
    out = tmp_path / "new" / "board.md"
    assert stsbench.fine(*MARKDOWN, "--out", out) == f"wrote {out}\n"
    assert out.read_text(encoding="utf-8") == printed


def test_a_board_without_intervals_has_no_note_on_missing_ones(stsbench, results):
    without = plain(stsbench.fine(*MARKDOWN, "--intervals", "none"))
    note = next(line for line in BOARD.splitlines() if line.startswith("no 95% interval"))
    assert without == BOARD.replace(f"{note}\n\n", "")


def test_a_broken_file_is_one_line_and_the_rest_is_shown(stsbench, results):
    bad = results / "better" / "sts12.test.00000000.json"
    bad.write_text("{")
    code, out, err = stsbench(*MARKDOWN)
    assert (code, plain(out)) == (0, BOARD)
    broken = "results/better/sts12.test.00000000.json"
    assert one_line(err).startswith(f"skipped: {broken}: is not a result file of schema 1")


def test_nothing_to_show_says_what_to_run(stsbench, results):
    error = stsbench.refused("leaderboard", "--suite", "transfer", "--results", "results")
    assert (
        error
        == "results: no results for suite 'transfer'; the results here are of others: --suite sts shows some; 'stsbench run --tasks transfer' makes it"
    )
    error = stsbench.refused("leaderboard", "--protocol", "mean")
    assert "protocol 'mean'; " in error


def test_a_table_of_nothing_but_the_baseline_is_refused(stsbench, tmp_path):
    levels = {"accuracy": 0.7, "majority": 0.6376}
    write_result(
        make_result("own", "cr", 0.7, split="all", protocol={"name": "logreg"}, scores=levels),
        tmp_path / "r",
    )
    run = ("leaderboard", "--table", "simcse-e1", "--results", tmp_path / "r", "--show")
    assert stsbench.refused(*run, "measured").startswith(
        "table 'simcse-e1': nothing to show as 'measured'"
    )
    lines = stsbench.fine(*run, "both").splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("majority class") and "63.76" in line for line in lines)


def test_a_files_ending_says_its_format(stsbench, tmp_path):
    begins = {
        ".md": "**",
        ".tex": "% \\usepackage",
        ".html": "<!doctype html",
        ".csv": "table,",
        ".json": "",
    }
    for ending, text in begins.items():
        out = tmp_path / f"t{ending}"
        assert stsbench.fine("leaderboard", "--table", "simcse-5", "--out", out) == f"wrote {out}\n"
        assert out.read_text().lstrip().startswith(text)
    assert json.loads((tmp_path / "t.json").read_text())
    stsbench.fine("leaderboard", "--table", "simcse-5", "--format", "csv", "--out", "t.txt")
    assert Path("t.txt").read_text().startswith("table,")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--format pdf --out t.png", "'t.png' ends as png does, and the format is pdf"),
        ("--format html --out t.svg", "'t.svg' ends as svg does, and the format is html"),
        ("--format latex --out t.MD", "'t.MD' ends as markdown does, and the format is latex"),
        ("--json --out t.csv", "'t.csv' ends as csv does, and the format is json"),
        ("--format pfd --out t.pdf", "unknown format 'pfd'; did you mean 'pdf'"),
    ],
)
def test_a_format_that_the_files_ending_contradicts_is_refused(
    stsbench, tmp_path, options, problem
):
    board = ("leaderboard", "--table", "simcse-5")
    assert problem in stsbench.refused(*board, *options.split())
    assert not any(tmp_path.iterdir())


def test_a_task_is_a_suite_of_one_and_results_of_others_are_named(stsbench, tmp_path):
    write_result(make_result("minilm", "quickstart-en", 0.75), tmp_path)
    board = stsbench.fine("leaderboard", "--results", tmp_path, "--suite", "quickstart-en")
    assert "75.00" in board and "Avg." not in board
    # A suite and a task are typed as for other commands, too.
    for option in ("--tasks", "-t"):
        tasks = (option, "quickstart-en")
        assert stsbench.fine("leaderboard", "--results", tmp_path, *tasks) == board
    # Without a suite, one is shown that there are results of.
    board = stsbench.fine("leaderboard", "--results", tmp_path)
    assert "Quickstart, protocol" in board
    # Tasks that this protocol does not score have boards of their own.
    assert "\nno score yet: Quickstart Spanish-English\n" in board
    refused = stsbench.refused("leaderboard", "--results", tmp_path, "--suite", "sts")
    assert "no results for suite 'sts'" in refused and "--suite quickstart" in refused
    assert "did you mean 'quickstart-en'" in stsbench.refused(
        "leaderboard", "--suite", "quickstart-enn"
    )


def test_means_over_seeds_are_said_to_be_of_all_that_the_folder_holds(stsbench):
    probe = ("run", *HASHED, "--tasks", "quickstart-probe", "--protocol", "senteval-fast")
    stsbench.fine(*probe, "--seeds", "0")
    board = ("leaderboard", "--suite", "quickstart")
    assert "±" not in stsbench.fine(*board)
    stsbench.fine(*probe, "--seeds", "1")
    assert (
        "±: deviation over seeds; scores are means over all seeds that the results"
        in stsbench.fine(*board)
    )


def test_a_time_that_stored_embeddings_lack_is_measured_by_the_command_of_the_note(
    stsbench, monkeypatch
):
    monkeypatch.setattr(embed, "TEXTS_PER_BATCH", 16)
    encoders = "own_encoders:Hashed,own_encoders:Hashed+dimensions=8"
    stsbench.fine("run", encoders, *QUICK, "--results", "scored_before")
    stsbench.fine("run", encoders, *QUICK)
    board = ("leaderboard", "--suite", "quickstart", "--max-ms", "50")
    refused = stsbench.refused(*board)
    assert refused == (
        "no row fits: 2 rows are not shown, 2 of them because the facts are not known: hashed, "
        "hashed+dimensions=8 (at most 50 ms a sentence); embeddings that were stored already have "
        "no time; run: stsbench run --fresh hashed hashed+dimensions=8 --tasks quickstart-en "
        "--no-store"
    )
    stsbench.fine("run", "own_encoders:Hashed", *QUICK, "--fresh", "--no-store")
    shown = " ".join(stsbench.fine(*board, "--sort", "ms").split())
    assert "1 row is not shown, 1 of them because the facts are not known: hashed+dim" in shown
    assert "run: stsbench run --fresh hashed+dimensions=8 --tasks quickstart-en --no-store" in shown
    stsbench.fine("run", encoders, *QUICK, "--fresh", "--no-store")
    assert "not shown" not in stsbench.fine(*board)


def test_a_column_that_no_row_has_is_explained_by_what_measures_it(stsbench, monkeypatch):
    monkeypatch.setattr(embed, "TEXTS_PER_BATCH", 16)
    stsbench.fine("run", *HASHED, *QUICK, "--results", "scored_before")
    stsbench.fine("run", *HASHED, *QUICK)
    board = ("leaderboard", "--suite", "quickstart", "--columns", "size,ms")
    shown = " ".join(stsbench.fine(*board).split())
    assert "milliseconds" not in shown
    assert (
        "Size: no row has it ms: no row has it; a run of two batches or more measures it; "
        "embeddings that were stored already have no time; run: stsbench run --fresh hashed "
        "--tasks quickstart-en --no-store"
    ) in shown
    stsbench.fine("run", *HASHED, *QUICK, "--fresh", "--no-store")
    assert "no row has it" not in stsbench.fine(*board[:-1], "ms")


def test_a_board_without_numbers_to_sort_by_says_so(stsbench, results):
    note = "not sorted by average: no row has scores of all tasks\n"
    assert note not in stsbench.fine(*MARKDOWN, "--sort", "average")
    assert note in stsbench.fine(*MARKDOWN, "--sort", "average", "--encoder", "hole")
    by_time = stsbench.fine(*MARKDOWN, "--sort", "ms", "--columns", "ms")
    assert "not sorted by ms: no row has one\n" in by_time


def test_a_board_of_tasks_without_a_mean_is_not_sorted_by_it(stsbench, tmp_path):
    write_result(make_result("minilm", "quickstart-en", 0.75), tmp_path / "results")
    board = stsbench.fine("leaderboard", "--suite", "quickstart", "--sort", "average")
    assert "75.00" in board and "not sorted by average: these tasks have no mean\n" in board
    assert "unknown column 'averag'" in stsbench.refused("leaderboard", "--sort", "averag")


def test_a_task_of_another_board_is_no_gap_in_an_added_row(stsbench, tmp_path):
    write_result(make_result("minilm", "quickstart-en", 0.75), tmp_path / "results")
    _, _, err = stsbench("leaderboard", "--suite", "quickstart", "--add", "minilm:Ours")
    assert "--tasks quickstart-es-en --protocol simcse" in err and "probe" not in err
