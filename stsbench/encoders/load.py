"""From a name, a path or an object to an encoder.

An encoder that no card describes is called by the end of its path: as short as possible, but never
by the name of a card or recipe.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints
from weakref import WeakValueDictionary

from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue, read_card
from stsbench.core.errors import CardError, EncoderError, Remedy, SourceError, UnknownName
from stsbench.core.names import merge_parameters, split_params
from stsbench.core.parameters import NAME_OR_PATH, PARAMETERS, call_with_params, validate_arguments
from stsbench.core.provenance import record_factory
from stsbench.core.settings import check_hub, find_key_problem
from stsbench.encoders.base import Encoder, FittableEncoder
from stsbench.encoders.checkpoint import locate_checkpoint
from stsbench.encoders.described import SAVED_FILE, describe
from stsbench.encoders.fitted import (
    CALIBRATION,
    TARGET_TASK,
    VARIANT_KEYS,
    PostProcessed,
    Variant,
    VariantEncoder,
)
from stsbench.encoders.kinds import ENCODERS, KINDS, find_cards_of_model, requirement
from stsbench.encoders.metadata import (
    can_encode,
    check_encoder,
    read_metadata,
)
from stsbench.encoders.named import NamedEncoder, attach_name, variant_name
from stsbench.encoders.runs import (
    RUN_FILE,
    TrainedRun,
    UnfinishedRun,
    list_trained_variants,
    read_trained_runs,
    read_unfinished_runs,
)


def candidate_names(path: Path, catalogue: Catalogue) -> list[str]:
    """List the names that a folder may have: the ends of its path, shortest first.

    Args:
        path: The folder of a checkpoint.
        catalogue: The cards, whose names are taken.

    Returns:
        For example ``final`` and ``runA/final``, without the names of cards and recipes; a name
        that says it is a folder's if no end is free.
    """
    free_names = [end for end in _path_ends(path.resolve()) if not catalogue.is_taken(end)]
    return free_names or [f"{path.name} (folder)"]


def shared_suffixes(path: Path, other_paths: Sequence[Path]) -> frozenset[str]:
    """Return the ends of other paths, none of which distinguishes this path from them."""
    distinct_paths = {other_path.resolve() for other_path in other_paths} - {path.resolve()}
    return frozenset(end for other_path in distinct_paths for end in _path_ends(other_path))


def _path_ends(path: Path) -> list[str]:
    """Return the ends of a path, shortest first: ``c``, ``b/c`` and ``a/b/c`` for ``/a/b/c``."""
    return ["/".join(path.parts[-length:]) for length in range(1, len(path.parts))]


@validate_arguments(name=NAME_OR_PATH, params=PARAMETERS, catalogue=Catalogue)
def load_encoder(
    name: str | Path, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> Encoder:
    """Return the encoder of this name.

    An encoder that is fitted on texts (whitening, flow) needs some by ``fit_texts`` before it
    embeds.

    Args:
        name: A trained recipe (``recipe@3`` is its seed 3), a card's id, a card file, a checkpoint
            folder, a Hub id, ``package.module:Name`` of your own class, or an entry point of the
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
    return attach_name(_from_run(run, run.recipe, params={}, catalogue=catalogue))


