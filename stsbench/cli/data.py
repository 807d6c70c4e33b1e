"""``stsbench data``: evaluation data and training text, fetched, verified and made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, find_data_folder
from stsbench.cli.printing import print_json, print_text, show_count, show_work
from stsbench.cli.tables import print_records
from stsbench.cli.wording import describe_error_line
from stsbench.core import settings
from stsbench.core.cards import TaskCard
from stsbench.core.errors import EXIT_USER_ERROR, SourceError, StsbenchError, UnknownName
from stsbench.core.wording import format_count

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.task import Task


def fetch_command(
    context: opt.Context,
    names: opt.NamesToFetch,
    *,
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
) -> None:
    """Fetch data from the Hub before a run.

    The data are checked against the cards. If a task is not available, the others are fetched.

    Example: stsbench data fetch sts transfer
    """
    from stsbench.data.task import expand_names
    from stsbench.data.task_names import find_task_or_suite_ids, known_names

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    # By the name of each corpus its card.
    corpora = catalogue.corpora()
    for name in names:
        if name not in corpora and not find_task_or_suite_ids(name, catalogue):
            raise UnknownName("task, suite or corpus", name, [*known_names(catalogue), *corpora])
    # Only tasks, and corpora that are made of tasks, need evaluation data.
    if all(name in corpora and not corpora[name].tasks for name in names):
        TypedOptions.from_context(context).forbid(
            "for a corpus, which is no evaluation data", "--data"
        )
    # Corpora, and the tasks that suites and corpora consist of.
    expanded_names: list[str] = []
    for name in names:
        # A corpus that is made of tasks has no file: its tasks are fetched.
        parts = corpora[name].tasks if name in corpora else ()
        for part in parts or [name]:
            expanded_names += [part] if part in corpora else expand_names(part, catalogue)
    failures: list[str] = []
    for name in dict.fromkeys(expanded_names):
        try:
            print_text(f"{name}: {_fetch(name, data, catalogue)}")
        except StsbenchError as error:
            failures.append(describe_error_line(error))
    if failures:
        more = f" (and {len(failures) - 1} more not available)" if len(failures) > 1 else ""
        raise SourceError(f"{failures[0]}{more}")


def _fetch(name: str, data: Path | None, catalogue: Catalogue) -> str:
    """Fetch a corpus or a task from the Hub, and return what was fetched as text.

    For a corpus that is the path of its file. For a task it is the number of rows and the source of
    each split.

    Args:
        name: The name of a corpus or a task.
        data: The folder of evaluation data, which is read first; None for none.
        catalogue: The cards of tasks and corpora.
    """
    from stsbench.data.corpora.corpus import fetch_corpus
    from stsbench.data.task import load_task

    corpora = catalogue.corpora()
    if name in corpora:
        return str(fetch_corpus(name, corpora[name]))
    task = load_task(name, data=data, catalogue=catalogue)
    descriptions = []
    for split in task.card.splits:
        # Its source is local, hub or package. Its notes are sentences: files that differ from the
        # card, and the commit of a revision that may move.
        loaded = task.loaded_split(split)
        origin = "; ".join([loaded.source, *loaded.notes])
        descriptions.append(f"{split} {loaded.split.n} rows ({origin})")
    return ", ".join(descriptions)


def verify_command(
    *,
    names: opt.NamesToVerify,
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Check data against the cards.

    It compares counts, characters, means and hashes.

    Example: stsbench data verify sts --data DIR
    """
    from stsbench.data.task import expand_names, load_task

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    # The option's folder or that of the user's settings; None if neither is set.
    folder = find_data_folder(data)
    task_names = expand_names(names, catalogue) if names else _find_local_tasks(catalogue, folder)
    tasks = [load_task(name, data=data, catalogue=catalogue) for name in task_names]
    # The verdict of a row is "OK", or what is wrong with the split.
    rows = [_verify_split(task, split) for task in tasks for split in task.card.splits]
    n_matching = sum(row["verdict"] == "OK" for row in rows)
    if as_json:
        print_json(rows)
    else:
        print_records(rows, number_keys=["rows"])
        print_text(
            f"\n{n_matching} of {len(rows)} splits match their cards "
            "(counts, characters, means, sha256)"
        )
    return 0 if n_matching == len(rows) else EXIT_USER_ERROR


def _find_local_tasks(catalogue: Catalogue, folder: Path | None) -> list[str]:
    """Return the names of the tasks whose data are on this machine, at least some of their files.

    Args:
        catalogue: The cards of tasks.
        folder: The folder of evaluation data; None if there is none.
    """
    # paths: by the name of each task the file of its card.
    cards_by_name = {name: catalogue.task(name) for name in catalogue.paths("tasks")}
    return [
        name
        for name, card in cards_by_name.items()
        # stsbench itself holds the data of a few tasks: ``package`` says in which of its files.
        if card.package is not None or _has_any_file(card, folder)
    ]


def _has_any_file(card: TaskCard, folder: Path | None) -> bool:
    """Return whether any file of a task exists.

    Args:
        card: The task's card, which says in which files its splits are.
        folder: The folder of evaluation data; None if there is none. Files of a user's own task may
            be elsewhere.
    """
    from stsbench.data.task import source_files

    # source_files gives the path of each file of a split, and what the card says of it; nothing if
    # the files belong in the data folder and there is none.
    return any(
        path.is_file()
        for split in card.splits
        for path, _ in source_files(card.local, split, folder)
    )


