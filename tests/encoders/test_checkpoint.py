"""Checkpoint folders, whole and broken, and ``.bin`` weights: converted once, in little memory, and only where they are tensors."""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from stsbench.core.errors import StsbenchError
from stsbench.encoders import cached_files
from stsbench.encoders.cached_files import is_sealed, sealed_folder
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.weights import convert_to_safetensors
from tests.encoders.made_checkpoints import change
from tests.encoders.tiny import LONGEST, SENTENCES

State = dict[str, torch.Tensor]
DENSE = "encoder.layer.1.output.dense.weight"


@pytest.fixture
def folder(tiny, tmp_path, monkeypatch) -> Path:
    """A BERT checkpoint to be damaged; what is converted goes beside it."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny["bert"], tmp_path / "bert"))


def tensors(folder: Path) -> State:
    read: State = load_file(folder / "model.safetensors")
    return read


def write(folder: Path, state: State, name: str = "model.safetensors") -> None:
    save_file(
        {key: tensor.clone() for key, tensor in state.items()}, folder / name, {"format": "pt"}
    )


def write_bin(folder: Path, state: Any, **options: Any) -> Path:
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save(state, folder / "pytorch_model.bin", **options)
    return folder / "pytorch_model.bin"


def encode(folder: Path, **options: Any) -> np.ndarray[Any, Any]:
    return TransformerEncoder(str(folder), device="cpu", **options).encode(SENTENCES[:4])


def refusal(folder: Path, **options: Any) -> str:
    """The one line that refuses a folder's checkpoint; nothing where it embeds a sentence."""
    try:
        encode(folder, **options)
    except StsbenchError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 1000
        return message
    return ""


def as_masked_lm(state: State) -> State:
    return {
        **{f"bert.{k}": v for k, v in state.items() if "pooler" not in k},
        "cls.predictions.bias": torch.zeros(4),
    }


def with_old_norms(state: State) -> State:
    old = {k.replace("LayerNorm.weight", "LayerNorm.gamma"): v for k, v in state.items()}
    return {k.replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in old.items()}


def tied_and_strided(state: State) -> State:
    words = state["embeddings.word_embeddings.weight"]
    strided = state[DENSE].T.contiguous().T
    return {
        **state,
        DENSE: strided,
        "cls.predictions.decoder.weight": words,
        "cls.seq_relationship.weight": words,
    }


@pytest.mark.parametrize(
    "other",
    [as_masked_lm, with_old_norms, lambda s: {k: v for k, v in s.items() if "pool" not in k}],
)
def test_other_names_and_heads_give_the_same_embeddings(folder, other):
    plain = encode(folder)
    write(folder, other(tensors(folder)))
    assert encode(folder).tobytes() == plain.tobytes()
    if other is not with_old_norms:
        said = "no pooler weights, so its head would be random; use pooling 'cls_before_pooler'"
        assert said in refusal(folder, pooling="cls")


def shard(folder: Path) -> dict[str, str]:
    state = tensors(folder)
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    where = dict[str, str]()
    for start, name in enumerate(names):
        half = dict(list(state.items())[start::2])
        write(folder, half, name)
        where |= dict.fromkeys(half, name)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": where})
    )
    return where


def test_shards_are_one_model(folder):
    plain, before = encode(folder), find_checkpoint(str(folder)).file_hashes()
    whole = (folder / "model.safetensors").read_bytes()
    shard(folder)
    assert encode(folder).tobytes() == plain.tobytes()
    digests = find_checkpoint(str(folder)).file_hashes()
    assert len(digests) == len(before) + 1
    assert len([name for name in digests if name.startswith("weights/model-0000")]) == 2
    # Both there: transformers takes the single file.
    (folder / "model.safetensors").write_bytes(whole)
    assert [path.name for path in find_checkpoint(str(folder)).weights] == ["model.safetensors"]


def without(folder: Path, key: str) -> None:
    write(folder, {name: tensor for name, tensor in tensors(folder).items() if name != key})


def lose_shard(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def lead_to(folder: Path, name: str) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {**shard(folder), "a": name}})
    )


def index(folder: Path, content: Any) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def ask(folder: Path, facts: dict[str, Any]) -> None:
    change(folder / "config.json", **facts)


