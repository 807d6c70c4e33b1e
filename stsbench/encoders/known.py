"""An encoder under the name that results give it, with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard, Overlap
from stsbench.cards.names import printed
from stsbench.encoders.facts import facts_of
from stsbench.encoders.kinds import FITTED
from stsbench.encoders.seams import Encoder
from stsbench.encoders.trained import TrainedRun
from stsbench.files.whole import without_folders
from stsbench.provenance.identity import PLACES, fitted_on, identity


@dataclass(frozen=True, kw_only=True)
class KnownEncoder:
    """An encoder under the name results give it, with its card and the card's hash where it has one."""

    name: str
    encoder: Encoder
    card: EncoderCard | None = None
    card_digest: str | None = None
    run: TrainedRun | None = None
    claims: TrainedRun | None = None
    """The record of training that lies beside a checkpoint given by its place: believed where it speaks against it."""
    fitted_on: str | None = None
    """The hash of the texts that it is fitted on, for an encoder that is."""
    saw_task: bool = False
    """Whether sentences that are scored are among these texts."""
    asked: str | None = None
    """The revision that its card or ``--set`` names, where its checkpoint may come from the Hub."""
    names: Sequence[str] = ()
    """Of what lies in a folder: what it may be called, shorter names first."""
    assumed: Sequence[str] = ()
    """What its own files do not say and was taken for granted: notes for its results."""
    told: str = ""
    """What whoever named it is to be told: that a card was found for it."""

    def overlap_with(self, task: str) -> Overlap:
        """Whether its training text overlaps a task's test sentences; what it was fitted on is training text."""
        stated: Overlap = self.card.overlap if self.card else "unknown"
        if self.run is not None:
            stated = self.run.overlap_with(task)
        elif self.claims is not None and (claimed := self.claims.overlap_with(task)) in ("text", "gold"):
            stated = claimed
        return "text" if self.saw_task and stated != "gold" else stated

    @property
    def fingerprint(self) -> str | None:
        """What identifies its embeddings, with the texts it is fitted on."""
        own = identity(self.encoder)
        return own if own is None or self.fitted_on is None else fitted_on(own, self.fitted_on)

    @property
    def train_seed(self) -> int | None:
        """The seed it was trained or fitted with, None where nothing was drawn."""
        return self.run.seed if self.run is not None else facts_of(self.encoder).train_seed

    @property
    def revision(self) -> str | None:
        """The commit its checkpoint was resolved to, where it came from the Hub."""
        return facts_of(self.encoder).revision

    def notes(self) -> list[str]:
        """What a reader of its scores must know: which commit an open revision was, and how to keep it."""
        found = self.revision
        if self.asked is None or found is None or found == self.asked:
            return []
        line = f'revision = "{found}"'
        if self.card is None:
            keep = f"--set revision={found}"
        else:
            keep = f"{f'base_params = {{{line}}}' if self.card.kind in FITTED else line} in the card"
        return [
            f"the checkpoint of {self.name} is of revision '{self.asked}', today commit {found[:12]}; {keep} keeps it"
        ]


def variant_name(name: str, extra: Mapping[str, Any], *, places: Sequence[str] = ()) -> str:
    """The name of an encoder whose parameters were replaced: no other result may pass for its own.

    Where it runs is no part of it, nor what else is named in ``places``, nor in which folder of this machine a file lies.
    """
    told = sorted((key, value) for key, value in extra.items() if key not in (*PLACES, *places))
    return "+".join([name, *(f"{key}={printed(without_folders(value))}" for key, value in told)])


def keep_known(known: KnownEncoder) -> Encoder:
    """Return the encoder, and keep with it what is known of it: its results say so, as those of its name do."""
    with suppress(AttributeError, TypeError):
        # What takes no attributes is known by its own name alone.
        object.__setattr__(known.encoder, _KNOWN, _Kept(known, known.encoder.name))
    return known.encoder


class _Kept(NamedTuple):
    known: KnownEncoder
    called: str


_KNOWN = "_stsbench_known"


def known_as(encoder: Encoder, catalogue: Catalogue) -> KnownEncoder:
    """What is known of an encoder that a program hands over: what it was loaded with, unless its name was changed.

    One that the program made itself is called by its class where a card has its name and the class is not ours.
    """
    # Not by getattr: a wrapper may answer for what is inside it, and a copy holds what its original does.
    kept: _Kept | None = getattr(encoder, "__dict__", {}).get(_KNOWN)
    if kept is not None and kept.known.encoder is encoder and kept.called == encoder.name:
        return kept.known
    kind = type(encoder)
    theirs = not kind.__module__.startswith("stsbench.")
    name = f"{kind.__module__}:{kind.__qualname__}" if theirs and catalogue.is_taken(encoder.name) else encoder.name
    return KnownEncoder(name=name, encoder=encoder)
