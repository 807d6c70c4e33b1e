"""``stsbench data overlap``: test sentences in training text, and in other tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions
from stsbench.cli.printing import print_json, print_paragraph, print_text, show_count, write_records
from stsbench.cli.tables import print_records
from stsbench.core.errors import SourceError, StsbenchError

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.data.corpora.overlap import MatchKind, OverlapMatches
    from stsbench.data.splits import Split
    from stsbench.data.task import Task

MATCH_KINDS: Sequence[MatchKind] = ("exact", "normalised", "near")
"""How training text may contain a sentence."""
ITEM_COLUMNS = ("task", "item", "first", "second", "pair", "sentence1", "sentence2")
"""The columns of the file of items that training text contains."""
SHARED_COLUMNS = ("task", "sentences", "in", "shared", "percent", "items", "held", "pairs")
"""The columns of what tests share with each other: ``in`` is the other test."""
NUMBER_COLUMNS = (
    "sentences",
    "shared",
    "percent",
    *MATCH_KINDS,
    "items",
    "held",
    "pairs",
    "graded",
    "left",
)
"""The columns that are numbers."""
Record = dict[str, Any]


class OverlapReport(NamedTuple):
    """The sentences that tests share with training text or each other, to print and to write."""

    rows: list[Record]
    """The rows to print."""
    notes: list[str]
    """Sentences to print below the rows."""
    file_rows: list[Record]
    """The rows of the file to write, which need not be the printed ones."""
    file_columns: Sequence[str]
    """The keys of these rows, in the order of the file's columns."""


