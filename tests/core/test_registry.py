"""Names to objects, parameters against signatures, and what a program passes to the public functions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from stsbench.core import parameters, registry
from stsbench.core.errors import CardError, StsbenchError, UnknownName
from stsbench.core.parameters import NAMES, PATH, SEED, call_with_params, fit, validate_arguments
from stsbench.core.registry import Registry

ANIMALS = Registry(
    "animal", {"counter": "collections:Counter", "path": "pathlib:Path"}, group="animals"
)


def test_names_load_what_they_stand_for():
    assert ANIMALS.load("path") is Path
    assert ANIMALS.load("fractions:Fraction").__name__ == "Fraction"


def test_an_address_goes_behind_a_name():
    assert ANIMALS.load_at("path://there:10001") is Path
    with pytest.raises(
        StsbenchError,
        match=r"^animal '10\.0\.0\.1:6379' is an address alone; give a name before it",
    ):
        ANIMALS.load_at("10.0.0.1:6379")


def test_entry_points_join_and_ours_win(monkeypatch):
    points = [
        EntryPoint(n, v, "stsbench.animals")
        for n, v in [("zebra", "json:loads"), ("path", "json:dumps")]
    ]
    monkeypatch.setattr(
        registry, "entry_points", lambda group: points if group == "stsbench.animals" else []
    )
    assert ANIMALS.names() == ["counter", "path", "zebra"]
    assert ANIMALS.load("zebra").__name__ == "loads"
    assert ANIMALS.load("path") is Path


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownName, match="mean 'counter'") as caught:
        ANIMALS.load("conter")
    assert (caught.value.kind, caught.value.name) == ("animal", "conter")
    assert caught.value.choices == ("counter", "path")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "no_such_module:Name",
            "animal 'no_such_module:Name': no module named 'no_such_module'; is it installed, or in the current folder?",
        ),
        (
            "os.no_such:Name",
            "animal 'os.no_such:Name': no module named 'os.no_such'; is it installed, or in the current folder?",
        ),
        (
            "fractions:Fractoin",
            "animal 'fractions:Fractoin': module 'fractions' has no 'Fractoin'; did you mean 'Fraction'?",
        ),
        ("pathlib:", "animal 'pathlib:' is not the address of an object; give package.module:Name"),
        (":Path", "animal ':Path' is not the address of an object; give package.module:Name"),
        (
            "..up:Path",
            "animal '..up:Path' is not the address of an object; give package.module:Name",
        ),
        (
            "https://x.org/a",
            "animal 'https://x.org/a' is not the address of an object; give package.module:Name",
        ),
    ],
)
def test_a_wrong_address_is_one_clear_line(address, message):
    with pytest.raises(StsbenchError) as caught:
        ANIMALS.load(address)
    assert str(caught.value) == message


@pytest.mark.parametrize("body", ["import no_such_module", "import os\nos.no_such_name", "1 / 0"])
def test_a_bug_in_the_users_module_keeps_its_traceback(body, tmp_path, monkeypatch):
    (tmp_path / "broken_at_import.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((ModuleNotFoundError, AttributeError, ZeroDivisionError)):
        ANIMALS.load("broken_at_import:Name")


def test_an_entry_point_that_fails_is_one_line_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("{}['no\\nsuch']")
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint("zebra", "broken_package:Zebra", "stsbench.animals")]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    message = r"animal 'zebra': its entry point broken_package:Zebra fails: KeyError: 'no\\nsuch'; repair its package, or"
    with pytest.raises(StsbenchError, match=f"^{message}"):
        ANIMALS.load("zebra")
    points[0] = EntryPoint("zebra", "no_such_package:Zebra", "stsbench.animals")
    with pytest.raises(
        StsbenchError,
        match="^animal 'no_such_package:Zebra': no module named .*; is it installed, or in the current folder?",
    ):
        ANIMALS.load("zebra")


def make(
    size: int, *, rate: float = 0.5, kind: Literal["flat", "deep"] = "flat", **rest: Any
) -> tuple[Any, ...]:
    return size, rate, kind, rest


def strict(size: int, rate: float = 0.5) -> tuple[int, float]:
    return size, rate


class Kind:
    def __init__(
        self,
        words: Sequence[str],
        *,
        where: Path | None = None,
        table: Mapping[str, str] | None = None,
    ):
        self.words = words


class Unresolvable:
    def __init__(self, size: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
        self.size = size


def test_parameters_are_passed_on():
    assert make(3, rate=1.0) == call_with_params(make, {"size": 3, "rate": 1}, where="w")
    assert call_with_params(make, {"size": 3, "extra": 1}, where="w")[-1] == {"extra": 1}
    assert call_with_params(Kind, {"words": ["a"], "where": "x"}, where="w").words == ["a"]
    assert call_with_params(Unresolvable, {"size": "any"}, where="w").size == "any"


@pytest.mark.parametrize(
    ("factory", "params", "message"),
    [
        (
            strict,
            {"size": 1, "rat": 2},
            "card: unknown key 'rat'; did you mean 'rate'?; known: size, rate",
        ),
        (strict, {"rate": 0.1}, "card: missing a required key: 'size'"),
        (strict, {"size": "big"}, "card: key 'size': expected a whole number, not 'big'"),
        (strict, {"size": True}, "card: key 'size': expected a whole number, not True"),
        (strict, {"size": 1, "rate": "x"}, "card: key 'rate': expected a number, not 'x'"),
        (
            make,
            {"size": 1, "kind": "depp"},
            "card: key 'kind': 'depp' is not one of flat, deep; did you mean 'deep'?",
        ),
        (Kind, {"words": "abc"}, "card: key 'words': expected a list, not 'abc'"),
        (Kind, {"words": [], "table": 3}, "card: key 'table': expected a table, not 3"),
    ],
)
def test_parameters_are_checked_against_the_signature(factory, params, message):
    with pytest.raises(CardError) as caught:
        call_with_params(factory, params, where="card")
    assert str(caught.value) == message


def test_values_take_the_type_of_the_annotation():
    assert fit([1, 2], tuple[float, ...], where="w") == (1.0, 2.0)
    assert isinstance(fit(1, float, where="w"), float)
    assert fit("x", Path, where="w") == "x"
    marker = object()
    assert fit(marker, int, where="w") is marker


@validate_arguments(tasks=NAMES, seed=SEED, out=PATH)
def work(
    tasks: str | Sequence[str], *, seed: int = 0, out: Path | None = None
) -> tuple[object, ...]:
    """Do it."""
    return tasks, seed, out


call: Any = work
"""For calls that types refuse."""


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("NAME", ["", "a"], [3, None, b"a", Path("a"), ["a"]]),
        ("NAMES", ["a,b", ["a"], ("a", "b"), []], [3, None, {"a"}, [3], b"ab", iter("ab")]),
        ("PATH", ["a", Path("a")], [3, None, b"a", ["a"]]),
        ("PATHS", ["a", Path("a"), [], ["a", Path("b")]], [3, None, [3], {"a"}]),
        ("STORE", ["a", Path("a"), None], [3, True, ["a"]]),
        ("NAME_OR_PATH", ["a", Path("a")], [3, None]),
        ("SEED", [0, 3, np.int64(3), (1 << 32) - 1], [-1, 1 << 32, True, 1.0, "1", None]),
        ("SWITCH", [True, False], [1, 0, "yes", None]),
        ("PARAMETERS", [{}, {"a": 1}], [[("a", 1)], "a=1", {1: 2}, None]),
        ("FUNCTION", [len, str, lambda: 3], ["len", 3, None]),
    ],
)
def test_each_kind_takes_its_own_and_nothing_else(kind, good, bad):
    is_valid = getattr(parameters, kind).is_valid
    assert [value for value in good if not is_valid(value)] == []
    assert [value for value in bad if is_valid(value)] == []


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
        (
            lambda: call("a", seed="b"),
            "work: seed must be a whole number from 0 to 4294967295; it is 'b'",
        ),
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
    with pytest.raises(TypeError, match=r"work\(\) missing .* 'tasks'"):
        call()
    with pytest.raises(TypeError):
        call("a", tasks="b")


def test_a_misspelt_argument_gets_the_nearest_one():
    with pytest.raises(
        StsbenchError, match="unknown argument of work 'task'; did you mean 'tasks'"
    ):
        call("a", task="b")
