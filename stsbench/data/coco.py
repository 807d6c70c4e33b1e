"""Converter of SentEval's COCO data: from the published pickles to safetensors and JSON, running nothing.

A pickle can call whatever it names. Here it can name a handful of things, all stand-ins that keep their
arguments and do nothing; arrays are made from what they kept, once it has been checked.

The files are ``{train,valid,test}.pkl`` of ``coco_r101_feat``, written by Python 2: a dict of ``features``
(one of 2,048 numbers an image), ``image_to_caption_ids`` (a list of ids an image) and ``captions`` (by id,
a dict with ``cleaned_caption``). Source: SentEval, ``senteval/rank.py`` at 5d6dc11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from pickle import Unpickler, UnpicklingError
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError
from stsbench.core.files import open_atomically, write_atomically
from stsbench.core.wording import join_lines

SPLITS = ("train", "valid", "test")


class ConvertedSplit(NamedTuple):
    """One split that was converted: its name and its numbers of images and captions."""

    split: str
    images: int
    captions: int


def convert_coco(source: Path, target: Path) -> list[ConvertedSplit]:
    """Convert the three pickles of a folder to what the reader ``captions`` reads.

    Writes ``<split>.safetensors`` (array ``features``, (images, size) float32) and ``<split>.json`` (the list of
    captions of each image in turn) for train, valid and test; the task's folder is ``downstream/COCO`` of the data
    folder. Raises DataError: a pickle is missing, broken, asks for anything but arrays, or holds something else;
    OutputError: the target cannot be written.
    """
    if missing := [f"{split}.pkl" for split in SPLITS if not (source / f"{split}.pkl").is_file()]:
        raise DataError(
            f"{source}: no {', '.join(missing)}; the COCO features are train.pkl, valid.pkl and test.pkl"
        )
    return [_convert(split, source / f"{split}.pkl", target) for split in SPLITS]


def _convert(split: str, path: Path, target: Path) -> ConvertedSplit:
    from safetensors.numpy import save_file

    content = read_pickle(path)
    try:
        facts = {_made(key): value for key, value in content.items()}
        features = _features(_made(facts["features"]))
        ids, captions = _made(facts["image_to_caption_ids"]), _made(facts["captions"])
        texts = [
            [captions[key]["cleaned_caption"] for key in ids[image]]
            for image in range(len(features))
        ]
        if not all(isinstance(text, str) for own in texts for text in own):
            raise DataError("a caption is no text")
    except (
        ArithmeticError,
        AttributeError,
        DataError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        why = f"{type(error).__name__}: {join_lines(error)}"
        raise DataError(f"{path}: is not SentEval's COCO data: {why}") from error
    write_atomically(target / f"{split}.json", json.dumps(texts).encode())
    with open_atomically(target / f"{split}.safetensors") as stream:
        # From the array itself: its bytes are 0.9 GB of the images for training.
        save_file({"features": np.ascontiguousarray(features)}, stream.name)
    return ConvertedSplit(split, len(features), sum(map(len, texts)))


class _PickleStub:
    """Stands in for what a pickle calls: keeps the arguments and the state, and does nothing."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - whatever the pickle holds
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - as __init__
        self.state = state


class _Array(_PickleStub):
    """An array: state (version, shape, dtype, whether in Fortran's order, bytes)."""


class _Scalar(_PickleStub):
    """A number of numpy's: arguments (dtype, bytes)."""


class _DType(_PickleStub):
    """A dtype: arguments (kind and size, ...), state (version, byte order, ...)."""


class _Dict(dict[Any, Any]):
    """A dict of another class: items are taken, a factory of missing ones is not."""

    def __init__(self, items: object = ()) -> None:
        super().__init__(items if isinstance(items, list) else ())

    def __setstate__(self, state: object) -> None:
        """Take no attributes."""


_CORES = ("numpy.core.multiarray", "numpy._core.multiarray")  # until and since numpy 2
_ALLOWED: dict[tuple[str, str], object] = {
    **{(core, "_reconstruct"): _Array for core in _CORES},
    **{(core, "scalar"): _Scalar for core in _CORES},
    ("numpy", "dtype"): _DType,
    ("collections", "OrderedDict"): _Dict,
    ("collections", "defaultdict"): _Dict,
    # Named as arguments only: a string, which cannot be called, does for them.
    ("numpy", "ndarray"): "numpy.ndarray",
    **{
        (module, name): name
        for module in ("__builtin__", "builtins")
        for name in ("dict", "int", "list")
    },
}


class _Unpickler(Unpickler):
    """Knows stand-ins only; every way of a pickle to a class or function leads through ``find_class``."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in pickle
        if (module, name) not in _ALLOWED:
            raise UnpicklingError(
                f"it asks for {module}.{name}, which an image's features do not need"
            )
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> Any:  # noqa: ANN401 - whatever the pickle holds
    """Read a pickle of Python 2 or 3 without running anything it names; its ``str`` of Python 2 are bytes.

    Raises DataError: the file is missing, no pickle, or asks for anything but arrays and containers.
    """
    try:
        with path.open("rb") as stream:
            return _Unpickler(stream, encoding="bytes").load()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # a broken pickle can fail in any way
        raise DataError(
            f"{path}: is refused: {join_lines(error) or type(error).__name__}"
        ) from error


def _made(value: Any) -> Any:  # noqa: ANN401 - whatever the pickle holds
    if isinstance(value, _Array):
        _, shape, dtype, fortran, data = value.state
        return np.frombuffer(data, _dtype(dtype)).reshape(shape, order="F" if fortran else "C")
    if isinstance(value, _Scalar):
        return np.frombuffer(value.arguments[1], _dtype(value.arguments[0]))[0].item()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return {_made(key): _made(one) for key, one in value.items()}
    return [_made(one) for one in value] if isinstance(value, list | tuple) else value


def _dtype(value: Any) -> np.dtype[Any]:  # noqa: ANN401 - as _made
    """An array's type, which is checked before numpy sees it."""
    kind, order = _made(value.arguments[0]), _made(value.state[1])
    if (
        not isinstance(value, _DType)
        or not re.fullmatch(r"[fiu][248]|[iu]1", kind)
        or order not in "<>=|"
    ):
        raise DataError(f"an array of type '{order}{kind}', not of numbers")
    found: np.dtype[Any] = np.dtype(order + kind)
    return found


def _features(value: Any) -> npt.NDArray[np.float32]:  # noqa: ANN401 - as _made
    if isinstance(value, dict):
        value = [value[image] for image in range(len(value))]
    whole = (
        np.stack([np.ravel(row) for row in value]) if isinstance(value, list) else np.asarray(value)
    )
    if whole.ndim != 2 or whole.dtype.kind not in "fiu":
        raise DataError(
            f"'features' is an array of {whole.dtype} of shape {whole.shape}, not numbers (images, size)"
        )
    return np.asarray(whole, dtype=np.float32)
