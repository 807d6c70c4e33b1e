"""Which column is which, where names tell and where only the content does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stsbench.core.errors import DataError
from stsbench.data.readers.sentences import Roles
from stsbench.data.readers.table import ColumnKey
from stsbench.data.recognise import DataColumn, decide, has_header

LEFT = ["a cat sat here", "the dog ran off", "it rains again", "no sun today", "we go home", "they eat lunch"]
RIGHT = ["one cat was sitting", "a dog ran", "rain again", "clouds all day", "home we go", "lunch is eaten"]


def roles(named: dict[ColumnKey, Sequence[str]], **given: ColumnKey) -> tuple[Roles, Sequence[str]]:
    found = decide([DataColumn(key, cells) for key, cells in named.items()], given, where="t")
    return found.roles, found.unsure


FRACTIONS = ["0.5", "4.25", "3", "2.0", "1.1", "5"]
BINARY = ["0", "1", "1", "0", "1", "0"]
WHOLE = ["0", "5", "3", "2", "3", "0"]
NAMES = ["no", "yes", "maybe", "no", "yes", "no"]
IDS = ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("columns", "expected", "unsure"),
    [
        ({"s1": LEFT, "s2": RIGHT, "score": FRACTIONS}, Roles(("s1", "s2"), "score", True), []),
        # GLUE calls STS-B's scores a label, and numbers the rows.
        ({"sentence1": LEFT, "sentence2": RIGHT, "label": FRACTIONS, "idx": IDS}, Roles(("sentence1", "sentence2"), "label", True), []),
        ({"text": LEFT, "label": ["v", "w", "x", "y", "z", "u"]}, Roles(("text",), "label", False), []),
        (
            {"s1": LEFT, "s2": RIGHT, "label": NAMES, "score": FRACTIONS},
            Roles(("s1", "s2"), "score", True),
            ["columns 'label', 'score' may be what is scored: 'score' is taken"],
        ),
        ({"premise": LEFT, "hypothesis": RIGHT, "label": NAMES}, Roles(("premise", "hypothesis"), "label", False), []),
        ({"s1": LEFT, "s2": RIGHT, "label": WHOLE}, Roles(("s1", "s2"), "label", False), []),
        ({"text": LEFT, "label": BINARY, "id": IDS}, Roles(("text",), "label", False), []),
        # Nothing is called anything.
        ({0: IDS, 1: LEFT, 2: RIGHT, 3: FRACTIONS}, Roles((1, 2), 3, True), ["columns 1, 2: taken for the sentences"]),
        ({0: NAMES, 1: LEFT}, Roles((1,), 0, False), ["column 1: taken for the sentence", "column 0 is taken for what is scored, by what it holds"]),
        ({"u": LEFT, "v": RIGHT, "w": BINARY}, Roles(("u", "v"), "w", False), ["columns 'u', 'v': taken for the sentences"]),
        (
            {"s1": LEFT, "s2": RIGHT, "w": WHOLE},
            Roles(("s1", "s2"), "w", True),
            ["column 'w' holds only whole numbers: taken for scores, they may be classes"],
        ),
        (
            {"s1": LEFT, "s2": RIGHT, "v": WHOLE, "w": FRACTIONS},
            Roles(("s1", "s2"), "w", True),
            ["columns 'w', 'v' may be what is scored: 'w' is taken"],
        ),
        (
            {"text": LEFT, "topic": NAMES, "kind": NAMES[::-1]},
            Roles(("text",), "topic", False),
            ["columns 'topic', 'kind' may be what is scored: 'topic' is taken"],
        ),
        (
            {"s1": LEFT, "s2": RIGHT, "score": BINARY},
            Roles(("s1", "s2"), "score", True),
            ["column 'score' holds only whole numbers: taken for scores, they may be classes"],
        ),
        (
            {"t": LEFT, "u": RIGHT, "short": ["x y"] * 5 + ["z y"], "more": [f"{one} and so on" for one in LEFT], "w": FRACTIONS},
            Roles(("t", "more"), "w", True),
            ["columns 't', 'more' of the 3 columns of text: taken for the sentences"],
        ),
    ],
)  # fmt: skip
def test_roles_by_names_and_content(columns, expected, unsure):
    assert roles(columns) == (expected, unsure)


def test_what_the_user_says_is_not_doubted():
    columns: dict[ColumnKey, Sequence[str]] = {"u": LEFT, "v": RIGHT, "w": WHOLE, "x": FRACTIONS}
    assert roles(columns, sentence1="v", sentence2="u", label="w") == (Roles(("v", "u"), "w", False), [])
    assert roles(columns, sentence="u", label="w") == (Roles(("u",), "w", False), [])


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        ({"u": WHOLE, "v": FRACTIONS}, {}, r"t: no column holds sentences \(has u, v\); name them with --columns sentence1=NAME"),
        ({"text": LEFT, "id": IDS}, {}, r"t: no column holds scores or labels \(has text, id\); name it with --columns gold=NAME"),
        ({"text": LEFT, "label": BINARY}, {"gold": "label"}, "t: one sentence has no gold score"),
        ({"u": LEFT, "v": RIGHT}, {"sentence1": "u"}, "t: one sentence of the pair is given"),
    ],
)  # fmt: skip
def test_what_fits_nothing_is_told(columns, given, message):
    with pytest.raises(DataError, match=message):
        roles(columns, **given)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["s1", "s2", "w"], ["a", "b", "1"]], True),
        ([["u", "v"], ["a b", "1"], ["c d", "2"]], True),
        ([["", "u", "v"], ["0", "a b", "x"], ["1", "c d", "x"]], True),
        ([["u", "v"], ["a b", "no"], ["c d", "yes"], ["e f", "no"], ["g h", "yes"]], True),
        ([["a b", "no"], ["c d", "yes"], ["e f", "no"], ["g h", "yes"]], False),
        # 'positive' is a usual name of a column, and here a label.
        ([["a b", "positive"], ["c d", "positive"], ["e f", "negative"]], False),
        ([["a b", "c d", "1"], ["e f", "g h", "2"]], False),
        ([["s1", "s2"]], True),
        ([["a b", "c d"]], False),
        ([["a b", "c d"], ["e f", "g h"]], False),
    ],
)
def test_whether_the_first_line_names_the_columns(rows, expected):
    assert has_header(rows) is expected
