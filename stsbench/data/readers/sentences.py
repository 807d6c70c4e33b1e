"""Readers of sentences and sentence pairs with gold scores or classes.

They read tables of any kind, SentEval's own formats, and captions. A label is the position of its
class in ``classes``, which a card gives in SentEval's order. Sentences with a class are what
SentEval's loaders make of them: split at white space, joined by one blank again. Rows keep the
order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import CardError, DataError, Remedy, suggest, translate_errors
from stsbench.core.wording import describe_type_problem, join_lines
from stsbench.data.readers.columns import ColumnRoles, find_roles
from stsbench.data.readers.files import read_delimited, read_table
from stsbench.data.readers.table import ColumnKey, DataFile, FileLayout, TextTable, format_names
from stsbench.data.readers.text import (
    format_field,
    has_decimal_commas,
    is_missing,
    parse_number,
    read_lines,
    read_text,
)
from stsbench.data.splits import CaptionSplit, LabelledPairSplit, LabelledSplit, PairSplit


def normalise_blanks(text: str) -> str:
    """Return a text with each run of white space as one blank."""
    return " ".join(text.split())


class TableRows(NamedTuple):
    """Some rows of a table."""

    table: TextTable
    positions: Sequence[int]
    """The positions of the rows in the table."""
    subset: str = ""
    """The subset of all these rows; empty if there is none, or a column gives it."""


def read_any_table(
    files: Sequence[DataFile],
    *,
    sentence: ColumnKey | None = None,
    sentence1: ColumnKey | None = None,
    sentence2: ColumnKey | None = None,
    gold: ColumnKey | None = None,
    label: ColumnKey | None = None,
    classes: Sequence[str] | None = None,
    subset: ColumnKey | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    fields: Annotated[int, Meta(ge=0, le=1_000_000)] = 0,
    split_column: ColumnKey | None = None,
    split_values: Mapping[str, str] | None = None,
    split: str = "",
    drop_unscored: bool = False,
) -> PairSplit | Labelled:
    """Read pairs with scores, or sentences or pairs with labels, from tables of any kind.

    Columns that the card does not give are found by their usual names, see ``columns.py``.

    Args:
        files: The files, read in turn as one split (the Hub's SICK-R is train, trial and test).
        sentence: The column of single sentences.
        sentence1: The column of first sentences.
        sentence2: The column of second sentences. If it is ``sentence1`` too, each of its cells
            holds both sentences, one per line.
        gold: The column of gold scores.
        label: The column of labels.
        classes: The labels in the order of the classes; required for labels.
        subset: The column with the subset of each pair.
        delimiter: The delimiter of a text file.
        header: Whether the first row holds the names of the columns.
        quoting: Whether quotes hold cells together.
        fields: The maximum number of fields of a line, the last of which keeps its delimiters.
        split_column: The column with the split of each row; only rows of this split are read.
        split_values: The values of that column by split, if they are not the names of the card.
        split: The name of the split in the card.
        drop_unscored: Leave out the rows without a score.

    Raises:
        CardError: A parameter does not fit the files, or the role of a column is not clear.
        DataError: A file is broken, or a column or the split is missing.
    """
    layout = FileLayout(delimiter, header, quoting, fields=fields or None)
    possible_columns = {
        "sentence": sentence,
        "sentence1": sentence1,
        "sentence2": sentence2,
        "gold": gold,
        "label": label,
    }
    column_by_role = {role: key for role, key in possible_columns.items() if key is not None}
    roles = _find_file_roles(files[0].path, layout, column_by_role, classes, subset)
    used_columns = (*roles.sentences, roles.target, subset, split_column)
    by_name = any(isinstance(key, str) for key in used_columns)
    split_value = (split_values or {}).get(split, split)
    parts: list[TableRows] = []
    for file in files:
        table = read_table(file.path, layout, by_name=by_name)
        # A delimiter too many shifts columns.
        table.check_row_lengths(with_longer=roles.is_gold and file.pinned)
        positions = _split_rows(table, split_column, split_value)
        if drop_unscored:
            positions = _scored_rows(table, roles, positions)
        parts.append(TableRows(table, positions, subset=file.subset))
    return to_split(parts, roles, subset=subset, classes=classes)


def _find_file_roles(
    path: Path,
    layout: FileLayout,
    column_by_role: Mapping[str, ColumnKey],
    classes: Sequence[str] | None,
    subset: ColumnKey | None,
) -> ColumnRoles:
    """Find the columns to read in a file; it is read only if the card does not give them all.

    Args:
        path: The file.
        layout: Its layout in the card.
        column_by_role: The columns that the card gives, by role.
        classes: The labels in the card, with which a column of labels is preferred; None if there
            are none.
        subset: The column of subsets in the card, for gold scores only; None if there is none.

    Raises:
        CardError: A role is not clear, or a parameter has no effect.
    """
    header: Sequence[str] = ()
    if not _is_complete(column_by_role):
        header = read_table(path, layout, by_name=True).header
    roles = find_roles(header, column_by_role, prefer_label=classes is not None, where=str(path))
    if roles.is_gold and classes is not None:
        raise CardError(f"{path}: 'classes' has no effect with scores; leave it out")
    if not roles.is_gold and subset is not None:
        raise CardError(f"{path}: 'subset' has no effect with labels; leave it out")
    return roles


def _is_complete(column_by_role: Mapping[str, ColumnKey]) -> bool:
    """Return whether a card gives the columns of both the sentences and the target.

    Args:
        column_by_role: The columns that the card gives, by role: ``sentence``, ``gold`` and so on.
    """
    has_sentences = "sentence" in column_by_role or {"sentence1", "sentence2"} <= {*column_by_role}
    return has_sentences and bool({"gold", "label"} & {*column_by_role})


def _split_rows(table: TextTable, column: ColumnKey | None, split_value: str) -> Sequence[int]:
    """Return the positions of the rows of a split.

    Args:
        table: The table.
        column: The column with the split of each row; None if the whole table is the split.
        split_value: The value of the split in that column.

    Raises:
        DataError: The column is missing, or no row has this value.
    """
    if column is None:
        return range(len(table.rows))
    values = table.column(column)
    positions = [position for position, value in enumerate(values) if value == split_value]
    if not positions:
        distinct_values = format_names(sorted(set(values)))
        raise DataError(f"{table.path}: no row of split '{split_value}' (has {distinct_values})")
    return positions


def _scored_rows(table: TextTable, roles: ColumnRoles, positions: Sequence[int]) -> list[int]:
    """Return those of some rows that have a score.

    Args:
        table: The table.
        roles: The columns to read.
        positions: The positions of the rows in the table.

    Raises:
        CardError: The target is a label.
        DataError: No row has a score.
    """
    if not roles.is_gold:
        raise CardError(f"{table.path}: 'drop_unscored' has no effect with labels; leave it out")
    targets = table.column(roles.target)
    scored = [position for position in positions if not is_missing(targets[position])]
    if not scored:
        raise DataError(f"{table.path}: no row has a score in column {roles.target!r}")
    return scored


def to_split(
    parts: Sequence[TableRows],
    roles: ColumnRoles,
    *,
    subset: ColumnKey | None = None,
    classes: Sequence[str] | None = None,
    clean_text: Callable[[str], str] = normalise_blanks,
) -> PairSplit | Labelled:
    """Make a split of pairs with gold scores, or of sentences or pairs with labels.

    Args:
        parts: The rows of each table; they follow each other in the split.
        roles: The columns of the tables to read.
        subset: The column with the subset of each pair; None if each table is of one subset. It is
            not used for labels.
        classes: The labels in the order of the classes; not used for gold scores.
        clean_text: Changes each sentence that has a label; sentences of pairs with gold scores stay
            as they are.

    Raises:
        CardError: There are labels, and no classes.
        DataError: A cell is missing or is not valid; the message names the row.
    """
    rows: list[_Row] = []
    subsets: list[str] = []
    for part in parts:
        rows += _iter_rows(part, roles)
        if subset is None:
            subsets += [part.subset] * len(part.positions)
        else:
            names = part.table.column(subset)
            subsets += [names[position] for position in part.positions]
    if roles.is_gold:
        return _to_pair_split(rows, subsets)
    if classes is None:
        labels = sorted({row.target for row in rows})
        raise CardError(
            f"{parts[0].table.path}: the card must give the classes of column {roles.target!r} in "
            f"params, such as classes = {labels[:6]}, or say gold = {roles.target!r} if it holds "
            "scores"
        )
    return _to_labelled(rows, classes, clean_text)


class _Row(NamedTuple):
    """One item as read."""

    target: str
    """The label or gold score."""
    where: str
    """The file and the line, for messages."""
    sentences: Sequence[str]
    """One sentence, or the two of a pair."""


def _iter_rows(part: TableRows, roles: ColumnRoles) -> Iterator[_Row]:
    """Yield the items in rows of a table.

    Args:
        part: A table, and the positions of the rows to read.
        roles: The columns to read. If both sentences are of one column, they are two lines of its
            cell.

    Raises:
        DataError: A cell of two sentences has another number of lines.
    """
    table = part.table
    sentence_columns = [table.column(key) for key in roles.sentences]
    targets = table.column(roles.target)
    is_pair_in_one_cell = len(roles.sentences) == 2 and len(set(roles.sentences)) == 1
    for position in part.positions:
        where = table.locate_row(position)
        sentences = [column[position] for column in sentence_columns]
        if is_pair_in_one_cell:
            sentences = sentences[0].split("\n")
            if len(sentences) != 2:
                raise DataError(
                    f"{where}: column {roles.sentences[0]!r} holds {len(sentences)} lines, "
                    "a pair has two"
                )
        yield _Row(targets[position].strip(), where, sentences)


Labelled = LabelledSplit | LabelledPairSplit


def _to_pair_split(rows: Sequence[_Row], subsets: Sequence[str]) -> PairSplit:
    """Make a split of pairs with gold scores, which may be written with decimal commas.

    Args:
        rows: The pairs with their scores as text, at least one.
        subsets: The subset of each pair.

    Raises:
        DataError: A score is no number.
    """
    has_commas = has_decimal_commas([row.target for row in rows])
    gold = []
    for row in rows:
        number = row.target.replace(",", ".") if has_commas else row.target
        gold.append(parse_number(number, where=row.where, name="gold score"))
    first_sentences, second_sentences = zip(*(row.sentences for row in rows), strict=True)
    return PairSplit(
        sentences1=list(first_sentences),
        sentences2=list(second_sentences),
        gold=np.array(gold, dtype=np.float64),
        subset=list(subsets),
    )


def _to_labelled(
    rows: Iterable[_Row],
    classes: Sequence[str],
    clean_text: Callable[[str], str] = normalise_blanks,
) -> Labelled:
    """Make a split of labelled sentences, or labelled pairs if the rows have two sentences.

    Args:
        rows: The items, at least one; all have one sentence, or all have two.
        classes: The labels in the order of the classes, which become the numbers 0..c-1.
        clean_text: Changes each sentence; by default its blanks.

    Raises:
        DataError: A label is of no class.
    """
    number_by_class = {name: number for number, name in enumerate(classes)}
    class_numbers: list[int] = []
    sentences_by_row: list[Sequence[str]] = []
    for row in rows:
        if row.target not in number_by_class:
            some_classes = ", ".join(classes[:6]) + (", …" if len(classes) > 6 else "")
            raise DataError(
                f"{row.where}: unknown label '{row.target[:40]}' (known: {some_classes})"
                f"{suggest(row.target, classes)}"
            )
        class_numbers.append(number_by_class[row.target])
        sentences_by_row.append(row.sentences)
    targets: dict[str, Any] = {
        "labels": np.array(class_numbers, dtype=np.int64),
        "classes": list(classes),
    }
    # One column of sentences, or the two columns of pairs.
    first_sentences, *second_sentences = (
        list(map(clean_text, column)) for column in zip(*sentences_by_row, strict=True)
    )
    if not second_sentences:
        return LabelledSplit(sentences=first_sentences, **targets)
    return LabelledPairSplit(sentences1=first_sentences, sentences2=second_sentences[0], **targets)


def read_semeval(
    files: Sequence[DataFile], *, first_rows: Annotated[int, Meta(ge=0)] = 0
) -> PairSplit:
    """Read SemEval's pairs with gold scores from pairs of files.

    The input file of a subset has two sentences per line, its gold file the score of each line. A
    blank gold line marks a pair without a gold score; its sentences are returned as ungraded (STS15
    and STS16 hold thousands).

    Args:
        files: The input file, then the gold file of each subset.
        first_rows: The number of lines to read of each input file, for releases whose input
            continues after the graded part (STS17 track 6); 0 for all.

    Raises:
        CardError: An input file has no gold file.
        DataError: A file is broken, an input file and its gold file differ in length, or no pair
            has a gold score.
    """
    if len(files) % 2:
        raise CardError(
            f"reader 'semeval' takes input and gold files in turn; {files[-1].path} stands alone"
        )
    first_sentences: list[str] = []
    second_sentences: list[str] = []
    gold: list[float] = []
    subsets: list[str] = []
    ungraded: list[str] = []
    for input_file, gold_file in zip(files[::2], files[1::2], strict=True):
        pairs = _read_semeval_pairs(input_file, first_rows)
        gold_lines = read_lines(gold_file.path)
        if len(pairs) != len(gold_lines):
            raise DataError(
                f"{input_file.path}: {len(pairs)} pairs, "
                f"but {gold_file.path.name} has {len(gold_lines)} lines"
            )
        for number, (pair, line) in enumerate(zip(pairs, gold_lines, strict=True), start=1):
            if not line.strip():
                ungraded += pair
                continue
            where = f"{gold_file.path}: line {number}"
            gold.append(parse_number(line, where=where, name="gold score"))
            first_sentences.append(pair[0])
            second_sentences.append(pair[1])
            subsets.append(input_file.subset)
    if not gold:
        raise DataError(f"{files[1].path}: no pair has a gold score")
    return PairSplit(
        sentences1=first_sentences,
        sentences2=second_sentences,
        gold=np.array(gold, dtype=np.float64),
        subset=subsets,
        ungraded=ungraded,
    )


def _read_semeval_pairs(input_file: DataFile, first_rows: int) -> list[tuple[str, str]]:
    """Return the sentence pairs of an input file, the first cells of its lines.

    Args:
        input_file: Tab-separated lines without a header.
        first_rows: The number of first lines to return; 0 for all.

    Raises:
        DataError: The file is broken, or it is not pinned and its lines differ in length.
    """
    layout = FileLayout("\t", header=False, quoting=False)
    table = read_delimited(input_file.path, layout, by_name=False, encoding="utf-8")
    pairs = list(zip(table.column(0), table.column(1), strict=True))
    # The irregular lines of a pinned file are those of the release itself.
    if not input_file.pinned:
        table.check_row_lengths()
    return pairs[:first_rows] if first_rows else pairs


def read_class_files(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    """Read one file per class, with one sentence per line (MR, CR, SUBJ, MPQA).

    The text is Latin-1, and a line ends at any line end of Unicode; an empty line is an empty
    sentence.

    Args:
        files: The files; the card gives the label of each.
        classes: The labels in the order of the classes.

    Raises:
        CardError: The label of a file is of no class.
        DataError: A file is broken.
    """
    for file in files:
        if file.label not in classes:
            suggestion = suggest(file.label, classes)
            raise CardError(
                f"{file.path.name}: label '{file.label}' is not among {', '.join(classes)}"
                f"{suggestion}"
            )
    rows: list[_Row] = []
    for file in files:
        # As SentEval's f.read().splitlines() (senteval/binary.py).
        lines = read_text(file.path, encoding="latin-1").splitlines()
        rows += [_Row(target=file.label, where="", sentences=[line]) for line in lines]
    return _to_labelled(rows, classes)


def read_trec(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    """Read TREC's lines ``COARSE:fine question`` in Latin-1.

    Args:
        files: The files.
        classes: The coarse labels in the order of the classes; the fine ones are not used.

    Raises:
        DataError: A line has another form, or a label of no class.
    """
    rows: list[_Row] = []
    for where, line in _iter_lines(files, encoding="latin-1"):
        # As SentEval's trec.py: the fine label ends at the first blank.
        coarse_label, colon, rest = line.strip().partition(":")
        _, blank, question = rest.partition(" ")
        if not colon or not blank:
            raise DataError(f"{where}: expected 'LABEL:fine question'")
        rows.append(_Row(coarse_label, where, [question]))
    return _to_labelled(rows, classes)


def read_snli(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    r"""Read SNLI in SentEval's layout: a file of premises, one of hypotheses, one of labels.

    SentEval decodes the UTF-8 sentences as Latin-1, and so do we: its models saw that text. Lines
    end at ``\n`` alone, so that no byte within a character can shift sentences against labels.

    Args:
        files: The three files.
        classes: The labels in the order of the classes.

    Raises:
        CardError: There are more or fewer than three files.
        DataError: The files differ in their number of lines, or a label is of no class.
    """
    if len(files) != 3:
        raise CardError(
            f"reader 'snli' takes three files a split (s1, s2, labels), the card names {len(files)}"
        )
    *sentence_files, label_file = files
    label_lines = list(_iter_lines([label_file]))
    sentence_columns = [read_lines(file.path, encoding="latin-1") for file in sentence_files]
    for file, sentences in zip(sentence_files, sentence_columns, strict=True):
        if len(sentences) != len(label_lines):
            raise DataError(
                f"{file.path}: {len(sentences)} lines, "
                f"but {label_file.path.name} has {len(label_lines)}"
            )
    pairs = zip(*sentence_columns, strict=True)
    rows = [
        _Row(target=label, where=where, sentences=pair)
        for (where, label), pair in zip(label_lines, pairs, strict=True)
    ]
    return _to_labelled(rows, classes)


_PROBING_TAG_BY_SPLIT = {"train": "tr", "validation": "va", "test": "te"}


def read_probing(files: Sequence[DataFile], *, split: str, classes: Sequence[str] = ()) -> Labelled:
    """Read one split of a probing file: lines of tag, label, …, sentence (the last field).

    Args:
        files: The files.
        split: The split to read.
        classes: The labels in the order of the classes; by default the labels of the train rows in
            sorted order, as SentEval numbers them.

    Raises:
        CardError: The format has no such split.
        DataError: A line has another form, a label is of no class, or the split has no rows.
    """
    if split not in _PROBING_TAG_BY_SPLIT:
        raise CardError(
            f"reader 'probing' has the splits {', '.join(_PROBING_TAG_BY_SPLIT)}, not '{split}'"
        )
    rows_by_tag: dict[str, list[_Row]] = {tag: [] for tag in _PROBING_TAG_BY_SPLIT.values()}
    for where, line in _iter_lines(files):
        fields = line.rstrip().split("\t")
        if len(fields) < 3:
            raise DataError(f"{where}: {len(fields)} fields, expected tag, label and sentence")
        tag, label, *_, sentence = fields
        if tag not in rows_by_tag:
            raise DataError(
                f"{where}: unknown split tag {format_field(tag)} (known: {', '.join(rows_by_tag)})"
            )
        rows_by_tag[tag].append(_Row(label, where, [sentence]))
    rows = rows_by_tag[_PROBING_TAG_BY_SPLIT[split]]
    if not rows:
        raise DataError(
            f"{files[0].path}: no row is tagged '{_PROBING_TAG_BY_SPLIT[split]}' ({split})"
        )
    return _to_labelled(rows, classes=classes or sorted({row.target for row in rows_by_tag["tr"]}))


def _iter_lines(files: Sequence[DataFile], *, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yield ``(location, text)`` for each line: its file and number for messages, and its text."""
    for file in files:
        for number, line in enumerate(read_lines(file.path, encoding=encoding), start=1):
            yield f"{file.path}: line {number}", line


def read_captions(
    files: Sequence[DataFile],
    *,
    features: str = "features",
    captions_per_image: Annotated[int, Meta(ge=1)] = 5,
    suffix: str = " .",
) -> CaptionSplit:
    """Read one split of an image-caption task: a file of image features, then one of captions.

    As in SentEval, only the first captions of each image are used, and each ends in a suffix.

    Args:
        files: A ``.safetensors`` file, and a JSON list that holds the list of captions of each
            image in turn.
        features: The name of the array of features, of shape (n_images, n_features).
        captions_per_image: The number of captions to use per image.
        suffix: The text at the end of each caption.

    Raises:
        CardError: There are more or fewer than two files.
        DataError: A file is broken, or the two do not fit each other.
    """
    if len(files) != 2:
        raise CardError(
            "reader 'captions' takes a features and a captions file, "
            f"the card names {len(files)} files"
        )
    image_features = _read_features(files[0].path, features)
    path = files[1].path
    n_images = len(image_features)
    try:
        captions_by_image = msgspec.json.decode(read_text(path), type=list[list[str]])
    except (msgspec.DecodeError, RecursionError) as error:
        problem = describe_type_problem(join_lines(str(error)))[:150]
        raise DataError(f"{path}: not a list of lists of captions: {problem}") from error
    if len(captions_by_image) != n_images:
        raise DataError(
            f"{path}: captions of {len(captions_by_image)} images, but features of {n_images}"
        )
    used_captions: list[str] = []
    for image, captions in enumerate(captions_by_image):
        if len(captions) < captions_per_image:
            raise DataError(
                f"{path}: image {image} has {len(captions)} captions, "
                f"{captions_per_image} are needed"
            )
        used_captions += [
            normalise_blanks(caption + suffix) for caption in captions[:captions_per_image]
        ]
    return CaptionSplit(
        captions=used_captions,
        image_features=image_features,
        image_of_caption=np.repeat(np.arange(n_images, dtype=np.int64), captions_per_image),
    )


def _read_features(path: Path, name: str) -> npt.NDArray[np.float32]:
    """Read an array of image features, of shape (n_images, n_features), by its name.

    Args:
        path: A ``.safetensors`` file.
        name: The name of the array in it.

    Raises:
        DataError: The file is of another kind or broken, or has no such array of floats.
    """
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors":
        raise DataError(
            f"{path}: image features come as .safetensors, not as '{path.suffix}'",
            remedy=Remedy("convert-coco") if path.suffix == ".pkl" else None,
        )
    # Types that numpy lacks, such as bfloat16, are a TypeError or an AttributeError.
    exception_types = (OSError, SafetensorError, TypeError, AttributeError)
    problem = f"{path}: cannot be read as .safetensors"
    with (
        translate_errors(problem, DataError, *exception_types),
        safe_open(path, framework="np") as arrays,
    ):
        names = list(arrays.keys())
        if name not in names:
            raise DataError(
                f"{path}: no array '{name}' (has {format_names(names)}){suggest(name, names)}"
            )
        array: npt.NDArray[Any] = arrays.get_tensor(name)
    if array.ndim != 2 or not len(array) or not np.issubdtype(array.dtype, np.floating):
        raise DataError(
            f"{path}: '{name}' must be a float array (images, size), "
            f"it is {array.dtype} {array.shape}"
        )
    # A number too large for float32 becomes infinite, which is refused later.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)
