"""What a program passes to the public functions: a mistake is one line, before anything is done."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core import registry as arguments
from stsbench.core.errors import StsbenchError
from stsbench.core.registry import NAMES, PLACE, SEED, checked


@checked(tasks=NAMES, seed=SEED, out=PLACE)
def work(tasks: str | Sequence[str], *, seed: int = 0, out: Path | None = None) -> tuple[object, ...]:
    """Do it."""
    return tasks, seed, out


call: Any = work
"""For calls that types refuse."""


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("NAME", ["", "a"], [3, None, b"a", Path("a"), ["a"]]),
        ("NAMES", ["a,b", ["a"], ("a", "b"), []], [3, None, {"a"}, [3], b"ab", iter("ab")]),
        ("PLACE", ["a", Path("a")], [3, None, b"a", ["a"]]),
        ("PLACES", ["a", Path("a"), [], ["a", Path("b")]], [3, None, [3], {"a"}]),
        ("STORE", ["a", Path("a"), None], [3, True, ["a"]]),
        ("NAME_OR_PLACE", ["a", Path("a")], [3, None]),
        ("SEED", [0, 3, np.int64(3), (1 << 32) - 1], [-1, 1 << 32, True, 1.0, "1", None]),
        ("SWITCH", [True, False], [1, 0, "yes", None]),
        ("PARAMETERS", [{}, {"a": 1}], [[("a", 1)], "a=1", {1: 2}, None]),
        ("FUNCTION", [len, str, lambda: 3], ["len", 3, None]),
    ],
)
def test_each_kind_takes_its_own_and_nothing_else(kind, good, bad):
    accepts = getattr(arguments, kind).accepts
    assert [one for one in good if not accepts(one)] == []
    assert [one for one in bad if accepts(one)] == []


def test_what_is_right_goes_through_as_it_is():
    assert work("a") == ("a", 0, None)
    assert work(["a"], seed=3, out=None) == (["a"], 3, None)
    assert list(inspect.signature(work).parameters) == ["tasks", "seed", "out"]
    assert (work.__doc__, work.__name__) == ("Do it.", "work")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: call(3), "work: tasks must be a name or a list of names; it is 3"),
        (lambda: call(None), "work: tasks must be a name or a list of names; it is None"),
        (lambda: call("a", seed="b"), "work: seed must be a whole number from 0 to 4294967295; it is 'b'"),
        (lambda: call("a", out=3), "work: out must be a path; it is 3"),
        (lambda: call("a", out="x" * 99 + "\n", seed=-1), "it is -1"),
        (lambda: call(["a" * 99, 3]), f"it is ['{'a' * 78}…"),
    ],
)
def test_what_is_wrong_is_one_line(wrong, message):
    with pytest.raises(StsbenchError) as caught:
        wrong()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_call_that_python_refuses_is_pythons_error():
    with pytest.raises(TypeError, match=r"work\(\) missing 1 required positional argument: 'tasks'"):
        call()
    with pytest.raises(TypeError):
        call("a", tasks="b")


def test_a_misspelt_argument_gets_the_nearest_one():
    with pytest.raises(StsbenchError, match="unknown argument of work 'task'; did you mean 'tasks'"):
        call("a", task="b")
