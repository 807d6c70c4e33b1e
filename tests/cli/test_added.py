"""``stsbench leaderboard --add`` and ``--rows-only``: rows of one's own in a paper's table, in every format."""

import csv
import io
import json

import pytest

from stsbench.boards.published.rows import read_published_protocols
from stsbench.core.catalogue import Catalogue
from stsbench.results.folder import write_result
from tests.boards.scored import probe
from tests.boards.shown import STS, UNROUNDED, sts
from tests.made import make_result

TABLE = ("leaderboard", "--table", "simcse-5")
ROW = "12.34 22.34 32.34 42.34 52.34 62.34 72.34 42.34".split()


@pytest.fixture
def results(tmp_path):
    for result in [
        *sts("my-checkpoint", *UNROUNDED),
        *sts("sbert-small", *UNROUNDED[::-1]),
        *sts("part", *UNROUNDED[:2], tasks=STS[:2]),
        *sts("pack.mod:Class", *UNROUNDED),
    ]:
        write_result(result, tmp_path / "results")
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ("my-checkpoint", "my-checkpoint"),
        ("my-checkpoint:Ours", "Ours"),
        ("my-checkpoint: Ours ", "Ours"),
        ('my-checkpoint:"Ours, best: of all"', "Ours, best: of all"),
        ("my-checkpoint:Ours: best", "Ours: best"),
        ("my-checkpoint:Ours (b=1, c=2)", "Ours (b=1, c=2)"),
        ("pack.mod:Class", "pack.mod:Class"),
        ("pack.mod:Class:Ours", "Ours"),
        ("sbert-small:Ours", "Ours"),
        ("SBERT, small:Ours", "Ours"),
    ],
)
def test_a_row_has_the_label_that_stands_behind_the_colon(stsbench, results, given, label):
    rows = csv.reader(
        io.StringIO(stsbench.fine(*TABLE, "--add", given, "--rows-only", "--format", "csv"))
    )
    assert [row[3] for row in rows] == [label]


def test_an_added_row_is_in_every_format(stsbench, results):
    add = (*TABLE, "--add", "my-checkpoint:Ours")
    out = stsbench.fine(*add)
    lines = out.splitlines()
    assert lines[lines.index("Measured here") + 1].split() == ["Ours", *ROW]
    cells = " & ".join(ROW)
    assert f"\nOurs & {cells} \\\\\n\\bottomrule" in stsbench.fine(*add, "--format", "latex")
    assert f"\n| Ours | {' | '.join(ROW)} |\n" in stsbench.fine(*add, "--format", "markdown")
    rows = list(csv.DictReader(io.StringIO(stsbench.fine(*add, "--format", "csv"))))
    assert (rows[-1]["group"], rows[-1]["row"], rows[-1]["encoder"], rows[-1]["side"]) == (
        "Measured here", "Ours", "my-checkpoint", "measured",
    )  # fmt: skip
    (read,) = stsbench.json(*add)
    assert read["groups"][-1]["rows"][0]["label"] == "Ours"
    assert ">Ours" in stsbench.fine(*add, "--format", "html")


def lines_of(out: str) -> dict[str, str]:
    """The lines of a markdown table by the label and its marks."""
    return {line.split("|")[1].strip(): line for line in out.splitlines() if line.startswith("| ")}


def test_every_row_whose_training_text_is_known_to_overlap_is_marked(stsbench, results):
    for result in sts("taught", *UNROUNDED, overlap="text"):
        write_result(result, results)
    out = stsbench.fine(*TABLE, "--add", "taught:Ours,my-checkpoint", "--format", "markdown")
    labels = lines_of(out).keys()
    assert {
        "Ours§",
        "my-checkpoint",
        "InferSent-GloVe†§",
        "SimCSE-BERT-base (sup.)§",
        "USE†",
        "CT-BERT-base",
    } <= labels
    assert "§ trained or fitted on" in out
    # Another paper's supervised rows saw the gold scores.
    assert "SBERT-STSb-base¶" in lines_of(
        stsbench.fine(
            "leaderboard", "--table", "sbert-2", "--show", "published", "--format", "markdown"
        )
    )


