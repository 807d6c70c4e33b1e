"""How a checkpoint is run: by its own files, or by the documentation of its family.

Its files are ``stsbench.json`` or the JSON files of sentence-transformers. Most checkpoints of
papers are bare transformers: their documentation names the pooling and the prompt, their files do
not. The mean over tokens of unsupervised SimCSE, for example, gives numbers that look right and
that nobody has published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, NamedTuple

import msgspec

from stsbench.core.cards import ModelFamily
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, EncoderError, UnknownName
from stsbench.core.files import write_atomically
from stsbench.core.wording import format_repr
from stsbench.encoders.allowed import ALLOWED_KEYS_BY_MODULE, SENTENCE_BERT_CONFIGS
from stsbench.encoders.cached_files import (
    cached_file_sha256,
    decode_json_file,
    iter_files_below,
    read_json,
    read_optional_json,
)
from stsbench.encoders.checkpoint import check_module, may_be_read, read_positions, refuse_adapter
from stsbench.encoders.transformer.pooling import POOLINGS
from stsbench.encoders.weights import checked_shard_names
from stsbench.encoders.words.model2vec import is_model2vec

SAVED_FILE = "stsbench.json"
SAVED_KINDS = (
    "transformer", "sentence_transformer", "infersent", "skip_thoughts", "quick_thoughts",
    "fastsent",
)  # fmt: skip
"""The kinds that ``stsbench.json`` may name: those that are saved here.

None of them names code or another encoder.
"""
USER_PARAMETERS = (
    "model", "package", "revision", "subfolder", "name", "catalogue", "device", "vectors",
)  # fmt: skip
"""The parameters that only a user may set: location, name and device of a checkpoint."""


class SavedEncoder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kind of encoder that a folder holds, and its parameters besides the folder."""

    kind: str
    params: dict[str, Any] = {}


def write_saved(folder: Path, kind: str, params: Mapping[str, Any]) -> None:
    """Write ``stsbench.json``, by which the encoder in a folder is run."""
    text = json.dumps({"kind": kind, "params": dict(params)}, indent=1, sort_keys=True)
    write_atomically(folder / SAVED_FILE, f"{text}\n".encode())


LIBRARY_CONFIG_FILE = "config_sentence_transformers.json"
_POOLINGS_BY_MODE = {
    kind.library: name for name, kind in POOLINGS.items() if kind.library and not kind.through_head
}
"""Our poolings by the library's names; its ``cls`` never goes through the model's head."""
_MODES_BY_OLD_KEY = {
    f"pooling_mode_{old}": re.sub("_tokens?$", "", old)
    for old in (
        "cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens",
        "lasttoken",
    )
}  # fmt: skip
"""The library's poolings by the keys of its older releases."""
_DEFAULT_CONFIG = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""The values that a plain transformer's configuration may have, besides its length."""
_STS_PROMPTS = {
    "sts", "similarity", "sentence-similarity", "semantic similarity", "text-matching",
    "semantic-similarity",
}  # fmt: skip
"""The names of prompts for STS in checkpoints, in lower case."""
_LIBRARY_CLASS = re.compile(r"sentence_transformers\.(\w+\.)*(models|modules)(\.\w+)+")
"""The addresses of the library's modules, old and new."""
_TORCH_CLASS = re.compile(r"torch\.nn\.[\w.]*")
MAX_PATH_LENGTH = 200
"""The maximum length of a module's path, in characters."""


class _LibraryConfig(msgspec.Struct, frozen=True):
    model_type: str = "SentenceTransformer"
    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    truncate_dim: Annotated[int, msgspec.Meta(ge=1)] | None = None
    similarity_fn_name: str | None = None


