"""``stsbench timing``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import Names
from stsbench.cli.options.encoders import TimingOptions
from stsbench.cli.printing import console, print_rows, say, say_words
from stsbench.cli.run import parse_assignments
from stsbench.errors import choose
from stsbench.files.whole import write_whole
from stsbench.leaderboard.published.rows import PublishedRow, published_rows
from stsbench.leaderboard.render.markdown import escape_markdown
from stsbench.recipes.timing import Timing, TimingPlan, Timings, measure

ENCODERS = ("bert-base-mean", "bert-base-wk", "bert-base-flow", "bert-base-whitening")
RECIPES = ("sg-opt-bert-base",)
"""What SG-OPT's table 6 times, and whitening."""
HEADS = ["encoder", "training", "inference", "of first", "at once"]
RIGHT = [1, 2, 3, 4]
NONE = "–"


def timing_command(options: TimingOptions) -> None:
    """Time encoders and recipes, and print or write the table."""
    write = choose("format", options.output, FORMATS)
    given, catalogue = bool(options.encoder or options.recipe), Catalogue(options.cards)
    names = Names(catalogue)
    with _progress() as on_progress:
        plan = TimingPlan(
            encoders=names.to_load(options.encoder) if given else ENCODERS,
            recipes=names.to_load(options.recipe) if given else RECIPES,
            params=parse_assignments(options.assign),
            base=names.one_to_load(options.base),
            task=options.task,
            split=options.split,
            batch_size=options.batch_size,
            rounds=options.rounds,
            steps=options.steps,
            device=options.device,
            data=options.data,
            catalogue=catalogue,
            on_progress=on_progress,
        )
        timings = measure(plan)
    if options.out is not None:
        say(f"written to {write_whole(options.out, write(timings).encode())}")
    elif options.output == "terminal":
        _print(timings)
    else:
        say(write(timings), end="")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show what is being timed, on stderr and only where someone watches."""
    from rich.text import Text

    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda what: None
        return
    with screen.status("loading") as status:
        yield lambda what: status.update(Text(what))


def _print(timings: Timings) -> None:
    say(f"{caption(timings)}\n")
    print_rows(HEADS, [_cells(one, timings) for one in timings.rows], right=RIGHT)
    if rows := _published(timings):
        say(f"\n{PUBLISHED}\n")
        print_rows(HEADS, rows, right=RIGHT)
    for line in notes(timings):
        say("")
        say_words(line)


def timings_to_markdown(timings: Timings) -> str:
    """The table, the published one under it, and what was timed."""
    lines = [f"**{escape_markdown(caption(timings))}**", "", _line(HEADS), _line(["---", *["---:"] * len(RIGHT)])]
    lines += [_line(map(escape_markdown, _cells(one, timings))) for one in timings.rows]
    if rows := _published(timings):
        lines += [_line([f"*{PUBLISHED}*", *[""] * len(RIGHT)]), *(_line(map(escape_markdown, row)) for row in rows)]
    for text in notes(timings):
        lines += ["", escape_markdown(text)]
    return "\n".join(lines) + "\n"


def timings_to_json(timings: Timings) -> str:
    """All that was measured."""
    return json.dumps(msgspec.to_builtins(timings), indent=1, ensure_ascii=False) + "\n"


FORMATS = {"terminal": timings_to_markdown, "markdown": timings_to_markdown, "json": timings_to_json}


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def caption(timings: Timings) -> str:
    """What the table is of."""
    return (
        f"Seconds on {timings.task}, split {timings.split}: {timings.sentences:,} sentences, "
        f"{timings.batch_size} at a time"
    )


def _cells(one: Timing, timings: Timings) -> list[str]:
    first = timings.rows[0].inference
    training = _seconds(one.training.seconds) + ("*" if _is_reckoned(one) else "") if one.training else NONE
    return [one.name, training, _seconds(one.inference), f"{one.inference / first:.2f}", _seconds(one.at_once)]


def _seconds(value: float) -> str:
    return f"{value:.2f}"


def _is_reckoned(one: Timing) -> bool:
    return one.training is not None and one.training.measured < one.training.steps


PUBLISHED = "SG-OPT, table 6: BERT-base on STS-B, batches of 16, another machine that is not named"


def _published(timings: Timings) -> list[list[str]]:
    """The paper's table, where the same text is timed."""
    rows = [row for row in published_rows().values() if (row.paper, row.table) == ("sgopt", "table-6")]
    if timings.task != "stsb":
        return []
    first = _of(rows[0], "inference_seconds") or 1.0
    return [_published_cells(row, first) for row in rows]


def _published_cells(row: PublishedRow, first: float) -> list[str]:
    training, inference = _of(row, "training_seconds"), _of(row, "inference_seconds")
    shown = [_seconds(value) if value is not None else NONE for value in (training, inference)]
    return [row.row, *shown, f"{inference / first:.2f}" if inference is not None else NONE, NONE]


def _of(row: PublishedRow, metric: str) -> float | None:
    return next((score.value for score in row.scores if score.metric == metric), None)


def notes(timings: Timings) -> Iterator[str]:
    """What was timed and what was not, and on which machine."""
    yield (
        f"Inference: encode called with {timings.batch_size} sentences at a time, in the order of the data, both of "
        "each pair and repeated ones again; 'of first' is how many times the first row's. At once: one call with all "
        "of them, as 'stsbench run' does, each distinct one embedded once. Tokenisation is in both, loading the model "
        f"and a first batch in neither. {_rounds(timings.rounds)}"
    )
    for one in timings.rows:
        if one.training is not None:
            yield f"Training of {one.name}{'*' if _is_reckoned(one) else ''}: {_training(one)}."
    used = ("python", "stsbench", "torch", "transformers")
    versions = ", ".join(f"{name} {timings.versions[name]}" for name in used if name in timings.versions)
    threads = f"{timings.threads} thread{'s' if timings.threads > 1 else ''}"
    yield f"Machine: {timings.processor}, device {timings.device}, {threads}; {versions}; {timings.created[:10]}."


def _rounds(count: int) -> str:
    return "One round." if count == 1 else f"Median of {count} rounds."


def _training(one: Timing) -> str:
    facts = one.training
    if facts is None:
        return ""
    if facts.texts:
        return f"fitted on {facts.texts:,} sentences; embedding them is in it, loading the model is not"
    whole = f"{facts.steps:,} steps of {facts.batch_size} rows of {facts.corpus} and {facts.validations} validations"
    outside = "loading model and text and writing the encoder are not in it"
    if _is_reckoned(one):
        return f"estimated for {whole}, from {facts.measured} steps taken; {outside}"
    return f"{whole}, no early stopping; {outside}"
