"""The Hub's evaluation results: what huggingface_hub reads of them."""

from __future__ import annotations

import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub import EvalResultEntry, parse_eval_result_entries
from msgspec import structs

from stsbench.boards.exports.hub import eval_results
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.results.record import Result
from stsbench.significance.means import mean_interval
from tests.boards.scored import SENTEVAL
from tests.made import make_result
from tests.significance.pairs import pair, told


def entries(*results: Result) -> list[EvalResultEntry]:
    return parse_eval_result_entries(yaml.safe_load(eval_results(results, Catalogue()).text))


def test_an_entry_is_what_the_hub_reads():
    sts, german = entries(make_result("mine", "sts12", 1 / 3), make_result("mine", "stsb-de", 0.5, split="validation"))
    assert sts == EvalResultEntry(
        dataset_id="mteb/sts12-sts",
        task_id="STS12",
        value=1 / 3,
        dataset_revision="a0d554a64d88156834ff5ae9920b964011b16384",
        date="2026-01-01T00:00:00+00:00",
        source_url="https://github.com/stsbench/stsbench",
        source_name="stsbench",
        notes="Spearman of cosine (all), test split, n = 3, protocol simcse; 95% interval 0.2333 to 0.4333",
    )
    assert german.task_id == "de" and "validation split" in str(german.notes)


def test_seeds_are_a_mean_and_protocols_stay_apart():
    wmean = {**make_result().protocol, "name": "wmean", "aggregation": "wmean"}
    seeds = [make_result("mine", "sts12", score, train_seed=at) for at, score in enumerate((0.5, 0.7))]
    mean, weighted = entries(*seeds, make_result("mine", "sts12", 0.3, protocol=wmean))
    assert mean.value == pytest.approx(0.6) and str(mean.notes).endswith("mean of 2 seeds, deviation 0.1414")
    several = [structs.replace(told(one), eval_seed=at, items=str(at)) for at, one in enumerate(pair())]
    low, high = mean_interval([several]) or (0, 0)
    (known,) = entries(*several)
    assert str(known.notes).endswith(f"; 95% interval over items and seeds {low:.4f} to {high:.4f}")
    assert weighted.value == 0.3 and "(wmean)" in str(weighted.notes)


def test_what_is_no_dataset_on_the_hub_is_left_out():
    """Tasks of a joint archive, of the package, and of a user's own."""
    others = [make_result("mine", task, 0.5) for task in ("sickr", "quickstart-en", "my task")]
    probe = make_result("mine", "mr", 0.8, protocol=SENTEVAL)
    made = eval_results([*others, probe, make_result("mine", "sts13", 0.5)], Catalogue())
    assert len(yaml.safe_load(made.text)) == 1
    assert [line.split(":")[0] for line in made.left_out] == [
        "mine on sickr", "mine on quickstart-en", "mine on my task", "mine on mr",
    ]  # fmt: skip
    with pytest.raises(DataError, match="nothing to export: mine on sickr: it is no dataset of its own on the Hub"):
        eval_results(others, Catalogue())
