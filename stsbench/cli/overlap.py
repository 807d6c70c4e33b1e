"""``stsbench data overlap``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.counting import shown_progress
from stsbench.cli.options.catalogue import OverlapOptions
from stsbench.cli.printing import print_json, print_rows, say, say_words
from stsbench.data.corpora.load import load_corpus
from stsbench.data.corpora.overlap import Held, How, find_held, text_key
from stsbench.data.sources import is_at_hand
from stsbench.data.splits import Split
from stsbench.data.task import expand_names, load_task, tasks_in_order
from stsbench.errors import SourceError
from stsbench.files.whole import write_whole

HOW: Sequence[How] = ("exact", "normalised", "near")
NAMES = ("task", "in")
"""The columns that are no numbers."""
HELD = ("task", "item", "first", "second", "pair", "sentence1", "sentence2")
SHARED = ("task", "sentences", "in", "shared", "percent", "items", "held", "pairs")
"""The columns of what is written."""
CountRows = Sequence[Mapping[str, Any]]


def overlap_command(options: OverlapOptions) -> None:
    """Print what training text holds of the tests, or what tests share, and write which items."""
    splits = _tests(options)
    if not options.corpora_named:
        shared = list(_shared(splits))
        _written(shared, SHARED, options.out)
        _print(shared, [], options)
        return
    catalogue = Catalogue(options.cards)
    corpora = [
        load_corpus(name, corpora=options.corpora, data=options.data, catalogue=catalogue)
        for name in options.corpora_named
    ]
    texts = [text for split in splits.values() for text in split.texts()]
    with shown_progress("rows read") as told:
        held = find_held(corpora, texts, near=options.near, progress=told)
    _written([row for name, split in splits.items() for row in _items(name, split, held)], HELD, options.out)
    rows = [_counts(name, split, held) for name, split in splits.items()]
    if options.near is None:
        rows = [{key: value for key, value in row.items() if key != "near"} for row in rows]
    _print([row for row in rows if row["held"]], [row["task"] for row in rows if not row["held"]], options)


def _tests(options: OverlapOptions) -> dict[str, Split]:
    """The scored split of the tasks that are asked for, or of all that need no network."""
    catalogue = Catalogue(options.cards)
    names = expand_names(options.tasks, catalogue) if options.tasks else tasks_in_order(catalogue)
    tasks = [load_task(name, data=options.data, catalogue=catalogue) for name in names]
    if not options.tasks:
        tasks = [task for task in tasks if is_at_hand(task.card, task.data)]
    if not tasks:
        raise SourceError("no task's data are on this machine; run 'stsbench data fetch sts', or give --data DIR")
    return {task.name: task.load(task.card.score_split) for task in tasks}


def _counts(name: str, split: Split, held: Held) -> dict[str, Any]:
    """What training text holds of one test: distinct sentences by how they are held, and items."""
    distinct = set(split.texts())
    found = [held.how[text] for text in distinct if text in held.how]
    items = sum(map(any, held.items(split)))
    return {
        "task": name,
        "sentences": len(distinct),
        **{how: found.count(how) for how in HOW},
        "items": split.n,
        "held": items,
        "pairs": sum(held.paired(split)),
        "graded": sum(held.graded(split)),
        "left": split.n - items,
    }


def _items(name: str, split: Split, held: Held) -> Iterator[dict[str, Any]]:
    """The items of a test that training text holds any sentence of, counted from 0."""
    sides = zip(held.items(split), zip(*split.sides, strict=True), strict=True)
    facts = zip(sides, held.paired(split), held.graded(split), strict=True)
    for item, ((how, texts), paired, graded) in enumerate(facts):
        if any(how):
            pair = "graded" if graded else "text" if paired else ""
            hows, sentences = ([*one, ""][:2] for one in ([found or "" for found in how], texts))
            yield dict(zip(HELD, (name, item, *hows, pair, *sentences), strict=True))


def _shared(splits: Mapping[str, Split]) -> Iterator[dict[str, Any]]:
    """How much of each test is in each other one, most first."""
    items = {
        name: [tuple(map(text_key, item)) for item in zip(*split.sides, strict=True)] for name, split in splits.items()
    }
    keys = {name: {key for item in found for key in item} - {b""} for name, found in items.items()}
    pairs = {name: {frozenset(item) for item in found if len(item) > 1} for name, found in items.items()}
    for name, mine in items.items():
        rows: list[dict[str, Any]] = []
        for other in (other for other in splits if other != name and not keys[name].isdisjoint(keys[other])):
            both = keys[name] & keys[other]
            share = round(100 * len(both) / len(keys[name]), 1)
            touched = sum(not both.isdisjoint(item) for item in mine)
            alike = sum(frozenset(item) in pairs[other] for item in mine)
            facts = (name, len(keys[name]), other, len(both), share, len(mine), touched, alike)
            rows.append(dict(zip(SHARED, facts, strict=True)))
        yield from sorted(rows, key=lambda row: -row["shared"])


def _print(rows: CountRows, nothing: Sequence[str], options: OverlapOptions) -> None:
    if options.as_json:
        print_json(rows)
        return
    if rows:
        columns = list(rows[0])
        cells = [[str(row[column]) for column in columns] for row in rows]
        right = [at for at, column in enumerate(columns) if column not in NAMES]
        print_rows(columns, cells, right=right)
    named = ", ".join(options.corpora_named)
    if nothing:
        say_words(f"{named}: nothing of {', '.join(nothing)}")
    if named:
        say_words(f"held: items with a sentence in {named}; pairs: side by side there; graded: with a score or label")
    elif rows:
        say_words("shared: distinct sentences of the test in the other's; held: items with one; pairs: those of both")
    else:
        say("no test shares a sentence with another")
    if options.out is not None:
        say(f"wrote {options.out}")


def _written(rows: CountRows, columns: Sequence[str], out: Path | None) -> None:
    if out is None:
        return
    if out.suffix == ".json":
        write_whole(out, (json.dumps(rows, indent=1, ensure_ascii=False) + "\n").encode())
        return
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(out, stream.getvalue().encode())
