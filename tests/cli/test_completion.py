"""What the shell is offered: commands, options, and the names of cards, in comma lists too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import process


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
