"""``stsbench data overlap``: test sentences in training text, and in other tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.cli import options as opt
from stsbench.cli.printing import print_json, print_paragraph, print_text, show_count, write_records
from stsbench.cli.tables import print_records
from stsbench.cli.typed_options import TypedOptions
from stsbench.core.errors import SourceError, StsbenchError

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.data.corpora.overlap import MatchKind, OverlapMatches
    from stsbench.data.splits import Split

KINDS: Sequence[MatchKind] = ("exact", "normalised", "near")
"""How training text may contain a sentence."""
ITEM_COLUMNS = ("task", "item", "first", "second", "pair", "sentence1", "sentence2")
"""The columns of the file of items that training text contains."""
SHARED_COLUMNS = ("task", "sentences", "in", "shared", "percent", "items", "held", "pairs")
"""The columns of what tests share with each other: ``in`` is the other test."""
NUMBERS = ("sentences", "shared", "percent", *KINDS, "items", "held", "pairs", "graded", "left")
"""The columns that are numbers."""
Record = dict[str, Any]


class OverlapReport(NamedTuple):
    """What is printed and written."""

    rows: list[Record]
    """The rows to print."""
    notes: list[str]
    file_rows: list[Record]
    """The rows of the file."""
    file_columns: Sequence[str]


def overlap_command(
    context: opt.Context,
    *,
    corpora_named: opt.CorpusArguments,
    tasks: opt.OnlyTasks = None,
    near: opt.MinSimilarity = None,
    out: opt.OverlapFile = None,
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Find test sentences in training text.

    It checks every task whose data are on this machine. Without a CORPUS it compares the tests with
    each other.

    Example: stsbench data overlap wiki1m nli_triplets --near 0.8 --out held.csv
    Example: stsbench data overlap --tasks sts
    """
    from stsbench.data.corpora.corpus import load_corpus

    catalogue = opt.read_cards(cards)
    if not corpora_named:
        TypedOptions.from_context(context).forbid("without a CORPUS", "--near", "--corpora")
    if out is not None and out.suffix not in (".csv", ".json"):
        raise StsbenchError(f"--out '{out}': give a file that ends in .csv or .json")
    splits = _load_splits(tasks, data, catalogue)
    if corpora_named:
        loaded_corpora = [
            load_corpus(name, corpora=corpora, data=data, catalogue=catalogue)
            for name in corpora_named
        ]
        with show_count("rows read") as progress:
            report = _find_in_corpora(
                loaded_corpora,
                corpus_names=corpora_named,
                splits=splits,
                min_similarity=near,
                progress=progress,
            )
    else:
        report = _find_in_tests(splits)
    if out is not None:
        write_records(out, report.file_rows, report.file_columns)
    if as_json:
        print_json(report.rows)
        return
    print_records(report.rows, right=NUMBERS)
    print_paragraph(*report.notes)
    if out is not None:
        print_text(f"wrote {out}")


def _load_splits(tasks: str | None, data: Path | None, catalogue: Catalogue) -> dict[str, Split]:
    """Load the scored split of the requested tasks, or of all tasks that need no network.

    Args:
        tasks: A comma list of tasks and suites; None for all tasks.
        data: The folder of data; None for the default one.
        catalogue: The cards of tasks.

    Raises:
        SourceError: No task is requested, and no data are on this machine.
    """
    from stsbench.data.task import expand_names, is_available_locally, load_task, tasks_in_order

    names = expand_names(tasks, catalogue) if tasks else tasks_in_order(catalogue)
    loaded_tasks = [load_task(name, data=data, catalogue=catalogue) for name in names]
    if not tasks:
        loaded_tasks = [task for task in loaded_tasks if is_available_locally(task.card, task.data)]
    if not loaded_tasks:
        raise SourceError(
            "no task's data are on this machine; run 'stsbench data fetch sts', or give --data DIR"
        )
    return {task.name: task.load(task.card.score_split) for task in loaded_tasks}


def _find_in_corpora(
    corpora: Sequence[Corpus],
    corpus_names: Sequence[str],
    splits: Mapping[str, Split],
    min_similarity: float | None,
    progress: Callable[[int, int], None],
) -> OverlapReport:
    """Find the sentences of splits in training text.

    Args:
        corpora: The training text.
        corpus_names: What the user calls it.
        splits: The splits by task.
        min_similarity: The lowest similarity of near-duplicates; None to find equal texts only.
        progress: Is called with the number of rows read and the total.
    """
    from stsbench.data.corpora.overlap import find_overlap_matches

    texts = [text for split in splits.values() for text in split.texts()]
    matches = find_overlap_matches(corpora, texts, min_similarity=min_similarity, progress=progress)
    kinds = [kind for kind in KINDS if kind != "near" or min_similarity is not None]
    counts = [_count_matches(task, split, matches, kinds) for task, split in splits.items()]
    label = ", ".join(corpus_names)
    tasks_without = ", ".join(row["task"] for row in counts if not row["held"])
    notes = [f"{label}: nothing of {tasks_without}"] if tasks_without else []
    notes.append(
        f"held: items with a sentence in {label}; pairs: side by side there; "
        "graded: with a score or label"
    )
    return OverlapReport(
        rows=[row for row in counts if row["held"]],
        notes=notes,
        file_rows=[
            row for task, split in splits.items() for row in _item_records(task, split, matches)
        ],
        file_columns=ITEM_COLUMNS,
    )


