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

from stsbench.core.errors import DataError, OutputError, one_line
from stsbench.core.files import remove, scratch_beside, write_whole

SPLITS = ("train", "valid", "test")
FeatureArray = npt.NDArray[np.float32]


class Converted(NamedTuple):
    """One split that was converted: its name and its numbers of images and captions."""

    split: str
    images: int
    captions: int


def convert_coco(source: Path, target: Path) -> list[Converted]:
    """Convert the three pickles of a folder to what the reader ``captions`` reads.

    Writes ``<split>.safetensors`` (array ``features``, (images, size) float32) and ``<split>.json`` (the list of
    captions of each image in turn) for train, valid and test.

    Args:
        source: folder of ``train.pkl``, ``valid.pkl`` and ``test.pkl``.
        target: folder to write into; the task's is ``downstream/COCO`` of the data folder.

    Raises:
        DataError: a pickle is missing, broken, asks for anything but arrays, or holds something else.
        OutputError: the target cannot be written.
    """
    missing = [f"{split}.pkl" for split in SPLITS if not (source / f"{split}.pkl").is_file()]
    if missing:
        raise DataError(f"{source}: no {', '.join(missing)}; the COCO features are train.pkl, valid.pkl and test.pkl")
    return [_convert(split, source / f"{split}.pkl", target) for split in SPLITS]


def _convert(split: str, path: Path, target: Path) -> Converted:
    content = read_pickle(path)
    try:
        features = _features(_at(content, "features"))
        captions = _captions(content, len(features))
    except (DataError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{path}: is not SentEval's COCO data: {one_line(error)}") from error
    write_whole(target / f"{split}.json", json.dumps(captions).encode())  # makes the folder, too
    _write_features(target / f"{split}.safetensors", features)
    return Converted(split, len(features), sum(map(len, captions)))


class _Kept:
    """Stands in for what a pickle calls: keeps the arguments and the state, and does nothing."""

    def __init__(self, *arguments: object) -> None:
        self.arguments, self.state = arguments, None

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - whatever the pickle holds
        self.state = state


class _Array(_Kept):
    """An array: state (version, shape, dtype, whether in Fortran's order, bytes)."""


class _Scalar(_Kept):
    """A number of numpy's: arguments (dtype, bytes)."""


class _DType(_Kept):
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
    **{(module, name): name for module in ("__builtin__", "builtins") for name in ("dict", "int", "list")},
}


class _Unpickler(Unpickler):
    """Knows stand-ins only; every way of a pickle to a class or function leads through ``find_class``."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in pickle
        """Return what stands in for a name.

        Raises:
            UnpicklingError: nothing does.
        """
        if (module, name) not in _ALLOWED:
            raise UnpicklingError(f"it asks for {module}.{name}, which an image's features do not need")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> Any:  # noqa: ANN401 - whatever the pickle holds
    """Read a pickle of Python 2 or 3 without running anything it names; its ``str`` of Python 2 are bytes.

    Raises:
        DataError: the file is missing, no pickle, or asks for anything but arrays and containers.
    """
    try:
        with path.open("rb") as stream:
            return _Unpickler(stream, encoding="bytes").load()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # a broken pickle can fail in any way
        raise DataError(f"{path}: is refused: {one_line(error) or type(error).__name__}") from error


def _at(table: Any, key: object) -> Any:  # noqa: ANN401 - whatever the pickle holds
    """What a dict or list holds under this key; the dict's keys may be bytes."""
    if isinstance(table, Mapping):
        for variant in (key, key.encode() if isinstance(key, str) else key):
            if variant in table:
                return table[variant]
        raise DataError(f"no key {key!r}")
    if isinstance(table, list | tuple) and isinstance(key, int):
        if 0 <= key < len(table):
            return table[key]
        raise DataError(f"no item {key} in a list of {len(table)}")
    raise DataError(f"type {_name(table)} where {key!r} was to be looked up")


def _features(value: object) -> FeatureArray:
    """The features of all images as one array: from an array, or from a list or dict of one array an image."""
    if isinstance(value, _Array):
        whole = _array(value)
        if whole.ndim != 2:
            raise DataError(f"'features' is an array of shape {whole.shape}, not (images, size)")
        return np.asarray(whole, dtype=np.float32)
    if not isinstance(value, list | tuple | Mapping) or not value:
        raise DataError(f"'features' is of type {_name(value)}, not an array an image")
    features = np.empty((len(value), _array(_at(value, 0)).size), dtype=np.float32)
    for image in range(len(value)):
        row = _array(_at(value, image)).ravel()
        if len(row) != features.shape[1]:
            raise DataError(f"image {image} has {len(row)} features, image 0 has {features.shape[1]}")
        features[image] = row
    return features


def _captions(content: object, images: int) -> list[list[str]]:
    """The captions of each image."""
    ids, captions = _at(content, "image_to_caption_ids"), _at(content, "captions")
    if isinstance(ids, _Array):
        ids = _array(ids).tolist()
    if isinstance(captions, Mapping):
        captions = {_plain(key): caption for key, caption in captions.items()}
    found = []
    for image in range(images):
        own = _at(ids, image)
        own = _array(own).tolist() if isinstance(own, _Array) else own
        found.append([_text(_at(_at(captions, _plain(key)), "cleaned_caption")) for key in own])
    return found


def _array(value: object) -> npt.NDArray[Any]:
    """The array that a stand-in keeps; its type is checked before numpy sees it."""
    if not isinstance(value, _Array) or not isinstance(value.state, tuple) or len(value.state) != 5:
        raise DataError(f"type {_name(value)} instead of an array")
    _, shape, dtype, fortran, data = value.state
    return np.frombuffer(data, _dtype(dtype)).reshape(shape, order="F" if fortran else "C")


def _dtype(value: object) -> np.dtype[Any]:
    if not isinstance(value, _DType) or not value.arguments or not isinstance(value.state, tuple):
        raise DataError(f"type {_name(value)} where an array's type was expected")
    kind, order = _text(value.arguments[0]), _text(value.state[1])
    if not re.fullmatch(r"[fiu][248]|[iu]1", kind) or order not in ("<", ">", "=", "|"):
        raise DataError(f"an array of type '{order}{kind}', not of numbers")
    return np.dtype(order + kind)


def _plain(value: object) -> object:
    """A caption's id: a number of numpy's as an int, bytes as text, all else as it is."""
    if isinstance(value, _Scalar):
        dtype, data = value.arguments
        return np.frombuffer(data, _dtype(dtype))[0].item()  # type: ignore[call-overload]
    return _text(value) if isinstance(value, bytes) else value


def _text(value: object) -> str:
    """Text of Python 3, or of Python 2, read as the toolkit reads it."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise DataError(f"type {_name(value)} instead of text")
    return value


def _name(value: object) -> str:
    return type(value).__name__.lstrip("_").lower()


def _write_features(path: Path, features: FeatureArray) -> None:
    """Write the array ``features``, whole or not at all, without holding the file's bytes beside it."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    scratch = scratch_beside(path)
    try:
        save_file({"features": np.ascontiguousarray(features)}, scratch)
        scratch.replace(path)
    except (OSError, SafetensorError) as error:  # a full disk is either
        remove(scratch)
        raise OutputError(f"{path.parent}: cannot be written: {one_line(error)}") from error
