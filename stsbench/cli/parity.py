"""``stsbench parity``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.compare import print_differences
from stsbench.cli.option_values import resolve_spec, resolve_store
from stsbench.cli.printing import (
    print_error,
    print_json,
    print_paragraph,
    print_text,
    shorten_line,
    show_work,
)
from stsbench.cli.tables import print_rows
from stsbench.cli.wording import notes_with_commands
from stsbench.core.errors import EXIT_DIFFERENCE, EXIT_USER_ERROR, StsbenchError

if TYPE_CHECKING:
    from stsbench.bench.plan import RunPlan
    from stsbench.significance.parity import Parity

TASK_SENTENCES = "of the tasks"
"""The kind of the tasks' sentences, beside the kinds of unusual ones."""


def parity_command(
    first: opt.FirstEncoder,
    second: opt.SecondEncoder,
    *,
    tasks: opt.TasksToScore = "sts",
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    margin: opt.Margin = 0.5,
    data: opt.DataFolder = None,
    store: opt.StoreFolder = None,
    no_store: opt.NoStore = False,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Test whether two encoders are the same.

    Both embed the same sentences: those of the tasks, and long, empty and other unusual ones. The
    exit code is 0 if they are the same, 1 if they are different, 2 if these items cannot tell.

    Example: stsbench parity minilm minilm+dtype=bfloat16 --tasks stsb
    """
    from stsbench.bench.plan import RunPlan
    from stsbench.significance.parity import UNKNOWN

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    store_folder = resolve_store(store, no_store=no_store)
    specs = [resolve_spec(name, catalogue) for name in (first, second)]
    if specs[0] == specs[1]:
        raise StsbenchError(f"parity was given '{specs[0]}' twice; give two encoders")
    plan = RunPlan(
        tasks=tasks,
        protocol=protocol,
        data=data,
        split=split,
        store=store_folder,
        catalogue=catalogue,
    )
    # The user gives the margin in points; scores are not times 100.
    parity = _compare_encoders(specs, plan, margin=margin / 100)
    if as_json:
        _print_parity_json(parity)
    else:
        _print_parity(parity)
    # ``same``: to rounding, or so near that it does not matter.
    if parity.verdict == UNKNOWN:
        return EXIT_USER_ERROR
    return 0 if parity.same else EXIT_DIFFERENCE


def _compare_encoders(specs: Sequence[str], plan: RunPlan, *, margin: float) -> Parity:
    """Embed the same sentences by two encoders, score both, and judge whether they are the same.

    The sentences are those of the tasks and, unless an encoder is a file of embeddings, which has
    no others, unusual ones (long, empty) that encoders may treat differently.

    Args:
        specs: The two encoders.
        plan: The tasks and how to score them.
        margin: How far scores of identical encoders may be apart, from 0 to 1.

    Returns:
        The verdict, with how far embeddings, nearest neighbours and scores differ.
    """
    from stsbench.bench.embedder import base_encoder
    from stsbench.bench.progress import RunCallbacks
    from stsbench.bench.run import RunContext
    from stsbench.bench.score import measure_encoder, select_sentences
    from stsbench.encoders.base import FixedTextsEncoder
    from stsbench.encoders.load import load_named
    from stsbench.significance.comparison import compare
    from stsbench.significance.parity import (
        PROBES,
        EmbeddingForm,
        EncoderEmbeddings,
        compare_embeddings,
    )

    encoders = [load_named(spec, catalogue=plan.catalogue) for spec in specs]
    context = RunContext(plan, RunCallbacks().with_raised_failures())
    planned_tasks = list(context.tasks.values())
    kinds_and_texts = [(TASK_SENTENCES, text) for text in select_sentences(planned_tasks)]
    # Without what transforms their embeddings, such as whitening.
    bases = [base_encoder(encoder.encoder) for encoder in encoders]
    # FixedTextsEncoder: a file of embeddings. PROBES: the unusual sentences with their kinds.
    if not any(isinstance(base, FixedTextsEncoder) for base in bases):
        kinds_and_texts = [*PROBES, *kinds_and_texts]
    texts = [text for _, text in kinds_and_texts]
    measurements = []
    with show_work() as display:
        for spec, encoder in zip(specs, encoders, strict=True):
            callbacks = display.make_callbacks(spec, on_notice=print_error).with_raised_failures()
            embedder = context.make_embedder(encoder, planned_tasks, callbacks)
            # The embeddings of the texts, one row each, and a result per task.
            measurements.append(measure_encoder(embedder, texts, callbacks))
    first, second = (
        EncoderEmbeddings(
            EmbeddingForm(measurement.embedding_type, measurement.embeddings.shape[1]),
            measurement.embeddings,
        )
        for measurement in measurements
    )
    results_by_spec = {
        spec: measurement.results for spec, measurement in zip(specs, measurements, strict=True)
    }
    score_comparison = compare(results_by_spec)
    score_comparison = replace(score_comparison, notes=notes_with_commands(score_comparison.notes))
    return compare_embeddings(
        first, second, kinds_and_texts, comparison=score_comparison, margin=margin
    )


def _print_parity_json(parity: Parity) -> None:
    """Print the verdict on two encoders as JSON, with its numbers and the differences of scores.

    Args:
        parity: The result of the comparison; its attributes become keys of the JSON object.
    """
    names = ("verdict", "reasons", "forms", "rows", "distance", "strays", "neighbour", "kept")
    # Named tuples become dicts.
    fields = {name: _tuples_to_dicts(getattr(parity, name)) for name in names}
    print_json(
        {
            "encoders": parity.comparison.encoders,
            "same": parity.same,
            **msgspec.to_builtins(fields),
            "differences": msgspec.to_builtins(parity.comparison.differences),
        }
    )


def _print_parity(parity: Parity) -> None:
    """Print how far the embeddings, neighbours and scores of two encoders differ, and the verdict.

    Embeddings of different forms (types or numbers of dimensions) have no cosines, so that there is
    no table of them.

    Args:
        parity: The result of the comparison. ``kept`` is the share of sentences whose nearest
            neighbour is the same by both encoders, ``neighbour`` the neighbour whose cosine differs
            most, and ``strays`` are the sentences whose two embeddings differ most.
    """
    from stsbench.significance.parity import OUTLIER_LIMIT

    comparison = parity.comparison
    for letter, name, form in zip("AB", comparison.encoders, parity.forms, strict=True):
        print_text(f"{letter} = {name} ({form})")
    # Each row is on one kind of sentence, with the cosines of the two encoders' embeddings of each
    # sentence: the worst, the median, and how many are below the limit (``astray``).
    if parity.rows:
        rows = [
            [row.kind, f"{row.n}", f"{row.worst:.5f}", f"{row.median:.5f}", f"{row.astray}"]
            for row in parity.rows
        ]
        print_text("")
        heads = ["sentences", "n", "worst cosine", "median", f"below {OUTLIER_LIMIT:g}"]
        print_rows(heads, rows, number_columns=range(1, 5))
        print_text(
            f"\nlargest distance of two embeddings: {parity.distance:.2g} of the longer one's "
            "length"
        )
    # A sentence (text), its nearest neighbour, and their cosine by each encoder.
    neighbour = parity.neighbour
    first_cosine, second_cosine = neighbour.cosines
    print_paragraph(
        f"nearest neighbours: {100 * parity.kept:.1f}% kept; the largest change of a cosine is "
        f"{first_cosine:.3f} to {second_cosine:.3f}, "
        f"'{shorten_line(neighbour.text)}' and '{shorten_line(neighbour.neighbour)}'"
    )
    if parity.strays:
        print_text("\nsentences that differ most\n")
        outliers = [
            [f"{outlier.cosine:.5f}", outlier.kind, shorten_line(outlier.text)]
            for outlier in parity.strays
        ]
        print_rows(["cosine", "kind", "sentence"], outliers, number_columns=[0], name_columns=[1])
    print_text("")
    print_differences(comparison.differences, comparison.level)
    print_paragraph(*comparison.notes)
    print_text("")
    print_paragraph(f"verdict: {parity.verdict}", *(f"* {reason}" for reason in parity.reasons))


def _tuples_to_dicts(value: Any) -> Any:  # noqa: ANN401 - any part of a Parity
    """Return a value in which named tuples are dicts, so that JSON has the names of fields."""
    if hasattr(value, "_asdict"):
        return {name: _tuples_to_dicts(field) for name, field in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [_tuples_to_dicts(element) for element in value]
    return value
