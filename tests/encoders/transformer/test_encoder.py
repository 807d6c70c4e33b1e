from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine import embed as engine
from stsbench.encoders.transformer.encoder import TransformerEncoder
from tests.encoders.tiny import LONGEST, SENTENCES, bytes_tokenizer, save
from tests.encoders.transformer.test_pooling import NAMES, literal_pool

Array = np.ndarray[Any, np.dtype[np.floating]]
KINDS: dict[str, dict[str, Any]] = {
    "bert": {"pooling": "mean"},
    "bert left": {"pooling": "cls_before_pooler", "padding_side": "left"},
    "bert head": {"pooling": "cls", "normalise": True},
    "roberta": {"pooling": "mean(1,-1)"},
    "roberta left": {"pooling": "last_token", "padding_side": "left"},
    "gpt2": {"pooling": "mean"},
    "gpt2 left": {"pooling": "last_token", "padding_side": "left"},
    "qwen left": {"pooling": "last_token", "padding_side": "left", "prompt": "query: "},
    "mpnet left": {"pooling": "mean", "padding_side": "left"},
}


def make(tiny: Mapping[str, Path], kind: str, **changes: Any) -> TransformerEncoder:
    return TransformerEncoder(str(tiny[kind.split()[0]]), **{"device": "cpu", **KINDS[kind], **changes})


@cache
def opened(folder: Path) -> tuple[Any, Any]:
    """The plain model and its tokenizer, as transformers opens them."""
    from transformers import AutoModel, AutoTokenizer

    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def states_of(folder: Path, sentence: str) -> tuple[list[Array], Any]:
    """Hidden states (t, h) of one sentence, and the model's output."""
    model, tokenizer = opened(folder)
    ids = tokenizer(sentence.replace("\ud83d", "\ufffd"), truncation=True, max_length=LONGEST, return_tensors="pt")[
        "input_ids"
    ].long()
    with torch.inference_mode():
        output = model(input_ids=ids, output_hidden_states=True)
    return [state[0].numpy() for state in output.hidden_states], output


def alone(folder: Path, sentence: str, pooling: str) -> Array:
    """The embedding of one sentence by itself, pooled by the literal loops."""
    states, output = states_of(folder, sentence)
    if pooling == "cls":
        head: Array = output.pooler_output[0].numpy()
        return head
    return literal_pool(pooling, states)


@pytest.mark.parametrize("kind", KINDS)
def test_one_float32_row_a_sentence_in_order(tiny, kind):
    encoder = make(tiny, kind)
    embeddings = encoder.encode(SENTENCES)
    assert isinstance(encoder, TokenEncoder)
    assert embeddings.shape == (len(SENTENCES), 16)
    assert embeddings.dtype == np.float32
    assert np.isfinite(embeddings).all()
    assert embeddings[0].tobytes() == embeddings[SENTENCES.index(SENTENCES[0], 1)].tobytes()
    np.testing.assert_allclose(encoder.encode(SENTENCES[::-1])[::-1], embeddings, atol=1e-6)
    assert encoder.encode([]).shape == (0, 16)
    assert encoder.encode(tuple(SENTENCES)).tobytes() == embeddings.tobytes()
    assert make(tiny, kind).encode(SENTENCES).tobytes() == embeddings.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_does_not_matter(tiny, kind, monkeypatch):
    encoder = make(tiny, kind)
    together = encoder.encode(SENTENCES)
    for budget in (1, 100, 100_000):
        monkeypatch.setattr(engine, "TOKEN_BUDGET", budget)
        np.testing.assert_allclose(encoder.encode(SENTENCES), together, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_transformers_one_sentence_at_a_time(tiny, kind, monkeypatch):
    monkeypatch.setattr(engine, "TOKEN_BUDGET", 300)
    encoder, folder = make(tiny, kind), tiny[kind.split()[0]]
    full = [s for s in SENTENCES if s or not kind.startswith("gpt2")]
    expected = np.stack([alone(folder, encoder.prompt.text + s, str(encoder.pooling)) for s in full])
    if encoder.normalise:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(full), expected, rtol=5e-5, atol=5e-6)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("pooling", [n for n in NAMES if n != "mean(0,1,2,3,4)" and n != "wk(2)"] + ["cls", "wk(1)"])
