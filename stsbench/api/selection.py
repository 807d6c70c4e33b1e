"""The results of the encoders that a user names, in a results folder or in a lock file.

Commands and Python select results by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from stsbench.api.names import NameCandidate, NameResolver, count_parts_by_first, iter_joined_parts
from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.rows import AddedRow
from stsbench.boards.tables.table import Table
from stsbench.check.lock import CheckSide, lock_cell
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, Remedy, StsbenchError, UnknownName, suggest
from stsbench.core.names import split_names, split_params
from stsbench.core.wording import format_some
from stsbench.data.task import DEFAULT_SUITE, expand_names, tasks_in_order
from stsbench.encoders.kinds import lacks_checkpoint
from stsbench.encoders.runs import RUN_FILE
from stsbench.evaluators.belief import believe
from stsbench.results.folder import read_folder
from stsbench.results.groups import EncoderDirectory
from stsbench.results.record import Result

_ENCODER_FILES = (RUN_FILE, "config.json", "modules.json")
"""Files of which one is in the folder of an encoder: training's record, or a checkpoint's."""
MessageCallback = Callable[[str], None]


class _NameMatch(NamedTuple):
    """A name as results have it, and the ``id`` of each result or cell that it stands for."""

    name: str
    ids: set[int]


def _match_names(
    specs: Sequence[str],
    catalogue: Catalogue,
    known_names: Sequence[str],
    location: Path,
    tasks: Iterable[str],
    find_ids: Callable[[NameCandidate], set[int]],
) -> Iterator[_NameMatch]:
    """Yield, for each name that a user wrote, the name that results have, and the results' ids.

    A user may write an encoder's id, its title, or the label of its row in a paper's table. Each of
    these is a candidate for the name in the results; the first with any results is taken.

    Args:
        specs: A comma list of names, divided at its commas.
        catalogue: The cards of encoders.
        known_names: The names of the encoders in ``location``.
        location: The folder or lock file that is searched, for the message.
        tasks: The tasks of the results there, for the advice to score an encoder on them.
        find_ids: Called with a candidate, returns the Python ``id`` of each result, or row of a
            lock file, that it stands for; empty if there are none.

    Raises:
        UnknownName: A name stands for nothing in ``location``.
    """
    resolver = NameResolver(catalogue)
    # A name with a comma in it is put together again.
    for spec in resolver.join_parts(specs, known_names):
        for candidate in resolver.iter_candidates(spec):
            ids = find_ids(candidate)
            # An encoder whose files are all broken is among the known names, but has no results.
            if ids or candidate.name in known_names:
                yield _NameMatch(candidate.name, ids)
                break
        else:
            raise _no_results_error(spec, known_names, location, catalogue, tasks)


def _no_results_error(
    spec: str,
    known_names: Sequence[str],
    location: Path,
    catalogue: Catalogue,
    tasks: Iterable[str],
) -> StsbenchError:
    """Return the error to raise if a name stands for no results at a location.

    It is an UnknownName, unless the name is that of a card or recipe. Either one suggests names in
    ``known_names``. If there is none to suggest, the advice is to score the encoder of the card, if
    that has a checkpoint, or of the recipe, on those of the tasks that have a card.
    """
    names = list(dict.fromkeys(known_names))
    cards, recipes = catalogue.paths("baselines"), catalogue.paths("trainers")
    # The longest beginning of the name that is a card, with the parameters behind it.
    for stem, params in split_params(spec):
        if stem not in cards and stem not in recipes:
            continue
        hint = suggest(spec, names).removeprefix("; ")
        task_ids = catalogue.paths("tasks")
        tasks_to_score = ",".join(task for task in dict.fromkeys(tasks) if task in task_ids)
        remedy = None
        if not hint and stem in cards and lacks_checkpoint(catalogue.encoder(stem), params):
            hint = "its card names no checkpoint to fetch"
        elif not hint and tasks_to_score:
            remedy = Remedy("fill", {"encoder": spec, "tasks": tasks_to_score})
        return OutputError(
            f"{location} has no results of encoder '{spec}'", hint=hint, remedy=remedy
        )
    hint = f"{location} has results of {format_some(names)}" if names else "there are no results"
    return UnknownName("encoder", spec, names, hint=hint)


def select_results(
    specs: Sequence[str],
    encoders: EncoderDirectory,
    catalogue: Catalogue,
    location: Path,
    tasks: Sequence[str] = (),
) -> list[Result]:
    """Return the results of the named encoders, in the folder's order.

    A name with a state tag, such as ``final [3f2a1b]``, selects the results of an encoder before
    its weights or settings changed.

    Args:
        specs: A comma list of names; empty for the current results of all encoders.
        encoders: The encoders of a results folder, with their current and older results.
        catalogue: The cards of encoders.
        location: The folder, for the message.
        tasks: The tasks that matter, for the advice to score an encoder; by default those of all
            results.

    Raises:
        UnknownName: There are no results of an encoder.
    """
    if not specs:
        return list(encoders.result_folder.results)
    # Names as tables print them, and names without a tag.
    known_names = [*encoders.names, *(group.encoder for group in encoders.current)]
    matches = _match_names(
        specs,
        catalogue,
        known_names,
        location,
        tasks=tasks or [result.task for result in encoders.result_folder.results],
        find_ids=lambda candidate: candidate.find_result_ids(encoders),
    )
    return encoders.select({result_id for match in matches for result_id in match.ids})


class RequestedTables(NamedTuple):
    """The tables that a user requested, and what is to be said of them."""

    tables: Sequence[Table]
    omitted: Sequence[str]
    """A line on each thing that the tables omit."""
    advice: Sequence[DataError | str]
    """What the user can do for fuller tables."""
    results: Sequence[Result]
    """The results of the encoders that the tables may show."""
    further_suite: str
    """Tasks with results that no suite and none of the tables has, as a comma list; else empty."""


def make_requested_tables(
    request: TableRequest,
    encoders_of_folder: EncoderDirectory,
    *,
    table: str | None,
    suite: str | None,
    encoders: Sequence[str],
    added_names: Sequence[str],
    significance_against: str | None,
    rows_only: bool,
) -> RequestedTables:
    """Make a table of a paper, or the boards of a suite, from the results in a folder.

    A suite is a named list of tasks, a board a table of encoders by these tasks.

    Args:
        request: What to show, still without results.
        encoders_of_folder: The encoders of the results folder, with their results.
        table: The name or file of a paper's table; None for boards.
        suite: The suite of the boards; None for the first suite that has a task of the results.
        encoders: A comma list of names; empty for the current results of all encoders.
        added_names: A comma list of rows to add: encoders, alone or with a label behind a colon.
        significance_against: The encoder to test the others against; None for no tests.
        rows_only: Whether to keep only the added rows, if there are any.

    Returns:
        The tables, what they omit and advice on it, the results that they may show, and the tasks
        with results that neither they nor any suite has.

    Raises:
        UnknownName: There are no results of an encoder.
        StsbenchError: A label is empty, or there is nothing to show.
    """
    catalogue, folder = request.catalogue, request.results_folder
    added = parse_added_rows(added_names, encoders_of_folder, catalogue, folder)
    reference = None
    if significance_against is not None:
        reference = _find_reference(significance_against, added, encoders_of_folder, request)
    shown_results = select_results(encoders, encoders_of_folder, catalogue, folder)
    for added_row in added:
        shown_results += added_row.results
    results = encoders_of_folder.select({id(result) for result in shown_results})
    full_request = replace(request, results=results, added=added, reference=reference)
    further_suite = ""
    if table is not None:
        table_set = full_request.make_table(table)
    else:
        shown_suite = suite or full_request.guess_suite() or DEFAULT_SUITE
        table_set = full_request.make_boards(shown_suite)
        if suite is None:
            # A comma list of the tasks that are in no suite and not on these boards; else empty.
            further_suite = full_request.own_tasks_beside(shown_suite)
    tables = table_set.tables
    if rows_only and added:
        # Bold type and ranks stay those of the whole table, whose groups are kept for them.
        tables = [
            replace(
                # A row for which the function returns None is dropped.
                whole_table.map_rows(lambda row: row if row.is_added else None),
                ranked_groups=whole_table.groups,
            )
            for whole_table in tables
        ]
    return RequestedTables(tables, table_set.omitted, table_set.advice, results, further_suite)


def _find_reference(
    name: str, added: Sequence[AddedRow], encoders: EncoderDirectory, request: TableRequest
) -> AddedRow:
    """Return the encoder to test others against, as a row with its results.

    Args:
        name: Its name, or the name or label of a row that the user adds.
        added: The rows that the user adds.
        encoders: The encoders of the results folder.
        request: Has the catalogue and the results folder.

    Raises:
        UnknownName: There are no results of it.
    """
    for row in added:
        if name in (row.name, row.label):
            return row
    try:
        return parse_added_rows([name], encoders, request.catalogue, request.results_folder)[0]
    except UnknownName as error:
        hint = f"{request.results_folder} has no results of it; published rows have none to test"
        raise UnknownName("encoder", name, error.choices, hint=hint) from None


def filter_side(
    specs: Sequence[str], side: CheckSide, catalogue: Catalogue, location: Path
) -> CheckSide:
    """Return one side of a check with the cells and the broken files of the named encoders only.

    A check compares the older and the newer side: each is a results folder or a lock file (accepted
    scores in one file). A cell is the score of an encoder on a task. Cells of a lock file name no
    card, and are found by the encoder's name and fingerprint. A name with a state tag, such as
    ``final [3f2a1b]``, selects the cells of an encoder before its weights or settings changed.

    The named encoders' older results become cells too.

    Args:
        specs: A comma list of names; empty to return the side unchanged.
        side: The side: its cells, the older results of its folder, and its broken files.
        catalogue: The cards of encoders.
        location: The folder or file of the side, for the message.

    Raises:
        UnknownName: There is no cell of an encoder, nor a broken file in a folder of this name.
    """
    if not specs:
        return side
    # The encoders of the side by name, with their results.
    encoders = side.directory(catalogue)
    # lock_cell makes a cell of a result.
    all_cells = [*side.cells, *map(lock_cell, side.older)]

    def find_cell_ids(candidate: NameCandidate) -> set[int]:
        """Return the Python ``id`` of each cell of either kind that a name stands for.

        A cell of a results folder has a ``result``, a cell of a lock file has none.
        """
        result_ids = candidate.find_result_ids(encoders)
        return {
            id(cell)
            for cell in all_cells
            if id(cell.result) in result_ids
            or (cell.result is None and candidate.matches_cell(cell))
        }

    # ``side.encoders()`` are the names of encoders of cells, and of folders with broken files.
    tasks = [cell.task for cell in all_cells]
    matches = list(_match_names(specs, catalogue, side.encoders(), location, tasks, find_cell_ids))
    selected_ids = {cell_id for match in matches for cell_id in match.ids}
    cells = [cell for cell in all_cells if id(cell) in selected_ids]
    names = [*(match.name for match in matches), *(cell.encoder for cell in cells)]
    # Broken files are selected by the encoder's name, which their folder has.
    return side._replace(cells=cells, problems=side.select_encoders(names).problems)


def select_compared_results(
    specs: Sequence[str],
    results_folder: Path,
    catalogue: Catalogue,
    *,
    on_problem: MessageCallback,
    on_notice: MessageCallback,
    tasks: str | Sequence[str] | None,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Sequence[Result]]:
    """Return the results of each encoder to compare, in the order of the tasks.

    A result is verified if its score, recomputed from its per-item columns, is the stored one. One
    whose columns give another score is reported as a problem and left out. One without columns
    cannot be verified: it is kept, with a notice.

    Args:
        specs: Names of encoders in the results folder, or folders of one encoder's results.
        results_folder: The results folder.
        catalogue: The cards of tasks and encoders.
        on_problem: Called with a line on each file that cannot be read, or has a wrong score.
        on_notice: Called with a line if there are older results of these encoders, and with one if
            some results cannot be verified.
        tasks: The tasks and suites whose results are verified and returned; None for all.
        progress: Called with the number of results that are checked, and the total.

    Returns:
        The results by name or folder, as the caller wrote it.

    Raises:
        StsbenchError: An encoder is listed twice, has no results, or is several encoders.
    """
    # Reads each folder once, and reports its broken files.
    reader = _FolderReader(catalogue, on_problem)
    task_ids = expand_names(tasks, catalogue) if tasks is not None else []
    results_by_spec = _read_compared(specs, results_folder, reader, task_ids)
    if tasks is not None:
        for spec, results in results_by_spec.items():
            results_by_spec[spec] = [result for result in results if result.task in task_ids]
    all_results = [result for results in results_by_spec.values() for result in results]
    for encoders in reader.encoders_by_folder.values():
        # A line on older results of the same encoders and tasks; empty if there are none.
        if notice := encoders.describe_omitted(all_results):
            on_notice(notice)
    # Recomputes each score. ``results`` are all but those whose columns give another score.
    believed = believe(all_results, catalogue, progress)
    for problem in believed.problems:
        on_problem(problem.message)
    if believed.unverified:
        on_notice(believed.notice)
    # By id(), because results cannot be in a set.
    believed_ids = {id(result) for result in believed.results}
    # Results of tasks without a position come last.
    positions = {task: position for position, task in enumerate(tasks_in_order(catalogue))}
    return {
        spec: sorted(
            (result for result in results if id(result) in believed_ids),
            key=lambda result: positions.get(result.task, len(positions)),
        )
        for spec, results in results_by_spec.items()
    }


@dataclass
class _FolderReader:
    """Reads each results folder once, and groups its results by encoder.

    Attributes:
        catalogue: The cards of tasks and encoders.
        on_problem: Called with a line on each file that cannot be read.
        encoders_by_folder: The encoders of each folder that was read.
    """

    catalogue: Catalogue
    on_problem: MessageCallback
    encoders_by_folder: dict[Path, EncoderDirectory] = field(default_factory=dict)

    def read_encoders(self, folder: Path) -> EncoderDirectory:
        """Return the encoders of a results folder, with their results.

        At the first call for a folder it is read, and ``on_problem`` is called with a line for each
        of its broken files. Later calls return the same object.
        """
        if folder not in self.encoders_by_folder:
            result_folder = read_folder(folder)
            self.encoders_by_folder[folder] = EncoderDirectory(result_folder, self.catalogue)
            for problem in result_folder.problems:
                self.on_problem(problem.message)
        return self.encoders_by_folder[folder]


def _read_compared(
    specs: Sequence[str], results_folder: Path, reader: _FolderReader, tasks: Sequence[str]
) -> dict[str, Sequence[Result]]:
    """Return the results of each name or folder, after checking that they are of one encoder.

    A name stands for results in the results folder, a folder for its own current results. A text
    that is both a folder and an encoder's name in the results folder is taken as the name.

    Args:
        specs: The names and folders; a name with a comma may be divided at it.
        results_folder: The folder in which names are looked up.
        reader: Reads folders of results, each once, and reports their broken files.
        tasks: The tasks to compare, for the advice to score an encoder; empty for all.

    Returns:
        The results by name or folder.

    Raises:
        StsbenchError: A name or folder is listed twice, has no results, or those of several
            encoders.
    """
    encoder_names: set[str] = set()
    if results_folder.is_dir():
        encoders = reader.read_encoders(results_folder)
        # Without and with a tag of their state.
        encoder_names = {*(group.encoder for group in encoders.current), *encoders.names}
    results_by_spec: dict[str, Sequence[Result]] = {}
    # A name with a comma in it is put together again.
    for spec in NameResolver(reader.catalogue).join_parts(specs, encoder_names):
        if spec in results_by_spec:
            raise StsbenchError(f"compare was given '{spec}' twice")
        if Path(spec).is_dir() and spec not in encoder_names:
            _check_has_results(spec)
            encoders = reader.read_encoders(Path(spec))
            results = encoders.result_folder.results  # Those of older states are not among them.
        else:
            encoders = reader.read_encoders(results_folder)
            results = select_results(
                [spec],
                encoders,
                catalogue=reader.catalogue,
                location=results_folder,
                tasks=tasks,
            )
        # Returns the same results, or raises an error if they are of several encoders or states.
        results_by_spec[spec] = encoders.require_one_encoder(spec, results)
    return results_by_spec


def _check_has_results(folder: str) -> None:
    """Raise OutputError if a folder holds an encoder, not the results of one.

    It holds an encoder if it has a file such as ``config.json`` (``_ENCODER_FILES``).
    """
    is_encoder = any((Path(folder) / name).is_file() for name in _ENCODER_FILES)
    if is_encoder and not read_folder(Path(folder)).all_results:
        raise OutputError(
            f"'{folder}' holds an encoder and no results",
            hint="score it, then compare what the results call it",
            remedy=Remedy("score", {"encoder": folder}),
        )


def parse_added_rows(
    parts: Sequence[str], encoders: EncoderDirectory, catalogue: Catalogue, location: Path
) -> list[AddedRow]:
    """Return the rows that a user adds to a table.

    Names and labels may have commas and colons in them, so that several parts of the list may be
    one name: parts are joined again, and the longest text that stands for results counts.

    Args:
        parts: A comma list of names, divided at its commas. Each name stands alone, or has the
            label of its row behind a colon.
        encoders: The encoders of the results folder, with their results.
        catalogue: The cards of encoders.
        location: The results folder, for the message.

    Returns:
        One row per name: the encoder's name, the label (empty if there is none) and the results.

    Raises:
        UnknownName: There are no results of an encoder.
        StsbenchError: A label is empty.
    """
    resolver = NameResolver(catalogue)
    # The name that tables print, the one in results, and the printed one without a state tag.
    printed_names = [
        name for group in encoders.groups for name in (group.name, group.encoder, group.label)
    ]
    # By a part of the list: of how many parts the names with a comma are that begin with it.
    known_part_counts = count_parts_by_first(printed_names)
    added_rows = []
    start = 0
    while start < len(parts):
        first_part = parts[start]
        part_counts = known_part_counts.get(first_part, set())
        is_last_part = start + 1 == len(parts)
        # Titles are in the cards. The last part cannot be joined to another, so the cards need not
        # be read for it.
        if not is_last_part:
            part_counts = part_counts | resolver.title_part_counts.get(first_part, set())
        for candidate in iter_joined_parts(parts, start, part_counts):
            if added_row := _parse_added_row(candidate.text, encoders, resolver):
                added_rows.append(added_row)
                # The next name begins behind the last part of this one.
                start = candidate.end
                break
        else:
            # The loop was not left: neither the first part nor a longer text stands for results.
            name = first_part.rpartition(":")[0] or first_part
            tasks = (result.task for result in encoders.result_folder.results)
            raise _no_results_error(name, encoders.names, location, resolver.catalogue, tasks)
    return added_rows


def _parse_added_row(
    text: str, encoders: EncoderDirectory, resolver: NameResolver
) -> AddedRow | None:
    """Return the row that a user's text ``NAME`` or ``NAME:LABEL`` adds to a table.

    Names and labels may have colons. The text is therefore first taken as a name without a label,
    then split at each colon in turn, from the last one. The longest name with results counts.

    Args:
        text: A name, alone or with a label behind a colon; quotes around the label are removed.
        encoders: The encoders of the results folder, with their results.
        resolver: Finds the results that a name may stand for.

    Returns:
        The row: name, label (empty if there is none) and results. None if no part of the text
        stands for results.

    Raises:
        StsbenchError: The label is empty.
    """
    colons = [index for index, character in enumerate(text) if character == ":"]
    for name_length in [len(text), *reversed(colons)]:
        name = text[:name_length].strip()
        label = text[name_length + 1 :].strip()
        # A comma in a label, outside of quotes, would begin the next name of the list.
        if len(split_names(label)) > 1:
            continue
        result_ids = _find_first_match(name, encoders, resolver)
        if not result_ids:
            continue
        has_colon = name_length < len(text)
        if has_colon and not label.strip("'\""):
            raise StsbenchError(
                "no label stands behind the colon; leave it out or write one",
                parameter="add",
                value=text,
            )
        is_quoted = len(label) > 1 and label[0] == label[-1] and label[0] in "'\""
        if is_quoted:
            label = label[1:-1]
        return AddedRow(name, label, encoders.select(result_ids))
    return None


def _find_first_match(name: str, encoders: EncoderDirectory, resolver: NameResolver) -> set[int]:
    """Return the Python ``id`` of each result that a name stands for.

    The meanings of the name are tried in order, and the first that has results counts.

    Args:
        name: The name, as a user wrote it.
        encoders: The encoders of the results.
        resolver: Finds the results that a name may stand for.

    Returns:
        The ids; empty if no meaning has results, or if the name is unclear.
    """
    # An error if the name is the label of rows in papers' tables of several encoders, or of an
    # encoder without a card. So it stands for no single encoder.
    with suppress(StsbenchError):
        for candidate in resolver.iter_candidates(name):
            if result_ids := candidate.find_result_ids(encoders):
                return result_ids
    return set()
