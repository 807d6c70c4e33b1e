"""Pairs of a sentence and its back-translation, the positives of contrastive learning with back-translation.

The baseline of Kim et al. 2021 (SG-OPT), https://aclanthology.org/2021.acl-long.197, after CERT (Fang and Xie 2020).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.data.corpora.corpus import Corpus
from stsbench.errors import OutputError
from stsbench.files.whole import write_whole
from stsbench.provenance.machine import versions
from stsbench.training.augmentation.translation import Translator

DirectionProgress = Callable[[str, int, int], None]
"""Told the direction, how many sentences are done, and of how many."""


class Written(NamedTuple):
    """What came of it."""

    rows: int
    distinct: int
    same: int
    """Sentences that came back unchanged: such a pair teaches what dropout does."""
    cut: int
    """Sentences whose translation, there or back, was still going on at the longest length."""
    record: Path
    """The record of models, settings and counts, beside the file of pairs."""


def write_back_translations(
    corpus: Corpus, output: Path, forward: Translator, backward: Translator, progress: DirectionProgress | None = None
) -> Written:
    """Write a CSV file of ``anchor`` and ``positive``, a row for each row of the corpus, and a record beside it.

    A corpus without a column ``text`` gives the distinct sentences of all its columns.

    Args:
        corpus: the sentences.
        output: the file of pairs, which must not be there yet; the record is called as it is, and ``.json``.
        forward: into the other language.
        backward: and back.
        progress: told how far it is.

    Raises:
        OutputError: the output is there, is no ``.csv``, or cannot be written.
        EncoderError: a model cannot be loaded.
    """
    record = check_output(output)
    sentences = list((corpus if "text" in corpus.columns else corpus.sentences()).column("text"))
    there = forward.translate(sentences, _told(progress, "there"))
    back = backward.translate([t.text for t in there], _told(progress, "back"))
    stream = io.StringIO(newline="")
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow(["anchor", "positive"])
    rows.writerows(zip(sentences, (t.text for t in back), strict=True))
    cut = len({s for s, t, b in zip(sentences, there, back, strict=True) if t.cut or b.cut})
    same = len({s for s, b in zip(sentences, back, strict=True) if s == b.text})
    written = Written(len(sentences), len(set(sentences)), same, cut, record)
    facts = {
        "schema": 1,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        **{key: getattr(written, key) for key in ("rows", "distinct", "same", "cut")},
        "forward": forward.facts,
        "backward": backward.facts,
        "run": _run(forward),
    }
    write_whole(output, stream.getvalue().encode("utf-8", "replace"))
    write_whole(record, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
    return written


def check_output(output: Path) -> Path:
    """Return the place of the record beside a file of pairs that may be written; raises OutputError."""
    record = output.with_name(f"{output.name}.json")
    if output.suffix != ".csv":
        raise OutputError(f"{output}: pairs are written as .csv; name it {output.stem}.csv")
    for path in (output, record):
        if path.exists():
            raise OutputError(f"{path}: already exists; name another file, or remove it")
    return record


def _told(progress: DirectionProgress | None, direction: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(direction, done, total)


def _run(translator: Translator) -> dict[str, Any]:
    more = {package: metadata.version(package) for package in ("sentencepiece", "sacremoses")}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "created": created,
        "device": translator.device,
        "batch_size": translator.batch_size,
        "versions": {**versions(), **more},
    }
