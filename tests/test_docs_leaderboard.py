"""The examples of docs/choosing.md and docs/leaderboard.md: the table of one's own, and the rows that are added, as the page prints them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.commands import Command

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```sh\nstsbench ([^\n]*)\n```\n\n```text\n(.*?)^```", re.S | re.M)
SHOWN = EXAMPLE.findall(TEXT)
CHOICES = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
ADDED = [line for line in re.findall(r"^stsbench (leaderboard [^\n#]*--add [^\n#]*)", TEXT, re.M)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's own table, and the results that the project ships."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (card,) = (
        block
        for block in re.findall(r"^```toml\n(.*?)^```", TEXT, re.S | re.M)
        if block.startswith("title =")
    )
    (tmp_path / "mine.toml").write_text(card, encoding="utf-8")
    (tmp_path / "results").symlink_to(ROOT / "results/project")
    return tmp_path


def test_the_page_shows_a_table_and_a_row():
    assert [command.partition(" --")[2].split()[0] for command, _ in SHOWN] == ["table", "table"]
    assert sum("mine.toml" in command for command, _ in SHOWN) == 1 and len(ADDED) == 3


@pytest.mark.parametrize(("command", "printed"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_prints_what_the_page_shows(place, capsys, command, printed):
    code, out, err = Command(capsys)(*shlex.split(command))
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.rstrip().splitlines()] == printed.splitlines()


@pytest.mark.parametrize("command", ADDED)
def test_rows_are_added_as_the_page_says(place, capsys, command):
    code, out, err = Command(capsys)(*shlex.split(command))
    assert (code, err) == (0, "")
    written = place / "table.tex"
    text = written.read_text(encoding="utf-8") if written.exists() else out
    assert "Ours" in text and "72.37" in text


def test_a_declared_mixture_is_needed(place, capsys):
    text = (place / "mine.toml").read_text(encoding="utf-8")
    (place / "mine.toml").write_text(text.replace(', protocol = "wmean"', ""), encoding="utf-8")
    code, _, err = Command(capsys)("leaderboard", "--table", "mine.toml")
    assert code == 2 and "SBERT-base Flow" in err and err.count("\n") == 1


@pytest.mark.parametrize(("command", "printed"), EXAMPLE.findall(CHOICES))
def test_an_encoder_is_chosen_in_an_empty_folder(tmp_path, monkeypatch, capsys, command, printed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = Command(capsys)(*shlex.split(command))
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.rstrip().splitlines()] == printed.splitlines()


def test_the_noise_of_the_choice_is_that_of_the_page_on_published_scores():
    published = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    (line,) = [line for line in published.splitlines() if line.startswith("| MTEB(deu, v1) ")]
    _, _, _, gap, unlike, unlike_bound, _, bound = [c.strip() for c in line.strip("|").split("|")]
    below, _, n_gaps, *_ = unlike.split()
    text = " ".join(CHOICES.split())
    assert f"about {unlike_bound} points apart" in text and f"one family {bound}." in text
    assert f"this board is {gap} points. Of {n_gaps} such gaps, {below} are too small" in text
