"""Readers of sentences and pairs of sentences, with gold scores or classes: tables of any kind, SentEval's own formats, captions.

A class is the label's place in ``classes``, which a card gives in SentEval's order. Sentences with a class are what
SentEval's loaders make of them: split at white space, joined by one blank again. Rows keep the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import CardError, DataError, suggest, translate_errors
from stsbench.core.wording import describe_type_problem, join_lines
from stsbench.data.readers.files import (
    ColumnKey,
    DataFile,
    FileLayout,
    TextTable,
    format_names,
    parse_number,
    read_delimited,
    read_lines,
    read_table,
    read_text,
    shown_field,
)
from stsbench.data.splits import CaptionSplit, LabelledPairSplit, LabelledSplit, PairSplit

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
GOLD = (
    "score",
    "gold",
    "goldscore",
    "similarity",
    "similarityscore",
    "relatedness",
    "relatednessscore",
)
LABELS = ("label", "class", "category", "target")
NAMES = {
    *GOLD,
    *LABELS,
    *SENTENCES,
    *(name for pair in PAIRS for name in pair),
    "id",
    "split",
    "subset",
}


def _rejoin(text: str) -> str:
    return " ".join(text.split())


class ColumnRoles(NamedTuple):
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
) -> PairSplit | Labelled:
    """Read pairs with scores, or sentences or pairs with labels, from tables of any kind.

    Columns, by name or position, that the card does not give are those of a usual name, see ``PAIRS`` and the lists below
    it. Files are read one after the other as one split (the Hub's SICK-R is train, trial and test). With ``split_column``
    only the rows of this split are read; ``split_values`` are what it calls splits otherwise than the card. ``fields`` cuts a line into that many fields at most: the last one keeps its
    delimiters. Where both sentences are of one column, its cells hold both, a line each.
    """
    layout, first = FileLayout(delimiter, header, quoting, fields or None), files[0].path
    said = {
        "sentence": sentence,
        "sentence1": sentence1,
        "sentence2": sentence2,
        "gold": gold,
        "label": label,
    }
    given = {role: key for role, key in said.items() if key is not None}
    whole = ("sentence" in given or {"sentence1", "sentence2"} <= {*given}) and {
        "gold",
        "label",
    } & {*given}
    names = () if whole else read_table(first, layout, named=True).header
    roles = find_roles(names, given, wants_label=classes is not None, where=str(first))
    if (classes if roles.is_gold else subset) is not None:
        key, kind = ("classes", "scores") if roles.is_gold else ("subset", "labels")
        raise CardError(f"{first}: '{key}' has no effect with {kind}; leave it out")
    named = any(
        isinstance(key, str) for key in (*roles.sentences, roles.target, subset, split_column)
    )
    parts: list[tuple[TextTable, Sequence[int], str]] = []
    for file in files:
        table = read_table(file.path, layout, named=named)
        # A delimiter too many shifts columns.
        table.check_even(with_longer=roles.is_gold and file.pinned)
        rows: Sequence[int] = range(len(table.rows))
        if split_column is not None:
            found, wanted = table.column(split_column), (split_values or {}).get(split, split)
            rows = [at for at, name in enumerate(found) if name == wanted]
            if not rows:
                raise DataError(
                    f"{file.path}: no row of split '{wanted}' (has {format_names(sorted(set(found)))})"
                )
        parts.append((table, rows, file.subset))
    return to_split(parts, roles, subset=subset, classes=classes)


def to_split(
    parts: Sequence[tuple[TextTable, Sequence[int], str]],
    roles: ColumnRoles,
    *,
    subset: ColumnKey | None = None,
    classes: Sequence[str] | None = None,
    joined: Callable[[str], str] = _rejoin,
) -> PairSplit | Labelled:
    """Make a split of tables, of each the rows at some positions, and the subset of them where no column says it.

    ``joined`` is what is done to sentences that have a label. Raises DataError or CardError, naming the row.
    """
    rows: list[Row] = []
    subsets: list[str] = []
    left, right = roles.sentences[0], roles.sentences[-1]
    for table, positions, name in parts:
        sides = [table.column(key) for key in roles.sentences]
        cells = table.column(roles.target)
        names = [name] * len(cells) if subset is None else table.column(subset)
        for at in positions:
            item, place = [side[at] for side in sides], table.place(at)
            if len(sides) == 2 and left == right and len(item := sides[0][at].split("\n")) != 2:
                raise DataError(f"{place}: column {left!r} holds {len(item)} lines, a pair has two")
            rows.append((cells[at].strip(), place, item))
            subsets.append(names[at])
    if roles.is_gold:
        gold = [parse_number(cell, where=place, what="gold score") for cell, place, _ in rows]
        first, second = map(list, zip(*(item for _, _, item in rows), strict=True))
        return PairSplit(
            sentences1=first,
            sentences2=second,
            gold=np.array(gold, dtype=np.float64),
            subset=subsets,
        )
    if classes is None:
        known = sorted({cell for cell, _, _ in rows})
        raise CardError(
            f"{parts[0][0].path}: the card must give the classes of column {roles.target!r} in params, such as "
            f"classes = {known[:6]}, or say gold = {roles.target!r} if it holds scores"
        )
    return _labelled(rows, classes, joined)


Labelled = LabelledSplit | LabelledPairSplit
Row = tuple[str, str, Sequence[str]]
"""A row's label, its place for a message, and its one sentence or two."""


def _labelled(
    rows: Iterable[Row], classes: Sequence[str], joined: Callable[[str], str] = _rejoin
) -> Labelled:
    ids = {name: at for at, name in enumerate(classes)}
    labels: list[int] = []
    texts: list[Sequence[str]] = []
    for name, where, item in rows:
        if name not in ids:
            some = ", ".join(classes[:6]) + (", …" if len(classes) > 6 else "")
            raise DataError(
                f"{where}: unknown label '{name[:40]}' (known: {some}){suggest(name, classes)}"
            )
        labels.append(ids[name])
        texts.append(item)
    first, *second = ([joined(text) for text in side] for side in zip(*texts, strict=True))
    answers: dict[str, Any] = {"labels": np.array(labels, dtype=np.int64), "classes": list(classes)}
    if not second:
        return LabelledSplit(sentences=first, **answers)
    return LabelledPairSplit(sentences1=first, sentences2=second[0], **answers)


def find_roles(
    header: Sequence[str], given: Mapping[str, ColumnKey], *, wants_label: bool, where: str
) -> ColumnRoles:
    """Find which column is which, by what is given and, for the rest, by usual names.

    ``wants_label``: whether a label is meant where the names of columns fit both a label and a score. Raises CardError:
    something is not clear; says what can be given.
    """
    if "gold" in given and "label" in given:
        raise CardError(f"{where}: 'gold' and 'label' are both given; a table has scores or labels")
    sentences = find_sentences(header, given, where=where)
    golds = [given["gold"]] if "gold" in given else [*columns_called(header, GOLD)]
    labels = [given["label"]] if "label" in given else [*columns_called(header, LABELS)]
    if "gold" in given:
        labels = []
    elif "label" in given or wants_label or len(sentences) == 1:
        # One sentence has no similarity.
        golds = []
    if len(golds) + len(labels) != 1:
        which = (
            f"{' and '.join(map(str, golds + labels))} may be"
            if golds or labels
            else "none has a usual name of"
        )
        raise _unclear(where, header, f"{which} the scores or labels; give gold or label in params")
    if golds and len(sentences) == 1:
        raise CardError(
            f"{where}: one sentence has no gold score; give sentence1 and sentence2, or a label"
        )
    return ColumnRoles(sentences, (golds or labels)[0], is_gold=bool(golds))


def find_sentences(
    header: Sequence[str], given: Mapping[str, ColumnKey], *, where: str
) -> tuple[ColumnKey, ...]:
    """Find which columns hold the sentences; raises CardError as :func:`find_roles` does."""
    pair = tuple(given[role] for role in ("sentence1", "sentence2") if role in given)
    if "sentence" in given and pair:
        raise CardError(
            f"{where}: 'sentence' is given beside 'sentence1' or 'sentence2'; give one sentence or two"
        )
    if "sentence" in given or len(pair) == 2:
        return pair or (given["sentence"],)
    if pair:
        raise CardError(f"{where}: one sentence of the pair is given; give sentence1 and sentence2")
    called = ((columns_called(header, [one]), columns_called(header, [two])) for one, two in PAIRS)
    pairs = [(one[0], two[0]) for one, two in called if one and two]
    singles = columns_called(header, SENTENCES)
    if len(pairs) == 1:
        return pairs[0]
    if not pairs and len(singles) == 1:
        return (singles[0],)
    which = "several columns may be" if pairs or singles else "no columns have usual names of"
    raise _unclear(
        where,
        header,
        f"{which} the sentences; give sentence1 and sentence2, or sentence, in params",
    )


def _unclear(where: str, header: Sequence[str], problem: str) -> CardError:
    return CardError(f"{where}: {problem}; its columns are {format_names(header) or 'not named'}")


def columns_called(header: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns that have one of these names, however it is written."""
    return [column for column in header if plain_name(column) in names]


def plain_name(column: str) -> str:
    """A column's name as the lists here have it."""
    return re.sub(r"[\W_]+", "", column.casefold())


def read_semeval(
    files: Sequence[DataFile], *, first_rows: Annotated[int, Meta(ge=0)] = 0
) -> PairSplit:
    """Read SemEval's pairs of files: an input file, then the gold file of the same subset.

    A blank gold line marks a pair without a gold score; its sentences are kept as ungraded
    (STS15 and STS16 hold thousands). ``first_rows`` keeps that many input lines only, for
    releases whose input continues after the graded part (STS17 track 6).
    """
    if len(files) % 2:
        raise CardError(
            f"reader 'semeval' takes input and gold files in turn; {files[-1].path} stands alone"
        )
    graded: list[tuple[str, str, float, str]] = []
    ungraded: list[str] = []
    for pairs, scores in zip(files[::2], files[1::2], strict=True):
        table = read_delimited(
            pairs.path, FileLayout("\t", header=False, quoting=False), named=False
        )
        both = list(zip(table.column(0), table.column(1), strict=True))[: first_rows or None]
        if not pairs.pinned:
            table.check_even()
        lines = read_lines(scores.path)
        if len(both) != len(lines):
            raise DataError(
                f"{pairs.path}: {len(both)} pairs, but {scores.path.name} has {len(lines)} lines"
            )
        for at, (pair, line) in enumerate(zip(both, lines, strict=True), start=1):
            if line.strip():
                score = parse_number(line, where=f"{scores.path}: line {at}", what="gold score")
                graded.append((*pair, score, pairs.subset))
            else:
                ungraded += pair
    if not graded:
        raise DataError(f"{files[1].path}: no pair has a gold score")
    first, second, gold, subset = map(list, zip(*graded, strict=True))
    scored = np.array(gold, dtype=np.float64)
    return PairSplit(
        sentences1=first, sentences2=second, gold=scored, subset=subset, ungraded=ungraded
    )


def read_class_files(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    """Read one file a class, a sentence a line (MR, CR, SUBJ, MPQA); the card labels each file.

    The text is Latin-1 and ends a line wherever Unicode does; an empty line is an empty sentence.
    """
    for file in files:
        if file.label not in classes:
            near = suggest(file.label, classes)
            raise CardError(
                f"{file.path.name}: label '{file.label}' is not among {', '.join(classes)}{near}"
            )
    lines = [
        (file, line)
        for file in files
        for line in read_text(file.path, encoding="latin-1").splitlines()
    ]
    return _labelled(((file.label, "", [line]) for file, line in lines), classes)


def read_trec(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    """Read TREC's lines ``COARSE:fine question`` in Latin-1; the coarse label counts."""
    rows: list[Row] = []
    for place, line in _placed_lines(files, encoding="latin-1"):
        coarse, colon, rest = line.strip().partition(":")
        _, blank, question = rest.partition(" ")
        if not colon or not blank:
            raise DataError(f"{place}: expected 'LABEL:fine question'")
        rows.append((coarse, place, [question]))
    return _labelled(rows, classes)


def read_snli(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    r"""Read SNLI in SentEval's layout: a file of premises, one of hypotheses, one of labels.

    SentEval decodes the UTF-8 sentences as Latin-1, and so do we: its models saw that text.
    Lines end at ``\n`` alone, so that no byte within a character can shift sentences against labels.
    """
    if len(files) != 3:
        raise CardError(
            f"reader 'snli' takes three files a split (s1, s2, labels), the card names {len(files)}"
        )
    names = list(_placed_lines(files[2:]))
    sides = [read_lines(file.path, encoding="latin-1") for file in files[:2]]
    for file, lines in zip(files, sides, strict=False):
        if len(lines) != len(names):
            raise DataError(
                f"{file.path}: {len(lines)} lines, but {files[2].path.name} has {len(names)}"
            )
    rows = zip(names, *sides, strict=True)
    return _labelled(((name, place, pair) for (place, name), *pair in rows), classes)


_PROBING_TAGS = {"train": "tr", "validation": "va", "test": "te"}


def read_probing(files: Sequence[DataFile], *, split: str, classes: Sequence[str] = ()) -> Labelled:
    """Read one split of a probing file: lines of tag, label, …, sentence (the last field).

    Without ``classes``, they are the labels of the train rows in sorted order, as SentEval numbers them.
    """
    if split not in _PROBING_TAGS:
        raise CardError(
            f"reader 'probing' has the splits {', '.join(_PROBING_TAGS)}, not '{split}'"
        )
    rows: dict[str, list[Row]] = {tag: [] for tag in _PROBING_TAGS.values()}
    for place, line in _placed_lines(files):
        cells = line.rstrip().split("\t")
        if len(cells) < 3:
            raise DataError(f"{place}: {len(cells)} fields, expected tag, label and sentence")
        if cells[0] not in rows:
            raise DataError(
                f"{place}: unknown split tag {shown_field(cells[0])} (known: {', '.join(rows)})"
            )
        rows[cells[0]].append((cells[1], place, cells[-1:]))
    if not (found := rows[_PROBING_TAGS[split]]):
        raise DataError(f"{files[0].path}: no row is tagged '{_PROBING_TAGS[split]}' ({split})")
    return _labelled(found, classes or sorted({label for label, _, _ in rows["tr"]}))


def _placed_lines(
    files: Sequence[DataFile], *, encoding: str = "utf-8"
) -> Iterator[tuple[str, str]]:
    for file in files:
        for at, line in enumerate(read_lines(file.path, encoding=encoding), start=1):
            yield f"{file.path}: line {at}", line


def read_captions(
    files: Sequence[DataFile],
    *,
    features: str = "features",
    captions_per_image: Annotated[int, Meta(ge=1)] = 5,
    suffix: str = " .",
) -> CaptionSplit:
    """Read one split of an image-caption task: a file of image features, then one of captions.

    The features are an array ``features`` of shape (images, size) in a ``.safetensors`` file. The captions are a JSON list
    that holds the list of captions of each image in turn. As in SentEval, the first ``captions_per_image`` of each image
    are kept and end in ``suffix``.
    """
    if len(files) != 2:
        raise CardError(
            f"reader 'captions' takes a features and a captions file, the card names {len(files)} files"
        )
    array, path = _read_features(files[0].path, features), files[1].path
    try:
        by_image = msgspec.json.decode(read_text(path), type=list[list[str]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise DataError(
            f"{path}: not a list of lists of captions: {describe_type_problem(join_lines(error))[:150]}"
        ) from error
    if len(by_image) != len(array):
        raise DataError(f"{path}: captions of {len(by_image)} images, but features of {len(array)}")
    kept: list[str] = []
    for image, captions in enumerate(by_image):
        if len(captions) < captions_per_image:
            raise DataError(
                f"{path}: image {image} has {len(captions)} captions, {captions_per_image} are needed"
            )
        kept += [" ".join((caption + suffix).split()) for caption in captions[:captions_per_image]]
    images = np.repeat(np.arange(len(array), dtype=np.int64), captions_per_image)
    return CaptionSplit(captions=kept, image_features=array, image_of_caption=images)


def _read_features(path: Path, name: str) -> npt.NDArray[np.float32]:
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors":
        pickled = (
            "; 'stsbench data convert-coco' reads the published pickles"
            if path.suffix == ".pkl"
            else ""
        )
        raise DataError(
            f"{path}: image features come as .safetensors, not as '{path.suffix}'{pickled}"
        )
    kinds = (
        OSError,
        SafetensorError,
        TypeError,
        AttributeError,
    )  # types that numpy has not: bfloat16
    what = f"{path}: cannot be read as .safetensors"
    with translate_errors(what, DataError, *kinds), safe_open(path, framework="np") as arrays:
        if name not in (names := list(arrays.keys())):
            raise DataError(
                f"{path}: no array '{name}' (has {format_names(names)}){suggest(name, names)}"
            )
        array: npt.NDArray[Any] = arrays.get_tensor(name)
    if array.ndim != 2 or not len(array) or not np.issubdtype(array.dtype, np.floating):
        raise DataError(
            f"{path}: '{name}' must be a float array (images, size), it is {array.dtype} {array.shape}"
        )
    with np.errstate(
        over="ignore"
    ):  # what float32 cannot hold is refused with all that is not finite
        return np.ascontiguousarray(array, dtype=np.float32)
