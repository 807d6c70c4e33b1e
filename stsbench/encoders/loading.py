"""From a name, a path or a card to an encoder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stsbench.cards.catalogue import Catalogue, read_card
from stsbench.cards.facts import EncoderCard
from stsbench.cards.names import replaced_once, variants
from stsbench.encoders.checkpoints.checkpoint import locate_checkpoint
from stsbench.encoders.checkpoints.families import assumptions, cards_of, family_of, told_of_several
from stsbench.encoders.checkpoints.saved import FILE
from stsbench.encoders.facts import facts_of, places_of
from stsbench.encoders.fitted.variants import make_or_vary
from stsbench.encoders.kinds import ENCODERS, FITTED, FROM_CHECKPOINT
from stsbench.encoders.known import KnownEncoder, keep_known, variant_name
from stsbench.encoders.path_names import place_names
from stsbench.encoders.seams import Encoder, TextFitted
from stsbench.encoders.told import told_by_files
from stsbench.encoders.trained import RUN_FILE, TrainedRun, trained_runs, trained_variants
from stsbench.encoders.unfinished import UnfinishedRun, unfinished_runs
from stsbench.errors import CardError, EncoderError, SourceError, UnknownName
from stsbench.registry.arguments import NAME_OR_PLACE, PARAMETERS, checked


@checked(name=NAME_OR_PLACE, params=PARAMETERS, catalogue=Catalogue)
def load_encoder(
    name: str | Path, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> Encoder:
    """Return the encoder of this name.

    Args:
        name: a recipe that has been trained (``recipe@3``: of seed 3), a card's id, a card file, a
            checkpoint folder, a Hub id, ``package.module:Name`` of your own class, or the name of
            an entry point in the group ``stsbench.encoders``.
        params: parameters that replace the card's.
        catalogue: cards to look names up in; default the project's.

    Raises:
        UnknownName: none of these; offers the nearest card.
        EncoderError: the checkpoint cannot be used; SourceError: it cannot be had.

    An encoder that is fitted on texts (whitening, flow) has to be given some, by its
    ``fit_texts``, before it embeds.
    """
    return keep_known(find_encoder(str(name), params=params, catalogue=catalogue))


def load_run(run: TrainedRun, catalogue: Catalogue) -> Encoder:
    """Return the encoder that a finished run has left, known by its recipe's name."""
    return keep_known(_from_run(run, run.recipe, {}, catalogue))


def find_base(spec: str, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None) -> Encoder:
    """Return the encoder that another is made over.

    Raises:
        CardError: it is itself fitted on texts; as :func:`load_encoder` otherwise.
    """
    catalogue = catalogue or Catalogue()
    refused = CardError(f"base '{spec}' is itself fitted on texts; name an encoder that is not")
    path = Path(spec) if spec.endswith(".toml") else catalogue.paths("baselines").get(list(variants(spec))[-1][0])
    # Told before it is made: it might be made over this very encoder.
    if path is not None and read_card(path, EncoderCard).kind in FITTED:
        raise refused
    base = find_encoder(spec, params=params, catalogue=catalogue).encoder
    if isinstance(base, TextFitted):
        raise refused
    return base


