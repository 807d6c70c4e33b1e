"""``stsbench parity``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.compare import print_differences
from stsbench.cli.printing import (
    print_error,
    print_json,
    print_paragraph,
    print_rows,
    print_text,
    shorten_line,
    show_work,
)
from stsbench.core.errors import EXIT_DIFFERENCE, StsbenchError

if TYPE_CHECKING:
    from stsbench.significance.parity import Parity

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
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Test whether two encoders that should be identical are.

    The same sentences go through both: those of the tasks, and long, empty and other odd ones. The exit code is 0 where they
    are the same, 1 where they are different.

    Example: stsbench parity minilm minilm+dtype=bfloat16 --tasks stsb
    """
    from stsbench.bench.plan import RunPlan
    from stsbench.bench.progress import RunCallbacks
    from stsbench.bench.run import RunContext
    from stsbench.bench.score import measure_encoder, select_sentences
    from stsbench.encoders.load import load_named
    from stsbench.significance.comparison import compare
    from stsbench.significance.parity import (
        PROBES,
        EmbeddingForm,
        EncoderEmbeddings,
        compare_embeddings,
    )

    catalogue = opt.read_cards(cards)
    kept = opt.resolve_store(store, no_store=no_store)
    names = [opt.resolve_spec(one, catalogue) for one in (first, second)]
    if names[0] == names[1]:
        raise StsbenchError(f"parity was given '{names[0]}' twice; give two encoders")
    known = {name: load_named(name, catalogue=catalogue) for name in names}
    plan = RunPlan(
        tasks=tasks, protocol=protocol, data=data, split=split, store=kept, catalogue=catalogue
    )

    context = RunContext(plan, RunCallbacks().with_raised_failures())
    planned_tasks = list(context.tasks.values())
    sentences = [*PROBES, *((OF_TASKS, text) for text in select_sentences(planned_tasks))]
    texts = [text for _, text in sentences]
    sides = []
    with show_work() as display:
        for name, encoder in known.items():
            callbacks = display.make_callbacks(name, on_notice=print_error).with_raised_failures()
            embedder = context.make_embedder(encoder, planned_tasks, callbacks)
            sides.append(measure_encoder(embedder, texts, callbacks))
    embedded = [
        EncoderEmbeddings(
            EmbeddingForm(side.embedding_type, side.embeddings.shape[1]), side.embeddings
        )
        for side in sides
    ]
    comparison = compare({name: side.results for name, side in zip(known, sides, strict=True)})
    found = compare_embeddings(embedded[0], embedded[1], sentences, comparison, margin=margin / 100)
    if as_json:
        keys = ("verdict", "reasons", "forms", "rows", "distance", "strays", "neighbour", "kept")
        facts = {key: msgspec.to_builtins(_named(getattr(found, key))) for key in keys}
        differences = msgspec.to_builtins(comparison.differences)
        print_json(
            {
                "encoders": comparison.encoders,
                "same": found.same,
                **facts,
                "differences": differences,
            }
        )
    else:
        _print_parity(found)
    return 0 if found.same else EXIT_DIFFERENCE


def _print_parity(found: Parity) -> None:
    from stsbench.significance.parity import OUTLIER_LIMIT

    comparison = found.comparison
    for letter, name, form in zip("AB", comparison.encoders, found.forms, strict=True):
        print_text(f"{letter} = {name} ({form})")
    if found.rows:
        rows = [
            [r.kind, f"{r.n}", f"{r.worst:.5f}", f"{r.median:.5f}", f"{r.astray}"]
            for r in found.rows
        ]
        print_text("")
        heads = ["sentences", "n", "worst cosine", "median", f"below {OUTLIER_LIMIT:g}"]
        print_rows(heads, rows, right=range(1, 5))
        print_text(
            f"\nlargest distance of two embeddings: {found.distance:.2g} of the longer one's length"
        )
    before, after = found.neighbour.cosines
    print_paragraph(
        f"nearest neighbours: {100 * found.kept:.1f}% kept; the largest change of a cosine is {before:.3f} to {after:.3f}, "
        f"'{shorten_line(found.neighbour.text)}' and '{shorten_line(found.neighbour.neighbour)}'"
    )
    if found.strays:
        print_text("\nsentences that differ most\n")
        strays = [[f"{one.cosine:.5f}", one.kind, shorten_line(one.text)] for one in found.strays]
        print_rows(["cosine", "kind", "sentence"], strays, right=[0], names=[1])
    print_text("")
    print_differences(comparison.differences)
    print_paragraph(*comparison.notes)
    print_text("")
    print_paragraph(f"verdict: {found.verdict}", *(f"* {reason}" for reason in found.reasons))


def _named(value: Any) -> Any:  # noqa: ANN401 - any part of a Parity
    """A part with the names of its fields, which JSON of a tuple has not."""
    if hasattr(value, "_asdict"):
        return {key: _named(one) for key, one in value._asdict().items()}
    return [_named(one) for one in value] if isinstance(value, list | tuple) else value
