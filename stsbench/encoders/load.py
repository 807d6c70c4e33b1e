"""From a name, a path or an object to an encoder.

An encoder that no card describes is called by the end of its path: as short as possible, but never
by the name of a card or recipe.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import CATALOGUE, Catalogue, read_card
from stsbench.core.errors import CardError, EncoderError, Remedy, SourceError, UnknownName
from stsbench.core.names import merge_parameters, split_all_params, split_params
from stsbench.core.parameters import NAME_OR_PATH, PARAMETERS, validate_arguments
from stsbench.core.settings import check_hub
from stsbench.data.task_names import find_task_or_suite_ids
from stsbench.encoders.base import Encoder, FittableEncoder
from stsbench.encoders.build import build_encoder
from stsbench.encoders.checkpoint import locate_checkpoint
from stsbench.encoders.described import SAVED_FILE, Description, describe
from stsbench.encoders.embedding_file import FileEncoder
from stsbench.encoders.fitted import TARGET_TASK, PostProcessed
from stsbench.encoders.kinds import (
    ENCODERS,
    KINDS,
    find_cards_of_model,
    find_requirement,
    lacks_checkpoint,
)
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.named import NamedEncoder, attach_name, candidate_names, variant_name
from stsbench.encoders.runs import (
    RUN_FILE,
    TrainedRun,
    UnfinishedRun,
    list_trained_variants,
    read_trained_runs,
    read_unfinished_runs,
)
from stsbench.encoders.similarity_file import SimilarityFile

FILE_ENCODERS_BY_PREFIX: Mapping[str, type[FileEncoder | SimilarityFile]] = {
    "file:": FileEncoder,
    "similarities:": SimilarityFile,
}
"""The class of encoders whose embeddings or scores are in a file, by the beginning of the name."""
FILE_PREFIXES = tuple(FILE_ENCODERS_BY_PREFIX)


@validate_arguments(name=NAME_OR_PATH, params=PARAMETERS, catalogue=CATALOGUE)
def load_encoder(
    name: str | Path, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> Encoder:
    """Return the encoder of a name or path, which carries its name in results and its card.

    An encoder that is fitted on texts (whitening, flow) cannot embed before its method
    ``fit_texts`` has been called with some.

    Args:
        name: A trained recipe (``recipe@3`` is its seed 3), a card's id, a card file, a checkpoint
            folder, a Hub id, ``file:EMBEDDINGS`` for a file of embeddings, ``similarities:FILE``
            for scores of pairs, ``package.module:Name`` of your own class, or an entry point of the
            group ``stsbench.encoders``.
        params: Values that replace the card's parameters, by name.
        catalogue: The cards to search; None for the project's.

    Raises:
        UnknownName: The name is none of these; the nearest card is suggested.
        EncoderError: The checkpoint cannot be used.
        SourceError: The checkpoint is not available.
    """
    return attach_name(load_named(str(name), params=params, catalogue=catalogue))


def load_run(run: TrainedRun, catalogue: Catalogue) -> Encoder:
    """Return the encoder of a finished run, under the name of its recipe."""
    return attach_name(_load_from_run(run, run.recipe, params={}, catalogue=catalogue))


def make_processor(
    method: type[Any], encoder_type: Callable[..., FittableEncoder] = PostProcessed
) -> Callable[..., FittableEncoder]:
    """Return a function that makes encoders whose embeddings are those of another, transformed.

    The other encoder is the base. The transform, such as whitening, is fitted on texts. The
    function has the parameters of the transform and these: ``base``, a card or a checkpoint;
    ``base_params``, which replace parameters of its card; ``model``, the checkpoint of the base if
    its card names none; and ``fit``, the name of the texts, by default the sentences of the task
    that is scored. It raises CardError if the base is itself fitted on texts.

    Args:
        method: The class of the transform, an :class:`EmbeddingTransform`.
        encoder_type: Makes the encoder; called with the base, the transform, ``name`` and ``fit``.
    """

    def make(
        base: str,
        *,
        name: str = "",
        fit: str = TARGET_TASK,
        base_params: Mapping[str, Any] | None = None,
        model: str | None = None,
        catalogue: Catalogue | None = None,
        **params: Any,  # noqa: ANN401 - the method's
    ) -> FittableEncoder:
        """Load ``base``; return an ``encoder_type`` that transforms its embeddings."""
        transform = method(**params)
        catalogue = catalogue or Catalogue()
        refusal = CardError(f"base '{base}' is itself fitted on texts; name an encoder that is not")
        # Checked before the base is made: a card that names itself as its base would have no end.
        card_path = _find_card(base, catalogue)  # None if it names no card
        if card_path is not None:
            card = read_card(card_path, EncoderCard)
            if find_requirement(card.kind) == "texts":
                raise refusal
        all_base_params = dict(base_params or {})
        if model:
            all_base_params["model"] = model
        base_encoder = load_named(base, params=all_base_params, catalogue=catalogue).encoder
        if isinstance(base_encoder, FittableEncoder):
            raise refusal
        return encoder_type(base_encoder, transform, name=name or f"{base}-{method.kind}", fit=fit)

    # The parameters in a card are checked against the signature and the types of ``make``. So the
    # method's parameters replace ``**params``, the last parameter, in both.
    shared_parameters = list(inspect.signature(make).parameters.values())[:-1]
    method_parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(method).parameters.values()
    ]
    make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*shared_parameters, *method_parameters]
    )
    make.__annotations__ = get_type_hints(make) | get_type_hints(
        method.__init__, include_extras=True
    )
    return make


def _find_card(spec: str, catalogue: Catalogue) -> Path | None:
    """Return the file of the card that a name stands for; None if it stands for no card."""
    if spec.endswith(".toml"):
        return Path(spec)
    stem, _ = split_all_params(spec)
    return catalogue.paths("baselines").get(stem)


def load_named(
    spec: str, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> NamedEncoder:
    """Return the encoder of a name, together with its name in results and its card.

    Args:
        spec: The name: any that :func:`load_encoder` accepts. Values of parameters may follow it,
            as in ``minilm+pooling=max``. A recipe that was trained for several seeds stands for
            the run of the lowest seed.
        params: Values that replace the card's parameters, by name.
        catalogue: The cards to search; None for the project's.

    The errors are those of :func:`load_encoder`.
    """
    # Raises if an environment variable that the Hub's library reads has no valid value.
    check_hub()
    load = _find_loader(spec, dict(params or {}), catalogue=catalogue or Catalogue())
    return load()


def expand_recipe(spec: str, catalogue: Catalogue) -> list[str]:
    """Return one name per seed for a recipe that was trained with several seeds.

    Args:
        spec: The name of any encoder or recipe, perhaps with parameters: ``simcse+pooling=max``.
        catalogue: The cards to search.

    Returns:
        For example ``simcse@0+pooling=max`` and ``simcse@1+pooling=max``; for any other name, and
        for one with a seed, a list of this name alone.

    Raises:
        EncoderError: A run of the recipe is not finished, or its record is broken.
    """
    recipe = _find_trained_runs(spec, catalogue)
    if len(recipe.runs) < 2:
        return [spec]
    # `recipe.name` is the beginning of the name; behind it are the parameters with their "+".
    suffix = spec[len(recipe.name) :]
    return [f"{recipe.name}@{run.seed}{suffix}" for run in recipe.runs]


def check_loadable(spec: str, catalogue: Catalogue) -> None:
    """Raise an error if a name stands for no encoder, without loading one.

    Args:
        spec: The name. Values of parameters may follow it, as in ``minilm+pooling=max``.
        catalogue: The cards to search.

    Raises:
        UnknownName: The name stands for nothing.
        EncoderError: The name is that of a recipe which has not been trained.
    """
    _find_loader(spec, params={}, catalogue=catalogue)


def _without_seed_and_params(spec: str) -> str:
    """Return a name without its seed and parameters."""
    return re.split(r"[+@]", spec, maxsplit=1)[0]


class _RecipeRuns(NamedTuple):
    """The finished runs that a name stands for, none if it is not that of a trained recipe."""

    name: str
    """The name that it was trained by, as ``simcse``, ``simcse@3`` or ``simcse+steps=30``."""
    params: dict[str, Any]
    """The parameters behind that name, which replace those of the trained encoder."""
    runs: list[TrainedRun]


def _find_trained_runs(spec: str, catalogue: Catalogue) -> _RecipeRuns:
    """Return the finished training runs that a name stands for, sorted by seed.

    Args:
        spec: The name of a recipe, perhaps with a seed and values of parameters, as in
            ``simcse@3+pooling=max``; or any other name.
        catalogue: The cards and recipes.

    Returns:
        The name that the recipe was trained by, the remaining parameters, and its runs: none if
        the name is not that of a trained recipe.

    Raises:
        EncoderError: The recipe has a run that was begun, but none that is finished; or the record
            of a run is broken.
    """
    stem = _without_seed_and_params(spec)
    # The files of the encoders' cards, by the cards' names; "trainers" are the recipes.
    cards = catalogue.paths("baselines")
    # Runs are found by the name of a recipe, also of one without a card. They are not found by the
    # name of an encoder's card or of an installed kind, by a path, a Hub id or an address in code.
    is_other_name = stem in cards or _is_location(stem) or stem in _entry_points()
    if is_other_name and stem not in catalogue.paths("trainers"):
        return _RecipeRuns(spec, params={}, runs=[])
    # A recipe may have been trained with other values of parameters, which are then part of the
    # name of its runs. So the longest name is tried first. A name with a seed has one run at most.
    for name, params in split_params(spec):
        runs = read_trained_runs(name)
        if runs:
            return _RecipeRuns(name, params, runs)
        unfinished = read_unfinished_runs(name)
        if unfinished:
            hint = "with another folder of runs in STSBENCH_RUNS, its card's checkpoint is used"
            raise EncoderError(str(unfinished[0]), hint=hint if stem in cards else "")
    return _RecipeRuns(spec, params={}, runs=[])


def _is_location(stem: str) -> bool:
    """Return whether a name is that of a file, folder, Hub id or address in code."""
    return stem.endswith(".toml") or "/" in stem or ":" in stem


def _entry_points() -> list[str]:
    """Return the names of the kinds that installed packages add."""
    return ENCODERS.names()[len(ENCODERS.table) :]


def _load_from_run(
    run: TrainedRun, name: str, params: dict[str, Any], catalogue: Catalogue
) -> NamedEncoder:
    """Return the encoder of a training run, under the name of its recipe without the seed.

    So the results of all seeds have the same name; the seed is recorded in ``run``.

    Args:
        run: The finished run.
        name: The requested name, ``recipe`` or ``recipe@seed``.
        params: Parameters that replace those in the checkpoint's files, by name.
        catalogue: The cards.
    """
    encoder_of_folder = _load_from_checkpoint(str(run.folder), params, catalogue)
    name_without_seed = name.removesuffix(f"@{run.seed}")
    # From a folder an encoder may have several names, and its record of training is a mere claim.
    # Here its name is certain, and the record is trusted.
    return replace(
        encoder_of_folder,
        name=variant_name(name_without_seed, params),
        candidate_names=(),
        run=run,
        claimed_run=None,
        card_digest=run.digest,
    )


def _find_loader(
    spec: str, params: dict[str, Any], catalogue: Catalogue
) -> Callable[[], NamedEncoder]:
    """Return the function that loads the encoder of a name.

    These meanings of a name are tried, in this order: a trained recipe; the file of a card; the id
    of a card; a folder; a file of embeddings or scores; one of these with parameters behind it, as
    in ``minilm+pooling=max``; the address of a class, or an entry point; a Hub id.

    Args:
        spec: The name.
        params: Parameters that replace those of the card, besides those in the name.
        catalogue: The cards to search.

    Raises:
        UnknownName: The name stands for nothing.
        EncoderError: It is the name of an untrained recipe, of a missing file, or of a task.
        CardError: A parameter is both in the name and in ``params``.
    """
    recipe = _find_trained_runs(spec, catalogue)
    if recipe.runs:
        recipe_params = merge_parameters(spec, recipe.params, params)
        return partial(_load_from_run, recipe.runs[0], recipe.name, recipe_params, catalogue)
    cards = catalogue.paths("baselines")  # the files of the encoders' cards, by name
    if spec.endswith(".toml"):
        path = Path(spec)
        name = path.stem
        is_card_of_catalogue = cards.get(name, Path()).resolve() == path.resolve()
        if not is_card_of_catalogue:
            # The shortest end of the path that is the name of no card.
            name = candidate_names(path.with_suffix(""), catalogue)[0]
        return partial(_load_from_card, name, path, params, catalogue)
    if spec in cards:
        return partial(_load_from_card, spec, cards[spec], params, catalogue)
    if _is_folder(spec):
        return partial(_load_from_checkpoint, spec, params, catalogue)
    is_file = spec.startswith(FILE_PREFIXES)
    if is_file and Path(spec.partition(":")[2]).is_file():
        return partial(_load_from_file, spec, params, catalogue)
    for stem, stem_params in split_params(spec):  # each way to split it, the longest stem first
        # Entry points are looked up last, because that reads a file of every installed package.
        is_recognised = stem in cards or _is_location(stem) or _is_folder(stem)
        if stem_params and (is_recognised or stem in _entry_points()):
            return _find_loader(stem, merge_parameters(spec, stem_params, params), catalogue)
    if is_file:
        raise EncoderError(f"there is no file '{spec.partition(':')[2]}'")
    if ":" in spec or spec in _entry_points():
        return partial(_load_from_address, spec, params, catalogue)
    if "/" in spec:
        return partial(_load_from_hub, spec, params, catalogue)
    raise _unknown_encoder_error(spec, catalogue)


def _unknown_encoder_error(spec: str, catalogue: Catalogue) -> EncoderError | UnknownName:
    """Return the error for a name that stands for no encoder, with the likeliest remedy.

    The name may be that of a recipe that has not been trained, of a task or suite, or of a file.

    Args:
        spec: The name.
        catalogue: The cards of encoders, recipes, tasks and suites.
    """
    if _without_seed_and_params(spec) in catalogue.paths("trainers"):
        return _untrained_recipe_error(spec)
    if find_task_or_suite_ids(spec, catalogue):
        return EncoderError(
            f"'{spec}' is a task or a suite, not an encoder",
            hint=f"use it as a task: `tasks={spec}`",
        )
    # Path would raise for a name that is too long for a file.
    if os.path.isfile(spec):  # noqa: PTH113
        return EncoderError(
            f"'{spec}' is a file, not an encoder", hint=f"if it holds embeddings, give file:{spec}"
        )
    return UnknownName(
        "encoder",
        spec,
        [*catalogue.paths("baselines"), *_entry_points()],
        hint="a Hub id has a slash, a folder must exist, a parameter is as in minilm+pooling=cls",
        remedy=Remedy("list", {"kind": "encoders"}),
    )


def _untrained_recipe_error(spec: str) -> EncoderError:
    """Return the error for a recipe that was not trained, with the command that trains it.

    Args:
        spec: The recipe's name, perhaps with a seed and parameters, as in ``simcse@3+steps=30``.
    """
    # The names of its runs with other values of its parameters.
    trained_variants = [
        f"'{name}'" for name in list_trained_variants(_without_seed_and_params(spec))
    ]
    hint = ""
    if trained_variants:
        more = f" and {len(trained_variants) - 3} more" if len(trained_variants) > 3 else ""
        hint = f"with replaced values it has been: use {' or '.join(trained_variants[:3])}{more}"
    stem, params = split_all_params(spec)
    recipe, _, seed = stem.partition("@")
    arguments: dict[str, Any] = {"recipe": recipe}
    if seed:
        arguments["seed"] = int(seed)
    if params:
        arguments["params"] = params
    # An action and its arguments, which the command line prints as a command.
    remedy = Remedy("train", arguments)
    return EncoderError(f"recipe '{spec}' has not been trained here", hint=hint, remedy=remedy)


def _load_from_hub(spec: str, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder of a model on the Hub.

    If one card describes the model, the encoder is that of the card; if several do, or none, it is
    run as its own files say. The cards are named in its ``notice``, a message for the user.

    Args:
        spec: The id of the model on the Hub.
        params: Parameters that replace those of the card or the files, by name.
        catalogue: The cards.
    """
    cards = find_cards_of_model(spec, catalogue)
    if len(cards) == 1:
        path = catalogue.paths("baselines")[cards[0]]
        named_encoder = _load_from_card(cards[0], path, params, catalogue)
        notice = f"{spec} is the checkpoint of the card '{cards[0]}': evaluated as it says"
        return replace(named_encoder, notice=notice)
    named_encoder = _load_from_checkpoint(spec, params, catalogue)
    if not cards:
        return named_encoder
    notice = f"{spec} is run as its files say; these cards describe it too: {', '.join(cards)}"
    return replace(named_encoder, notice=notice)


