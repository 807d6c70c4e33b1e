"""What reaches the terminal and files, and how commands end: control characters, widths, full disks, pipes, bugs."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import stsbench as package
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.table import Group, Row, Table, TableCell, TableColumn, TableNumber
from stsbench.cli import printing
from stsbench.cli.printing import print_facts
from stsbench.cli.tables import print_rows, print_table
from stsbench.core import settings
from stsbench.core.errors import StsbenchError
from stsbench.core.names import MAX_NAME_LENGTH
from stsbench.core.wording import escape_controls
from tests.cli.commands import (
    HASHED,
    OWN_ENCODERS,
    QUICK,
    Command,
    Outcome,
    one_line,
    process,
    write,
)
from tests.forgeries import resealed

CLI = Path(package.__file__).parent / "cli"
EVIL = "e\x1b[31m\x1b]0;t\a\x9b2J\u202e\x7fl"
SHOWN = r"e\u001b[31m\u001b]0;t\u0007\u009b2J\u202e\u007fl"
ENDINGS = """
import typer
from stsbench.core.errors import CardError


class Evil(Hashed):
    def __init__(self):
        super().__init__(name="{evil}")


class Ends(Hashed):
    def encode(self, sentences):
        raise SystemExit(0)


class EndsEarly(Hashed):
    def __init__(self):
        raise SystemExit(1)


class Exits(Hashed):
    def encode(self, sentences):
        raise typer.Exit(0)


class Misuses(Hashed):
    def encode(self, sentences):
        raise typer.BadParameter("of its own")


class Panics(Hashed):
    class Panic(BaseException):
        pass

    def encode(self, sentences):
        raise self.Panic("unwrap on None")


class Mistakes(Hashed):
    def encode(self, sentences):
        raise CardError("a mistake of another kind")


class Empty(Hashed):
    def encode(self, sentences):
        raise EOFError("no more")


class Piped(Hashed):
    def encode(self, sentences):
        raise BrokenPipeError(32, "a pipe of its own")


class Raises(Hashed):
    def encode(self, sentences):
        raise ValueError("{evil}")
"""


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on the path with the module ``endings``."""
    folder = tmp_path_factory.mktemp("endings")
    code = OWN_ENCODERS + ENDINGS.format(evil=EVIL.encode("unicode_escape").decode())
    write(folder / "endings.py", code)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


def test_only_printing_writes_to_the_terminal():
    """So that what all commands print goes through one place."""
    writes = re.compile(r"(?<![\w.])print\(|typer\.echo|sys\.(stdout|stderr)\.write|sys\.__std")
    found = [path.name for path in sorted(CLI.glob("*.py")) if writes.search(path.read_text())]
    assert found == ["printing.py"]


# Names.


def test_names_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]):
    row = Row(label=EVIL, encoder=EVIL, cells={"a": TableCell(measured=TableNumber(-4.28))})
    shown = Table(
        name=EVIL,
        title=EVIL,
        columns=[TableColumn(key="a", head=EVIL)],
        groups=[Group(rows=[row], title=EVIL, section=EVIL)],
        notes=[EVIL],
    )
    print_table(build_layout(shown, "measured"))
    print_rows([EVIL], [[EVIL]])
    printing.print_facts([[EVIL, EVIL]])
    printing.print_text(EVIL)
    printing.print_json({EVIL: EVIL})
    printed = capsys.readouterr().out
    assert escape_controls(printed) == printed and printed.count(SHOWN) >= 8
    # Numbers stand where they would, beside a label that is cut.
    label = f"{SHOWN[: MAX_NAME_LENGTH - 4]}…(1)"
    assert f"\n{label}  {'-4.28':>{len(SHOWN)}}\n" in printed and f"\n(1) {SHOWN}\n" in printed


def test_errors_cannot_steer_the_terminal(stsbench: Command, endings: Path, tmp_path: Path):
    assert SHOWN in stsbench.refused("run", "--encoder", EVIL, *QUICK)
    assert repr(EVIL) in stsbench.refused("run", "--encoder", "endings:Evil", *QUICK)
    refused = stsbench.refused("rnu" + EVIL)
    assert escape_controls(refused) == refused
    raised = stsbench("run", "--encoder", "endings:Raises", *QUICK)
    assert raised.code == 3 and SHOWN in raised.err and escape_controls(raised.err) == raised.err
    raised = stsbench("run", "--encoder", "endings:Raises,endings:Hashed", *QUICK)
    assert raised.code == 3 and SHOWN in raised.err and escape_controls(raised.err) == raised.err
    (tmp_path / "results" / EVIL).mkdir(parents=True)
    write(tmp_path / "results" / EVIL / "x.json", b"{")
    _, _, err = stsbench("leaderboard", "--suite", "quickstart")
    assert SHOWN in err and escape_controls(err) == err


