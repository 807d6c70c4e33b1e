"""Runs with an encoder behind a server: what is forecast, what is paid for, and what results say."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from stsbench.encoders.served import link
from tests.cli.commands import QUICK, write
from tests.encoders.served.server import serving

CARD = (
    'name = "Ours"\nkind = "openai"\nmethod = "none"\nbackbone = "none"\nsupervision = "pairs"\noverlap = "unknown"\n'
    'paper = "none"\nlicense = "none"\nparams = {model = "m", batch = 16, key_variable = "OUR_KEY", retries = 1}\n'
)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(link, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("OUR_KEY", "sk-secret-1234")
    return write(tmp_path / "ours.toml", CARD)


def test_a_run_goes_on_where_its_server_went(stsbench, card, tmp_path):
    with serving(key="sk-secret-1234") as server:
        run = ["run", "--encoder", card, "--set", f"url={server.url}", *QUICK]
        told = stsbench.fine(*run, "--dry-run")
        assert re.search(r"^ours: about [\d,]+ tokens go to its server$", told, re.M)
        (forecast,) = stsbench.json(*run, "--dry-run")["encoders"]
        assert server.asked == [] and forecast["tokens"] > forecast["to_embed"] > 100
        server.fail(status=503, body=b"sk-secret-1234 is fine", only_with='"model"')
        assert "503 *** is fine; what has come is kept" in stsbench.refused(*run)
        server.faults.clear()
        out = stsbench.fine(*run)
        assert max(Counter(server.texts).values()) == 1 and len(server.texts) == forecast["to_embed"]
    assert "ours" in out
    (path,) = (tmp_path / "results" / "ours").glob("*.json")
    notes = json.loads(path.read_text())["notes"]
    assert any("which weights those are is not known" in note for note in notes)
    # The server is gone: all is there, for what is made of these embeddings too.
    stsbench.fine(*run, "--fresh")
    stsbench.fine(*run, "--set", "embeddings=int8", "--set", "calibration=quickstart-en.test")
    (path,) = (tmp_path / "results").glob("ours+*/*.json")
    assert any("which weights those are is not known" in note for note in json.loads(path.read_text())["notes"])
    written = {file: file.read_bytes() for file in (tmp_path / "results").rglob("*") if file.is_file()}
    assert not any(b"sk-secret" in content for content in written.values())
    assert not any(b"127.0.0.1" in content for file, content in written.items() if file.parent.name == "ours")


def test_mistakes_are_one_line(stsbench, card, monkeypatch):
    run = ["run", "--encoder", card, *QUICK]
    assert "needs its address: --set url=" in stsbench.refused(*run)
    assert "no server answers at http://127.0.0.1:9/v1" in stsbench.refused(*run, "--set", "url=http://127.0.0.1:9/v1")
    monkeypatch.delenv("OUR_KEY")
    assert "OUR_KEY holds no key" in stsbench.refused(*run, "--set", "url=http://127.0.0.1:9/v1")
    assert "tokens go to its server" in stsbench.fine(*run, "--set", "url=http://127.0.0.1:9/v1", "--dry-run")
