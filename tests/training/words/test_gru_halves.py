"""Skip-Thoughts' and Quick-Thoughts' training beside literal steps; they learn a small text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stsbench.core.errors import TrainingError
from stsbench.encoders.load import load_encoder
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.words.recurrent import GruHalvesEncoder, GruTable
from stsbench.training.words.recurrent_methods import (
    ADDED_PROBABILITY,
    QuickThoughtsTraining,
    SkipThoughts,
    SkipThoughtsTraining,
)
from tests.encoders.words.word_encoders import gru_step
from tests.training.words.ordered_text import STORY

SENTENCES = TokenIds.from_lists([[2, 3, 0], [4, 0], [5, 2, 4, 0], [3, 3, 0], [6, 0], [2, 0]])


def literal_cost(model: SkipThoughts, rows: list[int]) -> float:
    """The cost word by word."""
    tensors = {name: t.double().numpy() for name, t in model.state_dict().items()}

    def part(start: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)
        }

    lists = [
        SENTENCES.ids[a:b] for a, b in zip(SENTENCES.offsets, SENTENCES.offsets[1:], strict=False)
    ]
    total = 0.0
    for row in rows:
        ends = []
        for i in range(len(model.gru.directions)):
            state = np.zeros(tensors[f"gru.directions.{i}.gru.weight_hh_l0"].shape[1])
            for word in lists[row][:: -1 if i else 1]:
                state = gru_step(
                    part(f"gru.directions.{i}.gru."), tensors["embedding"][word], state
                )
            ends.append(state)
        sentence = np.concatenate(ends)
        for side, target in (("next", lists[row + 1]), ("previous", lists[row - 1])):
            state = sentence if not model.each_step else np.zeros(len(sentence))
            before = np.zeros(tensors["embedding"].shape[1])
            for word in target:
                seen = before if not model.each_step else np.concatenate([before, sentence])
                state = gru_step(part(f"decoders.{side}."), seen, state)
                logits = tensors["output.weight"] @ state + tensors["output.bias"]
                total -= np.log(np.exp(logits[word]) / np.exp(logits).sum() + ADDED_PROBABILITY)
                before = tensors["embedding"][word]
    return total


@pytest.mark.parametrize("condition", ["state", "steps"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_cost_is_the_literal_sum_over_words_sentences_and_decoders(condition, bidirectional):
    torch.manual_seed(1)
    model = SkipThoughts(
        7, GruTable(word_size=3, hidden=4, bidirectional=bidirectional), condition=condition
    )
    rows = np.array([1, 2, 4])
    cost = model.compute_cost(SENTENCES, rows)
    assert float(cost.detach()) == pytest.approx(literal_cost(model, rows.tolist()), rel=1e-5)


def test_first_weights_are_as_released():
    model = SkipThoughts(50, GruTable(word_size=8, hidden=8), condition="steps")
    assert model.embedding.abs().max() <= 0.1
    for name, parameter in model.named_parameters():
        # Square matrices: the recurrent ones, and here those of the encoder's words.
        if "weight_hh" in name or name == "gru.directions.0.gru.weight_ih_l0":
            for gate in parameter.detach().chunk(3):
                torch.testing.assert_close(gate @ gate.T, torch.eye(8), atol=1e-5, rtol=0)
        elif "weight" in name:
            assert 0.099 < parameter.abs().max() <= 0.1
        if "bias" in name:
            assert not parameter.any()


def test_batches_hold_sources_of_one_length_and_long_triples_are_left_out():
    training = SkipThoughtsTraining(max_words=3, batch_size=2)
    documents = np.array([0, 0, 0, 0, 0, 0])
    # Sentence 2 has three words: triples with it are out.
    assert training.find_triples(SENTENCES, documents).tolist() == [4]
    wide = SkipThoughtsTraining(max_words=4, batch_size=2)
    rows = wide.find_triples(SENTENCES, documents)
    assert rows.tolist() == [1, 2, 3, 4]
    assert wide.find_triples(SENTENCES, np.array([0, 0, 0, 1, 1, 1])).tolist() == [1, 4]
    batches = list(wide.batches(SENTENCES, rows, np.random.default_rng(0)))
    assert sorted(int(row) for batch in batches for row in batch) == [1, 2, 3, 4]
    assert all(len(set(SENTENCES.lengths[batch])) == 1 and len(batch) <= 2 for batch in batches)
    with pytest.raises(
        TrainingError, match="no three neighbouring sentences are shorter than 1 words"
    ):
        SkipThoughtsTraining(max_words=1).find_triples(SENTENCES, documents)


def quick_text() -> dict[str, list[str]]:
    words = np.random.default_rng(0).integers(0, 40, size=(60, 4))
    return {"text": [" ".join(f"w{i}" for i in row) for row in words.tolist()]}


SKIP = {"hidden": 16, "batch_size": 8, "epochs": 12, "every": 30, "learning_rate": 5e-3}
QUICK = {"hidden": 12, "batch_size": 30, "epochs": 60, "every": 10, "learning_rate": 2e-2}
LEARNS = [
    # Which sentences stand around one is certain but at the ends of a document.
    *(
        (SkipThoughtsTraining, {**SKIP, "condition": how}, STORY, 1.5, 0.3)
        for how in ("state", "steps")
    ),
    # A guess costs log 30; two neighbours with half the target each cost log 2 at least.
    *(
        (QuickThoughtsTraining, {**QUICK, "cell": cell}, quick_text(), 3, 1.1)
        for cell in ("torch", "tensorflow")
    ),
]


@pytest.mark.parametrize(("method", "params", "text", "first", "last"), LEARNS)
def test_it_learns_a_small_text(tmp_path, method, params, text, first, last):
    curve = method(word_size=12, **params).fit(text, folder=tmp_path / "run", seed=1).curve
    assert curve[-1]["loss"] < last < first < curve[0]["loss"]
    encoder = load_encoder(tmp_path / "run")
    assert isinstance(encoder, GruHalvesEncoder)
    assert list(encoder.config.halves) == (
        ["uni"] if method is SkipThoughtsTraining else ["f", "g"]
    )


def test_batches_are_stretches_of_text_in_order():
    text = {"text": [f"word{i} word" for i in range(11)]}
    lesson = QuickThoughtsTraining(word_size=2, hidden=2, batch_size=4).prepare(text, seed=0)
    assert lesson.steps_per_epoch == 2 and [rows.tolist() for rows in lesson.batches()] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_words_after_the_fiftieth_are_not_read(tmp_path):
    ends = ["tail " * 6 + "more " * 4, "more " * 4 + "tail " * 6]
    losses = [
        [
            QuickThoughtsTraining(word_size=2, hidden=2, batch_size=4, max_words=max_words)
            .fit({"text": ["word " * 50 + end] * 5}, folder=tmp_path / f"{max_words}{end}", seed=1)
            .curve[-1]["loss"]
            for end in ends
        ]
        for max_words in (50, 60)
    ]
    assert losses[0][0] == losses[0][1] and losses[1][0] != losses[1][1]


def test_steps_end_a_run_and_too_little_text_is_one_line(tmp_path):
    short = SkipThoughtsTraining(word_size=4, hidden=4, epochs=100000, steps=3)
    assert short.fit(STORY, folder=tmp_path, seed=3).steps == 3
    with pytest.raises(
        TrainingError, match="^120 sentences cannot fill a batch of 400; lower batch_size"
    ):
        QuickThoughtsTraining().fit(STORY, folder=tmp_path, seed=1)
