"""Names of encoders as users give them: an option that may be repeated, each a comma list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from stsbench.errors import UnknownName


def chosen_encoders(given: Sequence[str], known: Iterable[str], where: Path) -> list[str]:
    """The encoders named, all of which ``where`` has results of; a comma inside brackets is part of a name.

    Raises:
        UnknownName: there are no results of one.
    """
    names = [name.strip() for one in given for name in re.split(r",(?![^(]*\))", one) if name.strip()]
    have = set(known)
    for name in names:
        if name not in have:
            raise UnknownName("encoder", name, have, hint=f"{where} has no results of it")
    return names
