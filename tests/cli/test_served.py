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


@pytest.mark.parametrize(
    ("assigned", "named"),
    [
        ("key_variable=KEY", "key_variable names no environment variable"),
        ("body={api_key='KEY'}", "body must be a table of fields, none of which holds a key"),
        ("body={auth={value='KEY'}}", "none of which holds a key"),
        ("body={q='KEY'}", "none of which holds a key"),
        ("body=KEY", "body must be a table"),
        ("body={api_key='KEY'", "body must be a table"),
        ("base_params={body={api_key='KEY'}}", "none of which holds a key"),
    ],
)
@pytest.mark.parametrize("key", ["sk-proj-12345678", "0123456789abcdef0123456789abcdef"])
def test_a_key_in_the_wrong_place_is_shown_nowhere(stsbench, card, tmp_path, assigned, named, key):
    given = assigned.replace("KEY", key)
    server = ("--set", "url=http://127.0.0.1:9/v1")
    refused = stsbench.refused("run", "--encoder", card, *server, "--set", given, *QUICK)
    if "'" not in given:
        in_name = stsbench.refused("run", "--encoder", f"{card}+{given}", *server, *QUICK)
        assert named in in_name and key not in in_name
    assert named in refused and "--set key_variable=NAME" in refused and key not in refused
    assert not any(key.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_a_card_that_holds_a_key_is_refused(stsbench, tmp_path):
    write(tmp_path / "own" / "baselines" / "ours.toml", CARD.replace("OUR_KEY", "sk-proj-12345678"))
    refused = stsbench.refused("show", "ours", "--cards", tmp_path / "own")
    assert "ours.toml: " in refused and "--set key_variable=NAME" in refused and "sk-proj" not in refused