class CheckpointModule(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """One step of a checkpoint: the address of its class, and its folder in the checkpoint's."""

    kind: str
    path: str

    @property
    def class_name(self) -> str:
        """The name of its class, without the module."""
        return self.kind.rpartition(".")[2]


def read_modules(folder: Path) -> list[CheckpointModule]:
    """Return the modules of a checkpoint of sentence-transformers, in their order.

    A module is one step of the encoder, such as a transformer or a pooling. A router is a module
    with further modules inside it, which follow it in the list.

    Raises:
        EncoderError: A module asks for code that is not the library's or torch's.
    """
    model_type = _read_library_config(folder).model_type
    if model_type != "SentenceTransformer":
        raise EncoderError(f"{folder}: is a {model_type}, which does not embed sentences by itself")
    modules: list[CheckpointModule] = []
    for module in _read_steps(folder):
        modules.extend(_iter_checked_modules(folder, module))
    return modules


def class_addresses(folder: Path, module: CheckpointModule) -> list[str]:
    """Return the addresses of a module's class, and of its word tokenizer's class if it has one."""
    if not module.kind.endswith(".WordEmbeddings"):
        return [module.kind]
    config = read_optional_json(folder / module.path / "wordembedding_config.json")
    return [module.kind, str(config.get("tokenizer_class"))]


def _iter_checked_modules(folder: Path, module: CheckpointModule) -> Iterator[CheckpointModule]:
    """Yield a module of sentence-transformers and then those inside it, each after its checks.

    A module is one step of the encoder, such as a pooling; only a router has modules inside it.
    It must be a class of the library, and its files must not run code or read other files.

    Args:
        folder: The folder of the checkpoint.
        module: One of its modules, by its class and its folder inside the checkpoint.

    Raises:
        EncoderError: A module asks for code that is not the library's or torch's.
    """
    module_folder = folder / module.path
    # The module's class, and that of its word tokenizer if it has one. The table
    # ALLOWED_KEYS_BY_MODULE has the names of the classes whose files can be checked.
    for address in class_addresses(folder, module):
        name = address.rpartition(".")[2]
        if not _LIBRARY_CLASS.fullmatch(address) or name not in ALLOWED_KEYS_BY_MODULE:
            raise EncoderError(
                f"{folder}: asks for code outside sentence-transformers' modules ('{address}'), "
                "which is never run; write an encoder class of your own for it"
            )
        check_module(module_folder, name)
    refuse_adapter(module_folder)
    if module.class_name == "Dense":
        config = read_optional_json(module_folder / "config.json")
        # A missing one passes: the library has a default for it.
        activation = str(config.get("activation_function", "torch.nn."))
        if not _TORCH_CLASS.fullmatch(activation):
            # The library would use tanh in its place, and report it only in a log.
            raise EncoderError(
                f"{module_folder}: activation '{activation}' is not torch's; it is never run"
            )
    yield module
    if module.class_name in ("Router", "Asym"):  # one module for queries, another for documents
        config = read_optional_json(module_folder / "config.json")
        router_config = read_optional_json(module_folder / "router_config.json")
        # The class of each module inside it, by the name of the module's folder.
        types = {**config, **router_config}.get("types")
        if not isinstance(types, dict):
            raise EncoderError(
                f"{module_folder}: its configuration has no table 'types' of modules"
            )
        for name, address in types.items():
            inner_path = PurePosixPath(module.path, _check_path(module_folder, name)).as_posix()
            yield from _iter_checked_modules(folder, CheckpointModule(str(address), inner_path))


def _read_steps(folder: Path) -> list[CheckpointModule]:
    """Return the modules that ``modules.json`` lists, by class and folder, in their order.

    Raises:
        EncoderError: The file is missing or broken, or a path may lead out of the checkpoint.
    """
    path = folder / "modules.json"
    if not path.is_file():
        raise EncoderError(
            f"{folder}: no modules.json; a plain checkpoint is for the encoder kind 'transformer'"
        )
    modules = decode_json_file(
        path, list[CheckpointModule], problem="is not a list of modules with 'type' and 'path'"
    )
    if not modules:
        raise EncoderError(f"{path}: lists no modules")
    for module in modules:
        _check_path(path, module.path)
    return modules


def _check_path(source: Path, path: str) -> str:
    """Return the path of a module's folder unchanged, after a check.

    Args:
        source: The file or folder that names the path, for the message.
        path: The path, which must lead to a folder inside the checkpoint.

    Raises:
        EncoderError: It may lead out of the checkpoint, is too long, or cannot be printed.
    """
    # Windows' rules are the strictest: both slashes, drives, roots.
    windows_path = PureWindowsPath(path)
    leads_out = bool(windows_path.anchor) or ".." in windows_path.parts
    if leads_out or len(path) > MAX_PATH_LENGTH or not path.isprintable():
        raise EncoderError(f"{source}: {format_repr(path)} is no folder inside the checkpoint")
    return path


def _read_library_config(folder: Path) -> _LibraryConfig:
    """Read the configuration file of sentence-transformers in a checkpoint's folder.

    Returns:
        What it says on prompts, similarity and size. What it does not say is None, but
        ``model_type`` is "SentenceTransformer" by default. Without a file it says nothing.
    """
    path = folder / LIBRARY_CONFIG_FILE
    if not path.is_file():
        return _LibraryConfig()
    return decode_json_file(path, _LibraryConfig, problem="cannot be used")


def similarity_notes(folder: Path) -> list[str]:
    """Return a list of one note for results if a checkpoint names a similarity other than cosine.

    Sentences are compared by cosine here, whatever the checkpoint's files say. The list is empty
    if they name cosine or nothing.
    """
    # A name such as "dot"; None if the files have none.
    similarity = _read_library_config(folder).similarity_fn_name or "cosine"
    if similarity == "cosine":
        return []
    return [f"its files compare embeddings by {similarity}; here all are compared by cosine"]


def find_prompt_text(folder: Path, prompt_name: str | None, text: str = "") -> str:
    """Return the text to put before each sentence, the prompt; empty if there is none.

    It is the user's own text; or else the prompt of the checkpoint's files that the user names; or
    else their default one.

    Args:
        folder: The checkpoint.
        prompt_name: The name of a prompt in the files; None for the default one, empty for none.
        text: The user's own text; empty if there is none.

    Raises:
        UnknownName: The checkpoint has no prompt of this name, or no such default prompt.
        CardError: Both a name and a text are given.
    """
    if text and prompt_name:
        raise CardError("give 'prompt' or 'prompt_name', not both")
    if text or prompt_name == "":
        return text
    config = _read_library_config(folder)
    prompts = config.prompts or {}
    name = prompt_name or config.default_prompt_name
    if not name:
        return ""
    if name not in prompts:
        hint = f"it has {', '.join(prompts) or 'none'}"
        raise UnknownName(f"prompt of {folder}", name, prompts, hint=hint)
    return prompts[name] or ""


def library_file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 hash of each file that sentence-transformers may read, by its path.

    These are the files beside ``modules.json``, those in the folders of the modules (the encoder's
    steps), and the parts of weights that an index lists. Paths are relative to the folder.
    """
    paths = {path for path in folder.glob("[!.]*") if path.is_file()}
    for module in read_modules(folder):
        module_folder = folder / module.path
        if module_folder != folder:
            paths.update(iter_files_below(module_folder))
    # Large weights are in several files, which an index names.
    for path in [path for path in paths if path.name.endswith(".index.json")]:
        # By the name of each weight, the file that has it.
        weight_map = read_json(path).get("weight_map")
        weight_map = weight_map if isinstance(weight_map, dict) else {}
        # Raises if a file is not beside the index or has another format.
        paths.update(path.parent / name for name in checked_shard_names(path, weight_map))
    paths_by_name = {
        path.relative_to(folder).as_posix(): path
        for path in paths
        if path.is_file() and _is_read_by_library(path)
    }
    return {name: cached_file_sha256(path) for name, path in sorted(paths_by_name.items())}


def _is_read_by_library(path: Path) -> bool:
    """Return whether sentence-transformers may read a file, so that it can change embeddings.

    Args:
        path: Any file in a checkpoint's folder, or in the folder of one of its modules.
    """
    # If a folder has weights in both formats, only the safetensors are read.
    is_torch_file = path.match("pytorch_model*.bin")
    if is_torch_file and not any(path.parent.glob("model*.safetensors")):
        return True
    return path.suffix == ".safetensors" or may_be_read(path)


def plain_transformer_params(folder: Path) -> dict[str, Any] | None:
    """Return the parameters by which our ``TransformerEncoder`` runs a checkpoint.

    With these parameters it embeds as sentence-transformers does, but faster. That is possible for
    a checkpoint whose modules are a transformer, a pooling and perhaps a normalisation.

    Returns:
        Values by the names of the parameters, for example of ``pooling`` and ``max_length``;
        without those that are None or empty. None if the checkpoint has other modules, or
        sets an option that our encoder does not have.

    Raises:
        EncoderError: A file is broken.
        UnknownName: The prompt that the files name as their default is not among their prompts.
    """
    if not (folder / "modules.json").is_file():
        return None
    # In their order; a class that is not the library's has an empty name here.
    modules = _read_steps(folder)
    class_names = [
        module.class_name if module.kind.startswith("sentence_transformers.") else ""
        for module in modules
    ]
    if class_names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return None
    transformer_folder = folder / modules[0].path
    if (transformer_folder / "adapter_config.json").is_file():
        return None
    config = _read_library_config(folder)
    prompt = find_prompt_text(folder, prompt_name=None)
    pooling_config = read_optional_json(folder / modules[1].path / "config.json")
    # None if no pooling of ours does the same.
    pooling = _find_pooling_name(pooling_config, has_prompt=bool(prompt))
    last_config = read_optional_json(folder / modules[-1].path / "config.json")
    output_name = last_config.get("module_output_name", "sentence_embedding")
    # 0 if the files set none; None if our encoder cannot run the transformer.
    max_length = _find_max_length(transformer_folder)
    is_another_model = config.model_type != "SentenceTransformer"
    if is_another_model or config.truncate_dim or output_name != "sentence_embedding":
        return None
    if not pooling or max_length is None:
        return None
    tokenizer_config = read_optional_json(transformer_folder / "tokenizer_config.json")
    params = {
        "pooling": pooling,
        # The third module, if there is one, normalises.
        "normalise": len(modules) == 3,
        "max_length": max_length or None,
        "prompt": prompt,
        "padding_side": "left" if tokenizer_config.get("padding_side") == "left" else None,
        "subfolder": modules[0].path,
    }
    # None and the empty text are the defaults of these parameters.
    return {key: value for key, value in params.items() if value not in (None, "")}


def _find_pooling_name(config: Mapping[str, Any], *, has_prompt: bool) -> str | None:
    """Return the name of our pooling that does what a pooling module of the library does.

    Args:
        config: The module's ``config.json``. Newer versions of sentence-transformers write the
            name under ``pooling_mode``, older ones a truth value under one key for each pooling.
        has_prompt: Whether a prompt is put before sentences. The module may leave the tokens of
            the prompt out of the pooling, and our poolings never do.

    Returns:
        None if no pooling of ours does the same.
    """
    # A key that is not known may change the result.
    known_keys = {
        "embedding_dimension",
        "word_embedding_dimension",
        "pooling_mode",
        "include_prompt",
        *_MODES_BY_OLD_KEY,
    }
    if not known_keys >= set(config):
        return None
    if has_prompt and not config.get("include_prompt", True):
        return None
    modes = config.get("pooling_mode")
    if not modes:
        # The name by each old key: "cls" by "pooling_mode_cls_token". The library pools by the
        # mean if nothing is set.
        modes = [name for key, name in _MODES_BY_OLD_KEY.items() if config.get(key)] or "mean"
    if isinstance(modes, str):
        modes = [modes]
    # Several modes give embeddings one after another, which no pooling of ours does.
    if not isinstance(modes, list) or len(modes) != 1:
        return None
    return _POOLINGS_BY_MODE.get(str(modes[0]))


def _find_max_length(folder: Path) -> int | None:
    """Return the number of tokens after which texts are cut, according to a transformer's files.

    Args:
        folder: The folder of the transformer within a checkpoint of sentence-transformers.

    Returns:
        0 if the files set no number, or one beyond the model's positions. None if our encoder
        cannot run the transformer: the files set options that it does not have or a number that is
        none, or it is no plain text model.
    """
    own_paths = [folder / name for name in SENTENCE_BERT_CONFIGS if (folder / name).is_file()]
    # The library's options for the transformer, such as those of sentence_bert_config.json.
    own_config = read_json(own_paths[0]) if own_paths else {}
    # Removed from the options, so that all that remain are options which our encoder lacks.
    length = own_config.pop("max_seq_length", None) or 0
    config = read_optional_json(folder / "config.json")
    if not isinstance(length, int):
        return None
    # Options that are not empty and differ from those of a plain transformer.
    has_other_options = any(
        value and value != _DEFAULT_CONFIG.get(key) for key, value in own_config.items()
    )
    if has_other_options or not _is_plain_architecture(config):
        return None
    # Beyond the model's positions the library fails; we cut at the positions.
    positions = read_positions(config)
    return 0 if positions is not None and length > positions else length


def _is_plain_architecture(config: Mapping[str, Any]) -> bool:
    """Return whether a transformer is a plain text model, which our encoder and the library load.

    Not plain is a model with a decoder, like T5: sentence-transformers loads the encoder alone, and
    our encoder might load both. Nor is one whose class loads the encoder half of such a model
    (``T5EncoderModel``), a model of texts and images, or one whose type is not named.

    Args:
        config: The content of its ``config.json``.
    """
    model_type = str(config.get("model_type", ""))
    architectures = config.get("architectures") or []
    if not model_type or not isinstance(architectures, list):
        return False
    has_decoder = "t5" in model_type or bool(config.get("is_encoder_decoder"))
    is_encoder_half = any(str(name).endswith("EncoderModel") for name in architectures)
    is_multimodal = bool({"text_config", "vision_config"} & set(config))
    return not (has_decoder or is_encoder_half or is_multimodal)


def is_cross_encoder(folder: Path) -> bool:
    """Return whether a checkpoint's files are those of a cross-encoder."""
    if _read_library_config(folder).model_type == "CrossEncoder":
        return True
    has_other_modules = (folder / "modules.json").is_file()
    return not has_other_modules and is_pair_classifier(read_optional_json(folder / "config.json"))


def is_pair_classifier(config: Mapping[str, Any]) -> bool:
    """Return whether a model's configuration is that of a classifier of sequences with one label.

    Such a model gives a pair of sentences one score: it is a cross-encoder.
    """
    # Without a table of labels transformers makes two labels.
    labels: object = config.get("id2label")
    n_labels = config.get("num_labels", len(labels) if isinstance(labels, dict) and labels else 2)
    architectures: object = config.get("architectures")
    # The first of them is the model's class.
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    return n_labels == 1 and str(first).endswith("ForSequenceClassification")


UNDOCUMENTED = ModelFamily(ids=["*"], pooling="mean", source="")
"""The family of all checkpoints whose documentation is not known here."""


def find_family(model: str, catalogue: Catalogue) -> ModelFamily:
    """Return the family of a Hub id; a family of a user's cards counts before ours."""
    for family in reversed(catalogue.families().values()):
        if any(fnmatchcase(model.casefold(), pattern.casefold()) for pattern in family.ids):
            return family
    return UNDOCUMENTED


class Description(NamedTuple):
    """A kind of encoder, its parameters besides ``model``, and the files that they are from."""

    kind: str
    """The kind, a key of ``KINDS``."""
    params: dict[str, Any]
    """The parameters of the encoder besides ``model``."""
    is_saved: bool = False
    """``stsbench.json`` holds all of it."""
    has_modules: bool = True
    """The files of sentence-transformers hold it; else a bare transformer names no pooling."""
    sts_prompt: str = ""
    """The name of a prompt for STS in the files that is not their default; empty if none is."""
    family: ModelFamily = UNDOCUMENTED
    """The documentation of the checkpoint's family, in a card."""

    def assumptions(self, params: Mapping[str, Any]) -> list[str]:
        """Return a note on settings that neither the checkpoint's files nor the user has chosen.

        The cases, in this order:

        * The files have a prompt for STS that is not their default, and the user chooses none.
        * The files are those of sentence-transformers (``self.has_modules``), and only the
          documentation of the checkpoint's family (``self.family``) names a prompt.
        * There are no such files, so pooling, normalisation and prompt are those of the family.
          ``family.source`` is the page that documents them; empty if they are only assumed.

        Args:
            params: The parameters of the user, by name.

        Returns:
            A list of one note for results, or an empty list.
        """
        family = self.family
        prompt_params = {"prompt", "prompt_name", "prompt_template"} & params.keys()
        if self.sts_prompt and not prompt_params:
            return [
                "run with the default prompt of its files; they have one for STS: "
                f"the parameter prompt_name={self.sts_prompt}"
            ]
        if self.has_modules:
            # Their files choose all settings; a prompt may be documented that they do not have.
            # `prompt_template` alone does not count as a choice here.
            selects_prompt = bool(prompt_params - {"prompt_template"})
            if not family.prompt or selects_prompt:
                return []
            return [
                f"run as its files say; its documentation puts '{family.prompt}' before every "
                f'sentence ({family.source}): the parameter prompt="{family.prompt}"'
            ]
        assumed_values = {
            key: getattr(family, key)
            for key in ("pooling", "normalise", "prompt")
            if key not in params
        }
        is_chosen_by_user = "pooling" in params and "prompt" in params
        if is_chosen_by_user or "prompt_template" in params:
            return []
        # Words for values that would read badly in the note.
        words = {"": "none", True: "yes", False: "no"}
        values = ", ".join(
            f"{key} {words.get(value, value)}" for key, value in assumed_values.items()
        )
        reason = (
            f"from the documentation of its family ({family.source})"
            if family.source
            else "assumed"
        )
        return [f"no card and no sentence-transformers files say how to run it; {reason}: {values}"]


def describe(folder: Path, catalogue: Catalogue, model: str = "") -> Description:
    """Return how a checkpoint is run: the kind of encoder, and its parameters.

    They are read from the first of these that exists: ``stsbench.json``, which our training writes;
    the files of a library, such as sentence-transformers; the documentation of the family of
    models that the checkpoint belongs to, which is in a card.

    Args:
        folder: The files of the checkpoint.
        catalogue: The cards with the families.
        model: The id of the checkpoint on the Hub; empty if it is not from there.

    Raises:
        EncoderError: A file is broken, or has a value that no checkpoint may set.
        UnknownName: ``stsbench.json`` names a kind that no folder holds, or the default prompt of
            the files is not among their prompts.
    """
    path = folder / SAVED_FILE
    if path.is_file():
        saved = _read_saved(path)
        return Description(saved.kind, saved.params, is_saved=True)
    if is_model2vec(folder):
        return Description("model2vec", params={})
    if is_cross_encoder(folder):
        return Description("cross_encoder", params={})
    # Without documentation: pooling "mean", no normalisation and no prompt.
    family = find_family(model, catalogue)
    # The parameters by which our own encoder can run the files of sentence-transformers. None if
    # it cannot: then that library runs them.
    params = plain_transformer_params(folder)
    has_modules = (folder / "modules.json").is_file()
    if not has_modules:
        params = {"pooling": family.pooling, "normalise": family.normalise}
        if family.prompt:
            params["prompt"] = family.prompt
    return Description(
        "sentence_transformer" if params is None else "transformer",
        params=params or {},
        has_modules=has_modules,
        sts_prompt=_find_sts_prompt(folder),
        family=family,
    )


def _read_saved(path: Path) -> SavedEncoder:
    """Read ``stsbench.json``, which names a kind of encoder and its parameters, and check it.

    Raises:
        EncoderError: The file is broken, or sets one of ``USER_PARAMETERS``, which only a user
            may set, such as the device and the model's place.
        UnknownName: It names a kind of encoder that stsbench does not save in folders.
    """
    saved = decode_json_file(path, SavedEncoder, problem="cannot be read")
    if saved.kind not in SAVED_KINDS:
        hint = f"{path}: it is one of {', '.join(SAVED_KINDS)}"
        raise UnknownName("kind of saved encoder", saved.kind, SAVED_KINDS, hint=hint)
    for key in saved.params:
        if key in USER_PARAMETERS:
            raise EncoderError(
                f"{path}: the params say '{key}', which is not for a checkpoint to say; remove it"
            )
    return saved


def _find_sts_prompt(folder: Path) -> str:
    """Return the name of the first prompt for STS in a checkpoint's files, if it is no default.

    It is empty if no prompt with a text has one of the names ``_STS_PROMPTS``, or if the first one
    that has such a name has the same text as the default prompt.
    """
    prompts = _read_library_config(folder).prompts or {}
    for name, text in prompts.items():
        if text and name.casefold() in _STS_PROMPTS:
            return "" if find_prompt_text(folder, prompt_name=None) == text else name
    return ""
