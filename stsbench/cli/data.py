"""``stsbench data``: evaluation data and training text, fetched, verified and made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    print_json,
    print_paragraph,
    print_records,
    print_text,
    show_count,
    show_work,
    write_records,
)
from stsbench.cli.wording import describe_error_line
from stsbench.core import settings
from stsbench.core.cards import TaskCard
from stsbench.core.errors import EXIT_USER_ERROR, SourceError, StsbenchError, UnknownName

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.corpora.overlap import MatchKind, OverlapMatches
    from stsbench.data.splits import Split
    from stsbench.data.task import Task


def fetch_command(
    names: opt.NamesToFetch,
    *,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
) -> None:
    """Fetch data from the Hub ahead of a run.

    What is fetched is checked against the cards. What cannot be had does not keep the rest from being fetched.

    Example: stsbench data fetch sts transfer
    """
    from stsbench.data.corpora.corpus import fetch_corpus
    from stsbench.data.task import expand_names, load_task

    catalogue = opt.read_cards(cards)
    corpora, suites, tasks = catalogue.corpora(), catalogue.suites(), catalogue.paths("tasks")
    for name in names:
        if name not in corpora and name not in suites and name not in tasks:
            raise UnknownName("task, suite or corpus", name, [*suites, *tasks, *corpora])
    if data and all(name in corpora and not corpora[name].tasks for name in names):
        raise StsbenchError(
            "--data has no effect: a corpus is not evaluation data; leave --data out"
        )
    failures: list[str] = []
    # A corpus made of tasks is fetched with them.
    wanted = [
        task
        for name in names
        for task in (corpora[name].tasks if name in corpora else []) or [name]
    ]
    for what in [
        n for name in wanted for n in ([name] if name in corpora else expand_names(name, catalogue))
    ]:
        try:
            if what in corpora:
                found = str(fetch_corpus(what, corpora[what]))
            else:
                task = load_task(what, data=data, catalogue=catalogue)
                loaded = [(split, task.loaded(split)) for split in task.card.splits]
                rows = [
                    f"{s} {one.split.n} rows ({'; '.join([one.source, *one.notes])})"
                    for s, one in loaded
                ]
                found = ", ".join(rows)
            print_text(f"{what}: {found}")
        except StsbenchError as error:
            failures.append(describe_error_line(error))
    if failures:
        more = f" (and {len(failures) - 1} more not available)" if len(failures) > 1 else ""
        raise SourceError(f"{failures[0]}{more}")


def verify_command(
    *,
    names: opt.NamesToVerify,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Check data against the cards.

    Counts, characters, means and hashes are compared.

    Example: stsbench data verify sts --data DIR
    """
    from stsbench.data.task import expand_names, load_task

    catalogue = opt.read_cards(cards)
    folder = opt.data_folder(data)
    task_names = expand_names(names, catalogue) if names else _find_local_tasks(catalogue, folder)
    tasks = [load_task(name, data=data, catalogue=catalogue) for name in task_names]
    rows = [_verified(task, split) for task in tasks for split in task.card.splits]
    bad = sum(row["verdict"] != "OK" for row in rows)
    if as_json:
        print_json(rows)
    else:
        print_records(rows, right=["rows"])
        print_text(
            f"\n{len(rows) - bad} of {len(rows)} splits match their cards (counts, characters, means, sha256)"
        )
    return EXIT_USER_ERROR if bad else 0


def _find_local_tasks(catalogue: Catalogue, folder: Path | None) -> list[str]:
    """Return the tasks in the package, and those with some of their files in the data folder."""
    cards_by_name = {name: catalogue.task(name) for name in catalogue.paths("tasks")}
    return [
        name
        for name, card in cards_by_name.items()
        if card.package is not None or _any_file(card, folder)
    ]


def _any_file(card: TaskCard, folder: Path | None) -> bool:
    from stsbench.data.task import source_files

    return any(
        path.is_file()
        for split in card.splits
        for path, _ in source_files(card.local, split, folder)
    )


def _verified(task: Task, split: str) -> dict[str, Any]:
    import numpy as np

    from stsbench.data.splits import PairSplit, count_characters
    from stsbench.data.task import source_files

    row: dict[str, Any] = {
        "task": task.name,
        "split": split,
        "rows": "",
        "characters": "",
        "mean": "",
    }
    missing = [
        path for path, _ in source_files(task.card.local, split, task.data) if not path.is_file()
    ]
    if missing and _any_file(task.card, task.data):
        # The Hub may have it; a folder that has lost a file has to know it.
        return {**row, "verdict": f"{missing[0]}: is missing"}
    try:
        loaded = task.loaded(split)
    except StsbenchError as error:
        return {**row, "verdict": describe_error_line(error)}
    read, verdict = loaded.split, "; ".join(loaded.differences) or "OK"
    mean = f"{np.mean(read.gold):.6f}" if isinstance(read, PairSplit) else ""
    signs = " + ".join(map(str, count_characters(read)))
    return {**row, "rows": read.n, "characters": signs, "mean": mean, "verdict": verdict}


