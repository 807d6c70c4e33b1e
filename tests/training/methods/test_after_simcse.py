"""MixCSE, SimCSE++, ESimCSE and RankCSE: what is made of two views, the queue and its copy, teachers' rankings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.training.methods.after_simcse import ESimCSE, MixCSE, RankCSE, SimCSEPlusPlus
from stsbench.training.objectives import (
    dimension_contrast,
    info_nce,
    list_mle,
    list_net,
    mixed_info_nce,
    off_dropout_info_nce,
    queued_info_nce,
    ranking_consistency,
)
from tests.training.methods.runs import embedded, first_batch, values
from tests.training.students import WORDS, sentences, student
from tests.training.tensors import cosine, made as tensor

TEXTS = sentences(24, seed=1)


def learner(method: Any, folder: Path, *, dropout: float = 0.2, **params: Any) -> Any:
    made = method(student(folder, dropout=dropout), **params)
    made.prepare({"text": TEXTS})
    return made


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_mixcse_mixes_what_the_student_embeds(masked_lm, variant):
    made = learner(MixCSE, masked_lm, variant=variant, mixing=0.3, temperature=0.1).train()
    batch = first_batch(made)
    torch.manual_seed(5)
    found = values(made, batch)["loss"]
    torch.manual_seed(5)
    (both,) = embedded(made, batch, made.student)
    wanted = mixed_info_nce(*both.double().chunk(2), temperature=0.1, mixing=0.3, variant=variant)
    assert found == pytest.approx(wanted.item(), rel=1e-5)
    assert found > info_nce(*both.double().chunk(2), temperature=0.1).item()


def test_simcse_plus_plus_has_negatives_without_dropout(masked_lm):
    made = learner(
        SimCSEPlusPlus, masked_lm, positive_share=0.9, dimension_weight=0.5, temperature=0.1
    ).train()
    batch = first_batch(made)
    torch.manual_seed(5)
    found = values(made, batch)
    torch.manual_seed(5)
    both, still = embedded(made, batch, made.student)
    np.testing.assert_allclose(still.detach(), made.student.encoder().encode(TEXTS[:8]), atol=1e-5)
    assert not torch.allclose(both[:8], still, atol=1e-2)
    # The third pass leaves dropout on for the next batch.
    assert all(module.training for module in made.student.modules())
    first, second = both.double().chunk(2)
    sentence = off_dropout_info_nce(
        first, second, still.double(), temperature=0.1, positive_share=0.9
    ).item()
    dimension = dimension_contrast(first, second, temperature=5.0).item()
    assert found["sentences"] == pytest.approx(sentence, rel=1e-5)
    assert found["dimensions"] == pytest.approx(dimension, rel=1e-5)
    assert found["loss"] == pytest.approx(sentence + 0.5 * dimension, rel=1e-5)


ESIMCSE_TEXTS = sentences(24, seed=1, longest=13)
RNG = np.random.default_rng


def esimcse_learner(
    folder: Path, *, dropout: float = 0.0, options: Any = None, **params: Any
) -> ESimCSE:
    made = ESimCSE(
        student(folder, dropout=dropout, **(options or {})), **{"queue_size": 20, **params}
    )
    made.prepare({"text": ESIMCSE_TEXTS})
    return made


def lists(tokens: dict[str, torch.Tensor]) -> list[list[int]]:
    pairs = zip(tokens["input_ids"], tokens["attention_mask"], strict=True)
    return [ids[mask.bool()].tolist() for ids, mask in pairs]


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_words_are_repeated_in_place_and_as_many_as_each_variant_says(masked_lm, variant):
    made = esimcse_learner(masked_lm, variant=variant)
    made.prepare(
        {"text": [" ".join(RNG(row).permutation(WORDS)[: 1 + row % 12]) for row in range(24)]}
    )
    seen: dict[int, Counter[int]] = {}
    for seed in range(200):
        batch = first_batch(made, 24, seed=seed)
        for one, longer in zip(lists(batch["first"]), lists(batch["views"])[24:], strict=True):
            seen.setdefault(len(one) - 2, Counter())[len(longer) - len(one)] += 1
            times = Counter(longer)
            assert list(times) == one and sorted(longer, key=one.index) == longer
            assert max(times.values()) <= 2 and times[one[0]] == times[one[-1]] == 1
    for inner, counts in seen.items():
        most = (
            max(2, int(0.32 * inner))
            if variant == "paper"
            else max(0, min(10, int(0.32 * (inner + 2))) - 1)
        )
        assert sorted(counts) == list(range(min(most, inner) + 1))
        # Evenly, by chance.
        assert max(counts.values()) < 2 * min(counts.values()) + 20


def test_a_repetition_stays_within_the_longest_input(masked_lm):
    # The checkpoint has 40 positions.
    made = esimcse_learner(masked_lm, options={"max_length": 40}, repetition_rate=1.0)
    made.prepare({"text": [" ".join(ESIMCSE_TEXTS[:12])] * 4})
    batch = first_batch(made, 4)
    assert batch["views"]["input_ids"].shape == (8, 40)
    made.prepare({"text": ["", "dog", "dog cat", "a dog"]})
    assert all(len(longer) <= 6 for longer in lists(first_batch(made, 4)["views"]))


def test_nothing_repeated_and_no_queue_is_simcse(masked_lm):
    made = esimcse_learner(masked_lm, repetition_rate=0.0, queue_size=0).eval()
    batch = first_batch(made)
    assert torch.equal(*batch["views"]["input_ids"].chunk(2))
    embedded = torch.from_numpy(made.student.encoder().encode(ESIMCSE_TEXTS[:8]))
    assert values(made, batch)["loss"] == pytest.approx(
        info_nce(embedded, embedded, temperature=0.05).item(), abs=1e-5
    )
    assert made.slow is None


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_the_queue_holds_the_newest_sentences_as_the_slow_copy_embeds_them(masked_lm, variant):
    options = {"pooling": "cls", "test_pooling": "cls_before_pooler"}
    made = esimcse_learner(
        masked_lm, dropout=0.2, options=options, variant=variant, momentum=0.75
    ).train()
    assert made.slow is not None and not made.filled.any()
    batches = [made.collate(np.arange(8) + start, RNG(start)) for start in (0, 8, 16)]
    wanted: list[torch.Tensor] = []
    for batch in batches:
        mine = {name: value.clone() for name, value in made.slow.model.state_dict().items()}
        theirs = made.student.model.state_dict()
        made(**batch)["loss"].backward()
        for name, value in made.slow.model.named_parameters():
            torch.testing.assert_close(value, 0.75 * mine[name] + 0.25 * theirs[name])
        with torch.no_grad():
            # Without dropout, though it is on.
            wanted.append(made.slow.embed(batch["first"]))
            for weights in made.student.parameters():
                weights.mul_(1.05)
    assert made.filled.all()
    torch.testing.assert_close(made.queue, torch.cat(wanted)[-20:])
    assert (made.slow.head is made.student.head) is (variant == "released")


def test_the_copy_begins_as_the_student_or_with_fresh_weights(masked_lm):
    paper, released = (
        esimcse_learner(masked_lm, variant=variant) for variant in ("paper", "released")
    )
    for made, alike in ((paper, True), (released, False)):
        assert made.slow is not None
        pairs = zip(made.slow.model.parameters(), made.student.model.parameters(), strict=True)
        weights = [(mine, theirs) for mine, theirs in pairs if mine.ndim == 2]
        assert len(weights) > 10 and all(
            torch.equal(mine, theirs) is alike for mine, theirs in weights
        )
        assert not any(p.requires_grad for p in made.slow.model.parameters())


def test_the_loss_counts_the_queue_from_the_second_batch_on(masked_lm):
    made = esimcse_learner(masked_lm, repetition_rate=0.0, temperature=0.2).train()
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


RANKCSE_TEXTS = sentences(24)
TEACHERS = {"wide": tensor(24, 9, key=1).numpy(), "narrow": tensor(24, 4, key=2).numpy()}
TAUGHT: list[Callable[..., Any]] = [
    lambda rows, of=of: of[rows].astype(np.float32) for of in TEACHERS.values()
]


def ranked(folder: Path, **params: Any) -> RankCSE:
    learner = RankCSE(student(folder), **{"teachers": list(TEACHERS), **params})
    learner.teacher_embeddings = TAUGHT
    learner.prepare({"text": RANKCSE_TEXTS})
    return learner.train()


def wanted(weights: tuple[float, float]) -> torch.Tensor:
    """The teachers' similarities of the first eight sentences, one by one."""
    teachers = [torch.from_numpy(one) for one in TEACHERS.values()]
    rows = [
        [
            sum(w * cosine(t[i], t[j]) for w, t in zip(weights, teachers, strict=True))
            for j in range(8)
        ]
        for i in range(8)
    ]
    return torch.tensor(rows)