BAD_INDICES: list[Any] = [
    [],
    {"weight_map": []},
    {"weight_map": {}},
    {"weight_map": {"a": 1}},
    {"weight_map": {"a": [1]}},
]
LOST: list[tuple[Callable[[Path, Any], object], Any, str]] = [
    (without, DENSE, f"the weights lack '{DENSE}' (1 tensors in all)"),
    (
        lambda folder, shape: write(folder, {**tensors(folder), DENSE: torch.zeros(shape)}),
        (3, 3),
        f"the weights have '{DENSE}' (3, 3), not (16, 32) (1 tensors in all)",
    ),
    (
        lambda folder, name: (folder / name).write_text("{}"),
        "adapter_config.json",
        "is an adapter to another",
    ),
    (ask, {"auto_map": {"AutoModel": "evil.Model"}, "model_type": "evil"}, "evil"),
    (
        lambda folder, _: lose_shard(folder),
        "",
        "'model-00002-of-00002.safetensors' of model.safetensors.index.json is",
    ),
    *(
        (lead_to, name, f"weights file '{name}'")
        for name in ("../model.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin")
    ),
    *((index, content, "model.safetensors.index.json") for content in BAD_INDICES),
    *(
        (ask, {key: value}, f"config.json: '{key}' is {value!r}, which is not run here; remove it")
        for key in ("_attn_implementation", "attn_implementation")
        for value in ("paged|eager", "kernels-community/flash-attn", 7.5)
    ),
]


@pytest.mark.parametrize(("damage", "how", "message"), LOST)
def test_what_is_lost_or_leads_elsewhere_is_one_line(folder, damage, how, message):
    damage(folder, how)
    assert message in refusal(folder)


def test_the_longest_input(tiny, folder):
    for path in tiny.values():
        # The model alone knows as well, RoBERTa's two positions for nothing left out.
        found = find_checkpoint(str(path))
        assert found.max_length() == found.positions() == LONGEST
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    assert find_checkpoint(str(folder)).max_length() == 20
    change(folder / "config.json", max_position_embeddings=None)
    (folder / "sentence_bert_config.json").unlink()
    change(folder / "tokenizer_config.json", model_max_length=10**30)
    assert find_checkpoint(str(folder)).max_length() is None


# --- .bin weights ---

STATE = {
    "scalar": torch.tensor(3.5),
    "none": torch.zeros(0, 4),
    "half": torch.arange(6, dtype=torch.float16).reshape(2, 3),
    "brain": torch.arange(5, dtype=torch.bfloat16),
    "flags": torch.tensor([True, False, True]),
    "whole": torch.arange(7, dtype=torch.int64),
    "turned": torch.arange(12.0).reshape(3, 4).T,
    "part": torch.arange(20.0)[5:9],
    "wide": torch.arange(3, dtype=torch.float64),
    "ünïcode": torch.ones(2),
}


@pytest.mark.parametrize("zipped", [True, False])
def test_every_tensor_is_kept_as_it_is(folder, zipped):
    kept = load_file(
        convert_to_safetensors(write_bin(folder, STATE, _use_new_zipfile_serialization=zipped))
    )
    assert set(kept) == set(STATE)
    for name, tensor in STATE.items():
        assert kept[name].dtype == tensor.dtype and torch.equal(kept[name], tensor), name


def test_bin_weights_are_converted_once_for_each_configuration(folder, tmp_path, monkeypatch):
    plain = encode(folder)
    write_bin(folder, tied_and_strided(tensors(folder)))
    (made,) = find_checkpoint(str(folder)).weights
    assert made.is_relative_to(
        tmp_path / "cache"
    ) and "cls.seq_relationship.weight" not in load_file(made)
    assert encode(folder).tobytes() == plain.tobytes()
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    change(other / "config.json", hidden_act="relu")
    assert not np.array_equal(encode(other), plain)
    monkeypatch.setattr(torch, "load", None)
    assert encode(folder).tobytes() == plain.tobytes()
    assert not list(tmp_path.rglob("*.partial"))


def test_a_damaged_conversion_is_made_again(folder):
    source = write_bin(folder, STATE)
    path = convert_to_safetensors(source)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert convert_to_safetensors(source).read_bytes() == whole
    (path.parent / "config.json").write_text("{}")
    assert (convert_to_safetensors(source).parent / "config.json").read_bytes() == (
        folder / "config.json"
    ).read_bytes()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    QUANTISED = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
ODD = {
    "int keys": ({1: torch.ones(2)}, "the tensor '1' is no plain array"),
    "sparse": ({"a": torch.eye(3).to_sparse()}, "the tensor 'a' is no plain array"),
    "quantised": ({"a": QUANTISED}, "the tensor 'a' is no plain array"),
    "meta": ({"a": torch.ones(2, device="meta")}, "the tensor 'a' is no plain array"),
    "complex": ({"a": torch.ones(2, dtype=torch.complex128)}, "cannot be kept as safetensors"),
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_plain_table_of_tensors_is_one_line(folder, what, tmp_path):
    content, message = ODD[what]
    write_bin(folder, content)
    assert message in refusal(folder)
    assert not list((tmp_path / "cache").rglob("*.safetensors*"))


# --- odd values ---

DEEP = '{"a":' * 20_000 + "1" + "}" * 20_000


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "content", [DEEP, "[]", "3", "null", '{"hidden_size": []}', '{"vocab_size": []}', "\udce4"]
)
def test_json_that_is_odd_is_one_line(folder, name, content):
    (folder / name).write_text(content, encoding="utf-8", errors="surrogateescape")
    message = refusal(folder)
    if name == "tokenizer_config.json" and "_size" in content:
        assert message == ""
    else:
        said = name if name != "tokenizer.json" else "the tokenizer cannot be loaded"
        assert message.startswith(str(folder)) and said in message


