"""Checkpoint folders with every fault there is: one line naming the file, and no code of theirs run."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

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
        ({"model__safetensors": None}, ": no weights (model.safetensors or pytorch_model.bin); copy the whole checkpo"),
        ({"config__json": None}, ": no config.json; is it a checkpoint folder?"),
        ({"config__json": b"{"}, "/config.json: cannot be read as JSON: "),
        ({"vocab__txt": None}, ": the tokenizer knows no words; tokenizer.json or the vocabulary's file is missing"),
        ({"tokenizer_config__json": b"{"}, "/tokenizer_config.json: cannot be read as JSON: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_missing_or_broken(stsbench, tmp_path, changes, message):
    folder = write_bert(tmp_path / "tiny", **changes)
    assert f"{folder}{message}" in run(stsbench, folder)


def test_an_empty_folder_and_a_file(stsbench, tmp_path):
    (tmp_path / "empty").mkdir()
    assert run(stsbench, tmp_path / "empty").endswith("empty: no config.json; is it a checkpoint folder?")
    weights = write_bert(tmp_path / "tiny") / WEIGHTS
    assert run(stsbench, weights).endswith(f"'{weights}' is a file; give the folder of a checkpoint")


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
    "a tensor missing": SOUND.replace(b'"embeddings.word_embeddings.weight"', b'"embeddings.word_embeddings.wieght"'),
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


@pytest.mark.parametrize("form", ["plain pickle", "torch's archive", "beside tensors", "old torch file"])
def test_a_pickle_with_code_in_it_is_refused_and_not_run(stsbench, tmp_path, torch, form):
    mark = tmp_path / "it-ran"
    if form == "plain pickle":
        content = written(Call("posix", "system", (f"touch '{mark}'",)))
    elif form == "old torch file":
        stream = io.BytesIO()
        torch.save({"w": Code(mark)}, stream, _use_new_zipfile_serialization=False)
        content = stream.getvalue()
    else:
        content = saved(torch, Code(mark) if form == "torch's archive" else {"w": torch.ones(2), "code": Code(mark)})
    error = run(stsbench, with_bin(tmp_path, content))
    assert "pytorch_model.bin: holds more than tensors and is not read (" in error
    assert "ask its author for safetensors" in error
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