def test_every_pooling_equals_its_loop(tiny, pooling, left):
    encoder = TransformerEncoder(str(tiny["bert"]), pooling=pooling, padding_side="left" if left else "right")
    few = SENTENCES[:8]
    expected = [alone(tiny["bert"], sentence, pooling) for sentence in few]
    # WK divides by cosines that may be near 0, which makes rounding large.
    np.testing.assert_allclose(encoder.encode(few), expected, rtol=5e-4 if "wk" in pooling else 0, atol=2e-5)


def test_no_tokens_at_all_is_a_zero_vector(tiny):
    encoder = make(tiny, "gpt2", normalise=True)
    embeddings = encoder.encode(["", "dog", ""])
    assert not embeddings[[0, 2]].any()
    assert np.linalg.norm(embeddings[1]) == pytest.approx(1)
    assert encoder.encode([""]).tolist() == [[0.0] * 16]


def test_long_text_is_cut(tiny):
    encoder = make(tiny, "bert", max_length=10)
    assert encoder.tokenize(["a dog " * 99]).lengths.tolist() == [10]
    long, cut = encoder.encode(["a dog " * 99, "a dog " * 4])
    np.testing.assert_allclose(long, cut, atol=1e-6)
    assert make(tiny, "bert").tokenize(["a dog " * 99]).lengths.tolist() == [LONGEST]


def test_prompts_and_templates(tiny):
    plain, prompted = make(tiny, "bert"), make(tiny, "bert", prompt="query {}: ")
    assert prompted.encode(["dog"]).tobytes() == plain.encode(["query {}: dog"]).tobytes()
    around = make(tiny, "bert", prompt_template='the "{}" means')
    assert around.encode(["{} dog"]).tobytes() == plain.encode(['the "{} dog" means']).tobytes()


@pytest.mark.parametrize("left", [False, True])
def test_the_mask_token_of_a_template(tiny, left):
    template = 'the "{}" means [MASK].'
    side = "left" if left else "right"
    encoder = TransformerEncoder(str(tiny["bert"]), pooling="mask", prompt_template=template, padding_side=side)
    few = ["dog", "a dog", "", "a [MASK] dog", "a dog " * 3]
    expected = []
    for sentence in few:
        states, _ = states_of(tiny["bert"], template.format(sentence))
        expected.append(states[-1][-3])  # before the full stop and [SEP]
    np.testing.assert_allclose(encoder.encode(few), expected, rtol=0, atol=5e-6)
    with pytest.raises(EncoderError, match="no mask token left within 48 tokens; raise max_length"):
        encoder.encode(["dog " * 99])


@pytest.mark.parametrize(
    ("sentence", "ended"),
    [
        ("a dog", "a dog."), ("a dog.", "a dog."), ("a dog?", "a dog?"), ('a "dog"', 'a "dog"'), ("a 'dog'", "a 'dog'"),
        ("a dog!", "a dog!."), ("a dog ", "a dog ."), ("a dog . ", "a dog . ."), ("a dog\u2019", "a dog\u2019."), ("", ""),
    ],
)  # fmt: skip
def test_a_full_stop_where_promptberts_evaluation_adds_one(tiny, sentence, ended):
    template = 'the "{}" means [MASK].'
    encoder = make(tiny, "bert", pooling="mask", prompt_template=template, add_full_stop=True)
    _, tokenizer = opened(tiny["bert"])
    assert encoder.tokenize([sentence]).ids.tolist() == tokenizer(template.format(ended))["input_ids"]
    states, _ = states_of(tiny["bert"], template.format(ended))
    np.testing.assert_allclose(encoder.encode([sentence])[0], states[-1][-3], rtol=0, atol=5e-6)
    prompted = make(tiny, "bert", prompt="the ", add_full_stop=True)
    assert prompted.encode([sentence]).tobytes() == make(tiny, "bert").encode([f"the {ended}"]).tobytes()


