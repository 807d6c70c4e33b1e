"""Files and cards made to break readers: one line each, no memory asked for on a header's word."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from stsbench.core.cards import CorpusCard, EncoderCard, RecipeCard, Suite, TaskCard
from stsbench.core.catalogue import Catalogue, card_folder
from stsbench.core.errors import CardError, DataError, StsbenchError
from stsbench.core.parameters import check_params
from stsbench.core.toml import convert, parse_toml
from stsbench.data.corpora.corpus import load_corpus, read_training_text, select_columns
from stsbench.data.readers.sentence_tables import read_any_table
from stsbench.data.readers.sentences import read_captions, read_semeval
from stsbench.data.readers.table import DataFile
from stsbench.data.task import expand_names
from tests.core.cards import ENCODER

COLUMNS: dict[str, Any] = {"sentence1": 0, "sentence2": 1, "gold": 2}
LONG = "1" * 5000


def put(folder: Path, name: str, content: str | bytes) -> DataFile:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return DataFile(path=path)


def one_line(caught: pytest.ExceptionInfo[StsbenchError]) -> str:
    text = str(caught.value)
    assert "\n" not in text and len(text) < 1000
    return text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delimiter": ""}, "delimiter '' separates no cells; give text within a line"),
        ({"delimiter": "\n"}, "separates no cells"),
        (
            {"delimiter": "ab", "quoting": True},
            "delimiter 'ab' separates no cells; give one character",
        ),
        ({"delimiter": '"', "quoting": True}, "separates no cells"),
        ({"gold": -7}, "column -7: columns are counted from 0"),
        ({"sentence1": -1}, "column -1: columns are counted from 0"),
        ({"gold": 10**30}, "3 columns, column 1000000000000000000000000000000 is missing"),
        (
            {"gold": "b", "header": True},
            "t.tsv: 2 columns are called 'b'; give its position, or rename one",
        ),
    ],
)
def test_a_cards_columns_and_delimiters(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((CardError, DataError)) as caught:
        read_any_table([put(tmp_path, "t.tsv", "a\tb\tb\na\tb\t1\n")], **{**COLUMNS, **changes})
    assert message in one_line(caught)


@pytest.mark.parametrize("gold", [LONG, "1e400", "-1e400", "inf", "nan", "1_0" * 3000, ""])
def test_gold_scores_that_are_no_numbers(tmp_path: Path, gold: str) -> None:
    with pytest.raises(DataError, match=r"t.tsv: line 1: .* ('.{0,16}'|of [0-9]+ characters) is"):
        read_any_table([put(tmp_path, "t.tsv", f"a\tb\t{gold}\n")], **COLUMNS)


@pytest.mark.parametrize("label", ["1e400", "inf", "nan", LONG, "-1"])
def test_labels_that_no_class_has(tmp_path: Path, label: str) -> None:
    with pytest.raises(DataError, match=r"t.tsv: line 1: .*'.{1,40}' \(known: 0, 1\)"):
        read_any_table(
            [put(tmp_path, "t.tsv", f"a\t{label}\n")], sentence=0, label=1, classes=["0", "1"]
        )


def test_a_header_of_very_many_columns_is_not_printed_whole(tmp_path: Path) -> None:
    names = [f"column{i}" for i in range(20_000)]
    with pytest.raises(DataError) as caught:
        read_any_table(
            [put(tmp_path, "t.tsv", "\t".join(names) + "\n" + "a" + "\t" * 19_999)],
            **{**COLUMNS, "gold": "x"},
            header=True,
        )
    assert "no column 'x' (has column0, column1, " in one_line(caught)
    path = put(tmp_path, "t.csv", ",".join(names) + "\n" + "a" + "," * 19_999).path
    with pytest.raises(DataError) as caught:
        load_corpus(path)
    assert "t.csv: its columns (column0, column1" in one_line(caught)


@pytest.mark.parametrize(
    ("reader", "key", "value", "message"),
    [
        (read_semeval, "first_rows", -1, "expected a whole number >= 0"),
        (read_any_table, "fields", -3, "expected a whole number >= "),
        (read_any_table, "fields", 10**30, "expected a whole number <= "),
        (read_captions, "captions_per_image", 0, "expected a whole number >= 1"),
        (read_captions, "captions_per_image", -2, "expected a whole number >= 1"),
        (read_any_table, "delimiter", date(2020, 1, 1), "expected text"),
    ],
)
def test_parameters_out_of_range(reader: Any, key: str, value: object, message: str) -> None:
    with pytest.raises(CardError, match=f"^mine: key '{key}': {message}"):
        check_params(reader, {"files": [], key: value}, where="mine")


# Captions.


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        f"[[{LONG}]]",
        "[[NaN], [1e400]]",
        '{"a": 1}',
        '[["\\ud800"], ["b"]]',
        "[\n[",
        "[[1]]",
    ],
)
def test_captions_that_are_none(tmp_path: Path, content: str) -> None:
    features = tmp_path / "f.safetensors"
    save_file({"features": np.ones((2, 3), np.float32)}, features)
    with pytest.raises(DataError, match="c.json: not a list of lists of captions") as caught:
        read_captions(
            [DataFile(path=features), put(tmp_path, "c.json", content)], captions_per_image=1
        )
    assert one_line(caught)


# Corpora.


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"a":' * 100_000 + "1" + "}" * 100_000,
            "a.jsonl: line 2: not valid JSON: nested too deep",
        ),
        ('{"text": ' + "[" * 100_000, "a.jsonl: line 2: not valid JSON: nested too deep"),
        (f'{{"text": {LONG}}}', "a.jsonl: line 2: "),
        ('{"text": 99999999999999999999}', "a.jsonl: line 2: 'text' is a number beyond 64 bits"),
        ('["text"]', "a.jsonl: line 2: a JSON object is needed"),
        ('{"text": {"a": 1}}', "a.jsonl: not a valid .jsonl file"),
        ('{"text": NaN}', "a.jsonl: line 2: not valid JSON"),
        ("}", "a.jsonl: line 2: not valid JSON"),
    ],
)
def test_lines_of_json(tmp_path: Path, line: str, message: str) -> None:
    path = put(tmp_path, "a.jsonl", f'{{"text": "fine"}}\n{line}\n').path
    with pytest.raises(DataError, match=message) as caught:
        read_training_text(path, header=True)
    assert one_line(caught)


def test_lines_of_json_may_be_long_lack_keys_and_hold_what_is_not_used(tmp_path: Path) -> None:
    long = "a" * 3_000_000
    content = f'{{"text": "{long}", "more": {{"a": [1]}}}}\n\n{{"text": "2020-01-01", "id": 3}}\n'
    table = read_training_text(put(tmp_path, "a.jsonl", content).path, header=True)
    assert select_columns(table, {"text": "text"}, where="f").to_pydict() == {
        "text": [long, "2020-01-01"]
    }
    assert table.column("id").to_pylist() == [None, 3]
    with pytest.raises(DataError, match="text holds list"):
        load_corpus(put(tmp_path, "b.jsonl", '{"text": {}}\n{"text": []}\n').path)


@pytest.mark.parametrize("at", [-5, -1, 10**30, None])
def test_columns_of_a_corpus_are_counted_from_0_and_no_two_share_a_name(
    tmp_path: Path, at: int | None
) -> None:
    path = put(tmp_path, "a.csv", "text,text\na,b\nc,d\n").path
    problem = "2 columns are called 'text'" if at is None else rf"no column {at} \(has 2, "
    with pytest.raises(DataError, match=f"a.csv: {problem}"):
        select_columns(
            read_training_text(path, header=True),
            {"text": "text" if at is None else at},
            where="a.csv",
        )


def test_parquet_of_wrong_types_or_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for values, kind in (
        ([[1], [2]], "list"),
        ([{"a": 1}, {"a": 2}], "struct"),
        ([b"\xff", b"\xfe"], "binary"),
    ):
        parquet.write_table(pa.table({"text": pa.array(values)}), path)
        with pytest.raises(DataError, match=f"column text holds {kind}"):
            load_corpus(path)
    parquet.write_table(pa.table({"text": ["a sentence of some words"] * 40}), path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(damaged), 3):
            damaged[at] = rng.integers(256)
        path.write_bytes(bytes(damaged))
        try:
            load_corpus(path)
        except StsbenchError as error:
            assert "\n" not in str(error)


# Cards.

TASK: dict[str, Any] = {
    **dict.fromkeys(("name", "evaluator", "paper", "license"), "x"),
    "languages": [],
    "splits": {"test": {"n": 1}},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"splits": {"test": {"n": -1}}}, "key 'splits[...].n': expected a whole number >= 1"),
        ({"splits": {"test": {"n": 0}}}, "key 'splits[...].n': "),
        ({"splits": {}}, "key 'splits': expected a table of length >= 1"),
        ({"score_split": "tset"}, "score_split 'tset' is not one of test; did you mean 'test'"),
        ({"gold_range": [5, 0]}, "gold_range [5.0, 0.0]: the first must be below the second"),
        ({"gold_range": [1, 1]}, "gold_range [1.0, 1.0]: "),
        (
            {"local": {"reader": "trec", "files": {"tets": []}}},
            "a split with files 'tets' is not one of test; did you",
        ),
        (
            {"hub": {"repo": "a/b", "revision": "c", "splits": {"dev": "dev"}}},
            "a split of the Hub's 'dev' is not one of",
        ),
        (
            {"local": {"reader": "trec", "files": {"test": [{"path": "a", "rows": -1}]}}},
            "expected a whole number >= 0",
        ),
    ],
)
def test_cards_of_tasks(changes: dict[str, Any], message: str) -> None:
    convert(TASK, TaskCard, where="mine")
    with pytest.raises(CardError) as caught:
        convert({**TASK, **changes}, TaskCard, where="mine")
    assert message in one_line(caught)


@pytest.mark.parametrize(
    ("record", "table", "message"),
    [
        (Suite, {"name": "x", "tasks": []}, "key 'tasks': expected a list of length >= 1"),
        (
            CorpusCard,
            {"name": "x", "license": "x", "source": "x", "columns": {"text": -5}, "rows": 2},
            "columns",
        ),
        (
            CorpusCard,
            {"name": "x", "license": "x", "source": "x", "columns": {"text": 0}, "rows": 0},
            "rows",
        ),
    ],
)
def test_cards_of_suites_and_corpora(record: Any, table: dict[str, Any], message: str) -> None:
    with pytest.raises(CardError) as caught:
        convert(table, record, where="mine")
    assert message in one_line(caught)


@pytest.mark.parametrize(
    ("tasks", "message"), [("mine", "unknown task in suite mine: 'mine'"), ("sts", "'sts'")]
)
def test_a_suite_of_suites_is_refused(tmp_path: Path, tasks: str, message: str) -> None:
    (tmp_path / "tasks").mkdir()
    put(tmp_path / "tasks", "suites.toml", f'[mine]\nname = "Mine"\ntasks = ["{tasks}"]\n')
    with pytest.raises(StsbenchError) as caught:
        expand_names("mine", Catalogue([tmp_path]))
    assert message in one_line(caught)


BASES: dict[Any, dict[str, Any]] = {
    TaskCard: TASK,
    Suite: {"name": "x", "tasks": ["x"]},
    CorpusCard: {"name": "x", "license": "x", "source": "x", "columns": {"text": 0}, "rows": 2},
    EncoderCard: tomllib.loads(ENCODER),
    RecipeCard: parse_toml(card_folder("trainers") / "simcse-bert-base.toml"),
}


@pytest.mark.parametrize("record", BASES)
@pytest.mark.parametrize(
    "value", [-1, 0.5, True, "", [], {}, [[]], {"a": {"b": []}}, date(2020, 1, 1), 10**30]
)
def test_every_key_of_every_card_takes_a_value_as_it_is_or_is_named(
    record: Any, value: Any
) -> None:
    for key in record.__struct_fields__:
        try:
            card = convert({**BASES[record], key: value}, record, where="mine")
        except CardError as error:
            assert (
                str(error).startswith("mine: ") and key in str(error) and "\n" not in str(error)
            ), key
        else:
            kept = msgspec.to_builtins(getattr(card, key))
            # A table that gives nothing takes its defaults.
            assert isinstance(kept, dict) if value == {} else kept == value, key


@pytest.mark.parametrize(
    ("name", "content"), [("z.jsonl", b"\n \n"), ("x.dat", b'{"text": "\xe9"}\n')]
)
def test_a_file_without_rows_or_in_another_encoding_is_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    with pytest.raises(DataError) as caught:
        read_any_table([put(tmp_path, name, content)], **COLUMNS)
    assert name in one_line(caught)
