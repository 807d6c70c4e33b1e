"""The real tasks: majority levels of a constant embedding, and the toolkit's scores for MiniLM."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import stsbench
from stsbench.core.parameters import call_with_params
from stsbench.data.splits import Split
from stsbench.data.task import load_task
from stsbench.evaluators.probe.evaluator import PROTOCOLS, ProbeEvaluator
from tests.evaluators.probe.helpers import View

pytestmark = pytest.mark.data


@cache
def task_splits(name: str) -> dict[str, Split]:
    task = load_task(name)
    return {split: task.load(split) for split in task.card.splits}


def evaluator(name: str, protocol: str) -> ProbeEvaluator:
    options = load_task(name).card.options
    made = call_with_params(
        ProbeEvaluator, {"protocol": PROTOCOLS[protocol], **options}, where=name
    )
    assert isinstance(made, ProbeEvaluator)
    return made


@pytest.mark.parametrize(
    ("task", "protocol", "expected"),
    [
        ("cr", "senteval", {"accuracy": 63.76, "majority": 63.76}),
        ("mpqa", "senteval", {"accuracy": 68.77, "majority": 68.77}),
        ("mrpc", "senteval", {"accuracy": 66.49, "majority": 66.49, "f1": 79.87}),
        ("sicke", "senteval", {"accuracy": 56.69, "majority": 56.69}),
        ("trec", "logreg", {"accuracy": 18.80, "majority": 18.80}),
        ("cr", "logreg", {"accuracy": 63.76}),
        ("mrpc", "logreg", {"accuracy": 66.49, "f1": 79.87}),
        ("sicke", "logreg", {"accuracy": 56.69}),
    ],
)
def test_a_constant_embedding_scores_the_majority(task, protocol, expected):
    def embed(sentences):
        return View(np.full((len(sentences), 16), 0.25, dtype=np.float32))

    scores = evaluator(task, protocol)(task_splits(task), embed, seed=0)
    assert {name: round(100 * scores.scores[name], 2) for name in expected} == expected
    assert any("same embedding" in note for note in scores.notes)


def embed_with_minilm(sentences):
    unique = list(dict.fromkeys(sentences))
    rows = dict(zip(unique, stsbench.load_encoder("minilm").encode(unique), strict=True))
    return View(np.stack([rows[text] for text in sentences]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "toolkit", "within"),
    [
        ("mr", {"accuracy": 75.97, "dev_accuracy": 76.70}, 0.5),
        ("cr", {"accuracy": 80.61, "dev_accuracy": 82.35}, 0.5),
        ("subj", {"accuracy": 91.78}, 0.5),
        ("mpqa", {"accuracy": 87.42}, 0.5),
        ("sst2", {"accuracy": 81.44}, 0.5),
        ("trec", {"accuracy": 90.00, "dev_accuracy": 84.41}, 1.5),
        ("mrpc", {"accuracy": 72.12, "dev_accuracy": 73.67, "f1": 81.22}, 1.5),
        ("sicke", {"accuracy": 82.85, "dev_accuracy": 83.20}, 0.5),
        ("sst5", {"accuracy": 42.99, "dev_accuracy": 44.32}, 0.5),
    ],
)
def test_minilm_scores_as_under_the_toolkit(task, toolkit, within):
    """SentEval 5d6dc11 on torch 2.13, patched to run without CUDA: kfold 10, adam, 64, 5, 4."""
    scores = evaluator(task, "senteval")(task_splits(task), embed_with_minilm, seed=0)
    for name, expected in toolkit.items():
        assert 100 * scores.scores[name] == pytest.approx(expected, abs=within)
