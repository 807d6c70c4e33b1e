"""Files that others wrote, changed at random from files that are right: read, or refused in one line.

Each goes through a command, in little memory and time; nothing is written but results and the cache.
"""

from __future__ import annotations

import copy
import json
import resource
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stsbench.core.catalogue import Catalogue
from stsbench.results.record import items_path
from tests.cli.commands import ENCODER, PAIR_TABLE, Command, make_own
from tests.cli.conftest import own, stsbench
from tests.cli.little_recipe import RECIPE
from tests.hub_files import tiny_bert

__all__ = ["own", "stsbench"]
MEMORY = 2 << 30
"""Bytes that a file may make a command take beyond what it has."""
SECONDS = 10
EXAMPLES = 150
ROOT = Path(__file__).parent.parent
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just(10**400), st.just(-(2**63) - 1),
    st.sampled_from(["\x00", "\x1b[2J", "../../x", "/etc/passwd", "os:system", "=1+1", "x" * 5000, "nan"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value within a value."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield (*above, key)
        yield from places(value[key], (*above, key))


@st.composite
def changed(draw: st.DrawFn, right: Any, write: Callable[[Any], str]) -> str:
    """A file's text with some values replaced or missing, cut off, very deep, or with a key that is there twice."""
    value = copy.deepcopy(right)
    for _ in range(draw(st.integers(1, 3))):
        ways = list(places(value))
        if not ways:
            break
        way = draw(st.sampled_from(ways))
        holder = value
        for key in way[:-1]:
            holder = holder[key]
        if draw(st.booleans()):
            holder[way[-1]] = draw(VALUES)
        else:
            del holder[way[-1]]
    text = write(value)
    how = draw(st.integers(0, 9))
    if how == 0 and text.startswith("{") and len(text) > 2:
        return text[:-1] + ", " + text[1:]
    if how == 1:
        return "[" * 5000 + text + "]" * 5000
    if how == 3:
        return text + text
    return text[: draw(st.integers(0, len(text)))] if how == 2 else text


def toml(value: Any) -> str:
    """A table as TOML, its tables inline; what TOML cannot say comes out wrong, and is a case of its own."""

    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return f"{{{', '.join(f'{json.dumps(key)} = {inline(inner)}' for key, inner in value.items())}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(inline, value))}]"
        return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")

    return "".join(f"{json.dumps(key)} = {inline(inner)}\n" for key, inner in value.items())


def tokenizer() -> dict[str, Any]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    words = tiny_bert()["vocab.txt"].decode().split()
    made = Tokenizer(
        models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    )
    made.normalizer, made.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    made.post_processor = processors.BertProcessing(
        ("[SEP]", words.index("[SEP]")), ("[CLS]", words.index("[CLS]"))
    )
    found: dict[str, Any] = json.loads(made.to_str())
    return found


class Case(NamedTuple):
    """A file that is right, and the command that reads it."""

    path: str
    right: Any
    command: tuple[str, ...]

    @property
    def write(self) -> Callable[[Any], str]:
        return toml if self.path.endswith(".toml") else json.dumps


RESULT = next((ROOT / "results/project" / "minilm").glob("sts12.test.*.json"))
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
LOCK = json.loads((ROOT / ".github" / "results.lock.json").read_text())
CELLS = [
    c for c in LOCK["cells"] if c["encoder"] == "minilm" and (c["paired"] or c["task"] == "sts12")
]
"""The result that is here, and cells with what a paired test needs."""
CARDS = ("--cards", "../in/cards")
SMALL = ("run", "--tasks", "quickstart-es-en", "--no-store", "--fresh")
RUN = (*SMALL, "--encoder", "../in/tiny")
BERT = {
    name: json.loads(content) for name, content in tiny_bert().items() if name.endswith(".json")
}
RECORD = {
    "recipe": "simcse-small", "seed": 1, "overlap": {"quickstart-en": "none"},
    "card": msgspec.to_builtins(Catalogue().recipe("simcse-small")),
}  # fmt: skip
TABLE = {
    "title": "Mine", "paper": "sgopt", "table": "table-2", "protocol": "semeval", "columns": ["sts14-es"],
    "groups": [{"rows": ["mBERT SG"], "title": "a"}], "decimals": 2,
}  # fmt: skip
FACTS = {
    "name": "Mine",
    "file": "text.txt",
    "license": "mine",
    "source": "mine",
    "columns": {"text": 0},
    "rows": 3,
}
CASES = [
    Case("tiny/stsbench.json", {"kind": "transformer", "params": {"pooling": "mean", "max_length": 16}}, RUN),
    Case("tiny/modules.json", MODULES, RUN),
    Case("tiny/config.json", BERT["config.json"], RUN),
    Case("tiny/tokenizer_config.json", BERT["tokenizer_config.json"], RUN),
    Case("tiny/tokenizer.json", tokenizer(), RUN),
    Case("tiny/run.json", RECORD, RUN),
    Case("results/minilm/" + RESULT.name, json.loads(RESULT.read_text()), ("leaderboard", "--results", "../in/results")),
    Case("results/minilm/" + RESULT.name, json.loads(RESULT.read_text()), ("verify", "../in/results")),
    Case("lock.json", {**LOCK, "cells": CELLS}, ("check", "../in/results", "--against", "../in/lock.json", "--rule", "statistical")),
    Case(
        "cards/tasks/table.toml", tomllib.loads(PAIR_TABLE),
        (*SMALL[:1], "--tasks", "table", "--encoder", "own_encoders:Hashed", *CARDS, "--data", "../in/data"),
    ),
    Case("cards/tasks/suites.toml", {"both": {"name": "Both", "tasks": ["table", "sts12"]}}, ("list", "suites", *CARDS)),
    Case("cards/trainers/corpora.toml", {"mine-text": FACTS}, ("show", "mine-text", *CARDS)),
    Case("cards/baselines/mine.toml", tomllib.loads(ENCODER), (*SMALL, "--encoder", "mine", *CARDS)),
    Case("cards/trainers/little.toml", tomllib.loads(RECIPE), ("show", "little", *CARDS)),
    Case("table.toml", TABLE, ("leaderboard", "--table", "../in/table.toml")),
]  # fmt: skip


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


NOT_AT_FIRST = (
    "tiny/modules.json",
    "tiny/tokenizer.json",
    "tiny/run.json",
    "cards/trainers/corpora.toml",
)


def lay_out(folder: Path) -> None:
    """All files as they should be."""
    make_own(folder)
    for case in CASES:
        path = folder / case.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if case.path not in NOT_AT_FIRST:
            path.write_text(case.write(case.right))
    for name, content in tiny_bert().items():
        (folder / "tiny" / name).write_bytes(content)
    items = items_path(RESULT)
    if items.is_file():
        (folder / "results" / "minilm" / items.name).write_bytes(items.read_bytes())


def files_of(folder: Path) -> Mapping[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: case.path.replace(RESULT.name, "result.json")
)
def test_a_changed_file_is_read_or_refused(case, stsbench: Command, tmp_path, monkeypatch, request):
    folder, work = tmp_path / "in", tmp_path / "work"
    lay_out(folder)
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = folder / case.path
    path.write_text(case.write(case.right))
    # What it imports is taken neither for its memory nor for its time.
    right = stsbench(*case.command)
    assert right.code != 3 and not right.err, right.err
    request.getfixturevalue("bounded_memory")

    @settings(
        max_examples=EXAMPLES,
        deadline=SECONDS * 1000,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(changed(case.right, case.write))
    def check(text: str) -> None:
        path.write_text(text, encoding="utf-8")
        before = files_of(folder)
        code, _, err = stsbench(*case.command)
        assert code in (0, 1, 2) and "Traceback" not in err, (text, err)
        assert files_of(folder) == before
        assert {each.name for each in tmp_path.iterdir()} <= {"in", "work", "cache"}
        assert {each.name for each in work.iterdir()} <= {"results"}

    check()
