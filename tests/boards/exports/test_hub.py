"""The scores of a Hugging Face model card, read back by the Hub's own library."""

from __future__ import annotations

import json
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, parse_eval_result_entries
from msgspec import structs

from stsbench.boards.exports.hub import (
    find_model,
    find_source_url,
    make_eval_results,
    make_model_index,
    to_every_eval_ever,
    to_yaml,
    write_card,
)
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError
from stsbench.results.record import Result
from stsbench.significance.means import MEAN_METHOD, compute_mean_interval
from tests.boards.scored import RUN, SENTEVAL
from tests.core.cards import ENCODER, write
from tests.made import SIMCSE, make_result
from tests.significance.pairs import pair, told


def index(*results: Result) -> list[dict[str, Any]]:
    return make_model_index("mine", results, Catalogue())


def told_seeds() -> list[Result]:
    """Two seeds of one encoder on a task, whose per-item columns tell the sentences."""
    right = np.arange(40) % 3 > 0
    made = []
    for seed in (0, 1):
        columns = {"correct": np.roll(right, seed), "sentence1": np.arange(40, dtype=np.uint32)}
        facts = {"n": 40, "per_item": columns, "items": str(seed), "eval_seed": seed}
        made.append(
            make_result("mine", "mr", float(right.mean()), protocol=SENTEVAL, split="all", **facts)
        )
    return made


def read(text: str) -> list[EvalResult]:
    """What the Hub's library finds in a card; it refuses what is no model-index."""
    data: Any = ModelCard(text, ignore_metadata_errors=False).data
    assert data.model_name == "mine"
    return list(data.eval_results)


def test_the_hubs_library_reads_every_score():
    results = [
        make_result("mine", "sts12", 1 / 3),
        make_result("mine", "stsb-de", 0.5, split="validation"),
        make_result("mine", "mr", 0.8, protocol=SENTEVAL),
        make_result("mine", "my-task", 0.1, protocol={"name": "own"}),
    ]
    sts, german, probe, own = read(to_yaml(index(*results)))
    assert sts == EvalResult(
        task_type="semantic-similarity",
        task_name="Semantic Similarity",
        dataset_type="princeton-nlp/datasets-for-simcse",
        dataset_name="STS12",
        dataset_config="sts12",
        dataset_split="test",
        dataset_revision="e145e8bb659b2aa2669f32ef79cb4cdef6c58fef",
        dataset_args={"task": "sts12"},
        metric_type="spearman_cosine",
        metric_name="Spearman of cosine (all)",
        metric_value=1 / 3,
        metric_args={**SIMCSE, "interval": [1 / 3 - 0.1, 1 / 3 + 0.1]},
    )
    assert (german.dataset_config, german.dataset_split) == ("de", "dev")
    assert (probe.task_type, probe.metric_type, probe.metric_value) == (
        "text-classification",
        "accuracy",
        0.8,
    )
    assert probe.metric_args == {**SENTEVAL, "interval": [pytest.approx(0.7), pytest.approx(0.9)]}
    assert (own.task_type, own.dataset_type, own.metric_args and own.metric_args["name"]) == (
        "other",
        "my-task",
        "own",
    )


def test_seeds_are_a_mean_and_protocols_stay_apart():
    wmean = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}
    results = [
        make_result("mine", "mr", score, protocol=SENTEVAL, eval_seed=at)
        for at, score in enumerate((0.5, 0.7))
    ]
    several = told_seeds()
    (mean,) = read(to_yaml(index(*several)))
    assert (mean.metric_args or {})["interval"] == list(compute_mean_interval([several]) or ())
    results += [
        make_result("mine", "sts12", 0.4),
        make_result("mine", "sts12", 0.3, protocol=wmean),
    ]
    probe, joined, weighted = read(to_yaml(index(*results)))
    assert probe.metric_value == pytest.approx(0.6)
    assert probe.metric_args == {**SENTEVAL, "seeds": 2, "deviation": pytest.approx(0.02**0.5)}
    assert [(one.metric_name, one.metric_value) for one in (joined, weighted)] == [
        ("Spearman of cosine (all)", 0.4),
        ("Spearman of cosine (wmean)", 0.3),
    ]


def test_a_card_keeps_its_text_and_its_other_metadata(tmp_path: Path):
    path = tmp_path / "README.md"
    write_card(path, index(make_result("mine", "sts12", 0.4)))
    assert [one.metric_value for one in read(path.read_text())] == [0.4]
    path.write_text(
        "---\nlicense: mit\nmodel-index: []\n---\n\n# Mine\n\nA señor's model.\n", encoding="utf-8"
    )
    write_card(path, index(make_result("mine", "sts12", 0.5)))
    text = path.read_text(encoding="utf-8")
    assert [one.metric_value for one in read(text)] == [0.5]
    assert ModelCard(text).data["license"] == "mit" and text.endswith(
        "\n# Mine\n\nA señor's model.\n"
    )


