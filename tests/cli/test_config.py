"""``stsbench.toml``: what it says holds where nothing is typed; what it must not say is one line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from stsbench.cli.config import Settings, found_config, read_config
from stsbench.core import settings
from stsbench.core.errors import CardError, StsbenchError
from tests.cli.commands import Command, make_own, write

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def write_config(folder: Path, text: str, name: str = "stsbench.toml") -> Path:
    found_config.cache_clear()
    return write(folder / name, text)


def cells(stsbench: Command, *arguments: str | Path) -> list[tuple[str, str, int]]:
    results = stsbench.json("run", *arguments)["results"]
    return [(one["encoder"], one["task"], one["eval_seed"]) for one in results]


def test_a_run_takes_from_it_what_is_not_typed(stsbench, tmp_path):
    own = make_own(tmp_path)
    write_config(
        tmp_path,
        'encoders = ["mine"]\ntasks = ["table", "semeval"]\nseeds = [0, 3]\nset = {size = 8}\nresults = "scores"\n'
        f'data = "{own.data.name}"\ncards = ["{own.cards.name}"]\nprotocols = ["mean"]\n',
    )
    name = "mine+size=8"
    assert cells(stsbench) == [(name, task, seed) for task in ("table", "semeval") for seed in (0, 3)]
    assert sorted((tmp_path / "scores").glob("*")) == [
        tmp_path / "scores" / one for one in (name, "run.log", "run.toml")
    ]
    typed = ("--tasks", "table", "--seeds", "1", "--set", "size=4", "--results", "others", "--protocol", "simcse")
    assert cells(stsbench, *typed) == [("mine+size=4", "table", 1)]
    for named in (["own_encoders:Hashed"], ["--encoder", "own_encoders:Hashed"]):
        assert {one for one, _, _ in cells(stsbench, *named, "--tasks", "table")} == {"hashed+size=8"}
    assert "mine+size=8" in stsbench.fine("leaderboard", "--suite", "both", "--format", "markdown")


def test_it_is_found_above_and_its_paths_are_its_own(stsbench, tmp_path, monkeypatch):
    own = make_own(tmp_path)
    encoder = own.cards / "baselines" / "mine.toml"
    relative = f"./{encoder.relative_to(tmp_path)}"
    write_config(tmp_path, f'[tool.stsbench]\nencoders = ["{relative}"]\ntasks = ["quickstart-en"]\n', "pyproject.toml")
    (tmp_path / "below" / "it").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "below" / "it")
    write(tmp_path / "below" / "pyproject.toml", "[tool.other]\n")
    found_config.cache_clear()
    assert [one for one, _, _ in cells(stsbench)] == ["mine"]
    nearer = write_config(tmp_path / "below", 'encoders = ["own_encoders:ready"]\ntasks = ["quickstart-es-en"]\n')
    assert [one[:2] for one in cells(stsbench)] == [("ready-made", "quickstart-es-en")]
    assert found_config(Path.cwd()) == nearer
    elsewhere = write(
        tmp_path / "else.toml", 'encoders = ["own_encoders:Hashed"]\nsplit = "test"\ntasks = ["quickstart-en"]\n'
    )
    assert [one for one, _, _ in cells(stsbench, "--config", elsewhere)] == ["hashed"]


def test_what_was_asked_for_lies_beside_the_results_and_repeats_the_run(stsbench, tmp_path):
    own = make_own(tmp_path)
    card = own.cards / "baselines" / "mine.toml"
    typed = ("--tasks", "table", "--seeds", "0,2", "--set", "size=8", *own.options())
    first = stsbench.json("run", card, "own_encoders:Hashed", *typed, "--name", "one,two", "--results", "deep/scores")
    said = tmp_path / "deep" / "scores" / "run.toml"
    assert str(tmp_path) not in said.read_text()
    again = stsbench.json("run", "--config", said)
    assert again == first and json.loads(stsbench.progress[-1])["known"] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task = ['stsb']", "unknown key 'task'; did you mean 'tasks'?"),
        ("tasks = 'stsb'", "key 'tasks': expected a list, got text"),
        ("seeds = ['1']", "key 'seeds[0]': expected a whole number, got text"),
        ("seeds = [1", "not valid TOML"),
        ("tasks = []\ntasks = []", "not valid TOML: Cannot overwrite a value"),
    ],
)
def test_a_mistake_in_it_is_one_line_that_names_it(stsbench, tmp_path, text, message):
    path = write_config(tmp_path, text)
    assert stsbench.refused("run").startswith(f"{path}: {message}")
    assert stsbench.refused("leaderboard").startswith(f"{path}: {message}")
    with pytest.raises(CardError, match="not valid TOML|key"):
        read_config(path)
    missing = stsbench.refused("run", "--config", tmp_path / "none.toml")
    assert missing == f"{tmp_path / 'none.toml'}: cannot be read: No such file or directory"


def test_what_another_user_has_put_there_is_refused(tmp_path, monkeypatch):
    path = write_config(tmp_path, "")
    assert found_config(tmp_path) == path
    found_config.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if path.stat().st_uid == 0:
        os.chown(path, 54321, -1)
    with pytest.raises(
        StsbenchError, match="belongs to another user; remove it, or name it by --config if you trust it"
    ):
        found_config(tmp_path)


def test_the_page_lists_every_key_and_every_variable():
    text = PAGE.read_text()
    keys = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    variables = {name for name in re.findall(r'"([A-Z]+_[A-Z_]+|COLUMNS)"', Path(settings.__file__).read_text())}
    # Those of the libraries below, which say nothing of ours.
    variables -= {"OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"}
    variables -= {name for name in variables if name.startswith("RAY_") and name != "RAY_ADDRESS"}
    assert set(keys) == {*Settings.__struct_fields__} | variables


def test_the_pages_example_is_read(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    config = read_config(write(tmp_path / "stsbench.toml", example))
    assert config.encoders and config.tasks and config.results
