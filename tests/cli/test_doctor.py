"""``stsbench doctor``: what is here, and what of a Hub on the loopback interface works; no folder and no token in it."""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from stsbench.cli import hub_check as hub_trial
from stsbench.cli.doctor import EXTRAS
from stsbench.cli.hub_check import STEPS, HubCheck
from tests import hub_server
from tests.cli.commands import HEAD, Command, make_own, write
from tests.hub_files import ROWS, jsonl, tiny_bert
from tests.hub_server import Hub, unplug

hub = hub_server.hub
COMMIT = "7" * 40


@pytest.fixture
def trial(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubCheck:
    """A small checkpoint and a task of three pairs on the Hub; the score is what they give."""
    hub.add("model", "owner/bert", tiny_bert(), pinned=COMMIT)
    hub.add("dataset", "owner/pairs", {"test.jsonl.gz": jsonl(ROWS)}, pinned=COMMIT)
    card = f'{HEAD}[splits.test]\nn = 3\n[hub]\nrepo = "owner/pairs"\nrevision = "{COMMIT}"\nsplits = {{test = "test"}}\n'
    write(tmp_path / "cards" / "tasks" / "three.toml", card)
    hub_check = HubCheck(
        model="owner/bert",
        revision=COMMIT,
        sentence="A the",
        ids=(2, 5, 33, 3),
        published={"three": 50.0},
    )
    monkeypatch.setattr(hub_trial, "minilm_check", lambda: hub_check)
    return hub_check


def steps(stsbench: Command, code: int = 2) -> dict[str, tuple[str, str]]:
    done = stsbench("doctor", "--hub", "--cards", "cards", "--json")
    assert (done.code, done.err) == (code, "")
    return {
        step["step"]: (step["verdict"], step["detail"]) for step in json.loads(done.out)["steps"]
    }


def test_all_is_fine(stsbench, trial, monkeypatch, tmp_path):
    verdicts = steps(stsbench)
    assert {step for step, (verdict, _) in verdicts.items() if verdict == "fine"} == {*STEPS} - {
        "score"
    }
    score = float(verdicts["score"][1].split()[1])
    monkeypatch.setattr(
        hub_trial, "minilm_check", lambda: replace(trial, published={"three": score})
    )
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijk")
    verdicts = steps(stsbench, 0)
    assert {verdict for verdict, _ in verdicts.values()} == {"fine"}
    assert verdicts["Hub"][1] == f"answers, with a token; owner/bert is at {COMMIT[:12]}"
    assert verdicts["device"][1] == "6 sentences embedded on cpu"
    assert verdicts["store"][1] == "all 6 embeddings are found again"
    shown = stsbench("doctor", "--hub", "--cards", "cards").out
    assert "no problems found" in shown and "hf_abc" not in shown and str(tmp_path) not in shown
    assert "STSBENCH_CHECKPOINTS=HUB_CACHE pytest -m slow tests/test_checkpoint_anchors.py" in shown
    assert list((tmp_path / "stsbench").glob("doctor-*")) == []


def test_the_hub_is_down(stsbench, trial, monkeypatch):
    unplug(monkeypatch)
    verdicts = steps(stsbench)
    assert verdicts["Hub"][0] == "failed" and "cannot reach the Hub" in verdicts["Hub"][1]
    assert {verdict for step, (verdict, _) in verdicts.items() if step != "Hub"} == {"not tried"}


BROKEN: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "weights": (
        {"part": "model.safetensors", "wrong_bytes": True, "methods": ("GET",)},
        {"checkpoint": "damaged", "tokenizer": "needs checkpoint", "device": "needs checkpoint"},
    ),
    "rows": (
        {"part": "test.jsonl.gz", "wrong_bytes": True, "methods": ("GET",)},
        {"data": "damaged"},
    ),
    "refused": (
        {"part": "owner/pairs", "status": 403, "code": "GatedRepo"},
        {"data": "owner/pairs"},
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_and_the_other_steps_are_taken(stsbench, trial, hub, case, tmp_path):
    fault, says = BROKEN[case]
    hub.fail(**fault)
    verdicts = steps(stsbench)
    for step, text in says.items():
        assert verdicts[step][0] != "fine" and text in verdicts[step][1]
        assert str(tmp_path) not in verdicts[step][1] and "\n" not in verdicts[step][1]
    other = "data" if case == "weights" else "tokenizer"
    assert verdicts[other][0] == "fine" and verdicts["score"] == ("not tried", "needs device")


def test_the_real_trial_is_of_tasks_that_the_hub_has():
    from stsbench.core.catalogue import Catalogue

    trial, catalogue = hub_trial.minilm_check(), Catalogue()
    assert trial.published == pytest.approx({"sts17-en-en": 87.5878, "stsb-raw": 82.0325})
    for name in trial.published:
        source = catalogue.task(name).hub
        assert source is not None and len(source.revision) == 40


def test_what_is_here(stsbench, tmp_path, monkeypatch):
    own = make_own(tmp_path)
    call = ("doctor", *own.options())
    facts = stsbench.json(*call)
    assert facts["problems"] == []
    (both,) = [suite for suite in facts["data"] if suite["suite"] == "both"]
    assert both == {"suite": "both", "found": 2, "missing": 0, "wrong": 0}
    assert {version["package"] for version in facts["versions"]} >= {
        "python",
        "torch",
        "transformers",
        "huggingface-hub",
    }
    assert facts["devices"][0]["device"] == "processor"
    monkeypatch.setenv("STSBENCH_VECTORS", str(tmp_path / "nowhere"))
    (own.data / "mine" / "table.tsv").write_text("else")
    (own.data / "mine" / "in.txt").unlink()
    done = stsbench(*call, "--json")
    facts = json.loads(done.out)
    (both,) = [suite for suite in facts["data"] if suite["suite"] == "both"]
    assert done.code == 2 and both["wrong"] == 2 and str(tmp_path) not in done.out
    assert "semeval: in.txt is missing" in facts["problems"]
    assert any(
        p.startswith("table: table.tsv: differs from the file that its card names")
        for p in facts["problems"]
    )
    folders = {folder["folder"]: folder["state"] for folder in facts["folders"]}
    assert folders["STSBENCH_VECTORS"] == "set to a folder that does not exist"
    shutil.rmtree(own.data / "mine")
    (both,) = [suite for suite in stsbench.json(*call)["data"] if suite["suite"] == "both"]
    assert both["missing"] == 2


def test_every_extra_says_what_it_is_for():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {*EXTRAS} == project["optional-dependencies"].keys() - {"docs", "test"}


def test_versions_out_of_range_and_extras_that_are_missing_are_told(stsbench, monkeypatch):
    from stsbench.cli import doctor as diagnosis

    asked = ["numpy>=99", "nowhere>=1", "rich>=1; extra == 'test'"]
    monkeypatch.setattr(metadata, "requires", lambda package: asked)
    monkeypatch.setattr(diagnosis, "EXTRAS", {"use": ("no_such_package", "its purpose")})
    done = stsbench("doctor")
    assert done.code == 2 and max(map(len, done.out.splitlines())) <= 120
    assert "is not >=99" in done.out and "problem: nowhere missing is not >=1" in done.out
    assert "use     its purpose" in done.out