@pytest.mark.parametrize(
    "content", [b"---\nlicense: [mit\n---\n# Mine\n", b"---\n- a list\n---\n", b"\xff\xfe"]
)
def test_a_card_that_cannot_be_read_is_one_line_and_stays(tmp_path: Path, content: bytes):
    path = tmp_path / "README.md"
    path.write_bytes(content)
    with pytest.raises(OutputError, match=r"README.md: its metadata cannot be read: "):
        write_card(path, index(make_result("mine", "sts12", 0.4)))
    assert path.read_bytes() == content


def entries(*results: Result) -> list[EvalResultEntry]:
    return parse_eval_result_entries(yaml.safe_load(make_eval_results(results, Catalogue())[0]))


def test_an_entry_is_what_the_hub_reads():
    sts, german = entries(
        make_result("mine", "sts12", 1 / 3), make_result("mine", "stsb-de", 0.5, split="validation")
    )
    assert sts == EvalResultEntry(
        dataset_id="mteb/sts12-sts",
        task_id="STS12",
        value=1 / 3,
        dataset_revision="a0d554a64d88156834ff5ae9920b964011b16384",
        date="2026-01-01T00:00:00+00:00",
        notes="Spearman of cosine (all), test split, n = 3, protocol simcse; 95% interval 0.2333 to 0.4333",
    )
    assert german.task_id == "de" and "validation split" in str(german.notes)


def test_records_name_the_home_page_that_the_package_states_and_no_other(monkeypatch):
    [entry] = entries(make_result("mine", "sts12", 1 / 3))
    assert entry.source_url is None and entry.source_name is None
    package = Message()
    package["Project-URL"] = "Changes, https://example.org/changes"
    package["Project-URL"] = "Homepage, https://example.org/stsbench"
    monkeypatch.setattr("stsbench.boards.exports.hub.metadata", lambda name: package)
    find_source_url.cache_clear()
    try:
        [entry] = entries(make_result("mine", "sts12", 1 / 3))
        [score] = read(to_yaml(index(make_result("mine", "sts12", 1 / 3))))
        record = json.loads(to_every_eval_ever([make_result("mine", "sts12", 1 / 3)], Catalogue()))
    finally:
        find_source_url.cache_clear()
    url = "https://example.org/stsbench"
    assert (entry.source_url, entry.source_name) == (url, "stsbench")
    assert (score.source_url, score.source_name) == (url, "stsbench")
    assert record["source_metadata"]["source_organization_url"] == url


def test_seeds_of_entries_are_a_mean_and_protocols_stay_apart():
    wmean = {**make_result().protocol, "name": "wmean", "aggregation": "wmean"}
    seeds = [
        make_result("mine", "sts12", score, train_seed=at) for at, score in enumerate((0.5, 0.7))
    ]
    mean, weighted = entries(*seeds, make_result("mine", "sts12", 0.3, protocol=wmean))
    assert mean.value == pytest.approx(0.6) and str(mean.notes).endswith(
        "mean of 2 seeds, deviation 0.1414"
    )
    several = [
        structs.replace(told(one), eval_seed=at, items=str(at)) for at, one in enumerate(pair())
    ]
    low, high = compute_mean_interval([several]) or (0, 0)
    (known,) = entries(*several)
    assert str(known.notes).endswith(f"; 95% interval over items and seeds {low:.4f} to {high:.4f}")
    assert weighted.value == 0.3 and "(wmean)" in str(weighted.notes)


def test_what_is_no_dataset_on_the_hub_is_left_out():
    """Tasks of a joint archive, of the package, and of a user's own."""
    others = [make_result("mine", task, 0.5) for task in ("sickr", "quickstart-en", "my task")]
    probe = make_result("mine", "mr", 0.8, protocol=SENTEVAL)
    text, left_out = make_eval_results(
        [*others, probe, make_result("mine", "sts13", 0.5)], Catalogue()
    )
    assert len(yaml.safe_load(text)) == 1
    assert [line.split(":")[0] for line in left_out] == [
        "mine on sickr", "mine on quickstart-en", "mine on my task", "mine on mr",
    ]  # fmt: skip
    with pytest.raises(DataError, match="mine on sickr: "):
        make_eval_results(others, Catalogue())


REGRESSION = {
    "name": "senteval",
    "metric": "pearson",
    "selection": "pearson",
    "learning_rate": 1e-3,
}
RESULTS = [
    make_result("minilm", "sts12", 0.5, run={**RUN, "commit": "c" * 40}),
    make_result("minilm", "stsb-de", 0.4, split="validation"),
    make_result(
        "minilm", "mr", 0.8, protocol={**SENTEVAL, "weight_decays": [1e-5, 1e-4]}, split="all"
    ),
    make_result(
        "minilm",
        "mr",
        0.9,
        protocol={**SENTEVAL, "weight_decays": [1e-5, 1e-4]},
        split="all",
        eval_seed=1,
    ),
    make_result("minilm", "sickr-regression", 0.7, protocol=REGRESSION),
    make_result("minilm", "quickstart-en", 0.6),
    make_result(
        "minilm", "my task", -3.0, protocol={"name": "own", "metric": "own"}, interval=(-4.0, -2.0)
    ),
]


