"""How a checkpoint is run: by ``stsbench.json``, by the JSON files of sentence-transformers, by the documentation of its family.

Most checkpoints of papers are bare transformers. Their documentation names the pooling and the prompt, the files do not: the mean of
unsupervised SimCSE, say, gives numbers that look right and are nobody's.
"""

from __future__ import annotations

import json
import os
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
from stsbench.encoders.allowed import MODULES, OWN_CONFIGS
from stsbench.encoders.checkpoint import (
    cached_digest,
    check_module,
    check_shards,
    decode_file,
    may_be_read,
    read_json,
    read_optional_json,
    refuse_adapter,
)
from stsbench.encoders.transformer.pooling import POOLINGS
from stsbench.encoders.words.model2vec import is_model2vec

FILE = "stsbench.json"
KINDS = (
    "transformer",
    "sentence_transformer",
    "infersent",
    "skip_thoughts",
    "quick_thoughts",
    "fastsent",
)
"""What a folder may say it holds: the kinds that are written here, none of which names code or another encoder."""
OUTSIDE = ("model", "package", "revision", "subfolder", "name", "catalogue", "device", "vectors")
"""What the user says who runs a checkpoint: where it lies, what it is called, what it runs on."""


class SavedEncoder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The kind of encoder that a folder holds, and the parameters it is run with beside the folder."""

    kind: str
    params: dict[str, Any] = {}


def write_saved(folder: Path, kind: str, params: Mapping[str, Any]) -> None:
    """Say how the encoder in a folder is to be run."""
    text = json.dumps({"kind": kind, "params": dict(params)}, indent=1, sort_keys=True)
    write_atomically(folder / FILE, f"{text}\n".encode())


CONFIG = "config_sentence_transformers.json"
_POOLINGS = {
    kind.library: name for name, kind in POOLINGS.items() if kind.library and not kind.through_head
}
"""The library's names to ours; its ``cls`` never goes through the model's head."""
_OLD_POOLINGS = {
    f"pooling_mode_{old}": re.sub("_tokens?$", "", old)
    for old in (
        "cls_token",
        "max_tokens",
        "mean_tokens",
        "mean_sqrt_len_tokens",
        "weightedmean_tokens",
        "lasttoken",
    )
}
_PLAIN = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""What a transformer's configuration may say beside its length; what is empty or false says nothing."""
_FOR_STS = {
    "sts",
    "similarity",
    "sentence-similarity",
    "semantic similarity",
    "text-matching",
    "semantic-similarity",
}
"""What checkpoints call the prompt for STS, whatever the case."""
_LIBRARY = re.compile(r"sentence_transformers\.(\w+\.)*(models|modules)(\.\w+)+")
"""The addresses of the library's modules, old and new."""
_TORCH = re.compile(r"torch\.nn\.[\w.]*")
LONGEST = 200
"""Signs of a module's path: more are no folder's name."""


class _Config(msgspec.Struct, frozen=True):
    model_type: str = "SentenceTransformer"
    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    truncate_dim: Annotated[int, msgspec.Meta(ge=1)] | None = None
    similarity_fn_name: str | None = None


class CheckpointModule(msgspec.Struct, frozen=True, rename={"kind": "type"}):
    """One step of a checkpoint: its class and its folder in the checkpoint's."""

    kind: str
    path: str


def read_modules(folder: Path) -> list[CheckpointModule]:
    """Which modules a checkpoint is made of, also in a router; raises EncoderError where one asks for other code."""
    kind = _config(folder).model_type
    if kind != "SentenceTransformer":
        raise EncoderError(f"{folder}: is a {kind}, which does not embed sentences by itself")
    return [part for module in _modules(folder) for part in _parts(folder, module)]


def class_addresses(folder: Path, module: CheckpointModule) -> list[str]:
    """List the addresses of the classes that a module names: its own, and that of its tokenizer of words."""
    if not module.kind.endswith(".WordEmbeddings"):
        return [module.kind]
    config = read_optional_json(folder / module.path / "wordembedding_config.json")
    return [module.kind, str(config.get("tokenizer_class"))]


