"""Decoders: last token, PromptEOL's template, echo embeddings, attention both ways, adapters, prompts by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from stsbench.core.errors import CardError, EncoderError, SourceError, UnknownName
from stsbench.encoders import weights
from stsbench.encoders.load import load_encoder, load_named
from stsbench.encoders.transformer.encoder import TransformerEncoder
from tests import hub_server
from tests.hub_files import sha256
from tests.hub_server import Hub

hub = hub_server.hub

EOL = 'This sentence : "{}" means in one word:"'
ECHO = "Rewrite the sentence: {}, rewritten sentence: {}"
STORIES = Path(os.environ.get("STSBENCH_MODELS", "")) / "tinyllamas-stories260K"
TEXTS = ["a dog runs", "the little girl was very happy to see it", "", "dog " * 90, "no"]


@pytest.fixture(params=["qwen", "gpt2", "stories"])
def decoder(request: pytest.FixtureRequest, tiny) -> Path:
    if request.param != "stories":
        return Path(tiny[request.param])
    if not STORIES.is_dir():
        pytest.skip("STSBENCH_MODELS names no folder that holds tinyllamas-stories260K")
    return STORIES


def encoder(folder: Path, **params: Any) -> TransformerEncoder:
    return TransformerEncoder(str(folder), device="cpu", **params)


def states(folder: Path, text: str) -> tuple[Any, Any]:
    """The last hidden states (t, h) of one text alone, by transformers itself, and the offsets of its tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    with torch.inference_mode():
        found = model(input_ids=encoded["input_ids"]).last_hidden_state[0].numpy()
    return found, encoded["offset_mapping"][0].tolist()


@pytest.mark.parametrize("side", ["left", "right"])
def test_prompteol_pools_the_last_token_of_its_template(decoder, side):
    template = EOL if decoder == STORIES else '"{}":"'
    made = encoder(decoder, pooling="last_token", prompt_template=template, padding_side=side)
    found = made.encode(TEXTS)
    for row in (0, 1, 2, 4) if decoder == STORIES else (0, 4):
        np.testing.assert_allclose(
            found[row], states(decoder, template.format(TEXTS[row]))[0][-1], atol=2e-5
        )


def test_a_long_sentence_is_cut_and_its_template_is_not(decoder):
    made = encoder(decoder, pooling="last_token", prompt_template='"{}":"', max_length=20)
    tokens = made.tokenize(TEXTS)
    assert max(tokens.lengths) <= 20
    text = made.backbone.tokenizer.decode(
        tokens.ids[tokens.offsets[3] : tokens.offsets[4]], skip_special_tokens=True
    )
    assert text.strip().startswith('"dog d') and text.strip().endswith('":"')
    with pytest.raises(CardError, match="leaves nothing of a sentence beside prompt_template"):
        encoder(
            decoder,
            pooling="last_token",
            prompt_template='"{}":"' * 1 + "means " * 9,
            max_length=20,
        ).tokenize(["a"])


def test_echo_pools_the_second_copy(decoder):
    template = ECHO if decoder == STORIES else "a {}, b {}."
    made = encoder(decoder, pooling="echo", prompt_template=template, padding_side="left")
    found = made.encode(TEXTS)
    for row in (0, 1, 4) if decoder == STORIES else (0, 4):
        text = template.replace("{}", TEXTS[row])
        hidden, offsets = states(decoder, text)
        start = text.rindex(TEXTS[row])
        of_copy = [
            at for at, (a, b) in enumerate(offsets) if a < start + len(TEXTS[row]) and b > start
        ]
        np.testing.assert_allclose(found[row], hidden[of_copy].mean(axis=0), atol=2e-5)
    assert not found[2].any()
    right = encoder(decoder, pooling="echo", prompt_template=template)
    np.testing.assert_allclose(right.encode(TEXTS), found, atol=2e-5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"pooling": "echo", "prompt_template": '"{}"'},
            "pooling 'echo' needs a prompt_template with two {} where the sentence goes",
        ),
        (
            {"prompt_template": "{} {} {}"},
            "prompt_template needs one {} where the sentence goes, or two for echo embeddings",
        ),
    ],
)
def test_a_template_without_a_place_for_the_sentence_is_refused(tiny, params, message):
    with pytest.raises(CardError) as caught:
        encoder(Path(tiny["qwen"]), **params)
    assert str(caught.value) == message


