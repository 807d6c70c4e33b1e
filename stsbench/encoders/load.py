"""A name, a place or an object to an encoder; what no card names is called by its place: short, and never as a card or recipe is."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_type_hints
from weakref import WeakValueDictionary

import numpy as np

from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue, read_card
from stsbench.core.errors import CardError, EncoderError, SourceError, UnknownName
from stsbench.core.names import merge_parameters, split_params
from stsbench.core.parameters import NAME_OR_PATH, PARAMETERS, call_with_params, validate_arguments
from stsbench.core.provenance import record_factory
from stsbench.core.settings import check_hub, key_among
from stsbench.core.wording import format_repr
from stsbench.encoders.base import Encoder, FittableEncoder, FloatArray
from stsbench.encoders.checkpoint import locate_checkpoint
from stsbench.encoders.described import FILE, describe
from stsbench.encoders.engine.embed import as_array
from stsbench.encoders.fitted import (
    CALIBRATION,
    TARGET_TASK,
    VARIANT_KEYS,
    PostProcessed,
    Variant,
    VariantEncoder,
)
from stsbench.encoders.kinds import ENCODERS, KINDS, cards_of_model, requirement
from stsbench.encoders.metadata import (
    can_encode,
    check_encoder,
    check_signature,
    is_encoder,
    is_name,
    read_metadata,
    valid_text,
)
from stsbench.encoders.named import NamedEncoder, attach_name, find_named, variant_name
from stsbench.encoders.runs import (
    RUN_FILE,
    TrainedRun,
    UnfinishedRun,
    trained_runs,
    trained_variants,
    unfinished_runs,
)


def candidate_names(path: Path, catalogue: Catalogue) -> list[str]:
    """The ends of a path, shortest first: ``final``, ``runA/final`` and so on; none is a card's or recipe's name."""
    return [end for end in _ends(path.resolve()) if not catalogue.is_taken(end)] or [
        f"{path.name} (folder)"
    ]


def shared_suffixes(path: Path, others: Sequence[Path]) -> frozenset[str]:
    """The ends that other paths have too, so that none of them tells this one."""
    return frozenset(
        end
        for other in {other.resolve() for other in others} - {path.resolve()}
        for end in _ends(other)
    )


def _ends(path: Path) -> list[str]:
    return ["/".join(path.parts[-length:]) for length in range(1, len(path.parts))]


@validate_arguments(name=NAME_OR_PATH, params=PARAMETERS, catalogue=Catalogue)
def load_encoder(
    name: str | Path, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> Encoder:
    """Return the encoder of this name; one that is fitted on texts (whitening, flow) wants some by ``fit_texts`` before it embeds.

    The name is that of a recipe that has been trained (``recipe@3``: of seed 3), a card's id, a card file, a checkpoint folder, a Hub
    id, ``package.module:Name`` of your own class, or that of an entry point in the group ``stsbench.encoders``; ``params`` replace the
    card's. Raises UnknownName: none of these; offers the nearest card. EncoderError: the checkpoint cannot be used; SourceError: it
    cannot be had.
    """
    return attach_name(load_named(str(name), params=params, catalogue=catalogue))


def load_run(run: TrainedRun, catalogue: Catalogue) -> Encoder:
    """Return the encoder that a finished run has left, known by its recipe's name."""
    return attach_name(_from_run(run, run.recipe, {}, catalogue))