def test_where_the_overlap_of_published_rows_is_not_known_a_note_says_so(stsbench, results):
    senteval = {"name": "senteval", **read_published_protocols()["senteval"].fields["probe"]}
    for task in ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"):
        split = Catalogue().task(task).score_split
        write_result(
            probe("taught", task, [True, False], split=split, protocol=senteval, overlap="text"),
            results,
        )
    note = "§ and ¶ are on measured rows alone: for published rows, only the overlap with tests of STS is known"
    out = stsbench.fine(
        "leaderboard", "--table", "simcse-e1", "--add", "taught:Ours", "--format", "markdown"
    )
    assert {"Ours§", "SBERT-base†"} <= lines_of(out).keys() and note in out
    out = stsbench.fine("leaderboard", "--table", "transfer", "--format", "markdown")
    assert {"taught§", "SBERT-base-NLI†"} <= lines_of(out).keys() and note in out
    assert note not in stsbench.fine("leaderboard", "--suite", "transfer", "--format", "markdown")


def test_two_averages_of_one_encoder_have_a_note(stsbench, results):
    # Rounded, the scores have the mean 74.896, and exact, 74.894.
    for result in sts("uneven", 0.66479, 0.78736, 0.71472, 0.80817, 0.76929, 0.78798, 0.71029):
        write_result(result, results)
    board = stsbench.fine("leaderboard", "--suite", "sts", "--format", "markdown")
    assert (
        lines_of(board)["uneven"].endswith(" **74.89** |") and "Avg. of measured rows" not in board
    )
    table = (*TABLE, "--add", "uneven:Ours,my-checkpoint", "--format", "markdown")
    out = stsbench.fine(*table)
    assert lines_of(out)["Ours"].endswith(" 74.90 |")
    assert (
        "Avg. of measured rows: the mean of the rounded scores, as the paper takes it; the mean of the exact scores is "
        "74.89 for 'Ours'\n"
    ) in out
    assert "Avg. of measured rows" not in stsbench.fine(*table, "--exact")
    assert "Avg. of measured rows" not in stsbench.fine(*TABLE, "--add", "my-checkpoint")


@pytest.mark.parametrize(
    ("fmt", "row"),
    [
        ("latex", "Ours & {} \\\\\n".format(" & ".join(ROW))),
        ("markdown", "| Ours | {} |\n".format(" | ".join(ROW))),
    ],
)
def test_a_row_stands_alone(stsbench, results, tmp_path, fmt, row):
    add = (*TABLE, "--add", "my-checkpoint:Ours", "--rows-only")
    assert stsbench.fine(*add, "--format", fmt) == row
    stsbench.fine(*add, "--format", fmt, "--out", "row.txt")
    assert (tmp_path / "row.txt").read_text(encoding="utf-8") == row


def test_rows_that_stand_alone_are_marked_as_in_the_whole_table(stsbench, results):
    for result in sts("best", *[0.95] * 7):
        write_result(result, results)
    rows = ("--rows-only", "--format", "latex")
    # The better of two rows is not the best of the paper's table.
    out = stsbench.fine(*TABLE, "--add", "my-checkpoint,sbert-small", *rows)
    assert "textbf" not in out and "underline" not in out
    out = stsbench.fine(*TABLE, "--add", "my-checkpoint,best", *rows)
    assert [line.count("textbf") for line in out.splitlines()] == [0, 8]


def test_what_a_row_lacks_is_one_line_with_the_command(stsbench, results):
    code, out, err = stsbench(*TABLE, "--add", "part:Ours")
    assert code == 0 and "Ours  " in out
    assert err == (
        "stsbench: row 'Ours' has no STS14, STS15, STS16, STS-B, SICK-R; to fill it: "
        "stsbench run part --tasks sts14,sts15,sts16,stsb,sickr --protocol simcse\n"
    )
    # A command that was typed for another folder is told for that folder.
    results.rename(results.parent / "mine")
    _, _, err = stsbench(*TABLE, "--add", "part:Ours", "--results", "mine")
    assert err.endswith("--protocol simcse --results mine\n")


def test_what_a_row_of_a_suites_board_lacks_is_told_with_the_protocol(stsbench, results):
    code, out, err = stsbench("leaderboard", "--suite", "sts", "--add", "part:Ours")
    assert code == 0 and "Ours  " in out and err.count("\n") == 1
    assert err.endswith(
        ": stsbench run part --tasks sts14,sts15,sts16,stsb,sickr --protocol simcse\n"
    )