def overlap_command(
    context: opt.Context,
    *,
    corpora_named: opt.CorpusArguments,
    tasks: opt.OnlyTasks = None,
    near: opt.MinSimilarity = None,
    out: opt.OverlapFile = None,
    corpora: opt.TextFolder = None,
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """Find test sentences in training text.

    It checks every task whose data are on this machine. Without a CORPUS it compares the tests with
    each other.

    Example: stsbench data overlap wiki1m nli_triplets --near 0.8 --out held.csv
    Example: stsbench data overlap --tasks sts
    """
    from stsbench.data.corpora.overlap import load_searched_text

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    if not corpora_named:
        TypedOptions.from_context(context).forbid("without a CORPUS", "--near", "--corpora")
    if out is not None and out.suffix not in (".csv", ".json"):
        raise StsbenchError(f"--out '{out}': give a file that ends in .csv or .json")
    # The test sentences: of each task the split that is scored.
    splits = {
        task.name: task.load(task.card.score_split)
        for task in load_tasks(tasks or "", data, catalogue)
    }
    if corpora_named:
        loaded_corpora = [
            load_searched_text(name, corpora=corpora, data=data, catalogue=catalogue)
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
    print_records(report.rows, number_keys=NUMBER_COLUMNS)
    print_paragraph(*report.notes)
    if out is not None:
        print_text(f"wrote {out}")


def load_tasks(names: Sequence[str] | str, data: Path | None, catalogue: Catalogue) -> list[Task]:
    """Return the tasks of these names, or all tasks that need no network.

    The data of a task are read at their first use, not here.

    Args:
        names: Tasks and suites, or a comma list of them; empty for all tasks.
        data: The folder of data; None for the default one.
        catalogue: The cards of tasks.

    Raises:
        SourceError: No task is requested, and no data are on this machine.
    """
    from stsbench.data.task import expand_names, is_available_locally, load_task, tasks_in_order

    all_names = expand_names(names, catalogue) if names else tasks_in_order(catalogue)
    tasks = [load_task(name, data=data, catalogue=catalogue) for name in all_names]
    if not names:
        tasks = [task for task in tasks if is_available_locally(task.card, task.data)]
    if not tasks:
        raise SourceError(
            "no task's data are on this machine; run 'stsbench data fetch sts', or give --data DIR"
        )
    return tasks


def _find_in_corpora(
    corpora: Sequence[Corpus],
    corpus_names: Sequence[str],
    splits: Mapping[str, Split],
    min_similarity: float | None,
    progress: Callable[[int, int], None],
) -> OverlapReport:
    """Find test sentences in training text, and count them for each task.

    Args:
        corpora: The training texts.
        corpus_names: What the user calls them, for the notes.
        splits: The test sentences of each task, with their scores or labels.
        min_similarity: The lowest similarity of near-duplicates; None to find equal texts only.
        progress: Called with the number of rows read and the total.

    Returns:
        The printed rows, one per task with a sentence in the text; notes on tasks without, and on
        the columns; and the rows of the file, one per item (pair or sentence) that the text holds.
    """
    from stsbench.data.corpora.overlap import find_overlap_matches

    texts = [text for split in splits.values() for text in split.texts()]
    matches = find_overlap_matches(corpora, texts, min_similarity=min_similarity, progress=progress)
    kinds = list(MATCH_KINDS)
    if min_similarity is None:
        kinds.remove("near")
    # A row per task; "held" is its number of items with a sentence in the training text.
    counts = [_count_matches(task, split, matches, kinds) for task, split in splits.items()]
    label = ", ".join(corpus_names)
    tasks_without_matches = ", ".join(row["task"] for row in counts if not row["held"])
    notes = []
    if tasks_without_matches:
        notes.append(f"{label}: nothing of {tasks_without_matches}")
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
    """Return a row that counts the sentences and items of a test that training text contains.

    An item is what is scored once: a pair of sentences or a sentence.

    Args:
        task: The name of the task.
        split: The test sentences of the task.
        matches: The sentences and pairs of all tests that the training text contains.
        kinds: The kinds of match that were searched: exact, normalised, near.

    Returns:
        Counts by column: of distinct ``sentences``, of those found by each kind of match, of
        ``items``, of items with a sentence in the text (``held``), of items whose two sentences are
        in one row there (``pairs``), of those that have a score or label there too (``graded``),
        and of items without a sentence in the text (``left``).
    """
    sentences = set(split.texts())
    sentence_kinds = [
        matches.kind_by_text[text] for text in sentences if text in matches.kind_by_text
    ]
    # For each item the kind (text) of match of each of its sentences, None for one that is not
    # found. An item counts if any sentence of it is found.
    n_held_items = sum(map(any, matches.kinds_by_item(split)))
    return {
        "task": task,
        "sentences": len(sentences),
        **{kind: sentence_kinds.count(kind) for kind in kinds},
        "items": split.n,
        "held": n_held_items,
        "pairs": sum(matches.is_paired(split)),
        "graded": sum(matches.is_graded(split)),
        "left": split.n - n_held_items,
    }


def _item_records(task: str, split: Split, matches: OverlapMatches) -> Iterator[Record]:
    """Yield a record for each item with a sentence in the training text.

    An item is what is scored once: a pair of sentences or a sentence.

    Args:
        task: The name of the task.
        split: The test sentences of the task.
        matches: The sentences and pairs of all tests that the training text contains.

    Yields:
        ``item`` is the index of the item. ``first`` and ``second`` say how the text contains its
        sentences: exact, normalised, near, or empty for not at all. ``pair`` is "graded" if a row
        of the text has both sentences with a score or label, "text" if it has both without, else
        empty. ``sentence1`` and ``sentence2`` are the sentences.
    """
    sentences_by_item = list(zip(*split.sides, strict=True))
    paired_items = list(matches.is_paired(split))
    graded_items = list(matches.is_graded(split))
    for index, kinds in enumerate(matches.kinds_by_item(split)):
        if not any(kinds):
            continue
        pair = ""
        if graded_items[index]:
            pair = "graded"
        elif paired_items[index]:
            pair = "text"
        sentences = sentences_by_item[index]
        has_second = len(sentences) > 1
        yield {
            "task": task,
            "item": index,
            "first": kinds[0] or "",
            "second": (kinds[1] or "") if has_second else "",
            "pair": pair,
            "sentence1": sentences[0],
            "sentence2": sentences[1] if has_second else "",
        }


class _TestKeys(NamedTuple):
    """The sentences of a test, as keys that are equal for texts with the same letters."""

    items: list[tuple[bytes, ...]]
    """The keys of each item's one or two sentences."""
    sentences: set[bytes]
    """The distinct keys of all sentences, without the empty key."""
    pairs: set[frozenset[bytes]]
    """Both keys of each item with two sentences, which may be in either order."""


def _find_in_tests(splits: Mapping[str, Split]) -> OverlapReport:
    """Find the sentences that the tests of several tasks share with each other.

    Args:
        splits: The test sentences of each task.

    Returns:
        A row for each test and each other test with a sentence of it, to print and to write. The
        rows of one test are together, that with the most shared sentences first.
    """
    keys_by_task = {task: _make_sentence_keys(split) for task, split in splits.items()}
    rows: list[Record] = []
    for task, keys in keys_by_task.items():
        task_rows = [
            _count_shared(task, keys, other_task, other_keys)
            for other_task, other_keys in keys_by_task.items()
            if other_task != task and not keys.sentences.isdisjoint(other_keys.sentences)
        ]
        rows += sorted(task_rows, key=lambda row: -row["shared"])
    note = (
        "shared: distinct sentences of the test in the other's; held: items with one; "
        "pairs: items that are the same pair of sentences in both"
    )
    notes = [note] if rows else ["no test shares a sentence with another"]
    return OverlapReport(rows, notes, file_rows=rows, file_columns=SHARED_COLUMNS)


def _make_sentence_keys(split: Split) -> _TestKeys:
    """Return the keys by which the sentences of a test are found in other tests.

    The key of a text is its letters and digits in lower case: two texts with the same key count as
    the same sentence.

    Args:
        split: The test. ``sides`` are its columns of sentences: one, or two for pairs.

    Returns:
        The keys (bytes) of each item's sentences, the distinct keys of all sentences, and the set
        of both keys of each item with two sentences.
    """
    from stsbench.data.corpora.overlap import letters_and_digits

    items = [
        tuple(map(letters_and_digits, sentences)) for sentences in zip(*split.sides, strict=True)
    ]
    return _TestKeys(
        items=items,
        # The key of a text without letters and digits is empty.
        sentences={key for item in items for key in item} - {b""},
        pairs={frozenset(item) for item in items if len(item) > 1 and any(item)},
    )


def _count_shared(task: str, keys: _TestKeys, other_task: str, other_keys: _TestKeys) -> Record:
    """Return a row that counts the sentences and items of a test that another test has too.

    Args:
        task: The name of the test.
        keys: The keys of its sentences; a key is the letters and digits of a text.
        other_task: The name of the other test.
        other_keys: The keys of the other test's sentences.

    Returns:
        Counts of the first test by column: of its distinct ``sentences``, of those that the other
        test (``in``) has too (``shared``, ``percent``), of its ``items`` (pairs or sentences), of
        items with a shared sentence (``held``), and of pairs that are one item of the other test
        too (``pairs``).
    """
    shared = keys.sentences & other_keys.sentences
    return {
        "task": task,
        "sentences": len(keys.sentences),
        "in": other_task,
        "shared": len(shared),
        "percent": round(100 * len(shared) / len(keys.sentences), 1),
        "items": len(keys.items),
        "held": sum(not shared.isdisjoint(item) for item in keys.items),
        "pairs": sum(frozenset(item) in other_keys.pairs for item in keys.items),
    }