def _parts(folder: Path, module: CheckpointModule) -> Iterator[CheckpointModule]:
    """A module and those inside it; raises EncoderError where one asks for code that is not the library's or torch's."""
    home, kind = folder / module.path, module.kind.rpartition(".")[2]
    for address in class_addresses(folder, module):
        name = address.rpartition(".")[2]
        if not _LIBRARY.fullmatch(address) or name not in MODULES:
            what = f"asks for code outside sentence-transformers' modules ('{address}'), which is never run"
            raise EncoderError(f"{folder}: {what}; write an encoder class of your own for it")
        check_module(home, name)
    yield module
    refuse_adapter(home)
    if kind == "Dense":
        activation = str(
            read_optional_json(home / "config.json").get("activation_function", "torch.nn.")
        )
        if not _TORCH.fullmatch(activation):
            # The library would take tanh in its place, and say so in a log only.
            raise EncoderError(f"{home}: activation '{activation}' is not torch's; it is never run")
    elif kind in ("Router", "Asym"):
        types = {
            **read_optional_json(home / "config.json"),
            **read_optional_json(home / "router_config.json"),
        }.get("types")
        if not isinstance(types, dict):
            raise EncoderError(f"{home}: its configuration has no table 'types' of modules")
        for name, inner in types.items():
            place = PurePosixPath(module.path, _inside(home, name)).as_posix()
            yield from _parts(folder, CheckpointModule(str(inner), place))


def _modules(folder: Path) -> list[CheckpointModule]:
    path = folder / "modules.json"
    if not path.is_file():
        raise EncoderError(
            f"{folder}: no modules.json; a plain checkpoint is for the encoder kind 'transformer'"
        )
    if not (
        modules := decode_file(
            path, list[CheckpointModule], "is not a list of modules with 'type' and 'path'"
        )
    ):
        raise EncoderError(f"{path}: lists no modules")
    for module in modules:
        _inside(path, module.path)
    return modules


def _inside(where: Path, path: str) -> str:
    """The path of a module, refused where it may lead out of the checkpoint or be no path at all."""
    # Parts by Windows' rules are parts by any: both slashes, drives, roots.
    place = PureWindowsPath(path)
    if place.anchor or ".." in place.parts or len(path) > LONGEST or not path.isprintable():
        raise EncoderError(f"{where}: {format_repr(path)} is no folder inside the checkpoint")
    return path


def _config(folder: Path) -> _Config:
    path = folder / CONFIG
    return decode_file(path, _Config, "cannot be used") if path.is_file() else _Config()


def similarity_notes(folder: Path) -> list[str]:
    """A note for results where a checkpoint's files name another similarity than cosine, by which STS is scored here."""
    named = _config(folder).similarity_fn_name or "cosine"
    return (
        [f"its files compare embeddings by {named}; here all are compared by cosine"]
        if named != "cosine"
        else []
    )


def named_prompt(folder: Path, prompt_name: str | None, text: str = "") -> str:
    """The text of a checkpoint's prompt: the default for None, none for ``""``, or the ``text`` that is given instead.

    Raises UnknownName: it has no such prompt. CardError: both are given.
    """
    if text and prompt_name:
        raise CardError("give 'prompt' or 'prompt_name', not both")
    if text or prompt_name == "":
        return text
    config = _config(folder)
    prompts, wanted = config.prompts or {}, prompt_name or config.default_prompt_name
    if wanted and wanted not in prompts:
        raise UnknownName(
            f"prompt of {folder}", wanted, prompts, hint=f"it has {', '.join(prompts) or 'none'}"
        )
    return (prompts[wanted] or "") if wanted else ""


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of each file that the library may read, by its path: those at ``modules.json`` and where it leads."""
    found = {path for path in folder.glob("[!.]*") if path.is_file()}
    for module in read_modules(folder):
        if (home := folder / module.path) != folder:
            found.update(_files(home))
    for path in [path for path in found if path.name.endswith(".index.json")]:
        shards = read_json(path).get("weight_map")
        found.update(
            path.parent / name
            for name in check_shards(path, shards if isinstance(shards, dict) else {})
        )

    def is_read(path: Path) -> bool:
        # Of weights in both formats only the safetensors are read.
        torch_weights = path.match("pytorch_model*.bin") and not any(
            path.parent.glob("model*.safetensors")
        )
        return torch_weights or path.suffix == ".safetensors" or may_be_read(path)

    read = {
        path.relative_to(folder).as_posix(): path
        for path in found
        if path.is_file() and is_read(path)
    }
    return {name: cached_digest(path) for name, path in sorted(read.items())}


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder; what a link leads to is below it too, each folder once."""
    seen = {os.path.realpath(folder)}
    for place, folders, names in os.walk(folder, followlinks=True):
        new = {name: os.path.realpath(Path(place, name)) for name in sorted(folders)}
        folders[:] = [name for name, real in new.items() if real not in seen]
        seen.update(new.values())
        yield from (Path(place, name) for name in names)