def convert_coco_command(source: opt.CocoSource, target: opt.CocoTarget) -> None:
    """Convert the published COCO pickles.

    Arrays and strings are read and nothing else.

    Example: stsbench data convert-coco PUBLISHED DATA/coco
    """
    from stsbench.data.coco import convert_coco

    for made in convert_coco(source, target):
        print_text(f"{made.split}: {made.images} images, {made.captions} captions")


def make_command(
    name: opt.CorpusToMake,
    *,
    corpora: opt.CorporaToFill = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
) -> None:
    """Make training text of what is published.

    It is made as its card says, and checked.

    Example: stsbench data make nli_triplets --corpora DIR
    """
    catalogue = opt.read_cards(cards)
    from stsbench.data.corpora.making import DocumentTokenizer, make_corpus

    def counter(model: str, revision: str) -> DocumentTokenizer:
        # Imports torch, which few corpora need.
        from stsbench.encoders.transformer.backbone import TokenCounter

        return TokenCounter(model, revision=revision)

    folder = corpora or settings.corpora_folder()
    if folder is None:
        raise SourceError(
            "data make: give --corpora DIR (or set STSBENCH_CORPORA): the folder for the file"
        )
    with show_count("files read") as progress:
        path, rows = make_corpus(
            name, corpora=folder, catalogue=catalogue, open_tokenizer=counter, progress=progress
        )
    print_text(f"{path}: {rows:,} rows")


def back_translate_command(
    context: opt.Context,
    source: opt.Sentences,
    output: opt.PairsFile,
    *,
    forward: opt.Forward = "Helsinki-NLP/opus-mt-en-de",
    backward: opt.Backward = "Helsinki-NLP/opus-mt-de-en",
    revisions: opt.Revisions = ("unpinned", "unpinned"),
    mode: opt.DecodingMode = "greedy",
    temperature: opt.Temperature = 1.0,
    seed: opt.SamplingSeed = 0,
    max_tokens: opt.MaxTokens = 128,
    batch_size: opt.TranslatedAtOnce = 32,
    limit: opt.SentenceLimit = None,
    device: opt.Device = "auto",
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
) -> None:
    """Translate sentences there and back, to train on the pairs.

    The same command resumes a stopped translation.

    Example: stsbench data back-translate stsb.txt pairs.csv
    """
    from stsbench.data.corpora.corpus import load_corpus

    catalogue = opt.read_cards(cards)
    given = opt.TypedOptions.from_context(context)
    if mode == "greedy":
        given.forbid("with --mode greedy", "--temperature", "--seed")
    if Path(forward).is_dir() and Path(backward).is_dir():
        given.forbid("where both models are folders", "--revisions")
    from stsbench.training.translation import (
        Decoding,
        Mode,
        Translator,
        check_output,
        write_back_translations,
    )

    check_output(output)
    corpus = load_corpus(source, corpora=corpora, data=data, limit=limit, catalogue=catalogue)
    # Decoding itself refuses any other mode.
    chosen = Decoding(
        mode=cast(Mode, mode), temperature=temperature, seed=seed, max_tokens=max_tokens
    )
    there, back = (
        Translator(model, revision=revision, decoding=chosen, batch_size=batch_size, device=device)
        for model, revision in zip((forward, backward), revisions, strict=True)
    )
    with show_work("translating") as shown:

        def show(direction: str, done: int, total: int) -> None:
            shown.update(f"translating {direction}", done, total)

        written = write_back_translations(corpus, output, there, back, show)
    print_text(f"{output}: {written.rows} pairs of {written.distinct} distinct sentences")
    print_text(f"unchanged: {written.same}; cut at {chosen.max_tokens} tokens: {written.cut}")
    print_text(f"models and settings: {written.record}")


HOW: Sequence[MatchKind] = ("exact", "normalised", "near")
HELD = ("task", "item", "first", "second", "pair", "sentence1", "sentence2")
SHARED = ("task", "sentences", "in", "shared", "percent", "items", "held", "pairs")
"""The columns of what is written."""
NUMBERS = ("sentences", "shared", "percent", *HOW, "items", "held", "pairs", "graded", "left")
Rows = list[dict[str, Any]]