def _count_matches(
    task: str, split: Split, matches: OverlapMatches, kinds: Sequence[MatchKind]
) -> Record:
    """Count the sentences and items of a split that training text contains.

    Args:
        task: The name of the task.
        split: The split.
        matches: What the training text contains of it.
        kinds: The kinds of match that were searched.
    """
    sentences = set(split.texts())
    sentence_kinds = [
        matches.kind_by_text[text] for text in sentences if text in matches.kind_by_text
    ]
    n_items = sum(map(any, matches.kinds_by_item(split)))
    return {
        "task": task,
        "sentences": len(sentences),
        **{kind: sentence_kinds.count(kind) for kind in kinds},
        "items": split.n,
        "held": n_items,
        # Items whose two sentences are in one row there; "graded" if it has a score or label too.
        "pairs": sum(matches.is_paired(split)),
        "graded": sum(matches.is_graded(split)),
        "left": split.n - n_items,
    }


def _item_records(task: str, split: Split, matches: OverlapMatches) -> Iterator[Record]:
    """Yield a record for each item with a sentence in the training text.

    Args:
        task: The name of the task.
        split: The split.
        matches: What the training text contains of it.

    Yields:
        The cells of a row of the file by ``ITEM_COLUMNS``.
    """
    items = zip(
        zip(*split.sides, strict=True),
        matches.kinds_by_item(split),
        matches.is_paired(split),
        matches.is_graded(split),
        strict=True,
    )
    for index, (sentences, kinds, is_paired, is_graded) in enumerate(items):
        if not any(kinds):
            continue
        pair = "graded" if is_graded else "text" if is_paired else ""
        # An item of one sentence has empty cells for the second.
        first_kind, second_kind = [*(kind or "" for kind in kinds), ""][:2]
        first, second = [*sentences, ""][:2]
        cells = (task, index, first_kind, second_kind, pair, first, second)
        yield dict(zip(ITEM_COLUMNS, cells, strict=True))


class _TestKeys(NamedTuple):
    """The sentences of a test, as keys that are equal for texts with the same letters."""

    items: list[tuple[bytes, ...]]
    """The keys of each item's one or two sentences."""
    sentences: set[bytes]
    """The distinct keys of all sentences, without the empty key."""
    pairs: set[frozenset[bytes]]
    """Both keys of each item with two sentences, which may be in either order."""


def _find_in_tests(splits: Mapping[str, Split]) -> OverlapReport:
    """Find the sentences that tests share with each other."""
    keys_by_task = {task: _make_keys(split) for task, split in splits.items()}
    rows: list[Record] = []
    for task, keys in keys_by_task.items():
        task_rows = [
            _shared_record(task, keys, other_task, other_keys)
            for other_task, other_keys in keys_by_task.items()
            if other_task != task and keys.sentences & other_keys.sentences
        ]
        rows += sorted(task_rows, key=lambda row: -row["shared"])
    note = (
        "shared: distinct sentences of the test in the other's; held: items with one; "
        "pairs: those of both"
    )
    notes = [note] if rows else ["no test shares a sentence with another"]
    return OverlapReport(rows, notes, file_rows=rows, file_columns=SHARED_COLUMNS)


def _make_keys(split: Split) -> _TestKeys:
    """Make the keys by which the sentences of a test are found in other tests."""
    from stsbench.data.corpora.overlap import text_key

    items = [tuple(map(text_key, sentences)) for sentences in zip(*split.sides, strict=True)]
    return _TestKeys(
        items=items,
        # The key of a text without letters and digits is empty.
        sentences={key for item in items for key in item} - {b""},
        pairs={frozenset(item) for item in items if len(item) > 1},
    )


def _shared_record(task: str, keys: _TestKeys, other_task: str, other_keys: _TestKeys) -> Record:
    """Count the sentences and items of a test that another test has too.

    Args:
        task: The name of the test.
        keys: The keys of its sentences.
        other_task: The name of the other test.
        other_keys: The keys of the other test's sentences.

    Returns:
        The cells of a row by ``SHARED_COLUMNS``. All counts are of the first test.
    """
    shared = keys.sentences & other_keys.sentences
    cells = (
        task,
        len(keys.sentences),
        other_task,  # the column "in"
        len(shared),
        round(100 * len(shared) / len(keys.sentences), 1),
        len(keys.items),
        # "held": the items with at least one shared sentence.
        sum(not shared.isdisjoint(item) for item in keys.items),
        # "pairs": the items whose two sentences are also one item of the other test.
        sum(frozenset(item) in other_keys.pairs for item in keys.items),
    )
    return dict(zip(SHARED_COLUMNS, cells, strict=True))
