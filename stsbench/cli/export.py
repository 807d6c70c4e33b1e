"""``stsbench export``, ``cite`` and ``texts``: what other tools read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    print_error,
    print_errors,
    print_json,
    print_text,
    print_unchanged,
    select_trusted,
    write_or_print,
)
from stsbench.core.errors import DataError, OutputError, Remedy, StsbenchError, look_up
from stsbench.core.files import write_atomically
from stsbench.core.wording import PAIR_MARK, describe_sentence, format_count

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue
    from stsbench.results.groups import EncoderResults
    from stsbench.results.record import Result

MAX_LISTED = 5
"""The most omitted cells that are printed, and the most encoders named in an error."""


class ExportText(NamedTuple):
    """The results of one encoder in the format of another tool."""

    text: str
    index: Any = None
    """The model index, which goes into a model card and is printed as JSON; None if the format has
    none."""


def export_command(
    *,
    fmt: opt.ExportFormat,
    results: opt.ResultsFolder = Path("results"),
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    protocol: opt.OnlyProtocol = None,
    out: opt.ExportFile = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """Write results for other tools.

    The formats are those of MTEB, model cards, the Hub's .eval_results and Every Eval Ever.

    Example: stsbench export --format mteb --out mteb-files
    """
    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    # The function that writes or prints results in this format.
    write = look_up("format", fmt, FORMATS)
    selected = [
        result
        for result in _select_results(results, encoder, tasks, catalogue)
        if protocol in (None, result.protocol["name"])
    ]
    # Leaves out results whose score is not what their per-item columns give, and prints a line for
    # each. Those without columns stay, and a line says how many they are.
    trusted_results = select_trusted(selected, catalogue)
    if not trusted_results:
        raise DataError(f"{results}: no results of these tasks by this protocol to export")
    write(trusted_results, out, catalogue, as_json)


def cite_command(
    results: opt.ResultsArgument = Path("results"),
    *,
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    out: opt.TableFile = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
) -> None:
    """Print BibTeX for all that results rest on.

    That is the tasks, encoders and protocols of the results, and stsbench. Entries are made of the
    facts in cards; a comment above each says what it is the source of. What has no known source is
    named in a comment and on stderr.

    Example: stsbench cite results --out stsbench.bib
    """
    from stsbench.boards.exports.bibtex import cite_results, find_unsourced

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    selected = _select_results(results, encoder, tasks, catalogue)
    if not selected:
        # The remedy adds to the message how to score an encoder.
        raise DataError(f"'{results}' has no such results", remedy=Remedy("score"))
    if unsourced := find_unsourced(selected, catalogue):
        print_error(f"no source known: {', '.join(unsourced)}")
    write_or_print(cite_results(selected, catalogue), out)


def _select_results(
    folder: Path, encoders: Sequence[str], tasks: str | None, catalogue: Catalogue
) -> list[Result]:
    """Return the results of these encoders and tasks, and print which files are no valid results.

    A name stands for current results: those of the state of an encoder that a run made or reused
    last. A name with a state tag, ``final [3f2a1b]``, stands for those of that state. If older
    results are left out, a line says how many.

    Args:
        folder: The results folder.
        encoders: Names of encoders; empty for all.
        tasks: A comma list of tasks and suites; None for all.
        catalogue: The cards of encoders and tasks.

    Raises:
        UnknownName: There are no results of an encoder, or there is no such task.
    """
    from stsbench.api.selection import select_results
    from stsbench.data.task import expand_names
    from stsbench.results.folder import read_folder
    from stsbench.results.groups import EncoderDirectory

    selected_tasks = expand_names(tasks, catalogue) if tasks else []
    directory = EncoderDirectory(read_folder(folder), catalogue)
    print_errors("skipped", directory.result_folder.problems)
    results = select_results(encoders, directory, catalogue, location=folder)
    if notice := directory.describe_omitted(results):
        print_error(notice)
    return [result for result in results if not tasks or result.task in selected_tasks]


def _write_mteb(
    results: Sequence[Result], out: Path | None, catalogue: Catalogue, as_json: bool
) -> None:
    """Write results into a folder as files of the benchmark MTEB, and print which were omitted.

    Args:
        results: The results.
        out: The folder; None is an error.
        catalogue: The cards of tasks and encoders.
        as_json: Whether to print the files and omitted results as JSON, and all of the latter.

    Raises:
        StsbenchError: There is no folder to write into.
    """
    from stsbench.boards.exports.mteb import export_mteb

    if out is None:
        raise StsbenchError("--format mteb writes many files: give --out FOLDER")
    export = export_mteb(results, out, catalogue)
    if as_json:
        print_json({"files": [str(path) for path in export.paths], "left_out": export.omitted})
        return
    for line in export.omitted[:MAX_LISTED]:
        print_text(f"skipped: {line}")
    if len(export.omitted) > MAX_LISTED:
        print_text(f"skipped: {len(export.omitted) - MAX_LISTED} more; --json lists them")
    n_files = format_count(len(export.paths), "file")
    print_text(f"wrote {n_files}; mteb.ResultCache('{out}') reads them")


def _write_one_file(
    results: Sequence[Result],
    out: Path | None,
    catalogue: Catalogue,
    as_json: bool,
    *,
    noun: str,
    convert: Callable[[EncoderResults, Catalogue], ExportText],
) -> None:
    """Write one encoder's results in the format of another tool, or print them without ``out``.

    A model card is the README.md of a model on the Hub. Its results are in a part called the model
    index, which only the format ``model-index`` has.

    Args:
        results: The results to export.
        out: The file to write; the model index is put into a model card that exists, else into a
            new one. None to print.
        catalogue: The cards of tasks and encoders.
        as_json: Whether to print JSON: the model index if the format has one, otherwise the text
            and the file's path.
        noun: What the file is, for the error about several encoders.
        convert: Called with the results of one encoder and the catalogue, returns the text in the
            format, and the model index or None.

    Raises:
        StsbenchError: The results are of several encoders.
    """
    from stsbench.boards.exports.hub import write_card
    from stsbench.results.groups import group_by_encoder

    groups = group_by_encoder(results, catalogue)
    if len(groups) > 1:
        names = ", ".join(f"'{group.name}'" for group in groups[:MAX_LISTED])
        raise StsbenchError(
            f"{noun} is of one encoder, these results are of {len(groups)} ({names}); "
            "give --encoder"
        )
    export = convert(groups[0], catalogue)
    if out is not None:
        # write_card puts the index into the card, and keeps the card's other text.
        if export.index is not None:
            write_card(out, export.index)
        else:
            write_or_print(export.text, out, silent=True)
    if as_json:
        file_and_text = {"out": str(out) if out is not None else None, "text": export.text}
        print_json(file_and_text if export.index is None else export.index)
    else:
        print_text(f"wrote {out}" if out is not None else export.text.rstrip("\n"))


def _to_model_index(group: EncoderResults, catalogue: Catalogue) -> ExportText:
    from stsbench.boards.exports.hub import make_model_index, to_yaml

    index = make_model_index(group.encoder, group.results, catalogue)
    return ExportText(to_yaml(index), index)


def _to_eval_results(group: EncoderResults, catalogue: Catalogue) -> ExportText:
    from stsbench.boards.exports.hub import make_eval_results

    text, omitted = make_eval_results(group.results, catalogue)
    print_errors("left out", omitted)
    return ExportText(text)


def _to_every_eval_ever(group: EncoderResults, catalogue: Catalogue) -> ExportText:
    from stsbench.boards.exports.hub import to_every_eval_ever

    return ExportText(to_every_eval_ever(group.results, catalogue))


FORMATS: Mapping[str, Callable[..., None]] = {
    "mteb": _write_mteb,
    "model-index": partial(_write_one_file, noun="a model card", convert=_to_model_index),
    "eval-results": partial(_write_one_file, noun="a file of the Hub's", convert=_to_eval_results),
    "every-eval-ever": partial(_write_one_file, noun="a record", convert=_to_every_eval_ever),
}


TEXT_FILE_SUFFIXES = (".jsonl", ".txt")
"""The endings of files of sentences."""


def texts_command(
    *,
    tasks: opt.TaskArguments,
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    pairs: opt.WritesPairs = False,
    out: opt.TextsFile = None,
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
) -> None:
    """Write the sentences of tasks, for other toolkits to embed.

    Each distinct sentence that the scores need is written once, in the order of the tasks and their
    data. Embed them in this order, and score the file of embeddings with 'stsbench run
    file:EMBEDDINGS'. Without --out they are printed as JSON lines. With --pairs all pairs are
    written, with the keys sentence1 and sentence2, in the order of the data: score them, and score
    the file of scores with 'stsbench run --similarities FILE'.

    Example: stsbench texts stsb --out stsb.jsonl
    Example: stsbench texts stsb --pairs --out pairs.jsonl
    """
    from stsbench.bench.plan import RunPlan
    from stsbench.bench.progress import RunCallbacks
    from stsbench.bench.run import RunContext

    if not tasks:
        raise StsbenchError("texts needs a task or a suite, e.g. stsbench texts stsb")
    if out and out.suffix not in TEXT_FILE_SUFFIXES:
        raise StsbenchError(f"--out '{out}': give a file that ends in .jsonl or .txt")
    if pairs and out and out.suffix != ".jsonl":
        raise StsbenchError(f"--out '{out}': pairs go to a file that ends in .jsonl")
    plan = RunPlan(
        tasks=tasks,
        protocol=protocol,
        split=split,
        data=data,
        catalogue=opt.make_catalogue(cards),
    )
    context = RunContext(plan, RunCallbacks().with_raised_failures())
    planned_tasks = [*context.tasks.values()]
    if pairs:
        # A task that needs embeddings has no pairs to score: for_pair_scorer is None.
        omitted = [task.task.name for task in planned_tasks if task.for_pair_scorer is None]
        # Another one gives its pairs, each joined into one text.
        planned_tasks = [*filter(None, (task.for_pair_scorer for task in planned_tasks))]
        problem = DataError(f"no pairs of {', '.join(omitted)}: scored by embeddings alone")
        if not planned_tasks:
            raise problem
        if omitted:
            print_error(problem)
    texts = [text for task in planned_tasks for text in task.texts()]
    if not pairs:
        texts = list(dict.fromkeys(texts))
    content = _format_texts(texts, out)
    if out is None:
        # print_text would replace what looks like a secret, and the sentence would be another one.
        print_unchanged(content)
        return
    write_atomically(out, content.encode("utf-8", "surrogatepass"))
    print_text(f"wrote {len(texts):,} {'pairs' if pairs else 'sentences'} to {out}")


def _to_record(text: str) -> dict[str, str]:
    """Return the JSON object of a sentence, or of a pair of sentences.

    Args:
        text: A sentence; or both sentences of a pair joined into one text, which begins with
            ``PAIR_MARK``.

    Returns:
        The sentence as ``text``, or those of a pair as ``sentence1`` and ``sentence2``.
    """
    from stsbench.data.readers.columns import PAIR_NAMES
    from stsbench.encoders.pairs import split_pair

    if not text.startswith(PAIR_MARK):
        return {"text": text}
    # PAIR_NAMES begins with the usual names of the two columns.
    return dict(zip(PAIR_NAMES[0], split_pair(text), strict=True))


def _format_texts(sentences: Sequence[str], path: Path | None) -> str:
    """Return the content of a file of sentences, or of pairs of sentences.

    Args:
        sentences: The sentences; or pairs, each joined into one text.
        path: The file. If it ends in .jsonl, or is None, there is one JSON object per line: with
            the key ``text``, or for a pair ``sentence1`` and ``sentence2``. Otherwise there is one
            sentence per line.

    Raises:
        OutputError: A sentence has a line break, which plain text cannot hold.
    """
    if path is None or path.suffix == ".jsonl":
        lines = [json.dumps(_to_record(sentence)) for sentence in sentences]
    else:
        lines = list(sentences)
        for row, sentence in enumerate(sentences):
            if "\n" in sentence or "\r" in sentence:
                # The sentence is described by its number and hash: its text may be confidential.
                raise OutputError(
                    f"--out '{path}': {describe_sentence(sentences, row)} has a line break, which "
                    "plain text cannot hold; give a file that ends in .jsonl"
                )
    return "".join(f"{line}\n" for line in lines)
