"""An encoder under its name in results, with its card and its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from stsbench.core.cards import EncoderCard, Overlap, TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.files import strip_folders
from stsbench.core.names import format_parameter, replaces_network, split_all_params
from stsbench.core.provenance import RUNTIME_PARAMETERS, add_texts, encoder_identity
from stsbench.core.secrets import redact
from stsbench.encoders.base import Encoder
from stsbench.encoders.kinds import find_requirement
from stsbench.encoders.metadata import describe_prompt, is_computed_on_this_machine, read_metadata
from stsbench.encoders.runs import TrainedRun


@dataclass(frozen=True, kw_only=True)
class NamedEncoder:
    """An encoder under its name in results, with its card and the card's hash if it has one."""

    name: str
    """The name in results, with the replaced parameters."""
    encoder: Encoder
    card: EncoderCard | None = None
    card_digest: str | None = None
    """The hash of the card; that of the run for an encoder of a recipe."""
    run: TrainedRun | None = None
    """The training of an encoder that is loaded by its recipe's name."""
    claimed_run: TrainedRun | None = None
    """The record of training in a folder given by its path: believed only if it reports overlap."""
    texts_digest: str | None = None
    """The hash of the texts that the encoder is fitted on; None if it is not fitted."""
    fitted_on_task: bool = False
    """The texts that it is fitted on include sentences that are scored."""
    candidate_names: Sequence[str] = ()
    """The names that an encoder from a folder may have, shorter ones first; else empty."""
    folder_digest: str | None = None
    """The hash of a folder's path from the results folder; None if it is from no folder.

    An encoder that is trained again in its folder keeps its name.
    """
    assumptions: Sequence[str] = ()
    """Notes for its results: settings that were assumed, as its own files do not have them."""
    notice: str = ""
    """A message for the user who named it: a card was found for it."""

    def overlap_with(self, task: str) -> Overlap:
        """Return whether the encoder's training text holds a task's test sentences.

        It is said by the encoder's card; for an encoder that was trained here, by the record of its
        training, ``self.run``. The texts that it is fitted on are training text too:
        ``self.fitted_on_task`` says that sentences which are scored are among them.

        Args:
            task: The name of the task.

        Returns:
            ``none``, ``unknown``, ``text`` (the sentences without their scores) or ``gold`` (with
            their scores).
        """
        overlap: Overlap = self.card.overlap if self.card else "unknown"
        if self.run is not None:
            overlap = self.run.overlap_with(task)
        elif self.claimed_run is not None:
            # A record in a folder that the user named need not be true. So it is believed only if
            # it reports an overlap.
            claimed_overlap = self.claimed_run.overlap_with(task)
            if claimed_overlap in ("text", "gold"):
                overlap = claimed_overlap
        return "text" if self.fitted_on_task and overlap != "gold" else overlap

    def missing_prompt(self, catalogue: Catalogue) -> str:
        """Return a warning if a known model is run without the prompt that is documented for it.

        A model is recognised by the last part of its Hub id; a folder may have the same name. There
        is no warning for an encoder of a card, for embeddings from a server or a file, and if the
        user has chosen the prompt.

        Args:
            catalogue: The cards of encoders and of families of models, which may have a prompt.

        Returns:
            A message; empty if there is nothing to warn of.
        """
        # The name without its parameters, and the parameters by name.
        spec, params = split_all_params(self.name)
        has_chosen_prompt = bool({"prompt", "prompt_name", "prompt_template"} & params.keys())
        if self.card or has_chosen_prompt or not is_computed_on_this_machine(self.encoder):
            return ""
        # Empty if the encoder has no prompt; None if that is unknown.
        if describe_prompt(self.encoder) != "":
            return ""
        model_name = spec.casefold().rpartition("/")[2]
        # The names of all encoders' cards.
        for name in catalogue.paths("baselines"):
            card_params = catalogue.encoder(name).params
            prompt = card_params.get("prompt") or card_params.get("prompt_name")
            card_model = str(card_params.get("model", "")).casefold()
            if prompt and card_model.endswith(f"/{model_name}"):
                return f"{self.name} runs without a prompt; the card {name} has {prompt!r}"
        for family in catalogue.families().values():
            # The Hub ids of a family are patterns, such as "intfloat/e5-*".
            patterns = [pattern.casefold().rpartition("/")[2] for pattern in family.ids]
            if family.prompt and any(fnmatchcase(model_name, pattern) for pattern in patterns):
                return (
                    f"{self.name} runs without a prompt; its documentation puts {family.prompt!r} "
                    f"before every sentence ({family.source}); set the parameter 'prompt'"
                )
        return ""

    def missing_languages(self, task_card: TaskCard) -> list[str]:
        """Return the codes of a task's languages that the encoder's card does not name.

        The list is empty if the encoder has no card, if its card names no languages, or if its name
        has a parameter that replaces the card's network, as in ``minilm+model=…``.
        """
        if self.card is None or not self.card.languages or replaces_network(self.name):
            return []
        return [code for code in task_card.languages if code not in self.card.languages]

    @property
    def fingerprint(self) -> str | None:
        """A text that changes if and only if the embeddings may change; None if there is none.

        It depends on the encoder, and on the texts that it is fitted on if it is fitted.
        """
        # The encoder's own; for a user's code with the class or function that made the encoder.
        fingerprint = encoder_identity(self.encoder)
        if fingerprint is None or self.texts_digest is None:
            return fingerprint
        return add_texts(fingerprint, self.texts_digest)

    @property
    def train_seed(self) -> int | None:
        """The seed that it was trained or fitted with; None if nothing was drawn."""
        return self.run.seed if self.run is not None else read_metadata(self.encoder).train_seed

    def notes(self) -> list[str]:
        """Return a note if the checkpoint's revision on the Hub is no commit, and so may change.

        A revision such as ``main`` may stand for another commit tomorrow. The note names today's
        commit, and the parameter or the line of the card that makes it permanent.

        Returns:
            A list of one note, or an empty list.
        """
        metadata = read_metadata(self.encoder)
        # The commit that was fetched; None if the checkpoint is not from the Hub.
        commit = metadata.revision
        revision_asked = metadata.revision_asked
        if commit is None or revision_asked in (None, commit):
            return []
        # What the user can set; it is in the card if there is one.
        remedy = f"the parameter revision={commit}"
        if self.card is not None:
            line = f'revision = "{commit}"'
            # An encoder that is fitted on texts embeds by another one, whose checkpoint it is.
            is_fitted = find_requirement(self.card.kind) == "texts"
            if is_fitted and "base" in self.card.params:
                line = f"base_params = {{{line}}}"
            remedy = f"{line} in the card"
        return [
            f"the checkpoint of {self.name} is of revision '{revision_asked}', "
            f"today commit {commit[:12]}; {remedy} keeps it"
        ]