def plain_transformer_params(folder: Path) -> dict[str, Any] | None:
    """Return how ``TransformerEncoder`` runs a checkpoint as the library does. Raises EncoderError: a file is broken.

    None where there is more than a transformer, a pooling that we know and a normalisation, or an option is set.
    """
    if not (folder / "modules.json").is_file():
        return None
    modules = _modules(folder)
    first = folder / modules[0].path
    kinds = [
        m.kind.rpartition(".")[2] if m.kind.startswith("sentence_transformers.") else ""
        for m in modules
    ]
    known = kinds in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
    if not known or (first / "adapter_config.json").is_file():
        return None
    config, prompt = _config(folder), named_prompt(folder, None)
    pooling = _plain_pooling(
        read_optional_json(folder / modules[1].path / "config.json"), prompted=bool(prompt)
    )
    last = read_optional_json(folder / modules[-1].path / "config.json")
    elsewhere = last.get("module_output_name", "sentence_embedding") != "sentence_embedding"
    length = _plain_length(first)
    if (
        config.model_type != "SentenceTransformer"
        or config.truncate_dim
        or not pooling
        or elsewhere
        or length is None
    ):
        return None
    left = read_optional_json(first / "tokenizer_config.json").get("padding_side") == "left"
    params = {
        "pooling": pooling,
        "normalise": len(modules) == 3,
        "max_length": length or None,
        "prompt": prompt,
    }
    params |= {"padding_side": "left" if left else None, "subfolder": modules[0].path}
    return {key: value for key, value in params.items() if value not in (None, "")}


def _plain_pooling(config: Mapping[str, Any], *, prompted: bool) -> str | None:
    known = {
        "embedding_dimension",
        "word_embedding_dimension",
        "pooling_mode",
        "include_prompt",
        *_OLD_POOLINGS,
    }
    if not known >= set(config) or (prompted and not config.get("include_prompt", True)):
        return None
    modes = (
        config.get("pooling_mode")
        or [name for key, name in _OLD_POOLINGS.items() if config.get(key)]
        or "mean"
    )
    modes = [modes] if isinstance(modes, str) else modes
    return _POOLINGS.get(str(modes[0])) if isinstance(modes, list) and len(modes) == 1 else None


def _plain_length(folder: Path) -> int | None:
    """The longest input that a transformer's files set, 0 where they set none, None where we cannot run it."""
    own = next((read_json(folder / name) for name in OWN_CONFIGS if (folder / name).is_file()), {})
    length = own.pop("max_seq_length", None) or 0
    config = read_optional_json(folder / "config.json")
    kind, positions = (
        str(config.get("model_type", "")),
        config.get("max_position_embeddings", length),
    )
    architectures = config.get("architectures") or []
    odd = (
        not isinstance(length, int)
        or not isinstance(positions, int)
        or not isinstance(architectures, list)
    )
    if odd or any(value and value != _PLAIN.get(key) for key, value in own.items()):
        return None
    # The library loads the encoder half of such models; AutoModel wants both.
    halved = config.get("is_encoder_decoder") or any(
        str(a).endswith("EncoderModel") for a in architectures
    )
    if not kind or halved or "t5" in kind or {"text_config", "vision_config"} & set(config):
        return None
    # More than the model has positions: there the library fails, and we cut at what there is.
    return 0 if length > positions else int(length)


