from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from stsbench.core.errors import DataError, OutputError
from stsbench.data.coco import ConvertedSplit, convert_coco, read_pickle
from stsbench.data.readers.sentences import read_captions
from stsbench.data.readers.table import DataFile
from tests.pickles import SAVED_ANEW, Call, python2, written

CAPTIONS = {
    "train": ["a cat", "two caf\xe9s", "a dog .", "the sea", "  wide   blank "],
    "valid": ["a", "b", "c", "d", "e"],
    "test": ["one", "two", "three", "four", "five"],
}


def content(split: str, images: int = 2, *, features: Any = None) -> dict[bytes, Any]:
    """A split in the published structure: captions and their ids under keys of their own."""
    rng = np.random.default_rng(len(split))
    texts = [text for _ in range(images) for text in CAPTIONS[split]]
    return {
        b"features": rng.normal(size=(images, 4)).astype("<f4") if features is None else features,
        b"image_to_caption_ids": {
            image: [10 + 5 * image + j for j in range(5)] for image in range(images)
        },
        b"captions": {
            10 + at: {b"cleaned_caption": text, b"raw": b"x"} for at, text in enumerate(texts)
        },
        b"id_to_original_id": [b"0_%d" % image for image in range(images)],
    }


def write_all(folder: Path, **changed: dict[bytes, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for split in CAPTIONS:
        (folder / f"{split}.pkl").write_bytes(written(changed.get(split, content(split))))
    return folder


def test_converted_files_are_read_by_the_task_s_reader(tmp_path: Path) -> None:
    converted = convert_coco(write_all(tmp_path / "pkl"), tmp_path / "out")
    assert converted == [
        ConvertedSplit("train", 2, 10),
        ConvertedSplit("valid", 2, 10),
        ConvertedSplit("test", 2, 10),
    ]
    files = [DataFile(path=tmp_path / "out" / f"train.{kind}") for kind in ("safetensors", "json")]
    split = read_captions(files)
    np.testing.assert_array_equal(split.image_features, content("train")[b"features"])
    assert split.captions[:5] == [
        "a cat .",
        "two caf\xe9s .",
        "a dog . .",
        "the sea .",
        "wide blank .",
    ]
    assert split.image_of_caption.tolist() == [0] * 5 + [1] * 5
    assert len(list((tmp_path / "out").iterdir())) == 6


ROWS = [np.arange(4, dtype="<f4"), np.arange(4, dtype="<f4") + 10]


@pytest.mark.parametrize(
    "features",
    [
        ROWS,
        tuple(ROWS),
        {0: ROWS[0], 1: ROWS[1]},
        np.stack(ROWS),
        np.stack(ROWS).astype("<f8"),
        np.stack(ROWS).astype(">f4"),
        np.asfortranarray(np.stack(ROWS)),
        [row[None] for row in ROWS],
    ],
    ids=["list", "tuple", "dict", "array", "float64", "big-endian", "fortran", "rows of (1, f)"],
)
def test_features_come_in_many_forms(tmp_path: Path, features: Any) -> None:
    convert_coco(write_all(tmp_path, train=content("train", features=features)), tmp_path)
    found = load_file(tmp_path / "train.safetensors")["features"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.stack(ROWS))


def test_ids_and_captions_come_in_many_forms(tmp_path: Path) -> None:
    base = content("train")
    texts = [caption[b"cleaned_caption"] for caption in base[b"captions"].values()]
    by_place = {
        b"captions": [{b"cleaned_caption": text} for text in texts],
        b"image_to_caption_ids": [[*range(5)], [*range(5, 10)]],
    }
    forms = [
        base,
        {**base, **by_place},
        {**base, **by_place, b"image_to_caption_ids": np.arange(10).reshape(2, 5)},
        {**base, **by_place, b"image_to_caption_ids": [np.arange(5), np.arange(5, 10)]},
        {
            **base,
            b"image_to_caption_ids": [
                [np.int64(10 + 5 * i + j) for j in range(5)] for i in range(2)
            ],
        },
        {
            **base,
            b"captions": {
                b"c%d" % at: {b"cleaned_caption": text.encode("latin-1")}
                for at, text in enumerate(texts)
            },
            b"image_to_caption_ids": [[f"c{5 * i + j}" for j in range(5)] for i in range(2)],
        },
    ]
    for form in forms:
        convert_coco(write_all(tmp_path, train=form), tmp_path)
        assert json.loads((tmp_path / "train.json").read_text()) == [texts[:5], texts[5:]]


@pytest.mark.parametrize("protocol", SAVED_ANEW)
def test_pickles_saved_anew_by_python_3_are_read(tmp_path: Path, protocol: int) -> None:
    (write_all(tmp_path) / "train.pkl").write_bytes(SAVED_ANEW[protocol])
    convert_coco(tmp_path, tmp_path)
    assert load_file(tmp_path / "train.safetensors")["features"].tolist() == [[0, 1], [2, 3]]
    assert json.loads((tmp_path / "train.json").read_text()) == [["a cat"], ["two caf\xe9s"]]


def read_pickle_of(tmp_path: Path, data: bytes) -> Any:
    path = tmp_path / "a.pkl"
    path.write_bytes(data)
    return read_pickle(path)


CALLS = {
    "system": ("posix", "system", "touch {0}"),
    "eval": ("builtins", "eval", "open({0!r}, 'w').close()"),
    "exec": ("__builtin__", "exec", "open({0!r}, 'w').close()"),
    "mkdir": ("posix", "mkdir", "{0}"),
}


@pytest.mark.parametrize("by_protocol_4", [False, True])
@pytest.mark.parametrize("what", CALLS)
def test_a_pickle_that_runs_something_runs_nothing(
    tmp_path: Path, what: str, by_protocol_4: bool
) -> None:
    proof, path = tmp_path / "ran", tmp_path / "train.pkl"
    module, name, argument = CALLS[what]
    call = Call(module, name, (argument.format(str(proof)),), by_protocol_4)
    for value in (
        call,
        {"features": [call]},
        {"features": [], 1: call},
        np.array([call], dtype=object),
    ):
        path.write_bytes(written(value))
        with pytest.raises(DataError, match="train.pkl: is refused: it asks for") as caught:
            read_pickle(path)
        assert "\n" not in str(caught.value)
        assert not proof.exists()
    for split in ("valid", "test"):
        (tmp_path / f"{split}.pkl").write_bytes(written(content(split)))
    with pytest.raises(DataError, match="asks for"):
        convert_coco(tmp_path, tmp_path / "out")
    assert not proof.exists()
    assert not (tmp_path / "out").exists()
    # Python's own reader, in a process of its own, shows that the file is no blank.
    subprocess.run([sys.executable, "-m", "pickle", str(path)], check=False, capture_output=True)
    assert proof.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"(S'touch ran'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch ran'\no.",  # OBJ
        b"\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",  # STACK_GLOBAL
        b"cnumpy.core.multiarray\n_reconstruct\n}S'__class__'\nNsb.",  # state for a stand-in's class
        b"ccollections\ndefaultdict\nN}S'__init__'\nNs\x86b.",
        b"cnumpy\nndarray\n(K\x01tR.",
        b"cstsbench.data.coco\nos.system\n.",
        b"P1\n.",
        b"\x82\x01.",
    ],
)
def test_other_ways_to_a_function_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="is refused"):
        read_pickle_of(tmp_path, code)
    assert not (tmp_path / "ran").exists()