def _verify_split(task: Task, split: str) -> dict[str, Any]:
    """Compare a split of a task with the task's card, and return a row of a table.

    Args:
        task: The task.
        split: The name of the split.

    Returns:
        Values by column: ``task``, ``split``, ``rows`` (their number), ``characters`` (of the first
        and of the second sentences), ``mean`` (of the gold scores; empty for a split without) and
        ``verdict``: "OK" or what is wrong. If the split cannot be loaded, the numbers are empty.
    """
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
    # source_files gives the path of each file of the split, and what the card says of it.
    missing_files = [
        path for path, _ in source_files(task.card.local, split, task.data) if not path.is_file()
    ]
    # If the data folder has no file of the task, it is not meant to hold it, and the data are read
    # from the Hub below. If it has only some files, the user has lost one: that is reported, even
    # if the Hub could replace it.
    if missing_files and _has_any_file(task.card, task.data):
        return {**row, "verdict": f"{missing_files[0]}: is missing"}
    try:
        loaded = task.loaded_split(split)
    except StsbenchError as error:
        return {**row, "verdict": describe_error_line(error)}
    items = loaded.split
    gold_mean = f"{np.mean(items.gold):.6f}" if isinstance(items, PairSplit) else ""
    # Counts, characters, means or hashes that are not those of the card, one sentence each.
    differences_from_card = "; ".join(loaded.differences)
    return {
        **row,
        "rows": items.n,
        "characters": " + ".join(map(str, count_characters(items))),
        "mean": gold_mean,
        "verdict": differences_from_card or "OK",
    }


def convert_coco_command(source: opt.CocoSource, target: opt.CocoTarget) -> None:
    """Convert the published COCO pickles.

    Only arrays and strings are read from them.

    Example: stsbench data convert-coco PUBLISHED DATA/coco
    """
    from stsbench.data.coco import convert_coco

    for split in convert_coco(source, target):
        print_text(f"{split.split}: {split.images} images, {split.captions} captions")


def make_command(
    name: opt.CorpusToMake,
    *,
    corpora: opt.CorporaToFill = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
) -> None:
    """Make training text from published data.

    The card says how to make the text, and what the result is checked against.

    Example: stsbench data make nli_triplets --corpora DIR
    """
    from stsbench.data.corpora.making import DocumentTokenizer, make_corpus

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)

    def open_tokenizer(model: str, revision: str) -> DocumentTokenizer:
        """Return the tokenizer by which a corpus of long documents counts their tokens."""
        # Imports torch, which few corpora need.
        from stsbench.encoders.transformer.backbone import TokenCounter

        return TokenCounter(model, revision=revision)

    folder = corpora or settings.corpora_folder()
    if folder is None:
        raise SourceError(
            "data make: give --corpora DIR (or set STSBENCH_CORPORA): the folder for the file"
        )
    # make_corpus raises an error if the file exists, or differs from the card.
    with show_count("files read") as progress:
        path, n_rows = make_corpus(
            name,
            corpora=folder,
            catalogue=catalogue,
            open_tokenizer=open_tokenizer,
            progress=progress,
        )
    print_text(f"{path}: {format_count(n_rows, 'row')}")


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
    corpora: opt.TextFolder = None,
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
) -> None:
    """Translate sentences there and back, to train on the pairs.

    The same command resumes a stopped translation.

    Example: stsbench data back-translate stsb.txt pairs.csv
    """
    from stsbench.data.corpora.corpus import load_corpus

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    typed = TypedOptions.from_context(context)
    if mode == "greedy":
        typed.forbid("with --mode greedy", "--temperature", "--seed")
    if Path(forward).is_dir() and Path(backward).is_dir():
        typed.forbid("where both models are folders", "--revisions")
    # Imports torch, before which user errors are refused.
    from stsbench.training.translation import (
        Decoding,
        Mode,
        Translator,
        check_output,
        write_back_translations,
    )

    check_output(output)
    corpus = load_corpus(source, corpora=corpora, data=data, limit=limit, catalogue=catalogue)
    # The type checker cannot know that Decoding itself refuses any other mode.
    decoding = Decoding(
        mode=cast(Mode, mode), temperature=temperature, seed=seed, max_tokens=max_tokens
    )
    forward_translator, backward_translator = (
        Translator(
            model, revision=revision, decoding=decoding, batch_size=batch_size, device=device
        )
        for model, revision in zip((forward, backward), revisions, strict=True)
    )
    with show_work("translating") as display:

        def show_progress(direction: str, done: int, total: int) -> None:
            display.update(f"translating {direction}", done, total)

        report = write_back_translations(
            corpus, output, forward_translator, backward_translator, show_progress
        )
    print_text(f"{output}: {report.rows} pairs of {report.distinct} distinct sentences")
    print_text(f"unchanged: {report.same}; cut at {decoding.max_tokens} tokens: {report.cut}")
    print_text(f"models and settings: {report.record}")
