"""Converter of SentEval's COCO data, from the published pickles to safetensors and JSON.

It runs nothing. A pickle can call any function that it names; here it can name only a few stand-ins
that store their arguments and do nothing. Arrays are made from what they stored, after a check.

The files are ``{train,valid,test}.pkl`` of ``coco_r101_feat``, written by Python 2: a dict of
``features`` (2,048 numbers per image), ``image_to_caption_ids`` (a list of ids per image) and
``captions`` (by id, a dict with ``cleaned_caption``). Source: SentEval, ``senteval/rank.py`` at
5d6dc11.
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
from stsbench.core.wording import as_one_line

SPLITS = ("train", "valid", "test")


class ConvertedSplit(NamedTuple):
    """The name of a split that was converted, and its numbers of images and captions."""

    split: str
    images: int
    captions: int


def convert_coco(source: Path, target: Path) -> list[ConvertedSplit]:
    """Convert SentEval's three pickles of COCO images and captions to safetensors and JSON.

    Each of train, valid and test becomes ``<split>.safetensors`` (array ``features``, float32 of
    shape (n_images, n_features)) and ``<split>.json`` (the list of captions of each image in turn).

    Args:
        source: The folder with the pickles, ``train.pkl``, ``valid.pkl`` and ``test.pkl``.
        target: The folder for the new files. The COCO task reads them in ``downstream/COCO`` of the
            data folder.

    Returns:
        The name of each split, with its numbers of images and captions.

    Raises:
        DataError: A pickle is missing or broken, names anything but arrays, or has other contents.
        OutputError: The target cannot be written.
    """
    missing = [f"{split}.pkl" for split in SPLITS if not (source / f"{split}.pkl").is_file()]
    if missing:
        raise DataError(
            f"{source}: no {', '.join(missing)}; "
            "the COCO features are train.pkl, valid.pkl and test.pkl"
        )
    return [_convert(split, source / f"{split}.pkl", target) for split in SPLITS]


def _convert(split: str, path: Path, target: Path) -> ConvertedSplit:
    """Convert one pickle of images and captions, and write the two files of its split.

    Args:
        split: The name of the split.
        path: The pickle.
        target: The folder for the new files.

    Returns:
        The name of the split, with its numbers of images and captions.

    Raises:
        DataError: The pickle is broken, or has other contents.
    """
    from safetensors.numpy import save_file

    content = read_pickle(path)
    try:
        features, captions_by_image = _parse_content(content)
    # All that other contents can raise.
    except (
        ArithmeticError,
        AttributeError,
        DataError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        problem = f"{type(error).__name__}: {as_one_line(error)}"
        raise DataError(f"{path}: is not SentEval's COCO data: {problem}") from error
    write_atomically(target / f"{split}.json", json.dumps(captions_by_image).encode())
    with open_atomically(target / f"{split}.safetensors") as stream:
        # From the array itself, not its bytes: a copy of the training images takes 0.9 GB.
        save_file({"features": np.ascontiguousarray(features)}, stream.name)
    return ConvertedSplit(split, images=len(features), captions=sum(map(len, captions_by_image)))


class _ImageData(NamedTuple):
    """The contents of a pickle."""

    features: npt.NDArray[np.float32]
    """The features of each image, of shape (n_images, n_features)."""
    captions_by_image: list[list[str]]


def _parse_content(content: Any) -> _ImageData:  # noqa: ANN401 - whatever the pickle holds
    """Return the image features and the captions in a pickle of SentEval's COCO data.

    Args:
        content: The unpickled dict. It has stubs in place of arrays and bytes in place of texts,
            from which the arrays and texts are made here.

    Returns:
        The features, (n_images, n_features), and the list of captions of each image.

    Raises:
        DataError: The features are no array of numbers, or a caption is no text.
        Exception: The content has another form, in whatever way.
    """
    # Each value is made from its stubs when it is needed: together they take much memory.
    stubs_by_key = {_replace_stubs(key): value for key, value in content.items()}
    features = _stack_features(_replace_stubs(stubs_by_key["features"]))
    caption_ids_by_image = _replace_stubs(stubs_by_key["image_to_caption_ids"])
    caption_by_id = _replace_stubs(stubs_by_key["captions"])
    captions_by_image = []
    for image in range(len(features)):
        caption_ids = caption_ids_by_image[image]
        captions = [caption_by_id[caption_id]["cleaned_caption"] for caption_id in caption_ids]
        captions_by_image.append(captions)
    for captions in captions_by_image:
        if not all(isinstance(caption, str) for caption in captions):
            raise DataError("a caption is no text")
    return _ImageData(features, captions_by_image)


class _PickleStub:
    """A stand-in for a class or function of a pickle: stores its arguments and its state."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - whatever the pickle holds
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - as __init__
        self.state = state


class _Array(_PickleStub):
    """An array; its state is (version, shape, dtype, whether in Fortran's order, bytes)."""


