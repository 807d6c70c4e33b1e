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
    """Fetch the files of an encoder, never code, and return the folder of the snapshot.

    Each file is checked each time, so that a damaged one in the cache is fetched again.

    Args:
        repo: The id of the repository.
        revision: A commit, branch or tag; ``unpinned`` is the main branch.
        extra_names: Names of further files, which are fetched if the repository has them.

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
    # Weights come last: a folder that has them has the rest, should the network be gone next time.
    return repository.fetch_all([*configuration, *extra_files, *weights])


def fetch_tokenizer(repo: str, *, revision: str, offline_hint: str | None = None) -> HubPath:
    """Fetch the files of a model's tokenizer and its configuration, without any weights.

    Args:
        repo: The id of the repository.
        revision: A commit, branch or tag; ``unpinned`` is the main branch.
        offline_hint: What to do without the Hub, see :class:`Repository`.

    Raises:
        SourceError: The repository has no such files, or one cannot be fetched.
    """
    repository = Repository(repo, revision=revision, kind="model", offline_hint=offline_hint)
    names = [name for name in choose_files(repository.files).configuration if "/" not in name]
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
    """Choose the files of a checkpoint from those of its repository.

    Of several formats of weights in a folder the preferred one is chosen; code is excluded.
    """
    names = sorted(names)
    names_by_folder = group_by(names, lambda name: PurePosixPath(name).parent)
    # The weights of the top folder come last.
    folders = sorted(names_by_folder, key=lambda folder: (-len(folder.parts), str(folder)))
    weights: list[str] = []
    for folder in folders:
        weights += _preferred_weights(names_by_folder[folder])
    configuration = [
        name
        for name in names
        if _CONFIGURATION_FILE.fullmatch(name) and not name.endswith(".index.json")
    ]
    return CheckpointFiles(configuration, weights)


def _preferred_weights(names: Sequence[str]) -> list[str]:
    """Return the weights in a folder, in the preferred format; empty if there are none."""
    for pattern in _READABLE_WEIGHTS:
        matches = [name for name in names if re.fullmatch(pattern, PurePosixPath(name).name)]
        # An index alone is no weights.
        if any(not name.endswith(".json") for name in matches):
            return matches
    return []
