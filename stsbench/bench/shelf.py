"""Where an encoder's embeddings are kept: its folder in the store, or memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

from stsbench import settings
from stsbench.encoders.engine.drift import Watch
from stsbench.encoders.engine.store import Shelf
from stsbench.encoders.seams import Encoder, ServedEncoder
from stsbench.provenance.identity import fitted_on, identity

Store = Path | str | None
"""Where embeddings are kept: a folder, ``default`` for the user's cache folder, or None for memory alone."""


def open_shelf(
    store: Store, encoder: Encoder, texts: str = "", *, only_look: bool = False, checked: bool = False
) -> Shelf:
    """The encoder's shelf in the store, by the hash of the texts it is fitted on too; in memory where nothing may be kept.

    With ``checked`` another process of this run has seen that the encoder still embeds as it did.
    """
    identified = identity(encoder)
    if store is None or identified is None:
        return Shelf(None)
    identified = fitted_on(identified, texts) if texts else identified
    folder = settings.store_folder() if store == "default" else Path(store)
    mine = folder / hashlib.sha256(identified.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    if isinstance(encoder, ServedEncoder):
        # Nothing here computes: what is paid for stays, whatever machine it is read on.
        return Shelf(mine, only_look=only_look)
    watch = Watch(mine, encoder)
    if not only_look and not checked:
        watch.check()
    return Shelf(watch.folder, watch, only_look=only_look)
