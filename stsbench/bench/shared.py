"""What the encoders of one run have in common, so that it is made once: the engine of a base, and texts to fit on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from stsbench.bench.fit_texts import FitTexts
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import StoredEmbeddings
from stsbench.encoders.seams import Encoder, ServedEncoder


class Missing(NamedTuple):
    """What the store lacks: distinct sentences, and the tokens that a server would be sent for them, where it is one."""

    sentences: int
    tokens: int | None = None

    @classmethod
    def of(cls, engine: Engine, sentences: Sequence[str]) -> Missing:
        """What an engine would embed of these sentences."""
        texts, encoder = engine.missing(sentences), engine.encoder
        return cls(len(texts), encoder.count_tokens(texts) if isinstance(encoder, ServedEncoder) else None)


class Divisible(NamedTuple):
    """What several workers can embed together: by which engine, and which texts."""

    engine: Engine
    texts: list[str]

    @classmethod
    def of(cls, engine: Engine, texts: list[str]) -> Divisible | None:
        """None of what is kept in memory alone, and of a server, which has limits of its own."""
        alone = engine.shelf.folder is None or isinstance(engine.encoder, ServedEncoder)
        return None if alone else cls(engine, texts)


class SharedEngine:
    """The engine of one base, for all encoders that are made of its embeddings."""

    def __init__(self, engine: Engine, *, only_look: bool) -> None:
        """Keep the engine, and whether it may only look into the store."""
        self.engine, self.only_look = engine, only_look
        self._counted: set[str] = set()
        self._views: dict[tuple[str, ...], StoredEmbeddings] = {}

    def view(self, sentences: Sequence[str]) -> StoredEmbeddings:
        """Return the embeddings of these sentences; where they lie is looked up once."""
        key = tuple(sentences)
        if key not in self._views:
            self._views[key] = self.engine(sentences)
        return self._views[key]

    def uncounted(self, sentences: Sequence[str]) -> list[str]:
        """Those that have not been counted: an encoder before will have embedded the others."""
        found = [one for one in dict.fromkeys(sentences) if one not in self._counted]
        self._counted.update(found)
        return found


class Shared:
    """Holds the last of each: variants of one encoder follow each other, and two encoders may not fit in memory."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._engine: SharedEngine | None = None
        self._texts: tuple[Hashable, Mapping[str, FitTexts]] | None = None

    def engine(self, base: Encoder, make: Callable[[], Engine], *, only_look: bool) -> SharedEngine:
        """Return the engine that embeds for a base."""
        held = self._engine
        if held is None or held.engine.encoder is not base or held.only_look != only_look:
            held = self._engine = SharedEngine(make(), only_look=only_look)
        # What it has embedded for the encoder before, this one finds.
        held.engine.forget_encoded()
        return held

    def let_go(self) -> None:
        """Hold no engine any more: an encoder follows that has no base."""
        self._engine = None

    def texts(self, key: Hashable, read: Callable[[], Mapping[str, FitTexts]]) -> Mapping[str, FitTexts]:
        """Return what is read for a key, by task."""
        if self._texts is None or self._texts[0] != key:
            self._texts = key, read()
        return self._texts[1]