def test_the_cards_that_promptberts_evaluation_made_add_the_full_stop():
    from stsbench.core.catalogue import Catalogue

    catalogue = Catalogue()
    cards = {name: catalogue.encoder(name) for name in catalogue.paths("baselines")}
    theirs = [name for name, card in cards.items() if any(row.startswith("promptbert/") for row in card.published)]
    assert set(theirs) >= {"promptbert-bert-base", "promptbert-roberta-base", "bert-base-prompt"}
    assert [name for name in theirs if cards[name].params.get("add_full_stop") is not True] == []


def test_the_fingerprint_changes_with_every_choice(tiny):
    changes: list[dict[str, Any]] = [
        {}, {"pooling": "cls"}, {"pooling": "mean(0,-1)"}, {"pooling": "cls_before_pooler"}, {"normalise": True},
        {"prompt": "query: "}, {"prompt": "query:"}, {"prompt_template": "query: {}"}, {"prompt_template": "{} query"},
        {"padding_side": "left"}, {"max_length": 12}, {"dtype": "bfloat16"}, {"dtype": "float16"},
        {"add_full_stop": True},
    ]  # fmt: skip
    prints = [make(tiny, "bert", **change).fingerprint for change in changes]
    assert len(set(prints)) == len(changes)


def test_the_fingerprint_ignores_what_cannot_change_an_embedding(tiny):
    plain = make(tiny, "bert").fingerprint
    same: list[dict[str, Any]] = [
        {"name": "other"}, {"device": "auto"}, {"max_length": LONGEST}, {"pooling": "mean(-1)"}, {"revision": "main"},
    ]  # fmt: skip
    assert {make(tiny, "bert", **change).fingerprint for change in same} == {plain}
    first_last = {make(tiny, "bert", pooling=name).fingerprint for name in ("first_last", "mean(1,-1)", "mean(1, -1)")}
    assert len(first_last) == 1


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_the_fingerprint_changes_with_every_file(tiny, tmp_path, file):
    folder = copy(tiny["bert"], tmp_path / "copy")
    before = TransformerEncoder(str(folder)).fingerprint
    assert before == make(tiny, "bert").fingerprint, "where the files lie does not matter"
    (folder / "README.md").write_text("of no account")
    assert TransformerEncoder(str(folder)).fingerprint == before
    content = bytearray((folder / file).read_bytes())
    content[-1 if file == "model.safetensors" else content.index(b" ")] ^= 0x2A  # a blank becomes a line end
    (folder / file).write_bytes(content)
    assert TransformerEncoder(str(folder)).fingerprint != before


