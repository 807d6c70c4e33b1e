"""MTEB's result files: what they hold, that MTEB's own loader takes them, and which tasks have MTEB's data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from stsbench.boards.exports.hub import find_mteb_task, read_mteb_tasks
from stsbench.boards.exports.mteb import (
    ExportedFiles,
    ImportedModel,
    ImportedScores,
    MtebScore,
    add_imported_rows,
    export_mteb,
    read_mteb,
)
from stsbench.boards.render.formats import render
from stsbench.boards.tables.build import TableRequest, build_table
from stsbench.boards.tables.columns import is_scored_as_mteb
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.table import Table
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, ProtocolError
from stsbench.data.task import load_task
from stsbench.results.record import Result
from tests.made import SIMCSE, make_result

WMEAN = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}
PRINT = "0123456789abcdef" * 4


def made(encoder: str, task: str, score: float, **changes: Any) -> Result:
    scores = {"spearman.all": score, "pearson.all": score + 0.01, "spearman.wmean": score - 0.1}
    return make_result(encoder, task, score, **{"scores": scores, "fingerprint": PRINT, **changes})


def export(tmp_path: Path, *results: Result) -> ExportedFiles:
    return export_mteb(results, tmp_path, Catalogue())


def read(tmp_path: Path, name: str, model: str = "stsbench__a", revision: str = PRINT[:40]) -> Any:
    return json.loads((tmp_path / "results" / model / revision / f"{name}.json").read_text())


def test_a_file_holds_what_mteb_writes(tmp_path):
    export(tmp_path, made("a", "sts12", 0.72369664))
    assert read(tmp_path, "STS12") == {
        "dataset_revision": "a0d554a64d88156834ff5ae9920b964011b16384",
        "task_name": "STS12",
        "mteb_version": None,
        "scores": {
            "test": [
                {
                    "pearson": 0.733697,
                    "spearman": 0.723697,
                    "cosine_pearson": 0.733697,
                    "cosine_spearman": 0.723697,
                    "main_score": 0.723697,
                    "hf_subset": "default",
                    "languages": ["eng-Latn"],
                }
            ]
        },
        "evaluation_time": 0.25,
        "kg_co2_emissions": None,
        "date": "2026-01-01T00:00:00+00:00",
    }


def test_languages_of_one_task_are_subsets_of_one_file_and_whole(tmp_path):
    languages = ("de", "en", "es", "fr", "it", "nl", "pl", "pt", "ru", "zh")
    made_of = [made("a", f"stsb-{code}", at / 20) for at, code in enumerate(languages)]
    export(tmp_path, *made_of)
    subsets = {
        one["hf_subset"]: (one["main_score"], one["languages"])
        for one in read(tmp_path, "STSBenchmarkMultilingualSTS")["scores"]["test"]
    }
    assert set(subsets) == set(languages) and subsets["zh"] == (0.45, ["cmn-Hans"])
    # A mean over some of them would be taken for that over all.
    dev = [made("a", f"stsb-{code}", 0.6, split="validation") for code in languages[1:]]
    found = export(tmp_path / "test", *made_of, *dev)
    assert list(read(tmp_path / "test", "STSBenchmarkMultilingualSTS")["scores"]) == ["test"]
    assert found.omitted[0] == (
        "a on stsb-en: MTEB's STSBenchmarkMultilingualSTS is of 10 subsets, the results hold 9 of split 'validation'"
    )
    with pytest.raises(
        DataError,
        match="nothing to export: a on sts17-en-en: MTEB's STS17 is of 11 subsets, the res",
    ):
        export(tmp_path / "none", made("a", "sts17-en-en", 0.8), made("a", "sts17-tr-en", 0.1))


def test_the_score_is_of_all_pairs_whatever_the_aggregation(tmp_path):
    export(
        tmp_path,
        made("a", "sts12", 0.7, protocol=WMEAN),
        made("a", "sts12", 0.7),
        made("a", "sts12", 0.7, eval_seed=1),
    )
    (only,) = read(tmp_path, "STS12")["scores"]["test"]
    assert only["main_score"] == 0.7


def test_models_and_their_states_have_folders_of_their_own(tmp_path):
    commit = "c" * 40
    export(
        tmp_path,
        made("org/name", "sts12", 0.5, revision=commit),
        made("a", "sts12", 0.6, fingerprint=PRINT[::-1]),
        made("a", "sts12", 0.7),
        made("b c", "sts12", 0.7, fingerprint=None),
    )
    assert read(tmp_path, "STS12", "org__name", commit)["scores"]["test"][0]["main_score"] == 0.5
    assert (
        read(tmp_path, "STS12", revision=PRINT[::-1][:40])["scores"]["test"][0]["main_score"] == 0.6
    )
    assert read(tmp_path, "STS12")["scores"]["test"][0]["main_score"] == 0.7
    assert read(tmp_path, "STS12", "stsbench__b_c", "no_revision_available")
    meta = read(tmp_path, "model_meta", "org__name", commit)
    assert (meta["name"], meta["n_parameters"], meta["embed_dim"]) == ("org/name", None, None)


def test_a_model_of_a_card_has_the_hubs_id_its_size_and_its_dimensions(tmp_path):
    export(tmp_path, made("minilm", "sts12", 0.5))
    meta = read(tmp_path, "model_meta", "sentence-transformers__all-MiniLM-L6-v2")
    assert meta["name"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert (meta["n_parameters"], meta["embed_dim"]) == (22_713_216, 384)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (made("a", "stsb", 0.5), "a on stsb: its data are not those of a task of MTEB's"),
        (made("a", "sickr", 0.5), "a on sickr: its data are not those of a task of MTEB's"),
        (
            made("a", "sts17-ar-ar", 0.5),
            "a on sts17-ar-ar: its data are not those of a task of MTEB's",
        ),
        (
            made("a", "a task of mine", 0.5),
            "a on a task of mine: its data are not those of a task of MTEB's",
        ),
        (
            made("a", "sts12", 0.5, protocol={**SIMCSE, "similarity": "dot"}),
            "a on sts12: MTEB scores by the Spearman",
        ),
        (made("a", "sts12", 0.5, split="train"), "a on sts12: MTEB has no split 'train' of it"),
    ],
)
def test_cells_of_other_data_or_scoring_are_left_out(tmp_path, result, why):
    with pytest.raises(DataError, match=f"nothing to export: {why}"):
        export(tmp_path / "none", result)
    assert not (tmp_path / "none").exists()
    found = export(tmp_path, result, made("a", "sts13", 0.5))
    assert len(found.paths) == 1 and len(found.omitted) == 1 and found.omitted[0].startswith(why)


def test_every_task_named_is_ours_and_from_mteb():
    for task in read_mteb_tasks():
        found = find_mteb_task(task, Catalogue())
        assert found and found.repo.startswith("mteb/") and len(found.revision) == 40
        assert found.splits["test"] == "test"
    assert find_mteb_task("stsb", Catalogue()) is None


# With MTEB itself, where it is installed.


@pytest.mark.filterwarnings("ignore")
def test_mteb_reads_the_files(tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    scores = {"sts12": 0.7, "sts13": 0.6, "stsb-raw": 0.5, "sickr-mteb": 0.4}
    for encoder in ("a", "org/name"):
        export(tmp_path, *(made(encoder, task, score) for task, score in scores.items()))
    for path in tmp_path.rglob("*.json"):
        if path.name != "model_meta.json":
            mteb.results.TaskResult.from_disk(path, load_historic_data=False)
        else:
            mteb.models.ModelMeta.model_validate_json(path.read_text())
    found = mteb.ResultCache(tmp_path).load_results(include_remote=False)
    assert {one.model_name for one in found.model_results} == {"stsbench/a", "org/name"}
    for model in found.model_results:
        assert model.model_revision == PRINT[:40]
        main = {one.task_name: one.get_score() for one in model.task_results}
        assert main == pytest.approx(
            {"STS12": 0.7, "STS13": 0.6, "STSBenchmark": 0.5, "SICK-R": 0.4}
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.data
@pytest.mark.parametrize("task", read_mteb_tasks())
def test_the_data_are_mtebs(task):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    ours = find_mteb_task(task, Catalogue())
    assert ours
    theirs = mteb.get_task(ours.name).metadata
    assert (theirs.dataset["path"], theirs.dataset["revision"]) == (ours.repo, ours.revision)
    assert theirs.hf_subsets_to_langscripts[ours.subset] == ours.languages
    assert theirs.main_score == "cosine_spearman"
    facts = theirs.descriptive_stats["test"]
    facts = facts.get("hf_subset_descriptive_stats", {ours.subset: facts})[ours.subset]
    split: Any = load_task(task).load("test")
    assert len(split.gold) == facts["num_samples"]
    assert split.gold.mean() == pytest.approx(facts["label_statistics"]["avg_score"], abs=1e-5)
    for sentences, column in (
        (split.sentences1, "text1_statistics"),
        (split.sentences2, "text2_statistics"),
    ):
        assert sum(map(len, sentences)) == facts[column]["total_text_length"]
        assert len(set(sentences)) == facts[column]["unique_texts"]


STS12 = "a0d554a64d88156834ff5ae9920b964011b16384"
SUITE = Suite(name="STS", tasks=["sts12", "sts13"])


def boards(results: list[Result]) -> list[Table]:
    return TableRequest(catalogue=Catalogue(), results=results).make_suite_boards(
        "sts", SUITE, dict.fromkeys(SUITE.tasks, "test")
    )


def file(
    path: Path, score: object = 0.5, *, task: str = "STS12", revision: str = STS12, **changes: Any
) -> Path:
    cell = {
        "cosine_spearman": score,
        "main_score": score,
        "hf_subset": "default",
        "languages": ["eng-Latn"],
    }
    facts = {
        "dataset_revision": revision,
        "task_name": task,
        "mteb_version": "2.1.0",
        "scores": {"test": [cell]},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, **changes}))
    return path


def imported_of(path: Path) -> ImportedScores:
    return read_mteb(path, Catalogue())


def test_a_folder_of_models_is_read(tmp_path):
    file(tmp_path / "org__one" / "rev1" / "STS12.json", 0.5)
    file(
        tmp_path / "org__one" / "rev1" / "Banking77Classification.json",
        task="Banking77Classification",
    )
    file(tmp_path / "two" / "rev2" / "STS12.json", 0.6)
    (tmp_path / "two" / "rev2" / "model_meta.json").write_text(
        '{"name": "org/two", "revision": "main", "loader": null}'
    )
    found = imported_of(tmp_path)
    assert found.scores == {
        ImportedModel("org/one", "rev1"): {"sts12": (0.5, "2.1.0")},
        ImportedModel("org/two", "main"): {"sts12": (0.6, "2.1.0")},
    }
    assert not found.problems
    assert imported_of(tmp_path / "two" / "rev2" / "STS12.json").scores == {
        ImportedModel("org/two", "main"): {"sts12": (0.6, "2.1.0")}
    }


def test_what_was_exported_is_imported_again(tmp_path):
    languages = ("de", "en", "es", "fr", "it", "nl", "pl", "pt", "ru", "zh")
    scores = {"sts12": 0.123456, "sts13": 0.6, "stsb-raw": 0.5, "sickr-mteb": 0.4}
    scores |= {f"stsb-{code}": at / 20 for at, code in enumerate(languages)}
    export_mteb([made("a", task, score) for task, score in scores.items()], tmp_path, Catalogue())
    (((name, revision), found),) = imported_of(tmp_path).scores.items()
    assert (name, revision) == ("stsbench/a", PRINT[:40])
    assert {task: score for task, (score, _) in found.items()} == scores


BROKEN = {
    "half.json": (
        '{"task_name": "STS12", "dataset_rev',
        "is not a result file of MTEB 1.11 or newer: ",
    ),
    "old.json": (
        '{"mteb_version": "1.0.0", "test": {"cos_sim": {"spearman": 0.5}}}',
        "mteb itself reads older ones",
    ),
    "list.json": ("[]", "is not a result file of MTEB"),
}


def test_a_broken_old_or_foreign_file_is_one_line(tmp_path):
    folder = tmp_path / "org__one" / "rev1"
    file(
        folder / "STS13.json",
        0.5,
        task="STS13",
        revision="7e90230a92c190f1bf69ae9002b8cea547a64cca",
    )
    for name, (content, _) in BROKEN.items():
        (folder / name).write_text(content)
    file(folder / "other data.json", revision="f" * 40)
    file(folder / "nan.json", None)
    file(folder / "two.json", 2)
    found = imported_of(tmp_path)
    assert found.scores == {ImportedModel("org/one", "rev1"): {"sts13": (0.5, "2.1.0")}}
    assert len(found.problems) == len(BROKEN) + 3 and all(
        "\n" not in line for line in found.problems
    )
    by_name = {Path(line.partition(": ")[0]).name: line for line in found.problems}
    for name, (_, said) in BROKEN.items():
        assert said in by_name[name]
    assert by_name["other data.json"].endswith(
        f"of dataset revision {'f' * 12}, ours is {STS12[:12]}: other data"
    )
    assert by_name["nan.json"].endswith(
        "subset 'default': 'cosine_spearman' is None and no correlation"
    )
    assert by_name["two.json"].endswith("is 2 and no correlation")


@pytest.mark.parametrize(
    ("folder", "error_type", "message"),
    [
        ("empty", DataError, "no score of a task that is also ours"),
        (
            "broken",
            DataError,
            r"no score of a task that is also ours; .*a.json: is not a result file",
        ),
        ("gone", OutputError, "gone: there is no such file or folder of MTEB's results"),
    ],
)
def test_nothing_to_import_is_an_error(tmp_path, folder, error_type, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.json").write_text("{")
    with pytest.raises(error_type, match=message):
        imported_of(tmp_path / folder)


def test_imported_rows_stand_apart_and_are_marked():
    results = [made("a", "sts12", 0.5), made("a", "sts13", 0.6)]
    (board,) = boards(results)
    imported = ImportedScores(
        scores={
            ImportedModel("org/x", "one"): {
                "sts12": MtebScore(0.9, "2.1.0"),
                "sts13": MtebScore(0.8, "2.1.0"),
            },
            ImportedModel("org/x", "two"): {
                "sts12": MtebScore(0.7, "1.12.0"),
                "stsb-raw": MtebScore(0.1, "2.1.0"),
            },
            ImportedModel("org/y", "one"): {"stsb-raw": MtebScore(0.7, "2.1.0")},
        },
        problems=[],
    )
    table = add_imported_rows(board, imported)
    first, second = build_layout(table).blocks
    # Best is taken among the measured: with one row of them, none is.
    assert [[cell.text for cell in line.cells] for line in first.lines] == [
        ["50.00", "60.00", "55.00"]
    ]
    assert not any(cell.rank for cell in first.lines[0].cells)
    assert [line.label + line.symbols for line in second.lines] == ["org/x [one]°", "org/x [two]°"]
    assert [[cell.text for cell in line.cells] for line in second.lines] == [
        ["90.00", "80.00", "85.00"],
        ["70.00", "–", "–"],
    ]
    assert second.section.startswith("Imported from MTEB's result files")
    legend = "° imported from MTEB's result files, not measured here (mteb 2.1.0, mteb 1.12.0, mteb 2.1.0)"
    assert legend in build_layout(table).legend
    assert [
        line.label for block in build_layout(table, "measured").blocks for line in block.lines
    ] == ["a"]
    lines = list(csv.DictReader(io.StringIO(render([table], "csv"))))
    keys = ("side", "sts12", "sts13", "average", "average_exact")
    assert [lines[1][key] for key in keys] == ["imported", "90.0", "80.0", "85.0", "85.0"]
    assert lines[0]["side"] == "measured"
    for fmt in ("markdown", "latex", "html", "json"):
        assert "mteb 2.1.0" in render([table], fmt)


def test_imported_rows_have_a_board_of_their_own_where_none_is_scored_as_they_are():
    scores = {"sts12": MtebScore(0.9, "2.1.0")}
    imported = ImportedScores(scores={ImportedModel("org/x", "one"): scores}, problems=[])
    titles = {}
    for name, protocol in (("simcse", SIMCSE), ("wmean", WMEAN)):
        results = [make_result("a", "sts12", 0.5, protocol=protocol)]
        request = TableRequest(catalogue=Catalogue(), results=results, imported=imported)
        titles[name] = [
            table.title.partition(",")[2].split()[1] for table in request.make_boards("sts").tables
        ]
    assert titles == {"simcse": ["simcse"], "wmean": ["wmean", "mteb"]}


def test_only_boards_scored_as_mteb_scores_take_them():
    def taken(protocol: dict[str, Any]) -> bool:
        results = [make_result("a", "sts12", 0.5, protocol=protocol)]
        (board,) = boards(results)
        return is_scored_as_mteb(board.columns)

    assert taken(SIMCSE)
    assert not any(map(taken, (WMEAN, {**SIMCSE, "similarity": "dot"}, {"name": "senteval"})))
    assert is_scored_as_mteb(build_table("sts").columns) and not is_scored_as_mteb(
        build_table("transfer").columns
    )
    with pytest.raises(ProtocolError, match="'transfer' is not scored as MTEB scores"):
        add_imported_rows(build_table("transfer"), ImportedScores({}, []))
