"""Files of embeddings that another toolkit has written, scored as any encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file

import stsbench
from stsbench.bench.plan import RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import run
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.data.task import load_task
from stsbench.encoders.load import load_named
from stsbench.results.folder import read_folder

TEXTS = ["a cat", "the dog", "", "café"]
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def write_table(path: Path, **columns: object) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the same embeddings in files of every kind."""
    write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    (tmp_path / "texts.txt").write_bytes("\r\n".join([*TEXTS, ""]).encode())
    np.savez(tmp_path / "named.npz", texts=np.array(TEXTS), embeddings=ROWS)
    np.savez(tmp_path / "bytes.npz", sentences=[text.encode() for text in TEXTS], e=ROWS)
    np.savez(tmp_path / "single.npz", ROWS)
    np.save(tmp_path / "array.npy", ROWS.astype(np.float16))
    save_file({"Embeddings": torch.tensor(ROWS).bfloat16()}, tmp_path / "tensor.safetensors")
    write_table(tmp_path / "table.parquet", text=TEXTS, embedding=list(ROWS))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 3)
    write_table(tmp_path / "fixed.parquet", sentence=TEXTS, vector=fixed)
    lines = [
        {"text": text, "embedding": row.tolist()} for text, row in zip(TEXTS, ROWS, strict=True)
    ]
    write_lines(tmp_path / "lines.jsonl", lines)
    return tmp_path


BY_TEXT = ("named.npz", "bytes.npz", "table.parquet", "fixed.parquet", "lines.jsonl")
BY_ORDER = ("single.npz", "array.npy", "tensor.safetensors")


@pytest.mark.parametrize("texts", ["texts.jsonl", "texts.txt"])
@pytest.mark.parametrize("name", [*BY_TEXT, *BY_ORDER])
def test_every_format_gives_the_same_embeddings(folder, name, texts):
    suffix = f"+texts={folder / texts}" if name in BY_ORDER else ""
    encoder = stsbench.load_encoder(f"file:{folder / name}{suffix}")
    assert encoder.name == name
    order = [3, 0, 2, 1, 0]
    embeddings = encoder.encode([TEXTS[row] for row in order])
    assert embeddings.dtype == np.float32
    np.testing.assert_array_equal(embeddings, ROWS[order])
    assert encoder.encode([]).shape == (0, 3)


def test_the_fingerprint_is_that_of_the_bytes(folder):
    spec = f"file:{folder / 'array.npy'}"
    texts = [folder / "texts.jsonl", folder / "texts.txt"]
    first, second = (load_named(spec, params={"texts": str(path)}) for path in texts)
    assert first.name == second.name == "array.npy"
    assert first.fingerprint != second.fingerprint  # another list might have another order
    copy = folder / "copy.npy"
    copy.write_bytes((folder / "array.npy").read_bytes())
    same = load_named(f"file:{copy}", params={"texts": str(texts[0])})
    assert same.fingerprint == first.fingerprint
    np.save(copy, ROWS)
    changed = load_named(f"file:{copy}", params={"texts": str(texts[0])})
    assert changed.fingerprint != first.fingerprint


def test_a_variant_of_a_file(folder):
    encoder = stsbench.load_encoder(f"file:{folder / 'named.npz'}", params={"dimensions": 2})
    assert encoder.encode(TEXTS).shape == (4, 2)
    assert encoder.name == "named.npz+dimensions=2"


def save_rows(path: Path, embeddings: object, texts: Sequence[str] = TEXTS) -> None:
    np.savez(path, embeddings=np.asarray(embeddings), texts=np.array(texts))


def with_nan(folder: Path) -> Path:
    rows = ROWS.copy()
    rows[1, 2], rows[3, 0] = np.nan, np.inf
    save_rows(folder / "bad.npz", rows)
    return folder / "bad.npz"


def with_fewer_rows(folder: Path) -> Path:
    save_rows(folder / "bad.npz", ROWS[:3])
    return folder / "bad.npz"


def with_two_embeddings_of_a_text(folder: Path) -> Path:
    save_rows(folder / "bad.npz", ROWS, ["a", "b", "a", "c"])
    return folder / "bad.npz"


