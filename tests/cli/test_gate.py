"""The gate of ``stsbench check`` cannot be fooled: what is not compared is never fine, and every report says so."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stsbench.results.record import items_path
from tests.boards.scored import drawn, probe, sts, write as write_results
from tests.cli.commands import Command, write
from tests.forgeries import edited, items_of_others, resealed

REPORTS = ("--junit", "j.xml", "--summary", "s.md", "--github")


@pytest.fixture(autouse=True)
def results(stsbench: Command) -> None:
    """Encoders ``a`` and ``b`` on two tasks in the folder ``new``, the same in ``old`` and in ``lock.json``."""
    gold, similarity = drawn(1, 200)
    for encoder, shift in (("a", 0.0), ("b", 0.5)):
        results = [
            sts(encoder, task, gold, similarity + shift * drawn(2, 200)[1])
            for task in ("sts12", "sts13")
        ]
        write_results(Path("new"), *results, probe(encoder, "mr", [True] * 80 + [False] * 20))
    shutil.copytree("new", "old")
    stsbench.fine("lock", "new", "--out", "lock.json")


def of(folder: str, encoder: str = "a", task: str = "sts12") -> Path:
    return next(Path(folder, encoder).glob(f"{task}.*.json"))


@dataclass(frozen=True)
class Refusal:
    """What a check that cannot be made prints, and its errors in JUnit, annotations and summary."""

    printed: str
    reports: tuple[str, str, str]

    def __contains__(self, text: str) -> bool:
        return all(text in report for report in self.reports)


def refused(stsbench: Command, new: str, old: str, *, options: tuple[str, ...] = ()) -> Refusal:
    """Hold a check to exit code 2, and to as many errors, one at least, in JUnit as in annotations."""
    for name in ("j.xml", "s.md"):
        Path(name).unlink(missing_ok=True)
    code, out, err = stsbench("check", new, "--against", old, *REPORTS, *options)
    assert code == 2, out + err
    suite = ElementTree.parse("j.xml").getroot()[0]
    messages = [
        f"{case.get('name')}: {error.get('message')}"
        for case in suite
        for error in case.iter("error")
    ]
    assert suite.get("errors") == str(len(messages)) and suite.get("failures") == "0"
    annotations = [line for line in out.splitlines() if line.startswith("::error ")]
    assert len(annotations) == len(messages) > 0
    summary = Path("s.md").read_text()
    assert summary.startswith("### stsbench check: not comparable\n")
    shown = summary.replace("\\", "").replace("&lt;", "<")
    return Refusal(out + err, ("\n".join(messages), "\n".join(annotations), shown))


# What lies there: each way of breaking a file, on each side.


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def wrong_type(path: Path) -> None:
    path.write_text("[1, 2]")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


WAYS = (cut, wrong_type, folder, link)
BROKEN: dict[str, Callable[[Path], None]] = {
    "gone": Path.unlink,
    **{way.__name__: way for way in WAYS},
    **{
        f"items {way.__name__}": partial(lambda way, path: way(items_path(path)), way)
        for way in WAYS
    },
    "items of another result": items_of_others,
    "edited": edited(data="e" * 64),
}


@pytest.mark.parametrize("rule", ["absolute", "statistical"])
@pytest.mark.parametrize("against", ["old", "lock.json"])
@pytest.mark.parametrize("way", BROKEN.values(), ids=BROKEN)
def test_a_broken_new_result_never_passes(stsbench, way, against, rule):
    path = of("new")
    way(path)
    assert "sts12" in refused(stsbench, "new", against, options=("--rule", rule))


@pytest.mark.parametrize("rule", ["absolute", "statistical"])
@pytest.mark.parametrize("way", BROKEN.values(), ids=BROKEN)
def test_a_broken_old_result_never_passes(stsbench, way, rule):
    path = of("old")
    way(path)
    assert "sts12" in refused(stsbench, "new", "old", options=("--rule", rule))
    # Nor where its encoder is all there is, or is chosen.
    shutil.rmtree("old/b")
    assert "sts12" in refused(stsbench, "new", "old", options=("-e", "a"))


def test_missing_items_pass_no_lower_score_by_the_statistical_rule(stsbench):
    gold, similarity = drawn(1, 200)
    write_results(
        Path("less"), sts("a", "sts12", gold, similarity + drawn(3, 200)[1], fingerprint="other")
    )
    options = ("-e", "a", "--tasks", "sts12", "--rule", "statistical")
    for against in ("old", "lock.json"):
        assert stsbench("check", "less", "--against", against, *options).code == 1
    items_path(of("old")).unlink()
    refusal = refused(stsbench, "less", "old", options=options)
    assert "cannot judge it" in refusal and "items.parquet: cannot be read: " in refusal
    items_path(of("less")).unlink()
    refusal = refused(stsbench, "less", "lock.json", options=options)
    assert "cannot judge it" in refusal and "items.parquet: cannot be read: " in refusal
    # By the absolute rule scores are enough: committed results have no items.
    for path in Path("new").rglob("*.items.parquet"):
        path.unlink()
    assert "6 cells: 6 fine" in stsbench.fine("check", "new", "--against", "lock.json")


EDITED = "was edited after it was locked: its digest is that of other fields; lock again"
LOCKS: dict[str, tuple[Callable[[str], str], str]] = {
    "cut": (lambda text: text[: len(text) // 2], "lock.json: is not a lock file"),
    "empty": (lambda text: "", "lock.json: is not a lock file"),
    "no JSON": (lambda text: "# scores", "lock.json: is not a lock file"),
    "wrong type": (lambda text: "[]", "lock.json: is not a lock file"),
    "no cells": (
        lambda text: '{"lock": 3, "cells": []}',
        "the old side of the check holds no results",
    ),
    "cells of a wrong type": (
        lambda text: '{"lock": 3, "cells": [3]}',
        "lock.json: is not a lock file",
    ),
    "of the future": (
        lambda text: text.replace('"lock": 3', '"lock": 9'),
        "is a lock file of version 9",
    ),
    "of the past": (
        lambda text: text.replace('"lock": 3', '"lock": 2'),
        "is a lock file of version 2",
    ),
    "no number": (
        lambda text: re.sub(r'"score": [\d.]+', '"score": NaN', text),
        "lock.json: is not a lock file",
    ),
    "a row twice": (
        lambda text: text.replace("[\n", "[\n" + text.split("\n")[1] + "\n", 1),
        "is locked twice",
    ),
    "a lower score": (
        lambda text: re.sub(r'"(score": |interval": \[)0\.\d', r'"\g<1>0.1', text),
        EDITED,
    ),
    "no items and no interval": (
        lambda text: re.sub(
            r'"interval": [^]]*\]',
            '"interval": [-1.0, 1.0]',
            re.sub(r'{"column[^}]*}', "null", text),
        ),
        EDITED,
    ),
    "another dtype": (
        lambda text: text.replace('"dtype": "float32"', '"dtype": "bfloat16"'),
        EDITED,
    ),
    "ranks cut": (lambda text: re.sub(r'("text": "\w{40})\w{40}', r"\1", text), EDITED),
}


@pytest.mark.parametrize(("change", "message"), LOCKS.values(), ids=LOCKS)
def test_a_broken_lock_never_passes(stsbench, change, message):
    lock = Path("lock.json")
    lock.write_text(change(lock.read_text()))
    assert message in refused(stsbench, "new", "lock.json")


@pytest.mark.parametrize("side", ["new", "old"])
@pytest.mark.parametrize(
    "lies", ["nothing", "empty folder", "folder of other files", "encoders without files"]
)
def test_a_side_of_nothing_never_passes(stsbench, side, lies):
    shutil.rmtree(side)
    if lies != "nothing":
        Path(side).mkdir()
    if lies == "folder of other files":
        write(Path(side, "README.md"), "# results")
    if lies == "encoders without files":
        Path(side, "a").mkdir()
    message = f"the {side} side of the check holds no results"
    message = f"there is no lock file or results folder '{side}'" if lies == "nothing" else message
    assert message in refused(stsbench, "new", "old")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rule", "absolut"), "unknown rule 'absolut'"),
        (("--tolerance", "x"), "--tolerance 'x': give points"),
        (("--encoder", "c"), "unknown encoder 'c'"),
        (("--tasks", "sts99"), "unknown task or suite 'sts99'"),
        (("--cards", "gone"), "cards folder 'gone' does not exist"),
    ],
)
def test_a_mistake_in_the_command_is_in_the_reports_too(stsbench, options, message):
    refusal = refused(stsbench, "new", "lock.json", options=options)
    assert message in refusal
    out = refusal.printed
    assert out.count("stsbench: ") == 1


def test_a_bug_is_in_the_reports_too(stsbench, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("stsbench.check.lock.read_side", broken)
    code, _, err = stsbench("check", "new", "--against", "old", *REPORTS)
    assert code == 3 and "ZeroDivisionError" in err
    (error,) = ElementTree.parse("j.xml").getroot().iter("error")
    assert error.get("message") == "not checked: stsbench itself failed: ZeroDivisionError: a bug"
    assert "itself failed" in Path("s.md").read_text()


# What only one side has.


def test_an_encoder_that_only_the_old_side_has_is_missed(stsbench):
    shutil.rmtree("new/b")
    for against in ("old", "lock.json"):
        refusal = refused(stsbench, "new", against)
        assert (
            "all 3 cells" in refusal and "the new results have no encoder of this name" in refusal
        )
        report = stsbench.json("check", "new", "--against", against, "--allow-missing")
        assert {v["outcome"] for v in report["verdicts"]} == {"fine", "missing"}
        # Who names an encoder asks for it alone.
        stsbench.fine("check", "new", "--against", against, "--encoder", "a")
        stsbench.fine("check", "new/a", "--against", against)
    of("new").unlink()
    assert "sts12" in refused(stsbench, "new", "old", options=("-e", "a"))


def test_a_missing_cell_is_allowed_by_name_alone(stsbench):
    path = of("new")
    path.unlink()
    items_path(path).unlink()
    assert "the new results have no such cell" in refused(stsbench, "new", "lock.json")
    code, out, _ = stsbench("check", "new", "--against", "lock.json", "--allow-missing", *REPORTS)
    assert code == 0 and ": 1 missing" in out and "::error" not in out
    assert ElementTree.parse("j.xml").getroot()[0].get("skipped") == "1"
    # Nothing that was compared is never fine.
    for one in (*Path("new").rglob("*.json"), *Path("new").rglob("*.parquet")):
        one.unlink()
    assert "holds no results" in refused(stsbench, "new", "lock.json", options=("--allow-missing",))


def test_an_unreadable_encoder_is_not_taken_for_another(stsbench):
    """Where the old results of ``a`` cannot be read, those of ``b`` are not compared in their place."""
    for path in Path("old/a").glob("*.json"):
        cut(path)
    shutil.rmtree("new/b")
    refusal = refused(stsbench, "new", "old")
    assert "is not a result file" in refusal
    out = refusal.printed
    assert "fine" not in out


# The statistical rule against a lock.


def fallen(
    noise: float, *, protocol: dict[str, Any] | None = None, n: int = 1379
) -> tuple[Any, Any]:
    """An encoder before and after: STS-B's number of pairs, similarities moved a little."""
    gold, similarity = drawn(1, n)
    moved = similarity + noise * drawn(9, n)[1]
    facts = {"protocol": protocol} if protocol else {}
    subsets = ["x", "y", "y"] * (n // 3) + ["x"] * (n % 3)
    sides = ((similarity, "o"), (moved, "n"))
    old, new = (
        sts("a", "stsb", gold, x, subset=subsets, fingerprint=mark, **facts) for x, mark in sides
    )
    return old, new


PROTOCOLS = {
    "ranks": {"name": "simcse", "metric": "spearman", "aggregation": "all", "similarity": "cosine"},
    "ranks of subsets": {
        "name": "wmean",
        "metric": "spearman",
        "aggregation": "wmean",
        "similarity": "cosine",
    },
    "levels": {
        "name": "semeval",
        "metric": "pearson",
        "aggregation": "wmean",
        "similarity": "cosine",
    },
}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_real_fall_of_two_points_is_caught_against_a_lock(stsbench, protocol):
    old, new = fallen(0.22, protocol=protocol)
    assert 0.01 < old.score - new.score < 0.03
    write_results(Path("before"), old)
    write_results(Path("after"), new)
    stsbench.fine("lock", "before", "--out", "stsb.json")
    verdicts = []
    for against in ("before", "stsb.json"):
        code, out, _ = stsbench(
            "check", "after", "--against", against, "--rule", "statistical", "--json"
        )
        (verdict,) = json.loads(out)["verdicts"]
        assert code == 1 and "(paired test, " in verdict["reason"] and verdict["p"] < 0.01
        verdicts.append(verdict["p"])
    assert verdicts[0] == pytest.approx(verdicts[1], abs=1e-3)
    # A lock without the items says what it cannot do: the intervals find nothing, which excuses no fall.
    items_path(of("before", task="stsb")).unlink()
    out = stsbench.fine("lock", "before", "--out", "bare.json")
    assert "bare.json; 1 without" in out
    reason = "the lock holds no per-item values; lock again beside them"
    assert reason in refused(stsbench, "after", "bare.json", options=("--rule", "statistical"))


def test_a_new_lock_keeps_what_the_earlier_one_held_of_the_same_items(stsbench):
    before = Path("lock.json").read_bytes()
    for path in Path("new").rglob("*.items.parquet"):
        path.unlink()
    stsbench.fine("lock", "new", "--out", "lock.json")
    assert Path("lock.json").read_bytes() == before
    out = stsbench.fine("lock", "new", "--out", "another.json")
    assert "locked 6 cells in another.json; 6 without what a paired test needs" in out
    resealed(items="e" * 64)(of("new"))
    assert "; 1 without" in stsbench.fine("lock", "new", "--out", "lock.json")


# Names that are commands.

HOSTILE = [
    "::add-mask::secret",
    "  ::error::x",
    "##[add-mask]secret",
    "x ##[error]y",
    "50%0A::error::x",
    "a|b `c` <img src=x> [l](http://e.vil) ![i](http://e.vil) @someone",
    "x]]></error>&lt;\u202e",
]


@pytest.mark.parametrize("github", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_is_a_command(stsbench, monkeypatch, name, as_json, github):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    gold, similarity = drawn(1, 200)
    write_results(
        Path("mine"), sts(name, "sts12", gold, similarity + drawn(5, 200)[1], fingerprint="n")
    )
    write_results(Path("theirs"), sts(name, "sts12", gold, similarity, fingerprint="o"))
    options = [*REPORTS[:4], *(["--github"] if github else []), *(["--json"] if as_json else [])]
    code, out, err = stsbench("check", "mine", "--against", "theirs", *options)
    assert code == 1
    assert commands(out, err) == (["error"] if github else [])
    if as_json:
        assert json.loads(out)["verdicts"][0]["encoder"] == name
    (failure,) = ElementTree.parse("j.xml").getroot().iter("failure")
    assert str(failure.get("message")).startswith("regression: ")
    table = [line for line in Path("s.md").read_text().splitlines() if line.startswith("|")]
    assert len(table) == 3 and len(re.findall(r"(?<!\\)\|", table[2])) == 8
    assert not re.search(r"<img|(?<!\\)\]\(|://|@", table[2])


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_in_a_mistake_is_a_command(stsbench, monkeypatch, name):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lock = json.loads(Path("lock.json").read_text())
    lock["cells"][0] |= {"encoder": name, "n": -1}
    write(Path("bad.json"), json.dumps(lock))
    for options in ((), ("--github",), ("--json",), ("--json", "--github")):
        code, out, err = stsbench("check", "new", "--against", "bad.json", *options)
        assert code == 2 and commands(out, err) == (["error"] if "--github" in options else [])
        assert EDITED in err


def commands(*streams: str) -> list[str]:
    """The commands that GitHub's runner would find in these streams, but those that end and resume its looking.

    It takes lines that begin with ``::name`` (after blanks), and ``##[name]`` anywhere in a line.
    """
    commands_found, token = [], None
    for stream in streams:
        for line in stream.splitlines():
            command = re.match(r"\s*::([\w-]+)(?: .*?)?::(.*)", line)
            older = re.search(r"##\[([\w-]+)[^\]]*\]", line)
            if token is not None:
                token = None if command and command[1] == token else token
            elif command and command[1] == "stop-commands":
                token = command[2]
            elif command or older:
                commands_found.append((command or older)[1])  # type: ignore[index]
    assert token is None
    return commands_found
