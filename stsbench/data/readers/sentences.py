"""Readers of SentEval's own formats of sentences, and of captions.

Labels and sentences are as in :mod:`stsbench.data.readers.sentence_tables`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import CardError, DataError, Remedy, suggest, translate_errors
from stsbench.core.wording import as_one_line, describe_type_problem, format_count
from stsbench.data.readers.files import read_delimited
from stsbench.data.readers.sentence_tables import (
    Labelled,
    SentenceRow,
    normalise_blanks,
    to_labelled,
)
from stsbench.data.readers.table import DataFile, FileLayout, format_names
from stsbench.data.readers.text import format_field, parse_gold_score, read_lines, read_text
from stsbench.data.splits import CaptionSplit, PairSplit


def read_semeval(
    files: Sequence[DataFile], *, first_rows: Annotated[int, Meta(ge=0)] = 0
) -> PairSplit:
    """Read SemEval's pairs with gold scores from pairs of files.

    The input file of a subset has two sentences per line, its gold file the score of each line. A
    blank gold line means that the pair has no gold score. STS15 and STS16 have thousands of these;
    their sentences are not in the pairs of the split, but in its list ``ungraded``.

    Args:
        files: The input file and the gold file of the first subset, then those of the next one, and
            so on.
        first_rows: The number of lines to read of each input file, for releases whose input
            continues after the pairs with scores (STS17 track 6); 0 for all.

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
                f"{input_file.path}: {format_count(len(pairs), 'pair')}, "
                f"but {gold_file.path.name} has {format_count(len(gold_lines), 'line')}"
            )
        for index, (first_sentence, second_sentence) in enumerate(pairs):
            gold_line = gold_lines[index]
            if not gold_line.strip():
                ungraded += [first_sentence, second_sentence]
                continue
            where = f"{gold_file.path}: line {index + 1}"
            gold.append(parse_gold_score(gold_line, where=where))
            first_sentences.append(first_sentence)
            second_sentences.append(second_sentence)
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
    """Return the sentence pairs of an input file: the first two cells of each line.

    Args:
        input_file: The file, with tab-separated lines without a header. ``pinned`` is whether the
            card has its sha256.
        first_rows: The number of first lines to return; 0 for all.

    Raises:
        DataError: The file is broken; or it is not pinned, and its lines have different numbers of
            cells.
    """
    layout = FileLayout("\t", header=False, quoting=False)
    table = read_delimited(input_file.path, layout, by_name=False, encoding="utf-8")
    pairs = list(zip(table.column(0), table.column(1), strict=True))
    # If the sha256 is right, irregular lines are those of the release itself. Else they raise the
    # DataError.
    if not input_file.pinned:
        table.check_row_lengths()
    return pairs[:first_rows] if first_rows else pairs


