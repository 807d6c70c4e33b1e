"""``stsbench parity``."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from stsbench.bench.plan import RunPlan, read_tasks
from stsbench.bench.score import compared_sentences, measure_side
from stsbench.cli import options as opt
from stsbench.cli.compare import print_differences
from stsbench.cli.printing import complain, cut, print_json, print_rows, say, say_words, shown_work
from stsbench.core.errors import NOT_SAME, StsbenchError
from stsbench.encoders.load import find_encoder
from stsbench.significance.comparison import compare
from stsbench.significance.parity import ASTRAY, PROBES, Embedded, Form, Parity, judge

OF_TASKS = "of the tasks"


def parity_command(
    first: opt.FirstEncoder,
    second: opt.SecondEncoder,
    *,
    tasks: opt.TasksToScore = "sts",
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    margin: opt.Margin = 0.5,
    data: opt.Data = None,
    store: opt.Store = None,
    no_store: opt.NoStore = False,
    catalogue: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Test whether two encoders that should be identical are.

    The same sentences go through both: those of the tasks, and long, empty and other odd ones. The exit code is 0 where they
    are the same, 1 where they are different.

    Example: stsbench parity minilm minilm+dtype=bfloat16 --tasks stsb
    """
    kept = opt.kept_in(store, no_store=no_store)
    names = [opt.to_load(one, catalogue) for one in (first, second)]
    if names[0] == names[1]:
        raise StsbenchError(f"parity was given '{names[0]}' twice; give two encoders")
    known = {name: find_encoder(name, catalogue=catalogue) for name in names}
    plan = RunPlan(tasks=tasks, protocol=protocol, data=data, split=split, store=kept, catalogue=catalogue)

    def refuse(what: str, error: StsbenchError) -> None:
        raise error

    scored = read_tasks(plan.scored, refuse)
    sentences = [*PROBES, *((OF_TASKS, text) for text in compared_sentences(scored))]
    with shown_work() as shown:
        texts, listener = [text for _, text in sentences], partial(shown.listener, noticed=complain)
        sides = [measure_side(one, scored, texts, plan, listener(name)) for name, one in known.items()]
    embedded = [Embedded(Form(side.type, side.embeddings.shape[1]), side.embeddings) for side in sides]
    comparison = compare({name: side.results for name, side in zip(known, sides, strict=True)})
    found = judge(embedded[0], embedded[1], sentences, comparison, margin=margin / 100)
    if as_json:
        keys = ("verdict", "reasons", "forms", "rows", "distance", "strays", "neighbour", "kept")
        facts = {key: msgspec.to_builtins(_named(getattr(found, key))) for key in keys}
        differences = msgspec.to_builtins(comparison.differences)
        print_json({"encoders": comparison.encoders, "same": found.same, **facts, "differences": differences})
    else:
        _print_parity(found)
    return 0 if found.same else NOT_SAME


def _print_parity(found: Parity) -> None:
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
        f"'{cut(found.neighbour.text)}' and '{cut(found.neighbour.neighbour)}'"
    )
    if found.strays:
        say("\nsentences that differ most\n")
        strays = [[f"{one.cosine:.5f}", one.kind, cut(one.text)] for one in found.strays]
        print_rows(["cosine", "kind", "sentence"], strays, right=[0], names=[1])
    say("")
    print_differences(comparison.differences)
    say_words(*comparison.notes)
    say("")
    say_words(f"verdict: {found.verdict}", *(f"* {reason}" for reason in found.reasons))


def _named(value: Any) -> Any:  # noqa: ANN401 - any part of a Parity
    """A part with the names of its fields, which JSON of a tuple has not."""
    if hasattr(value, "_asdict"):
        return {key: _named(one) for key, one in value._asdict().items()}
    return [_named(one) for one in value] if isinstance(value, list | tuple) else value
