"""``.bin`` weights: converted once, in little memory, and only where they are tensors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stsbench.core.errors import EncoderError, StsbenchError
from stsbench.encoders import converted
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.converted import as_safetensors, is_sealed, seal
from stsbench.encoders.transformer.encoder import TransformerEncoder
from tests.encoders.made_checkpoints import change


@pytest.fixture
def folder(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(bert, tmp_path / "bert"))


def write_bin(folder: Path, state: Any, **options: Any) -> Path:
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save(state, folder / "pytorch_model.bin", **options)
    return folder / "pytorch_model.bin"


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
    path = as_safetensors(write_bin(folder, STATE, _use_new_zipfile_serialization=zipped))
    kept = load_file(path)
    assert set(kept) == set(STATE)
    for name, tensor in STATE.items():
        assert kept[name].dtype == tensor.dtype and torch.equal(kept[name], tensor), name


def test_tensors_that_share_memory_and_unused_heads(folder):
    shared = torch.arange(8.0)
    state = {"a": shared, "b": shared, "cls.seq_relationship.weight": torch.ones(2, 2), "cls.predictions.bias": shared}
    kept = load_file(as_safetensors(write_bin(folder, state)))
    assert set(kept) == {"a", "b", "cls.predictions.bias"}
    assert torch.equal(kept["a"], kept["b"])


def test_a_damaged_conversion_is_made_again(folder):
    source = write_bin(folder, STATE)
    path = as_safetensors(source)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert as_safetensors(source).read_bytes() == whole
    (path.parent / "config.json").write_text("{}")
    assert (as_safetensors(source).parent / "config.json").read_bytes() == (folder / "config.json").read_bytes()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    QUANTISED = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
ODD = {
    "nested": ({"state_dict": {"a": torch.ones(2)}}, "is not a flat table of tensors"),
    "a list": ([torch.ones(2)], "is not a flat table of tensors"),
    "number": ({"a": 3}, "is not a flat table of tensors"),
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
    with pytest.raises(EncoderError) as caught:
        find_checkpoint(str(folder))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.safetensors*"))


MEASURE = """
import json, resource, sys
from pathlib import Path
import torch, numpy, safetensors.torch, zipfile
torch.save({"a": torch.ones(4)}, sys.argv[1] + "/small.bin")
torch.load(sys.argv[1] + "/small.bin", weights_only=True, mmap=True)
from stsbench.encoders.converted import as_safetensors, is_sealed, seal
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
as_safetensors(Path(sys.argv[1]) / "pytorch_model.bin")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("megabytes", [24, pytest.param(160, marks=pytest.mark.slow)])
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_a_conversion_takes_less_than_16_tenths_of_the_file(folder, megabytes):
    words = torch.zeros(megabytes * 2**20 // 8 // 64, 64)
    layers = {f"layer.{i}.weight": torch.zeros(megabytes * 2**20 // 16 // 4) for i in range(8)}
    path = write_bin(folder, {"words": words, "decoder": words, **layers})
    assert path.stat().st_size > 0.9 * megabytes * 2**20
    done = subprocess.run([sys.executable, "-c", MEASURE, str(folder)], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 1.6 * path.stat().st_size + 4 * 2**20


# --- broken folders ---

DEEP = '{"a":' * 20_000 + "1" + "}" * 20_000


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("content", [DEEP, "[]", "3", "null", '{"hidden_size": "x"}', '{"vocab_size": []}', "\udce4"])
def test_json_that_is_odd_is_one_line(folder, name, content):
    (folder / name).write_text(content, encoding="utf-8", errors="surrogateescape")
    message = refusal(folder)
    if name == "tokenizer_config.json" and "_size" in content:
        assert message == ""
    else:
        told = name if name != "tokenizer.json" else "the tokenizer cannot be loaded"
        assert message.startswith(str(folder)) and told in message


SIZES = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]


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
    "model_max_length": ([[], {}, "x", None, {"a": {"b": 1}}], "'model_max_length' is -1; give the longest input"),
    "padding_side": ([], "'padding_side' is "),
    "tokenizer_class": (["x", None], "the tokenizer cannot be loaded: "),
    "cls_token": ([None], "the tokenizer "),
    "added_tokens_decoder": ([{}], "the tokenizer cannot be loaded: "),
}
"""Of each the values that are ignored, and what refuses the others."""


@pytest.mark.parametrize("key", SETTINGS)
@pytest.mark.parametrize("value", [[], {}, -1, "x", None, {"a": {"b": 1}}], ids=repr)
def test_a_tokenizers_setting_that_is_odd_is_one_line_or_ignored(folder, key, value):
    change(folder / "tokenizer_config.json", **{key: value})
    ignored, told = SETTINGS[key]
    message = refusal(folder)
    assert message == "" if value in ignored else told in message


@pytest.mark.parametrize("content", [[], {"weight_map": []}, {"weight_map": {"a": 1}}, {"weight_map": {"a": ["b"]}}])
def test_an_index_of_odd_types_is_one_line(folder, content):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))
    assert "model.safetensors.index.json" in refusal(folder)


