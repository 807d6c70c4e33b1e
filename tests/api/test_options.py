"""Each option of a command is an argument of the function that Python users call."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import stsbench
from stsbench.api.calls import leaderboard
from stsbench.bench.iteration import iterate
from stsbench.cli.app import make_app
from stsbench.core.errors import CardError, StsbenchError, UnknownName
from tests.cli.commands import Command
from tests.encoders.fakes import Plain
from tests.made import make_result

FUNCTIONS: dict[str, Any] = {
    "run": stsbench.evaluate,
    "compare": stsbench.compare,
    "leaderboard": leaderboard,
    "train": stsbench.train,
}
ARGUMENTS = {"assign": "params", "cards": "catalogue", "names": "name", "license_name": "license"}
"""The arguments with another name than the parameter of the command."""
DRAWN = "an argument of the object's `plot`"
LATEX = "belongs to LaTeX, which the object's `to_latex` writes"
PRINTED = "the function returns an object with methods for it"
WRITTEN = "the function writes no results; Results.save does"
WORKERS = "work is distributed over processes that write into a results folder"
NOT_IN_PYTHON: dict[str, dict[str, str]] = {
    "run": {
        "encoders": "the argument of --encoder, which is `encoder`",
        "similarities": "a file is a name, 'similarities:scores.npy', in place of an encoder",
        "variants": "each variant is a name, 'minilm+dimensions=64', in a list of encoders",
        "plot": PRINTED,
        "width": DRAWN,
        "verbose": PRINTED,
        "bare": PRINTED,
        "as_json": PRINTED,
        "dry_run": "a forecast compares with the results of a folder",
        "results": WRITTEN,
        "fresh": WRITTEN,
        "clean": "a clean score is added to the results of a folder",
        "near": "belongs to clean",
        "corpora": "belongs to clean",
        "no_store": "store=None",
        "on": WORKERS,
        "devices": WORKERS,
        "gpus_per_encoder": WORKERS,
        "timeout": WORKERS,
        "_config": "a settings file gives the defaults of commands",
    },
    "compare": {
        "output": PRINTED,
        "out": PRINTED,
        "plot": PRINTED,
        "width": DRAWN,
        "as_json": PRINTED,
        "_config": "a settings file gives the defaults of commands",
    },
    "leaderboard": {
        "encoder": "`encoders`: it takes several",
        "width": DRAWN,
        "max_lines": LATEX,
        "intervals": LATEX,
        "output": PRINTED,
        "out": PRINTED,
        "as_json": PRINTED,
        "_config": "a settings file gives the defaults of commands",
    },
    "train": {
        "seeds": "a call returns one encoder, of one seed: `seed`",
        "yes": "nobody is asked",
        "dry_run": "it prints an estimate and trains nothing",
        "as_json": PRINTED,
        "on": WORKERS,
        "devices": WORKERS,
        "_config": "a settings file gives the defaults of commands",
    },
}
"""The parameters of commands that have no argument of their own, each with the reason."""


@pytest.mark.parametrize("command", FUNCTIONS)
def test_every_option_is_an_argument_or_has_a_reason(command):
    commands: Any = make_app()
    parameters = {parameter.name for parameter in commands.commands[command].load().params}
    arguments = set(inspect.signature(FUNCTIONS[command]).parameters)
    missing = {name for name in parameters if ARGUMENTS.get(name, name) not in arguments}
    assert missing == set(NOT_IN_PYTHON[command])


def test_a_wrong_argument_lists_those_that_there_are():
    function: Any = iterate
    with pytest.raises(UnknownName, match="did you mean 'seed' or 'seeds'.*known: encoder, tasks"):
        function("minilm", "quickstart-en", sed=1)
    compare: Any = stsbench.compare
    with pytest.raises(UnknownName, match="argument of compare 'encoders'; known: results, tasks"):
        compare("a", "b", encoders=1)
    pairs: Any = stsbench.evaluate_pairs
    with pytest.raises(UnknownName, match="argument of evaluate_pairs 'ordr'; did you mean 'order"):
        pairs(lambda first, second: 1.0, "quickstart-en", ordr="both")
    results: Any = stsbench.Results([make_result()])
    for method in (results.compare, results.plot, results.to_frame):
        with pytest.raises(UnknownName, match="unknown argument of Results.* 'foo'; known: "):
            method(foo=1)


def test_a_wrong_parameter_lists_those_that_there_are():
    with pytest.raises(CardError, match="unknown key 'poling'; did you mean 'pooling'.*known: "):
        stsbench.load_encoder("minilm", params={"poling": "cls"})


def test_evaluate_replaces_parameters_and_takes_several_seeds():
    results = stsbench.evaluate(
        "minilm", "quickstart-probe", params={"pooling": "cls"}, seeds=[0, 1], store=None
    )
    assert [result.eval_seed for result in results] == [0, 1]
    assert {result.encoder for result in results} == {"minilm+pooling=cls"}
    with pytest.raises(StsbenchError, match="params replace those of a card"):
        stsbench.evaluate(Plain(), "quickstart-en", params={"pooling": "cls"})


def test_a_board_has_the_rows_that_are_chosen_and_added(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tasks = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
    results = [
        make_result(encoder, task, score=score)
        for encoder, score in [("one", 0.5), ("two", 0.6), ("three", 0.7)]
        for task in tasks
    ]
    stsbench.Results(results).save("results")
    chosen = ["--encoder", "one,two", "--add", "two:Ours", "--rows-only", "--format", "latex"]
    printed = Command(capsys)("leaderboard", "--table", "simcse-5", *chosen).out
    board = leaderboard(
        results, table="simcse-5", encoders=["one", "two"], add="two:Ours", rows_only=True
    )
    assert "Ours & 60.00" in printed
    assert board.to_latex() == printed
    assert "three" not in leaderboard(results, encoders="one,two").to_markdown()
    with pytest.raises(UnknownName, match="unknown encoder 'four'"):
        leaderboard(results, add="four")


def test_the_schema_is_that_of_a_file(tmp_path, capsys):
    import json

    (path,) = stsbench.Results([make_result("one", "sts12", score=0.5)]).save(tmp_path)[:1]
    schema = json.loads(Command(capsys)("show", "schema").out)["$defs"]["Result"]
    fields = json.loads(path.read_text())
    assert set(schema["required"]) <= set(fields) <= set(schema["properties"])
    assert schema["additionalProperties"] is False