def copy(folder: Path, to: Path) -> Path:
    import shutil

    return Path(shutil.copytree(folder, to))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"pooling": "meen"}, "unknown pooling 'meen'; did you mean 'mean'"),
        ({"dtype": "float23"}, "unknown dtype 'float23'; did you mean 'float32'"),
        ({"padding_side": "up"}, "padding_side 'up' is neither 'left' nor 'right'"),
        ({"prompt": "a", "prompt_template": "{}"}, "give 'prompt' or 'prompt_template', not both"),
        ({"prompt_template": "no place"}, "needs one {} where the sentence goes"),
        ({"prompt_template": "{} {} {}"}, "needs one {} where the sentence goes"),
        ({"pooling": "mask"}, "pooling 'mask' needs a prompt_template"),
        ({"pooling": "mask", "prompt": "[MASK]"}, "pooling 'mask' needs a prompt_template"),
        ({"max_length": 0}, "max_length 0: give 1 to 48"),
        ({"max_length": -3}, "max_length -3: give 1 to 48"),
        ({"max_length": 49}, "max_length 49: give 1 to 48"),
    ],
)
def test_wrong_choices_are_refused_at_once(tiny, choice, message):
    with pytest.raises(CardError) as caught:
        make(tiny, "bert", **choice)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "choice", "message"),
    [
        ("bert", {"pooling": "mean(1,4)"}, "asks for layer 4; the model has 3"),
        ("bert", {"pooling": "cls(-5)"}, "asks for layer -5; the model has 3"),
        ("bert", {"pooling": "wk(2)"}, "it needs 3 at least"),
        ("bert", {"max_length": 2}, "max_length 2 leaves nothing of a sentence"),
        ("gpt2", {"pooling": "cls"}, "has no pooler; use pooling 'cls_before_pooler'"),
        ("gpt2", {"pooling": "mask", "prompt_template": "{} [MASK]"}, "has no mask token"),
        ("bert", {"pooling": "mask", "prompt_template": "{} no mask"}, "no mask token left"),
    ],
)
def test_wrong_choices_are_refused_at_the_first_sentence(tiny, kind, choice, message):
    encoder = make(tiny, kind, **choice)
    with pytest.raises((CardError, EncoderError)) as caught:
        encoder.encode(["dog"])
    assert message in str(caught.value)


@pytest.mark.parametrize("pooling", ["mean", "mean(1,-1)", "cls", "max"])
def test_bfloat16_is_close_to_float32(tiny, pooling):
    wide, narrow = (make(tiny, "bert", pooling=pooling, dtype=dtype) for dtype in ("float32", "bfloat16"))
    a, b = wide.encode(SENTENCES), narrow.encode(SENTENCES)
    assert b.dtype == np.float32
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosines.min() > 0.995
    assert not np.array_equal(a, b)


def test_tokenizing_in_parts_changes_nothing(tiny, monkeypatch):
    from stsbench.encoders.transformer import backbone

    encoder = make(tiny, "roberta")
    whole = encoder.tokenize(SENTENCES)
    monkeypatch.setattr(backbone, "TOKENIZE_AT_ONCE", 3)
    parts = encoder.tokenize(SENTENCES)
    assert parts.ids.tolist() == whole.ids.tolist()
    assert parts.offsets.tolist() == whole.offsets.tolist()


def make_encoder_decoder(folder: Path, kind: Any, config: Any, **sizes: int) -> Path:
    tokenizer, vocab = bytes_tokenizer(["<pad>", "</s>", "<unk>"])
    made = config(vocab_size=len(vocab), d_model=16, pad_token_id=0, decoder_start_token_id=0, **sizes)
    return save(folder, kind, made, tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("saved_as", [transformers.T5Model, transformers.T5EncoderModel])
def test_of_a_t5_the_encoder_alone_embeds(tmp_path, saved_as):
    sizes = {"d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    folder = make_encoder_decoder(tmp_path, saved_as, transformers.T5Config, **sizes)
    encoder = TransformerEncoder(str(folder))
    model = transformers.T5EncoderModel.from_pretrained(str(folder)).eval()
    for sentence, row in zip(SENTENCES[:4:2], encoder.encode(SENTENCES[:4:2]), strict=True):
        ids = torch.tensor([encoder.backbone.tokenizer(sentence)["input_ids"]])
        np.testing.assert_allclose(row, model(ids).last_hidden_state[0].mean(dim=0).detach(), rtol=0, atol=2e-5)


def test_a_model_that_wants_more_than_a_sentence_is_one_line(tmp_path):
    sizes = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "encoder_layers", "decoder_layers"), 2)
    folder = make_encoder_decoder(tmp_path, transformers.PegasusModel, transformers.PegasusConfig, **sizes)
    encoder = TransformerEncoder(str(folder))
    with pytest.raises(EncoderError, match="PegasusModel does not run on the tokens of a sentence alone: ") as caught:
        encoder.encode(["dog"])
    assert "\n" not in str(caught.value)