def test_of_a_word_without_end_the_middle_is_cut_and_the_sentence_ends(stsbench: Command):
    message = stsbench.refused("show", "x" * 100_000)
    assert message.startswith("unknown name 'xxx") and "xxx…xxx" in message and len(message) < 1000
    assert message.endswith(stsbench.refused("show", "y" * 9).split("'", 2)[2])


# Terminals.


@pytest.mark.parametrize("lines", ["0", "abc", "²", "-3", ""])
@pytest.mark.parametrize("columns", ["0", "abc", "²", "-3", "", "1", "9" * 400])
def test_an_odd_size_of_the_terminal_stops_nothing(stsbench: Command, monkeypatch, columns, lines):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", lines)
    monkeypatch.setenv("TERM", "odd²-[31")
    width = max(map(len, stsbench.fine("list", "suites").splitlines()))
    # 20 columns at least; what is no number is as if nothing were said, and a pipe has no end.
    assert 20 <= width < 60 if columns == "1" else width > 200


def on_a_terminal(
    *arguments: str, cwd: Path, path: Path, columns: int, errors: bool = False
) -> str:
    """What a command prints on a terminal of this width."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")
    }
    environment |= {"PYTHONPATH": f"{path}:{Path(package.__file__).parent.parent}", "TERM": "xterm"}
    command = [sys.executable, "-m", "stsbench", *arguments]
    started = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its if errors else subprocess.DEVNULL,
    )
    os.close(its)
    printed = bytearray()
    with suppress(OSError):  # which is the end of what a terminal prints
        while part := os.read(ours, 65536):
            printed += part
    os.close(ours)
    assert started.wait(60) == (2 if errors else 0)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode()).replace("\r", "")


NOTE = "a note of many words that goes on for longer than a terminal is wide and holds --an-option=of/a/path/that/stays-whole"


def test_a_terminal_shows_what_to_do_on_a_line_of_its_own(own: Path, tmp_path: Path):
    shown = on_a_terminal(
        "run", "minilm", "--tasks", "stsbb", cwd=tmp_path, path=own, columns=80, errors=True
    )
    # Before it stands the bar, which a terminal takes away.
    first, *hint = shown[shown.index("stsbench: ") :].splitlines()
    assert first == "stsbench: unknown task or suite 'stsbb'"
    assert " ".join(hint).startswith("hint: did you mean 'stsb'") and max(map(len, hint)) <= 80


@pytest.mark.parametrize("columns", [80, 50])
def test_notes_are_wrapped_at_words_on_a_terminal(
    stsbench: Command, own: Path, tmp_path: Path, columns
):
    run = ["run", "--encoder", "own_encoders:ready", *QUICK]
    stsbench.fine(*run)
    (path,) = (tmp_path / "results").glob("*/*.json")
    resealed(notes=[NOTE])(path)
    in_a_pipe = process(*run, cwd=tmp_path, path=own).out.splitlines()
    assert f"quickstart-en: {NOTE}" in in_a_pipe
    lines = on_a_terminal(*run, cwd=tmp_path, path=own, columns=columns).splitlines()
    of_note = [line for line in lines if line and line in f"quickstart-en: {NOTE}"]
    assert len(of_note) > 1 and max(map(len, of_note)) <= columns
    assert " ".join(of_note) == f"quickstart-en: {NOTE}", "broken between words alone"


# How commands end.


@pytest.mark.parametrize(
    ("encoder", "code", "says"),
    [
        ("Ends", 2, "encoder 'hashed': its code ended the program (SystemExit: 0)"),
        ("EndsEarly", 2, "encoder 'endings:EndsEarly': its code ended the program (SystemExit: 1)"),
        ("Exits", 3, "Exit"),
        ("Misuses", 3, "of its own"),
        ("Panics", 2, "encoder 'hashed': its code has panicked: unwrap on None"),
        ("Mistakes", 2, "a mistake of another kind"),
        ("Empty", 3, "EOFError: no more"),
        ("Piped", 3, "BrokenPipeError: [Errno 32] a pipe of its own"),
        ("Bug", 3, "ZeroDivisionError: a bug of the user's"),
    ],
)
def test_what_an_encoder_raises_is_its_error(stsbench: Command, endings: Path, encoder, code, says):
    ended = stsbench("run", "--encoder", f"endings:{encoder}", *QUICK)
    assert ended.code == code and says in ended.err
    # The other encoders are scored all the same.
    ended = stsbench("run", "--encoder", f"endings:{encoder},own_encoders:ready", *QUICK, "--json")
    assert ended.code == code and says in ended.err and "ready-made" in ended.out


def test_a_variable_at_which_a_library_ends_is_no_bug(tmp_path):
    ended = process("doctor", cwd=tmp_path, HF_HUB_ETAG_TIMEOUT="abc")
    assert ended.code == 2 and one_line(ended.err).startswith(
        "HF_HUB_ETAG_TIMEOUT='abc' is not a whole number"
    )


def shell(line: str, cwd: Path) -> Outcome:
    """Run a line of bash, ``$stsbench`` in it being the command."""
    root = str(Path(package.__file__).parent.parent)
    environment = {**os.environ, "stsbench": f"{sys.executable} -m stsbench", "PYTHONPATH": root}
    line = f"set -o pipefail; {line}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=environment, capture_output=True, timeout=60, check=False
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["list tasks", "list tasks --json", "--help"])
def test_an_output_that_is_full_is_one_line(tmp_path: Path, command):
    code, out, err = shell(f"$stsbench {command} > /dev/full", tmp_path)
    assert (code, out) == (2, "")
    assert one_line(err) == "the output cannot be written: No space left on device"


@pytest.mark.parametrize(
    ("line", "code", "shown"),
    [
        (
            "$stsbench leaderboard --table simcse-5 --show published | head -1",
            0,
            "Semantic textual",
        ),
        ("$stsbench list tasks --json | head -c 1", 0, "["),
        ("$stsbench list tasks >&-", 0, ""),
        ("$stsbench rnu 2>&-", 2, ""),
        ("$stsbench rnu 2>/dev/full", 2, ""),
    ],
)
def test_an_output_that_nobody_reads_is_silence(tmp_path: Path, line, code, shown):
    found = shell(line, tmp_path)
    assert (found.code, found.err) == (code, "") and found.out.startswith(shown)


# Arguments.


BACK = ("data", "back-translate", "in.txt", "out.csv")


@pytest.mark.parametrize("number", ["-1", "9" * 400])
@pytest.mark.parametrize(
    "command",
    [("compare", "a", "b", "--seed"), ("timing", "--rounds"), ("timing", "--steps"), ("timing", "--batch-size"),
     ("convert", "expand", "a", "b", "--limit"), (*BACK, "--limit"), (*BACK, "--seed"), (*BACK, "--max-tokens"),
     (*BACK, "--batch-size"), (*BACK, "--temperature"), ("convert", "infersent", "a", "b", "--version")],
    ids=" ".join,
)  # fmt: skip
def test_absurd_numbers_are_one_line(stsbench: Command, tmp_path: Path, command, number):
    write(tmp_path / "in.txt", "a b\nc d\n")
    assert stsbench.refused(*command, number)


@pytest.mark.parametrize("sign", ["\0", "\udce9"])
@pytest.mark.parametrize(
    "command",
    [
        ["run", "--encoder"], ["run", "--results"], ["run", "--set"], ["list"], ["lock"], ["compare"], ["data", "fetch"],
        ["leaderboard", "--table"], ["check", "results", "--against", "x", "--junit"], ["timing", "--out"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_is_no_text_is_refused_wherever_it_stands(
    stsbench: Command, tmp_path: Path, command, sign
):
    message = stsbench.refused(*command, f"a{sign}b")
    assert message.startswith(
        f"'a{escape_controls(sign)}b' is not text: names and paths are UTF-8 without NUL"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [["run", *QUICK, *HASHED, "--results"], ["run", *QUICK, *HASHED, "--data"], ["run", *QUICK, *HASHED, "--store"],
     ["lock"], ["check", "x", "--against"], ["leaderboard", "--results"], ["leaderboard", "--table"],
     ["list", "tasks", "--cards"], ["train", "consert-small", "--out"], ["show"], ["compare", "a"]],
    ids=" ".join,
)  # fmt: skip
def test_a_name_too_long_for_the_system_is_one_line(stsbench: Command, command):
    assert stsbench.refused(*command, "x" * 5000)


# Settings.

RUN = ("run", *QUICK, *HASHED)
USES = {
    "STSBENCH_DATA": (RUN, ("data", "verify", "mr")),
    "STSBENCH_CACHE": (RUN,),
    "STSBENCH_RUNS": (("run", *QUICK, "--encoder", "fastsent-small"), ("show", "fastsent-small")),
    "STSBENCH_VECTORS": (("run", *QUICK, "--encoder", "glove-6b"), ("show", "glove-6b")),
}


@pytest.mark.parametrize("name", USES)
def test_a_setting_of_no_sense_is_one_line_that_names_it(
    stsbench: Command, own: Path, monkeypatch, name
):
    for value in ("~nouser/x", "x" * 5000):
        monkeypatch.setenv(name, value)
        for command in USES[name]:
            assert f"{name}='{value[:100]}" in stsbench.refused(*command)
    monkeypatch.setenv("STSBENCH_CORPORA", "~nouser/x")
    with pytest.raises(StsbenchError, match="STSBENCH_CORPORA='~nouser/x'"):
        settings.corpora_folder()


def test_a_user_without_a_home_is_told_what_to_set(stsbench: Command, own: Path, monkeypatch):
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("STSBENCH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert "set STSBENCH_CACHE to a folder" in stsbench.refused(*RUN)


# GitHub.


def test_a_bug_of_ours_keeps_its_whole_traceback(
    monkeypatch: pytest.MonkeyPatch, stsbench: Command
):
    monkeypatch.setattr("stsbench.cli.list.LISTS", {"tasks": lambda catalogue: 3})
    told = stsbench("list", "tasks")
    frames = [line for line in told.err.splitlines() if line.lstrip().startswith('File "')]
    assert told.code == 3 and "stsbench/cli/main.py" in frames[0] and len(frames) > 5
    said = "stsbench: this is a bug, in stsbench or in your own code; the lines above show where"
    assert told.out == "" and told.err.splitlines()[-1] == said


LONG = "minilm+dimensions=64+embeddings=int8"
FOLDER = f"minilm-l4-mlm+model=/data/{'models/' * 12}minilm+pooling=cls_before_pooler"
ROWS = [[LONG, "STS Benchmark", "1379"], ["minilm", "CoordinationInversion", "10002"]]


def drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, room: int, *more: str
) -> list[str]:
    """The lines of a table in a terminal of so many columns; ``more`` are heads of numbers."""
    monkeypatch.setenv("COLUMNS", str(room))
    numbers = ["12.3456", "-65.4321"]
    rows = [[*row, *[number] * len(more)] for row, number in zip(ROWS, numbers, strict=True)]
    print_rows(["encoder", "task", "n", *more], rows, number_columns=range(2, 3 + len(more)))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("room", "first", "second", "key"),
    [
        (
            71,
            [LONG, "STS", "Benchmark", "1379"],
            ["minilm", "CoordinationInversion", "10002"],
            False,
        ),
        (
            70,
            [LONG, "STS", "Benchmark", "1379"],
            ["minilm", "CoordinationInversion", "10002"],
            False,
        ),
        (
            48,
            ["minilm+…(1)", "STS", "Benchmark", "1379"],
            ["minilm", "CoordinationInversion", "10002"],
            True,
        ),
        (
            41,
            ["minilm+…(1)", "STS", "Benchmark", "1379"],
            ["minilm", "CoordinationInversion", "10002"],
            True,
        ),
        (
            34,
            ["minilm+…(1)", "STS", "Benchmark", "1379"],
            ["minilm", "Coordination", "10002"],
            True,
        ),
        (32, ["minilm+…(1)", "STS", "1379"], ["Benchmark"], True),
    ],
)
def test_long_settings_are_short_before_words_are_broken(
    capsys, monkeypatch, room, first, second, key
):
    lines = drawn(capsys, monkeypatch, room)
    assert [lines[2].split(), lines[3].split()] == [first, second]
    assert (lines[-1] == f"(1) {LONG}") == key and all(
        len(line) <= room for line in lines[: -1 if key else None]
    )
    assert set(lines[1]) == {"─"} and len({len(line) for line in lines[:3]}) == 1


def test_columns_without_room_are_set_in_parts_that_each_say_what_their_lines_are_of(
    capsys, monkeypatch
):
    lines = drawn(capsys, monkeypatch, 44, *(f"number {at}" for at in range(4)))
    heads = [line.split() for line in lines if line.startswith("encoder")]
    assert len(heads) > 1 and all(head[:2] == ["encoder", "task"] for head in heads)
    assert sum(line.count("12.3456") for line in lines) == 4 and all(
        len(line) <= 44 for line in lines[:-2]
    )


def test_a_word_breaks_at_its_joints(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "22")
    print_rows(["encoder", "backbone"], [["all-MiniLM", "Distil-RoBERTa base"]])
    assert [line[10:].strip() for line in capsys.readouterr().out.splitlines()[2:]] == [
        "Distil-",
        "RoBERTa",
        "base",
    ]


@pytest.mark.parametrize("columns", [20, 60, 80, 120])
def test_a_name_longer_than_the_terminal_is_told_in_one_piece_below(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_rows(
        ["encoder", "score", "n"],
        [[FOLDER, "62.45", "300"], ["minilm", "60.64", "300"]],
        number_columns=[1, 2],
    )
    *table, key = capsys.readouterr().out.splitlines()
    assert key == f"(1) {FOLDER}"
    assert max(len(line.rstrip()) for line in table) <= max(columns, 24) and "62.45" in "".join(
        table
    )


def test_off_a_terminal_nothing_is_short_or_wrapped(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rows(["encoder", "score"], [[FOLDER, "62.45"]], number_columns=[1])
    print_facts([["prompt", "two  blanks and " + "words " * 40], ["name", FOLDER]])
    out = capsys.readouterr().out.splitlines()
    assert out[2].split() == [FOLDER, "62.45"] and len(out) == 5 and "two  blanks" in out[3]


def test_facts_keep_their_words_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_facts([["to run it", f"stsbench run --encoder {FOLDER}"], ["kind", "transformer"]])
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["to run it  stsbench run --encoder", FOLDER, "kind       transformer"]


BOARD = ("leaderboard", "--table", "simcse-5", "--format", "csv", "--out")


@pytest.mark.parametrize("old", ["old", None], ids=["file", "nothing"])
def test_a_link_stays_a_link_and_what_it_leads_to_is_written(
    stsbench: Command, tmp_path: Path, old: str | None
):
    folder = tmp_path / "elsewhere"
    link, target = tmp_path / "link.csv", folder / "board.csv"
    link.symlink_to(Path("elsewhere", "board.csv"))
    if old:
        folder.mkdir()
        target.write_text(old)
    stsbench.fine(*BOARD, link)
    assert link.is_symlink() and target.read_text().startswith("table,")
    assert [one.name for one in folder.iterdir()] == ["board.csv"]


def test_a_pipe_is_written_into(stsbench: Command, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    stsbench.fine(*BOARD, pipe)
    assert os.read(reader, 6) == b"table,"
    assert stat.S_ISFIFO(pipe.stat().st_mode) and [one.name for one in tmp_path.iterdir()] == [
        "pipe"
    ]
    os.close(reader)


def test_a_device_stays_a_device(stsbench: Command):
    stsbench.fine(*BOARD, os.devnull)
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


@pytest.mark.parametrize(
    "command",
    [
        ("new", "task", "here.csv", "--out", "cards"),
        ("new", "encoder", "here.csv", "--out", "cards"),
        ("data", "overlap", "here.csv"),
        ("run", "-e", "minilm", "-t", "quickstart-en", "--config", "here.csv"),
        ("run", "-e", "glove-840b-sbert", "-t", "quickstart-en", "--set", "file=here.csv"),
        ("run", "-e", "mine", "-t", "quickstart-en", "--cards", "own"),
        ("check", "results", "--against", "here.csv"),
    ],
    ids=lambda command: " ".join(command[:3]),
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_may_never_end_is_not_read(
    stsbench: Command, tmp_path: Path, command: tuple[str, ...], kind: str
):
    for place in (tmp_path / "here.csv", tmp_path / "own" / "baselines" / "mine.toml"):
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(place)
        else:
            place.symlink_to("/dev/zero")
    (tmp_path / "results").mkdir()
    assert "is a pipe or a device, not a file" in stsbench.refused(*command)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux shows its kernel so")
@pytest.mark.parametrize(
    "command", [("run", "-e", "minilm", "-t", "quickstart-en", "--no-store"), ("doctor",)]
)
def test_the_kernels_folder_is_no_cache(
    stsbench: Command, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
):
    monkeypatch.setenv("STSBENCH_CACHE", "/proc")
    assert "STSBENCH_CACHE='/proc' names no folder (it is the kernel's" in stsbench.refused(
        *command
    )


@pytest.mark.parametrize("value", ["", " " * 60])
def test_facts_without_a_value_are_their_name(capsys, monkeypatch, value):
    monkeypatch.setenv("COLUMNS", "20")
    print_facts([["a name longer than the line", value]])
    assert capsys.readouterr().out.splitlines() == ["a name longer than the line"]
