"""What a sentence-transformers checkpoint is made of, read from its JSON files alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

import msgspec

from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints.checkpoint import read_json
from stsbench.encoders.transformer.pooling import POOLINGS
from stsbench.errors import EncoderError, UnknownName, one_line

_READ = {".json", ".txt", ".model", ".jinja", ".codes", ".bpe", ".safetensors"}
_OURS = {"stsbench.json", "run.json"}
"""What we write beside a checkpoint, and the library does not read."""
_NOT_READ = re.compile(r"\..*|onnx|openvino|eval|runs|checkpoint-\d+")
_POOLINGS = {kind.library: name for name, kind in POOLINGS.items() if kind.library and not kind.through_head}
"""The library's names to ours; its ``cls`` never goes through the model's head."""
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_PLAIN = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""What a transformer's configuration may say beside its length; what is empty or false says nothing."""
_OWN_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where the library looks for it, in this order."""


_FOR_STS = {"sts", "similarity", "sentence-similarity", "semantic similarity", "text-matching", "semantic-similarity"}
"""What checkpoints call the prompt for STS, whatever the case."""
_WORDS_CONFIG = "wordembedding_config.json"
_LIBRARY = re.compile(r"sentence_transformers\.(\w+\.)*(models|modules)(\.\w+)+")
"""The addresses of the library's modules, old and new."""
_TORCH = re.compile(r"torch\.nn\.[\w.]*")
LONGEST = 200
"""Signs of a module's path: more are no folder's name."""


class _Listed(msgspec.Struct):
    type: str
    path: str


_LISTED = msgspec.json.Decoder(list[_Listed])


class Module(NamedTuple):
    """One step of a checkpoint: its class and its folder in the checkpoint's."""

    kind: str
    path: str


def read_modules(folder: Path) -> list[Module]:
    """Read which modules a checkpoint is made of, all of them the library's own.

    Raises:
        EncoderError: it is no such checkpoint, or asks for other code.
    """
    kind = _optional(folder / "config_sentence_transformers.json").get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise EncoderError(f"{folder}: is a {kind}, which does not embed sentences by itself")
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(f"{folder}: is an adapter to another checkpoint; merge the two and save the result")
    modules = _modules(folder)
    for module in modules:
        _refuse_other_code(folder, module)
    return modules


def _refuse_other_code(folder: Path, module: Module) -> None:
    """Raise EncoderError where a module, or what its configuration names, is neither the library's nor torch's."""
    _refuse_other_class(folder, module.kind)
    home = folder / module.path
    facts = {name: _optional(home / name) for name in ("config.json", "router_config.json", _WORDS_CONFIG)}
    if module.kind.endswith(".Dense"):
        activation = str(facts["config.json"].get("activation_function", "torch.nn."))
        if not _TORCH.fullmatch(activation):
            # The library would take tanh in its place, and say so in a log only.
            raise EncoderError(f"{home}: activation '{activation}' is not torch's; it is never run")
    if module.kind.endswith(".WordEmbeddings"):
        _refuse_other_class(folder, facts[_WORDS_CONFIG].get("tokenizer_class"))
    if module.kind.endswith((".Router", ".Asym")):
        types = facts["router_config.json"].get("types", facts["config.json"].get("types"))
        if not isinstance(types, dict):
            raise EncoderError(f"{home}: its configuration has no table 'types' of modules")
        for name, kind in types.items():
            _refuse_other_code(folder, Module(str(kind), _inside(home, f"{module.path}/{name}")))


def _refuse_other_class(folder: Path, kind: object) -> None:
    if not _LIBRARY.fullmatch(str(kind)):
        raise EncoderError(
            f"{folder}: asks for code outside sentence-transformers' modules ('{kind}'), which is never run; "
            "write an encoder class of your own for it"
        )


def _modules(folder: Path) -> list[Module]:
    path = folder / "modules.json"
    if not path.is_file():
        raise EncoderError(f"{folder}: no modules.json; a plain checkpoint is for the encoder kind 'transformer'")
    try:
        modules = [Module(one.type, one.path) for one in _LISTED.decode(path.read_bytes())]
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EncoderError(f"{path}: is not a list of modules with 'type' and 'path': {one_line(error)}") from error
    if not modules:
        raise EncoderError(f"{path}: lists no modules")
    return [module._replace(path=_inside(path, module.path)) for module in modules]


def _inside(where: Path, path: str) -> str:
    """The path of a module, refused where it may lead out of the checkpoint or be no path at all."""
    # Parts by Windows' rules are parts by any: both slashes, drives, roots.
    place = PureWindowsPath(path)
    if place.anchor or ".." in place.parts:
        raise EncoderError(f"{where}: '{path}' leads outside the checkpoint")
    if len(path) > LONGEST or not path.isprintable():
        raise EncoderError(f"{where}: {path[:40]!r} is not a name for a module's folder")
    return path


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _prompts(folder: Path) -> tuple[dict[str, str | None], str | None]:
    """The prompts of a checkpoint by name, and the name of its default one."""
    path = folder / "config_sentence_transformers.json"
    config = _optional(path)
    try:
        prompts = msgspec.convert(config.get("prompts") or {}, dict[str, str | None])
        default = msgspec.convert(config.get("default_prompt_name"), str | None)
    except msgspec.ValidationError as error:
        raise EncoderError(f"{path}: prompts are texts by name: {one_line(error)}") from error
    return prompts, default


