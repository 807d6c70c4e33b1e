"""What the encoders of one run have in common, so that it is made once: the engine of a base, and texts to fit on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from stsbench.bench.fit_texts import FitTexts
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.seams import Encoder


class Shared:
    """Holds the last of each: variants of one encoder follow each other, and two encoders may not fit in memory."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._engine: Engine | None = None
        self._only_look = False
        self._counted: set[str] = set()
        self._texts: tuple[Hashable, Mapping[str, FitTexts]] | None = None

    def engine(self, base: Encoder | None, make: Callable[[], Engine], *, only_look: bool) -> Engine:
        """Return the engine that embeds for a base; of no base one that is not held, and let the last one go."""
        if base is None:
            self._engine = None
            return make()
        if self._engine is None or self._engine.encoder is not base or self._only_look != only_look:
            self._engine, self._only_look, self._counted = make(), only_look, set()
        # What it has embedded for the encoder before, this one finds.
        self._engine.forget_encoded()
        return self._engine

    def uncounted(self, sentences: Sequence[str]) -> list[str]:
        """Those that have not been counted for the engine held: an encoder before will have embedded the others."""
        found = [one for one in dict.fromkeys(sentences) if one not in self._counted]
        self._counted.update(found)
        return found

    def texts(self, key: Hashable, read: Callable[[], Mapping[str, FitTexts]]) -> Mapping[str, FitTexts]:
        """Return what is read for a key, by task."""
        if self._texts is None or self._texts[0] != key:
            self._texts = key, read()
        return self._texts[1]
