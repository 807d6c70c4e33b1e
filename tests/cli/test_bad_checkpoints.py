"""Checkpoint folders with every fault there is: one line naming the file, and no code of theirs run."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import ENCODER, Command, sha256, write
from tests.hub_files import tiny_bert, write_bert
from tests.pickles import Call, written

WEIGHTS = "model.safetensors"
SMALL = ("--tasks", "quickstart-es-en")


def run(stsbench: Command, folder: Path) -> str:
    return stsbench.refused("run", *SMALL, "--encoder", folder)


@pytest.fixture(scope="module")
def torch():
    """Imported once, before a test's time counts."""
    import torch

    return torch


def test_a_sound_folder_runs(stsbench, tmp_path, torch):
    out = stsbench.fine("run", *SMALL, "--encoder", write_bert(tmp_path / "tiny"))
    assert out.splitlines()[0] == "tiny"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model__safetensors": None},
            ": no weights (model.safetensors or pytorch_model.bin); copy the whole checkpo",
        ),
        ({"config__json": None}, ": no config.json; is it a checkpoint folder?"),
        ({"config__json": b"{"}, "/config.json: cannot be read as JSON: "),
        (
            {"vocab__txt": None},
            ": the tokenizer knows no words; tokenizer.json or the vocabulary's file is missing",
        ),
        ({"tokenizer_config__json": b"{"}, "/tokenizer_config.json: cannot be read as JSON: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_missing_or_broken(stsbench, tmp_path, changes, message):
    folder = write_bert(tmp_path / "tiny", **changes)
    assert f"{folder}{message}" in run(stsbench, folder)


def test_an_empty_folder_and_a_file(stsbench, tmp_path):
    (tmp_path / "empty").mkdir()
    assert run(stsbench, tmp_path / "empty").endswith(
        "empty: no config.json; is it a checkpoint folder?"
    )
    weights = write_bert(tmp_path / "tiny") / WEIGHTS
    assert run(stsbench, weights).endswith(
        f"'{weights}' is a file; give the folder of a checkpoint"
    )


SOUND = tiny_bert()[WEIGHTS]
LENGTH = int.from_bytes(SOUND[:8], "little")
CORRUPT = {
    "empty": b"",
    "cut in the header": SOUND[:100],
    "cut in the numbers": SOUND[:-100],
    "bytes behind the end": SOUND + b"more",
    "a header that is no JSON": SOUND[:8] + b"x" * LENGTH + SOUND[8 + LENGTH :],
    "a header longer than the file": (1 << 40).to_bytes(8, "little") + SOUND[8:],
    "another format": b"PK\x03\x04" + SOUND,
    "a tensor missing": SOUND.replace(
        b'"embeddings.word_embeddings.weight"', b'"embeddings.word_embeddings.wieght"'
    ),
    "a tensor of another shape": SOUND.replace(b'"shape": [16, 16]', b'"shape": [8, 32 ]', 1),
}


@pytest.mark.parametrize("fault", CORRUPT)
def test_corrupt_safetensors(stsbench, tmp_path, torch, fault):
    folder = write_bert(tmp_path / "tiny", model__safetensors=CORRUPT[fault])
    error = run(stsbench, folder)
    assert str(folder) in error
    assert not list((tmp_path / "results").glob("*/*"))


def test_weights_that_are_not_those_of_the_card(stsbench, tmp_path):
    folder = write_bert(tmp_path / "tiny")
    card = ENCODER.replace("own_encoders:Hashed", "transformer") + f'[params]\nmodel = "{folder}"\n'
    wrong = write(tmp_path / "mine.toml", card + f'sha256 = {{"{WEIGHTS}" = "{"0" * 64}"}}\n')
    error = stsbench.refused("run", *SMALL, "--encoder", wrong)
    assert error.startswith(
        f"{wrong}: {folder}/{WEIGHTS}: not the file its card names (sha256 {sha256(SOUND)[:12]}, card 000"
    )
    gone = write(tmp_path / "mine.toml", card + f'sha256 = {{"vocab.json" = "{"0" * 64}"}}\n')
    assert "vocab.json: not the file its card names (sha256 no such file" in stsbench.refused(
        "run", *SMALL, "--encoder", gone
    )


# Weights that exist only as .bin, a pickle.


class Code:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch '{self.mark}'",)


def with_bin(tmp_path: Path, content: bytes) -> Path:
    return write_bert(tmp_path / "tiny", model__safetensors=None, pytorch_model__bin=content)


def saved(torch, what: object) -> bytes:
    stream = io.BytesIO()
    torch.save(what, stream)
    return stream.getvalue()


def test_tensors_are_read_and_kept_as_safetensors(stsbench, tmp_path, torch):
    from safetensors.torch import load

    folder = with_bin(tmp_path, saved(torch, load(SOUND)))
    first = stsbench.json("run", *SMALL, "--encoder", folder)["results"][0]
    (kept,) = (Path(os.environ["STSBENCH_CACHE"]) / "converted").glob("*/model.safetensors")
    assert load(kept.read_bytes()).keys() == load(SOUND).keys()
    whole = write_bert(tmp_path / "whole")
    assert stsbench.json("run", *SMALL, "--encoder", whole)["results"][0]["score"] == first["score"]


@pytest.mark.parametrize(
    "form", ["plain pickle", "torch's archive", "beside tensors", "old torch file"]
)
def test_a_pickle_with_code_in_it_is_refused_and_not_run(stsbench, tmp_path, torch, form):
    mark = tmp_path / "it-ran"
    if form == "plain pickle":
        content = written(Call("posix", "system", (f"touch '{mark}'",)))
    elif form == "old torch file":
        stream = io.BytesIO()
        torch.save({"w": Code(mark)}, stream, _use_new_zipfile_serialization=False)
        content = stream.getvalue()
    else:
        content = saved(
            torch,
            Code(mark) if form == "torch's archive" else {"w": torch.ones(2), "code": Code(mark)},
        )
    error = run(stsbench, with_bin(tmp_path, content))
    assert "pytorch_model.bin: holds more than tensors and is not read (" in error
    assert error.endswith("; ask its author for safetensors")
    assert not mark.exists()
    assert not (Path(os.environ["STSBENCH_CACHE"]) / "converted").exists()


def test_code_beside_a_checkpoint_is_never_run(stsbench, tmp_path, torch):
    mark = tmp_path / "it-ran"
    config = json.loads(tiny_bert()["config.json"])
    config["auto_map"] = {"AutoModel": "modeling.Mine", "AutoConfig": "modeling.Config"}
    config["model_type"] = "mine"
    folder = write_bert(tmp_path / "tiny", config__json=json.dumps(config).encode())
    write(folder / "modeling.py", f"open({str(mark)!r}, 'w')\n")
    assert str(folder) in run(stsbench, folder)
    assert not mark.exists()


# Keys that lead a library to other files than those that are hashed.

MODULES: Any = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
BERT: dict[str, Any] = {
    name: json.loads(content) for name, content in tiny_bert().items() if name.endswith(".json")
}
LED_AWAY: dict[str, tuple[str, str, Any]] = {
    "another tokenizer": ("sentence_bert_config.json", "tokenizer_name_or_path", "{other}"),
    "another tokenizer's file": (
        "sentence_bert_config.json",
        "processor_kwargs.tokenizer_file",
        "{other}/vocab.txt",
    ),
    "old name": ("sentence_bert_config.json", "tokenizer_args.vocab", "{other}/vocab.txt"),
    "weights beside": ("sentence_bert_config.json", "model_kwargs.use_safetensors", False),
    "pickles": ("sentence_bert_config.json", "model_args.weights_only", False),
    "another configuration": (
        "sentence_bert_config.json",
        "config_kwargs._configuration_file",
        "other.json",
    ),
    "a kernel": ("sentence_bert_config.json", "model_kwargs.attn_implementation", "someone/kernel"),
    "a method": ("sentence_bert_config.json", "modality_config.text.method", "save_pretrained"),
    "an unknown key": ("sentence_bert_config.json", "max_seq_lenght", 8),
    "weights of another name": ("config.json", "transformers_weights", "other.safetensors"),
    "a kernel for a part": ("config.json", "_attn_implementation", {"": "someone/kernel"}),
    "a vocabulary": ("tokenizer_config.json", "vocab", "{other}/vocab.txt"),
    "a vocabulary's file": ("tokenizer_config.json", "vocab_file", "{other}/vocab.txt"),
    "an argument": ("tokenizer_config.json", "init_inputs", ["{other}/vocab.txt"]),
    "a dictionary": ("tokenizer_config.json", "mecab_kwargs.mecab_option", "-d {other}"),
    "a token's name": ("special_tokens_map.json", "vocab", "{other}/vocab.txt"),
    "another model": (
        "processor_config.json",
        "audio_tokenizer",
        {"audio_tokenizer_name_or_path": "{other}"},
    ),
    "an unknown key of a module": ("1_Pooling/config.json", "window", 3),
}


@pytest.mark.parametrize("case", LED_AWAY)
def test_a_key_that_leads_to_other_files_is_refused_by_its_name(stsbench, tmp_path, case):
    file, key, value = LED_AWAY[case]
    value = json.loads(json.dumps(value).replace("{other}", str(write_bert(tmp_path / "other"))))
    for part in reversed(key.split(".")[1:]):
        value = {part: value}
    names: dict[str, Any] = {
        "sentence_bert_config.json": {"do_lower_case": True},
        "1_Pooling/config.json": {"embedding_dimension": 16},
    }
    files: dict[str, Any] = {"modules.json": MODULES, **BERT, **names}
    files[file] = {**names.get(file, BERT.get(file, {})), key.partition(".")[0]: value}
    folder = write_bert(tmp_path / "tiny", **files)
    error = run(stsbench, folder)
    assert f"{folder / file}: " in error
    remedy = "; did you mean 'max_seq_length'" if case == "an unknown key" else "; remove it"
    assert f"'{key}'" in error and remedy in error


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_an_index_does_not_lead_out_of_the_folder(stsbench, tmp_path, suffix):
    other = write_bert(tmp_path / "other") / WEIGHTS
    name = {"safetensors": "model", "bin": "pytorch_model"}[suffix]
    index = {
        f"{name}.{suffix}.index.json": {
            "weight_map": {"a": str(other), "b": "../other/model.safetensors"}
        }
    }
    files: dict[str, Any] = {
        "modules.json": MODULES,
        "sentence_bert_config.json": {"do_lower_case": True},
        **index,
    }
    folder = write_bert(tmp_path / "tiny", **files, model__safetensors=None)
    write(folder / "1_Pooling" / "config.json", '{"embedding_dimension": 16}')
    assert (
        f"{folder}: weights file '../other/model.safetensors' of {name}.{suffix}.index.json is"
        in run(stsbench, folder)
    )


@pytest.mark.parametrize("name", ["torch", "nn", "json"])
def test_a_name_that_a_module_file_imports_is_no_module(stsbench, tmp_path, name):
    address = f"sentence_transformers.sentence_transformer.modules.word_embeddings.{name}"
    listed = [*MODULES, {"idx": 2, "name": "2", "path": "2_Other", "type": address}]
    folder = write_bert(tmp_path / "tiny", modules__json=listed)
    assert (
        f"asks for code outside sentence-transformers' modules ('{address}'), which is never run"
        in run(stsbench, folder)
    )


def test_a_module_of_the_right_name_that_another_library_defines_is_not_run(
    stsbench, tmp_path, torch, monkeypatch
):
    from sentence_transformers.sentence_transformer.modules import dropout

    monkeypatch.setattr(dropout, "LayerNorm", torch.nn.LayerNorm, raising=False)
    address = "sentence_transformers.sentence_transformer.modules.dropout.LayerNorm"
    listed = [*MODULES, {"idx": 2, "name": "2", "path": "2_Other", "type": address}]
    folder = write_bert(tmp_path / "tiny", modules__json=listed)
    assert f"'{address}' is not a class of sentence-transformers; it is never run" in run(
        stsbench, folder
    )