def prompts_for_sts(folder: Path) -> list[str]:
    """The names of a checkpoint's prompts that are for STS."""
    return [name for name in _prompts(folder)[0] if name.casefold() in _FOR_STS]


def named_prompt(folder: Path, prompt_name: str | None) -> str:
    """The text of a checkpoint's prompt; of its default one for None, empty for ``""``.

    Raises:
        UnknownName: the checkpoint has no prompt of this name; offers the nearest.
    """
    prompts, default = _prompts(folder)
    wanted = default if prompt_name is None else prompt_name
    if not wanted:
        return ""
    if wanted not in prompts:
        raise UnknownName(f"prompt of {folder}", wanted, prompts, hint=f"it has {', '.join(prompts) or 'none'}")
    return prompts[wanted] or ""


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of each file that the library may read, by its path in the folder."""
    read = {}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        # Of weights in both formats only the safetensors are read.
        torch_weights = path.match("pytorch_model*.bin") and not any(path.parent.glob("model*.safetensors"))
        if (path.suffix in _READ or torch_weights) and path.is_file() and place.as_posix() not in _OURS:
            if not any(_NOT_READ.fullmatch(part) for part in place.parts[:-1]):
                read[place.as_posix()] = file_digest(path)
    return read


def plain_transformer_params(folder: Path) -> dict[str, Any] | None:
    """Return how ``TransformerEncoder`` runs a checkpoint as the library does, None where it cannot.

    It can where the modules are a transformer, one pooling that we know and perhaps a
    normalisation, with nothing set that only the library has.

    Raises:
        EncoderError: a JSON file is broken.
    """
    if not (folder / "modules.json").is_file() or (folder / "adapter_config.json").is_file():
        return None
    modules = _modules(folder)
    kinds = [m.kind.rpartition(".")[2] for m in modules if m.kind.startswith("sentence_transformers.")]
    if len(kinds) != len(modules) or kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return None
    model = _optional(folder / "config_sentence_transformers.json").get("model_type", "SentenceTransformer")
    prompt = named_prompt(folder, None)
    pooling = _plain_pooling(_optional(folder / modules[1].path / "config.json"), prompted=bool(prompt))
    last = _optional(folder / modules[-1].path / "config.json")
    elsewhere = last.get("module_output_name", "sentence_embedding") != "sentence_embedding"
    length = _plain_transformer(folder / modules[0].path)
    if model != "SentenceTransformer" or pooling is None or elsewhere or length is None:
        return None
    side = _optional(folder / modules[0].path / "tokenizer_config.json").get("padding_side")
    params = {
        "pooling": pooling,
        "normalise": len(modules) == 3,
        "max_length": length or None,
        "prompt": prompt,
        "padding_side": side if side == "left" else None,
        "subfolder": modules[0].path,
    }
    return {key: value for key, value in params.items() if value not in (None, "")}


def _plain_pooling(config: Mapping[str, Any], *, prompted: bool) -> str | None:
    """Our name of the one pooling of a configuration, old or new."""
    known = {"embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt", *_OLD_POOLINGS}
    if not known >= set(config) or (prompted and not config.get("include_prompt", True)):
        return None
    modes = config.get("pooling_mode") or [name for key, name in _OLD_POOLINGS.items() if config.get(key)] or "mean"
    if isinstance(modes, list):
        modes = modes[0] if len(modes) == 1 else ""
    return _POOLINGS.get(modes) if isinstance(modes, str) else None


def _plain_transformer(folder: Path) -> int | None:
    """The longest input that a transformer's files set, 0 where they set none, None where we cannot run it."""
    own = next((read_json(folder / name) for name in _OWN_CONFIGS if (folder / name).is_file()), {})
    length = own.pop("max_seq_length", None) or 0
    if not isinstance(length, int) or any(value and value != _PLAIN.get(key) for key, value in own.items()):
        return None
    config = _optional(folder / "config.json")
    kind = str(config.get("model_type", ""))
    architectures, positions = config.get("architectures") or [], config.get("max_position_embeddings", length)
    if not isinstance(architectures, list) or not isinstance(positions, int):
        return None
    # The library loads the encoder half of such models; AutoModel wants both.
    halved = config.get("is_encoder_decoder") or any(str(a).endswith("EncoderModel") for a in architectures)
    if not kind or halved or "t5" in kind or {"text_config", "vision_config"} & set(config):
        return None
    # More than the model has positions: there the library fails, and we cut at what there is.
    return 0 if length > positions else length