def test_results_without_a_row_are_one_line(stsbench, results):
    code, out, err = stsbench(*TABLE)
    assert code == 0 and "my-checkpoint" not in out and err.startswith("stsbench: results of ")
    assert (
        err.count("\n") == 1
        and " are in no row of 'simcse-5'; --add NAME shows them, such as --add " in err
    )
    for silent in (("--show", "published"), ("--add", "my-checkpoint")):
        assert stsbench(*TABLE, *silent)[2] == ""
    assert json.loads(stsbench(*TABLE, "--json")[1])
    assert stsbench("leaderboard", "--table", "sts")[2] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--add", "my-checkpoit:Ours"),
            "unknown encoder 'my-checkpoit'; did you mean 'my-checkpoint'?; results has",
        ),
        (("--add", "my-checkpoint:"), "--add 'my-checkpoint:': no label stands behind the colon"),
        (("--add", ","), "--add ',' is empty"),
        (("--add", "part", "--show", "published"), "--add has no effect with --show published"),
        (("--add", "part", "--show", "difference"), "--add has no effect with --show difference"),
        (
            ("--rows-only",),
            "--rows-only has no effect in the terminal, only with --format latex, markdown or csv",
        ),
        (
            ("--add", "my-checkpoint", "--rows-only", "--format", "html"),
            "rows do not stand alone as html; choose mark",
        ),
    ],
)
def test_a_mistake_is_one_line(stsbench, results, options, message):
    assert stsbench.refused(*TABLE, *options).startswith(message)


def test_an_encoder_of_which_no_result_fits_is_refused_with_the_command(stsbench, results):
    refusal = stsbench.refused("leaderboard", "--table", "simcse-e1", "--add", "my-checkpoint:Ours")
    assert refusal.startswith(
        "--add my-checkpoint: no result of it fits the table; row 'Ours' has no MR, CR"
    )
    assert (
        "stsbench run my-checkpoint --tasks mr,cr,subj,mpqa,sst2,trec,mrpc --protocol senteval"
        in refusal
    )


def test_an_added_row_is_marked_against_the_papers_rows(stsbench, results):
    for result in sts("top", 0.4, *[0.98] * 6):
        write_result(result, results)
    out = stsbench.fine(*TABLE, "--add", "top:Ours,my-checkpoint", "--format", "latex")
    (ours,) = [line for line in out.splitlines() if line.startswith("Ours & ")]
    # STS12 of the paper is higher; its other numbers are not.
    assert ours.startswith(r"Ours & 40.00 & \textbf{98.00} & ")
    (other,) = [line for line in out.splitlines() if line.startswith("my-checkpoint & ")]
    assert "textbf" not in other and "underline" not in other
    # The paper's rows keep the marks of their groups.
    assert r"\textbf{68.40} & \textbf{82.41}" in out
    assert "added rows: marked if best or second best of the whole table" in out


def test_significance_against_marks_what_compare_calls_significant(stsbench, tmp_path):
    for name, accuracies in (
        ("a", [1, 1, 1, 0] * 20),
        ("b", [0, 0, 0, 1] * 20),
        ("c", [1, 1, 0, 1] * 20),
    ):
        result = probe(
            name,
            "mr",
            [bool(right) for right in accuracies],
            split=Catalogue().task("mr").score_split,
        )
        write_result(result, tmp_path / "results")
    board = ("leaderboard", "--suite", "mr", "--significance-against", "a")
    lines = lines_of(stsbench.fine(*board, "--format", "markdown"))
    (differences,) = [stsbench.json("compare", "a", "b", "c")["differences"]]
    symbols = {
        difference["second"]: (
            "" if not difference["real"] else "↓" if difference["difference"] < 0 else "↑"
        )
        for difference in differences
    }
    assert set(symbols.values()) == {"↓", ""}
    for name, symbol in symbols.items():
        assert ("↓" in lines[name]) == bool(symbol)
    assert "↓" not in lines["a"]
    assert "Holm's correction over 2 tests on tasks\n" in stsbench.fine(
        *board, "--format", "markdown"
    )
    read = stsbench.json(*board)
    cells = {
        row["label"]: row["cells"]["mr"].get("significance") for row in read[0]["groups"][0]["rows"]
    }
    assert cells == {"a": None, "b": "↓", "c": None}
    (row,) = [
        row
        for row in csv.DictReader(io.StringIO(stsbench.fine(*board, "--format", "csv")))
        if row["row"] == "b"
    ]
    assert row["mr_significance"] == "↓"
    assert r"\textsuperscript{$\downarrow$}" in stsbench.fine(*board, "--format", "latex")
    add = ("--add", "a:Ours", "--significance-against", "Ours", "--format", "markdown")
    assert "significantly above Ours: paired tests" in stsbench.fine(*board[:3], *add)
    assert "has no results of it; published rows have none" in stsbench.refused(
        "leaderboard", "--suite", "mr", "--significance-against", "d"
    )