def record(*results: Result) -> Any:
    return json.loads(to_every_eval_ever(results or RESULTS, Catalogue()))


def test_a_record_says_what_a_result_says():
    made = record()
    assert made["model_info"]["id"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert made["evaluation_id"] == "stsbench/sentence-transformers/all-MiniLM-L6-v2/1767225600"
    sts, german, probe, regression, quick, own = made["evaluation_results"]
    assert sts["score_details"]["score"] == 0.5
    interval = {"lower": 0.4, "upper": 0.6, "confidence_level": 0.95, "method": "none"}
    assert sts["score_details"]["uncertainty"] == {
        "num_samples": 3,
        "confidence_interval": interval,
    }
    assert (sts["metric_config"]["min_score"], sts["metric_config"]["max_score"]) == (-1, 1)
    assert sts["metric_config"]["metric_parameters"]["aggregation"] == "all"
    assert (
        german["source_data"]["hf_split"] == "dev"
        and german["source_data"]["additional_details"]["config"] == "de"
    )
    assert (
        probe["score_details"]["score"] == pytest.approx(0.85)
        and probe["metric_config"]["min_score"] == 0
    )
    assert probe["score_details"]["details"]["seeds"] == "2"
    assert "confidence_interval" not in probe["score_details"]["uncertainty"]
    (several,) = record(*told_seeds())["evaluation_results"]
    low, high = compute_mean_interval([told_seeds()]) or (0, 0)
    interval = {"lower": low, "upper": high, "confidence_level": 0.95, "method": MEAN_METHOD}
    assert several["score_details"]["uncertainty"] == {
        "num_samples": 40,
        "confidence_interval": interval,
    }
    assert probe["metric_config"]["metric_parameters"]["weight_decays"] == "[1e-05, 0.0001]"
    assert regression["metric_config"]["metric_unit"] == "correlation"
    assert quick["source_data"] == {"dataset_name": "Quickstart English", "source_type": "other"}
    assert (own["metric_config"]["min_score"], own["metric_config"]["max_score"]) == (
        "-Infinity",
        "Infinity",
    )


CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("encoder", "name"),
    [
        ("minilm", "sentence-transformers/all-MiniLM-L6-v2"),
        ("e5-base-v2", "intfloat/e5-base-v2"),
        # Two poolings of one checkpoint, changed parameters, what is made over another, what no card tells.
        ("bert-base-mean", "stsbench/bert-base-mean"),
        ("roberta-large-cls", "stsbench/roberta-large-cls"),
        ("minilm+pooling=max", "stsbench/minilm+pooling=max"),
        ("minilm-whitening", "stsbench/minilm-whitening"),
        ("my-encoder", "stsbench/my-encoder"),
        ("org/name", "org/name"),
    ],
)
def test_a_name_is_the_hubs_where_one_card_alone_describes_it(encoder, name):
    result = make_result(encoder, score=0.5, revision="c" * 40)
    assert find_model(result, CATALOGUE).name == name


def test_a_local_folder_is_no_name_of_the_hubs(tmp_path):
    card = ENCODER + '[params]\nmodel = "models/mine"\n'
    write(tmp_path / "baselines" / "my-words.toml", card)
    catalogue = Catalogue([tmp_path])
    digest = catalogue.encoder_digest(catalogue.encoder("my-words"))
    result = make_result("my-words", score=0.5, encoder_card=digest)
    assert find_model(result, catalogue).name == "stsbench/my-words"


def test_only_a_result_of_the_card_has_its_id_and_size():
    model = find_model(make_result("minilm", score=0.5), CATALOGUE)
    assert (model.parameters, model.dimensions) == (22_713_216, 384)
    other = find_model(make_result("minilm", score=0.5, encoder_card="e" * 64), CATALOGUE)
    assert other[0::2] == ("stsbench/minilm", None) and other.dimensions is None


@pytest.mark.parametrize(("run", "dimensions"), [({"dimensions": 128}, 128), ({}, None)])
def test_a_run_tells_the_size_of_embeddings(run: dict[str, Any], dimensions):
    assert find_model(make_result("mine", score=0.5, run=run), CATALOGUE).dimensions == dimensions


def test_a_revision_is_the_hubs_commit_or_of_the_fingerprint():
    assert (
        find_model(make_result("mine", score=0.5, revision="c" * 40), CATALOGUE).revision
        == "c" * 40
    )
    assert (
        find_model(make_result("mine", score=0.5, fingerprint="f" * 64), CATALOGUE).revision
        == "f" * 40
    )
    assert (
        find_model(make_result("mine", score=0.5, fingerprint=None), CATALOGUE).revision
        == "no_revision_available"
    )


def test_tasks_of_one_archive_stay_apart():
    sick, stsb = read(
        to_yaml(index(make_result("mine", "sickr", 0.4), make_result("mine", "stsb", 0.5)))
    )
    assert sick.dataset_type == stsb.dataset_type
    assert (sick.dataset_config, sick.dataset_name, stsb.dataset_config) == (
        "sickr",
        "SICK-R",
        "stsb",
    )
