"""Comma lists, and names that say which parameters were replaced."""

from __future__ import annotations

import pytest

from stsbench.cards.names import has_gap, split_names, variants
from stsbench.encoders.known import variant_name


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        (" a , ,b,", ["a", "b"]),
        ("", []),
        ("a+views=['none', 'none'],b", ["a+views=['none', 'none']", "b"]),
        ("a+pooling=mean(1,-1),senteval(kfold=5,nhid=50)", ["a+pooling=mean(1,-1)", "senteval(kfold=5,nhid=50)"]),
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
        {"fit": "target+ungraded", "base_params": {"max_length": 64}},
        {"model": "a/b"},
    ],
    ids=str,
)
def test_a_name_that_says_what_was_replaced_is_read_back(params):
    (name, changes) = list(variants(variant_name("minilm", params)))[-1]
    assert (name, changes) == ("minilm", params)
    assert variant_name(name, changes) == variant_name("minilm", params)


@pytest.mark.parametrize(("text", "gap"), [("a,,b", True), (",a", True), ("a, ", True), ("a,b", False), (",", False)])
def test_a_gap_in_a_list_is_seen(text, gap):
    assert has_gap(text) is gap
