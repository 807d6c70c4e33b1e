"""Checkpoints from a Hub on the loopback interface: safetensors, whole, and never code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stsbench.core import settings
from stsbench.data.hub import fetch_checkpoint
from stsbench.data.hub.repository import choose_files
from tests import hub_server
from tests.hub_files import tiny_bert
from tests.hub_server import Hub, one_line, unplug

hub = hub_server.hub


def test_a_checkpoint_is_safetensors_and_never_code(hub: Hub):
    files = tiny_bert()
    own = {
        "1_Pooling/config.json": b"{}",
        "bpe.codes": b"codes",
        "source.spm": b"spm",
        "prophetnet.tokenizer": b"words",
    }
    extra = ["pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "modeling.py", "training_args.bin", "README.md"]
    repo = hub.add("model", "owner/bert", {**files, **dict.fromkeys(extra, b"no"), **own})
    found = fetch_checkpoint("owner/bert", revision="unpinned")
    assert found.commit == repo.commit
    there = {p.relative_to(found.path).as_posix() for p in found.path.rglob("*") if p.is_file()}
    assert there == {*files, *own}
    assert hub.asked[-1].path.endswith("/model.safetensors"), "weights come last"


def st_model() -> dict[str, bytes]:
    """A sentence-transformers checkpoint that pools by the first token; without its own files the mean is assumed."""
    pooling = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    own = {"modules.json": modules, "1_Pooling/config.json": pooling}
    return {**tiny_bert(), **{name: json.dumps(value).encode() for name, value in own.items()}}


def test_a_part_of_a_checkpoint_is_not_taken_for_all_of_it(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    """What another program left in the cache would run, with another pooling, and nobody would know."""
    from huggingface_hub import hf_hub_download

    hub.add("model", "owner/st", st_model())
    for name in tiny_bert():
        hf_hub_download("owner/st", name)
    unplug(monkeypatch)
    text = one_line(lambda: fetch_checkpoint("owner/st", revision="unpinned"))
    assert "cannot reach the Hub" in text and "'hf download owner/st' fetches all" in text
    assert "the cache holds files of it (config.json, model.safetensors, tokenizer_config.json, vocab.txt)" in text


def test_without_network_a_known_list_says_what_is_missing(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    hub.add("model", "owner/st", st_model())
    path = fetch_checkpoint("owner/st", revision="unpinned").path
    unplug(monkeypatch)
    assert fetch_checkpoint("owner/st", revision="unpinned").path == path
    (path / "modules.json").unlink()
    text = one_line(lambda: fetch_checkpoint("owner/st", revision="unpinned"))
    assert "file 'modules.json' of model 'owner/st' (revision main): cannot reach the Hub" in text


def test_what_hf_download_fetched_whole_needs_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub import snapshot_download

    commit = hub.add("model", "owner/st", st_model()).commit
    folder = Path(snapshot_download("owner/st"))
    unplug(monkeypatch)
    for revision in ("unpinned", commit):
        assert fetch_checkpoint("owner/st", revision=revision) == (folder, commit)
    (folder / "1_Pooling" / "config.json").unlink()
    text = one_line(lambda: fetch_checkpoint("owner/st", revision="unpinned"))
    assert "file '1_Pooling/config.json' of model 'owner/st'" in text and "cannot reach the Hub" in text


@pytest.mark.parametrize(
    "content", [b"", b"[", b"[" * 100_000, b'{"commit": 3, "files": {}}', b"\xff", b'{"commit": "main", "files": {}}']
)
def test_a_damaged_note_is_no_list(hub: Hub, content: bytes):
    commit = hub.add("model", "owner/st", st_model()).commit
    fetch_checkpoint("owner/st", revision=commit)
    (note,) = (settings.cache_folder() / "hub").iterdir()
    note.write_bytes(content)
    assert (fetch_checkpoint("owner/st", revision=commit).path / "modules.json").is_file()
    assert commit.encode() in note.read_bytes()


def test_a_model_without_weights_names_those_it_has(hub: Hub):
    hub.add("model", "owner/flax", {"config.json": b"{}", "tf_model.h5": b"x", "train.py": b""})
    text = one_line(lambda: fetch_checkpoint("owner/flax", revision="unpinned"))
    assert "no weights in model.safetensors or pytorch_model.bin, only tf_model.h5" in text


SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin", "rust_model.ot"], ["pytorch_model.bin"]),
        ([*SHARDS, "pytorch_model.bin", "pytorch_model.bin.index.json"], SHARDS),
        ([*SHARDS, "model.safetensors"], ["model.safetensors"]),
        (["model.safetensors.index.json", "pytorch_model.bin"], ["pytorch_model.bin"]),
        (
            ["model.safetensors", "2_Dense/pytorch_model.bin", "openvino/openvino_model.bin"],
            ["2_Dense/pytorch_model.bin", "model.safetensors"],
        ),
        (["model.fp16.safetensors", "flax_model.msgpack", "training_args.bin"], []),
    ],
)
def test_choice_of_weights(names: list[str], weights: list[str]):
    others = ["config.json", "sub/vocab.txt", "tokenizer.model"]
    code = ["run.py", "sub/x.py", "lib.so"]
    assert choose_files([*names, *others, *code], ["*"]) == (others, weights)


def test_gated_and_disabled_models_say_what_to_do(hub: Hub):
    hub.add("model", "owner/gated", tiny_bert(), gated=True)
    text = one_line(lambda: fetch_checkpoint("owner/gated", revision="unpinned"))
    assert "gated" in text and "ask for access at https://huggingface.co/owner/gated and log in" in text
    hub.add("model", "owner/shut", tiny_bert(), disabled=True)
    assert "disabled" in one_line(lambda: fetch_checkpoint("owner/shut", revision="unpinned"))
