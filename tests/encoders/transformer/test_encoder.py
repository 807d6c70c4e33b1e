"""All layers and poolings in one forward pass are what each is alone, to the last bit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.engine import embed as engine
from stsbench.encoders.engine.embed import Engine, embed_all
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.transformer.encoder import (
    TransformerEncoder,
    embed_in_one_pass,
    with_pooling,
)
from stsbench.encoders.transformer.pooling import Pooling
from tests.encoders.tiny import ENCODERS, LONGEST, SENTENCES, bytes_tokenizer, make_encoder, save
from tests.encoders.transformer.literal import POOLINGS, literal_pool

Array = np.ndarray[Any, np.dtype[np.floating]]


@cache
def opened(folder: Path) -> tuple[Any, Any]:
    """The plain model and its tokenizer, as transformers opens them."""
    from transformers import AutoModel, AutoTokenizer

    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def states_of(folder: Path, sentence: str) -> tuple[list[Array], Any]:
    """Hidden states (t, h) of one sentence, and the model's output."""
    model, tokenizer = opened(folder)
    ids = tokenizer(
        sentence.replace("\ud83d", "\ufffd"),
        truncation=True,
        max_length=LONGEST,
        return_tensors="pt",
    )["input_ids"].long()
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


@pytest.mark.parametrize("kind", ENCODERS)
def test_equals_transformers_one_sentence_at_a_time(tiny, kind, monkeypatch):
    monkeypatch.setattr(engine, "TOKEN_BUDGET", 300)
    encoder, folder = make_encoder(tiny, kind), tiny[kind.split()[0]]
    full = [s for s in SENTENCES if s or not kind.startswith("gpt2")]
    expected = np.stack(
        [alone(folder, encoder.prompt.prefix + s, str(encoder.pooling)) for s in full]
    )
    if encoder.normalise:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(full), expected, rtol=5e-5, atol=5e-6)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(
    "pooling", [n for n in POOLINGS if n != "mean(0,1,2,3,4)" and n != "wk(2)"] + ["cls", "wk(1)"]
)
def test_every_pooling_equals_its_loop(tiny, pooling, left):
    encoder = TransformerEncoder(
        str(tiny["bert"]), pooling=pooling, padding_side="left" if left else "right"
    )
    few = SENTENCES[:8]
    expected = [alone(tiny["bert"], sentence, pooling) for sentence in few]
    # WK divides by cosines that may be near 0, which makes rounding large.
    np.testing.assert_allclose(
        encoder.encode(few), expected, rtol=5e-4 if "wk" in pooling else 0, atol=2e-5
    )


def test_no_tokens_at_all_is_a_zero_vector(tiny):
    encoder = make_encoder(tiny, "gpt2", normalise=True)
    embeddings = encoder.encode(["", "dog", ""])
    assert not embeddings[[0, 2]].any()
    assert np.linalg.norm(embeddings[1]) == pytest.approx(1)
    assert encoder.encode([""]).tolist() == [[0.0] * 16]


def test_long_text_is_cut(tiny):
    encoder = make_encoder(tiny, "bert", max_length=10)
    assert encoder.tokenize(["a dog " * 99]).lengths.tolist() == [10]
    long, cut = encoder.encode(["a dog " * 99, "a dog " * 4])
    np.testing.assert_allclose(long, cut, atol=1e-6)
    assert make_encoder(tiny, "bert").tokenize(["a dog " * 99]).lengths.tolist() == [LONGEST]


def test_prompts_and_templates(tiny):
    plain, prompted = make_encoder(tiny, "bert"), make_encoder(tiny, "bert", prompt="query {}: ")
    assert prompted.encode(["dog"]).tobytes() == plain.encode(["query {}: dog"]).tobytes()
    around = make_encoder(tiny, "bert", prompt_template='the "{}" means')
    assert around.encode(["{} dog"]).tobytes() == plain.encode(['the "{} dog" means']).tobytes()


