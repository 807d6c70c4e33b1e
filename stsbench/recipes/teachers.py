"""The encoders that a method learns from besides its text: found by name, their embeddings kept in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from stsbench.bench.shelf import open_shelf
from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import StoredEmbeddings
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.loading import find_encoder
from stsbench.encoders.seams import FloatArray, TextFitted
from stsbench.errors import CardError
from stsbench.training.loop.place import Place
from stsbench.training.seams import Rows, Taught


@dataclass(frozen=True)
class Teachers:
    """Encoders under their names."""

    known: Sequence[KnownEncoder] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalogue: Catalogue) -> Teachers:
        """Find them.

        Raises:
            CardError: one is fitted on texts; as :func:`stsbench.load_encoder` otherwise.
        """
        found = [find_encoder(name, catalogue=catalogue) for name in names]
        for name, one in zip(names, found, strict=True):
            if isinstance(one.encoder, TextFitted):
                raise CardError(f"teacher '{name}' is fitted on texts; name an encoder that is not")
        return cls(found)

    def fingerprints(self) -> dict[str, str]:
        """What identifies the embeddings of each, by its name; empty where nothing does."""
        return {one.name: one.fingerprint or "" for one in self.known}

    def of(self, texts: Sequence[str], place: Place) -> list[Taught]:
        """What gives each one's embeddings of some of these texts; the first process embeds what the store lacks."""
        taught: list[Taught] = []
        for one in self.known:
            if place.rank == 0:
                taught.append(partial(_rows, _embedded(one, texts)))
            place.wait()
            if place.rank != 0:
                taught.append(partial(_rows, _embedded(one, texts)))
        return taught


def _embedded(known: KnownEncoder, texts: Sequence[str]) -> StoredEmbeddings:
    return Engine(known.encoder, open_shelf("default", known.encoder))(texts)


def _rows(embeddings: StoredEmbeddings, rows: Rows) -> FloatArray:
    return embeddings.take(rows)
