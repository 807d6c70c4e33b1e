"""One reader per file format; a task card names its reader.

A reader is a function ``(files, **params) -> Split``. It is called with the files of one split,
each with its facts in the card, and checks form (columns, numbers, text), not counts.
"""

from __future__ import annotations

import inspect

from stsbench.core.registry import Registry


def _is_reader(reader: object) -> bool:
    """Return whether an object can be called with the parameter ``files``."""
    try:
        return callable(reader) and "files" in inspect.signature(reader).parameters
    except (TypeError, ValueError):
        return False


READERS = Registry(
    "reader",
    {
        "table": "stsbench.data.readers.sentence_tables:read_any_table",
        "semeval": "stsbench.data.readers.sentences:read_semeval",
        "pair_table": "stsbench.data.readers.sentence_tables:read_any_table",
        "class_files": "stsbench.data.readers.sentences:read_class_files",
        "trec": "stsbench.data.readers.sentences:read_trec",
        "labelled_table": "stsbench.data.readers.sentence_tables:read_any_table",
        "labelled_pair_table": "stsbench.data.readers.sentence_tables:read_any_table",
        "snli": "stsbench.data.readers.sentences:read_snli",
        "probing": "stsbench.data.readers.sentences:read_probing",
        "captions": "stsbench.data.readers.sentences:read_captions",
        "contrast_table": "stsbench.data.readers.sentence_tables:read_contrast_table",
    },
    group="readers",
    accepts=_is_reader,
    expected="a function (files, **params) that returns a split",
)