def test_stand_ins_do_nothing_with_what_a_pickle_says(tmp_path: Path) -> None:
    """A dtype's state that numpy would act on is refused before numpy sees it."""
    features = python2(np.zeros((2, 4), dtype="<f4")).replace(python2(b"f4"), python2(b"O8"))
    raw = written(content("train")).replace(python2(content("train")[b"features"]), features)
    write_all(tmp_path)
    (tmp_path / "train.pkl").write_bytes(raw)
    with pytest.raises(DataError, match=r"train.pkl: .* array of type '<O8', not of num"):
        convert_coco(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({b"features": 3}, "'features' is an array of int64 of shape"),
        ({b"features": []}, "need at least one array"),
        ({b"features": [np.zeros(4, "<f4"), np.zeros(3, "<f4")]}, "must have the same shape"),
        ({b"features": np.zeros(4, "<f4")}, "of shape .4,., not numbers .images, size."),
        ({b"features": [b"no array"]}, "'features' is an array of <U8"),
        ({b"image_to_caption_ids": {0: [10]}}, "KeyError: 1"),
        ({b"image_to_caption_ids": {0: 7, 1: [10]}}, "'int' object is not iterable"),
        ({b"image_to_caption_ids": {0: [[]], 1: [10]}}, "unhashable"),
        ({b"captions": [{}]}, "list index out of range"),
        ({b"captions": {i: {b"raw": b"x"} for i in range(10, 20)}}, "KeyError: 'cleaned_caption'"),
        (
            {b"captions": {i: {b"cleaned_caption": 3} for i in range(10, 20)}},
            "a caption is no text",
        ),
        ({b"captions": 3}, "'int' object is not subscriptable"),
    ],
)
def test_data_of_another_form_are_one_clear_line(
    tmp_path: Path, changed: dict[bytes, Any], message: str
) -> None:
    write_all(tmp_path, train={**content("train"), **changed})
    with pytest.raises(
        DataError, match=f"train.pkl: is not SentEval's COCO data: .*{message}"
    ) as caught:
        convert_coco(tmp_path, tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_pickles_are_refused(tmp_path: Path) -> None:
    whole = written(content("train"))
    for data in (b"", b"\x00", b"{}", whole[:-1], whole[: len(whole) // 2], b"\x80\x63."):
        with pytest.raises(DataError, match="is refused"):
            read_pickle_of(tmp_path, data)
    with pytest.raises(DataError, match="cannot be read"):
        read_pickle(tmp_path / "absent.pkl")


def test_missing_pickles_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.pkl").write_bytes(written(content("train")))
    with pytest.raises(DataError, match=r"no valid\.pkl, test\.pkl"):
        convert_coco(tmp_path, tmp_path / "out")


def test_a_target_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source = write_all(tmp_path / "pkl")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=f"{tmp_path}/file/.*: cannot be written"):
        convert_coco(source, tmp_path / "file")
    (tmp_path / "out" / "train.safetensors").mkdir(parents=True)
    (tmp_path / "out" / "train.safetensors" / "x").write_text("")
    with pytest.raises(OutputError, match=f"{tmp_path}/out/train"):
        convert_coco(source, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.partial"))
