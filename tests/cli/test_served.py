"""Runs with an encoder behind a server: what is forecast, what is paid for, and what results say."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stsbench.encoders.served import client
from tests.cli.commands import QUICK, write
from tests.encoders.served.server import serving

CARD = (
    'name = "Ours"\nkind = "openai"\nmethod = "none"\nbackbone = "none"\nsupervision = "pairs"\noverlap = "unknown"\n'
    'paper = "none"\nlicense = "none"\nparams = {model = "m", batch = 16, key_variable = "OUR_KEY", retries = 1}\n'
)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.001)
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
        assert (
            len(server.texts) == forecast["to_embed"]
            and len(server.again) < len(server.answered) + 2
        )
    assert "ours" in out
    (path,) = (tmp_path / "results" / "ours").glob("*.json")
    notes = json.loads(path.read_text())["notes"]
    assert any("which weights those are is not known" in note for note in notes)
    # The server is gone: all is there, for what is made of these embeddings too.
    stsbench.fine(*run, "--fresh")
    stsbench.fine(*run, "--set", "embeddings=int8", "--set", "calibration=quickstart-en.test")
    (path,) = (tmp_path / "results").glob("ours+*/*.json")
    assert any(
        "which weights those are is not known" in note
        for note in json.loads(path.read_text())["notes"]
    )
    written = {
        file: file.read_bytes() for file in (tmp_path / "results").rglob("*") if file.is_file()
    }
    assert not any(b"sk-secret" in content for content in written.values())
    assert not any(
        b"127.0.0.1" in content for file, content in written.items() if file.parent.name == "ours"
    )


def test_a_server_that_changes_is_one_line_and_the_next_run_believes_nothing_of_before(
    stsbench, card, tmp_path
):
    with serving(key="sk-secret-1234") as server:
        run = ["run", "--encoder", card, "--set", f"url={server.url}"]
        stsbench.fine(*run, "--tasks", "quickstart-es-en")
        counted = count(1)

        def change(answer: Any) -> Any:
            rows = [{**row, "embedding": row["embedding"][::-1]} for row in answer["data"]]
            return {"data": rows} if next(counted) > 10 else answer

        server.fail(change=change)
        refused = stsbench.refused(*run, *QUICK)
        assert refused.startswith(
            f"ours: the server at {server.url} embeds a text otherwise when it is asked for again ("
        )
        assert refused.endswith(
            "nothing that it gave before counts any more: run again, with --set batch=1 if this comes again"
        )
        assert len(list((tmp_path / "results" / "ours").glob("quickstart-en.*"))) == 0
        embedded = len(server.texts)
        stsbench.fine(*run, "--tasks", "quickstart-en,quickstart-es-en")
        # The task that was scored by the model of before is scored again.
        assert "0 of 2 cells known" in stsbench.progress[0] and len(server.texts) > embedded
    results = [
        json.loads(path.read_text()) for path in (tmp_path / "results" / "ours").glob("*.json")
    ]
    assert len(results) == 3 and len({result["fingerprint"] for result in results}) == 2


@pytest.mark.parametrize(
    ("assigned", "named"),
    [
        ("key_variable=KEY", "key_variable names no environment variable"),
        ("body={api_key='KEY'}", "body must be a table of fields, none of which holds a key"),
        ("body={auth={value='KEY'}}", "none of which holds a key"),
        ("body={q='KEY'}", "none of which holds a key"),
        ("body=KEY", "body must be a table"),
        ("body=['KEY']", "body must be a table"),
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
    assert not any(
        key.encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()
    )


def test_a_card_that_holds_a_key_is_refused(stsbench, tmp_path):
    write(tmp_path / "own" / "baselines" / "ours.toml", CARD.replace("OUR_KEY", "sk-proj-12345678"))
    refused = stsbench.refused("show", "ours", "--cards", tmp_path / "own")
    assert (
        "ours.toml: " in refused
        and "--set key_variable=NAME" in refused
        and "sk-proj" not in refused
    )