def make_processor(
    method: type[Any], made: Callable[..., FittableEncoder] = PostProcessed
) -> Callable[..., FittableEncoder]:
    """What makes the encoders of a kind that a method fits: it takes the method's parameters, and these of every such kind.

    ``base`` is a card or a checkpoint, ``base_params`` replace parameters of its card and ``model`` is the checkpoint where
    that names none; ``fit`` says which texts it is fitted on, see :mod:`stsbench.bench.embedder`. It raises CardError: the
    base is itself fitted on texts; as :func:`load_encoder` otherwise.
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
        how, cards = method(**params), catalogue or Catalogue()
        path = (
            Path(base)
            if base.endswith(".toml")
            else cards.paths("baselines").get(list(split_params(base))[-1][0])
        )
        # Asked before it is made: it might be made over this very encoder.
        is_fitted = path is not None and requirement(read_card(path, EncoderCard).kind) == "texts"
        given = {**(base_params or {}), **({"model": model} if model else {})}
        found = None if is_fitted else load_named(base, params=given, catalogue=cards).encoder
        if found is None or isinstance(found, FittableEncoder):
            raise CardError(f"base '{base}' is itself fitted on texts; name an encoder that is not")
        return made(found, how, name=name or f"{base}-{method.kind}", fit=fit)

    # A card's parameters are checked against both.
    shared, own = (
        list(inspect.signature(make).parameters.values())[:-1],
        inspect.signature(method).parameters.values(),
    )
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    make.__signature__ = inspect.Signature([*shared, *keywords])  # type: ignore[attr-defined]
    make.__annotations__ = get_type_hints(make) | get_type_hints(
        method.__init__, include_extras=True
    )
    return make


def load_named(
    spec: str, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> NamedEncoder:
    """As :func:`load_encoder`, with its card; of a recipe trained for many seeds, the lowest.

    A name may say which parameters are replaced, as results' names do: ``minilm+pooling=max``.
    """
    check_hub()
    return _maker(spec, dict(params or {}), catalogue or Catalogue())()


def expand_recipe(spec: str, catalogue: Catalogue) -> list[str]:
    """The names that a name stands for: of a recipe trained for several seeds ``name@seed``; raises EncoderError."""
    name, _, runs = _trained(spec, catalogue)
    return [f"{name}@{run.seed}{spec[len(name) :]}" for run in runs] if len(runs) > 1 else [spec]


def check_loadable(spec: str, catalogue: Catalogue) -> None:
    """Raise UnknownName where a name stands for nothing, EncoderError where a recipe has not been trained."""
    _maker(spec, {}, catalogue)


def _stem(spec: str) -> str:
    return re.split(r"[+@]", spec, maxsplit=1)[0]


def _trained(spec: str, catalogue: Catalogue) -> tuple[str, dict[str, Any], list[TrainedRun]]:
    stem, cards = _stem(spec), catalogue.paths("baselines")
    # A folder of runs may answer to a recipe's name, and to no other thing's.
    other = stem in cards or stem.endswith(".toml") or {*stem} & {*"/:"} or stem in _entry_points()
    if other and stem not in catalogue.paths("trainers"):
        return spec, {}, []
    for name, changes in split_params(spec):
        if runs := trained_runs(name):
            return name, changes, runs
        if unfinished := unfinished_runs(name):
            meanwhile = (
                "; its card's checkpoint is there with another folder of runs in STSBENCH_RUNS"
            )
            raise EncoderError(f"{unfinished[0]}{meanwhile if stem in cards else ''}")
    return spec, {}, []


def _entry_points() -> list[str]:
    return ENCODERS.names()[len(ENCODERS.table) :]


def _from_run(
    run: TrainedRun, name: str, extra: dict[str, Any], catalogue: Catalogue
) -> NamedEncoder:
    known = _from_checkpoint(str(run.folder), extra, catalogue)
    called = variant_name(name.partition("@")[0] if name.endswith(f"@{run.seed}") else name, extra)
    return replace(
        known, name=called, candidate_names=(), run=run, claimed_run=None, card_digest=run.digest
    )


def _maker(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> Callable[[], NamedEncoder]:
    name, changes, runs = _trained(spec, catalogue)
    if runs:
        return partial(_from_run, runs[0], name, {**changes, **extra}, catalogue)
    cards = catalogue.paths("baselines")
    if spec.endswith(".toml"):
        path = Path(spec)
        # Called by the file's name, unless that is another card's.
        is_known = cards.get(path.stem, Path()).resolve() == path.resolve()
        name = path.stem if is_known else candidate_names(path.with_suffix(""), catalogue)[0]
        return partial(_from_card, name, path, extra, catalogue)
    if spec in cards:
        return partial(_from_card, spec, cards[spec], extra, catalogue)
    if _is_folder(spec):
        return partial(_from_checkpoint, spec, extra, catalogue)
    for name, changes in split_params(spec):
        # Entry points last: to look for them reads a file of every installed package.
        by_sign = name in cards or {*"/:"} & {*name} or name.endswith(".toml")
        if changes and (by_sign or _is_folder(name) or name in _entry_points()):
            return _maker(name, merge_parameters(spec, changes, extra), catalogue)
    if ":" in spec or spec in _entry_points():
        return partial(_own, spec, extra, catalogue)
    if "/" in spec:
        return partial(_from_hub, spec, extra, catalogue)
    raise _unknown(spec, [*cards, *_entry_points()], catalogue)


def _unknown(spec: str, known: Sequence[str], catalogue: Catalogue) -> EncoderError | UnknownName:
    if (recipe := _stem(spec)) in catalogue.paths("trainers"):
        others = [f"'{name}'" for name in trained_variants(recipe)]
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        near = (
            f"; with values replaced it has: give {' or '.join(others[:3])}{more}" if others else ""
        )
        # The command that trains what the name says: a recipe, its seed, and the values that are replaced.
        stem, changes = list(split_params(spec))[-1]
        recipe, _, seed = stem.partition("@")
        words = ["stsbench", "train", recipe, *(["--seeds", seed] if seed else [])]
        words += [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        return EncoderError(
            f"recipe '{spec}' has not been trained here{near}; run: {shlex.join(words)}"
        )
    if spec in catalogue.paths("tasks") or spec in catalogue.suites():
        what = f"'{spec}' is a task or a suite, not an encoder"
        return EncoderError(f"{what}; give it by --tasks {spec}, in Python after the encoder")
    hint = "'stsbench list encoders' lists them; a Hub id has a slash, a folder must exist"
    return UnknownName("encoder", spec, known, hint=hint)


def _from_hub(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    cards = cards_of_model(spec, catalogue)
    if len(cards) == 1:
        known = _from_card(cards[0], catalogue.paths("baselines")[cards[0]], extra, catalogue)
        return replace(
            known, notice=f"{spec} is the checkpoint of the card '{cards[0]}': evaluated as it says"
        )
    known = _from_checkpoint(spec, extra, catalogue)
    several = f"{spec} is run as its files say; cards that describe it otherwise or so: {', '.join(cards)}"
    return replace(known, notice=several) if cards else known


def _is_folder(spec: str) -> bool:
    try:
        return Path(spec).is_dir()
    except OSError:
        # Too long for a file's name.
        return False


def _from_card(name: str, path: Path, extra: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    card = read_card(path, EncoderCard)
    where = f"{path}: [params]{' and --set' if extra else ''}"
    names_checkpoint = bool({"model", "package"} & {*card.params, *extra})
    if not names_checkpoint and requirement(card.kind) == "checkpoint":
        what = f"the card of '{name}' names no checkpoint to fetch"
        raise SourceError(f"{what}; {card.note or 'pass --set model=FOLDER'}")
    kind, base = ENCODERS.load(card.kind), card.params.get("base")
    located = (
        catalogue.encoder(base).params if base in catalogue.paths("baselines") else card.params
    )
    # Files that are known by their hashes may lie anywhere.
    anywhere = bool(located.get("sha256")) and "model" not in located
    named = {key: value for key, value in extra.items() if key != "model" or not anywhere}
    # Beside the device, what says how a kind runs and nothing of its embeddings.
    places: Sequence[str] = getattr(kind, "PLACES", ())
    # A folder that a user names takes the place of the package that a card names.
    replaced = {"package", "subfolder"} if "model" in extra and "package" in card.params else set()
    params = {key: value for key, value in card.params.items() if key not in replaced} | extra
    if card.kind in KINDS:
        # A card's own revision is that of the checkpoint which a user has put a folder for.
        _check_revision(extra if "model" in extra else params, params)
    encoder = _make(
        kind,
        variant_name(name, named, excluded=places),
        params,
        where,
        catalogue,
        found_by=card.kind,
    )
    # Results say the seed themselves: several seeds are one encoder.
    seeded = read_metadata(encoder).train_seed is not None
    called = variant_name(name, named, excluded=(*places, "seed") if seeded else places)
    return NamedEncoder(
        name=called, encoder=encoder, card=card, card_digest=catalogue.digest_of(card)
    )


_BASES: WeakValueDictionary[str, Encoder] = WeakValueDictionary()
"""The bases of variants that are in use, by what made them: the next variant takes the same one."""


def _make(
    maker: Callable[..., Any],
    name: str,
    params: Mapping[str, Any],
    where: str,
    catalogue: Catalogue | None = None,
    *,
    found_by: str,
) -> Encoder:
    """What a maker, found by a name, makes of its own parameters, or the variant of that which the others ask for.

    Raises CardError: a parameter is unknown, missing or of another type, or asks for a variant of what is fitted on
    texts; EncoderError: what is made is no encoder. Both begin with ``where``.
    """
    takes = {} if _is_made(maker) else inspect.signature(maker).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    asked = {
        key: value
        for key, value in params.items()
        if key in VARIANT_KEYS and key not in takes and not takes_all
    }
    own = {key: value for key, value in params.items() if key not in asked}
    known = f"{found_by} {sorted(own.items())} {catalogue.folders if catalogue else ()}"
    made = _BASES.get(known) if asked else None
    if made is None:
        made = check_encoder(_call(maker, name, own, where, catalogue), where)
        record_factory(made, maker, own, name=found_by)
    if not asked:
        return made
    variant: Variant = call_with_params(Variant, asked, where=where)
    with suppress(TypeError):
        # What takes no weak references is made for each variant.
        _BASES[known] = made
    if isinstance(made, FittableEncoder):
        raise CardError(
            f"{where}: '{min(asked)}' is for encoders that are not fitted on texts, and this one is"
        )
    # The base may be called after the variant for which it was made.
    called = name if name and "name" in takes else made.name
    if not variant.needs_texts:
        return VariantEncoder(made, variant, (), name=called)
    return PostProcessed(made, variant, name=called, fit=variant.calibration or CALIBRATION)


def _is_made(maker: object) -> bool:
    return not isinstance(maker, type) and can_encode(maker)


def _call(
    maker: Callable[..., Any],
    name: str,
    params: dict[str, Any],
    where: str,
    catalogue: Catalogue | None,
) -> object:
    """Call a maker with params checked against its signature, and with its name and the cards where it takes them."""
    if _is_made(maker):
        if params:
            raise CardError(
                f"{where} is made already; it takes no parameters ({', '.join(params)})"
            )
        return maker
    if inspect.isabstract(maker):
        raise CardError(
            f"{where}: {maker.__name__} is an abstract class; give one that has all its methods"
        )
    if problem := key_among(params):
        raise CardError(f"{where}: {problem}")
    takes, ours = (
        inspect.signature(maker).parameters,
        {"name": name or None, "catalogue": catalogue},
    )
    if name and (key := next((key for key in ours if key in params), "")):
        raise CardError(f"{where}: '{key}' cannot be set: stsbench sets it")
    given = {key: value for key, value in ours.items() if value is not None and key in takes}
    return call_with_params(maker, {**given, **params}, where=where, other_keys=VARIANT_KEYS)


def _own(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    made = _make(ENCODERS.load(spec), "", extra, f"encoder '{spec}'", found_by=spec)
    name = spec if catalogue.is_taken(made.name) else made.name
    return NamedEncoder(name=variant_name(name, extra), encoder=made)


def _from_checkpoint(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> NamedEncoder:
    local = _is_folder(spec)
    if unfinished := UnfinishedRun.read(Path(spec)) if local else None:
        raise EncoderError(str(unfinished))
    for key in ("model", "package"):
        if key in extra:
            raise CardError(
                f"'{key}' would be another encoder than '{spec}'; give it as the encoder itself"
            )
    _check_revision(extra, {"model": spec})
    where = {key: str(extra[key]) for key in ("revision", "subfolder") if key in extra}
    folder = locate_checkpoint(spec, **where).folder
    names = [
        variant_name(name, extra)
        for name in (candidate_names(Path(spec), catalogue) if local else [spec])
    ]
    described = describe(folder, catalogue, "" if local else spec)
    if described.is_saved:
        params = {"model": str(folder), **described.params, **extra}
        maker = ENCODERS.load_own(described.kind)
        encoder = _make(maker, names[0], params, f"{folder}/{FILE}", found_by=described.kind)
        claims = TrainedRun.read(folder) if (folder / RUN_FILE).is_file() else None
        return NamedEncoder(
            name=names[0], candidate_names=names, encoder=encoder, claimed_run=claims
        )
    # A prompt chosen by its name takes the default's place.
    own = {
        key: value
        for key, value in described.params.items()
        if key != "prompt" or "prompt_name" not in extra
    }
    params = {"model": spec, **own, **extra}
    encoder = _make(ENCODERS.load(described.kind), names[0], params, spec, found_by=described.kind)
    return NamedEncoder(
        name=names[0], candidate_names=names, encoder=encoder, assumptions=described.assumed(extra)
    )


def _check_revision(given: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    # What lies on this machine has none.
    place = params.get("package") or params.get("model")
    if ("package" in params or _is_folder(str(place))) and given.get(
        "revision", "unpinned"
    ) != "unpinned":
        raise CardError(
            f"'revision' names a commit on the Hub, and '{place}' is on this machine; leave 'revision' out"
        )


def resolve_encoder(
    given: object, catalogue: Catalogue, *, name: str | None = None
) -> NamedEncoder:
    """Return the encoder that a program hands over: what :func:`stsbench.load_encoder` takes, or :func:`wrap_object`.

    ``name`` is what results call one not given by its name. Raises EncoderError: it is none, or cannot be called so.
    """
    if isinstance(given, str | Path):
        if name is not None:
            raise EncoderError(
                f"'{given}' is a name already, by which its results are found; leave out name='{name}'"
            )
        return load_named(str(given), catalogue=catalogue)
    known = (
        given
        if isinstance(given, NamedEncoder)
        else find_named(wrap_object(given, named=name is not None), catalogue)
    )
    if name is None:
        clash = isinstance(known.encoder, FunctionEncoder) and catalogue.is_taken(known.name)
        return replace(known, name=f"{known.name} (function)") if clash else known
    if not is_name(name) or catalogue.is_taken(name):
        what = f"{format_repr(name)} cannot be the name of an encoder of your own"
        raise EncoderError(f"{what}: give one line of text that is not the name of a card")
    return replace(known, name=name, candidate_names=())


def wrap_object(given: object, *, named: bool = False) -> Encoder:
    """Return an encoder as it is, and as one a ``SentenceTransformer`` or a function from sentences to embeddings (n, d).

    Once ``named``, an object without a name is its ``encode``. Raises EncoderError: it is none; says what it lacks.
    """
    if not is_encoder(given) and _is_of(given, "sentence_transformers", "SentenceTransformer"):
        return _of_library(given)
    if can_encode(given):
        nameless = named and not isinstance(given, type) and getattr(given, "name", None) is None
        return (
            wrap_object(cast(Encoder, given).encode)
            if nameless
            else check_encoder(given, "the encoder")
        )
    if not callable(given) or isinstance(given, type) or _is_of(given, "torch", "Module"):
        own = "an object with name, fingerprint (or None) and encode(sentences)"
        others = "a SentenceTransformer, or a function from sentences to an array (n, d)"
        raise EncoderError(f"{format_repr(given)} is not an encoder; give a name, {own}, {others}")
    encoder = FunctionEncoder(given)
    check_signature(given, f"the function {encoder.name}")
    return encoder


class FunctionEncoder:
    """A function from a list of sentences to their embeddings (n, d); what it does is not known, so nothing is stored."""

    fingerprint = None
    device_used: object = None
    dtype: object = None

    def __init__(self, function: Callable[[list[str]], object]) -> None:
        """Keep the function, and call the encoder as it is called."""
        self.function = function
        inner = function.func if isinstance(function, partial) else function
        self.name = (inner if inspect.isroutine(inner) else type(inner)).__name__.strip("<>")

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        return as_array(self.function(list(sentences)), self.name).astype(np.float32, copy=False)


def _of_library(model: Any) -> FunctionEncoder:  # noqa: ANN401 - sentence_transformers is not imported for it
    """A ``SentenceTransformer`` of the user's own making, with the prompt that is its default; it may be trained on."""

    def encode(sentences: list[str]) -> object:
        return model.encode(
            [valid_text(sentence) for sentence in sentences], show_progress_bar=False
        )

    made = FunctionEncoder(encode)
    made.name, made.device_used, made.dtype = "SentenceTransformer", model.device, model.dtype
    return made


def _is_of(given: object, package: str, name: str) -> bool:
    return any(
        kind.__module__.partition(".")[0] == package and kind.__name__ == name
        for kind in type(given).__mro__
    )