def test_attention_both_ways(decoder):
    causal, both = (
        encoder(decoder, pooling="mean"),
        encoder(decoder, pooling="mean", bidirectional=True),
    )
    assert causal.fingerprint != both.fingerprint
    together, alone = both.encode(TEXTS), np.concatenate([both.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=2e-5)
    assert np.abs(together[0] - causal.encode(TEXTS[:1])[0]).max() > 1e-3
    # The first token sees the last one.
    first = encoder(decoder, pooling="cls_before_pooler", bidirectional=True).encode(
        ["a dog runs", "a dog ran"]
    )
    assert np.abs(first[0] - first[1]).max() > 1e-5


def test_an_encoder_already_attends_both_ways(tiny):
    made = encoder(tiny["bert"], bidirectional=True)
    np.testing.assert_allclose(
        made.encode(TEXTS[:2]), encoder(tiny["bert"]).encode(TEXTS[:2]), atol=1e-6
    )


def write_adapter(folder: Path, model: Any) -> Path:
    import peft

    config = peft.LoraConfig(
        r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    peft.get_peft_model(model, config).save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("head", [False, True])
def test_adapters_are_merged(tiny, tmp_path, head):
    pytest.importorskip("peft", reason="peft is not installed (extra 'peft')")
    base = Path(tiny["qwen"])
    torch.manual_seed(0)
    kind = transformers.AutoModelForCausalLM if head else transformers.AutoModel
    adapter = write_adapter(tmp_path / "adapter", kind.from_pretrained(base))
    made = encoder(base, pooling="last_token", adapters=[str(adapter)])
    import peft

    theirs = peft.PeftModel.from_pretrained(kind.from_pretrained(base), adapter).eval()
    ids = torch.tensor([made.backbone.tokenizer("a dog runs")["input_ids"]])
    with torch.inference_mode():
        expected = theirs(input_ids=ids, output_hidden_states=True).hidden_states[-1][0, -1].numpy()
    found = made.encode(["a dog runs"])[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    bare = encoder(base, pooling="last_token")
    assert np.abs(found - bare.encode(["a dog runs"])[0]).max() > 1e-3
    assert made.fingerprint != bare.fingerprint
    with pytest.raises(EncoderError, match="the adapter"):
        encoder(Path(tiny["bert"]), adapters=[str(adapter)]).encode(["a"])


def test_adapters_come_from_the_hub(tiny, hub: Hub, monkeypatch):
    monkeypatch.setattr(weights, "find_spec", lambda name: True)
    files = {
        "adapter_config.json": b'{"peft_type": "LORA"}',
        "adapter_model.safetensors": b"weights",
    }
    commit = hub.add("model", "owner/adapter", files).commit
    (found,) = encoder(Path(tiny["qwen"]), adapters=[f"owner/adapter@{commit}"]).adapters
    assert found.file_hashes() == {name: sha256(content) for name, content in files.items()}
    hub.add("model", "owner/none", {"config.json": b"{}"})
    with pytest.raises(SourceError, match="no such file"):
        encoder(Path(tiny["qwen"]), adapters=["owner/none"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "no adapter_config.json"),
        ('{"peft_type": "IA3"}', "adapter_config.json: peft_type is 'IA3'; only LORA is merged"),
        (
            '{"peft_type": "LORA"}',
            r"needs peft, which is not installed: pip install 'stsbench\[peft\]'",
        ),
    ],
)
def test_what_is_no_adapter_is_refused(tiny, tmp_path, monkeypatch, config, message):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    if config is not None:
        (tmp_path / "adapter_config.json").write_text(config)
        (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(EncoderError, match=message):
        encoder(Path(tiny["qwen"]), adapters=[str(tmp_path)])


def test_prompts_are_chosen_by_their_names(saved, tmp_path, bert):
    import shutil

    folder = tmp_path / "prompted"
    shutil.copytree(bert, folder)
    prompts = {"query": "the dog : ", "document": "the cat : ", "STS": "a mat : "}
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    plain = load_encoder(folder, params={"device": "cpu"}).encode(["a dog"])
    for name, text in prompts.items():
        found = load_encoder(folder, params={"prompt_name": name, "device": "cpu"})
        same = load_encoder(folder, params={"prompt": text, "device": "cpu"})
        assert found.fingerprint == same.fingerprint
        assert np.abs(found.encode(["a dog"]) - plain).max() > 1e-3
    assert (
        load_named(str(folder))
        .assumptions[0]
        .endswith("they have one for STS: the parameter prompt_name=STS")
    )
    assert not any(
        "STS" in note for note in load_named(str(folder), params={"prompt_name": "STS"}).assumptions
    )
    with pytest.raises(UnknownName) as caught:
        load_encoder(folder, params={"prompt_name": "qery"})
    assert (caught.value.name, caught.value.choices) == ("qery", tuple(prompts))
    with pytest.raises(CardError, match="give 'prompt' or 'prompt_name', not both"):
        load_encoder(folder, params={"prompt_name": "query", "prompt": "x"})