@pytest.mark.parametrize("ranking", ["listmle", "listnet"])
def test_the_loss_is_the_sum_of_its_parts(masked_lm, ranking):
    learner = ranked(
        masked_lm, ranking=ranking, teacher_weights=[1.0, 3.0], ranking_temperature=0.1, consistency_weight=0.5,
        ranking_weight=2.0,
    ).eval()  # fmt: skip
    batch = first_batch(learner)
    a, b = embedded(learner, batch, learner.student)[0].detach().chunk(2)
    own = torch.tensor([[cosine(x, y) / 0.1 for y in b] for x in a])
    theirs = wanted((0.25, 0.75)) / 0.025
    distilled = (list_mle if ranking == "listmle" else list_net)(own, theirs).item()
    found = values(learner, batch)
    assert found["contrastive"] == pytest.approx(info_nce(a, b, temperature=0.05).item(), rel=1e-5)
    assert found["consistency"] == pytest.approx(
        ranking_consistency(a, b, temperature=0.05).item(), abs=1e-6
    )
    assert found["ranking"] == pytest.approx(distilled, rel=1e-3)
    total = found["contrastive"] + 0.5 * found["consistency"] + 2 * found["ranking"]
    assert found["loss"] == pytest.approx(total, rel=1e-6)


def test_without_its_own_losses_it_is_simcse(masked_lm):
    learner = ranked(masked_lm, teachers=None, consistency_weight=0.0, ranking_weight=0.0).eval()
    batch = first_batch(learner)
    a, b = embedded(learner, batch, learner.student)[0].chunk(2)
    assert "teacher_embeddings" not in batch
    assert values(learner, batch) == {
        name: pytest.approx(info_nce(a, b, temperature=0.05).item(), rel=1e-6)
        for name in ("loss", "contrastive")
    }