def overlap_command(
    context: opt.Context,
    *,
    corpora_named: opt.CorpusArguments,
    tasks: opt.OnlyTasks = None,
    near: opt.Near = None,
    out: opt.OverlapFile = None,
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """Find test sentences in training text.

    Of every task whose data are on this machine. Without a CORPUS: what tests share with each other.

    Example: stsbench data overlap wiki1m nli_triplets --near 0.8 --out held.csv
    Example: stsbench data overlap --tasks sts
    """
    from stsbench.data.corpora.corpus import load_corpus
    from stsbench.data.corpora.overlap import find_overlap_matches
    from stsbench.data.task import expand_names, is_available_locally, load_task, tasks_in_order

    catalogue = opt.read_cards(cards)
    if not corpora_named:
        opt.TypedOptions.from_context(context).forbid("without a CORPUS", "--near", "--corpora")
    if out is not None and out.suffix not in (".csv", ".json"):
        raise StsbenchError(f"--out '{out}': give a file that ends in .csv or .json")
    # What is asked for, or all that needs no network.
    named = expand_names(tasks, catalogue) if tasks else tasks_in_order(catalogue)
    tests = [load_task(name, data=data, catalogue=catalogue) for name in named]
    here = (
        tests if tasks else [task for task in tests if is_available_locally(task.card, task.data)]
    )
    if not here:
        raise SourceError(
            "no task's data are on this machine; run 'stsbench data fetch sts', or give --data DIR"
        )
    splits = {task.name: task.load(task.card.score_split) for task in here}
    if not corpora_named:
        rows = _shared(splits)
        written: tuple[Rows, Sequence[str]] = rows, SHARED
        said = [
            "shared: distinct sentences of the test in the other's; held: items with one; pairs: those of both"
        ]
        said = said if rows else ["no test shares a sentence with another"]
    else:
        loaded = [
            load_corpus(name, corpora=corpora, data=data, catalogue=catalogue)
            for name in corpora_named
        ]
        with show_count("rows read") as progress:
            texts = [text for split in splits.values() for text in split.texts()]
            held = find_overlap_matches(loaded, texts, min_similarity=near, progress=progress)
        written = [row for name, split in splits.items() for row in _items(name, split, held)], HELD
        counts = [
            _counts(name, split, held, near=near is not None) for name, split in splits.items()
        ]
        rows, where = [row for row in counts if row["held"]], ", ".join(corpora_named)
        nothing = ", ".join(row["task"] for row in counts if not row["held"])
        said = [f"{where}: nothing of {nothing}"] if nothing else []
        said += [
            f"held: items with a sentence in {where}; pairs: side by side there; graded: with a score or label"
        ]
    if out is not None:
        write_records(out, *written)
    if as_json:
        print_json(rows)
        return
    print_records(rows, right=NUMBERS)
    print_paragraph(*said)
    if out is not None:
        print_text(f"wrote {out}")


def _counts(name: str, split: Split, held: OverlapMatches, *, near: bool) -> dict[str, Any]:
    found = [held.kind_by_text[text] for text in set(split.texts()) if text in held.kind_by_text]
    items = sum(map(any, held.kinds_by_item(split)))
    return {
        "task": name,
        "sentences": len(set(split.texts())),
        **{how: found.count(how) for how in HOW if near or how != "near"},
        "items": split.n,
        "held": items,
        "pairs": sum(held.is_paired(split)),
        "graded": sum(held.is_graded(split)),
        "left": split.n - items,
    }


def _items(name: str, split: Split, held: OverlapMatches) -> Iterator[dict[str, Any]]:
    sides = zip(held.kinds_by_item(split), zip(*split.sides, strict=True), strict=True)
    facts = zip(sides, held.is_paired(split), held.is_graded(split), strict=True)
    for item, ((how, texts), paired, graded) in enumerate(facts):
        if any(how):
            pair = "graded" if graded else "text" if paired else ""
            hows, sentences = ([*one, ""][:2] for one in ([found or "" for found in how], texts))
            yield dict(zip(HELD, (name, item, *hows, pair, *sentences), strict=True))


def _shared(splits: Mapping[str, Split]) -> Rows:
    from stsbench.data.corpora.overlap import text_key

    items = {
        name: [tuple(map(text_key, row)) for row in zip(*one.sides, strict=True)]
        for name, one in splits.items()
    }
    keys = {name: {key for item in found for key in item} - {b""} for name, found in items.items()}
    pairs = {
        name: {frozenset(item) for item in found if len(item) > 1} for name, found in items.items()
    }
    rows: Rows = []
    for name, mine in items.items():
        found = []
        for other in (other for other in splits if other != name):
            if both := keys[name] & keys[other]:
                share = round(100 * len(both) / len(keys[name]), 1)
                touched = sum(not both.isdisjoint(item) for item in mine)
                alike = sum(frozenset(item) in pairs[other] for item in mine)
                found.append(
                    (name, len(keys[name]), other, len(both), share, len(mine), touched, alike)
                )
        rows += [
            dict(zip(SHARED, facts, strict=True))
            for facts in sorted(found, key=lambda facts: -facts[3])
        ]
    return rows