def test_a_board_without_a_pair_to_test_has_a_note_instead_of_marks(stsbench, tmp_path):
    (result,) = sts("a", UNROUNDED[0], tasks=STS[:1])
    write_result(result, tmp_path / "results")
    for name, correct in (("a", [1, 1, 1, 0] * 20), ("b", [0, 0, 0, 1] * 20)):
        split = Catalogue().task("mr").score_split
        write_result(probe(name, "mr", correct, split=split), tmp_path / "results")
    board = ("leaderboard", "--suite", f"mr,{STS[0]}", "--significance-against", "a")
    untested, tested = stsbench.json(*board)
    note = "no marks: no other measured row can be tested against a on a common task"
    assert "significantly above a" in str(tested) and note not in str(tested)
    assert note in str(untested) and "significantly above a" not in str(untested)
    message = stsbench.refused(*board, "--encoder", "a")
    assert "no other measured row can be tested against 'a' on a common task: " in message
    assert "protocol simcse" in message and "protocol senteval" in message


def test_significance_is_marked_beside_the_score_that_was_tested_alone(stsbench, tmp_path):
    # DeCLUTR's table shows MRPC as accuracy, which has per-item columns, and as F1.
    facts = {**read_published_protocols()["senteval"].fields["probe"], "name": "senteval"}
    for name, correct in (("a", [1, 1, 1, 0] * 20), ("b", [0, 0, 0, 1] * 20)):
        accuracy = sum(correct) / 80
        scores = {"accuracy": accuracy, "f1": 2 * accuracy / (1 + accuracy)}
        result = probe(name, "mrpc", correct, protocol=facts, scores=scores)
        write_result(result, tmp_path / "results")
    board = ("leaderboard", "--table", "declutr-2", "--significance-against", "a")
    # Other tasks of the table have no results, which is said on stderr.
    code, out, _ = stsbench(*board, "--add", "a", "--add", "b", "--format", "csv")
    assert code == 0
    (row,) = [row for row in csv.DictReader(io.StringIO(out)) if row["row"] == "b"]
    assert (row["mrpc"], row["mrpc_significance"]) == ("25.0", "↓")
    assert row["mrpc.f1"] == "40.0" and "mrpc.f1_significance" not in row


def test_intervals_are_shown_by_choice(stsbench, results):
    def shown(*words: str) -> str:
        return str(
            stsbench.fine("leaderboard", "--encoder", "my-checkpoint", "--format", "latex", *words)
        )

    assert "& 95\\% interval" not in shown("--intervals", "none")
    all_lines = shown("--intervals", "all")
    (line,) = [
        line for line in all_lines.splitlines() if line.startswith(r"\quad 95\% interval & ")
    ]
    assert line.count("--") >= 7
    assert "unknown choice of --intervals 'some'" in stsbench.refused(
        "leaderboard", "--intervals", "some", "--format", "latex"
    )
    assert "--intervals has no effect as csv" in stsbench.refused(
        "leaderboard", "--intervals", "all", "--format", "csv"
    )
    assert "--max-lines has no effect without --format latex" in stsbench.refused(
        "leaderboard", "--max-lines", "9"
    )


def test_results_on_own_tasks_are_shown_without_a_suite(stsbench, tmp_path):
    cards = tmp_path / "cards" / "tasks"
    cards.mkdir(parents=True)
    card = (Catalogue().paths("tasks")["quickstart-en"]).read_text(encoding="utf-8")
    for name in ("mine", "mine-too"):
        (cards / f"{name}.toml").write_text(card, encoding="utf-8")
        write_result(make_result("a", name), tmp_path / "results")
    with_cards = ("--cards", tmp_path / "cards")
    heads = stsbench.fine("leaderboard", *with_cards, "--format", "markdown").splitlines()[2]
    assert heads.count("|") == 4
    both = stsbench.fine("leaderboard", "--suite", "mine-too,mine", *with_cards, "--format", "csv")
    assert "mine,mine-too" in both or "mine-too,mine" in both
    for result in sts("b", *UNROUNDED):
        write_result(result, tmp_path / "results")
    code, out, err = stsbench("leaderboard", *with_cards)
    assert code == 0 and "STS12" in out
    command = f"stsbench leaderboard --suite mine,mine-too --cards {tmp_path / 'cards'}"
    assert f"further results: '{command}' shows them" in err
    assert stsbench.fine(*command.split()[1:])
    code, out, err = stsbench("leaderboard")
    assert "--suite mine,mine-too --cards DIR' shows them" in err
    (tmp_path / "results").rename(tmp_path / "my results")
    _, _, err = stsbench("leaderboard", "--results", "my results", *with_cards)
    assert f"mine,mine-too --results 'my results' --cards {tmp_path / 'cards'}' shows them" in err
