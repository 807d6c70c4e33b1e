"""Signatures of scores, as sacrebleu has them for BLEU: what is compared, and what is only shown.

Two scores are comparable if and only if the first parts of their signatures are equal: the task
with its split, its card and its data, and the protocol with its metric, aggregation and similarity.
A pair scorer needs no similarity, so that its signature has none: its scores are comparable with
those of the default similarity.
The second part says what made a score: the prompt, the type of numbers, the version of stsbench and
how many texts were cut. It differs between encoders that are compared fairly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from stsbench.core.grouping import group_by
from stsbench.numbers.similarity import DEFAULT_SIMILARITY
from stsbench.results.record import Result, protocol_key

Fields = tuple[tuple[str, str], ...]
"""Names with values as text, in the order in which they are printed."""
FIRST_FIELDS = ("name", "metric", "aggregation", "similarity")
"""The fields of a protocol that are printed before its others."""
ID_LENGTH = 8
HASH_LENGTH = 12
SEPARATOR, PART_SEPARATOR = " | ", " || "
UNKNOWN = "?"
NO_SIMILARITY = ("similarity", "null")
"""The field of the protocol of a pair scorer's score."""
VERSION_LABELS = {
    "data": "data hash",
    "n": "number of items",
    "task_card": "task card's hash",
}
"""The fields of a score that another version of its task may change, with their labels."""
SHORT_LABELS = dict(
    field_and_label.split(":")
    for field_and_label in """
    signature:# tasks:t protocol:p metric:m aggregation:a similarity:s prompt:pr dtype:dt
    version:v cut:cut
    """.split()
)
"""The fields of a short signature, with their labels."""


