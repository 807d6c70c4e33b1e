"""The scores of a Hugging Face model card, read back by the Hub's own library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import EvalResult, ModelCard

from stsbench.boards.exports.hub import model_index, to_yaml, write_card
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import OutputError
from stsbench.results.record import Result
from stsbench.significance.means import mean_interval
from tests.made import SIMCSE, make_result

SENTEVAL = {"name": "senteval", "kfold": 10, "nhid": 0}


def index(*results: Result) -> list[dict[str, Any]]:
    return model_index("mine", results, Catalogue())


def told_seeds() -> list[Result]:
    """Two seeds of one encoder on a task, whose per-item columns tell the sentences."""
    right = np.arange(40) % 3 > 0
    made = []
    for seed in (0, 1):
        columns = {"correct": np.roll(right, seed), "sentence1": np.arange(40, dtype=np.uint32)}
        facts = {"n": 40, "per_item": columns, "items": str(seed), "eval_seed": seed}
        made.append(make_result("mine", "mr", float(right.mean()), protocol=SENTEVAL, split="all", **facts))
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
        source_name="stsbench",
        source_url="https://github.com/stsbench/stsbench",
    )
    assert (german.dataset_config, german.dataset_split) == ("de", "dev")
    assert (probe.task_type, probe.metric_type, probe.metric_value) == ("text-classification", "accuracy", 0.8)
    assert probe.metric_args == {**SENTEVAL, "interval": [pytest.approx(0.7), pytest.approx(0.9)]}
    assert (own.task_type, own.dataset_type, own.metric_args and own.metric_args["name"]) == ("other", "my-task", "own")


def test_tasks_of_one_archive_stay_apart():
    sick, stsb = read(to_yaml(index(make_result("mine", "sickr", 0.4), make_result("mine", "stsb", 0.5))))
    assert sick.dataset_type == stsb.dataset_type
    assert (sick.dataset_config, sick.dataset_name, stsb.dataset_config) == ("sickr", "SICK-R", "stsb")


def test_seeds_are_a_mean_and_protocols_stay_apart():
    wmean = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}
    results = [make_result("mine", "mr", score, protocol=SENTEVAL, eval_seed=at) for at, score in enumerate((0.5, 0.7))]
    several = told_seeds()
    (mean,) = read(to_yaml(index(*several)))
    assert (mean.metric_args or {})["interval"] == list(mean_interval([several]) or ())
    results += [make_result("mine", "sts12", 0.4), make_result("mine", "sts12", 0.3, protocol=wmean)]
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
    path.write_text("---\nlicense: mit\nmodel-index: []\n---\n\n# Mine\n\nA señor's model.\n", encoding="utf-8")
    write_card(path, index(make_result("mine", "sts12", 0.5)))
    text = path.read_text(encoding="utf-8")
    assert [one.metric_value for one in read(text)] == [0.5]
    assert ModelCard(text).data["license"] == "mit" and text.endswith("\n# Mine\n\nA señor's model.\n")


@pytest.mark.parametrize("content", [b"---\nlicense: [mit\n---\n# Mine\n", b"---\n- a list\n---\n", b"\xff\xfe"])
def test_a_card_that_cannot_be_read_is_one_line_and_stays(tmp_path: Path, content: bytes):
    path = tmp_path / "README.md"
    path.write_bytes(content)
    with pytest.raises(OutputError, match=r"README.md: its metadata cannot be read: "):
        write_card(path, index(make_result("mine", "sts12", 0.4)))
    assert path.read_bytes() == content
