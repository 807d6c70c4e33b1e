"""The error tree, near names and one-line texts."""

from __future__ import annotations

import copy
import json

import pytest

from stsbench.core import errors
from stsbench.core.errors import DataError, Interrupted, StsbenchError, UnknownName, suggest
from stsbench.core.names import has_empty_name, split_names, split_params
from stsbench.core.wording import escape_controls
from stsbench.encoders.named import variant_name


def test_every_error_is_one_tree_and_is_drawn():
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    kinds = [
        kind for kind in classes if issubclass(kind, Exception) and not issubclass(kind, Warning)
    ]
    assert len(kinds) == 10
    for kind in kinds:
        assert issubclass(kind, StsbenchError)
        assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sts21", "; did you mean 'sts12'?"),
        ("STS12", "; did you mean 'sts12'?"),
        ("simcs", "; did you mean 'SimCSE'?"),
        ("quite-another", ""),
        ("", ""),
    ],
)
def test_near_names(name, near):
    assert suggest(name, ["sts12", "SimCSE"]) == near


@pytest.mark.parametrize(
    "sign",
    [
        "\0",
        "\a",
        "\b",
        "\r",
        "\x1b",
        "\x7f",
        "\x9b",
        "\u202e",
        "\u2066",
        "\u2028",
        "\udce9",
        "\ufffe",
    ],
)
def test_control_characters_are_written_out_as_json_would(sign):
    assert escape_controls(f"a{sign}b") == f"a\\u{ord(sign):04x}b"
    assert json.loads(f'"{escape_controls(sign)}"') == sign
    assert escape_controls(escape_controls(sign)) == escape_controls(sign)


def test_what_is_text_stays_as_it_is():
    text = "naïve café, 文, שלום, 👩‍🔬\ttab\n§†±–Δ° \\x"
    assert escape_controls(text) == text


# What is wrong, and what to do.


def test_a_hint_is_a_part_of_the_line():
    error = DataError("the file is empty", hint="fetch it again")
    assert str(error) == "the file is empty; fetch it again"
    assert (error.problem, error.hint) == ("the file is empty", "fetch it again")
    unknown = UnknownName("task", "stsbb", ["stsb"], hint="'stsbench list tasks' shows them")
    assert (
        str(unknown)
        == "unknown task 'stsbb'; did you mean 'stsb'?; 'stsbench list tasks' shows them"
    )
    assert unknown.problem == "unknown task 'stsbb'"
    assert str(UnknownName("task", "x", [])) == "unknown task 'x'"


def test_an_error_is_the_same_in_another_process():
    for error in (
        UnknownName("task", "stsbb", ["stsb"], hint="h"),
        DataError("a", hint="b"),
        Interrupted("c"),
    ):
        again = copy.copy(error)
        assert type(again) is type(error) and (str(again), vars(again)) == (str(error), vars(error))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        (" a , ,b,", ["a", "b"]),
        ("", []),
        ("a+views=['none', 'none'],b", ["a+views=['none', 'none']", "b"]),
        (
            "a+pooling=mean(1,-1),senteval(kfold=5,nhid=50)",
            ["a+pooling=mean(1,-1)", "senteval(kfold=5,nhid=50)"],
        ),
        ("a+x={'k': [1, 2]},b", ["a+x={'k': [1, 2]}", "b"]),
        ("a+note='x, y',b", ["a+note='x, y'", "b"]),
        ('a+note="x, y",b', ['a+note="x, y"', "b"]),
        ("it's,b's", ["it's", "b's"]),
        ("a[1,b", ["a[1", "b"]),
        ("a],b", ["a]", "b"]),
        ("a 'b,c", ["a 'b", "c"]),
        ("final [3f2a1b],other", ["final [3f2a1b]", "other"]),
        ("(" * 50_000 + "a,b", ["(" * 50_000 + "a", "b"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_comma_inside_brackets_or_quotes_is_part_of_a_name(text, parts):
    assert split_names(text) == parts


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"pooling": "max"},
        {"views": ["none", "none"]},
        {"dtype": "bfloat16", "pooling": "mean(1,-1)"},
        {"normalise": True, "k": 128, "rate": 1e-05},
        {"normalise": False, "prompt": "false"},
        {"fit": "target+ungraded", "base_params": {"max_length": 64}},
        {"model": "a/b"},
    ],
    ids=str,
)
def test_a_name_that_says_what_was_replaced_is_read_back(params):
    (name, changes) = list(split_params(variant_name("minilm", params)))[-1]
    assert (name, changes) == ("minilm", params)
    assert variant_name(name, changes) == variant_name("minilm", params)


@pytest.mark.parametrize(
    ("text", "gap"), [("a,,b", True), (",a", True), ("a, ", True), ("a,b", False), (",", False)]
)
def test_a_gap_in_a_list_is_seen(text, gap):
    assert has_empty_name(text) is gap


def test_a_parameter_that_is_no_literal_is_text():
    for text in ("{[]:1}", "{[1]}"):
        assert list(split_params(f"minilm+a={text}"))[-1] == ("minilm", {"a": text})
