"""A checkpoint's tokenizer and weights, as transformers loads them: quietly, from its folder alone, and seen to be whole."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from stsbench.encoders.checkpoints.checkpoint import Checkpoint, check_padding, read_json
from stsbench.encoders.checkpoints.sizes import check_size, odd_sizes
from stsbench.errors import EncoderError, one_line


def load_tokenizer(checkpoint: Checkpoint) -> Any:  # noqa: ANN401 - transformers is untyped
    """Load a checkpoint's tokenizer.

    Raises:
        EncoderError: it cannot be loaded, or knows no words.
    """
    check_padding(checkpoint.folder / "tokenizer_config.json")
    with _quiet():
        tokenizer = _load(transformers.AutoTokenizer, checkpoint)
    check_vocabulary(tokenizer, checkpoint.folder)
    return tokenizer


def load_model(kind: Any, checkpoint: Checkpoint, *, dtype: str, **options: Any) -> tuple[Any, list[str]]:  # noqa: ANN401
    """Load a checkpoint's weights into a model of a transformers ``Auto…`` class.

    Returns:
        The model, and the names of the tensors that the checkpoint lacks.

    Raises:
        EncoderError: it cannot be loaded, or a tensor has another shape.
    """
    with _quiet():
        _check_size(kind, checkpoint)
        model, info = _load(
            kind,
            checkpoint,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # told by the loading info, and refused below
            **options,
        )
    missing = sorted(info.get("missing_keys") or [])
    wrong = sorted(f"'{key}' {tuple(found)}, not {tuple(due)}" for key, found, due in info.get("mismatched_keys") or [])
    if wrong:
        raise EncoderError(f"{checkpoint.folder}: the weights have {wrong[0]} ({len(wrong)} tensors in all)")
    return model, missing


def check_vocabulary(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401 - transformers is untyped
    """Refuse a tokenizer of special tokens alone, which transformers makes where the vocabulary's file is missing."""
    words = len(tokenizer) - len(set(tokenizer.all_special_ids))
    # The mark of a word's beginning may be among them (T5).
    if words < 2:
        raise EncoderError(
            f"{folder}: the tokenizer knows no words; tokenizer.json or the vocabulary's file is missing"
        )


def valid_text(sentence: str) -> str:
    """Half a surrogate pair, as of an emoji cut in two, is no text to a tokenizer."""
    return sentence if sentence.isascii() else sentence.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting on the load: we check it ourselves."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Between transformers and tokenizers, whose versions are a user's to choose.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _load(kind: Any, checkpoint: Checkpoint, **options: Any) -> Any:  # noqa: ANN401 - transformers is untyped
    is_model = kind is not transformers.AutoTokenizer
    folder = checkpoint.weights[0].parent if is_model else checkpoint.folder
    try:
        return kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # what others wrote makes transformers raise anything
        what = "model" if is_model else "tokenizer"
        # Not every transformers names the key.
        odd = odd_sizes(read_json(folder / "config.json"))
        raise EncoderError(f"{folder}: the {what} cannot be loaded: {_why(error)}{odd}") from error
    except BaseException as error:
        # The package tokenizers, written in Rust, panics on some broken files.
        if type(error).__name__ != "PanicException":
            raise
        raise EncoderError(f"{folder}: the tokenizer cannot be loaded: {_why(error)}") from error


def _why(error: BaseException) -> str:
    said = one_line(error)[:300]
    return said if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {said}"


def _check_size(kind: Any, checkpoint: Checkpoint) -> None:  # noqa: ANN401 - transformers is untyped
    """Refuse a configuration that asks for more than its weights hold, before any memory is asked for."""
    folder = checkpoint.weights[0].parent
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = kind.from_config(config)
    except Exception:
        # It cannot be made at all: loading says why.
        return
    check_size(model, checkpoint.weights)
