"""Results whose per-item columns are not at hand, and the command that makes them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from stsbench.results.record import Result, items_path

USUAL = ("simcse", "senteval")
"""The protocols that a run takes by itself."""
NAMED = 3
"""So many encoders a command names."""
USUAL_FOLDER = Path("results")


def has_columns(result: Result) -> bool:
    """Whether a Result holds per-item columns, or a file of them lies beside its own."""
    return bool(result.per_item) or (result.path is not None and os.path.lexists(items_path(result.path)))


def lacking_columns(results: Iterable[Result]) -> list[Result]:
    """Those of the Results whose per-item columns are not at hand."""
    return [result for result in results if not has_columns(result)]


def lacking_said(lacking: Sequence[Result]) -> str:
    """The beginning of a sentence on Results that lack per-item columns."""
    first, *others = lacking
    more = f" (and {len(others)} more results)" if others else ""
    return f"no per-item columns of {first.encoder} on {first.task}{more}"


def command_again(results: Sequence[Result]) -> str:
    """The command that scores these Results again and writes their per-item columns; of many encoders, of any one."""
    encoders, tasks = (list(dict.fromkeys(of)) for of in ([r.encoder for r in results], [r.task for r in results]))
    named = encoders if len(encoders) <= NAMED else ["ENCODER"]
    words = ["stsbench", "run", "--fresh", *named, "--tasks", ",".join(tasks)]
    protocols = dict.fromkeys(str(result.protocol["name"]) for result in results)
    if not set(protocols) <= set(USUAL):
        words += ["--protocol", ",".join(protocols)]
    seeds = sorted({result.eval_seed for result in results})
    if seeds != [0]:
        words += ["--seeds", ",".join(map(str, seeds))]
    splits = dict.fromkeys(result.split for result in results if result.split not in ("test", "all"))
    if splits:
        words += ["--split", next(iter(splits))]
    folders = {result.path.parent.parent for result in results if result.path is not None} - {USUAL_FOLDER}
    if len(folders) == 1:
        words += ["--results", str(folders.pop())]
    return shlex.join(words)