def variant_name(name: str, params: Mapping[str, Any], *, excluded: Sequence[str] = ()) -> str:
    """Return the name of an encoder with replaced parameters, as in ``minilm+pooling=max``.

    Parameters are sorted by their names. Those that only decide where the encoder runs
    (``RUNTIME_PARAMETERS``: the device) are no part of the name. An absolute path is without its
    folders. A secret, known by the parameter's name or by its look, is replaced by ``REDACTED``.

    Args:
        name: The name of the encoder.
        params: The values that replace its parameters, by name.
        excluded: Other parameters that are no part of the name.
    """
    parts = [name]
    for key, value in sorted(params.items()):
        if key not in RUNTIME_PARAMETERS and key not in excluded:
            public_value = redact(strip_folders(value), name=key)
            parts.append(f"{key}={format_parameter(public_value)}")
    return "+".join(parts)


def candidate_names(path: Path, catalogue: Catalogue) -> list[str]:
    """Return the names that an encoder from a folder may have, the shortest first.

    They are all ends of the folder's path, for example ``final``, ``runA/final`` and so on up to
    the whole path, without those that are names of cards or recipes.

    Args:
        path: The folder of a checkpoint.
        catalogue: The cards and recipes, whose names are taken.

    Returns:
        One name at least: if all ends are taken, the name of the folder followed by ``(folder)``.
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


_NAMED_ENCODER_ATTRIBUTE = "_stsbench_known"
"""The attribute of an encoder that holds its NamedEncoder, and its name at that time."""


def attach_name(named_encoder: NamedEncoder) -> Encoder:
    """Return the encoder with its NamedEncoder attached, which its results are then named by."""
    encoder = named_encoder.encoder
    with suppress(AttributeError, TypeError):
        # An encoder that takes no attributes has its own name alone.
        object.__setattr__(encoder, _NAMED_ENCODER_ATTRIBUTE, (named_encoder, encoder.name))
    return encoder


def find_named(encoder: Encoder, catalogue: Catalogue) -> NamedEncoder:
    """Return an encoder of a user's program together with its name in results and its card.

    There are two cases. If the encoder was loaded here, its NamedEncoder was attached to it and is
    returned, unless the program has given it another name since. Otherwise the program made the
    encoder itself: its name in results is its own. If a card has that name, it is the address of
    its class instead, unless the class is ours.

    Args:
        encoder: The encoder.
        catalogue: The cards and recipes, whose names are taken.
    """
    # The attribute is the NamedEncoder, and the encoder's name when it was loaded. It is read from
    # the object's own attributes, because a wrapper may pass ``getattr`` on to its inner encoder.
    own_attributes = getattr(encoder, "__dict__", {})
    attached: tuple[NamedEncoder, str] | None = own_attributes.get(_NAMED_ENCODER_ATTRIBUTE)
    if attached is not None:
        named_encoder, name_when_loaded = attached
        # A copy of an encoder has the attributes of the original, and is another object.
        if named_encoder.encoder is encoder and name_when_loaded == encoder.name:
            return named_encoder
    encoder_type = type(encoder)
    name = encoder.name
    if not encoder_type.__module__.startswith("stsbench.") and catalogue.is_taken(name):
        name = f"{encoder_type.__module__}:{encoder_type.__qualname__}"
    return NamedEncoder(name=name, encoder=encoder)