def _is_folder(spec: str) -> bool:
    # Path.is_dir would raise an error for a name that is too long for a file.
    return os.path.isdir(spec)  # noqa: PTH112


def _load_from_card(
    name: str, path: Path, params: dict[str, Any], catalogue: Catalogue
) -> NamedEncoder:
    """Return the encoder of a card, together with the card and its hash.

    Its name in results has those of the user's parameters that may change an embedding, except for
    a seed, which results record, and the folder of files that the card names by their hashes.

    Args:
        name: The id of the card.
        path: The file of the card.
        params: The user's parameters, which replace the card's, by name.
        catalogue: The cards, in which an encoder that the card is based on is found.

    Raises:
        CardError: A parameter is not valid.
        SourceError: Neither the card nor the user names a checkpoint.
    """
    card = read_card(path, EncoderCard)
    if lacks_checkpoint(card, params):
        raise SourceError(
            f"the card of '{name}' names no checkpoint to fetch",
            hint=card.note or "pass `params=model=FOLDER`",
        )
    factory = ENCODERS.load(card.kind)  # the class or function that makes its encoders
    params_in_name = dict(params)
    if _names_checkpoint_by_hashes(card, catalogue):
        # Such files are the same in any folder, so the folder is no part of the name.
        params_in_name.pop("model", None)
    # The parameters of this kind that decide where it runs, and change no embedding.
    runtime_parameters: Sequence[str] = getattr(factory, "RUNTIME_PARAMETERS", ())
    origin = f"{path}: [params]{' and `params`' if params else ''}"
    encoder = build_encoder(
        factory,
        name=variant_name(name, params_in_name, excluded=runtime_parameters),
        params=_merge_into_card_params(card, params),
        message_prefix=origin,
        catalogue=catalogue,
        kind=card.kind,
    )
    # Results record the seed of an encoder that has one, so that all seeds have the same name.
    is_seeded = read_metadata(encoder).train_seed is not None
    excluded = (*runtime_parameters, "seed") if is_seeded else runtime_parameters
    return NamedEncoder(
        name=variant_name(name, params_in_name, excluded=excluded),
        encoder=encoder,
        card=card,
        card_digest=catalogue.encoder_digest(card),
    )


