"""Reader of images' captions: features from npz or safetensors, captions from JSON or CSV."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.data.readers.text import DataFile, read_table, read_text
from stsbench.data.splits import CaptionSplit
from stsbench.errors import CardError, DataError, did_you_mean, one_line


def read_captions(
    files: Sequence[DataFile],
    *,
    features: str = "features",
    captions_per_image: int = 5,
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
    array = _read_features(files[0].path, features)
    by_image = _read_captions(files[1].path, len(array))
    kept: list[str] = []
    for image, captions in enumerate(by_image):
        if len(captions) < captions_per_image:
            raise DataError(
                f"{files[1].path}: image {image} has {len(captions)} captions, {captions_per_image} are needed"
            )
        kept += [" ".join((caption + suffix).split()) for caption in captions[:captions_per_image]]
    images = np.repeat(np.arange(len(array), dtype=np.int64), captions_per_image)
    return CaptionSplit(captions=kept, image_features=array, image_of_caption=images)


def _read_features(path: Path, name: str) -> npt.NDArray[np.float32]:
    if path.suffix == ".npz":
        array = _from_npz(path, name)
    elif path.suffix == ".safetensors":
        array = _from_safetensors(path, name)
    elif path.suffix in {".pkl", ".pickle"}:
        raise DataError(f"{path}: a pickle runs code when it is read; convert it to .npz or .safetensors")
    else:
        raise DataError(f"{path}: image features come as .npz or .safetensors, not as '{path.suffix}'")
    if array.ndim != 2 or not len(array) or not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"{path}: '{name}' must be a float array (images, size), it is {array.dtype} {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise DataError(f"{path}: the features of image {bad[0]} are not finite")
    return np.ascontiguousarray(array, dtype=np.float32)


def _from_npz(path: Path, name: str) -> npt.NDArray[Any]:
    try:
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: this is a single array, not an .npz archive; save it with numpy.savez")
        with arrays:
            _require(path, name, arrays.files)
            array: npt.NDArray[Any] = arrays[name]
            return array
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as .npz: {one_line(error)}") from error


def _from_safetensors(path: Path, name: str) -> npt.NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as arrays:
            _require(path, name, list(arrays.keys()))
            array: npt.NDArray[Any] = arrays.get_tensor(name)
            return array
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read as .safetensors: {one_line(error)}") from error


def _require(path: Path, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise DataError(f"{path}: no array '{name}' (has {', '.join(names) or 'none'}){did_you_mean(name, names)}")


def _read_captions(path: Path, n_images: int) -> list[list[str]]:
    if path.suffix == ".json":
        by_image = _from_json(path)
    elif path.suffix == ".csv":
        by_image = _from_csv(path, n_images)
    else:
        raise DataError(f"{path}: captions come as .json or .csv, not as '{path.suffix}'")
    if len(by_image) != n_images:
        raise DataError(f"{path}: captions of {len(by_image)} images, but features of {n_images}")
    return by_image


def _from_json(path: Path) -> list[list[str]]:
    try:
        found = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: line {error.lineno}: not valid JSON: {error.msg}") from error
    if not isinstance(found, list):
        raise DataError(f"{path}: expected a list of lists of captions, found a {type(found).__name__}")
    for image, captions in enumerate(found):
        if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
            raise DataError(f"{path}: image {image}: expected a list of captions")
    return found


def _from_csv(path: Path, n_images: int) -> list[list[str]]:
    table = read_table(path, delimiter=",", header=True, quoting=True)
    by_image: list[list[str]] = [[] for _ in range(n_images)]
    for at, (image, caption) in enumerate(zip(table.column("image"), table.column("caption"), strict=True)):
        if not image.isdecimal() or int(image) >= n_images:
            raise DataError(
                f"{path}: line {table.first_line + at}: image '{image[:40]}' is no row of the features "
                f"(0 to {n_images - 1})"
            )
        by_image[int(image)].append(caption)
    return by_image