SIZES = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
]


@pytest.mark.parametrize("key", [*SIZES, "max_position_embeddings", "type_vocab_size"])
@pytest.mark.parametrize("value", ["x", None, -1, 0, 1.5, [], {}, 10**9, 10**30], ids=repr)
def test_a_size_that_is_odd_is_one_line(folder, key, value):
    change(folder / "config.json", **{key: value})
    message = refusal(folder)
    if (key, value) == ("num_hidden_layers", 0):
        assert message == ""
    else:
        # A size of 0 is one that some models have: the model's own code refuses it where it cannot be.
        assert message.startswith(str(folder)) and (key in message or value == 0)


SETTINGS: dict[str, tuple[list[Any], str]] = {
    "model_max_length": (
        [[], {}, "x", None, {"a": {"b": 1}}],
        "'model_max_length' is -1; give the longest input",
    ),
    "padding_side": ([], "the tokenizer cannot be loaded: "),
    "tokenizer_class": (["x", None], "the tokenizer cannot be loaded: "),
    "cls_token": (["x", None], "the tokenizer "),
    "added_tokens_decoder": ([{}], "the tokenizer cannot be loaded: "),
}
"""Of each the values that are ignored, and what refuses the others."""


@pytest.mark.parametrize("key", SETTINGS)
@pytest.mark.parametrize("value", [[], {}, -1, "x", None, {"a": {"b": 1}}], ids=repr)
def test_a_tokenizers_setting_that_is_odd_is_one_line_or_ignored(folder, key, value):
    change(folder / "tokenizer_config.json", **{key: value})
    ignored, said = SETTINGS[key]
    message = refusal(folder)
    assert message == "" if value in ignored else said in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_hidden_layers": 10**6},
            "'num_hidden_layers' is 1000000; what is read is 0 to 1,000",
        ),
        ({"num_labels": 10**9}, "'num_labels' is 1000000000; what is read is 0 to 1,000,000"),
        ({"hidden_size": 10**9}, "'hidden_size' is 1000000000; what is read is 0 to 100,000,000"),
        ({"text_config": {"n_layer": 10**7}}, "'n_layer' is 10000000; what is read is 0 to 1,000"),
        ({"hidden_size": 2 * 10**4}, "values or more, its weights hold"),
        ({"vocab_size": 10**7}, "the most that is read is 50,0"),
        ({"max_position_embeddings": 9 * 10**7}, "config.json asks for a model of 1,440,0"),
        ({"num_hidden_layers": 50, "intermediate_size": 10**6}, "or more, its weights hold"),
    ],
)
def test_a_model_that_its_weights_cannot_fill_is_refused_before_memory_is_asked_for(
    folder, changes, message
):
    change(folder / "config.json", **changes)
    assert message in refusal(folder, max_length=8)


def test_a_model_is_made_once_when_it_is_loaded(folder, monkeypatch):
    made: list[str] = []
    make = transformers.BertModel.__init__

    def note(model: Any, *args: Any, **options: Any) -> None:
        made.append(type(model).__name__)
        make(model, *args, **options)

    monkeypatch.setattr(transformers.BertModel, "__init__", note)
    assert refusal(folder) == ""
    assert made == ["BertModel"]


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed folder of an old file that counts as large."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cached_files, "MIN_CACHED_BYTES", 4)
    # What is younger than two seconds is not remembered: here nothing is young.
    monkeypatch.setattr(time, "time_ns", lambda: 2**62)
    made = tmp_path / "made"
    with sealed_folder(made) as scratch:
        (scratch / "vectors.npy").write_bytes(b"12345")
    assert is_sealed(made)
    return made


@pytest.mark.skipif(os.name != "posix", reason="no time there that programs cannot set")
def test_a_large_file_is_hashed_once(sealed, monkeypatch):
    monkeypatch.setattr(cached_files, "file_sha256", lambda path: pytest.fail("hashed again"))
    assert is_sealed(sealed) and is_sealed(sealed)


@pytest.mark.parametrize("how", ["an edit that keeps size and date", "a file in its place", "gone"])
def test_what_changed_in_a_sealed_folder_is_seen(sealed, how):
    path = sealed / "vectors.npy"
    before = path.stat()
    other = sealed / "other" if how == "a file in its place" else path
    other.write_bytes(b"54321")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    if how == "gone":
        path.unlink()
    assert not is_sealed(sealed)