UNDOCUMENTED = ModelFamily(ids=["*"], pooling="mean", source="")
"""The family of all checkpoints whose documentation is not known here."""


def find_family(model: str, catalogue: Catalogue) -> ModelFamily:
    """Return the family of a Hub id; a family of a user's cards counts before ours."""
    for family in reversed(catalogue.families().values()):
        if any(fnmatchcase(model.casefold(), pattern.casefold()) for pattern in family.ids):
            return family
    return UNDOCUMENTED


class Description(NamedTuple):
    """A kind of encoder, its parameters beside ``model``, and which files say so."""

    kind: str
    params: dict[str, Any]
    is_saved: bool = False
    """Whether ``stsbench.json`` says all."""
    has_modules: bool = True
    """Whether sentence-transformers' files do; without either, a bare transformer names no pooling."""
    for_sts: str = ""
    """The name of a prompt for STS that the files have and that is not their default; empty where there is none."""
    family: ModelFamily = UNDOCUMENTED

    def assumed(self, given: Mapping[str, Any]) -> list[str]:
        """Notes for results: what was taken for granted, as neither the files nor the user, by ``given``, say it."""
        family, prompted = self.family, {"prompt", "prompt_name", "prompt_template"} & {*given}
        if self.for_sts and not prompted:
            prompt = f"run with the default prompt of its files; they have one for STS: --set prompt_name={self.for_sts}"
            return [prompt]
        if self.has_modules:
            if not family.prompt or prompted - {"prompt_template"}:
                return []
            what = (
                f"its documentation puts '{family.prompt}' before every sentence ({family.source})"
            )
            return [f"run as its files say; {what}: --set 'prompt=\"{family.prompt}\"'"]
        taken = {
            key: getattr(family, key)
            for key in ("pooling", "normalise", "prompt")
            if key not in given
        }
        if not {"pooling", "prompt"} & {*taken} or "prompt_template" in given:
            return []
        words = {"": "none", True: "yes", False: "no"}
        values = ", ".join(f"{key} {words.get(value, value)}" for key, value in taken.items())
        why = (
            f"from the documentation of its family ({family.source})"
            if family.source
            else "assumed"
        )
        return [f"no card and no sentence-transformers files say how to run it; {why}: {values}"]


def describe(folder: Path, catalogue: Catalogue, model: str = "") -> Description:
    """Return how a checkpoint's files have it run; where they do not say, how the ``model`` on the Hub is documented.

    Raises EncoderError: a file is broken, or says what it must not. UnknownName: it names a kind that no folder holds.
    """
    path = folder / FILE
    if path.is_file():
        saved = decode_file(path, SavedEncoder, "cannot be read")
        if saved.kind not in KINDS:
            hint = f"{path}: it is one of {', '.join(KINDS)}"
            raise UnknownName("kind of saved encoder", saved.kind, KINDS, hint=hint)
        if outside := [key for key in saved.params if key in OUTSIDE]:
            what = f"the params say '{outside[0]}', which is not for a checkpoint to say"
            raise EncoderError(f"{path}: {what}; remove it")
        return Description(saved.kind, saved.params, is_saved=True)
    if is_model2vec(folder):
        return Description("model2vec", {})
    family = find_family(model, catalogue)
    plain = plain_transformer_params(folder)
    if not (has_modules := (folder / "modules.json").is_file()):
        plain = {"pooling": family.pooling, "normalise": family.normalise}
        plain |= {"prompt": family.prompt} if family.prompt else {}
    prompts = _config(folder).prompts or {}
    for_sts = next(
        (name for name, text in prompts.items() if text and name.casefold() in _FOR_STS), ""
    )
    if for_sts and named_prompt(folder, None) == prompts[for_sts]:
        for_sts = ""
    kind = "sentence_transformer" if plain is None else "transformer"
    return Description(kind, plain or {}, has_modules=has_modules, for_sts=for_sts, family=family)
