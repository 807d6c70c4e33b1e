"""``run --variants``: which variants are scored, their table and figure, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stsbench.cli.scores import chosen_variants
from stsbench.results.folder import read_states
from tests.cli.commands import HASHED, QUICK, Command

LISTS = ("--variants", "embeddings=float32,int8,binary", "--variants", "dimensions=32,16")
TEXTS = ("--set", "calibration=quickstart-probe.train")


def rows_of(table: str) -> dict[tuple[str, str], list[str]]:
    """The cells of each line that begins with a type, by type and dimensions."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    return {(line[0], line[1]): line[2:] for line in lines if line[0] in ("float32", "int8", "binary")}


def test_a_table_of_variants_by_their_bytes(stsbench: Command):
    out = stsbench.fine("run", *HASHED, *QUICK, *LISTS, *TEXTS)
    rows = rows_of(out)
    assert [(key, cells[0]) for key, cells in rows.items()] == [
        (("float32", "32"), "128"),
        (("float32", "16"), "64"),
        (("int8", "32"), "32"),
        (("int8", "16"), "16"),
        (("binary", "32"), "4"),
        (("binary", "16"), "2"),
    ]
    scores = {(r.run["vector_bytes"], r.run["dimensions"]): r.score for r in read_states(Path("results")).results}
    assert {cells[1] for cells in rows.values()} == {f"{100 * score:.2f}" for score in scores.values()}
    # The largest is what the others differ from.
    assert len(rows["float32", "32"]) == 2
    difference, interval = rows["int8", "32"][2:]
    low, high = map(float, interval.split(" to "))
    assert low < float(difference) < high
    assert float(difference) == pytest.approx(100 * (scores[32, 32] - scores[128, 32]), abs=0.006)
    assert "hashed: quickstart-en, protocol simcse, similarity cosine" in out
    # Again from the results that are there.
    assert rows_of(stsbench.fine("run", *HASHED, *QUICK, *LISTS, *TEXTS)) == rows


def test_the_figure(stsbench: Command):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    out = stsbench.fine("run", *HASHED, *QUICK, "--variants", "dimensions=32,16", "--plot", "sizes.svg")
    assert "wrote sizes.svg" in out
    drawn = Path("sizes.svg").read_text(encoding="utf-8")
    assert "bytes of an embedding" in drawn
    assert "hashed, protocol simcse, similarity cosine" in drawn


def test_tasks_of_other_protocols_have_tables_of_their_own(stsbench: Command):
    out = stsbench.fine("run", *HASHED, "--tasks", "quickstart-en,quickstart-probe", "--variants", "dimensions=32,16")
    assert "hashed: quickstart-en, protocol simcse, similarity cosine" in out
    assert re.search(r"hashed: quickstart-probe, protocol \w+\n", out)
    code, _, err = stsbench(
        "run", *HASHED, "--tasks", "quickstart-en,quickstart-probe", "--variants", "dimensions=32,16", "--plot", "a.svg"
    )
    assert code == 2
    assert "--plot draws one encoder under one protocol, here are 2 tables" in err


def test_texts_of_ranges_go_to_integers_alone():
    specs, params = chosen_variants(["a"], ["embeddings=float32,int8,binary"], {"calibration": "t", "pooling": "cls"})
    assert specs == ["a", "a+calibration=t+embeddings=int8", "a+embeddings=binary"]
    assert params == {"pooling": "cls"}