def find_encoder(
    spec: str, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> KnownEncoder:
    """As :func:`load_encoder`, with the encoder's card; of a recipe trained for many seeds, the lowest."""
    return find_encoders(spec, params=params, catalogue=catalogue)[0]


def find_encoders(
    spec: str, *, params: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> list[KnownEncoder]:
    """As :func:`find_encoder`; of a trained recipe there is one encoder a seed.

    A name may say which parameters are replaced, as results' names do: ``minilm+pooling=max``.
    """
    catalogue, extra = catalogue or Catalogue(), dict(params or {})
    name, changes, runs = _trained(spec, catalogue)
    if runs:
        return [_from_run(run, name, {**changes, **extra}, catalogue) for run in runs]
    return [_find_untrained(spec, extra, catalogue)]


def each_seed(spec: str, catalogue: Catalogue) -> list[str]:
    """The names of the encoders that a name stands for: of a recipe trained for several seeds, ``name@seed`` each.

    Raises:
        EncoderError: its training is not finished, or the record of it is broken.
    """
    name, _, runs = _trained(spec, catalogue)
    return [f"{name}@{run.seed}{spec[len(name) :]}" for run in runs] if len(runs) > 1 else [spec]


def _trained(spec: str, catalogue: Catalogue) -> tuple[str, dict[str, Any], list[TrainedRun]]:
    """The recipe that a name is of, the parameters that the name replaces, and its finished runs: none of an untrained one."""
    for name, changes in variants(spec):
        runs = trained_runs(name) if _may_be_trained(name, catalogue) else []
        if runs:
            return name, changes, runs
        if unfinished := unfinished_runs(name) if _may_be_trained(name, catalogue) else []:
            known = re.split(r"[+@]", name, maxsplit=1)[0] in catalogue.paths("baselines")
            meanwhile = "; its card's checkpoint is there with another folder of runs in STSBENCH_RUNS" if known else ""
            raise EncoderError(f"{unfinished[0]}{meanwhile}")
    return spec, {}, []


def _may_be_trained(name: str, catalogue: Catalogue) -> bool:
    """Whether a folder of runs may answer to this name: a recipe's, and no other thing's."""
    stem = re.split(r"[+@]", name, maxsplit=1)[0]
    if stem in catalogue.paths("trainers"):
        return True
    other = stem in catalogue.paths("baselines") or stem.endswith(".toml") or stem in _entry_points()
    return not other and not {*stem} & {*"/:"}


def _entry_points() -> list[str]:
    return ENCODERS.names()[len(ENCODERS.table) :]


def _from_run(run: TrainedRun, name: str, extra: dict[str, Any], catalogue: Catalogue) -> KnownEncoder:
    known = _from_checkpoint(str(run.folder), extra, catalogue)
    called = variant_name(name.partition("@")[0] if name.endswith(f"@{run.seed}") else name, extra)
    return replace(known, name=called, names=(), run=run, claims=None, card_digest=run.digest)


def check_loadable(spec: str, catalogue: Catalogue) -> None:
    """Look for what a name stands for, and make no encoder of it.

    Raises:
        UnknownName: nothing; offers the nearest card. EncoderError: a recipe that has not been trained.
    """
    if not _trained(spec, catalogue)[2]:
        _maker(spec, {}, catalogue)


def _find_untrained(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> KnownEncoder:
    return _maker(spec, extra, catalogue)()


def _maker(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> Callable[[], KnownEncoder]:
    """What makes the encoder that a name stands for."""
    if spec.endswith(".toml"):
        return partial(_from_file, Path(spec), extra, catalogue)
    cards, own = catalogue.paths("baselines"), _entry_points()
    if spec in cards:
        return partial(_from_card, spec, cards[spec], extra, catalogue)
    if _is_folder(spec):
        return partial(_from_checkpoint, spec, extra, catalogue)
    for name, changes in variants(spec):
        if changes and (
            name in cards or name in own or {*"/:"} & {*name} or name.endswith(".toml") or _is_folder(name)
        ):
            return _maker(name, replaced_once(spec, changes, extra), catalogue)
    if ":" in spec or spec in own:
        return partial(_own, spec, extra, catalogue)
    if "/" in spec:
        return partial(_from_hub, spec, extra, catalogue)
    raise _unknown(spec, [*cards, *own], catalogue)


def _unknown(spec: str, known: Sequence[str], catalogue: Catalogue) -> EncoderError | UnknownName:
    if (recipe := re.split(r"[+@]", spec, maxsplit=1)[0]) in catalogue.paths("trainers"):
        others = [f"'{name}'" for name in trained_variants(recipe)]
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        near = f"; with values replaced it has: give {' or '.join(others[:3])}{more}" if others else ""
        return EncoderError(f"recipe '{spec}' has not been trained here{near}; run: {_training(spec)}")
    if spec in catalogue.paths("tasks") or spec in catalogue.suites():
        return EncoderError(
            f"'{spec}' is a task or a suite, not an encoder; give it by --tasks {spec}, in Python after the encoder"
        )
    hint = "'stsbench list encoders' lists them; a Hub id has a slash, a folder must exist"
    return UnknownName("encoder", spec, known, hint=hint)


def _training(spec: str) -> str:
    """The command that trains what a name says: a recipe, its seed, and the values that are replaced."""
    stem, changes = list(variants(spec))[-1]
    recipe, _, seed = stem.partition("@")
    words = ["stsbench", "train", recipe, *(["--seeds", seed] if seed else [])]
    return shlex.join([*words, *(word for key, value in changes.items() for word in ("--set", f"{key}={value}"))])


def _from_file(path: Path, extra: dict[str, Any], catalogue: Catalogue) -> KnownEncoder:
    """A card by its file: called by the file's name, unless that is another card's."""
    if catalogue.paths("baselines").get(path.stem, Path()).resolve() == path.resolve():
        return _from_card(path.stem, path, extra, catalogue)
    names = place_names(path.with_suffix(""), catalogue)
    return _from_card(names[0], path, extra, catalogue)


def _from_hub(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> KnownEncoder:
    """A Hub id: as the card says that describes it, where there is one and no more."""
    cards = cards_of(spec, catalogue)
    if len(cards) != 1:
        known = _from_checkpoint(spec, extra, catalogue)
        return replace(known, told=told_of_several(spec, cards)) if cards else known
    known = _from_card(cards[0], catalogue.paths("baselines")[cards[0]], extra, catalogue)
    return replace(known, told=f"{spec} is the checkpoint of the card '{cards[0]}': evaluated as it says")


def _is_folder(spec: str) -> bool:
    try:
        return Path(spec).is_dir()
    except OSError:
        # Too long for a file's name.
        return False


def _from_card(name: str, path: Path, extra: dict[str, Any], catalogue: Catalogue) -> KnownEncoder:
    card = read_card(path, EncoderCard)
    where = f"{path}: [params]{' and --set' if extra else ''}"
    if card.kind in FROM_CHECKPOINT and not {"model", "package"} & {*card.params, *extra}:
        raise SourceError(
            f"the card of '{name}' names no checkpoint to fetch; {card.note or 'pass --set model=FOLDER'}"
        )
    kind, located = ENCODERS.load(card.kind), _located_card(card, catalogue)
    told = {key: value for key, value in extra.items() if not _only_locates(key, located)}
    places = places_of(kind)
    called = variant_name(name, told, places=places)
    params = {**card.params, **extra}
    if card.kind in ENCODERS.table:
        # A card's own revision is that of the checkpoint which a user has put a folder for.
        _check_revision(extra if "model" in extra else params, params)
    encoder = make_or_vary(kind, called, params, where, catalogue, found_by=card.kind)
    if facts_of(encoder).train_seed is not None:
        # Results say the seed themselves: several seeds are one encoder.
        called = variant_name(name, told, places=(*places, "seed"))
    digest = catalogue.digest_of(card)
    asked = _asked(_base_params(params, catalogue) if card.kind in FITTED else params)
    return KnownEncoder(name=called, encoder=encoder, card=card, card_digest=digest, asked=asked)


def _base_params(params: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """All parameters of the encoder that one is made over: its card's, those in its name, those given beside it."""
    name, changes = list(variants(str(params["base"])))[-1]
    described = cards_of(name, catalogue) if "/" in name else []
    name = described[0] if len(described) == 1 else name
    path = Path(name) if name.endswith(".toml") else catalogue.paths("baselines").get(name)
    own = read_card(path, EncoderCard).params if path else {}
    return {**own, **changes, **(params.get("base_params") or {})}


def _located_card(card: EncoderCard, catalogue: Catalogue) -> EncoderCard:
    """The card whose checkpoint is located: its base's, of an encoder that is made over another."""
    base = card.params.get("base")
    return catalogue.encoder(base) if base in catalogue.paths("baselines") else card


def _only_locates(key: str, card: EncoderCard) -> bool:
    """Whether a parameter tells where the card's own checkpoint lies, its files being known by their hashes."""
    return key == "model" and bool(card.params.get("sha256")) and not {"model", "package"} & {*card.params}


def _own(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> KnownEncoder:
    """A user's own class, function or ready-made encoder; called by its address where a card has its name."""
    maker = ENCODERS.load(spec)
    made = make_or_vary(maker, "", extra, f"encoder '{spec}'", found_by=spec)
    name = spec if catalogue.is_taken(made.name) else made.name
    return KnownEncoder(name=variant_name(name, extra), encoder=made)


def _from_checkpoint(spec: str, extra: dict[str, Any], catalogue: Catalogue) -> KnownEncoder:
    """A folder or Hub id without a card: run as its own files say, by our engine where it can."""
    if unfinished := UnfinishedRun.read(Path(spec)) if _is_folder(spec) else None:
        raise EncoderError(str(unfinished))
    for key in ("model", "package"):
        if key in extra:
            raise CardError(f"'{key}' would be another encoder than '{spec}'; give it as the encoder itself")
    _check_revision(extra, {"model": spec})
    where = {key: str(extra[key]) for key in ("revision", "subfolder") if key in extra}
    folder = locate_checkpoint(spec, **where).folder
    names = [variant_name(name, extra) for name in (place_names(Path(spec), catalogue) if _is_folder(spec) else [spec])]
    told = told_by_files(folder)
    if told.is_saved:
        params = {"model": str(folder), **told.params, **extra}
        encoder = make_or_vary(ENCODERS.load_own(told.kind), names[0], params, f"{folder}/{FILE}", found_by=told.kind)
        claims = TrainedRun.read(folder) if (folder / RUN_FILE).is_file() else None
        return KnownEncoder(name=names[0], names=names, encoder=encoder, claims=claims)
    family = None if _is_folder(spec) else family_of(spec)
    usual = {} if told.has_modules or family is None else family.params()
    params = {"model": spec, **usual, **told.beside(extra), **extra}
    encoder = make_or_vary(ENCODERS.load(told.kind), names[0], params, spec, found_by=told.kind)
    assumed = assumptions(family, has_modules=told.has_modules, given=extra, for_sts=told.for_sts)
    return KnownEncoder(name=names[0], names=names, encoder=encoder, assumed=assumed, asked=_asked(extra))


def _check_revision(given: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Refuse a revision that nothing would read: what lies on this machine has none."""
    place = params.get("package") or params.get("model")
    local = "package" in params or _is_folder(str(place))
    if local and given.get("revision", "unpinned") != "unpinned":
        raise CardError(f"'revision' names a commit on the Hub, and '{place}' is on this machine; leave 'revision' out")


def _asked(params: Mapping[str, Any]) -> str:
    return str(params.get("revision", "unpinned"))
