"""Promises of SECURITY.md and docs that no other file's tests hold."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

import stsbench
from stsbench.check.lock import lock_cells, to_lock
from stsbench.encoders.served.openai import OpenAIEncoder
from tests.boards.scored import drawn, sts
from tests.encoders.served.server import serving
from tests.encoders.tiny import SENTENCES


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_server_s_redirects_are_not_followed(status):
    with serving() as other_server, serving() as server:
        server.fail(
            status=status, body=b"{}", headers={"Location": f"{other_server.url}/embeddings"}
        )
        with pytest.raises(stsbench.StsbenchError, match=f"answered {status}"):
            OpenAIEncoder("m", url=server.url, retries=0).encode(["a dog"])
        assert len(server.asked) == 1
        assert other_server.asked == []


def test_a_runtime_s_file_is_opened_only_if_a_parameter_asks_for_it(tiny, tmp_path):
    plain = stsbench.load_encoder(tiny["bert"])
    folder = Path(shutil.copytree(tiny["bert"], tmp_path / "bert"))
    for name in ("onnx/model.onnx", "openvino/openvino_model.xml", "openvino/openvino_model.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"no network at all")
    encoder = stsbench.load_encoder(folder)
    np.testing.assert_array_equal(encoder.encode(SENTENCES), plain.encode(SENTENCES))
    assert encoder.fingerprint == plain.fingerprint
    assert not {"onnxruntime", "openvino"} & set(sys.modules)


def test_a_lock_holds_no_gold_scores():
    gold, similarity = drawn(1, 300)
    result = sts("a", "stsb", gold, similarity)
    other_gold = msgspec.structs.replace(
        result, per_item={**result.per_item, "gold": gold[::-1].copy()}
    )
    lock = to_lock(lock_cells([result]))
    assert json.loads(lock)["cells"][0]["paired"]["column"] == "similarity"
    assert to_lock(lock_cells([other_gold])) == lock


def test_no_source_unpickles_objects():
    loaders = {"Unpickler"}
    for path in Path(stsbench.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                packages = {alias.name.partition(".")[0] for alias in node.names}
                assert not packages & {"pickle", "cloudpickle", "dill", "joblib", "shelve"}, path
            elif isinstance(node, ast.ImportFrom) and node.module in {"pickle", "cloudpickle"}:
                # Its subclasses find no class but stand-ins: tests of the two converters.
                assert {alias.name for alias in node.names} <= {*loaders, "UnpicklingError"}, path
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert keywords.get("weights_only") == "True", path
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", path
