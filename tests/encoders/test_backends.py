from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from stsbench.core.errors import CardError, EncoderError, UnknownName
from stsbench.core.provenance import read_versions
from stsbench.encoders import backends
from stsbench.encoders.network import RuntimeFile
from stsbench.encoders.runtimes import check_against_torch
from stsbench.encoders.transformer.encoder import (
    TransformerEncoder,
    embed_with_dropout,
)
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from tests.encoders.tiny import SENTENCES
from tests.hub_server import Hub, hub

__all__ = ["hub"]

RUNTIMES = {"onnx": "onnxruntime", "openvino": "openvino"}
CLOSE: Any = {"rtol": 0, "atol": 2e-5}


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    """A backend beside torch; skipped where it is not installed."""
    pytest.importorskip(
        RUNTIMES[request.param], reason=f"the extra '{request.param}' is not installed"
    )
    return str(request.param)


@pytest.fixture(scope="module")
def onnx() -> Any:
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    return pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")


@pytest.fixture(scope="module")
def exported(onnx, tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A BERT with an ONNX file of its own, which stsbench has exported."""
    cache = tmp_path_factory.mktemp("cache")
    folder = Path(shutil.copytree(tiny["bert"], tmp_path_factory.mktemp("exported") / "bert"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STSBENCH_CACHE", str(cache))
        TransformerEncoder(str(folder), backend="onnx").encode(["a dog"])
    (made,) = (cache / "exported").iterdir()
    assert not list(folder.glob("**/*.onnx"))
    shutil.copytree(made, folder / "onnx")
    yield folder


@pytest.fixture
def copied(exported, tmp_path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "bert"))


def no_export(*arguments: object, **named: object) -> None:
    raise AssertionError("exported again")


def test_a_file_that_is_there_is_run(runtime, exported, monkeypatch, capfd):
    monkeypatch.setattr(torch.onnx, "export", no_export)
    file = "onnx/model.onnx" if runtime == "openvino" else ""
    encoder = TransformerEncoder(str(exported), backend=runtime, file=file)
    embeddings = encoder.encode(SENTENCES)
    np.testing.assert_allclose(
        embeddings, TransformerEncoder(str(exported)).encode(SENTENCES), **CLOSE
    )
    np.testing.assert_allclose(
        np.concatenate([encoder.encode([s]) for s in SENTENCES[:5]]), embeddings[:5], **CLOSE
    )
    assert capfd.readouterr() == ("", "")
    assert "from its file onnx/model.onnx" in encoder.notes[0]
    assert RUNTIMES[runtime] in read_versions(encoder.fingerprint)
    assert encoder.device_used == "cpu"
    with pytest.raises(EncoderError, match="has no dropout"):
        embed_with_dropout(encoder, ["a dog"], seed=0)


def test_openvino_runs_its_own_file(onnx, copied, monkeypatch):
    openvino = pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")
    (copied / "openvino").mkdir()
    network = openvino.Core().read_model(copied / "onnx/model.onnx")
    openvino.save_model(network, copied / "openvino/openvino_model.xml", compress_to_fp16=False)
    monkeypatch.setattr(torch.onnx, "export", no_export)
    encoder = TransformerEncoder(str(copied), backend="openvino")
    np.testing.assert_allclose(
        encoder.encode(SENTENCES), TransformerEncoder(str(copied)).encode(SENTENCES), **CLOSE
    )
    before = encoder.fingerprint
    weights = copied / "openvino/openvino_model.bin"
    weights.write_bytes(weights.read_bytes() + b"x")
    assert TransformerEncoder(str(copied), backend="openvino").fingerprint != before


def test_a_file_comes_from_the_hub_with_its_checkpoint(exported, hub: Hub, monkeypatch):
    files = {
        p.relative_to(exported).as_posix(): p.read_bytes()
        for p in exported.rglob("*")
        if p.is_file()
    }
    hub.add("model", "owner/bert", files)
    monkeypatch.setattr(torch.onnx, "export", no_export)
    encoder = TransformerEncoder("owner/bert", backend="onnx")
    local = TransformerEncoder(str(exported), backend="onnx")
    assert encoder.encode(["a dog"]).tobytes() == local.encode(["a dog"]).tobytes()


@pytest.mark.parametrize(
    ("make", "params"),
    [
        ("bert", {"pooling": "cls"}),
        ("roberta", {"pooling": "mean(0,2)", "padding_side": "left"}),
        ("qwen", {"pooling": "last_token", "padding_side": "left", "bidirectional": True}),
    ],
)
def test_what_is_asked_for_is_exported_once(onnx, tiny, monkeypatch, capfd, make, params):
    # One of the decoder's rows is ten times as rough as the others.
    close: Any = {"rtol": 0, "atol": 2e-4}
    files = sorted(tiny[make].rglob("*"))
    encoder = TransformerEncoder(str(tiny[make]), backend="onnx", **params)
    embeddings = encoder.encode(SENTENCES)
    np.testing.assert_allclose(
        embeddings, TransformerEncoder(str(tiny[make]), **params).encode(SENTENCES), **close
    )
    assert capfd.readouterr() == ("", "")
    assert "exported from the" in encoder.notes[0]
    monkeypatch.setattr(torch.onnx, "export", no_export)
    again = TransformerEncoder(str(tiny[make]), backend="onnx", **params)
    assert again.encode(SENTENCES).tobytes() == embeddings.tobytes()
    assert sorted(tiny[make].rglob("*")) == files
    if importlib.util.find_spec("openvino") is not None:
        other = TransformerEncoder(str(tiny[make]), backend="openvino", **params)
        np.testing.assert_allclose(other.encode(SENTENCES), embeddings, **close)
    if make == "bert":
        batch = encoder.backbone.collate(encoder.tokenize(["a"]), np.arange(1), pad_left=False)
        with pytest.raises(
            EncoderError, match="gives no hidden states of layer 1; leave 'backend' out"
        ):
            encoder.backbone.hidden_states(batch, [1])


def test_a_checkpoint_of_the_library_runs_its_transformer_in_a_runtime(onnx, saved, capfd):
    plain = SentenceTransformerEncoder(str(saved["dense"]))
    encoder = SentenceTransformerEncoder(str(saved["dense"]), backend="onnx")
    np.testing.assert_allclose(encoder.encode(SENTENCES), plain.encode(SENTENCES), **CLOSE)
    assert type(encoder.network[0].model).__name__ == "RuntimeModel"
    assert capfd.readouterr() == ("", "")
    assert encoder.fingerprint != plain.fingerprint
    with pytest.raises(CardError, match="'onnx' runs .*WordEmbeddings"):
        SentenceTransformerEncoder(str(saved["words"]), backend="onnx")


def test_a_file_of_other_weights_than_the_checkpoints_is_refused(runtime, copied):
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors")
    save_file(
        {name: tensor * 1.3 for name, tensor in weights.items()},
        copied / "model.safetensors",
        {"format": "pt"},
    )
    encoder = TransformerEncoder(str(copied), backend=runtime, file="onnx/model.onnx")
    with pytest.raises(EncoderError, match="computes other numbers with it than torch") as caught:
        encoder.encode(["a dog"])
    assert "onnx/model.onnx: " in str(caught.value) and "\n" not in str(caught.value)


def test_a_quantised_file_gives_a_sentence_one_embedding_whatever_its_neighbours(copied):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source, target = copied / "onnx/model.onnx", copied / "onnx/model_int8.onnx"
    # In 7 bits, no sum overflows on a processor without VNNI.
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, reduce_range=True)
    encoder = TransformerEncoder(str(copied), backend="onnx", file="onnx/model_int8.onnx")
    assert (encoder.dtype, "one sentence at a time" in encoder.notes[0]) == ("int8", True)
    embeddings = encoder.encode(SENTENCES)
    assert encoder.encode(SENTENCES[3:9]).tobytes() == embeddings[3:9].tobytes()
    exact = TransformerEncoder(str(copied), backend="onnx")
    assert exact.dtype == "float32"
    assert 1e-4 < np.abs(embeddings - exact.encode(SENTENCES)).max() < 0.5
    assert encoder.fingerprint != exact.fingerprint


def test_the_fingerprint_holds_the_runtime_its_file_and_its_numbers(runtime, copied):
    def of(**params: Any) -> str:
        return TransformerEncoder(
            str(copied), **{"backend": runtime, "file": "onnx/model.onnx", **params}
        ).fingerprint

    plain = of()
    assert of(device="cpu", name="another") == plain
    others = [of(pooling="max"), TransformerEncoder(str(copied)).fingerprint]
    others += [of(dtype="bfloat16")] if runtime == "openvino" else []
    for part in ("model.onnx", "model.onnx.data"):
        path = copied / "onnx" / part
        content = path.read_bytes()
        # A field that no version knows, at the end.
        path.write_bytes(content + b"\xfa\x3e\x01x")
        others.append(of())
        path.write_bytes(content)
    assert len({plain, *others}) == len(others) + 1
    assert of() == plain


@pytest.mark.parametrize("position", [0, 1])
def test_numbers_that_are_none_are_refused_in_any_output_of_a_runtime(tiny, position):
    tokenizer = AutoTokenizer.from_pretrained(tiny["bert"])
    expected = [torch.ones(1, 3, 4), torch.ones(1, 3, 4)]
    outputs = [torch.ones(1, 3, 4), torch.ones(1, 3, 4)]
    outputs[position][0, 0, 0] = float("nan")
    stub: Any = SimpleNamespace(
        tokenizer=tokenizer,
        torch_model="torch",
        call=lambda model, **inputs: expected if model == "torch" else outputs,
    )
    model: Any = SimpleNamespace(file=SimpleNamespace(path="model.onnx"), runtime="onnx")
    with pytest.raises(EncoderError, match="model.onnx: onnx computes other numbers"):
        check_against_torch(model, stub, 0.01)


@pytest.mark.parametrize("file", ["onnx/modle.onnx", "../bert/onnx/model.onnx"])
def test_a_wrong_file_says_which_there_are(runtime, exported, file):
    with pytest.raises(UnknownName, match=" has onnx/model.onnx$") as caught:
        TransformerEncoder(str(exported), backend=runtime, file=file)
    assert (caught.value.kind, caught.value.name) == ("file", file)
    assert caught.value.choices == ("onnx/model.onnx",)


def test_a_file_that_lacks_what_is_asked_for_is_refused(onnx, exported):
    encoder = TransformerEncoder(str(exported), backend="onnx", pooling="first_last")
    with pytest.raises(
        EncoderError, match="has no output 'hidden_states.1', only last_hidden_state"
    ):
        encoder.encode(["a dog"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"file": "onnx/model.onnx"},
            "'file' .* is a runtime's; give backend=onnx or backend=openvino with it",
        ),
        (
            {"backend": "onnx", "dtype": "bfloat16"},
            "unknown dtype 'bfloat16' of backend 'onnx'; known: float32",
        ),
        (
            {"backend": "openvino", "dtype": "int9"},
            "unknown dtype 'int9'; known: float32, bfloat16",
        ),
        (
            {"backend": "onnx", "device": "cuda"},
            "backend 'onnx' runs on the CPU here, not on 'cuda'",
        ),
    ],
)
def test_what_a_backend_cannot_do_is_refused_at_once(tiny, given, message):
    with pytest.raises(CardError, match=message):
        TransformerEncoder(str(tiny["bert"]), **given)


@pytest.mark.parametrize("name", RUNTIMES)
def test_without_its_package_one_line_says_what_to_install(tiny, monkeypatch, name):
    monkeypatch.setattr(backends, "find_spec", lambda package: None)
    lacking = f"needs {RUNTIMES[name]}, onnx, onnxscript; run: pip install 'stsbench\\[{name}\\]'"
    with pytest.raises(EncoderError, match=lacking):
        TransformerEncoder(str(tiny["bert"]), backend=name)


def written(
    onnx: Any, folder: Path, *, kind: str = "float32", location: str = "", inside: bool = False
) -> RuntimeFile:
    """A network that adds a tensor, which lies at a place outside the file, and perhaps inside a branch of it."""
    tensor = onnx.numpy_helper.from_array(np.ones(2, kind), "weights")
    if location:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        tensor.ClearField("raw_data")
    make = onnx.helper
    constant = make.make_node("Constant", [], ["weights"], value=tensor)
    branch = make.make_graph([constant], "branch", [], [])
    node = make.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
    graph = make.make_graph(
        [node] if inside else [], "network", [], [], initializer=[] if inside else [tensor]
    )
    onnx.save(make.make_model(graph), folder / "model.onnx")
    return RuntimeFile(folder, "model.onnx")


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../secret", "a/../../secret", "C:\\secret", "..\\secret", "a\nb"]
)
def test_weights_outside_the_folder_are_not_read(onnx, tmp_path, location, inside):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"1234")
    with pytest.raises(
        EncoderError, match="points at weights outside its folder .* it is not read"
    ):
        written(onnx, folder, location=location, inside=inside)


def test_an_operator_of_another_library_is_no_reason_to_load_one(onnx, copied):
    path = copied / "onnx/model.onnx"
    network = onnx.load(path)
    network.graph.node[0].domain = "example.operators"
    network.opset_import.append(onnx.helper.make_opsetid("example.operators", 1))
    onnx.save(network, path)
    (copied / "onnx/libexample.so").write_bytes(b"no library at all")
    with pytest.raises(EncoderError, match="example.operators"):
        TransformerEncoder(str(copied), backend="onnx").encode(["a dog"])


def test_a_damaged_export_is_made_again(onnx, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path))
    embeddings = TransformerEncoder(str(tiny["bert"]), backend="onnx").encode(SENTENCES)
    (path,) = tmp_path.glob("exported/*/model.onnx")
    content = path.read_bytes()
    assert content[-8:] != bytes(8)
    path.write_bytes(content[:-8] + bytes(8))
    again = TransformerEncoder(str(tiny["bert"]), backend="onnx").encode(SENTENCES)
    assert path.read_bytes()[-8:] == content[-8:]
    assert again.tobytes() == embeddings.tobytes()


def test_weights_beside_the_file_count(onnx, tmp_path):
    with pytest.raises(EncoderError, match="its weights 'weights.bin' are not beside it"):
        written(onnx, tmp_path, location="weights.bin", inside=True)
    (tmp_path / "weights.bin").write_bytes(b"12345678")
    assert set(RuntimeFile(tmp_path, "model.onnx").file_hashes()) == {"model.onnx", "weights.bin"}


@pytest.mark.parametrize(
    ("kind", "bits"), [("float32", None), ("int64", None), ("int8", 8), ("uint8", 8)]
)
def test_a_file_tells_how_many_bits_its_weights_have(onnx, tmp_path, kind, bits):
    assert written(onnx, tmp_path, kind=kind).bits == bits


def test_openvinos_files_tell_it_too(tmp_path):
    (tmp_path / "model.xml").write_text("")
    with pytest.raises(EncoderError, match="'model.bin' .* beside"):
        RuntimeFile(tmp_path, "model.xml")
    (tmp_path / "model.bin").write_bytes(b"")
    for kind, bits in (("f32", None), ("i8", 8), ("u4", 4), ("boolean", None), ("i64", None)):
        (tmp_path / "model.xml").write_text(f'<data element_type="{kind}" offset="0"/>')
        assert RuntimeFile(tmp_path, "model.xml").bits == bits
