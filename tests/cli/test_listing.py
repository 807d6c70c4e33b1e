"""``stsbench list`` and ``stsbench show``."""

from __future__ import annotations

import pytest

from stsbench.core.catalogue import Catalogue
from tests.cli.commands import make_own

CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tasks", list(CATALOGUE.paths("tasks"))),
        ("encoders", list(CATALOGUE.paths("baselines"))),
        ("suites", list(CATALOGUE.suites())),
        ("recipes", list(CATALOGUE.paths("trainers"))),
        ("corpora", list(CATALOGUE.corpora())),
    ],
)
def test_a_list_is_one_row_a_name(stsbench, kind, names):
    rows = stsbench.json("list", kind)
    assert [row["corpus" if kind == "corpora" else kind[:-1]] for row in rows] == names
    out = stsbench.fine("list", kind)
    # Names stay whole, so that they can be searched for and copied.
    assert [line.split()[0] for line in out.splitlines() if line[:1].strip("─ ")][1:] == names or not names
    if kind != "encoders":
        assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", [*CATALOGUE.paths("tasks"), *CATALOGUE.paths("baselines")])
def test_every_card_can_be_shown(stsbench, name):
    assert stsbench.fine("show", name).startswith(f"{name}: ")


def test_a_broken_card_is_one_line(stsbench, tmp_path):
    own = make_own(tmp_path)
    (own.cards / "baselines" / "mine.toml").write_text("name = 3")
    error = stsbench.refused("list", "encoders", "--cards", own.cards)
    assert error.endswith("cards/baselines/mine.toml: key 'name': expected text, got a whole number")


def test_tasks_of_one_language(stsbench):
    lines = stsbench.fine("list", "tasks", "--language", "ko").splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["klue-sts", "korsts"]
    assert stsbench.json("list", "tasks", "--language", "ko")[0]["task"] == "klue-sts"
    assert "unknown language 'kr'" in stsbench.refused("list", "tasks", "--language", "kr")
    assert "--language chooses tasks" in stsbench.refused("list", "encoders", "--language", "ko")