def with_a_pickle(folder: Path) -> Path:
    np.save(folder / "bad.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    return folder / "bad.npy"


def with_words(folder: Path) -> Path:
    save_rows(folder / "bad.npz", [[text] for text in TEXTS])
    return folder / "bad.npz"


def with_other_sizes(folder: Path) -> Path:
    lines = [{"text": "a", "embedding": [1, 2]}, {"text": "b", "embedding": [1]}]
    return write_lines(folder / "bad.jsonl", lines)


def with_a_null(folder: Path) -> Path:
    return write_table(folder / "bad.parquet", text=["a", "b"], embedding=[[1.0, 2.0], None])


def without_a_text(folder: Path) -> Path:
    return write_lines(folder / "bad.jsonl", [{"text": "a", "embedding": [1]}, {"embedding": [2]}])


def with_a_broken_line(folder: Path) -> Path:
    (folder / "bad.jsonl").write_text('{"text": "a", "embedding": [1]}\n{"text": \n')
    return folder / "bad.jsonl"


def without_embeddings(folder: Path) -> Path:
    return write_table(folder / "bad.parquet", text=["a"], embeded=[[1.0]])


def of_another_format(folder: Path) -> Path:
    (folder / "bad.csv").write_text("a,1\n")
    return folder / "bad.csv"


def that_is_no_archive(folder: Path) -> Path:
    (folder / "bad.npz").write_text("text")
    return folder / "bad.npz"


def with_lines(folder: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    return f"{folder / 'array.npy'}+texts={write_lines(folder / 'bad.jsonl', lines)}"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (with_nan, "2 of 4 embeddings have NaN or infinity, the first in row 2"),
        (with_fewer_rows, "has 3 embeddings for 4 texts"),
        (with_two_embeddings_of_a_text, "rows 1 and 3 have one text and different numbers"),
        (with_a_pickle, "save texts as numpy.array(texts, dtype=str\\)\\): Object arrays"),
        (with_words, "must be one of numbers"),
        (with_other_sizes, "the embedding of row 2 has 1 numbers, that of row 1 has 2"),
        (with_a_null, "row 2 has no embedding"),
        (without_a_text, "1 of 2 have no text"),
        (with_a_broken_line, "line 2: "),
        (without_embeddings, "has 'text', 'embeded'; it must have a column 'embedding'"),
        (of_another_format, "give a file that ends in .npz, .npy, .safetensors"),
        (that_is_no_archive, "cannot be read as plain arrays"),
        (lambda folder: folder / "absent.npz", "there is no file"),
        (lambda folder: folder / "array.npy", "has 4 embeddings but no texts"),
        (
            lambda folder: f"{folder / 'array.npy'}+texts={folder / 'absent.txt'}",
            r"absent.txt: cannot be read",
        ),
        (
            lambda folder: f"{folder / 'array.npy'}+texts={folder / 'absent.jsonl'}",
            "absent.jsonl: cannot be read: No such file",
        ),
        (
            lambda folder: with_lines(folder, [{"text": "a"}, {"text": 5}]),
            "key 'text' has values of sev",
        ),
        (
            lambda folder: with_lines(folder, [{"text": "a"}, {"text": ["b"]}]),
            "key 'text' has values of sev",
        ),
        (lambda folder: with_lines(folder, [{"n": 2**70, "text": "a"}]), "numbers above 64 bits: "),
        (lambda folder: with_lines(folder, [{"n": 2}, {"text": "a"}]), "1 of 2 have no text"),
        (lambda folder: with_lines(folder, [{"n": 2}]), "has no key 'text'"),
        (
            lambda folder: f"{folder / 'named.npz'}+texts={folder / 'texts.txt'}",
            "has texts of its own",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(folder, write, message):
    with pytest.raises(StsbenchError, match=message.replace("(", r"\(")) as caught:
        stsbench.load_encoder(f"file:{write(folder)}")
    assert "\n" not in str(caught.value)


def test_a_card_may_name_a_file(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "baselines").mkdir()
    (folder / "baselines" / "theirs.toml").write_text(
        'name = "Theirs"\nkind = "file"\nmethod = "m"\nbackbone = "b"\nsupervision = "none"\n'
        'overlap = "none"\npaper = "none"\nlicense = "yours"\n[params]\nfile = "named.npz"\n'
    )
    encoder = stsbench.load_encoder("theirs", catalogue=Catalogue(folder))
    np.testing.assert_array_equal(encoder.encode(TEXTS), ROWS)


def test_files_of_one_name_with_parameters_get_names_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = load_task("quickstart-en")
    texts = task.texts()
    specs = []
    for index, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        rows = np.random.default_rng(index).normal(size=(len(texts), 8)).astype(np.float32)
        np.savez(tmp_path / name / "emb.npz", texts=np.array(texts), embeddings=rows)
        specs.append(f"file:{name}/emb.npz+dimensions=4")
    plan = RunPlan(
        tasks="quickstart-en", encoders=specs, results_folder=tmp_path / "results", store=None
    )
    results = list(run(plan, RunCallbacks()))
    assert [result.encoder for result in results] == [
        "a/emb.npz+dimensions=4",
        "b/emb.npz+dimensions=4",
    ]
    assert len(read_folder(tmp_path / "results").results) == 2
