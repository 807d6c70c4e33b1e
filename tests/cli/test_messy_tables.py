"""Tables as companies have them: each is read, and its card says how, or refused in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stsbench.core.cards import TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task

PAIRS = [
    (f"Kunde {row} fragt nach der Größe", f"Wie groß ist das Gerät {row * row}?", row * 7 % 11 / 2)
    for row in range(24)
]
GERMAN = [(first, second, f"{score:.1f}".replace(".", ",")) for first, second, score in PAIRS]


def german_text(delimiter: str, header: str) -> str:
    rows = "".join(delimiter.join(row) + "\r\n" for row in GERMAN)
    return f"{header}\r\n{rows}"


def drafted(name: str) -> tuple[TaskCard, PairSplit]:
    catalogue = Catalogue("cards")
    task = load_task(name, catalogue=catalogue)
    split = task.load("test")
    assert isinstance(split, PairSplit)
    return task.card, split


def assert_is_german(split: PairSplit) -> None:
    assert list(zip(split.sentences1, split.sentences2, split.gold.tolist(), strict=True)) == PAIRS


def test_utf16_with_tabs_as_excel_saves_unicode_text(stsbench):
    text = german_text("\t", "Satz A\tSatz B\tBewertung")
    Path("export.txt").write_bytes(text.encode("utf-16"))
    out = stsbench.fine("new", "task", "export.txt", "--language", "de")
    assert "export.txt is read from text in utf-16" in out and "English" not in out
    card, split = drafted("export")
    assert_is_german(split)
    assert card.languages == ["de"]
    assert card.note == ("export.txt is read from text in utf-16; the scores have decimal commas")


def test_semicolons_decimal_commas_and_empty_rows_in_cp1252(stsbench):
    text = german_text(";", "Text1;Text2;Score").replace("\r\n", "\r\n;;\r\n", 9) + ";;\r\n\r\n"
    Path("daten.csv").write_bytes(text.encode("cp1252"))
    stsbench.fine("new", "task", "daten.csv")
    card, split = drafted("daten")
    assert_is_german(split)
    assert "daten.csv is read from text in cp1252; the scores have decimal commas" in card.note
    # The same data are recognised as training text.
    rows = json.loads(
        stsbench.fine(
            "data", "overlap", "daten.csv", "--tasks", "daten", "--cards", "cards", "--json"
        )
    )
    assert [(row["items"], row["graded"]) for row in rows] == [(24, 24)]


def write_workbook(path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    workbook = openpyxl.Workbook()
    workbook.active.title = "Notizen"
    sheet = workbook.create_sheet("Paare")
    sheet.append(["Satz A", None, "Satz B", "Score"])
    for row, (first, second, score) in enumerate(PAIRS):
        sheet.append([first, None, second, score])
        if row == 5:
            sheet.append([])
    sheet["D4"] = None
    workbook.save(path)


def test_a_workbook_with_an_empty_sheet_column_row_and_cell(stsbench):
    write_workbook(Path("paare.xlsx"))
    refused = stsbench.refused("new", "task", "paare.xlsx")
    assert "paare.xlsx: row 4: empty; mend them; --drop-unscored leaves out rows" in refused
    stsbench.fine("new", "task", "paare.xlsx", "--drop-unscored")
    card, split = drafted("paare")
    assert split.gold.tolist() == [score for row, (*_, score) in enumerate(PAIRS) if row != 2]
    # With the extra language the note goes on.
    assert card.note.startswith(
        "paare.xlsx is read from sheet 'Paare' of 2; 1 of 24 rows have no score and are left out"
    )
    Path("half.xlsx").write_bytes(Path("paare.xlsx").read_bytes()[:-40])
    assert "half.xlsx: is a zip archive" in stsbench.refused("new", "task", "half.xlsx")


def test_a_workbook_with_a_sheet_of_remarks_and_a_title_above_the_table(stsbench):
    openpyxl = pytest.importorskip("openpyxl")
    workbook = openpyxl.Workbook()
    for row in (["Ratings of 2026"], ["Contact: Anna"]):
        workbook.active.append(row)
    sheet = workbook.create_sheet("Paare")
    for cells in ([None, "Export of 1 March"], [], ["Satz A", "Satz B", "Score"], *PAIRS):
        sheet.append(cells)
    workbook.save("titel.xlsx")
    stsbench.fine("new", "task", "titel.xlsx", "--language", "de")
    card, split = drafted("titel")
    assert_is_german(split)
    assert card.note == (
        "titel.xlsx is read from sheet 'Paare' of 2 below its title, from row 3 on"
    )


def test_a_workbook_without_openpyxl_is_one_line(stsbench, monkeypatch):
    write_workbook(Path("paare.xlsx"))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert (
        "paare.xlsx: Excel files need openpyxl; run: pip install 'stsbench[excel]', or save it as "
        "CSV in UTF-8"
    ) in stsbench.refused("new", "task", "paare.xlsx")


def test_scores_from_1_to_10_with_gaps(stsbench):
    scores = [str(row % 9 + 1) for row in range(30)]
    scores[3], scores[8], scores[20] = "", "n/a", "k. A."
    rows = "".join(f"cat {row},a dog,{score}\n" for row, score in enumerate(scores))
    Path("r.csv").write_text(f"s1,s2,rating\n{rows}")
    columns = ("--columns", "gold=rating")
    refused = stsbench.refused("new", "task", "r.csv", *columns)
    assert "line 5: empty, line 10: 'n/a', line 22: 'k. A.'" in refused
    refused = stsbench.refused(
        "new", "task", "r.csv", *columns, "--scale", "1..8", "--drop-unscored"
    )
    assert "line 19: '9' is not in 1 to 8, line 28: '9' is not in 1 to 8" in refused
    assert "; mend them, or give another --scale; --labels takes" in refused
    Path("r2.csv").write_text(f"s1,s2,rating\n{rows}cat,a dog,80%\n")
    refused = stsbench.refused("new", "task", "r2.csv", *columns, "--drop-unscored")
    assert "line 32: '80%'; mend them; --labels takes" in refused
    stsbench.fine("new", "task", "r.csv", *columns, "--scale", "1..10", "--drop-unscored")
    card, split = drafted("r")
    assert (card.gold_range, split.n, split.gold.max()) == ((1.0, 10.0), 27, 9.0)
    assert card.note.startswith(
        "the scale 1 to 10 was given; 3 of 30 rows have no score and are left out"
    )
    for scale in ("10..1", "1-10", "1..nan", "..", "0...5"):
        assert f"--scale '{scale}': give the" in stsbench.refused(
            "new", "task", "r.csv", "--scale", scale
        )


def test_quotes_and_line_breaks_inside_cells(stsbench):
    rows = "".join(
        f'"He said ""no"" {row},\nand left","a\r\nb {row}",{row % 5}.5\n' for row in range(12)
    )
    Path("q.csv").write_bytes(f"s1,s2,score\n{rows}".encode())
    stsbench.fine("new", "task", "q.csv")
    _, split = drafted("q")
    assert split.sentences1[3] == 'He said "no" 3,\nand left'
    assert split.gold.tolist() == [row % 5 + 0.5 for row in range(12)]


def test_a_mix_of_decimal_commas_and_points_names_every_comma(stsbench):
    Path("m.csv").write_text("s1;s2;score\na b;c;1,5\nd e;f;2.5\ng h;i;3,0\n")
    refused = stsbench.refused("new", "task", "m.csv")
    assert "line 2: '1,5', line 4: '3,0'; mend them; decimal commas count only if no " in refused
    assert "score has a point, as in m.csv: line 3; --drop-unscored" in refused
    # Without a point there is no such advice.
    Path("m.csv").write_text("s1;s2;score\na b;c;1,5\nd e;f;k.a.\ng h;i;3,0\n")
    assert "point" not in stsbench.refused("new", "task", "m.csv")


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["猫がマットの上に座っている", "犬が走る"], "ja"),
        (["고양이가 자고 있다", "개가 달린다"], "ko"),
        (["一只猫坐在垫子上", "一只狗在跑"], "zh"),
        (["Η γάτα κοιμάται", "Ο σκύλος τρέχει"], "el"),
        (["Кошка спит", "Собака бежит"], "en"),
        (["Die Katze schläft", "Der Hund rennt"], "en"),
    ],
)
def test_a_language_is_found_only_by_a_script_of_its_own(stsbench, texts, language):
    rows = "".join(f"{texts[0]} {row},{texts[1]},{row % 5}.5\n" for row in range(10))
    Path("t.csv").write_text(f"s1,s2,score\n{rows}", encoding="utf-8")
    out = stsbench.fine("new", "task", "t.csv")
    card, _ = drafted("t")
    assert card.languages == [language]
    assert ("unsure: English is assumed" in out) == (language == "en")
