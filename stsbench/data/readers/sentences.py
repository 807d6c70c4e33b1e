"""Readers of sentences and pairs of sentences, with gold scores or classes: tables of any kind, and SentEval's own formats.

A class is the label's place in ``classes``, which a card gives in SentEval's order. Sentences with a class are what
SentEval's loaders make of them: split at white space, joined by one blank again. Rows keep the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import CardError, DataError, did_you_mean
from stsbench.data.readers.table import (
    ColumnKey,
    DataFile,
    FileLayout,
    TextTable,
    check_delimiter,
    listed,
    needs_header,
    parse_number,
    read_delimited,
    read_lines,
    read_table,
    read_text,
    rows_of_split,
    shown_field,
)
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit

PAIRS = (
    ("sentence1", "sentence2"),
    ("sentencea", "sentenceb"),
    ("s1", "s2"),
    ("sent1", "sent2"),
    ("sent0", "sent1"),
    ("text1", "text2"),
    ("texta", "textb"),
    ("question1", "question2"),
    ("q1", "q2"),
    ("premise", "hypothesis"),
    ("anchor", "positive"),
    ("first", "second"),
    ("a", "b"),
)
"""What the columns of two sentences are called, in lower case and without blanks, hyphens and underscores."""
SENTENCES = ("sentence", "text", "review", "question", "tweet", "document")
GOLD = ("score", "gold", "goldscore", "similarity", "similarityscore", "relatedness", "relatednessscore")
LABELS = ("label", "class", "category", "target")


class Roles(NamedTuple):
    """Which columns hold the sentences of an item, one or two, and its label or gold score."""

    sentences: tuple[ColumnKey, ...]
    target: ColumnKey
    is_gold: bool


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
) -> PairSplit | LabelledSplit | LabelledPairSplit:
    """Read pairs with scores, or sentences or pairs with labels, from tables of any kind.

    Columns, by name or position, that the card does not give are those of a usual name, see ``PAIRS`` and the lists below
    it. Files are read one after the other as one split (the Hub's SICK-R is train, trial and test). With ``split_column``
    only the rows of this split are read, see :func:`rows_of_split`. ``fields`` cuts a line into that many fields at most:
    the last one keeps its delimiters. Where both sentences are of one column, its cells hold both, a line each.
    """
    layout = FileLayout(delimiter, header, quoting)
    given = {"sentence": sentence, "sentence1": sentence1, "sentence2": sentence2, "gold": gold, "label": label}
    roles = _roles_of(files[0], layout, {role: key for role, key in given.items() if key is not None}, classes)
    for key, value in ({"classes": classes} if roles.is_gold else {"subset": subset}).items():
        if value is not None:
            kind = "scores" if roles.is_gold else "labels"
            raise CardError(f"{files[0].path}: '{key}' has no effect with {kind}; leave it out")
    named = needs_header(*roles.sentences, roles.target, subset, split_column)
    tables = [_read(file, layout, fields, named=named, is_gold=roles.is_gold) for file in files]
    if not roles.is_gold and classes is None:
        known = sorted({name.strip() for table in tables for name in table.column(roles.target)})
        raise CardError(
            f"{files[0].path}: the card must give the classes of column {roles.target!r} in params, such as "
            f"classes = {known[:6]}, or say gold = {roles.target!r} if it holds scores"
        )
    texts: list[Sequence[str]] = []
    targets: list[tuple[str, str]] = []
    subsets: list[str] = []
    for file, table in zip(files, tables, strict=True):
        items, cells = _sentences_of(table, roles.sentences), table.column(roles.target)
        if roles.is_gold and not file.pinned:
            # A delimiter too many shifts columns; STS-B as released has two fields more in some rows, at their end.
            table.check_even()
        parts = table.column(subset) if subset is not None else [file.subset] * len(cells)
        for at in rows_of_split(table, split_column, split, split_values):
            texts.append(items[at])
            targets.append((cells[at], table.place(at)))
            subsets.append(parts[at])
    if roles.is_gold:
        scores = [parse_number(cell, where=place, what="gold score") for cell, place in targets]
        left, right = map(list, zip(*texts, strict=True))
        return PairSplit(sentences1=left, sentences2=right, gold=np.array(scores, dtype=np.float64), subset=subsets)
    names = list(classes or [])
    labels = _labels(((cell.strip(), place) for cell, place in targets), names)
    first, *second = ([_rejoin(text) for text in side] for side in zip(*texts, strict=True))
    if not second:
        return LabelledSplit(sentences=first, labels=labels, classes=names)
    return LabelledPairSplit(sentences1=first, sentences2=second[0], labels=labels, classes=names)


def _read(file: DataFile, layout: FileLayout, fields: int, *, named: bool, is_gold: bool) -> TextTable:
    """Read a table with rows; where labels are read they all have the header's number of fields, or ``fields``."""
    if fields:
        delimiter = "\t" if layout.delimiter is None else layout.delimiter
        check_delimiter(file.path, delimiter, quoting=False)
        rows = [line.strip().split(delimiter, fields - 1) for line in read_lines(file.path)]
        table = TextTable(path=file.path, header=[], rows=rows, numbers=range(1, len(rows) + 1))
    else:
        table = read_table(file.path, layout, named=named)
    table.check_filled()
    if not is_gold:
        table.check_even(fields)
    return table


def _sentences_of(table: TextTable, columns: Sequence[ColumnKey]) -> list[Sequence[str]]:
    """The sentences of each row; of a pair in one column the two lines of the cell."""
    if len(columns) == 1 or columns[0] != columns[1]:
        return list(zip(*map(table.column, columns), strict=True))
    pairs = [cell.split("\n") for cell in table.column(columns[0])]
    for at, lines in enumerate(pairs):
        if len(lines) != 2:
            raise DataError(f"{table.place(at)}: column {columns[0]!r} holds {len(lines)} lines, a pair has two")
    return list(pairs)


def _roles_of(
    file: DataFile, layout: FileLayout, given: Mapping[str, ColumnKey], classes: Sequence[str] | None
) -> Roles:
    whole = ("sentence" in given or {"sentence1", "sentence2"} <= {*given}) and {"gold", "label"} & {*given}
    header = () if whole else read_table(file.path, layout, named=True).header
    found = find_roles(header, given, wants_label=classes is not None)
    if isinstance(found, str):
        raise CardError(f"{file.path}: {found}; its columns are {listed(header) or 'not named'}")
    return found


def find_roles(header: Sequence[str], given: Mapping[str, ColumnKey], *, wants_label: bool = False) -> Roles | str:
    """Which column is which, by what is given and, for the rest, by usual names; or what is not clear, in words.

    Args:
        header: the names of the columns.
        given: columns by what they hold: ``sentence``; or ``sentence1`` and ``sentence2``; ``gold`` or ``label``.
        wants_label: whether a label is meant where the names of columns fit both a label and a score.
    """
    if "gold" in given and "label" in given:
        return "'gold' and 'label' are both given; a table has scores or labels"
    if "sentence" in given and {"sentence1", "sentence2"} & {*given}:
        return "'sentence' is given beside 'sentence1' or 'sentence2'; a table has sentences or pairs"
    sentences = find_sentences(header, given)
    if isinstance(sentences, str):
        return sentences
    golds = [given["gold"]] if "gold" in given else [*columns_called(header, GOLD)]
    labels = [given["label"]] if "label" in given else [*columns_called(header, LABELS)]
    if "gold" in given:
        labels = []
    elif "label" in given or wants_label or len(sentences) == 1:
        # One sentence has no similarity.
        golds = []
    if len(golds) + len(labels) != 1:
        which = f"{' and '.join(map(str, golds + labels))} may be" if golds or labels else "none has a usual name of"
        return f"{which} the scores or labels; give gold or label in params"
    if golds and len(sentences) == 1:
        return "one sentence has no gold score; give sentence1 and sentence2, or a label"
    return Roles(sentences, (golds or labels)[0], is_gold=bool(golds))


def find_sentences(header: Sequence[str], given: Mapping[str, ColumnKey]) -> tuple[ColumnKey, ...] | str:
    """Which columns hold the sentences, as :func:`find_roles` finds them; or what is not clear, in words."""
    if "sentence" in given:
        return (given["sentence"],)
    if {"sentence1", "sentence2"} <= {*given}:
        return given["sentence1"], given["sentence2"]
    if {"sentence1", "sentence2"} & {*given}:
        return "one sentence of the pair is given; give sentence1 and sentence2"
    pairs = [
        (one[0], two[0])
        for a, b in PAIRS
        if (one := columns_called(header, [a])) and (two := columns_called(header, [b]))
    ]
    if len(pairs) == 1:
        return pairs[0]
    singles = columns_called(header, SENTENCES)
    if not pairs and len(singles) == 1:
        return (singles[0],)
    which = "several columns may be" if pairs or singles else "no columns have usual names of"
    return f"{which} the sentences; give sentence1 and sentence2, or sentence, in params"


def columns_called(header: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns that have one of these names, however it is written."""
    return [column for column in header if plain_name(column) in names]


def plain_name(column: str) -> str:
    """A column's name as the lists here have it."""
    return re.sub(r"[\W_]+", "", column.casefold())


def read_semeval(files: Sequence[DataFile], *, first_rows: Annotated[int, Meta(ge=0)] = 0) -> PairSplit:
    """Read SemEval's pairs of files: an input file, then the gold file of the same subset.

    A blank gold line marks a pair without a gold score; its sentences are kept as ungraded
    (STS15 and STS16 hold thousands). ``first_rows`` keeps that many input lines only, for
    releases whose input goes on past the graded part (STS17 track 6).
    """
    if len(files) % 2:
        raise CardError(f"reader 'semeval' takes input and gold files in turn; {files[-1].path} stands alone")
    parts = [_read_subset(files[i], files[i + 1], first_rows) for i in range(0, len(files), 2)]
    return PairSplit(
        sentences1=[s for part in parts for s in part.sentences1],
        sentences2=[s for part in parts for s in part.sentences2],
        gold=np.concatenate([part.gold for part in parts]),
        subset=[s for part in parts for s in part.subset],
        ungraded=[s for part in parts for s in part.ungraded],
    )


def _read_subset(pairs: DataFile, gold: DataFile, first_rows: int) -> PairSplit:
    table = read_delimited(pairs.path, FileLayout("\t", header=False, quoting=False), named=False)
    left, right = table.column(0), table.column(1)
    if not pairs.pinned:
        table.check_even()
    scores = read_lines(gold.path)
    if first_rows:
        left, right = left[:first_rows], right[:first_rows]
    if len(left) != len(scores):
        raise DataError(f"{pairs.path}: {len(left)} pairs, but {gold.path.name} has {len(scores)} lines")
    graded = [i for i, score in enumerate(scores) if score.strip()]
    numbers = [parse_number(scores[i], where=f"{gold.path}: line {i + 1}", what="gold score") for i in graded]
    return PairSplit(
        sentences1=[left[i] for i in graded],
        sentences2=[right[i] for i in graded],
        gold=np.array(numbers, dtype=np.float64),
        subset=[pairs.subset] * len(graded),
        ungraded=[text for i, score in enumerate(scores) if not score.strip() for text in (left[i], right[i])],
    )


def read_class_files(files: Sequence[DataFile], *, classes: Sequence[str]) -> LabelledSplit:
    """Read one file a class, a sentence a line (MR, CR, SUBJ, MPQA); the card labels each file.

    The text is Latin-1 and ends a line wherever Unicode does; an empty line is an empty sentence.
    """
    sentences: list[str] = []
    labels: list[int] = []
    for file in files:
        if file.label not in classes:
            raise CardError(
                f"{file.path.name}: label '{file.label}' is not among the card's classes "
                f"({', '.join(classes)}){did_you_mean(file.label, classes)}"
            )
        lines = read_text(file.path, encoding="latin-1").splitlines()
        sentences += map(_rejoin, lines)
        labels += [list(classes).index(file.label)] * len(lines)
    return LabelledSplit(sentences=sentences, labels=np.array(labels, dtype=np.int64), classes=list(classes))


def read_trec(files: Sequence[DataFile], *, classes: Sequence[str]) -> LabelledSplit:
    """Read TREC's lines ``COARSE:fine question`` in Latin-1; the coarse label counts."""
    sentences: list[str] = []
    names: list[tuple[str, str]] = []
    for file in files:
        for at, line in enumerate(read_lines(file.path, encoding="latin-1"), start=1):
            coarse, colon, rest = line.strip().partition(":")
            _, blank, question = rest.partition(" ")
            if not colon or not blank:
                raise DataError(f"{file.path}: line {at}: expected 'LABEL:fine question'")
            names.append((coarse, f"{file.path}: line {at}"))
            sentences.append(_rejoin(question))
    return LabelledSplit(sentences=sentences, labels=_labels(names, classes), classes=list(classes))


def read_snli(files: Sequence[DataFile], *, classes: Sequence[str]) -> LabelledPairSplit:
    r"""Read SNLI in SentEval's layout: a file of premises, one of hypotheses, one of labels.

    SentEval decodes the UTF-8 sentences as Latin-1, and so do we: its models saw that text.
    Lines end at ``\n`` alone, so that no byte within a character can shift sentences against labels.
    """
    if len(files) != 3:
        raise CardError(f"reader 'snli' takes three files a split (s1, s2, labels), the card names {len(files)}")
    premises, hypotheses = (read_lines(file.path, encoding="latin-1") for file in files[:2])
    names = read_lines(files[2].path)
    for file, lines in zip(files[:2], (premises, hypotheses), strict=True):
        if len(lines) != len(names):
            raise DataError(f"{file.path}: {len(lines)} lines, but {files[2].path.name} has {len(names)}")
    where = ((name, f"{files[2].path}: line {at}") for at, name in enumerate(names, start=1))
    return LabelledPairSplit(
        sentences1=[_rejoin(line) for line in premises],
        sentences2=[_rejoin(line) for line in hypotheses],
        labels=_labels(where, classes),
        classes=list(classes),
    )


_PROBING_TAGS = {"train": "tr", "validation": "va", "test": "te"}


def read_probing(files: Sequence[DataFile], *, split: str, classes: Sequence[str] = ()) -> LabelledSplit:
    """Read one split of a probing file: lines of tag, label, …, sentence (the last field).

    Without ``classes``, they are the labels of the train rows in sorted order, as SentEval numbers them.
    """
    if split not in _PROBING_TAGS:
        raise CardError(f"reader 'probing' has the splits {', '.join(_PROBING_TAGS)}, not '{split}'")
    rows = [row for file in files for row in _probing_rows(file)]
    known = list(classes) or sorted({row.label for row in rows if row.tag == _PROBING_TAGS["train"]})
    rows = [row for row in rows if row.tag == _PROBING_TAGS[split]]
    if not rows:
        raise DataError(f"{files[0].path}: no row is tagged '{_PROBING_TAGS[split]}' ({split})")
    labels = _labels(((row.label, row.place) for row in rows), known)
    return LabelledSplit(sentences=[_rejoin(row.sentence) for row in rows], labels=labels, classes=known)


class _ProbingRow(NamedTuple):
    place: str
    tag: str
    label: str
    sentence: str


def _probing_rows(file: DataFile) -> Iterator[_ProbingRow]:
    for at, line in enumerate(read_lines(file.path), start=1):
        place, cells = f"{file.path}: line {at}", line.rstrip().split("\t")
        if len(cells) < 3:
            raise DataError(f"{place}: {len(cells)} fields, expected tag, label and sentence")
        if cells[0] not in _PROBING_TAGS.values():
            tags = ", ".join(_PROBING_TAGS.values())
            raise DataError(f"{place}: unknown split tag {shown_field(cells[0])} (known: {tags})")
        yield _ProbingRow(place, cells[0], cells[1], cells[-1])


def _labels(names: Iterable[tuple[str, str]], classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """The places of labels among the classes; each comes with its place in the data, which names one that is unknown."""
    ids = {name: at for at, name in enumerate(classes)}
    found: list[int] = []
    for name, where in names:
        if name not in ids:
            some = ", ".join(classes[:6]) + (", …" if len(classes) > 6 else "")
            raise DataError(f"{where}: unknown label '{name[:40]}' (known: {some}){did_you_mean(name, classes)}")
        found.append(ids[name])
    return np.array(found, dtype=np.int64)


def _rejoin(text: str) -> str:
    """Return a text's tokens joined by one blank."""
    return " ".join(text.split())
