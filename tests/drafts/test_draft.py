"""Where drafts go, what they may be called, and that nothing is written over."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from stsbench.cards.toml_text import toml
from stsbench.drafts.draft import Draft, find_home, lines_of, name_of
from stsbench.errors import OutputError, StsbenchError


@pytest.mark.parametrize("out", ["mine", "mine/tasks"])
def test_a_folder_of_cards_or_of_one_kind_in_it(tmp_path, out):
    home = find_home(tmp_path / out, "tasks", "pairs")
    assert home.path == tmp_path / "mine" / "tasks" / "pairs.toml"
    assert home.option() == f"--cards {tmp_path / 'mine'}"


@pytest.mark.parametrize("name", ["", "a,b", "a/b", "../a", "a+b=1", "a@1", "suites", "-a", "é"])
def test_names_that_mean_something_else_are_refused(tmp_path, name):
    with pytest.raises(StsbenchError, match="cannot be the name of a card; give letters, digits"):
        find_home(tmp_path, "tasks", name)


@pytest.mark.parametrize(("kind", "name"), [("tasks", "stsb"), ("tasks", "sts"), ("baselines", "minilm")])
def test_names_of_the_project_are_taken(tmp_path, kind, name):
    with pytest.raises(StsbenchError, match=f"the name '{name}' is taken by .*; give another with --name"):
        find_home(tmp_path, kind, name)


def test_names_come_from_files_and_folders(tmp_path):
    (tmp_path / "My Data.v2").mkdir()
    assert name_of(tmp_path / "My Data.v2") == "my-data.v2"
    assert name_of(Path("some/My pairs, 2024.csv")) == "my-pairs-2024"


def test_nothing_is_written_over_without_force(tmp_path):
    there, other = tmp_path / "there", tmp_path / "other"
    there.write_text("mine")
    draft = Draft(files={other: "new", there: "new"}, found=[], unsure=[], command="")
    with pytest.raises(OutputError, match="there exists; --force writes it again"):
        draft.write(force=False)
    assert (there.read_text(), other.exists()) == ("mine", False)
    draft.write(force=True)
    assert (there.read_text(), other.read_text()) == ("new", "new")


VALUES = {
    "text": 'say "hi"\n\t\\ é \x7f \u2028',
    "#1 String": [1, 2.5, True, "x"],
    "table": {"a b": 1, "c": {"d": [1e-9]}},
}


def test_values_are_written_as_toml_reads_them():
    text = "\n".join(lines_of(VALUES, {"text": "a note"}))
    assert text.startswith("# a note\ntext = ")
    assert tomllib.loads(text) == VALUES
    assert toml((0.0, 5.0)) == "[0.0, 5.0]"
