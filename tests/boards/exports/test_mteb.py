"""Exported result files of MTEB's: what they hold, that MTEB's own loader takes them, and which tasks have its data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stsbench.boards.exports.mteb import ExportedFiles, export_mteb
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, SourceError
from stsbench.data.mteb.facts import find_matched_task, list_matched_tasks, read_mteb_facts
from stsbench.data.task import load_task
from stsbench.results.record import Result
from tests.made import SIMCSE, make_result

MTEB_REPOS = {task.repo for task in read_mteb_facts().tasks.values()}
OTHER_DATA = {"sts17-ar-ar", "sts17-ar-en"}
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
        "a on stsb-en: MTEB's STSBenchmarkMultilingualSTS is of 10 subsets, the results hold 9 of split 'validation'; "
        "its file needs all"
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
        (
            made("a", "stsb", 0.5),
            "a on stsb: its data are not those of a task of MTEB's; those of stsb-raw are",
        ),
        (
            made("a", "sickr", 0.5),
            "a on sickr: its data are not those of a task of MTEB's; those of sickr-mteb are",
        ),
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
    with pytest.raises(DataError, match=f"nothing to export: {why}.*the suite sts-mteb has the"):
        export(tmp_path / "none", result)
    assert not (tmp_path / "none").exists()
    found = export(tmp_path, result, made("a", "sts13", 0.5))
    assert len(found.paths) == 1 and len(found.omitted) == 1 and found.omitted[0].startswith(why)


def test_every_card_of_mtebs_data_is_known():
    """A card that names MTEB's dataset is exported and imported, unless its files differ."""
    catalogue = Catalogue()
    for task in catalogue.paths("tasks"):
        hub = catalogue.task(task).hub
        subset = find_matched_task(task, catalogue)
        if subset is None:
            assert hub is None or hub.repo not in MTEB_REPOS or task in OTHER_DATA
        else:
            assert len(subset.revision) == 40 and subset.mteb_split_names
    assert find_matched_task("stsb", catalogue) is None


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
@pytest.mark.parametrize("task", list_matched_tasks(Catalogue()))
def test_the_data_are_mtebs(task):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    ours = find_matched_task(task, Catalogue())
    assert ours
    theirs = mteb.get_task(ours.mteb_task).metadata
    assert (theirs.dataset["path"], theirs.dataset["revision"]) == (ours.repo, ours.revision)
    assert dict(theirs.hf_subsets_to_langscripts) == dict(ours.languages_by_subset)
    assert theirs.main_score == "cosine_spearman"
    split_name = Catalogue().task(task).score_split
    facts = theirs.descriptive_stats[ours.mteb_split_names[split_name]]
    if ours.mteb_subset:
        facts = facts.get("hf_subset_descriptive_stats", {ours.mteb_subset: facts})[
            ours.mteb_subset
        ]
    try:
        split: Any = load_task(task).load(split_name)
    except SourceError as error:
        pytest.skip(f"the data are not here: {error}")
    assert len(split.gold) == facts["num_samples"]
    assert split.gold.mean() == pytest.approx(facts["label_statistics"]["avg_score"], abs=1e-5)
    for sentences, column in (
        (split.sentences1, "text1_statistics"),
        (split.sentences2, "text2_statistics"),
    ):
        assert sum(map(len, sentences)) == facts[column]["total_text_length"]
        assert len(set(sentences)) == facts[column]["unique_texts"]


SUBSETS = (
    "ko-ko",
    "ar-ar",
    "en-ar",
    "en-de",
    "en-en",
    "en-tr",
    "es-en",
    "es-es",
    "fr-en",
    "it-en",
    "nl-en",
)


def test_spearman_by_distances_is_written_if_the_result_holds_it(tmp_path):
    further = {"euclidean_spearman": 0.71234567, "manhattan_spearman": 0.70765432}
    scores = {f"{name}.{how}": value for name, value in further.items() for how in ("all", "mean")}
    result = made("a", "sts12", 0.7)
    export(tmp_path, replace(result, scores={**result.scores, **scores}))
    (cell,) = read(tmp_path, "STS12")["scores"]["test"]
    expected = {"euclidean_spearman": 0.712346, "manhattan_spearman": 0.707654}
    assert {name: cell[name] for name in further} == expected and cell["main_score"] == 0.7
    per_subset = {subset: {"spearman": 0.6, "pearson": 0.5, **further} for subset in SUBSETS}
    export(tmp_path, made("a", "sts17-mteb", 0.7, per_subset=per_subset))
    for cell in read(tmp_path, "STS17")["scores"]["test"]:
        assert {name: cell[name] for name in further} == expected


def test_a_task_with_all_subsets_of_mtebs_is_written_by_subset(tmp_path):
    per_subset = {
        subset: {"spearman": position / 20, "pearson": 0.5, "kendall": 0.4, "n": 250}
        for position, subset in enumerate(SUBSETS)
    }
    export(tmp_path, made("a", "sts17-mteb", 0.7, per_subset=per_subset))
    content = read(tmp_path, "STS17")["scores"]["test"]
    assert {cell["hf_subset"]: cell["main_score"] for cell in content} == {
        subset: position / 20 for position, subset in enumerate(SUBSETS)
    }
    assert content[1]["languages"] == ["ara-Arab"]
    del per_subset["nl-en"]
    with pytest.raises(DataError, match="MTEB's STS17 is of 11 subsets, the results hold 10"):
        export(tmp_path / "part", made("a", "sts17-mteb", 0.7, per_subset=per_subset))