def read_class_files(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    """Read one file per class, with one sentence per line (MR, CR, SUBJ, MPQA).

    The text is Latin-1, and a line ends at any line end of Unicode; an empty line is an empty
    sentence.

    Args:
        files: The files; each has a ``label``, which the card gives.
        classes: The labels in the order of the classes, which become the numbers 0, 1, ….

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
    rows: list[SentenceRow] = []
    for file in files:
        # As SentEval's f.read().splitlines() (senteval/binary.py).
        lines = read_text(file.path, encoding="latin-1").splitlines()
        rows += [SentenceRow(target=file.label, where="", sentences=[line]) for line in lines]
    return to_labelled(rows, classes)


def read_trec(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    """Read TREC's lines ``COARSE:fine question`` in Latin-1.

    Args:
        files: The files.
        classes: The coarse labels in the order of the classes, which become the numbers 0, 1, ….
            The fine labels are not used.

    Raises:
        DataError: A line, also an empty one, has another form, or a label of no class.
    """
    rows: list[SentenceRow] = []
    # Messages begin with the file and the number of the line, where.
    for where, line in _iter_lines(files, encoding="latin-1"):
        # As SentEval's trec.py: the fine label ends at the first blank.
        coarse_label, colon, rest = line.strip().partition(":")
        _, blank, question = rest.partition(" ")
        if not colon or not blank:
            raise DataError(f"{where}: expected 'LABEL:fine question'")
        rows.append(SentenceRow(coarse_label, where, [question]))
    return to_labelled(rows, classes)


def read_snli(files: Sequence[DataFile], *, classes: Sequence[str]) -> Labelled:
    r"""Read SNLI in SentEval's layout: a file of premises, one of hypotheses, one of labels.

    SentEval decodes the UTF-8 sentences as Latin-1, and so do we: its models saw that text. Lines
    end at ``\n`` alone, so that no byte within a character can shift sentences against labels.

    Args:
        files: The three files, in this order.
        classes: The labels in the order of the classes, which become the numbers 0, 1, ….

    Raises:
        CardError: There are more or fewer than three files.
        DataError: The files differ in their number of lines, or a label is of no class.
    """
    if len(files) != 3:
        raise CardError(
            f"reader 'snli' takes three files a split (s1, s2, labels), the card names {len(files)}"
        )
    *sentence_files, label_file = files
    # For each line: the file and the number of the line for messages, and its text, the label.
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
        SentenceRow(target=label, where=where, sentences=pair)
        for (where, label), pair in zip(label_lines, pairs, strict=True)
    ]
    return to_labelled(rows, classes)


_PROBING_TAG_BY_SPLIT = {"train": "tr", "validation": "va", "test": "te"}


def read_probing(files: Sequence[DataFile], *, split: str, classes: Sequence[str] = ()) -> Labelled:
    """Read one split of SentEval's probing files, which have all splits in one file.

    The tab-separated fields of a line are a tag of the split (``tr``, ``va`` or ``te``), the label,
    perhaps others, and at last the sentence.

    Args:
        files: The files.
        split: The split to read: ``train``, ``validation`` or ``test``.
        classes: The labels in the order of the classes, which become the numbers 0, 1, …. If it is
            empty, they are the labels of the train rows in sorted order, as in SentEval.

    Raises:
        CardError: The format has no such split.
        DataError: A line has another form, a label is of no class, or the split has no rows.
    """
    if split not in _PROBING_TAG_BY_SPLIT:
        raise CardError(
            f"reader 'probing' has the splits {', '.join(_PROBING_TAG_BY_SPLIT)}, not '{split}'"
        )
    rows_by_tag: dict[str, list[SentenceRow]] = {tag: [] for tag in _PROBING_TAG_BY_SPLIT.values()}
    for where, line in _iter_lines(files):
        fields = line.rstrip().split("\t")
        if len(fields) < 3:
            raise DataError(f"{where}: {len(fields)} fields, expected tag, label and sentence")
        tag, label, *_, sentence = fields
        if tag not in rows_by_tag:
            raise DataError(
                f"{where}: unknown split tag {format_field(tag)} (known: {', '.join(rows_by_tag)})"
            )
        rows_by_tag[tag].append(SentenceRow(label, where, [sentence]))
    split_tag = _PROBING_TAG_BY_SPLIT[split]
    rows = rows_by_tag[split_tag]
    if not rows:
        raise DataError(f"{files[0].path}: no row is tagged '{split_tag}' ({split})")
    train_labels = sorted({row.target for row in rows_by_tag["tr"]})
    return to_labelled(rows, classes or train_labels)


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
    """Read one split of images and their captions: a file of image features, then one of captions.

    As in SentEval, only the first captions of each image are used, and a full stop is added to each
    of them.

    Args:
        files: A ``.safetensors`` file, and a JSON list that holds the list of captions of each
            image in turn.
        features: The name of the array of features, of shape (n_images, n_features).
        captions_per_image: The number of captions to use per image.
        suffix: The text that is added to each caption.

    Raises:
        CardError: There are more or fewer than two files.
        DataError: A file is broken, or the two do not fit each other.
    """
    if len(files) != 2:
        raise CardError(
            "reader 'captions' takes a features and a captions file, "
            f"the card names {len(files)} files"
        )
    features_path, captions_path = (file.path for file in files)
    image_features = _read_features(features_path, features)
    n_images = len(image_features)
    try:
        captions_by_image = msgspec.json.decode(read_text(captions_path), type=list[list[str]])
    except (msgspec.DecodeError, RecursionError) as error:
        problem = describe_type_problem(as_one_line(str(error)))[:150]
        raise DataError(f"{captions_path}: not a list of lists of captions: {problem}") from error
    if len(captions_by_image) != n_images:
        raise DataError(
            f"{captions_path}: captions of {len(captions_by_image)} images, "
            f"but features of {n_images}"
        )
    used_captions: list[str] = []
    for image, captions in enumerate(captions_by_image):
        if len(captions) < captions_per_image:
            raise DataError(
                f"{captions_path}: image {image} has {len(captions)} captions, "
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
    # Types of numbers that numpy lacks, such as bfloat16, raise a TypeError or an AttributeError.
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
    # A number too large for float32 becomes infinite, which the check of the split refuses.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)