def make_processor(
    method: type[Any], encoder_type: Callable[..., FittableEncoder] = PostProcessed
) -> Callable[..., FittableEncoder]:
    """Return the function that makes the encoders of a kind which is fitted on texts.

    It takes the method's parameters, and these of every such kind: ``base`` is a card or a
    checkpoint, ``base_params`` replace parameters of its card, ``model`` is the checkpoint if the
    card names none, and ``fit`` names the texts to fit on, see :mod:`stsbench.bench.embedder`. It
    raises CardError if the base is itself fitted on texts, and otherwise as :func:`load_encoder`.

    Args:
        method: The class of an :class:`EmbeddingTransform`.
        encoder_type: What makes the encoder of a base, a method, a name and ``fit``.
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
        transform = method(**params)
        catalogue = catalogue or Catalogue()
        refusal = CardError(f"base '{base}' is itself fitted on texts; name an encoder that is not")
        # By its card, before the base is made, which might be made over this very encoder.
        card_path = _find_card(base, catalogue)
        if card_path and requirement(read_card(card_path, EncoderCard).kind) == "texts":
            raise refusal
        all_base_params = dict(base_params or {})
        if model:
            all_base_params["model"] = model
        base_encoder = load_named(base, params=all_base_params, catalogue=catalogue).encoder
        if isinstance(base_encoder, FittableEncoder):
            raise refusal
        return encoder_type(base_encoder, transform, name=name or f"{base}-{method.kind}", fit=fit)

    # A card's parameters are checked against those of both.
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
    stem, _ = list(split_params(spec))[-1]
    return catalogue.paths("baselines").get(stem)


def load_named(
    spec: str, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> NamedEncoder:
    """Return the encoder of a name as :func:`load_encoder` does, together with its card.

    Args:
        spec: The name, with replaced parameters behind it if any, as in ``minilm+pooling=max``. A
            recipe that was trained for several seeds stands for the lowest.
        params: Values that replace the card's parameters, by name.
        catalogue: The cards to search; None for the project's.
    """
    check_hub()
    load = _find_loader(spec, dict(params or {}), catalogue=catalogue or Catalogue())
    return load()


def expand_recipe(spec: str, catalogue: Catalogue) -> list[str]:
    """Return one name per seed, ``name@seed``, if a recipe was trained for several; else the name.

    Args:
        spec: The name of any encoder or recipe, with replaced parameters behind it if any.
        catalogue: The cards to search.

    Raises:
        EncoderError: A run of the recipe is not finished, or its record is broken.
    """
    recipe = _find_runs(spec, catalogue)
    if len(recipe.runs) < 2:
        return [spec]
    suffix = spec[len(recipe.name) :]  # replaced parameters, which follow the seed
    return [f"{recipe.name}@{run.seed}{suffix}" for run in recipe.runs]


def check_loadable(spec: str, catalogue: Catalogue) -> None:
    """Check that a name stands for an encoder, without loading it.

    Args:
        spec: The name, with replaced parameters behind it if any.
        catalogue: The cards to search.

    Raises:
        UnknownName: The name stands for nothing.
        EncoderError: The name is that of a recipe which has not been trained.
    """
    _find_loader(spec, params={}, catalogue=catalogue)


def _stem(spec: str) -> str:
    """Return a name without its seed and parameters."""
    return re.split(r"[+@]", spec, maxsplit=1)[0]


class _RecipeRuns(NamedTuple):
    """The finished runs that a name stands for, none if it is not that of a trained recipe."""

    name: str
    """The name that it was trained by, as ``simcse``, ``simcse@3`` or ``simcse+steps=30``."""
    params: dict[str, Any]
    """The parameters behind that name, which replace those of the trained encoder."""
    runs: list[TrainedRun]


def _find_runs(spec: str, catalogue: Catalogue) -> _RecipeRuns:
    """Return the finished runs that a name stands for; raises as :func:`expand_recipe`."""
    stem = _stem(spec)
    cards = catalogue.paths("baselines")
    # A folder of runs may be found by the name of a recipe, and by no other name.
    is_other_name = stem in cards or _is_location(stem) or stem in _entry_points()
    if is_other_name and stem not in catalogue.paths("trainers"):
        return _RecipeRuns(spec, params={}, runs=[])
    for name, params in split_params(spec):
        if runs := read_trained_runs(name):
            return _RecipeRuns(name, params, runs)
        if unfinished := read_unfinished_runs(name):
            hint = "with another folder of runs in STSBENCH_RUNS, its card's checkpoint is used"
            raise EncoderError(str(unfinished[0]), hint=hint if stem in cards else "")
    return _RecipeRuns(spec, params={}, runs=[])


def _is_location(stem: str) -> bool:
    """Return whether a name is that of a file, folder, Hub id or address in code."""
    return stem.endswith(".toml") or "/" in stem or ":" in stem


def _entry_points() -> list[str]:
    """Return the names of the kinds that installed packages add."""
    return ENCODERS.names()[len(ENCODERS.table) :]


def _from_run(
    run: TrainedRun, name: str, params: dict[str, Any], catalogue: Catalogue
) -> NamedEncoder:
    """Return the encoder of a run, under the name of its recipe without the seed.

    Results of all seeds then have one name; the seed is in the run.

    Args:
        run: The finished run.
        name: The name that was asked for, ``recipe`` or ``recipe@seed``.
        params: Parameters that take the place of what the files say.
        catalogue: The cards.
    """
    named_encoder = _from_checkpoint(str(run.folder), params, catalogue)
    name_without_seed = name.partition("@")[0] if name.endswith(f"@{run.seed}") else name
    return replace(
        named_encoder,
        name=variant_name(name_without_seed, params),
        candidate_names=(),
        run=run,
        claimed_run=None,
        card_digest=run.digest,
    )


def _find_loader(
    spec: str, params: dict[str, Any], catalogue: Catalogue
) -> Callable[[], NamedEncoder]:
    """Return the function that loads the encoder of a name; raises as :func:`check_loadable`.

    A name is, in this order, that of a trained recipe, a card's file, a card's id, a folder; one of
    these with replaced parameters behind it; the address of a class; a Hub id.

    Args:
        spec: The name.
        params: Parameters that replace those of the card, beside those in the name.
        catalogue: The cards to search.
    """
    recipe = _find_runs(spec, catalogue)
    if recipe.runs:
        return partial(
            _from_run, recipe.runs[0], recipe.name, {**recipe.params, **params}, catalogue
        )
    cards = catalogue.paths("baselines")
    if spec.endswith(".toml"):
        path = Path(spec)
        # The encoder is called by the file's name, unless that is another card's.
        is_card_of_catalogue = cards.get(path.stem, Path()).resolve() == path.resolve()
        name = (
            path.stem
            if is_card_of_catalogue
            else candidate_names(path.with_suffix(""), catalogue)[0]
        )
        return partial(_from_card, name, path, params, catalogue)
    if spec in cards:
        return partial(_from_card, spec, cards[spec], params, catalogue)
    if _is_folder(spec):
        return partial(_from_checkpoint, spec, params, catalogue)
    for stem, stem_params in split_params(spec):
        # Entry points last: to look for them reads a file of every installed package.
        is_recognised = stem in cards or _is_location(stem) or _is_folder(stem)
        if stem_params and (is_recognised or stem in _entry_points()):
            return _find_loader(stem, merge_parameters(spec, stem_params, params), catalogue)
    if ":" in spec or spec in _entry_points():
        return partial(_from_address, spec, params, catalogue)
    if "/" in spec:
        return partial(_from_hub, spec, params, catalogue)
    raise _unknown_encoder(spec, catalogue)


def _unknown_encoder(spec: str, catalogue: Catalogue) -> EncoderError | UnknownName:
    """Return the error for a name that stands for no encoder, with the likeliest remedy.

    Args:
        spec: The name that was given.
        catalogue: The cards: it may be the name of a recipe, a task or a suite.
    """
    if _stem(spec) in catalogue.paths("trainers"):
        return _untrained_recipe(spec)
    if spec in catalogue.paths("tasks") or spec in catalogue.suites():
        return EncoderError(
            f"'{spec}' is a task or a suite, not an encoder",
            hint=f"use it as a task: `tasks={spec}`",
        )
    return UnknownName(
        "encoder",
        spec,
        [*catalogue.paths("baselines"), *_entry_points()],
        hint="a Hub id has a slash, a folder must exist",
        remedy=Remedy("list", {"kind": "encoders"}),
    )


def _untrained_recipe(spec: str) -> EncoderError:
    """Return the error for a recipe that was not trained, with the command that trains it."""
    names = [f"'{name}'" for name in list_trained_variants(_stem(spec))]
    hint = ""
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        hint = f"with replaced values it has been: use {' or '.join(names[:3])}{more}"
    stem, params = list(split_params(spec))[-1]
    recipe, _, seed = stem.partition("@")
    arguments: dict[str, Any] = {"recipe": recipe}
    if seed:
        arguments["seed"] = seed
    if params:
        arguments["params"] = params
    return EncoderError(
        f"recipe '{spec}' has not been trained here",
        hint=hint,
        remedy=Remedy("train", arguments),
    )


def _from_hub(spec: str, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder of a Hub id: by the only card that describes it, or by its own files."""
    cards = find_cards_of_model(spec, catalogue)
    if len(cards) == 1:
        path = catalogue.paths("baselines")[cards[0]]
        named_encoder = _from_card(cards[0], path, params, catalogue)
        notice = f"{spec} is the checkpoint of the card '{cards[0]}': evaluated as it says"
        return replace(named_encoder, notice=notice)
    named_encoder = _from_checkpoint(spec, params, catalogue)
    if not cards:
        return named_encoder
    notice = f"{spec} is run as its files say; these cards describe it too: {', '.join(cards)}"
    return replace(named_encoder, notice=notice)