class _Scalar(_PickleStub):
    """A number of numpy; its arguments are (dtype, bytes)."""


class _DType(_PickleStub):
    """A dtype; its arguments are (kind and size, ...), its state (version, byte order, ...)."""


class _Dict(dict[Any, Any]):
    """A dict of another class; it has its items, but no factory of missing ones."""

    def __init__(self, items: object = ()) -> None:
        super().__init__(items if isinstance(items, list) else ())

    def __setstate__(self, state: object) -> None:
        """Ignore the attributes."""


# The first before numpy 2, the second since.
_NUMPY_CORE_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_ALLOWED: dict[tuple[str, str], object] = {
    **{(core, "_reconstruct"): _Array for core in _NUMPY_CORE_MODULES},
    **{(core, "scalar"): _Scalar for core in _NUMPY_CORE_MODULES},
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
    """An unpickler that has stand-ins only, as a pickle finds any object by ``find_class``."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as in pickle
        if (module, name) not in _ALLOWED:
            raise UnpicklingError(
                f"it asks for {module}.{name}, which an image's features do not need"
            )
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> Any:  # noqa: ANN401 - whatever the pickle holds
    """Read a pickle of Python 2 or 3 without running anything that it names.

    A pickle names the functions that make its objects, and could name any function. Here, a few
    names of numpy and of containers are replaced by stubs, which store their arguments; any other
    name is refused.

    Args:
        path: The file.

    Returns:
        Its value. A ``str`` of Python 2 is bytes; an array or a number of numpy is a stub.

    Raises:
        DataError: The file is missing, no pickle, or names anything but arrays and containers.
    """
    try:
        with path.open("rb") as stream:
            return _Unpickler(stream, encoding="bytes").load()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    # A broken pickle can fail in any way.
    except Exception as error:
        raise DataError(
            f"{path}: is refused: {as_one_line(error) or type(error).__name__}"
        ) from error


def _replace_stubs(value: Any) -> Any:  # noqa: ANN401 - whatever the pickle holds
    """Return a value of a pickle with arrays, numbers and texts in place of stubs and bytes.

    * A stub of a numpy array becomes an array, that of a numpy number becomes a number.
    * Bytes, which texts of Python 2 are here, become text.
    * Mappings become dicts, and lists and tuples become lists, with all their values replaced too.
    * Any other value stays.

    Raises:
        DataError: An array is not of numbers.
    """
    if isinstance(value, _Array):
        # The version of numpy's format, the shape, and so on.
        _, shape, dtype_stub, is_fortran, content = value.state
        numbers = np.frombuffer(content, _make_dtype(dtype_stub))
        return numbers.reshape(shape, order="F" if is_fortran else "C")
    if isinstance(value, _Scalar):
        dtype_stub, content = value.arguments[0], value.arguments[1]
        return np.frombuffer(content, _make_dtype(dtype_stub))[0].item()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Mapping):
        return {
            _replace_stubs(key): _replace_stubs(nested_value) for key, nested_value in value.items()
        }
    if isinstance(value, list | tuple):
        return [_replace_stubs(nested_value) for nested_value in value]
    return value


def _make_dtype(stub: Any) -> np.dtype[Any]:  # noqa: ANN401 - as _replace_stubs
    """Return the type of an array of numbers.

    Args:
        stub: The stub of a ``numpy.dtype``. Its first argument is the kind and size of the numbers
            (``f4``), and the second item of its state is their byte order (``<``).

    Raises:
        DataError: It is not a type of numbers.
        Exception: The stub has another form, in whatever way.
    """
    kind = _replace_stubs(stub.arguments[0])
    byte_order = _replace_stubs(stub.state[1])
    # Floats of 2, 4 or 8 bytes, and whole numbers of 1, 2, 4 or 8.
    is_number = re.fullmatch(r"[fiu][248]|[iu]1", kind)
    if not isinstance(stub, _DType) or not is_number or byte_order not in "<>=|":
        raise DataError(f"an array of type '{byte_order}{kind}', not of numbers")
    dtype: np.dtype[Any] = np.dtype(byte_order + kind)
    return dtype


def _stack_features(value: Any) -> npt.NDArray[np.float32]:  # noqa: ANN401 - as _replace_stubs
    """Return image features as a float32 array of shape (n_images, n_features).

    Args:
        value: The features of all images: an array, a list with an array per image, or a dict of
            these by the number of the image, 0 to n - 1.

    Raises:
        DataError: They are no numbers, or no table of them.
        KeyError: The dict lacks the number of an image.
        ValueError: The arrays of two images differ in length.
    """
    if isinstance(value, dict):
        value = [value[image] for image in range(len(value))]
    if isinstance(value, list):
        array = np.stack([np.ravel(row) for row in value])
    else:
        array = np.asarray(value)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(
            f"'features' is an array of {array.dtype} of shape {array.shape}, "
            "not numbers (images, size)"
        )
    return np.asarray(array, dtype=np.float32)
