"""Options and ``stsbench.toml``: what help says, what is typed or set, what the shell is offered, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from stsbench.bench.plan import RunPlan
from stsbench.cli.app import COMMANDS, DATA_COMMANDS, NEW_COMMANDS, RESULTS_COMMANDS, make_app
from stsbench.cli.config import (
    ProjectConfig,
    find_config,
    format_settings,
    read_config,
    read_defaults,
)
from stsbench.cli.option_values import TypedOptions, retype_options
from stsbench.core import settings
from stsbench.core.errors import CardError, StsbenchError
from tests.cli.commands import Command, make_own, process, write

ALL = (
    [(one,) for one in COMMANDS]
    + [("data", one) for one in DATA_COMMANDS]
    + [("new", one) for one in NEW_COMMANDS]
    + [("results", one) for one in RESULTS_COMMANDS]
)


def command(*path: str) -> Any:
    found: Any = make_app()
    for word in path:
        found = found.commands[word]
    return found.load()


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_begins_with_a_short_sentence_and_ends_with_an_example_that_can_be_given(
    stsbench, path
):
    """The list of commands at 80 columns shows the first sentence whole."""
    line, _ = command(*path).help.split("\n", 1)
    assert len(line) <= 60 and f"  {line}\n" in stsbench.fine(*path[:-1], "--help")
    *_, example = [one.strip() for one in command(*path).help.splitlines() if one.strip()]
    words = shlex.split(example.removeprefix("Example: "))
    assert words[: 1 + len(path)] == ["stsbench", *path]
    parsed = command(*path).make_context(path[-1], words[1 + len(path) :], resilient_parsing=True)
    assert not parsed.args
    shown = stsbench.fine(*path, "--help")
    flags = [flag for one in command(*path).params for flag in one.opts if flag.startswith("-")]
    assert len(flags) == len({*flags}) and all(
        f"{flag} " in shown or f"{flag}," in shown for flag in flags
    )
    assert all(
        line.startswith("  Example: stsbench") for line in shown.splitlines() if "Example:" in line
    )


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_list_of_commands_shows_the_first_lines_of_their_docstrings(path):
    found: Any = make_app()
    for word in path:
        found = found.commands[word]
    assert found.load().help.splitlines()[0] == found.help


def test_options_stand_in_groups_those_of_the_command_alone_first(stsbench):
    heads = [
        line
        for line in stsbench.fine("run", "--help").splitlines()
        if line.endswith(":") and line[0] != " "
    ]
    assert heads == [
        "Arguments:",
        "Options:",
        "Data and folders:",
        "How the work is done:",
        "Output:",
    ]


def test_options_are_typed_again_as_they_were():
    words = shlex.split(
        "little --seeds 1,2 --set a=1 --set 'b=x y' --text text --cards one --deterministic --yes --fresh"
    )
    context = command("train").make_context("train", list(words))
    assert retype_options(
        context, "--base", "--set", "--text", "--cards", "--device", "--deterministic"
    ) == shlex.split("--set a=1 --set 'b=x y' --text text --cards one --deterministic")
    assert {*TypedOptions.from_context(context)} == {
        "recipe",
        *(word for word in words if word.startswith("--")),
    }


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run --no-store --store x", "--store has no effect beside --no-store"),
        ("run --dry-run --verbose", "--verbose has no effect beside --dry-run"),
        ("run --json -v", "--verbose has no effect beside --json"),
        ("run --set pooling=cls --set pooling=max", "--set pooling is given twice"),
        ("train simcse-small --yes", "--yes has no effect without --fresh"),
        ("train simcse-small --dry-run --fresh", "--fresh has no effect beside --dry-run"),
        ("train simcse-small --dry-run --report-to wandb", "--report-to has no effect beside --dry-run"),
        ("train simcse-small --dry-run --checkpoint-seconds 9", "--checkpoint-seconds has no effect beside --dry-run"),
        ("train simcse-small --text a --set data.corpus=b", "--text and --set both give data.corpus"),
        ("train simcse-small --text a --set corpus=b", "--text and --set both give data.corpus"),
        ("train simcse-small --keep last --set keep=best", "--keep and --set both give selection.keep"),
        ("train simcse-small --base a --set base.model=b", "--set base.model has no effect beside --base"),
        ("train fastsent-small --report-to wandb", "in rounds; leave out --report-to"),
        ("train fastsent-small --device cuda", "in rounds; leave out --device"),
        ("train fastsent-small --checkpoint-seconds 9", "in rounds; leave out --checkpoint-seconds"),
        ("train fastsent-small --workers 2", "in rounds; leave out --workers"),
        ("doctor --hub --data x", "--data has no effect beside --hub"),
        ("leaderboard --table simcse-5 --suite sts", "--suite has no effect beside --table"),
        ("leaderboard --table simcse-5 -p wmean", "--protocol has no effect beside --table"),
        ("leaderboard --json --format csv", "--format has no effect beside --json"),
        ("leaderboard --table simcse-5 --json --show measured", "--show has no effect as json"),
        ("leaderboard --table simcse-5 --format csv --exact", "--exact has no effect as csv"),
        ("leaderboard --json --exact", "--exact has no effect as json"),
        ("leaderboard --table simcse-5 --show published -e minilm", "--encoder has no effect with --show published"),
        ("leaderboard --table simcse-5 --show published --results x", "--results has no effect with --show published"),
        ("leaderboard --show published --ranks", "--ranks has no effect with --show published"),
        ("leaderboard --show measured --mteb x", "--mteb has no effect with --show measured"),
        ("leaderboard --table simcse-5 -e minilm", "results folder 'results' does not exist"),
        ("compare a b --plan 0", "0.0 is not in the range 0.01<=x<=100"),
        ("compare a b --results gone", "--results has no effect where all that is compared are folders"),
        ("check a --against published --rule statistical", "--rule has no effect with --against published"),
        ("check a --against published --against-encoder x", "--against-encoder has no effect with --against published"),
        ("check a --against published --allow-missing", "--allow-missing has no effect with --against published"),
        ("timing -e minilm --steps 3", "--steps has no effect without --recipe"),
        ("timing -e minilm --base x", "--base has no effect without --recipe"),
        ("timing -e minilm --device cpu", "--device has no effect without --recipe"),
        ("timing -e minilm --text x", "--text has no effect without --recipe"),
        ("convert infersent a b --limit 3", "--limit has no effect with 'infersent'"),
        ("convert skip_thoughts a b --vectors x", "--vectors has no effect with 'skip_thoughts'"),
        ("convert skip_thoughts a b --version 1", "--version has no effect with 'skip_thoughts'"),
        ("convert expand a b --version 1", "--version has no effect with 'expand'"),
        ("convert onnx-int8 a b --text x", "--text has no effect with 'onnx-int8'"),
        ("data fetch wiki1m --data a", "--data has no effect for a corpus"),
        ("data back-translate in out.csv --seed 1", "--seed has no effect with --mode greedy"),
        ("data back-translate in out.csv --temperature 1", "--temperature has no effect with --mode greedy"),
        ("data back-translate in out.csv --forward a --backward b --revisions c d", "--revisions has no effect where"),
        ("lint stsb --json --format markdown", "--format has no effect beside --json"),
        ("lint own.csv --data a", "--data has no effect without a task"),
        ("doctor --data gone", "data folder 'gone' does not exist"),
        ("report -e minilm --suite stss", "unknown suite 'stss'"),
        ("reproduce simcse-table-3 --small --base a --out t.svg", "unknown format 'svg'"),
        ("timing -e minilm --out t.html", "unknown format 'html'"),
        ("run minilm --variants dimensions=,", "--variants 'dimensions=,': give values"),
        ("run --tasks ''", "no value is given after '--tasks'; is a variable of the shell empty?"),
        ("check a --against b --tasks=", "no value is given after '--tasks'; is a variable of the shell empty?"),
        ("show ''", "no value is given after 'show'"),
    ],
)  # fmt: skip
def test_an_option_that_would_be_passed_over_is_refused(stsbench, tmp_path, line, says):
    for name in ("a", "b"):
        write(tmp_path / name / "config.json", "{}")
    assert says in stsbench.refused(*shlex.split(line))
    # Training opens its folder before it knows the method.
    assert {one.name for one in tmp_path.iterdir()} - {"runs"} == {"a", "b"}


def offered(line: str, cwd: Path) -> list[str]:
    """What bash is offered for the last word of a line."""
    at = str(len(line.split(" ")) - 1)
    code, out, err = process(
        cwd=cwd, _STSBENCH_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=at
    )
    assert (code, err) == (0, "")
    return out.splitlines()


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("stsbench leader", ["leaderboard"]),
        ("stsbench run -e minilm,glove-840b-", ["minilm,glove-840b-sbert"]),
        ("stsbench run --tasks stsb,transf", ["stsb,transfer"]),
        ("stsbench leaderboard --table sgopt-", ["sgopt-1", "sgopt-2"]),
        ("stsbench leaderboard --suite quick", ["quickstart"]),
        ("stsbench show declutr-smal", ["declutr-small", "declutr-small-contrastive-only"]),
    ],
)
def test_names_are_offered(tmp_path, line, first):
    assert offered(line, tmp_path)[: len(first)] == first


def test_the_shells_script_is_shown(tmp_path):
    code, out, err = process("--show-completion", cwd=tmp_path, SHELL="/bin/bash")
    assert (code, err) == (0, "") and "complete -o default -F _stsbench_completion stsbench" in out


PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def write_config(folder: Path, text: str, name: str = "stsbench.toml") -> Path:
    find_config.cache_clear()
    return write(folder / name, text)


def cells(stsbench: Command, *arguments: str | Path) -> list[tuple[str, str, int]]:
    results = stsbench.json("run", *arguments)["results"]
    return [(one["encoder"], one["task"], one["eval_seed"]) for one in results]


def test_the_results_folder_of_the_file_is_locked_and_checked(stsbench, tmp_path):
    own = make_own(tmp_path)
    write_config(
        tmp_path,
        f'encoders = ["mine"]\nresults = "scores"\ndata = "{own.data.name}"\n'
        f'cards = ["{own.cards.name}"]\n',
    )
    stsbench.fine("run", "--tasks", "table")
    stsbench.fine("lock")
    assert "1 cell: 1 fine" in stsbench.fine("check", "--against", "scores.lock.json")


def test_a_run_takes_from_it_what_is_not_typed(stsbench, tmp_path):
    own = make_own(tmp_path)
    write_config(
        tmp_path,
        'encoders = ["mine"]\ntasks = ["table", "semeval"]\nseeds = [0, 3]\nset = {size = 8}\nresults = "scores"\n'
        f'data = "{own.data.name}"\ncards = ["{own.cards.name}"]\nprotocols = ["mean"]\n',
    )
    name = "mine+size=8"
    assert cells(stsbench) == [
        (name, task, seed) for task in ("table", "semeval") for seed in (0, 3)
    ]
    assert sorted(Path("scores").glob("*")) == [
        Path("scores", one) for one in (name, "run.log", "run.toml")
    ]
    typed = (
        "--tasks",
        "table",
        "--seeds",
        "1",
        "--set",
        "size=4",
        "--results",
        "others",
        "--protocol",
        "simcse",
    )
    assert cells(stsbench, *typed) == [("mine+size=4", "table", 1)]
    for named in (["own_encoders:Hashed"], ["--encoder", "own_encoders:Hashed"]):
        assert {one for one, _, _ in cells(stsbench, *named, "--tasks", "table")} == {
            "hashed+size=8"
        }
    assert "mine+size=8" in stsbench.fine("leaderboard", "--suite", "both", "--format", "markdown")


def test_it_is_found_above_and_its_paths_are_its_own(stsbench, tmp_path, monkeypatch):
    own = make_own(tmp_path)
    encoder = own.cards / "baselines" / "mine.toml"
    relative = f"./{encoder.relative_to(tmp_path)}"
    write_config(
        tmp_path,
        f'[tool.stsbench]\nencoders = ["{relative}"]\ntasks = ["quickstart-en"]\n',
        "pyproject.toml",
    )
    (tmp_path / "below" / "it").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "below" / "it")
    write(tmp_path / "below" / "pyproject.toml", "[tool.other]\n")
    find_config.cache_clear()
    assert [one for one, _, _ in cells(stsbench)] == ["mine"]
    # A table within ours is ours too.
    write(tmp_path / "below" / "pyproject.toml", "[tool.stsbench.set]\nno_such_parameter = 1\n")
    find_config.cache_clear()
    assert "no_such_parameter" in stsbench.refused(
        "run", "own_encoders:Hashed", "--tasks", "quickstart-en"
    )
    write(tmp_path / "below" / "pyproject.toml", "[tool.other]\n")
    find_config.cache_clear()
    nearer = write_config(
        tmp_path / "below", 'encoders = ["own_encoders:ready"]\ntasks = ["quickstart-es-en"]\n'
    )
    assert [one[:2] for one in cells(stsbench)] == [("ready-made", "quickstart-es-en")]
    assert find_config(Path.cwd()) == nearer
    elsewhere = write(
        tmp_path / "else.toml",
        'encoders = ["own_encoders:Hashed"]\nsplit = "test"\ntasks = ["quickstart-en"]\n',
    )
    assert [one for one, _, _ in cells(stsbench, "--config", elsewhere)] == ["hashed"]


def test_what_was_asked_for_lies_beside_the_results_and_repeats_the_run(stsbench, tmp_path):
    own = make_own(tmp_path)
    card = own.cards / "baselines" / "mine.toml"
    typed = ("--tasks", "table", "--seeds", "0,2", "--set", "size=8", *own.options())
    first = stsbench.json(
        "run", card, "own_encoders:Hashed", *typed, "--name", "one,two", "--results", "deep/scores"
    )
    said = tmp_path / "deep" / "scores" / "run.toml"
    assert str(tmp_path) not in said.read_text()
    again = stsbench.json("run", "--config", said)
    assert again == first and json.loads(stsbench.progress[-1])["known"] == 4


def test_paths_with_parameters_are_repeated_too(tmp_path):
    (tmp_path / "final").mkdir()
    (tmp_path / "x.npy").touch()
    specs = [f"{tmp_path}/final+pooling=cls", f"file:{tmp_path}/x.npy+dimensions=8", "minilm"]
    text = format_settings(
        RunPlan(encoders=specs, tasks="stsb", results_folder=tmp_path / "results")
    )
    assert str(tmp_path) not in text
    path = write(tmp_path / "results" / "run.toml", text)
    encoders = read_defaults(path, is_run=True)["encoder"]
    assert [spec.replace("results/../", "") for spec in encoders] == specs


def test_the_data_of_a_settings_file_do_not_stop_the_fetching_of_a_corpus(stsbench, tmp_path):
    write_config(tmp_path, 'data = "data"\n')
    refused = stsbench.refused("data", "fetch", "stsb_back_translations")
    assert "--data has no effect" not in refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task = ['stsb']", "unknown key 'task'; did you mean 'tasks'?"),
        ("tasks = 'stsb'", "key 'tasks': expected a list, got text"),
        ("seeds = ['1']", "key 'seeds[0]': expected a whole number, got text"),
        ("seeds = [1", "not valid TOML"),
        ("tasks = []\ntasks = []", "not valid TOML: Cannot overwrite a value"),
        ("data = 'a\0b'", "not valid TOML: Found invalid character '\\x00' (at line 1, column 10)"),
    ],
)
def test_a_mistake_in_it_is_one_line_that_names_it(stsbench, tmp_path, text, message):
    path = write_config(tmp_path, text)
    assert stsbench.refused("run").startswith(f"{path}: {message}")
    assert stsbench.refused("leaderboard").startswith(f"{path}: {message}")
    with pytest.raises(CardError, match=f"^{re.escape(str(path))}: "):
        read_config(path)
    missing = stsbench.refused("run", "--config", tmp_path / "none.toml")
    assert missing == f"{tmp_path / 'none.toml'}: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r'data = "a\u0000b"', r"key 'data': 'a\x00b' is no path: it holds a NUL byte"),
        (r'cards = ["here", "a\u0000b"]', r"key 'cards': 'a\x00b' is no path: it holds a NUL byte"),
        (
            "results = '~nobody-here/a'",
            "key 'results': '~nobody-here/a' is no path: Could not determine home directory",
        ),
    ],
)
def test_what_is_no_path_is_one_line_that_names_it(stsbench, tmp_path, text, message):
    path = write_config(tmp_path, text)
    for command in ("run", "leaderboard"):
        assert stsbench.refused(command).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.mkdir, "cannot be read: Is a directory"),
        (os.mkfifo, "is a pipe or a device, not a file; save what it gives"),
    ],
)
def test_no_file_of_its_name_is_one_line_that_names_it(stsbench, tmp_path, make, message):
    find_config.cache_clear()
    make(tmp_path / "stsbench.toml")
    assert stsbench.refused("leaderboard").startswith(f"{tmp_path / 'stsbench.toml'}: {message}")


def test_what_another_user_has_put_there_is_refused(tmp_path, monkeypatch):
    path = write_config(tmp_path, "")
    assert find_config(tmp_path) == path
    find_config.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if path.stat().st_uid == 0:
        os.chown(path, 54321, -1)
    refused = "belongs to another user; remove it, or name it by --config if you trust it$"
    with pytest.raises(StsbenchError, match=refused):
        find_config(tmp_path)


def test_the_page_lists_every_key_and_every_variable():
    text = PAGE.read_text()
    keys = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    variables = {
        name
        for name in re.findall(r'"([A-Z]+_[A-Z_]+|COLUMNS)"', Path(settings.__file__).read_text())
    }
    # Those of the libraries below, which say nothing of ours.
    variables -= {"OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"}
    variables -= {name for name in variables if name.startswith("RAY_") and name != "RAY_ADDRESS"}
    assert set(keys) == {*ProjectConfig.__struct_fields__} | variables


def test_the_pages_example_is_read(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    config = read_config(write(tmp_path / "stsbench.toml", example))
    assert config.encoders and config.tasks and config.results