def _merge_into_card_params(card: EncoderCard, params: dict[str, Any]) -> dict[str, Any]:
    """Return a card's parameters, in which the user's parameters replace those of the same name.

    The user's checkpoint (``model``) also replaces the package that a card may name instead, and
    the card's revision, a commit of the card's checkpoint.

    Args:
        card: The card.
        params: The parameters of the user, by name.

    Raises:
        CardError: There is a revision, a commit on the Hub, for a checkpoint on this machine.
    """
    card_params: dict[str, Any] = dict(card.params)
    is_own_kind = card.kind in KINDS  # a user's may have another meaning for `revision`
    if "model" in params and "package" in card_params:
        card_params.pop("package")
        card_params.pop("subfolder", None)
    if "model" in params and is_own_kind:
        card_params.pop("revision", None)
    merged = card_params | params
    if is_own_kind:
        _check_revision(merged)
    return merged


def _names_checkpoint_by_hashes(card: EncoderCard, catalogue: Catalogue) -> bool:
    """Return whether a card has ``sha256``, the hashes of its checkpoint's files, but no ``model``.

    If the card names another encoder with a card as its base, that card is looked at instead.
    """
    params = card.params
    base = params.get("base")
    if base in catalogue.paths("baselines"):
        params = catalogue.encoder(base).params
    return bool(params.get("sha256")) and "model" not in params


