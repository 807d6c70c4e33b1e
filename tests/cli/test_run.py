"""``stsbench run``: what it prints and keeps, and how it ends when something fails."""

from __future__ import annotations

import json
import os
import re

import pytest

from stsbench.cli.options import parse_assignments, parse_seeds
from stsbench.core.errors import StsbenchError
from stsbench.results.folder import read_states
from tests.cli.commands import HASHED, QUICK, make_own, one_line

BOTH = ("--tasks", "quickstart-en,quickstart-es-en")


def test_a_run_prints_a_table_and_keeps_results(stsbench, tmp_path):
    lines = stsbench.fine("run", *HASHED, *BOTH).splitlines()
    assert lines[0] == "hashed"
    assert lines[2].split() == ["task", "score", "95%", "interval", "n", "protocol"]
    assert lines[4].split()[0::3] == ["quickstart-en", "300"]
    method = "Fisher's z, with the covariance of pairs that share a sentence"
    assert " ".join(lines[-3:-1]) == f"scores are times 100; 95% interval: {method}"
    assert lines[-1] == "Results: results/hashed/"
    results = read_states(tmp_path / "results").results
    assert [r.task for r in results] == ["quickstart-en", "quickstart-es-en"]
    shown = f"{100 * results[0].score:.2f}"
    assert lines[4].split()[1] == shown
    low, high = results[0].interval
    assert lines[4].split()[2] == f"{100 * low:.2f}–{100 * high:.2f}"


def test_the_same_command_scores_nothing_again(stsbench, tmp_path):
    first = stsbench.fine("run", *HASHED, *QUICK)
    (path,) = (tmp_path / "results" / "hashed").glob("*.json")
    before = path.stat().st_mtime_ns
    assert stsbench.fine("run", *HASHED, *QUICK) == first
    assert path.stat().st_mtime_ns == before
    assert stsbench.fine("run", *HASHED, *QUICK, "--fresh") == first
    assert path.stat().st_mtime_ns > before
    one, again = json.loads(path.read_text()), stsbench.json("run", *HASHED, *QUICK)["results"][0]
    assert one == again


def test_seeds_protocols_and_parameters_make_cells_of_their_own(stsbench, tmp_path):
    run = ["run", *HASHED, *QUICK]
    stsbench.fine(*run, "--seeds", "0,1")
    stsbench.fine(*run, "--protocol", "wmean")
    stsbench.fine(*run, "--set", "size=16")
    results = read_states(tmp_path / "results").results
    assert sorted((r.encoder, r.protocol["name"], r.eval_seed) for r in results) == [
        ("hashed", "simcse", 0),
        ("hashed", "simcse", 1),
        ("hashed", "wmean", 0),
        ("hashed+size=16", "simcse", 0),
    ]


# Failures.


def test_a_run_goes_on_past_an_encoder_that_fails(stsbench, tmp_path):
    code, out, err = stsbench("run", "--encoder", "own_encoders:Broken,own_encoders:Hashed", *QUICK)
    assert code == 2
    assert one_line(err).startswith("hashed: encoder 'hashed' returned NaN or infinity for sentence ")
    assert "quickstart-en" in out
    assert len(read_states(tmp_path / "results").results) == 1


def test_a_run_goes_on_past_an_encoder_that_does_not_exist(stsbench):
    code, out, err = stsbench("run", "--encoder", "minilmm,own_encoders:Hashed", *QUICK, "--json")
    assert code == 2
    assert one_line(err).startswith("unknown encoder 'minilmm'; did you mean 'minilm'")
    assert json.loads(out)["failures"] == [one_line(err)]
    assert len(json.loads(out)["results"]) == 1


def test_data_that_cannot_be_had_are_told_once_for_all_encoders_and_seeds(stsbench, tmp_path):
    own = make_own(tmp_path)
    (own.data / "mine" / "gs.txt").unlink()
    run = ["run", "--encoder", "mine,own_encoders:Hashed", "--tasks", "both", "--seeds", "0,1", *own.options()]
    code, out, err = stsbench(*run)
    assert code == 2
    assert one_line(err).startswith("semeval: no data for semeval (test): it is local only; ")
    assert "data/mine/gs.txt" in one_line(err)
    assert [line.split()[0] for line in out.splitlines() if "±0" in line] == ["hashed", "mine"]


def test_a_bug_in_a_users_encoder_keeps_its_traceback(stsbench, tmp_path, own):
    alone = stsbench("run", "--encoder", "own_encoders:Bug", *QUICK)
    assert (alone.code, alone.out) == (3, "")
    assert "ZeroDivisionError: a bug of the user's" in alone.err
    assert alone.err.splitlines()[-1].startswith("stsbench: this is a bug, in stsbench or in your own code")
    code, out, err = stsbench("run", "--encoder", "own_encoders:Bug,own_encoders:Hashed", *QUICK)
    assert code == 3
    # None of our own frames stand before the user's.
    for told in (alone.err, err):
        frames = [line for line in told.splitlines() if line.lstrip().startswith('File "')]
        assert len(frames) == 1 and "own_encoders.py" in frames[0]
    assert "Traceback" in err and err.splitlines()[-1] == "stsbench: hashed: a bug of the user's"
    assert "quickstart-en" in out


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("own_encoders:Nope", "encoder kind 'own_encoders:Nope': module 'own_encoders' has no 'Nope'"),
        ("no_such_module:Nope", "encoder kind 'no_such_module:Nope': no module named 'no_such_module'; is it installe"),
        ("own_encoders:Nameless", "encoder 'own_encoders:Nameless': Nameless has no 'name'; an encoder needs name, "),
        ("own_encoders:NUMBER", "encoder kind 'own_encoders:NUMBER' is of type int; give a class with encode"),
        ("own_encoders:np", "encoder kind 'own_encoders:np' is of type module; give a class with enc"),
        (":Hashed", "encoder kind ':Hashed' is not the address of an object; give package.module:Name"),
        ("gone.toml", "card 'gone.toml' does not exist"),
        ("./gone", "checkpoint folder './gone' does not exist"),
        ("x" * 290, "unknown encoder 'xxx"),
    ],
)
def test_what_is_no_encoder_is_one_line(stsbench, spec, message):
    refused = stsbench.refused("run", *QUICK, "--encoder", spec)
    assert refused.removeprefix(f"{spec}: ").startswith(message)