HEADERS = {
    "empty": b"",
    "cut": b"\x08\0\0",
    "huge": (2**62).to_bytes(8, "little") + b"{}",
    "large": (90_000_000).to_bytes(8, "little") + b"{}",
    "no json": (2).to_bytes(8, "little") + b"{]",
    "odd types": (18).to_bytes(8, "little") + b'{"a": {"dtype": 3}}',
    "deep": (len(DEEP)).to_bytes(8, "little") + DEEP.encode(),
}


@pytest.mark.parametrize("what", HEADERS)
def test_a_broken_header_is_one_line(folder, what):
    (folder / "model.safetensors").write_bytes(HEADERS[what])
    assert "model.safetensors" in refusal(folder)


def refusal(folder: Path) -> str:
    """The one line that refuses a folder's checkpoint; nothing where it embeds a sentence."""
    try:
        TransformerEncoder(str(folder), device="cpu").encode(["the cat"])
    except StsbenchError as error:
        message = str(error)
        assert message and "\n" not in message and len(message) < 1000
        return message
    return ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**6}, "'num_hidden_layers' is 1e+06; what is read is 0 to 1,000"),
        ({"num_labels": 10**9}, "'num_labels' is 1e+09; what is read is 0 to 1,000,000"),
        ({"hidden_size": 10**9}, "'hidden_size' is 1e+09; what is read is 0 to 100,000,000"),
        ({"text_config": {"n_layer": 10**7}}, "'n_layer' is 1e+07; what is read is 0 to 1,000"),
        ({"hidden_size": 2 * 10**4}, "values, its weights hold"),
        ({"vocab_size": 10**7}, "the most that is read is 50,0"),
        ({"max_position_embeddings": 9 * 10**7}, "config.json asks for a model of 1,440,0"),
        ({"num_hidden_layers": 50, "intermediate_size": 10**6}, "values, its weights hold"),
    ],
)
def test_a_model_that_its_weights_cannot_fill_is_refused_before_memory_is_asked_for(folder, changes, message):
    change(folder / "config.json", **changes)
    with pytest.raises(EncoderError) as caught:
        TransformerEncoder(str(folder), device="cpu", max_length=8).encode(["a"])
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed folder of an old file that counts as large."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(converted, "LARGE", 4)
    # What is younger than two seconds is not remembered: here nothing is young.
    monkeypatch.setattr(time, "time_ns", lambda: 2**62)
    made = tmp_path / "made"
    made.mkdir()
    (made / "vectors.npy").write_bytes(b"12345")
    seal(made)
    assert is_sealed(made)
    return made


@pytest.mark.skipif(os.name != "posix", reason="no time there that programs cannot set")
def test_a_large_file_is_hashed_once(sealed, monkeypatch):
    monkeypatch.setattr(converted, "file_digest", lambda path: pytest.fail("hashed again"))
    assert is_sealed(sealed) and is_sealed(sealed)


@pytest.mark.parametrize("change", ["an edit that keeps size and date", "a file in its place", "gone"])
def test_what_changed_in_a_sealed_folder_is_seen(sealed, change):
    path = sealed / "vectors.npy"
    before = path.stat()
    other = sealed / "other" if change == "a file in its place" else path
    other.write_bytes(b"54321")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    if change == "gone":
        path.unlink()
    assert not is_sealed(sealed)
