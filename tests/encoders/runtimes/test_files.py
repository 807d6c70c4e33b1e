from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.encoders.runtimes.files import RuntimeFile, find_file
from stsbench.errors import EncoderError


@pytest.fixture
def onnx() -> Any:
    return pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")


def written(onnx: Any, folder: Path, *, kind: str = "float32", location: str = "", inside: bool = False) -> RuntimeFile:
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
    graph = make.make_graph([node] if inside else [], "network", [], [], initializer=[] if inside else [tensor])
    onnx.save(make.make_model(graph), folder / "model.onnx")
    return RuntimeFile(folder, "model.onnx")


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "a/../../secret", "C:\\secret", "..\\secret", "a\nb"])
def test_weights_outside_the_folder_are_not_read(onnx, tmp_path, location, inside):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"1234")
    with pytest.raises(EncoderError, match="points at weights outside its folder .* it is not read"):
        written(onnx, folder, location=location, inside=inside).digests()


def test_weights_beside_the_file_count(onnx, tmp_path):
    file = written(onnx, tmp_path, location="weights.bin", inside=True)
    with pytest.raises(EncoderError, match="its weights 'weights.bin' are not beside it"):
        file.digests()
    (tmp_path / "weights.bin").write_bytes(b"12345678")
    assert set(RuntimeFile(tmp_path, "model.onnx").digests()) == {"model.onnx", "weights.bin"}


@pytest.mark.parametrize(("kind", "bits"), [("float32", None), ("int64", None), ("int8", 8), ("uint8", 8)])
def test_a_file_tells_how_many_bits_its_weights_have(onnx, tmp_path, kind, bits):
    assert written(onnx, tmp_path, kind=kind).bits == bits


def test_openvinos_files_tell_it_too(tmp_path):
    for kind, bits in (("f32", None), ("i8", 8), ("u4", 4), ("boolean", None), ("i64", None)):
        (tmp_path / "model.xml").write_text(f'<data element_type="{kind}" offset="0"/>')
        assert RuntimeFile(tmp_path, "model.xml").bits == bits
    with pytest.raises(EncoderError, match="its weights 'model.bin' are not beside it"):
        RuntimeFile(tmp_path, "model.xml").digests()


def test_a_broken_file_is_one_line(onnx, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"not a network")
    with pytest.raises(EncoderError, match=r"model.onnx: cannot be read as ONNX: ") as caught:
        RuntimeFile(tmp_path, "model.onnx").digests()
    assert "\n" not in str(caught.value)


def test_the_usual_file_is_taken_where_it_is(tmp_path):
    places: Any = {"usual": "onnx/model.onnx", "suffixes": (".onnx",)}
    assert find_file(tmp_path, "", **places) is None
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"")
    found = find_file(tmp_path, "", **places)
    assert found is not None and found.name == "onnx/model.onnx"