@pytest.mark.parametrize("left", [False, True])
def test_the_mask_token_of_a_template(tiny, left):
    template = 'the "{}" means [MASK].'
    options: dict[str, Any] = {"pooling": "mask", "padding_side": "left" if left else "right"}
    encoder = TransformerEncoder(str(tiny["bert"]), prompt_template=template, **options)
    few = ["dog", "a dog", "", "a [MASK] dog", "a dog " * 3]
    expected = []
    for sentence in few:
        states, _ = states_of(tiny["bert"], template.format(sentence))
        expected.append(states[-1][-3])  # before the full stop and [SEP]
    np.testing.assert_allclose(encoder.encode(few), expected, rtol=0, atol=5e-6)
    with pytest.raises(EncoderError, match="no mask token left within 48 tokens; raise max_length"):
        encoder.encode(["dog " * 99])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"pooling": "meen"}, "unknown pooling 'meen'; did you mean 'mean'"),
        ({"dtype": "float23"}, "unknown dtype 'float23'; did you mean 'float32'"),
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
        make_encoder(tiny, "bert", **choice)
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
    encoder = make_encoder(tiny, kind, **choice)
    with pytest.raises((CardError, EncoderError)) as caught:
        encoder.encode(["dog"])
    assert message in str(caught.value)


def make_encoder_decoder(folder: Path, kind: Any, config: Any, **sizes: int) -> Path:
    tokenizer, vocab = bytes_tokenizer(["<pad>", "</s>", "<unk>"])
    made = config(
        vocab_size=len(vocab), d_model=16, pad_token_id=0, decoder_start_token_id=0, **sizes
    )
    return save(
        folder, kind, made, tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.mark.parametrize("saved_as", [transformers.T5Model, transformers.T5EncoderModel])
def test_of_a_t5_the_encoder_alone_embeds(tmp_path, saved_as):
    sizes = {"d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    folder = make_encoder_decoder(tmp_path, saved_as, transformers.T5Config, **sizes)
    encoder = TransformerEncoder(str(folder))
    model = transformers.T5EncoderModel.from_pretrained(str(folder)).eval()
    for sentence, row in zip(SENTENCES[:4:2], encoder.encode(SENTENCES[:4:2]), strict=True):
        ids = torch.tensor([encoder.backbone.tokenizer(sentence)["input_ids"]])
        np.testing.assert_allclose(
            row, model(ids).last_hidden_state[0].mean(dim=0).detach(), rtol=0, atol=2e-5
        )


def test_a_model_that_wants_more_than_a_sentence_is_one_line(tmp_path):
    sizes = dict.fromkeys(
        ("encoder_attention_heads", "decoder_attention_heads", "encoder_layers", "decoder_layers"),
        2,
    )
    folder = make_encoder_decoder(
        tmp_path, transformers.PegasusModel, transformers.PegasusConfig, **sizes
    )
    encoder = TransformerEncoder(str(folder))
    with pytest.raises(EncoderError, match="PegasusModel does not run on ") as caught:
        encoder.encode(["dog"])
    assert "\n" not in str(caught.value)


TEXTS = ["a b c", "a b c d e f g", "", "b a", "c c c c c c c c c"]
LAYERED = [
    "cls(0)",
    "cls(1)",
    "cls(-1)",
    "mean(0)",
    "mean(1)",
    "mean(-1)",
    "max(0)",
    "max(1)",
    "max(-1)",
]


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_each_pooling_is_embedded_as_alone(bert, padding_side):
    base = TransformerEncoder(str(bert), name="b", padding_side=padding_side)
    poolings = [Pooling.parse(name) for name in LAYERED]
    engines = [Engine(with_pooling(base, pooling), EmbeddingStore(None)) for pooling in poolings]
    embed_in_one_pass(base, engines, TEXTS)
    for name, held in zip(LAYERED, engines, strict=True):
        alone = TransformerEncoder(str(bert), name="b", pooling=name, padding_side=padding_side)
        assert np.array_equal(np.asarray(held(TEXTS)), embed_all(alone, TEXTS))
        assert held.encoder.fingerprint == alone.fingerprint
        assert held.encoded_keys == []


def test_what_a_shelf_holds_is_left_as_it_is(bert, tmp_path):
    base = TransformerEncoder(str(bert), name="b", normalise=True)
    pooling = Pooling.parse("mean(1)")
    first = Engine(with_pooling(base, pooling), EmbeddingStore(tmp_path / "one"))
    first.prepare(TEXTS[:2])
    before = sorted(tmp_path.glob("one/*.npy"))
    other = Engine(with_pooling(base, Pooling.parse("max(1)")), EmbeddingStore(tmp_path / "two"))
    embed_in_one_pass(base, [first, other], TEXTS)
    assert set(before) < set(tmp_path.glob("one/*.npy"))
    assert first.missing_texts(TEXTS) == other.missing_texts(TEXTS) == []
    assert np.linalg.norm(np.asarray(other(TEXTS[:1]))) == pytest.approx(1)
