"""The cells of docs/notebook.ipynb, run one after the other: what the page shows is what they give."""

from __future__ import annotations

import ast
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.api.notebook import page_of

PATH = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
CELLS = [
    cell
    for cell in json.loads(PATH.read_text(encoding="utf-8"))["cells"]
    if cell["cell_type"] == "code"
]
NUMBER = re.compile(r"-?\d*\.\d+")
NEAR = 0.02
"""How far a number may lie from the page's: processors differ in the last digits."""


def value_of(source: str, names: dict[str, Any]) -> Any:
    *body, last = ast.parse(source).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(body, []), PATH.name, "exec"), names)  # noqa: S102 - our own page
    return eval(compile(ast.Expression(last.value), PATH.name, "eval"), names)  # noqa: S307 - our own page


def shown(cell: dict[str, Any]) -> dict[str, str]:
    """What the page has for the last line of a cell, by its form."""
    (data,) = (
        output["data"] for output in cell["outputs"] if output["output_type"] == "execute_result"
    )
    return {form: "".join(text) for form, text in data.items()}


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


def test_every_cell_gives_what_the_page_shows(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    checked = 0
    for cell in CELLS:
        source = "".join(cell["source"])
        if ".plot()" in source:
            continue
        value, there = value_of(source, names), shown(cell)
        page = page_of(value)
        assert numbers(page) == pytest.approx(numbers(there["text/html"]), abs=NEAR)
        if "to_frame" not in source:
            assert NUMBER.sub("#", page) == NUMBER.sub("#", there["text/html"])
            assert NUMBER.sub("#", repr(value)) == NUMBER.sub("#", there["text/plain"])
        checked += 1
    assert checked == 4
    assert list(tmp_path.iterdir()) == []


def test_its_figures_can_be_drawn(monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    names: dict[str, Any] = {}
    drawn = 0
    for cell in CELLS:
        value = value_of("".join(cell["source"]), names)
        if "image/png" in shown(cell):
            assert value.to_bytes("png").startswith(b"\x89PNG")
            assert base64.b64decode(shown(cell)["image/png"]).startswith(b"\x89PNG")
            drawn += 1
    assert drawn == 2


def test_the_page_is_small_and_of_no_machine():
    text = PATH.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert not re.findall(r"/(?:home|tmp|work|root|Users)\b", text)
    kinds = [output["output_type"] for cell in CELLS for output in cell["outputs"]]
    assert {*kinds} <= {"execute_result", "display_data"}
    assert [cell["execution_count"] for cell in CELLS] == [*range(1, len(CELLS) + 1)]
