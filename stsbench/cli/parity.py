"""``stsbench parity``."""

from __future__ import annotations

from typing import Any

import msgspec

from stsbench.bench.side import compared_sentences, measure_side
from stsbench.bench.tasks import plan_tasks, read_tasks
from stsbench.cards.catalogue import Catalogue
from stsbench.cli.exit_codes import NOT_SAME
from stsbench.cli.names import Names
from stsbench.cli.options.scores import ParityOptions
from stsbench.cli.printing import print_json, print_rows, say, say_words
from stsbench.cli.progress import status_listener
from stsbench.compare.alike import PROBES
from stsbench.compare.comparison import compare
from stsbench.compare.parity import ASTRAY, Embedded, Form, Parity, judge
from stsbench.compare.sentences import columns
from stsbench.encoders.loading import find_encoder
from stsbench.errors import StsbenchError, one_line, visible

OF_TASKS = "of the tasks"
LONGEST = 60
"""Signs of a sentence in a table."""


def parity_command(options: ParityOptions) -> int:
    """Hold two encoders against each other; returns 0 where they are one, else 1."""
    catalogue = Catalogue(options.cards)
    names = [Names(catalogue).one_to_load(one) for one in (options.first, options.second)]
    if names[0] == names[1]:
        raise StsbenchError(f"parity was given '{names[0]}' twice; give two encoders")
    known = [find_encoder(name, catalogue=catalogue) for name in names]
    tasks = read_tasks(
        plan_tasks(options.tasks, catalogue, protocol=options.protocol, data=options.data, split=options.split), _raise
    )
    sentences = [*PROBES, *((OF_TASKS, text) for text in compared_sentences(tasks))]
    with status_listener() as listener_of:
        sides = [
            measure_side(
                one,
                tasks,
                [text for _, text in sentences],
                store=None if options.no_store else options.store or "default",
                catalogue=catalogue,
                data=options.data,
                listener=listener_of(name),
            )
            for name, one in zip(names, known, strict=True)
        ]
    first, second = (Embedded(Form(side.type, side.embeddings.shape[1]), side.embeddings) for side in sides)
    comparison = compare({name: side.results for name, side in zip(names, sides, strict=True)})
    found = judge(first, second, sentences, comparison, margin=options.margin / 100)
    if options.as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    return 0 if found.same else NOT_SAME


def _raise(what: str, error: StsbenchError) -> None:
    raise error


def _print(found: Parity) -> None:
    comparison = found.comparison
    for letter, name, form in zip("AB", comparison.encoders, found.forms, strict=True):
        say(f"{letter} = {name} ({form})")
    if found.rows:
        rows = [[r.kind, f"{r.n}", f"{r.worst:.5f}", f"{r.median:.5f}", f"{r.astray}"] for r in found.rows]
        say("")
        heads = ["sentences", "n", "worst cosine", "median", f"below {ASTRAY:g}"]
        print_rows(heads, rows, right=range(1, 5))
        say(f"\nlargest distance of two embeddings: {found.distance:.2g} of the longer one's length")
    before, after = found.neighbour.cosines
    say_words(
        f"nearest neighbours: {100 * found.kept:.1f}% kept; the largest change of a cosine is {before:.3f} to {after:.3f}, "
        f"'{_short(found.neighbour.text)}' and '{_short(found.neighbour.neighbour)}'"
    )
    if found.strays:
        say("\nsentences that differ most\n")
        strays = [[f"{one.cosine:.5f}", one.kind, _short(one.text)] for one in found.strays]
        print_rows(["cosine", "kind", "sentence"], strays, right=[0], names=[1])
    say("")
    heads, cells = columns(comparison.differences)
    print_rows(heads, cells, right=range(1, len(heads)))
    for line in comparison.notes:
        say_words(line)
    say("")
    say_words(f"verdict: {found.verdict}")
    for reason in found.reasons:
        say_words(f"* {reason}")


def _short(text: str) -> str:
    shown = visible(one_line(text))
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _as_json(found: Parity) -> dict[str, Any]:
    return {
        "encoders": list(found.comparison.encoders),
        "same": found.same,
        **{
            key: msgspec.to_builtins(_named(getattr(found, key)))
            for key in ("verdict", "reasons", "forms", "rows", "distance", "strays", "neighbour", "kept")
        },
        "differences": msgspec.to_builtins(found.comparison.differences),
    }


def _named(value: Any) -> Any:  # noqa: ANN401 - any part of a Parity
    """A part with the names of its fields, which JSON of a tuple has not."""
    if hasattr(value, "_asdict"):
        return {key: _named(one) for key, one in value._asdict().items()}
    return [_named(one) for one in value] if isinstance(value, list | tuple) else value
