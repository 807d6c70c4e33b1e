"""Calls of the command line and what came of them; a user's cards and data."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stsbench
from stsbench.cli.main import main
from stsbench.core import provenance

OWN_ENCODERS = '''
import hashlib
import numpy as np


class Hashed:
    """Bags of words, each word a vector made from its hash."""

    def __init__(self, size: int = 32, name: str = "hashed"):
        self.size, self.name, self.fingerprint = size, name, f"hashed {size}"

    def encode(self, sentences):
        rows = np.zeros((len(sentences), self.size), np.float32)
        for row, sentence in zip(rows, sentences):
            for word in sentence.lower().split():
                digest = hashlib.shake_256(word.encode()).digest(self.size)
                row += np.frombuffer(digest, np.uint8).astype(np.float32) - 127.5
        return rows


class Broken(Hashed):
    def encode(self, sentences):
        return np.full((len(sentences), 4), np.nan, np.float32)


class Bug(Hashed):
    def encode(self, sentences):
        raise ZeroDivisionError("a bug of the user's")


class Nameless:
    fingerprint = None

    def encode(self, sentences):
        raise NotImplementedError


ready = Hashed(name="ready-made")
NUMBER = 3
'''

QUICK = ("--tasks", "quickstart-en")
HASHED = ("--encoder", "own_encoders:Hashed")


PROGRESS = re.compile(
    r"(\[\d+/\d+\] .*, )?seed \d+: step \d+ of \d+, .*\n|\[\d+/\d+\] .* \([\d.]+ s\)\n|\d+ encoders? x .* cells known.*\n|\d+ scored, \d+ known.* in [\d.]+ (s|min|h).*\n"
    r'|\{"event": .*\}\n|scored .*: \S+ -?[\d.]+\n|trying three steps: .*\n|.*: [\d,]+ of [\d,]+(, about .* left)?\n|(\d+/\d+ .*; )?\d+ of \d+ cells done, .*\n'
)


def made_by() -> str:
    """What makes results in this process: stsbench at a commit, or an installed one."""
    commit, dirty = provenance.commit()
    installed = f"stsbench {provenance.version_of('stsbench')}"
    return (
        f"stsbench at commit {commit[:12]}{' with changes' if dirty else ''}"
        if commit
        else installed
    )


LANGUAGES = re.compile(r"stsbench: .* is made for .*; other languages are in .*\n")
"""Most runs of tests score minilm on pairs in Spanish and English."""
DATA_PROBLEMS = re.compile(r"stsbench: items of .*\n")
"""The made-up data of tests of other things have copies and the like."""
UNVERIFIED = re.compile(r"stsbench: not verified: .*\n")
"""Results that a test makes have no per-item columns unless these are what it is about."""


class Outcome(NamedTuple):
    """The exit code of a command and what it printed.

    How a run goes is told apart, by :func:`progress_in`, and so is what is not verified.
    """

    code: int
    out: str
    err: str

    @classmethod
    def of(cls, code: int, out: str, err: str) -> Outcome:
        lines = [line for line in err.splitlines(keepends=True) if not PROGRESS.fullmatch(line)]
        return cls(code, out, "".join(line for line in lines if not UNVERIFIED.fullmatch(line)))


def progress_in(err: str) -> list[str]:
    return [line.rstrip("\n") for line in err.splitlines(keepends=True) if PROGRESS.fullmatch(line)]


class Command:
    """Calls ``stsbench.cli.main.main``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.progress: list[str] = []
        self.unverified: list[str] = []

    def __call__(self, *arguments: str | Path) -> Outcome:
        self.capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = self.capsys.readouterr()
        self.progress = progress_in(err)
        self.unverified = UNVERIFIED.findall(err)
        return Outcome.of(code, out, err)

    def fine(self, *arguments: str | Path) -> str:
        """What a command that goes well prints; on stderr it says at most how a run goes."""
        code, out, err = self(*arguments)
        assert (code, DATA_PROBLEMS.sub("", LANGUAGES.sub("", err))) == (0, "")
        return out

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self.fine(*arguments, "--json"))

    def refused(self, *arguments: str | Path) -> str:
        code, out, err = self(*arguments)
        assert (code, out) == (2, "")
        return one_line(err)


