"""``stsbench run --dry-run``: what a run would do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from stsbench.bench.cells import RunPart
from stsbench.bench.dry_run import EncoderForecast
from stsbench.cli.printing import duration, print_json, print_rows, say

UNMEASURED, UNFITTED = "–", "?"
SAID = {UNMEASURED: "–: not measured yet", UNFITTED: "?: known when the encoder is fitted"}
"""Marks in the place of numbers, and what they say."""


def print_forecasts(forecasts: Sequence[EncoderForecast], failures: Sequence[str], *, as_json: bool) -> None:
    """Print a line an encoder and task: the seeds that are done and missing; then sentences and time."""
    if as_json:
        encoders = [_as_json(one) for one in forecasts]
        print_json({"encoders": encoders, "failures": failures})
        return
    lines = [line for one in forecasts for line in _lines(one.part)]
    if not lines:
        return
    columns = ["encoder", "task", "protocol", "seeds done", "missing"]
    print_rows(columns, lines)
    done, missing = (
        sum(map(len, cells)) for cells in zip(*((one.part.done, one.part.missing) for one in forecasts), strict=True)
    )
    say(f"{done} of {done + missing} scores are done, {missing} are missing")
    if todo := [one for one in forecasts if one.part.missing]:
        say("")
        rows = [
            [one.part.name, _sentences(one.part.to_embed), _time(one.embedding), _time(one.seconds)] for one in todo
        ]
        print_rows(["encoder", "sentences", "embedding", "scoring"], rows, right=[1, 2, 3])
        if unknown := {cell for row in rows for cell in row} & {UNMEASURED, UNFITTED}:
            say("; ".join(SAID[mark] for mark in sorted(unknown)))
        for one in todo:
            if one.part.tokens:
                say(f"{one.part.name}: about {one.part.tokens:,} tokens go to its server")
        known = [seconds for one in todo for seconds in (one.embedding, one.seconds) if seconds is not None]
        rest = " and what is not measured" if len(known) < 2 * len(todo) else ""
        say(f"In all about {_time(sum(known))}{rest}, by one worker on this machine")


def _lines(part: RunPart) -> Iterator[list[str]]:
    tasks = dict.fromkeys((cell.task, cell.protocol) for cell in part.cells)
    for task, protocol in tasks:
        seeds = [
            ",".join(str(cell.seed) for cell in cells if (cell.task, cell.protocol) == (task, protocol))
            for cells in (part.done, part.missing)
        ]
        yield [part.name, task, protocol, *seeds]


def _sentences(to_embed: int | None) -> str:
    return UNFITTED if to_embed is None else f"{to_embed:,}"


def _time(seconds: float | None) -> str:
    return UNMEASURED if seconds is None else duration(seconds and max(1, round(seconds)))


def _as_json(forecast: EncoderForecast) -> dict[str, object]:
    part = forecast.part
    cells = {
        what: [dataclasses.asdict(cell) for cell in some]
        for what, some in (("done", part.done), ("missing", part.missing))
    }
    return {
        "name": part.name,
        **cells,
        "to_embed": part.to_embed,
        "tokens": part.tokens,
        "embedding": forecast.embedding,
        "seconds": forecast.seconds,
    }