def _load_from_address(spec: str, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder of a user's own class, function or object, or of an entry point."""
    encoder = build_encoder(
        ENCODERS.load(spec), name="", params=params, message_prefix=f"encoder '{spec}'", kind=spec
    )
    name = spec if catalogue.is_taken(encoder.name) else encoder.name
    return NamedEncoder(name=variant_name(name, params), encoder=encoder)


def _load_from_file(spec: str, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder whose embeddings, or scores of pairs, are in a file; it has its name.

    Args:
        spec: ``file:`` or ``similarities:``, followed by the path of the file.
        params: Its parameters by name: the file of its texts, and those of variants.
        catalogue: The cards, whose names the encoder must not take.
    """
    prefix, _, file = spec.partition(":")
    path = Path(file)
    names = [  # of the ends of the path, shortest first; without the parameter `texts`
        variant_name(stem, params, excluded=FileEncoder.RUNTIME_PARAMETERS)
        for stem in candidate_names(path, catalogue)
    ]
    encoder = build_encoder(
        FILE_ENCODERS_BY_PREFIX[f"{prefix}:"],
        name=names[0],
        params={**params, "file": str(path)},
        message_prefix=f"encoder '{spec}'",
        kind=prefix,
    )
    return NamedEncoder(name=names[0], candidate_names=names, encoder=encoder)


def _load_from_checkpoint(spec: str, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder of a checkpoint, a folder or a Hub id, run as the checkpoint's files say.

    Settings that the files do not have are assumed, and noted in its ``assumptions``.

    Args:
        spec: The folder or Hub id.
        params: Parameters that replace those in the files.
        catalogue: The cards, whose names the encoder of a folder must not take.

    Raises:
        CardError: A parameter is not valid.
        EncoderError: The folder is of a run that is not finished, or cannot be used.
    """
    is_folder = _is_folder(spec)
    # None unless the folder is that of a training run without an end.
    unfinished_run = UnfinishedRun.read(Path(spec)) if is_folder else None
    if unfinished_run is not None:
        raise EncoderError(str(unfinished_run))
    for key in ("model", "package"):
        if key in params:
            raise CardError(
                f"'{key}' would be another encoder than '{spec}'; give it as the encoder itself"
            )
    _check_revision({**params, "model": spec})  # raises for a folder with a revision
    location = {key: str(params[key]) for key in ("revision", "subfolder") if key in params}
    folder = locate_checkpoint(spec, **location).folder
    # The names that the encoder may have, the shortest first.
    stems = candidate_names(Path(spec), catalogue) if is_folder else [spec]
    names = [variant_name(stem, params) for stem in stems]
    # The kind of encoder and its parameters, from the checkpoint's files.
    description = describe(folder, catalogue, model="" if is_folder else spec)
    if description.is_saved:
        return _load_from_saved_folder(folder, description, params, names)
    described_params = dict(description.params)
    if {"prompt_name", "prompt_template"} & {*params}:
        # The user chooses another prompt than the default one of the files.
        described_params.pop("prompt", None)
    encoder = build_encoder(
        ENCODERS.load(description.kind),
        name=names[0],
        params={"model": spec, **described_params, **params},
        message_prefix=spec,
        kind=description.kind,
    )
    return NamedEncoder(
        name=names[0],
        candidate_names=names,
        encoder=encoder,
        assumptions=description.assumptions(params),
    )


def _load_from_saved_folder(
    folder: Path, description: Description, params: dict[str, Any], names: Sequence[str]
) -> NamedEncoder:
    """Return the encoder that stsbench wrote into a folder, with its record of training if any.

    Args:
        folder: The folder, perhaps of a training run.
        description: The kind of encoder and its parameters, from ``stsbench.json``.
        params: Parameters that replace those of the file, by name.
        names: The names that the encoder may have, of which it has the first.
    """
    encoder = build_encoder(
        ENCODERS.load_own(description.kind),  # no kind but ours, as the file may be anyone's
        name=names[0],
        params={"model": str(folder), **description.params, **params},
        message_prefix=f"{folder}/{SAVED_FILE}",
        kind=description.kind,
    )
    has_record = (folder / RUN_FILE).is_file()
    return NamedEncoder(
        name=names[0],
        candidate_names=names,
        encoder=encoder,
        claimed_run=TrainedRun.read(folder) if has_record else None,  # it may be false
    )


def _check_revision(params: Mapping[str, Any]) -> None:
    """Raise an error if a revision, a commit on the Hub, is set for a checkpoint on this machine.

    Args:
        params: Parameters by name: where the checkpoint is, ``model`` (a folder or Hub id) or
            ``package`` (installed), and its ``revision``; the value ``unpinned`` counts as none.

    Raises:
        CardError: There is such a revision.
    """
    location = params.get("package") or params.get("model")
    is_local = "package" in params or _is_folder(str(location))
    if is_local and params.get("revision", "unpinned") != "unpinned":
        raise CardError(
            f"'revision' names a commit on the Hub, and '{location}' is on this machine; "
            "leave 'revision' out"
        )
