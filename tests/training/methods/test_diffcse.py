"""DiffCSE: what the generator replaces, what the discriminator is given, its loss against the released code's."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stsbench.core.errors import EncoderError
from stsbench.training.learner import IGNORED_LABEL
from stsbench.training.loop import loop
from stsbench.training.methods.after_simcse import DiffCSE
from stsbench.training.objectives import info_nce
from tests.encoders.made_checkpoints import save_bert
from tests.training.methods.runs import embedded, first_batch, values
from tests.training.students import WORDS, run_facts, sentences, student
from tests.training.tensors import made as tensor

TEXTS = sentences(24, seed=1)


def learner(folder: Path, *, dropout: float = 0.0, **params: Any) -> DiffCSE:
    made = DiffCSE(student(folder, dropout=dropout), **params)
    made.prepare({"text": TEXTS})
    return made


def test_the_paper_draws_what_is_hidden_and_leaves_the_rest(masked_lm):
    made = learner(masked_lm, mask_rate=0.5)
    batch = first_batch(made, 12)
    ids, hidden = batch["views"]["input_ids"], batch["hidden"]["labels"] != IGNORED_LABEL
    drawn = torch.stack(
        [made.replace_hidden_tokens(batch["views"], batch["hidden"]) for _ in range(40)]
    )
    assert torch.equal(drawn[:, ~hidden], ids[~hidden].expand(40, -1))
    # It draws: where a token is hidden, several others come.
    assert sum(len(column.unique()) > 3 for column in drawn[:, hidden].T) > 0.9 * int(hidden.sum())
    special = torch.isin(ids, torch.tensor(made.student.backbone.tokenizer.all_special_ids))
    assert not (hidden & special).any()


def test_the_released_code_replaces_every_token_by_the_likeliest(masked_lm):
    made = learner(masked_lm, variant="released", mask_rate=0.5)
    assert made.train().guesser.training
    made.guesser.eval()
    batch = first_batch(made, 12)
    ids, mask = batch["views"]["input_ids"], batch["views"]["attention_mask"].bool()
    with torch.no_grad():
        given = {
            "input_ids": batch["hidden"]["input_ids"],
            "attention_mask": batch["views"]["attention_mask"],
        }
        likeliest = made.guesser(**given).logits.argmax(dim=-1)
    likeliest[:, 0] = ids[:, 0]
    edited = made.replace_hidden_tokens(batch["views"], batch["hidden"])
    assert torch.equal(edited, torch.where(mask, likeliest, ids))
    assert bool((edited != ids)[batch["hidden"]["labels"] == IGNORED_LABEL].any())


def test_the_generator_of_the_paper_has_no_dropout_and_none_learns(masked_lm, tmp_path):
    made = learner(masked_lm, dropout=0.1)
    assert not made.train().guesser.training
    before = {name: weights.clone() for name, weights in made.guesser.named_parameters()}
    loop.train_learner(made, run_facts(tmp_path, 24))
    assert all(
        torch.equal(before[name], weights) for name, weights in made.guesser.named_parameters()
    )


def test_the_loss_is_what_diffcse_computes(masked_lm, monkeypatch):
    # cl_forward of voidism/DiffCSE@f724b2c, diffcse/models.py, with batchnorm, temperature 0.5, lambda 0 and 1: its encoder's
    # and discriminator's outputs, its generator's guesses and all weights are these; it has both views of a sentence
    # one after the other, here all first views come first.
    made = (
        learner(masked_lm, variant="released", detection_weight=1.0, temperature=0.5)
        .double()
        .train()
    )
    state = made.projection.state_dict()
    rows = torch.tensor([0, 2, 4, 1, 3, 5])
    with torch.no_grad():
        state["0.weight"].copy_(tensor(32, 16, key=5))
        state["3.weight"].copy_(tensor(16, 32, key=6))
        made.detector.weight.copy_(tensor(2, 16, key=8))
        made.detector.bias.copy_(tensor(2, key=9))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])
    ids = torch.arange(5, 17).reshape(3, 4)
    ids[:, 0] = 2
    ids = (ids * mask).repeat_interleave(2, dim=0)
    edited = ids.clone()
    edited[0, 1], edited[3, 2], edited[4, 1] = 30, 31, 32
    seen: list[torch.Tensor] = []

    def states(tokens: Any, layers: Any, *, transform: Any, padding: bool) -> list[torch.Tensor]:
        seen.append(transform(torch.zeros(6, 4, 16, dtype=torch.float64), None))
        return [tensor(6, 4, 16, key=7)[rows]]

    monkeypatch.setattr(made.student, "embed", lambda tokens: tensor(6, 16, key=1)[rows])
    monkeypatch.setattr(made, "replace_hidden_tokens", lambda tokens, hidden: edited[rows])
    monkeypatch.setattr(made.discriminator, "hidden_states", states)
    tokens = {"input_ids": ids[rows], "attention_mask": mask.repeat_interleave(2, dim=0)[rows]}
    found = {name: value.item() for name, value in made(views=tokens, hidden={}).items()}
    assert found["contrastive"] == pytest.approx(1.5893385116391692, rel=1e-10)
    assert found["loss"] == pytest.approx(2.8234683072311157, rel=1e-7)
    # The projected embedding stands in the place of the first token's, and of no other.
    torch.testing.assert_close(seen[0][:, 0], made.projection(tensor(6, 16, key=1)[rows]))
    assert len(seen) == 1 and not seen[0][:, 1:].any()


def test_the_paper_s_detection_leaves_padding_out_and_is_literal(masked_lm):
    made = learner(masked_lm, detection_weight=0.1, mask_rate=0.5).train()
    batch = first_batch(made)
    tokens = batch["views"]
    (both,) = embedded(made, batch, made.student)
    edited = made.replace_hidden_tokens(tokens, batch["hidden"])
    made.replace_hidden_tokens = lambda *_: edited  # type: ignore[method-assign]
    found = values(made, batch)
    vectors = made.projection(both)
    contrastive = info_nce(*vectors.chunk(2), temperature=0.05).item()
    total, count = 0.0, 0
    with torch.no_grad():
        for row, vector in enumerate(vectors):
            n = int(tokens["attention_mask"][row].sum())

            def given(
                embeddings: torch.Tensor, mask: Any, *, vector: torch.Tensor = vector
            ) -> torch.Tensor:
                changed = embeddings.clone()
                changed[:, 0] = vector
                return changed

            one = {name: values[row : row + 1, :n] for name, values in tokens.items()} | {
                "input_ids": edited[row : row + 1, :n]
            }
            (states,) = made.discriminator.hidden_states(one, (-1,), transform=given)
            for at in range(n):
                verdict = F.log_softmax(made.detector(states[0, at]).double(), dim=0)
                total -= float(verdict[int(edited[row, at] != tokens["input_ids"][row, at])])
                count += 1
    assert found["detection"] == pytest.approx(total / count, rel=1e-4)
    assert found["contrastive"] == pytest.approx(contrastive, rel=1e-4)
    assert found["loss"] == pytest.approx(contrastive + 0.1 * total / count, rel=1e-4)


def test_detection_teaches_the_student_through_its_embedding_alone(masked_lm):
    made = learner(masked_lm).train()
    batch = first_batch(made)
    made(**batch)["detection"].backward()
    moved = [
        p.grad is not None and float(p.grad.abs().sum()) > 0
        for p in made.student.model.encoder.parameters()
    ]
    assert all(moved[:4]) and made.detector.weight.grad is not None
    assert all(p.grad is None for p in made.guesser.parameters())


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (
            "BertForMaskedLM",
            [*WORDS, "more"],
            "a generator must have the student's vocabulary",
        ),
        ("BertModel", WORDS, "no masked language model: the weights lack"),
    ],
)
def test_a_generator_of_other_words_or_none_at_all_is_one_line(
    masked_lm, tmp_path, kind, words, message
):
    generator = save_bert(tmp_path, kind, words, positions=40, layers=1)
    with pytest.raises(EncoderError, match=message):
        learner(masked_lm, generator=str(generator))


def test_a_generator_may_be_smaller_than_the_student(masked_lm, tmp_path):
    generator = save_bert(tmp_path, "BertForMaskedLM", WORDS, positions=40, layers=1)
    assert learner(masked_lm, generator=str(generator)).guesser.config.num_hidden_layers == 1
