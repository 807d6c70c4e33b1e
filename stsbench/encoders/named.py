"""An encoder under its name in results, with its card and its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stsbench.core.cards import EncoderCard, Overlap
from stsbench.core.catalogue import Catalogue
from stsbench.core.files import strip_folders
from stsbench.core.names import format_parameter
from stsbench.core.provenance import RUNTIME_PARAMETERS, add_texts, encoder_identity
from stsbench.core.secrets import redact
from stsbench.encoders.base import Encoder
from stsbench.encoders.kinds import requirement
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.runs import TrainedRun


@dataclass(frozen=True, kw_only=True)
class NamedEncoder:
    """An encoder under the name results give it, with its card and the card's hash where it has one."""

    name: str
    encoder: Encoder
    card: EncoderCard | None = None
    card_digest: str | None = None
    run: TrainedRun | None = None
    claimed_run: TrainedRun | None = None
    """The record of training that lies beside a checkpoint given by its place: believed where it speaks against it."""
    texts_digest: str | None = None
    """The hash of the texts that it is fitted on, for an encoder that is."""
    fitted_on_task: bool = False
    """Whether sentences that are scored are among these texts."""
    candidate_names: Sequence[str] = ()
    """Of what lies in a folder: what it may be called, shorter names first."""
    folder_digest: str | None = None
    """Of what lies in a folder: the hash of the way to it from the results folder. Retrained there, it keeps its name."""
    assumptions: Sequence[str] = ()
    """What its own files do not say and was taken for granted: notes for its results."""
    notice: str = ""
    """A line for whoever named it: that a card was found for it."""

    def overlap_with(self, task: str) -> Overlap:
        """Whether its training text overlaps a task's test sentences; what it was fitted on is training text."""
        stated: Overlap = self.card.overlap if self.card else "unknown"
        if self.run is not None:
            stated = self.run.overlap_with(task)
        elif self.claimed_run is not None and (claimed := self.claimed_run.overlap_with(task)) in (
            "text",
            "gold",
        ):
            stated = claimed
        return "text" if self.fitted_on_task and stated != "gold" else stated

    @property
    def fingerprint(self) -> str | None:
        """What identifies its embeddings, with the texts it is fitted on."""
        own = encoder_identity(self.encoder)
        return (
            own if own is None or self.texts_digest is None else add_texts(own, self.texts_digest)
        )

    @property
    def train_seed(self) -> int | None:
        """The seed it was trained or fitted with, None where nothing was drawn."""
        return self.run.seed if self.run is not None else read_metadata(self.encoder).train_seed

    def notes(self) -> list[str]:
        """What a reader of its scores must know: which commit an open revision was, and how to keep it."""
        facts = read_metadata(self.encoder)
        found, asked = facts.revision, facts.revision_asked
        if found is None or asked in (None, found):
            return []
        keep = f"--set revision={found}"
        if self.card is not None:
            revision = f'revision = "{found}"'
            is_of_base = "base" in self.card.params and requirement(self.card.kind) == "texts"
            keep = f"{f'base_params = {{{revision}}}' if is_of_base else revision} in the card"
        return [
            f"the checkpoint of {self.name} is of revision '{asked}', today commit {found[:12]}; {keep} keeps it"
        ]


def variant_name(name: str, params: Mapping[str, Any], *, excluded: Sequence[str] = ()) -> str:
    """The name of an encoder with parameters replaced, without its device, ``excluded``, the folders of files, and secrets."""
    said = sorted(
        (key, value) for key, value in params.items() if key not in (*RUNTIME_PARAMETERS, *excluded)
    )
    return "+".join(
        [
            name,
            *(
                f"{key}={format_parameter(redact(strip_folders(value), key))}"
                for key, value in said
            ),
        ]
    )


def attach_name(named_encoder: NamedEncoder) -> Encoder:
    """Return the encoder, and keep with it what is known of it: its results say so, as those of its name do."""
    with suppress(AttributeError, TypeError):
        # What takes no attributes is known by its own name alone.
        object.__setattr__(
            named_encoder.encoder, _NAMED, (named_encoder, named_encoder.encoder.name)
        )
    return named_encoder.encoder


_NAMED = "_stsbench_known"


def find_named(encoder: Encoder, catalogue: Catalogue) -> NamedEncoder:
    """What is known of an encoder that a program hands over: what it was loaded with, unless its name was changed.

    One that the program made itself is called by its class where a card has its name and the class is not ours.
    """
    # Not by getattr: a wrapper may answer for what is inside it, and a copy holds what its original does.
    kept: tuple[NamedEncoder, str] | None = getattr(encoder, "__dict__", {}).get(_NAMED)
    if kept is not None and kept[0].encoder is encoder and kept[1] == encoder.name:
        return kept[0]
    kind = type(encoder)
    theirs = not kind.__module__.startswith("stsbench.")
    name = (
        f"{kind.__module__}:{kind.__qualname__}"
        if theirs and catalogue.is_taken(encoder.name)
        else encoder.name
    )
    return NamedEncoder(name=name, encoder=encoder)