def _is_folder(spec: str) -> bool:
    try:
        return Path(spec).is_dir()
    except OSError:
        # The name is too long for a file.
        return False


def _from_card(name: str, path: Path, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder of a card.

    Args:
        name: The id of the card.
        path: Its file.
        params: Parameters that take the place of the card's.
        catalogue: The cards, to find a base in.

    Raises:
        CardError: A parameter is not valid.
        SourceError: Neither the card nor the user names a checkpoint.
    """
    card = read_card(path, EncoderCard)
    names_checkpoint = bool({"model", "package"} & {*card.params, *params})
    if not names_checkpoint and requirement(card.kind) == "checkpoint":
        raise SourceError(
            f"the card of '{name}' names no checkpoint to fetch",
            hint=card.note or "pass `params=model=FOLDER`",
        )
    factory = ENCODERS.load(card.kind)
    params_in_name = dict(params)
    if _is_known_by_hashes(card, catalogue):
        # Such files are the same wherever they are.
        params_in_name.pop("model", None)
    runtime_parameters: Sequence[str] = getattr(factory, "RUNTIME_PARAMETERS", ())
    card_params = dict(card.params)
    if "model" in params and "package" in card_params:
        # The user's folder takes the place of the package.
        card_params.pop("package")
        card_params.pop("subfolder", None)
    all_params = card_params | params
    if card.kind in KINDS:
        # A revision of the card is that of the checkpoint which the user's folder replaces.
        _check_revision(params if "model" in params else all_params, all_params)
    encoder = _build(
        factory,
        variant_name(name, params_in_name, excluded=runtime_parameters),
        all_params,
        f"{path}: [params]{' and `params`' if params else ''}",
        catalogue,
        kind=card.kind,
    )
    # Results record the seed of such an encoder: all its seeds have one name.
    is_seeded = read_metadata(encoder).train_seed is not None
    excluded = (*runtime_parameters, "seed") if is_seeded else runtime_parameters
    return NamedEncoder(
        name=variant_name(name, params_in_name, excluded=excluded),
        encoder=encoder,
        card=card,
        card_digest=catalogue.encoder_digest(card),
    )


def _is_known_by_hashes(card: EncoderCard, catalogue: Catalogue) -> bool:
    """Return whether a card, or that of its base, names its checkpoint by hashes alone."""
    base = card.params.get("base")
    params = catalogue.encoder(base).params if base in catalogue.paths("baselines") else card.params
    return bool(params.get("sha256")) and "model" not in params


_BASES_OF_VARIANTS: WeakValueDictionary[str, Encoder] = WeakValueDictionary()
"""The bases of variants that are in use, by kind and parameters: variants share one base."""


def _build(
    factory: Callable[..., Any],
    name: str,
    params: Mapping[str, Any],
    where: str,
    catalogue: Catalogue | None = None,
    *,
    kind: str,
) -> Encoder:
    """Make an encoder; a variant of it, if ``params`` has parameters of variants.

    Args:
        factory: A class, a function or an encoder that is made already.
        name: The name of the encoder; empty if it has its own.
        params: Its parameters, and those of a variant if the factory does not take them itself.
        where: The beginning of messages.
        catalogue: The cards to search for a base; None if it needs none.
        kind: The name or address of the factory.

    Raises:
        CardError: A parameter is unknown, missing or of another type, or asks for a variant of an
            encoder that is fitted on texts.
        EncoderError: The factory's object is no encoder.
    """
    accepted = {} if _is_object(factory) else inspect.signature(factory).parameters
    accepts_any = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted.values()
    )
    variant_params = {
        key: value
        for key, value in params.items()
        if key in VARIANT_KEYS and key not in accepted and not accepts_any
    }
    own_params = {key: value for key, value in params.items() if key not in variant_params}
    cache_key = f"{kind} {sorted(own_params.items())} {catalogue.folders if catalogue else ()}"
    encoder = _BASES_OF_VARIANTS.get(cache_key) if variant_params else None
    if encoder is None:
        encoder = check_encoder(_call(factory, name, own_params, where, catalogue), where)
        record_factory(encoder, factory, own_params, name=kind)
    if not variant_params:
        return encoder
    variant: Variant = call_with_params(Variant, variant_params, where=where)
    with suppress(TypeError):
        # An encoder that takes no weak references is made anew for each variant.
        _BASES_OF_VARIANTS[cache_key] = encoder
    if isinstance(encoder, FittableEncoder):
        raise CardError(
            f"{where}: '{min(variant_params)}' is for encoders that are not fitted on texts, "
            "and this one is"
        )
    # The shared base may have the name of the variant that it was first made for.
    variant_encoder_name = name if name and "name" in accepted else encoder.name
    if not variant.needs_texts:
        return VariantEncoder(encoder, variant, (), name=variant_encoder_name)
    return PostProcessed(
        encoder, variant, name=variant_encoder_name, fit=variant.calibration or CALIBRATION
    )


def _is_object(factory: object) -> bool:
    """Return whether a factory is itself an encoder, not a class or function that makes one."""
    return not isinstance(factory, type) and can_encode(factory)


def _call(
    factory: Callable[..., Any],
    name: str,
    params: dict[str, Any],
    where: str,
    catalogue: Catalogue | None,
) -> object:
    """Call a factory with checked parameters, and with name and catalogue if it accepts them.

    Args:
        factory: A class or function that makes an encoder, or an encoder that is made already.
        name: The name of the encoder; empty if the factory is a user's and names it itself.
        params: The parameters of the user or the card, by name.
        where: The beginning of messages.
        catalogue: The cards, for a factory that loads other encoders; None for none.

    Raises:
        CardError: A parameter is not valid, or the factory accepts none.
    """
    if _is_object(factory):
        if params:
            raise CardError(
                f"{where} is made already; it takes no parameters ({', '.join(params)})"
            )
        return factory
    if inspect.isabstract(factory):
        raise CardError(
            f"{where}: {factory.__name__} is an abstract class; give one that has all its methods"
        )
    if problem := find_key_problem(params):
        raise CardError(f"{where}: {problem}")
    accepted = inspect.signature(factory).parameters
    # A user's own factory may have a parameter of these names, but a card cannot set ours.
    our_arguments = {"name": name or None, "catalogue": catalogue}
    for key in our_arguments:
        if name and key in params:
            raise CardError(f"{where}: '{key}' cannot be set: stsbench sets it")
    arguments = {
        key: value for key, value in our_arguments.items() if value is not None and key in accepted
    }
    return call_with_params(factory, {**arguments, **params}, where=where, other_keys=VARIANT_KEYS)


def _from_address(spec: str, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder of a user's own class, function or object, or of an entry point."""
    encoder = _build(
        ENCODERS.load(spec), name="", params=params, where=f"encoder '{spec}'", kind=spec
    )
    name = spec if catalogue.is_taken(encoder.name) else encoder.name
    return NamedEncoder(name=variant_name(name, params), encoder=encoder)


def _from_checkpoint(spec: str, params: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    """Return the encoder of a folder or Hub id, run as its own files say.

    Args:
        spec: The folder or Hub id.
        params: Parameters that take the place of what the files say.
        catalogue: The cards, whose names the encoder of a folder must not take.

    Raises:
        CardError: A parameter is not valid.
        EncoderError: The folder is of a run that is not finished, or cannot be used.
    """
    is_folder = _is_folder(spec)
    if unfinished := UnfinishedRun.read(Path(spec)) if is_folder else None:
        raise EncoderError(str(unfinished))
    for key in ("model", "package"):
        if key in params:
            raise CardError(
                f"'{key}' would be another encoder than '{spec}'; give it as the encoder itself"
            )
    _check_revision(params, {"model": spec})
    location = {key: str(params[key]) for key in ("revision", "subfolder") if key in params}
    folder = locate_checkpoint(spec, **location).folder
    stems = candidate_names(Path(spec), catalogue) if is_folder else [spec]
    names = [variant_name(stem, params) for stem in stems]
    description = describe(folder, catalogue, model="" if is_folder else spec)
    # A folder that stsbench wrote, perhaps in a training run: its own file names class and values.
    if description.is_saved:
        encoder = _build(
            ENCODERS.load_own(description.kind),
            names[0],
            {"model": str(folder), **description.params, **params},
            f"{folder}/{SAVED_FILE}",
            kind=description.kind,
        )
        has_record = (folder / RUN_FILE).is_file()
        return NamedEncoder(
            name=names[0],
            candidate_names=names,
            encoder=encoder,
            claimed_run=TrainedRun.read(folder) if has_record else None,
        )
    # A prompt selected by its name takes the place of the default.
    described_params = {
        key: value
        for key, value in description.params.items()
        if key != "prompt" or "prompt_name" not in params
    }
    encoder = _build(
        ENCODERS.load(description.kind),
        names[0],
        {"model": spec, **described_params, **params},
        spec,
        kind=description.kind,
    )
    return NamedEncoder(
        name=names[0],
        candidate_names=names,
        encoder=encoder,
        assumptions=description.assumptions(params),
    )


def _check_revision(revision_params: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Refuse a revision for a checkpoint on this machine, which has none.

    Args:
        revision_params: The parameters that may hold a revision of this checkpoint.
        params: The parameters that locate the checkpoint.
    """
    location = params.get("package") or params.get("model")
    is_local = "package" in params or _is_folder(str(location))
    if is_local and revision_params.get("revision", "unpinned") != "unpinned":
        raise CardError(
            f"'revision' names a commit on the Hub, and '{location}' is on this machine; "
            "leave 'revision' out"
        )
