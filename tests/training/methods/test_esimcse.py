"""ESimCSE: which sub-words are repeated, what the queue holds, and that both survive a kill."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.errors import CardError
from stsbench.training.loop import loop
from stsbench.training.methods.esimcse import ESimCSE
from stsbench.training.objectives import info_nce, queued_info_nce
from tests.training.methods.runs import first_batch, reopened_apart, values, whole_and_resumed
from tests.training.students import WORDS, run_facts, sentences, student

TEXTS = sentences(24, seed=1, longest=13)
RNG = np.random.default_rng


def learner(folder: Path, *, dropout: float = 0.0, options: Any = None, **params: Any) -> ESimCSE:
    made = ESimCSE(student(folder, dropout=dropout, **(options or {})), **{"queue_size": 20, **params})
    made.prepare({"text": TEXTS})
    return made


def lists(tokens: dict[str, torch.Tensor]) -> list[list[int]]:
    pairs = zip(tokens["input_ids"], tokens["attention_mask"], strict=True)
    return [ids[mask.bool()].tolist() for ids, mask in pairs]


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_words_are_repeated_in_place_and_as_many_as_each_variant_says(masked_lm, variant):
    made = learner(masked_lm, variant=variant)
    made.prepare({"text": [" ".join(RNG(row).permutation(WORDS)[: 1 + row % 12]) for row in range(24)]})
    seen: dict[int, Counter[int]] = {}
    for seed in range(200):
        batch = first_batch(made, 24, seed=seed)
        for one, longer in zip(lists(batch["first"]), lists(batch["second"]), strict=True):
            seen.setdefault(len(one) - 2, Counter())[len(longer) - len(one)] += 1
            times = Counter(longer)
            assert list(times) == one and sorted(longer, key=one.index) == longer
            assert max(times.values()) <= 2 and times[one[0]] == times[one[-1]] == 1
    for inner, counts in seen.items():
        most = max(2, int(0.32 * inner)) if variant == "paper" else max(0, min(10, int(0.32 * (inner + 2))) - 1)
        assert sorted(counts) == list(range(min(most, inner) + 1))
        # Evenly, by chance.
        assert max(counts.values()) < 2 * min(counts.values()) + 20


def test_a_repetition_stays_within_the_longest_input(masked_lm):
    # The checkpoint has 40 positions.
    made = learner(masked_lm, options={"max_length": 40}, repetition_rate=1.0)
    made.prepare({"text": [" ".join(TEXTS[:12])] * 4})
    batch = first_batch(made, 4)
    assert batch["first"]["input_ids"].shape == batch["second"]["input_ids"].shape == (4, 40)
    made.prepare({"text": ["", "dog", "dog cat", "a dog"]})
    assert all(len(longer) <= 6 for longer in lists(first_batch(made, 4)["second"]))


def test_nothing_repeated_and_no_queue_is_simcse(masked_lm):
    made = learner(masked_lm, repetition_rate=0.0, queue_size=0).eval()
    batch = first_batch(made)
    assert torch.equal(batch["first"]["input_ids"], batch["second"]["input_ids"])
    embedded = torch.from_numpy(made.student.encoder().encode(TEXTS[:8]))
    assert values(made, batch)["loss"] == pytest.approx(info_nce(embedded, embedded, temperature=0.05).item(), abs=1e-5)
    assert made.slow is None


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_the_queue_holds_the_newest_sentences_as_the_slow_copy_embeds_them(masked_lm, variant):
    options = {"pooling": "cls", "test_pooling": "cls_before_pooler"}
    made = learner(masked_lm, dropout=0.2, options=options, variant=variant, momentum=0.75).train()
    assert made.slow is not None and not made.filled.any()
    batches = [made.collate(np.arange(8) + start, RNG(start)) for start in (0, 8, 16)]
    wanted: list[torch.Tensor] = []
    for batch in batches:
        mine = {name: tensor.clone() for name, tensor in made.slow.model.state_dict().items()}
        theirs = made.student.model.state_dict()
        made(**batch)["loss"].backward()
        for name, tensor in made.slow.model.named_parameters():
            torch.testing.assert_close(tensor, 0.75 * mine[name] + 0.25 * theirs[name])
        with torch.no_grad():
            # Without dropout, though it is on.
            wanted.append(made.slow.embed(batch["first"]))
            for weights in made.student.parameters():
                weights.mul_(1.05)
    assert made.filled.all()
    torch.testing.assert_close(made.queue, torch.cat(wanted)[-20:])
    assert (made.slow.head is made.student.head) is (variant == "released")


def test_the_copy_begins_as_the_student_or_with_fresh_weights(masked_lm):
    paper, released = (learner(masked_lm, variant=variant) for variant in ("paper", "released"))
    for made, alike in ((paper, True), (released, False)):
        assert made.slow is not None
        pairs = zip(made.slow.model.parameters(), made.student.model.parameters(), strict=True)
        weights = [(mine, theirs) for mine, theirs in pairs if mine.ndim == 2]
        assert len(weights) > 10 and all(torch.equal(mine, theirs) is alike for mine, theirs in weights)
        assert not any(p.requires_grad for p in made.slow.model.parameters())


def test_the_loss_counts_the_queue_from_the_second_batch_on(masked_lm):
    made = learner(masked_lm, repetition_rate=0.0, temperature=0.2).train()
    batch = first_batch(made)
    with torch.no_grad():
        embedded = made.student.embed(batch["first"])
    alone = info_nce(embedded, embedded, temperature=0.2).item()
    assert values(made, batch)["loss"] == pytest.approx(alone, abs=1e-5)
    queue, filled = made.queue.clone(), made.filled.clone()
    assert filled.tolist() == [False] * 12 + [True] * 8
    found = values(made, batch)["loss"]
    wanted = queued_info_nce(embedded, embedded, queue, filled, temperature=0.2).item()
    assert found == pytest.approx(wanted, abs=1e-5) and found > alone + 0.01
    # Where nothing is learned, nothing moves on.
    queue = made.queue.clone()
    made.eval()
    values(made, batch)
    assert torch.equal(made.queue, queue)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_killed_run_goes_on_with_queue_and_copy(masked_lm, tmp_path, variant):
    options = {"pooling": "cls", "test_pooling": "cls_before_pooler"}
    whole, resumed = whole_and_resumed(
        lambda: learner(masked_lm, dropout=0.1, options=options, variant=variant), tmp_path, 24
    )
    assert resumed.same_as(whole)


def test_a_killed_run_s_queue_is_that_of_the_undisturbed_one(masked_lm, tmp_path):
    whole, resumed = whole_and_resumed(lambda: learner(masked_lm, dropout=0.1), tmp_path, 24, keep="last")
    for made in (whole, resumed):
        assert isinstance(made.learner, ESimCSE) and made.learner.filled.all()
        assert float(made.learner.queue.abs().sum()) > 0
    assert resumed.same_as(whole)


def test_training_moves_the_student_and_what_is_saved_is_it(masked_lm, tmp_path):
    made = learner(masked_lm, dropout=0.1)
    curve = loop.train_learner(
        made, run_facts(tmp_path / "run", 24, training={"steps": 30, "learning_rate": 3e-3}, selection={"every": 10})
    ).curve
    assert curve[-1]["loss"] < curve[0]["loss"] and math.isfinite(curve[-1]["loss"])
    assert reopened_apart(made, tmp_path / "saved") < 1e-5


@pytest.mark.parametrize("params", [{"repetition_rate": 1.2}, {"queue_size": -1}, {"momentum": 1.5}])
def test_numbers_that_make_no_sense_are_one_line(masked_lm, params):
    with pytest.raises(CardError, match="give shares from 0 to 1, and 0 or more"):
        learner(masked_lm, **params)