def stop_at(
    stsbench: Command, monkeypatch: pytest.MonkeyPatch, call: list[str | Path], step: int
) -> Outcome:
    """Train, and press Ctrl-C while the step is under way."""
    from stsbench.training.loop.selection import Selection

    report = vars(Selection)["report_progress"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def pressed(self: Any, at: int) -> None:
        report(self, at)
        if at == step:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Selection, "report_progress", pressed)
        try:
            return stsbench(*call)
        finally:
            signal.signal(signal.SIGINT, before)


def one_line(err: str) -> str:
    assert err.startswith("stsbench: ") and err.endswith("\n") and err.count("\n") == 1, err
    assert "Traceback" not in err and len(err) < 1000
    return err.removeprefix("stsbench: ").rstrip("\n")


def process(
    *arguments: str | Path, cwd: Path, path: Path | None = None, **environment: str
) -> Outcome:
    """Call ``python -m stsbench`` as a process of its own; ``path`` goes before the checkout."""
    return python("-m", "stsbench", *map(str, arguments), cwd=cwd, path=path, **environment)


def python(*arguments: str, cwd: Path, path: Path | None = None, **environment: str) -> Outcome:
    """Call Python with this checkout on its path and warnings as errors."""
    paths = [path, Path(stsbench.__file__).parent.parent]
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, filter(None, paths))),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Outcome.of(done.returncode, done.stdout, done.stderr)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


HEAD = 'name = "Mine"\nevaluator = "sts"\nlanguages = ["en"]\npaper = "none"\nlicense = "mine"\n'
PAIRS = "a cat sat\tthe cat sat\na dog ran\tno dog ran\nun café\tcoffee\nit rains\tthe sun shines\n"
GOLD = "5\n3.5\n2\n0.5\n"
TABLE = "s1\ts2\tscore\n" + "".join(
    f"{p}\t{g}\n" for p, g in zip(PAIRS.splitlines(), GOLD.split(), strict=True)
)

SEMEVAL = f"""{HEAD}
[splits.test]
n = 4
subsets = {{news = 4}}
[local]
reader = "semeval"
folder = "mine"
[local.files]
test = [{{path = "in.txt", subset = "news", sha256 = "{sha256(PAIRS)}"}}, {{path = "gs.txt", sha256 = "{sha256(GOLD)}"}}]
"""
PAIR_TABLE = f"""{HEAD}
[splits.test]
n = 4
characters = [33, 41]
mean = 2.75
[local]
reader = "pair_table"
folder = "mine"
params = {{sentence1 = "s1", sentence2 = "s2", gold = "score", header = true}}
[local.files]
test = [{{path = "table.tsv", sha256 = "{sha256(TABLE)}"}}]
"""
ENCODER = (
    'name = "Mine"\nkind = "own_encoders:Hashed"\nmethod = "Hash"\nbackbone = "none"\nsupervision = "none"\n'
    'overlap = "none"\npaper = "none"\nlicense = "mine"\n'
)
FILES: Mapping[str, str] = {"in.txt": PAIRS, "gs.txt": GOLD, "table.tsv": TABLE}


class Own(NamedTuple):
    """A user's folders of cards and data."""

    cards: Path
    data: Path

    def options(self) -> tuple[str | Path, ...]:
        return "--cards", self.cards, "--data", self.data


def make_own(folder: Path, **files: str | bytes) -> Own:
    """A user's tasks ``semeval`` and ``table``, his encoder ``mine``, and their data; files can be given."""
    cards, data = folder / "cards", folder / "data"
    write(cards / "tasks" / "semeval.toml", SEMEVAL)
    write(cards / "tasks" / "table.toml", PAIR_TABLE)
    write(
        cards / "tasks" / "suites.toml",
        '[both]\nname = "Both of mine"\ntasks = ["semeval", "table"]\n',
    )
    write(cards / "baselines" / "mine.toml", ENCODER)
    for name, content in {
        **FILES,
        **{name.replace("_", "."): text for name, text in files.items()},
    }.items():
        write(data / "mine" / name, content)
    return Own(cards, data)
