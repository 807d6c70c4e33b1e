"""Options: what help says of them, what is typed of them, and which are refused because they would be passed over."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from stsbench.cli import options as opt
from stsbench.cli.app import COMMANDS, DATA_COMMANDS, NEW_COMMANDS, made_app
from tests.cli.commands import process, write

ALL = [
    ((*group, name), line)
    for group, commands in (((), COMMANDS), (("data",), DATA_COMMANDS), (("new",), NEW_COMMANDS))
    for name, (_, line) in commands.items()
]


def command(*path: str) -> Any:
    """A command with its options."""
    found: Any = made_app()
    for word in path:
        found = found.commands[word]
    return found.loaded


@pytest.mark.parametrize(("path", "line"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_help_begins_with_a_short_sentence_and_ends_with_an_example_that_can_be_given(stsbench, path, line):
    """The list of commands at 80 columns shows the first sentence whole."""
    assert len(line) <= 60 and command(*path).help.startswith(f"{line}\n")
    *_, example = [one.strip() for one in command(*path).help.splitlines() if one.strip()]
    words = shlex.split(example.removeprefix("Example: "))
    assert words[: 1 + len(path)] == ["stsbench", *path]
    parsed = command(*path).make_context(path[-1], words[1 + len(path) :], resilient_parsing=True)
    assert not parsed.args
    shown = stsbench.fine(*path, "--help")
    flags = [flag for one in command(*path).params for flag in one.opts if flag.startswith("-")]
    assert len(flags) == len({*flags}) and all(f"{flag} " in shown or f"{flag}," in shown for flag in flags)
    assert all(line.startswith("  Example: stsbench") for line in shown.splitlines() if "Example:" in line)


def test_options_stand_in_groups_those_of_the_command_alone_first(stsbench):
    heads = [line for line in stsbench.fine("run", "--help").splitlines() if line.endswith(":") and line[0] != " "]
    assert heads == ["Arguments:", "Options:", "Data and folders:", "How the work is done:", "Output:"]


def test_options_are_typed_again_as_they_were():
    words = shlex.split(
        "little --seeds 1,2 --set a=1 --set 'b=x y' --text text --cards one --deterministic --yes --fresh"
    )
    context = command("train").make_context("train", list(words))
    assert opt.retyped(context, "--base", "--set", "--text", "--cards", "--device", "--deterministic") == shlex.split(
        "--set a=1 --set 'b=x y' --text text --cards one --deterministic"
    )
    assert {*opt.Given.of(context)} == {"recipe", *(word for word in words if word.startswith("--"))}


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
    code, out, err = process(cwd=cwd, _STSBENCH_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=at)
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
