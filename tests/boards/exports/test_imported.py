"""MTEB's result files as rows: what is read, what is refused, and that imported rows never pass for measured ones."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from stsbench.boards.exports.mteb import Imported, ImportedModel, export_mteb, fits, read_mteb, with_imported
from stsbench.boards.render import render
from stsbench.boards.tables.build import build_table, suite_tables
from stsbench.boards.tables.table import lay_out
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, ProtocolError
from tests.boards.exports.test_mteb import PRINT, WMEAN, made
from tests.made import SIMCSE, make_result

STS12 = "a0d554a64d88156834ff5ae9920b964011b16384"
SUITE = Suite(name="STS", tasks=["sts12", "sts13"])


def file(path: Path, score: object = 0.5, *, task: str = "STS12", revision: str = STS12, **changes: Any) -> Path:
    """A result file as mteb 2 writes it."""
    cell = {"cosine_spearman": score, "main_score": score, "hf_subset": "default", "languages": ["eng-Latn"]}
    facts = {"dataset_revision": revision, "task_name": task, "mteb_version": "2.1.0", "scores": {"test": [cell]}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, **changes}))
    return path


def read(path: Path) -> Imported:
    return read_mteb(path, Catalogue())


def test_a_folder_of_models_is_read(tmp_path):
    file(tmp_path / "org__one" / "rev1" / "STS12.json", 0.5)
    file(tmp_path / "org__one" / "rev1" / "Banking77Classification.json", task="Banking77Classification")
    file(tmp_path / "two" / "rev2" / "STS12.json", 0.6)
    (tmp_path / "two" / "rev2" / "model_meta.json").write_text(
        '{"name": "org/two", "revision": "main", "loader": null}'
    )
    found = read(tmp_path)
    assert found.scores == {
        ImportedModel("org/one", "rev1"): {"sts12": 0.5},
        ImportedModel("org/two", "main"): {"sts12": 0.6},
    }
    assert found.versions[ImportedModel("org/one", "rev1")] == {"2.1.0"} and not found.problems
    assert read(tmp_path / "two" / "rev2" / "STS12.json").scores == {ImportedModel("org/two", "main"): {"sts12": 0.6}}


def test_what_was_exported_is_imported_again(tmp_path):
    languages = ("de", "en", "es", "fr", "it", "nl", "pl", "pt", "ru", "zh")
    scores = {"sts12": 0.123456, "sts13": 0.6, "stsb-raw": 0.5, "sickr-mteb": 0.4}
    scores |= {f"stsb-{code}": at / 20 for at, code in enumerate(languages)}
    export_mteb([made("a", task, score) for task, score in scores.items()], tmp_path, Catalogue())
    assert read(tmp_path).scores == {ImportedModel("stsbench/a", PRINT[:40]): scores}


BROKEN = {
    "half.json": ('{"task_name": "STS12", "dataset_rev', "is not a result file of MTEB 1.11 or newer: "),
    "old.json": ('{"mteb_version": "1.0.0", "test": {"cos_sim": {"spearman": 0.5}}}', "mteb itself reads older ones"),
    "list.json": ("[]", "is not a result file of MTEB"),
}


def test_a_broken_old_or_foreign_file_is_one_line(tmp_path):
    folder = tmp_path / "org__one" / "rev1"
    file(folder / "STS13.json", 0.5, task="STS13", revision="7e90230a92c190f1bf69ae9002b8cea547a64cca")
    for name, (content, _) in BROKEN.items():
        (folder / name).write_text(content)
    file(folder / "other data.json", revision="f" * 40)
    file(folder / "nan.json", None)
    file(folder / "two.json", 2)
    found = read(tmp_path)
    assert found.scores == {ImportedModel("org/one", "rev1"): {"sts13": 0.5}}
    assert len(found.problems) == len(BROKEN) + 3 and all("\n" not in line for line in found.problems)
    by_name = {Path(line.partition(": ")[0]).name: line for line in found.problems}
    for name, (_, said) in BROKEN.items():
        assert said in by_name[name]
    assert by_name["other data.json"].endswith(f"of dataset revision {'f' * 12}, ours is {STS12[:12]}: other data")
    assert by_name["nan.json"].endswith("subset 'default': 'cosine_spearman' is None and no correlation")
    assert by_name["two.json"].endswith("is 2 and no correlation")


def test_nothing_to_import_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no score of a task that is also ours"):
        read(tmp_path)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(DataError, match=r"no score of a task that is also ours; .*a.json: is not a result file"):
        read(tmp_path)
    with pytest.raises(OutputError, match="gone: there is no such file or folder of MTEB's results"):
        read(tmp_path / "gone")


def test_imported_rows_stand_apart_and_are_marked():
    results = [made("a", "sts12", 0.5), made("a", "sts13", 0.6)]
    (board,) = suite_tables(results, "sts", SUITE, Catalogue(), scored={"sts12": "test", "sts13": "test"})
    imported = Imported(
        scores={
            ImportedModel("org/x", "one"): {"sts12": 0.9, "sts13": 0.8, "stsb-raw": 0.1},
            ImportedModel("org/x", "two"): {"sts12": 0.7},
            ImportedModel("org/y", "one"): {"stsb-raw": 0.7},
        },
        versions={ImportedModel("org/x", "one"): {"2.1.0"}, ImportedModel("org/x", "two"): {"1.12.0", "2.1.0"}},
        problems=[],
    )
    table = with_imported(board, imported)
    first, second = lay_out(table).blocks
    # Best is taken among the measured: with one row of them, none is.
    assert [[cell.text for cell in line.cells] for line in first.lines] == [["50.00", "60.00", "55.00"]]
    assert not any(cell.rank for cell in first.lines[0].cells)
    assert [line.label + line.marks for line in second.lines] == ["org/x [one]°", "org/x [two]°"]
    assert [[cell.text for cell in line.cells] for line in second.lines] == [
        ["90.00", "80.00", "85.00"],
        ["70.00", "–", "–"],
    ]
    assert second.section.startswith("Imported from MTEB's result files")
    legend = "° imported from MTEB's result files, not measured here (mteb 2.1.0, mteb 1.12.0, mteb 2.1.0)"
    assert legend in lay_out(table).legend
    assert [line.label for block in lay_out(table, "measured").blocks for line in block.lines] == ["a"]
    lines = list(csv.DictReader(io.StringIO(render([table], "csv"))))
    keys = ("side", "sts12", "sts13", "average", "average_exact")
    assert [lines[1][key] for key in keys] == ["imported", "90.0", "80.0", "85.0", "85.0"]
    assert lines[0]["side"] == "measured"
    for fmt in ("markdown", "latex", "html", "json"):
        assert "mteb 2.1.0" in render([table], fmt)


def test_only_boards_scored_as_mteb_scores_take_them():
    def taken(protocol: dict[str, Any]) -> bool:
        results = [make_result("a", "sts12", 0.5, protocol=protocol)]
        (board,) = suite_tables(results, "sts", SUITE, Catalogue(), scored=dict.fromkeys(SUITE.tasks, "test"))
        return fits(board.columns)

    assert taken(SIMCSE)
    assert not any(map(taken, (WMEAN, {**SIMCSE, "similarity": "dot"}, {"name": "senteval"})))
    assert fits(build_table("sts").columns) and not fits(build_table("transfer").columns)
    with pytest.raises(ProtocolError, match="'transfer' is not scored as MTEB scores"):
        with_imported(build_table("transfer"), Imported({}, {}, []))
