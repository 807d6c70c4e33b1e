"""The Result's file: exact, whole or not there, found by what made it, and never trusted blindly."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from stsbench.core.errors import DataError, OutputError
from stsbench.results.folder import (
    read_columns,
    read_folder,
    read_result,
    read_states,
    result_to_json,
    to_parquet,
    write_result,
)
from stsbench.results.record import (
    cell_id,
    digest_columns,
    digest_fields,
    find_problems,
    items_path,
    result_path,
)
from tests.forgeries import FORGERIES
from tests.made import SIMCSE, make_result, read_items

FLOATS = [
    0.1 + 0.2,
    1 / 3,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    0.7236900663942801,
    1.0,
    1e16,
    123456789.123456789,
]
OWN = {"name": "own", "metric": "loss"}


@pytest.mark.parametrize("value", FLOATS)
def test_floats_read_back_exactly(tmp_path, value):
    result = make_result(score=value, protocol=OWN, interval=(value, value), scores={"loss": value})
    read = read_result(write_result(result, tmp_path))
    for found in (read.score, *read.interval, read.scores["loss"]):
        assert found.hex() == value.hex()


def test_what_is_not_a_number_is_never_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        result_to_json(make_result(score=float("nan"), interval=(0.0, 1.0)))


def test_a_round_trip_is_the_same_result_and_the_same_bytes(tmp_path):
    result = make_result()
    path = write_result(result, tmp_path)
    read = read_result(path)
    assert read == msgspec.structs.replace(result, per_item={}, path=path, digest=read.digest)
    assert result_to_json(read) == path.read_bytes()
    items = read_items(path)
    assert items["subset"].tolist() == ["news", "news", "forum"]
    for name in ("gold", "similarity"):
        assert items[name].tobytes() == result.per_item[name].tobytes()


def test_the_file_is_plain_json_for_people_and_scripts(tmp_path):
    text = write_result(make_result(score=0.72369), tmp_path).read_text(encoding="utf-8")
    assert json.loads(text)["score"] == 0.72369
    assert list(json.loads(text))[:4] == ["schema", "encoder", "task", "split"]
    assert "per_item" not in text
    assert "señor" in text and text.endswith("}\n")


def test_slashes_in_names_become_dashes(tmp_path):
    path = write_result(make_result(encoder="owner/name", task="a/b"), tmp_path)
    assert path.parent == tmp_path / "owner--name"
    assert path.name == f"a--b.test.{make_result(encoder='owner/name').cell_id}.json"
    assert items_path(path).name == path.name.replace(".json", ".items.parquet")
    assert [r.encoder for r in read_states(tmp_path).results] == ["owner/name"]
    assert result_path(Path("r"), "minilm", "sts12", "test", "12345678") == Path(
        "r/minilm/sts12.test.12345678.json"
    )


def test_a_cell_changes_if_and_only_if_protocol_fingerprint_or_seed_change():
    cell = make_result().cell_id
    assert cell == cell_id(SIMCSE, "print of minilm", None, 0)
    assert len(cell) == 8 and int(cell, 16) >= 0
    changes: list[dict[str, Any]] = [
        {"protocol": {**SIMCSE, "aggregation": "mean"}},
        {"protocol": {**SIMCSE, "name": "other"}},
        {"fingerprint": "other"},
        {"fingerprint": None},
        {"eval_seed": 1},
        {"train_seed": 0},
    ]
    others = [make_result(**change).cell_id for change in changes]
    assert len({cell, *others}) == len(changes) + 1
    same: dict[str, Any] = {
        "score": 0.9,
        "data": "x",
        "run": {},
        "notes": [],
        "split": "train",
        "task": "sts13",
    }
    for change in [{key: value} for key, value in same.items()]:
        assert make_result(**change).cell_id == cell
    assert make_result(protocol=dict(reversed(SIMCSE.items()))).cell_id == cell


# Files that are none.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1, 2]", "Expected 'object', got 'array'"),
        (b'{"name": "of another tool"}', "unknown field 'name'"),
        (b'{"schema": 1}', "missing required field 'encoder'"),
        (b'{"schema": 1, "run": {"a": ' + b"[" * 100_000, "recursion"),
        (
            result_to_json(make_result()).replace("ñ".encode(), b"\xf1"),
            "JSON is malformed|[Ii]nvalid",
        ),
        (
            result_to_json(make_result()).replace(b"1", b"0", 1),
            "schema 0, this stsbench reads 1; run the cell again$",
        ),
    ],
    ids=range(6),
)
def test_what_is_no_result_is_one_line_and_the_rest_loads(tmp_path, content, message):
    good = make_result(encoder="good")
    write_result(good, tmp_path)
    bad = tmp_path / "bad" / "sts12.test.12345678.json"
    bad.parent.mkdir()
    bad.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_result(bad)
    assert str(caught.value).startswith(f"{bad}: ") and "\n" not in str(caught.value)
    found = read_states(tmp_path)
    assert [r.encoder for r in found.results] == ["good"]
    assert found.problems == [(bad, str(caught.value))]


def test_states_of_which_none_is_recorded_as_current_are_told_with_their_files(tmp_path):
    first, second = (
        write_result(make_result(fingerprint=fingerprint), tmp_path) for fingerprint in "ab"
    )
    (record,) = (
        path for path in first.parent.iterdir() if path.suffix not in (".json", ".parquet")
    )
    record.unlink()
    (problem,) = read_folder(tmp_path).problems
    names = ", ".join(sorted([first.name, second.name]))
    assert f"holds 2 states of 'minilm' on sts12 ({names})" in problem.message


@pytest.mark.parametrize(("forge", "said"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_file_is_one_line_that_names_file_and_field(tmp_path, forge, said):
    path = write_result(make_result(), tmp_path)
    forge(path)
    with pytest.raises(DataError) as caught:
        read_items(path)
    message = str(caught.value)
    assert path.name.removesuffix(".json") in message and any(
        one in message for one in said.split("|")
    )
    assert "\n" not in message and len(message) < 500


def test_other_files_and_folders_are_no_results(tmp_path):
    write_result(make_result(), tmp_path)
    (tmp_path / "leaderboard.md").write_text("a table")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "minilm" / "folder.json").mkdir()
    (tmp_path / "minilm" / "sts12.test.00000000.json.123.partial").write_text("{")
    found = read_states(tmp_path)
    assert (len(found.results), found.problems) == (1, [])


def test_no_such_folder(tmp_path):
    with pytest.raises(OutputError, match=f"'{tmp_path}/gone'") as caught:
        read_states(tmp_path / "gone")
    assert caught.value.remedy and caught.value.remedy.action == "score"


# Whole or not there.


@pytest.mark.parametrize("moment", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_write_that_is_cut_short_leaves_nothing_or_what_was_there(
    tmp_path, monkeypatch, moment, error
):
    path = write_result(make_result(), tmp_path)
    before = {p: p.read_bytes() for p in path.parent.iterdir()}

    def fail(*args: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail) if moment == "fsync" else patch.setattr(
            Path, "replace", fail
        )
        for folder in (tmp_path, tmp_path / "new"):
            with pytest.raises((KeyboardInterrupt, OutputError)):
                write_result(make_result(score=0.9), folder)
    assert {p: p.read_bytes() for p in path.parent.iterdir()} == before
    assert [p for p in (tmp_path / "new").rglob("*") if p.is_file()] == []


def test_a_result_is_there_only_with_its_items(tmp_path, monkeypatch):
    written: list[str] = []
    replace = Path.replace

    def note(self: Path, to: Path) -> Path:
        written.append(to.name)
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", note)
    path = write_result(make_result(), tmp_path)
    assert written == [items_path(path).name, path.name]


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, below):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match=f"^{tmp_path}/.*: cannot be written: [A-Z]"):
        write_result(make_result(), tmp_path / below)


# Per-item columns.


def test_every_change_of_the_items_is_found(tmp_path):
    result = make_result()
    path = write_result(result, tmp_path)
    nudged = result.per_item["similarity"].copy()
    nudged[1] = np.nextafter(nudged[1], 1)
    columns = result.per_item
    others = [
        {**columns, "similarity": nudged},
        {**columns, "subset": ["news", "forum", "news"]},
        {**columns, "gold": columns["similarity"], "similarity": columns["gold"]},
        {name: columns[name][::-1] for name in columns},
        {name: columns[name] for name in ("gold", "similarity")},
        {**columns, "new": columns["gold"]},
    ]
    assert len({digest_columns(c) for c in [columns, *others]}) == len(others) + 1
    for other in others:
        write_result(msgspec.structs.replace(result, per_item=other), tmp_path)
        with pytest.raises(
            DataError, match="items.parquet: is not what sts12.* was made with; run the cell again"
        ):
            read_items(path)


def test_columns_are_read_as_they_were_written_or_refused(tmp_path):
    path = tmp_path / "items.parquet"
    texts = {"plain": ["a", "b", "a"], "with a gap": ["a", None, "a"]}
    pyarrow.parquet.write_table(pyarrow.table(texts), path)
    assert {name: list(column) for name, column in read_columns(path, 3).items()} == texts
    with pytest.raises(DataError, match="3 rows of 2 columns, the result is of 4 items"):
        read_columns(path, 4)
    twice = pyarrow.table([pyarrow.array([1, 2, 3])] * 2, names=["a", "a"])
    pyarrow.parquet.write_table(twice, path)
    with pytest.raises(DataError, match="3 rows of 2 columns"):
        read_columns(path, 3)


def test_broken_items_are_one_line(tmp_path):
    path = write_result(make_result(), tmp_path)
    whole = items_path(path).read_bytes()
    for content in (
        b"",
        b"PAR1",
        whole[:-10],
        whole[: len(whole) // 2],
        whole.replace(b"PAR1", b"PAR2"),
        None,
    ):
        if content is None:
            items_path(path).unlink()
        else:
            items_path(path).write_bytes(content)
        with pytest.raises(DataError, match=f"{items_path(path)}: cannot be read: ") as caught:
            read_items(path)
        assert "\n" not in str(caught.value)


def test_no_flipped_byte_of_the_items_gets_through(tmp_path):
    path = write_result(make_result(), tmp_path)
    whole = items_path(path).read_bytes()
    expected = read_items(path)
    for at in range(0, len(whole), 5):
        items_path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        try:
            found = read_items(path)
        except DataError:
            continue
        # A byte that says nothing of the columns, as the name of the library that wrote them.
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_texts_that_hold_separators_have_a_digest_of_their_own():
    lists = [
        ["a\x1fb"],
        ["a", "b"],
        ["a\x1b\x1fb"],
        ["a\x1b", "b"],
        ["a\x1e", "b"],
        ["a\x1b\x1e", "b"],
    ]
    assert len({digest_columns({"subset": texts}) for texts in lists}) == len(lists)
    assert digest_columns({"a": ["x", "b\x1ey"]}) != digest_columns({"a": ["x"], "b": ["y"]})
    # Those of texts without any are as they have always been.
    assert (
        digest_columns(make_result().per_item)
        == "aac493bd2ae9a221fdb39387f169021e8f077fceeef3f0c38bd003e57e072368"
    )


# Names and places.


@pytest.mark.parametrize(
    "name",
    [
        *"../../../../x|/etc/x|..|.|a\\..\\b|C:x|con|LPT1.x|a.|a ".split("|"),
        "x" * 300,
        "ñ" * 200,
        "a?b|c",
    ],
)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    changes: list[dict[str, Any]] = [{"encoder": name}, {"task": name}, {"split": name}]
    for change in changes:
        folder = tmp_path / next(iter(change))
        path = write_result(make_result(**change), folder)
        assert (
            path.resolve().parent.parent == folder.resolve() and len(os.fsencode(path.name)) < 230
        )
        assert not any(
            part.endswith((".", " ")) or set(part) & set('\\:?|"<>*') for part in path.parts[-2:]
        )
        (read,) = read_states(folder).results
        assert {key: getattr(read, key) for key in change} == change
        assert list(read_items(path)) == ["subset", "gold", "similarity"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["encoder", "split", "task"]


@pytest.mark.parametrize("name", ["", " ", "a\0b", "a\nb", "\x1b[2J", "\udc80"])
@pytest.mark.parametrize("field", ["encoder", "task", "split"])
def test_what_is_no_name_is_not_written(tmp_path, name, field):
    with pytest.raises(DataError, match="cannot be kept: "):
        write_result(make_result(**{field: name}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_names_of_one_place_do_not_overwrite_each_other(tmp_path):
    write_result(make_result("a/b", fingerprint="one"), tmp_path)
    with pytest.raises(
        OutputError, match="holds the result of 'a/b' on sts12, not of 'a--b' on sts12; rename one"
    ):
        write_result(make_result("a--b", fingerprint="one"), tmp_path)
    write_result(make_result("a/b", fingerprint="one"), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": float("nan"), "scores": {}}, "Out of range float values are not JSON compliant"),
        (
            {"score": 2.0},
            "field 'score': 2.0 is not a valid spearman.all, which is between -1 and 1",
        ),
        (
            {"scores": {"accuracy": 85.3, "spearman.all": 1.0}},
            "field 'scores': 85.3 is not a valid accuracy",
        ),
        ({"scores": {"spearman.all": np.float32(1.0)}}, "float32 is not JSON serializable"),
        ({"n": 4}, "column 'subset' has 3 items, the result's field 'n' says 4"),
        ({"notes": [5]}, r"Expected 'str', got 'int' - at '\$.notes"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, changes, message):
    with pytest.raises(DataError, match=f"minilm on sts12 .*{message}"):
        write_result(make_result(**changes), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_links_to_themselves_pipes_and_large_files_are_no_results(tmp_path):
    path = write_result(make_result(), tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "again").symlink_to("minilm")
    (path.parent / "loop.json").symlink_to("loop.json")
    os.mkfifo(path.parent / "pipe.json")
    with (path.parent / "large.json").open("wb") as stream:
        stream.truncate(1 << 40)
    found = read_states(tmp_path)
    assert [one.path.parent.name for one in found.results if one.path] == ["minilm"]
    lines = {
        problem.path.name: problem.message
        for problem in found.problems
        if problem.path.parent.name == "minilm"
    }
    assert lines["loop.json"].endswith("cannot be read: Too many levels of symbolic links")
    assert (
        "pipe.json: is a pipe or a device" in lines["pipe.json"]
        and "1,099,511,627,776 bytes" in lines["large.json"]
    )
    assert any(
        "again/sts12" in problem.message and "not where it" in problem.message
        for problem in found.problems
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"score": 1.0, "interval": (0.9, 1.0)}, None),
        ({"score": 1.01, "interval": (0.9, 1.01)}, "is not a valid spearman.all"),
        ({"scores": {"accuracy.9": 85.3}}, "85.3 is not a valid accuracy.9"),
        ({"scores": {"accuracy.10": 85.3}}, "85.3 is not a valid accuracy.10"),
        ({"n": 1, "per_subset": {}}, None),
        ({"n": 0, "per_subset": {}}, "field 'n': 0 items; a score is of one at least"),
        (
            {"protocol": {"metric": "spearman", "aggregation": "all"}},
            "field 'protocol': has no 'name'",
        ),
    ],
)
def test_a_result_of_one_item_or_with_a_perfect_score_is_one(changes, problem):
    problems = list(find_problems(make_result(**{"score": 0.5, **changes})))
    assert not problems if problem is None else any(problem in one for one in problems)


def test_a_result_prints_as_one_line():
    found = repr(make_result("minilm", "sts12", 0.5, train_seed=3))
    of = "minilm, training seed 3 on sts12 test, protocol simcse"
    assert found == f"<Result, {of}: 0.5000 (95% interval 0.4000 to 0.6000)>"


def test_columns_are_written_as_pyarrow_writes_them_and_without_pandas():
    columns = {
        "a": np.linspace(0, 1, 100),
        "b": np.arange(100, dtype=np.uint32),
        "c": np.arange(100) % 3 == 0,
        "d": ["x", "é\u4e2d"] * 50,
        "e": np.arange(200, dtype=np.float32)[::2],
    }
    due = io.BytesIO()
    table = pyarrow.table({name: pyarrow.array(column) for name, column in columns.items()})
    pyarrow.parquet.write_table(table, due, compression="zstd")
    assert to_parquet(columns) == due.getvalue()
    code = "import sys, numpy; from stsbench.results.folder import to_parquet; "
    code += "to_parquet({'a': numpy.zeros(3), 'b': ['x'] * 3}); print('pandas' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def test_a_records_digest_depends_on_its_fields_and_not_on_their_order():
    fields = {"score": 0.1 + 0.2, "protocol": {"name": "simcse", "top": None}, "n": 3}
    shuffled = {"n": 3, "protocol": {"top": None, "name": "simcse"}, "score": 0.1 + 0.2}
    assert digest_fields(fields) == digest_fields(shuffled)
    for other in ({"score": 0.3}, {"protocol": {"name": "simcse"}}, {"n": "3"}, {"further": None}):
        assert digest_fields(fields) != digest_fields({**fields, **other})
