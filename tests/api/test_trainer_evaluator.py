"""The evaluator for sentence-transformers' trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.sentence_transformer.training_args import (
    SentenceTransformerTrainingArguments,
)

import stsbench


@pytest.fixture
def model(bert: Path) -> SentenceTransformer:
    return SentenceTransformer(modules=[Transformer(str(bert)), Pooling(16, "mean")], device="cpu")


def test_it_returns_the_scores_of_evaluate_with_their_intervals(model, tmp_path):
    evaluator = stsbench.StsbenchEvaluator("quickstart-en,quickstart-es-en", split="test")
    scores = evaluator(model, str(tmp_path), epoch=1, steps=2)
    expected = stsbench.evaluate(model, "quickstart-en,quickstart-es-en", store=None)
    for result in expected:
        low, high = result.interval
        assert scores[f"{result.task}_score"] == result.score
        assert (scores[f"{result.task}_low"], scores[f"{result.task}_high"]) == (low, high)
    mean = sum(result.score for result in expected) / 2
    assert scores[evaluator.primary_metric] == pytest.approx(mean, abs=1e-12)
    saved = stsbench.read_results(tmp_path / "stsbench")
    assert evaluator.results is not None
    assert [result.score for result in saved] == [result.score for result in evaluator.results]


@pytest.mark.data
def test_by_default_it_scores_the_validation_split_of_stsb(model):
    evaluator = stsbench.StsbenchEvaluator()
    assert set(evaluator(model)) == {"stsbench_score", "stsb_score", "stsb_low", "stsb_high"}
    assert evaluator.results is not None and evaluator.results[0].split == "validation"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": "quickstart-enn"}, "did you mean 'quickstart-en'"),
        ({"tasks": "quickstart-en"}, "unknown split of quickstart-en 'validation'; has test"),
        (
            {"splits": "test"},
            "unknown argument of StsbenchEvaluator 'splits'; did you mean 'split'",
        ),
        ({"split": 3}, "StsbenchEvaluator: split must be a name; it is 3"),
    ],
)
def test_wrong_arguments_are_refused_before_training(arguments, message):
    with pytest.raises(stsbench.StsbenchError, match=message):
        stsbench.StsbenchEvaluator(**arguments)


def test_the_trainer_takes_it_and_selects_by_its_score(model, tmp_path, monkeypatch):
    # A model card asks the Hub for facts of the base.
    monkeypatch.setattr(SentenceTransformer, "_create_model_card", lambda *args, **settings: None)
    text = ["the cat sat", "a dog ran"] * 4
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=4,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            load_best_model_at_end=True,
            metric_for_best_model="eval_stsbench_score",
            report_to=[],
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict(
            {"sentence1": text, "sentence2": text[::-1], "score": [0.0, 1.0] * 4}
        ),
        evaluator=stsbench.StsbenchEvaluator("quickstart-en", split="test"),
    )
    trainer.train()
    logged = [log for log in trainer.state.log_history if "eval_stsbench_score" in log]
    assert len(logged) == 2
    for log in logged:
        low, high = log["eval_quickstart-en_low"], log["eval_quickstart-en_high"]
        assert low < log["eval_stsbench_score"] == log["eval_quickstart-en_score"] < high
    assert trainer.state.best_metric == max(log["eval_stsbench_score"] for log in logged)