def test_set_on_a_card_names_the_card_and_on_what_is_made_is_refused(stsbench, tmp_path):
    own = make_own(tmp_path)
    run = ["run", "--tasks", "table", *own.options(), "--set", "sise=3", "--encoder"]
    message = f"mine: {own.cards}/baselines/mine.toml: [params] and --set: unknown key 'sise'; did you mean 'size'?"
    assert stsbench.refused(*run, "mine") == message
    assert "is made already; it takes no parameters (sise)" in stsbench.refused(*run, "own_encoders:ready")


def test_assignments_are_toml_or_text():
    found = parse_assignments(["a=1", "b=true", "c=cls", "d='x,y'", "e=[1, 2]", "f=a=b", "g=", "h=" + "9" * 5000])
    assert found == {"a": 1, "b": True, "c": "cls", "d": "x,y", "e": [1, 2], "f": "a=b", "g": "", "h": "9" * 5000}
    assert parse_seeds("0, 2,1") == [0, 2, 1]
    with pytest.raises(StsbenchError):
        parse_seeds("1;2")


@pytest.mark.parametrize("option", ["--results", "--store"])
@pytest.mark.parametrize("below", ["file/results", "/proc/nothing/results"])
def test_a_folder_that_cannot_be_written_is_one_line(stsbench, tmp_path, option, below):
    # Tests may run as root, whom no permission stops: a folder below a file stops all.
    (tmp_path / "file").write_text("in the way")
    error = stsbench.refused("run", *QUICK, *HASHED, option, below)
    assert below.split("/results")[0] in error
    assert "cannot be" in error


def test_a_full_disk_is_one_line(stsbench, monkeypatch):
    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert stsbench.refused("run", *QUICK, *HASHED).endswith("the disk is full; free some space and run again")


# What a run would do.


def test_a_dry_run_shows_what_is_done_and_missing(stsbench, tmp_path):
    run = ["run", *HASHED, *BOTH, "--dry-run"]
    lines = stsbench.fine(*run, "--seeds", "0,1").splitlines()
    assert lines[0].split() == ["encoder", "task", "protocol", "seeds", "done", "missing"]
    assert lines[2].split() == ["hashed", "quickstart-en", "simcse", "0,1"]
    assert "0 of 4 scores are done, 4 are missing" in lines
    assert re.fullmatch(r"hashed +800 +[\d.]+ s +–", lines[-3].strip()) and lines[-2] == "–: not measured yet"
    assert re.fullmatch(r"In all about [\d.]+ s and what is not measured, by one worker on this machine", lines[-1])
    assert not (tmp_path / "results").exists()
    stsbench.fine("run", *HASHED, *QUICK)
    lines = stsbench.fine(*run, "--seeds", "0,1").splitlines()
    assert lines[2].split() == ["hashed", "quickstart-en", "simcse", "0", "1"]
    assert "1 of 4 scores are done, 3 are missing" in lines
    assert (
        stsbench.fine("run", *HASHED, *QUICK, "--dry-run").splitlines()[-1] == "1 of 1 scores are done, 0 are missing"
    )
    ready = stsbench.fine("run", "--encoder", "own_encoders:ready", *QUICK, "--dry-run").splitlines()[-2]
    assert re.fullmatch(r"ready-made +\d+ +[\d.]+ s +[\d.]+ s *", ready)


def test_a_dry_run_as_json_and_its_failures(stsbench):
    code, out, err = stsbench("run", "--encoder", "minilmm,own_encoders:Hashed", *QUICK, "--dry-run", "--json")
    assert code == 2 and one_line(err).startswith("unknown encoder 'minilmm'")
    found = json.loads(out)
    assert found["failures"] == [one_line(err)]
    (hashed,) = found["encoders"]
    cell = {"encoder": "own_encoders:Hashed", "task": "quickstart-en", "protocol": "simcse", "seed": 0}
    assert (hashed["name"], hashed["done"], hashed["missing"], hashed["seconds"]) == ("hashed", [], [cell], None)


# Names.


def test_a_name_of_ones_own_is_what_results_tables_and_the_next_commands_have(stsbench, tmp_path):
    out = stsbench.fine("run", *HASHED, *QUICK, "--name", "ours")
    assert out.splitlines()[0] == "ours"
    (result,) = read_states(tmp_path / "results").results
    assert result.encoder == "ours" and (tmp_path / "results" / "ours").is_dir()
    stsbench.fine("run", "own_encoders:ready,own_encoders:Hashed", *QUICK, "--name", "first,second")
    assert {r.encoder for r in read_states(tmp_path / "results").results} == {"ours", "first", "second"}
    assert "| second |" in stsbench.fine("leaderboard", "--suite", "quickstart", "--format", "markdown")
    assert stsbench.json("run", *HASHED, *QUICK, "--name", "ours")["results"][0]["run"] == result.run
