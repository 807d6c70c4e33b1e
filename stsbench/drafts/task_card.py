"""A task card as the text of a file, with comments for who reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stsbench.cards.facts import FileSource, TaskCard
from stsbench.cards.toml_text import toml, toml_key
from stsbench.drafts.draft import UNKNOWN, Home, lines_of

COMMENTS = {
    "name": "what tables print",
    "paper": "where the task is described, or 'none'",
    "license": "the licence of the data",
    "options": "features of a pair: |u - v| and u * v, as SentEval has them; f1 = true adds the F1 of class 1",
    "score_split": "the split that is scored",
    "folder": "where the data are, seen from this card's folder",
    "params": "what the columns are called; the format of the files is found",
}
"""What is said above a key."""
HUB_COMMENTS = {
    "revision": "the commit that was read: the Hub's own hashes of its files hold the data to it",
    "splits": "what the Hub calls the splits",
    "columns": "what the columns are called, where not sentence1, sentence2 and score",
}


def write_task_card(card: TaskCard, home: Home, *, unsure: Sequence[str], notes: Mapping[str, str]) -> str:
    """Return a card's text.

    Args:
        card: what it says; its folder of data, where it has one, is absolute.
        home: where it goes: the folder is written as seen from there.
        unsure: what is not sure of the whole, one line each.
        notes: what is not sure of a key.
    """
    comments = {**COMMENTS, **{key: f"unsure: {line}" for key, line in notes.items()}}
    top = _said(card, "name", "evaluator", "languages", "paper", "license", "gold_range", "options", "score_split")
    if card.score_split == "test":
        del top["score_split"]
    lines = [f"# A draft of 'stsbench new task'; docs/tasks.md explains every key. '{UNKNOWN}' is yours to fill in."]
    lines += [f"# unsure: {line}" for line in unsure]
    lines += lines_of(top, comments)
    for split, facts in card.splits.items():
        lines += ["", f"[splits.{toml_key(split)}]", *lines_of(_said(facts, *facts.__struct_fields__), {})]
    lines += _local_lines(card.local, home, comments) if card.local is not None else []
    if card.hub is not None:
        told = _said(card.hub, "repo", "revision", "config", "splits", "columns", "classes")
        lines += ["", "[hub]", *lines_of(told, HUB_COMMENTS)]
    return "\n".join(lines) + "\n"


def _local_lines(local: FileSource, home: Home, comments: Mapping[str, str]) -> list[str]:
    source: dict[str, object] = {"folder": seen_from(Path(local.folder), home.path.parent), "params": local.params}
    lines = ["", "[local]", *lines_of(source, comments), "", "[local.files]"]
    for split, files in local.files.items():
        told = ", ".join(toml(_said(file, "path", "sha256")) for file in files)
        lines.append(f"{toml_key(split)} = [{told}]")
    return lines


def _said(record: msgspec.Struct, *names: str) -> dict[str, Any]:
    """These fields of a record, but for those that are empty."""
    found = {name: getattr(record, name) for name in names}
    return {name: value for name, value in found.items() if value not in (None, "", {}, [], 0)}


def seen_from(folder: Path, place: Path) -> str:
    """A folder as a card in another writes it: by the way there, or where they share nothing by its whole path."""
    folder, place = folder.resolve(), place.resolve()
    if len(os.path.commonpath([folder, place])) < 2:
        return str(folder)
    way = Path(os.path.relpath(folder, place)).as_posix()
    return way if way.startswith(".") else f"./{way}"