class _ScoreConditions(Protocol):
    """The conditions of a score, which a Result and a row of a lock file have."""

    @property
    def task(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def protocol(self) -> Mapping[str, Any]: ...
    @property
    def data(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def task_card(self) -> str: ...


class ComparedPart(NamedTuple):
    """The part of a score's signature that is compared: scores are comparable if it is equal."""

    task: str
    split: str
    n: int
    """The number of items."""
    task_card: str
    """The hash of the task's card."""
    data: str
    """The hash of the data."""
    protocol: Fields

    @property
    def comparison_key(self) -> tuple[object, ...]:
        """The fields, with the default similarity for the score of a pair scorer."""
        return (*self[:-1], _fill_similarity(self.protocol))

    def __eq__(self, other: object) -> bool:
        """Return whether scores with these parts are comparable."""
        return isinstance(other, ComparedPart) and self.comparison_key == other.comparison_key

    def __hash__(self) -> int:
        """Return the hash of the fields that are compared."""
        return hash(self.comparison_key)

    @property
    def protocol_name(self) -> str:
        """The name of the protocol."""
        return str(_parse(self.protocol).get("name"))

    def with_protocol(self, **fields: str) -> ComparedPart:
        """Return a copy with other values of some protocol fields: of another score of a Result."""
        return self._replace(protocol=_format_protocol({**_parse(self.protocol), **fields}))


def protocol_part(protocol: Mapping[str, Any]) -> Fields:
    """Return a protocol's fields as text, the same for those whose scores are comparable."""
    return _fill_similarity(_format_protocol(protocol))


def _format_protocol(protocol: Mapping[str, Any]) -> Fields:
    """Return a protocol's fields as text, the same for equal fields in any order."""
    return _split_protocol(protocol_key(protocol))


def _fill_similarity(protocol: Fields) -> Fields:
    """Return a protocol's fields with the default similarity if a pair scorer needed none."""
    default = (NO_SIMILARITY[0], json.dumps(DEFAULT_SIMILARITY))
    return tuple(default if field == NO_SIMILARITY else field for field in protocol)


@lru_cache(maxsize=1024)
def _split_protocol(protocol: str) -> Fields:
    """Return the fields of a protocol's key; cached, because tables need them for each result."""
    fields = json.loads(protocol)
    names = [name for name in FIRST_FIELDS if name in fields]
    names += sorted(fields.keys() - set(FIRST_FIELDS))
    return tuple((name, json.dumps(fields[name], ensure_ascii=False)) for name in names)


def _parse(fields: Fields) -> dict[str, Any]:
    return {name: json.loads(value) for name, value in fields}


def compared_part(score: _ScoreConditions) -> ComparedPart:
    """Return the part of a score's signature that is equal for comparable scores."""
    return ComparedPart(
        task=score.task,
        split=score.split,
        n=score.n,
        task_card=score.task_card,
        data=score.data,
        protocol=_format_protocol(score.protocol),
    )


def describe_mismatch(
    first: _ScoreConditions, second: _ScoreConditions, *, ignore_protocol: bool = False
) -> str | None:
    """Describe why two scores of a task do not compare; None if they do.

    Args:
        first: The first score's conditions; a message names its values first.
        second: The second score's conditions.
        ignore_protocol: Compare only data and cards: a table's column may take such scores from
            results of several protocols.

    Returns:
        The first difference as part of a sentence, ``split differs: 'test' against 'all'``.
    """
    parts = [compared_part(first), compared_part(second)]
    if ignore_protocol:
        parts = [part._replace(protocol=()) for part in parts]
    if parts[0] == parts[1]:
        return None
    if first.split != second.split:
        return f"split differs: '{first.split}' against '{second.split}'"
    protocols = [dict(_fill_similarity(part.protocol)) for part in parts]
    fields = [field for field in {**protocols[0], **protocols[1]} if field != "name"]
    # The name comes last, because any other field explains more.
    for field in [*fields, "name"]:
        if protocols[0].get(field) != protocols[1].get(field):
            values = [dict(part.protocol).get(field, "null") for part in parts]
            values = [value.replace("null", "none").replace('"', "'") for value in values]
            return f"protocol field '{field}' differs: {' against '.join(values)}"
    for field, label in VERSION_LABELS.items():
        if getattr(first, field) != getattr(second, field):
            values = [str(getattr(part, field))[:HASH_LENGTH] for part in parts]
            return f"{label} differs: {' against '.join(values)}"
    return f"task differs: '{first.task}' against '{second.task}'"


def signature_id(parts: Iterable[ComparedPart]) -> str:
    """Return the hash of the first parts of scores: the same on any machine, in any order."""
    return _hash(sorted({part.comparison_key for part in parts}))[:ID_LENGTH]


def _hash(value: object) -> str:
    """Return the sha256 of a value in JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def format_compared(parts: Iterable[ComparedPart], *, short: bool = False) -> str:
    """Return what scores must have in common to be compared, as text.

    A score that has another text is not comparable, because the text begins with a hash of it all.

    Args:
        parts: The compared parts of signatures: that of one score, or those of all scores that a
            mean is over.
        short: Print the hash, the tasks and the main fields of the protocol only.

    Returns:
        For example ``signature:1a2b3c4d | tasks:stsb | split:test | n:1379 | cards:… | data:… |
        protocol:simcse | metric:spearman | aggregation:all | similarity:cosine``, without the
        similarity if all scores are of pair scorers; empty if there are no parts.
    """
    parts = list(parts)
    distinct = list(dict.fromkeys(parts))
    if not distinct:
        return ""
    tasks = list(dict.fromkeys(part.task for part in distinct))
    joined_tasks = "+".join(tasks)
    if short and len(tasks) > 1:
        joined_tasks = f"{tasks[0]}+{len(tasks) - 1}"
    card_hash, data_hash = distinct[0].task_card, distinct[0].data
    if len(distinct) > 1:
        card_hash = _hash([part.task_card for part in distinct])
        data_hash = _hash([part.data for part in distinct])
    fields = {
        "signature": signature_id(distinct),
        "tasks": joined_tasks,
        "split": _join_distinct(part.split for part in distinct),
        "n": str(sum(part.n for part in distinct)),
        "cards": card_hash[:HASH_LENGTH],
        "data": data_hash[:HASH_LENGTH],
        **_join_protocols(parts),
    }
    return _format_fields(fields, short=short)


def format_each_protocol(parts: Iterable[ComparedPart]) -> list[str]:
    """Return what scores must have in common to be compared, as one text per protocol."""
    parts_by_protocol = group_by(parts, lambda part: _fill_similarity(part.protocol))
    return list(map(format_compared, parts_by_protocol.values()))


def _join_protocols(parts: Sequence[ComparedPart]) -> dict[str, str]:
    """Return the protocol fields of scores by their labels, with all distinct values of each.

    The label of the field ``name`` is ``protocol``; other fields are their own labels.
    """
    protocols = [dict(field for field in part.protocol if field != NO_SIMILARITY) for part in parts]
    names = dict.fromkeys(name for protocol in protocols for name in protocol)
    values_by_label = {}
    for name in names:
        label = "protocol" if name == "name" else name
        values = [protocol[name] for protocol in protocols if name in protocol]
        values_by_label[label] = _join_distinct(map(_shorten_json, values))
    return values_by_label


def _shorten_json(value: str) -> str:
    """Return a text in JSON without its quotes if none of its characters needs them.

    Other values in JSON are returned without blanks.
    """
    if not value.startswith('"'):
        return value.replace(" ", "")
    needs_quotes = bool(set(value[1:-1]) & set('"\\|+: '))
    return value if needs_quotes else value[1:-1]


def _join_distinct(values: Iterable[str]) -> str:
    """Return the distinct values in their order, joined by ``+``."""
    return "+".join(dict.fromkeys(values))


def _format_fields(fields: Mapping[str, str], *, short: bool) -> str:
    """Return fields as ``label:value | label:value``; if short, only the main ones."""
    labels = {name: name for name in fields}
    if short:
        labels = {name: SHORT_LABELS[name] for name in fields if name in SHORT_LABELS}
    return SEPARATOR.join(f"{label}:{fields[name]}" for name, label in labels.items())


def format_shown(results: Sequence[Result], *, short: bool = False) -> str:
    """Return what made scores, which is not compared, as text.

    Args:
        results: The results of one encoder, at least one.
        short: Print short labels.

    Returns:
        For example ``prompt:none | dtype:float32 | version:0.1.0 | cut:0``, where ``cut`` is the
        number of texts that were cut at the encoder's maximum length. A question mark stands for
        what results do not record.
    """
    runs = [result.run for result in results]
    cut_by_task = {(result.task, result.split): result.run.get("cut") for result in results}
    counts = [count for count in cut_by_task.values() if isinstance(count, int)]
    fields = {
        "prompt": _join_distinct(map(_format_prompt, runs)),
        "dtype": _join_distinct(str(run.get("dtype") or UNKNOWN) for run in runs),
        "version": _join_distinct(_versions(runs)),
        "cut": str(sum(counts)) if len(counts) == len(cut_by_task) else UNKNOWN,
    }
    return _format_fields(fields, short=short)


def _format_prompt(run: Mapping[str, Any]) -> str:
    if run.get("prompt") is None:
        return UNKNOWN
    return json.dumps(run["prompt"], ensure_ascii=False) if run["prompt"] else "none"


def _versions(runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for run in runs:
        versions = run.get("versions")
        yield str(versions.get("stsbench", UNKNOWN)) if isinstance(versions, dict) else UNKNOWN


def join_parts(compared: str, shown: str) -> str:
    """Return a signature of both parts as text."""
    return compared + PART_SEPARATOR + shown


def format_signature(results: Sequence[Result], *, short: bool = False) -> str:
    """Return the signature of one score, or of a mean over some, with both parts.

    Args:
        results: The results of one encoder, at least one.
        short: Print short labels, and not all fields.
    """
    compared = format_compared(map(compared_part, results), short=short)
    return join_parts(compared, format_shown(results, short=short))
