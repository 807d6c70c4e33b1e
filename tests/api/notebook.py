"""What a notebook shows of an object."""

from __future__ import annotations

METHOD = "_repr_html_"
"""What notebooks look for."""


def page_of(thing: object) -> str:
    return str(getattr(thing, METHOD)())
