"""Options are declared once: what a dataclass says is what typer reads, what help prints and what the work is handed."""

from __future__ import annotations

import dataclasses
import shlex
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import pytest
import typer.main

from stsbench.cli.app import COMMANDS, DATA_COMMANDS, NEW_COMMANDS, app
from stsbench.cli.options.binding import bound
from stsbench.cli.options.encoders import RunOptions, TrainOptions
from stsbench.cli.options.scores import CheckOptions, CompareOptions, LeaderboardOptions
from stsbench.cli.options.shared import Options
from tests.cli.commands import write

ALL = [*COMMANDS.items(), *DATA_COMMANDS.items(), *NEW_COMMANDS.items()]
BY_NAME = pytest.mark.parametrize(("name", "row"), ALL, ids=[name for name, _ in ALL])
GROUPS = {"data": DATA_COMMANDS, "new": NEW_COMMANDS}
asked: list[Options] = []


def note(options: Options) -> None:
    """The work of a command that only looks at what it is handed."""
    asked.append(options)


@BY_NAME
def test_the_work_takes_the_options_of_its_command_and_no_more(name, row):
    options, work = row
    module, _, function = work.partition(":")
    hints = get_type_hints(getattr(import_module(module), function))
    assert hints.pop("return") in (int, type(None))
    assert list(hints.values()) == [options]


@BY_NAME
def test_each_field_is_declared_in_one_class_and_stands_in_the_help_once(name, row):
    options, _ = row
    fields = [one.name for one in dataclasses.fields(options)]
    homes = [one for base in options.__mro__ for one in base.__dict__.get("__annotations__", {})]
    assert sorted(homes) == sorted(fields) == sorted(options.hints())
    assert all(get_origin(hint) is Annotated for hint in options.hints().values())
    group = typer.main.get_command(app)
    path = [*(group for group, commands in GROUPS.items() if row in commands.values()), name]
    command: Any = group
    for word in path:
        command = command.commands[word]
    assert [one.name for one in command.params] == list(options.hints())
    assert command.help == options.__doc__ or command.help in str(options.__doc__).replace("    ", "")


@BY_NAME
def test_the_help_begins_with_a_short_sentence_and_ends_with_an_example_that_can_be_given(name, row):
    """The list of commands at 80 columns shows the first sentence whole."""
    options, _ = row
    text = str(options.__doc__)
    assert len(text.partition("\n")[0]) <= 60
    *_, example = text.rstrip().splitlines()
    words = shlex.split(example.strip().removeprefix("Example: "))
    group = next((one for one, commands in GROUPS.items() if row in commands.values()), None)
    assert words[: 2 + bool(group)] == ["stsbench", *([group] if group else []), name]
    assert isinstance(handed(options, *words[2 + bool(group) :]), options)


def handed(options: type[Options], *words: str) -> Options:
    """What the work of a command is handed."""
    one = typer.Typer(add_completion=False)
    one.command()(bound(options, f"{__name__}:note"))
    typer.main.get_command(one).main(list(words), standalone_mode=False)
    return asked.pop()


def test_what_is_typed_arrives_and_all_else_is_as_declared():
    found = handed(
        RunOptions, "-e", "a,b+views=['x', 'y']", "--encoder", "c", "--set", "k=1,2", "--results", "there", "-v"
    )
    expected = RunOptions(
        encoder=["a", "b+views=['x', 'y']", "c"], assign=["k=1,2"], results=Path("there"), verbose=True
    )
    assert dataclasses.asdict(found) == dataclasses.asdict(expected)
    assert dataclasses.asdict(handed(RunOptions)) == dataclasses.asdict(RunOptions())
    both = handed(CheckOptions, "new", "--against", "old", "--against-encoder", "x, y", "--cards", "a", "--cards", "b")
    assert isinstance(both, CheckOptions)
    assert (both.new, both.against, both.against_encoder) == (Path("new"), Path("old"), ["x", "y"])
    assert both.cards == [Path("a"), Path("b")]
    with pytest.raises(dataclasses.FrozenInstanceError):
        both.rule = "statistical"  # type: ignore[misc]


def test_options_are_typed_again_as_they_were():
    words = shlex.split(
        "little --seeds 1,2 --set a=1 --set 'b=x y' --text text --cards one --deterministic --yes --fresh"
    )
    found = handed(TrainOptions, *words)
    assert found.typed("base", "assign", "text", "cards", "device", "deterministic") == shlex.split(
        "--set a=1 --set 'b=x y' --text text --cards one --deterministic"
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run --no-store --store x", "--store has no effect beside --no-store"),
        ("run --dry-run --verbose", "--verbose has no effect beside --dry-run"),
        ("run --json -v", "--verbose has no effect beside --json"),
        ("run --set pooling=cls --set pooling=max", "--set 'pooling=max': pooling is given twice"),
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
        ("compare a b --results gone", "--results has no effect where all that is compared are folders"),
        ("check a --against published --rule statistical", "--rule has no effect with --against published"),
        ("check a --against published --against-encoder x", "--against-encoder has no effect with --against published"),
        ("check a --against published --allow-missing", "--allow-missing has no effect with --against published"),
        ("timing -e minilm --steps 3", "--steps has no effect without --recipe"),
        ("timing -e minilm --base x", "--base has no effect without --recipe"),
        ("timing -e minilm --device cpu", "--device has no effect without --recipe"),
        ("timing -r simcse-small --set pooling=cls", "--set has no effect without --encoder"),
        ("convert infersent a b --limit 3", "--limit has no effect with 'infersent'"),
        ("convert skip_thoughts a b --vectors x", "--vectors has no effect with 'skip_thoughts'"),
        ("convert skip_thoughts a b --version 1", "--version has no effect with 'skip_thoughts'"),
        ("convert expand a b --version 1", "--version has no effect with 'expand'"),
        ("convert onnx-int8 a b --text x", "--text has no effect with 'onnx-int8'"),
        ("data fetch wiki1m --data a", "--data has no effect: a corpus is not evaluation data"),
        ("data back-translate in out.csv --seed 1", "--seed has no effect with --mode greedy"),
        ("data back-translate in out.csv --temperature 1", "--temperature has no effect with --mode greedy"),
        ("data back-translate in out.csv --forward a --backward b --revisions c d", "--revisions has no effect where"),
        ("run --tasks ''", "no value is given after '--tasks'; is a variable of the shell empty?"),
        ("check a --against b --tasks=", "no value is given after '--tasks'; is a variable of the shell empty?"),
        ("show ''", "no value is given after 'show'"),
        ("lock -e ,", "--encoder ',' is empty"),
    ],
)  # fmt: skip
def test_an_option_that_would_be_passed_over_is_refused(stsbench, tmp_path, line, says):
    for name in ("a", "b"):
        write(tmp_path / name / "config.json", "{}")
    assert says in stsbench.refused(*shlex.split(line))
    # Training opens its folder before it knows the method.
    assert {one.name for one in tmp_path.iterdir()} - {"runs"} == {"a", "b"}


@pytest.mark.parametrize(
    "line",
    [
        "leaderboard --table simcse-5 --show published",
        "leaderboard --table simcse-5 --json",
    ],
)
def test_options_that_go_together_do(stsbench, line):
    assert stsbench.fine(*shlex.split(line))


def test_an_option_left_at_its_default_is_refused_too_where_it_was_typed(stsbench):
    assert "--format has no effect" in stsbench.refused("leaderboard", "--json", "--format", "terminal")
    assert LeaderboardOptions().output == "terminal" and CompareOptions(encoders=[]).seed == 0
