"""The error tree, near names and one-line texts."""

import copy
import json

import pytest

from stsbench import errors
from stsbench.errors import DataError, Stopped, StsbenchError, UnknownName, did_you_mean, one_line, visible


def test_every_error_is_one_tree_and_is_drawn():
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, Exception)]
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
    assert did_you_mean(name, ["sts12", "SimCSE"]) == near


def test_at_most_three_near_names_the_nearest_first():
    assert did_you_mean("sts1", ["sts11", "sts1x", "sts112", "sts1234"]) == (
        "; did you mean 'sts1x' or 'sts11' or 'sts112'?"
    )


def test_unknown_name_says_kind_name_near_names_and_what_to_do():
    error = UnknownName("task", "stsbb", ["stsb", "mr"], hint="'stsbench list tasks' lists them")
    assert str(error) == "unknown task 'stsbb'; did you mean 'stsb'?; 'stsbench list tasks' lists them"
    assert (error.kind, error.name) == ("task", "stsbb")
    assert str(UnknownName("task", "stsbb", [])) == "unknown task 'stsbb'"


def test_one_line():
    assert one_line("a\n  b\t\u2028c\r\n") == "a b c"
    assert one_line(ValueError("two\nlines")) == "two lines"


@pytest.mark.parametrize(
    "sign", ["\0", "\a", "\b", "\r", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\udce9", "\ufffe"]
)
def test_control_characters_are_written_out_as_json_would(sign):
    assert visible(f"a{sign}b") == f"a\\u{ord(sign):04x}b"
    assert json.loads(f'"{visible(sign)}"') == sign
    assert visible(visible(sign)) == visible(sign)


def test_what_is_text_stays_as_it_is():
    text = "naïve café, 文, שלום, 👩‍🔬\ttab\n§†±–Δ° \\x"
    assert visible(text) == text


# What is wrong, and what to do.


def test_a_hint_is_a_part_of_the_line():
    error = DataError("the file is empty", hint="fetch it again")
    assert (str(error), error.problem, error.hint) == (
        "the file is empty; fetch it again",
        "the file is empty",
        "fetch it again",
    )
    unknown = UnknownName("task", "stsbb", ["stsb"], hint="'stsbench list tasks' shows them")
    assert str(unknown) == "unknown task 'stsbb'; did you mean 'stsb'?; 'stsbench list tasks' shows them"
    assert unknown.problem == "unknown task 'stsbb'"
    assert str(UnknownName("task", "x", [])) == "unknown task 'x'"


def test_an_error_is_the_same_in_another_process():
    for error in (UnknownName("task", "stsbb", ["stsb"], hint="h"), DataError("a", hint="b"), Stopped("c")):
        again = copy.copy(error)
        assert type(again) is type(error) and (str(again), vars(again)) == (str(error), vars(error))
