"""The files of a checkpoint in a repository of the Hub: its weights, configuration, tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from stsbench.core.errors import SourceError
from stsbench.core.grouping import group_by
from stsbench.data.hub.repository import HubPath, Repository


def fetch_checkpoint(repo: str, *, revision: str, extra_names: Sequence[str] = ()) -> HubPath:
    """Fetch the weights, configuration and tokenizer of an encoder from the Hub, but no code.

    Each file is checked each time, so that a damaged one in the cache is fetched again.

    Args:
        repo: The id of the repository.
        revision: A commit, branch or tag; ``unpinned`` is the main branch.
        extra_names: Names of further files, which are fetched if the repository has them.

    Returns:
        The folder with the files, and the commit that they are from.

    Raises:
        SourceError: The repository has no weights, a file cannot be fetched, or the list of files
            is unknown.
    """
    repository = Repository(repo, revision=revision, kind="model")
    files = repository.files
    configuration, weights = choose_files(files)
    if not weights:
        other_weights = sorted(filter(_WEIGHTS_FILE_OF_ANY_KIND.fullmatch, files))[:3]
        alternatives = f", only {', '.join(other_weights)}" if other_weights else ""
        raise SourceError(
            f"{repository}: no weights in model.safetensors or pytorch_model.bin{alternatives}; "
            "choose another checkpoint"
        )
    extra_files = [name for name in extra_names if name in files]
    # Weights are fetched last, so that a folder with weights has all other files too, in case the
    # network is gone the next time.
    return repository.fetch_all([*configuration, *extra_files, *weights])


def fetch_tokenizer(repo: str, *, revision: str, offline_hint: str | None) -> HubPath:
    """Fetch the files of a model's tokenizer and its configuration, without any weights.

    Args:
        repo: The id of the repository.
        revision: A commit, branch or tag; ``unpinned`` is the main branch.
        offline_hint: Advice in errors for a user who cannot reach the Hub; None for the usual one.

    Returns:
        The folder with the files, and the commit that they are from.

    Raises:
        SourceError: The repository has no such files, or one cannot be fetched.
    """
    repository = Repository(repo, revision=revision, kind="model", offline_hint=offline_hint)
    configuration_names = choose_files(repository.files).configuration
    # Those of the top folder; others are of single modules.
    names = [name for name in configuration_names if "/" not in name]
    if not names:
        raise SourceError(f"{repository}: no files of a tokenizer; choose another model")
    return repository.fetch_all(names)


_CONFIGURATION_FILE = re.compile(r".*\.(json|txt|model|codes|spm|tokenizer)")
_READABLE_WEIGHTS = (
    r"model\.safetensors",
    r"model-\d+-of-\d+\.safetensors|model\.safetensors\.index\.json",
    r"pytorch_model\.bin",
    r"pytorch_model-\d+-of-\d+\.bin|pytorch_model\.bin\.index\.json",
)
"""Names of weights that can be read, preferred ones first: of one file each, and of its shards."""
_WEIGHTS_FILE_OF_ANY_KIND = re.compile(
    r".*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|onnx|onnx_data|ot|tflite|gguf|pkl|pickle|npz)"
)


class CheckpointFiles(NamedTuple):
    """The names of the files of a checkpoint."""

    configuration: list[str]
    """The files of the configuration and the tokenizer."""
    weights: list[str]


def choose_files(names: Iterable[str]) -> CheckpointFiles:
    """Choose the files of a checkpoint from those of its repository; code is excluded.

    Args:
        names: The paths of all files in the repository.

    Returns:
        ``configuration``: the files of the configuration and the tokenizer, such as those in JSON
        or text. ``weights``: those of each folder with their index, if they are several; in
        safetensors rather than PyTorch's format if a folder has both; those of the top folder last.
    """
    sorted_names = sorted(names)
    names_by_folder = group_by(sorted_names, lambda name: PurePosixPath(name).parent)
    # The deepest folders first.
    folders = sorted(names_by_folder, key=lambda folder: (-len(folder.parts), str(folder)))
    weights: list[str] = []
    for folder in folders:
        weights += _preferred_weights(names_by_folder[folder])
    configuration = [
        name
        for name in sorted_names
        if _CONFIGURATION_FILE.fullmatch(name) and not name.endswith(".index.json")
    ]
    return CheckpointFiles(configuration, weights)


def _preferred_weights(names: Sequence[str]) -> list[str]:
    """Return the files of weights in a folder, in the preferred format; empty if there are none.

    Args:
        names: The paths of all files in the folder.
    """
    # Patterns of names: model.safetensors, then several files of these; then pytorch_model.bin,
    # and several of these.
    for pattern in _READABLE_WEIGHTS:
        matching_names = [name for name in names if re.fullmatch(pattern, PurePosixPath(name).name)]
        # A JSON file is the index of weights in several files; it is nothing without them.
        has_weights = any(not name.endswith(".json") for name in matching_names)
        if has_weights:
            return matching_names
    return []
