"""The text around a sentence."""

from __future__ import annotations

import pytest

from stsbench.encoders.transformer.prompt import Prompt


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (Prompt(), "a dog"),
        (Prompt("query: "), "query: a dog"),
        (Prompt("{} and {"), "{} and {a dog"),
        (Prompt(template="so {} it is"), "so a dog it is"),
        (Prompt(template="{}"), "a dog"),
        (Prompt("the ", add_full_stop=True), "the a dog."),
        (Prompt(template='"{}" means', add_full_stop=True), '"a dog." means'),
    ],
)
def test_text_goes_around_a_sentence(prompt, expected):
    assert list(prompt.around(["a dog"])) == [expected]


def test_a_full_stop_where_promptberts_evaluation_adds_one():
    ended = ["a dog.", "a dog?", 'a "dog"', "a 'dog'", ""]
    assert Prompt(add_full_stop=True).around(ended) == ended
    others = ["a dog", "a dog!", "a dog ", "a dog\u2019"]
    assert Prompt(add_full_stop=True).around(others) == [f"{other}." for other in others]


def test_the_facts_are_those_that_fingerprints_have_always_held():
    assert Prompt().facts() == ["", "{}"]
    assert Prompt("a {b}").facts() == ["a {b}", "a {{b}}{}"]
    assert Prompt(template="x {} y", add_full_stop=True).facts() == ["", "x {} y", "add_full_stop"]


def test_a_sentence_may_stand_twice():
    prompt = Prompt(template="again: {}, {}")
    assert prompt.places == 2 and Prompt("a ").places == 1
    assert prompt.around(["a dog", "{}"]) == ["again: a dog, a dog", "again: {}, {}"]
