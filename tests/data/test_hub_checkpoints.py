"""Checkpoints from a Hub on the loopback interface: safetensors, whole, and never code."""

from __future__ import annotations

import pytest

from stsbench.data.hub import expected_sha256, fetch_checkpoint, verify_file
from stsbench.data.hub.files import choose
from tests import hub_server
from tests.hub_files import sha256, tiny_bert
from tests.hub_server import Hub, one_line, unplug

hub = hub_server.hub


def test_a_checkpoint_is_safetensors_and_never_code(hub: Hub):
    files = tiny_bert()
    extra = ["pytorch_model.bin", "tf_model.h5", "onnx/model.onnx", "modeling.py", "training_args.bin", "README.md"]
    repo = hub.add("model", "owner/bert", {**files, **dict.fromkeys(extra, b"no"), "1_Pooling/config.json": b"{}"})
    found = fetch_checkpoint("owner/bert", revision="unpinned")
    assert found.commit == repo.commit
    there = {p.relative_to(found.path).as_posix() for p in found.path.rglob("*") if p.is_file()}
    assert there == {*files, "1_Pooling/config.json"}
    assert expected_sha256(found.path / "model.safetensors") == sha256(files["model.safetensors"])
    assert expected_sha256(found.path / "config.json") is None
    assert hub.asked[-1].path.endswith("/model.safetensors"), "weights come last"


def test_a_damaged_checkpoint_is_fetched_again(hub: Hub):
    files = tiny_bert()
    commit = hub.add("model", "owner/bert", files).commit
    hub.fail("model.safetensors", wrong_bytes=True, methods=("GET",), times=1)
    assert "damaged" in one_line(lambda: fetch_checkpoint("owner/bert", revision=commit))
    weights = fetch_checkpoint("owner/bert", revision=commit).path / "model.safetensors"
    assert verify_file(weights) == sha256(files["model.safetensors"])
    weights.resolve().write_bytes(b"rot")
    assert "damaged" in one_line(lambda: verify_file(weights))
    assert not weights.exists()


def test_a_cached_checkpoint_without_network(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub import hf_hub_download

    hub.add("model", "owner/bert", tiny_bert())
    hf_hub_download("owner/bert", "config.json")
    with monkeypatch.context() as patch:
        unplug(patch)
        assert "cannot reach the Hub" in one_line(lambda: fetch_checkpoint("owner/bert", revision="unpinned"))
    hf_hub_download("owner/bert", "model.safetensors")
    unplug(monkeypatch)
    assert (fetch_checkpoint("owner/bert", revision="unpinned").path / "config.json").is_file()


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
    assert choose([*names, *others, *code], ["*"]) == (others, weights)


def test_gated_and_disabled_models_say_what_to_do(hub: Hub):
    hub.add("model", "owner/gated", tiny_bert(), gated=True)
    text = one_line(lambda: fetch_checkpoint("owner/gated", revision="unpinned"))
    assert "gated" in text and "ask for access at https://huggingface.co/owner/gated and log in" in text
    hub.add("model", "owner/shut", tiny_bert(), disabled=True)
    assert "disabled" in one_line(lambda: fetch_checkpoint("owner/shut", revision="unpinned"))
