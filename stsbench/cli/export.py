"""``stsbench export``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    emit,
    print_error,
    print_errors,
    print_json,
    print_text,
    select_trusted,
)
from stsbench.core.errors import DataError, StsbenchError, look_up

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue
    from stsbench.results.groups import EncoderResults
    from stsbench.results.record import Result

SHOWN = 5
"""So many cells that are left out get a line of their own."""


def export_command(
    *,
    fmt: opt.ExportFormat,
    results: opt.ResultsFolder = Path("results"),
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    protocol: opt.OnlyProtocol = None,
    out: opt.ExportFile = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """Write results for other tools.

    MTEB, model cards, the Hub's .eval_results and Every Eval Ever.

    Example: stsbench export --format mteb --out mteb-files
    """
    from stsbench.api.names import select_results
    from stsbench.data.task import expand_names
    from stsbench.results.folder import read_folder
    from stsbench.results.groups import EncoderDirectory

    catalogue = opt.read_cards(cards)
    write = look_up("format", fmt, FORMATS)
    only = expand_names(tasks, catalogue) if tasks else []
    encoders = EncoderDirectory(read_folder(results), catalogue)
    print_errors("skipped", (problem.message for problem in encoders.folder.problems))
    mine = select_results(encoder, encoders, catalogue, results)
    if older := encoders.describe_omitted(mine):
        print_error(older)
    wanted = (
        one
        for one in mine
        if (not tasks or one.task in only) and protocol in (None, one.protocol["name"])
    )
    if not (held := select_trusted(wanted, catalogue)):
        raise DataError(f"{results}: no results of these tasks by this protocol to export")
    write(held, out, catalogue, as_json)


def _mteb(results: Sequence[Result], out: Path | None, catalogue: Catalogue, as_json: bool) -> None:
    from stsbench.boards.exports.mteb import export_mteb

    if out is None:
        raise StsbenchError("--format mteb writes many files: give --out FOLDER")
    made = export_mteb(results, out, catalogue)
    if as_json:
        print_json({"files": [str(path) for path in made.paths], "left_out": made.omitted})
        return
    for line in made.omitted[:SHOWN]:
        print_text(f"skipped: {line}")
    if len(made.omitted) > SHOWN:
        print_text(f"skipped: {len(made.omitted) - SHOWN} more; --json lists them")
    print_text(
        f"wrote {len(made.paths)} file{'s' * (len(made.paths) != 1)}; mteb.ResultCache('{out}') reads them"
    )


def _one_file(
    results: Sequence[Result],
    out: Path | None,
    catalogue: Catalogue,
    as_json: bool,
    *,
    what: str,
    made: Callable[[EncoderResults, Catalogue], tuple[str, Any]],
) -> None:
    """Write or print the text made of one encoder's results; what JSON shows of it, if more than that, has a place in a card."""
    from stsbench.boards.exports.hub import write_card
    from stsbench.results.groups import group_by_encoder

    runs = group_by_encoder(results, catalogue)
    if len(runs) > 1:
        names = ", ".join(f"'{one.name}'" for one in runs[:SHOWN])
        raise StsbenchError(
            f"{what} is of one encoder, these results are of {len(runs)} ({names}); give --encoder"
        )
    text, index = made(runs[0], catalogue)
    if out is not None and index is not None:
        write_card(out, index)
    elif out is not None:
        emit(text, out, silent=True)
    if as_json:
        print_json(
            index
            if index is not None
            else {"out": str(out) if out is not None else None, "text": text}
        )
    else:
        print_text(f"wrote {out}" if out is not None else text.rstrip("\n"))


def _model_index(one: EncoderResults, catalogue: Catalogue) -> tuple[str, Any]:
    from stsbench.boards.exports.hub import model_index, to_yaml

    index = model_index(one.encoder, one.results, catalogue)
    return to_yaml(index), index


def _eval_results(one: EncoderResults, catalogue: Catalogue) -> tuple[str, Any]:
    from stsbench.boards.exports.hub import eval_results

    text, left_out = eval_results(one.results, catalogue)
    print_errors("left out", left_out)
    return text, None


def _every_eval_ever(one: EncoderResults, catalogue: Catalogue) -> tuple[str, Any]:
    from stsbench.boards.exports.hub import every_eval_ever

    return every_eval_ever(one.results, catalogue), None


FORMATS: Mapping[str, Callable[..., None]] = {
    "mteb": _mteb,
    "model-index": partial(_one_file, what="a model card", made=_model_index),
    "eval-results": partial(_one_file, what="a file of the Hub's", made=_eval_results),
    "every-eval-ever": partial(
        _one_file,
        what="a record",
        made=_every_eval_ever,
    ),
}
