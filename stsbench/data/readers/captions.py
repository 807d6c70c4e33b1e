"""Reader of images' captions: features from npz or safetensors, captions from JSON or CSV."""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import CardError, DataError, did_you_mean, one_line
from stsbench.data.readers.table import DataFile, FileLayout, read_delimited, read_text
from stsbench.data.splits import CaptionSplit

DIGITS = 18
"""No file has images of longer numbers, and Python refuses to read those of thousands of digits."""
DEFLATED = 1032
"""Deflate makes nothing smaller than by this factor (zlib's technical notes)."""


def read_captions(
    files: Sequence[DataFile],
    *,
    features: str = "features",
    captions_per_image: Annotated[int, Meta(ge=1)] = 5,
    suffix: str = " .",
) -> CaptionSplit:
    """Read one split of an image-caption task: a file of image features, then one of captions.

    The features are an array ``features`` of shape (images, size) in an ``.npz`` or
    ``.safetensors`` file. The captions are a ``.json`` list that holds the list of captions of
    each image in turn, or a ``.csv`` file with the columns ``image`` (its row in the features,
    from 0) and ``caption``. As in SentEval, the first ``captions_per_image`` of each image
    are kept and end in ``suffix``.
    """
    if len(files) != 2:
        raise CardError(f"reader 'captions' takes a features and a captions file, the card names {len(files)} files")
    array, path = _read_features(files[0].path, features), files[1].path
    if path.suffix not in (".json", ".csv"):
        raise DataError(f"{path}: captions come as .json or .csv, not as '{path.suffix}'")
    by_image = _from_json(path) if path.suffix == ".json" else _from_csv(path, len(array))
    if len(by_image) != len(array):
        raise DataError(f"{path}: captions of {len(by_image)} images, but features of {len(array)}")
    kept: list[str] = []
    for image, captions in enumerate(by_image):
        if len(captions) < captions_per_image:
            raise DataError(f"{path}: image {image} has {len(captions)} captions, {captions_per_image} are needed")
        kept += [" ".join((caption + suffix).split()) for caption in captions[:captions_per_image]]
    images = np.repeat(np.arange(len(array), dtype=np.int64), captions_per_image)
    return CaptionSplit(captions=kept, image_features=array, image_of_caption=images)


def _read_features(path: Path, name: str) -> npt.NDArray[np.float32]:
    if path.suffix == ".npz":
        array = _from_npz(path, name)
    elif path.suffix == ".safetensors":
        array = _from_safetensors(path, name)
    else:
        pickled = "; a pickle runs code when it is read, convert it" if path.suffix in {".pkl", ".pickle"} else ""
        raise DataError(f"{path}: image features come as .npz or .safetensors, not as '{path.suffix}'{pickled}")
    if array.ndim != 2 or not len(array) or not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"{path}: '{name}' must be a float array (images, size), it is {array.dtype} {array.shape}")
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused with all that is not finite
        return np.ascontiguousarray(array, dtype=np.float32)


def _from_npz(path: Path, name: str) -> npt.NDArray[Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            _require(path, name, [entry.removesuffix(".npy") for entry in archive.namelist()])
            with archive.open(f"{name}.npy") as stream:
                _check_claim(path, name, stream)
            with archive.open(f"{name}.npy") as stream:
                array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
                return array
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as .npz: {one_line(error)[:200]}") from error


def _check_claim(path: Path, name: str, stream: IO[bytes]) -> None:
    """Refuse an array of more bytes than its file can hold, before memory for it is asked for; raises DataError."""
    if np.lib.format.read_magic(stream) == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"an array of type {dtype}, not of numbers")
    if math.prod(shape) * dtype.itemsize > path.stat().st_size * DEFLATED:
        raise DataError(f"{path}: '{name}' says it has shape {shape}, more than a file of this size can hold")


def _from_safetensors(path: Path, name: str) -> npt.NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as arrays:
            _require(path, name, list(arrays.keys()))
            array: npt.NDArray[Any] = arrays.get_tensor(name)
            return array
    except (OSError, SafetensorError, TypeError, AttributeError) as error:  # types that numpy has not: bfloat16
        raise DataError(f"{path}: cannot be read as .safetensors: {one_line(error)}") from error


def _require(path: Path, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise DataError(f"{path}: no array '{name}' (has {', '.join(names) or 'none'}){did_you_mean(name, names)}")


def _from_json(path: Path) -> list[list[str]]:
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits; lists in lists in lists
        raise DataError(f"{path}: not a list of lists of captions: {one_line(error)[:150]}") from error
    if not isinstance(found, list):
        raise DataError(f"{path}: expected a list of lists of captions, found a {type(found).__name__}")
    for image, captions in enumerate(found):
        if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
            raise DataError(f"{path}: image {image}: expected a list of captions")
    return found


def _from_csv(path: Path, n_images: int) -> list[list[str]]:
    table = read_delimited(path, FileLayout(",", header=True, quoting=True), named=True)
    by_image: list[list[str]] = [[] for _ in range(n_images)]
    for at, (image, caption) in enumerate(zip(table.column("image"), table.column("caption"), strict=True)):
        if not image.isdecimal() or len(image) > DIGITS or int(image) >= n_images:
            raise DataError(
                f"{table.place(at)}: image '{image[:40]}' is not a row of the features (0 to {n_images - 1})"
            )
        by_image[int(image)].append(caption)
    return by_image
