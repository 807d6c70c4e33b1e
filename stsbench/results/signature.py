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
    """Return what two scores must have in common to be comparable.

    A signature is a text that says how a score was made. Its first part holds the task, split,
    number of items, hashes of the task's card and data, and the fields of the protocol: scores are
    comparable if and only if this part is equal. The second part is only shown.

    Args:
        score: A Result, or another record with these fields, such as a row of a lock file.

    Returns:
        A tuple of these fields, with the protocol as pairs of a name and a value in JSON. Two are
        equal also if one has no similarity (a pair scorer's) and the other has the default one.
    """
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
    """Describe why two scores of a task are not comparable.

    Args:
        first: A Result, or another record of what a score was made with: its task, split, protocol,
            hashes of data and task card, and number of items. Messages name its values first.
        second: Such a record of the second score.
        ignore_protocol: Compare all but the protocol: a column of a table may take scores from
            results of several protocols.

    Returns:
        The first difference as part of a sentence, ``split differs: 'test' against 'all'``; None
        if the scores are comparable.
    """
    # Two parts are equal if their scores are comparable.
    parts = [compared_part(first), compared_part(second)]
    if ignore_protocol:
        parts = [part._replace(protocol=()) for part in parts]
    if parts[0] == parts[1]:
        return None
    if first.split != second.split:
        return f"split differs: '{first.split}' against '{second.split}'"
    # A pair scorer computes no similarity: its scores compare with those of the default one.
    first_protocol, second_protocol = [dict(_fill_similarity(part.protocol)) for part in parts]
    fields = [field for field in {**first_protocol, **second_protocol} if field != "name"]
    # The name comes last, because any other field explains more.
    for field in [*fields, "name"]:
        if first_protocol.get(field) != second_protocol.get(field):
            # The values as JSON, written for a reader: null as none, and with single quotes.
            values = [dict(part.protocol).get(field, "null") for part in parts]
            values = [value.replace("null", "none").replace('"', "'") for value in values]
            return f"protocol field '{field}' differs: {' against '.join(values)}"
    # The hash of the data, the number of items and the hash of the card, with their names in text.
    for field, label in VERSION_LABELS.items():
        if getattr(first, field) != getattr(second, field):
            values = [str(getattr(part, field))[:HASH_LENGTH] for part in parts]
            return f"{label} differs: {' against '.join(values)}"
    return f"task differs: '{first.task}' against '{second.task}'"


def signature_id(parts: Iterable[ComparedPart]) -> str:
    """Return the hash of the first parts of scores: the same on any machine, in any order."""
    return _sha256_of_json(sorted({part.comparison_key for part in parts}))[:ID_LENGTH]


def _sha256_of_json(value: object) -> str:
    """Return the sha256 of a value in JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def format_compared(parts: Iterable[ComparedPart], *, short: bool = False) -> str:
    """Return what scores must have in common to be compared, as one line of text.

    Two scores, or two means, are comparable if their texts are equal. The text begins with a hash
    over all that is compared, the signature's id. Tasks are sorted by name, and their hashes with
    them, so that the text is the same in whatever order a user names the tasks.

    Args:
        parts: What a score was made with: its task, split, number of items, hashes of card and
            data, and protocol. One part for a score, or one for each score that a mean is over.
        short: Print only the hash, the tasks (``stsb+6`` for seven) and the main fields of the
            protocol, with short labels.

    Returns:
        For example ``signature:1a2b3c4d | tasks:stsb | split:test | n:1379 | cards:… | data:… |
        protocol:simcse | metric:spearman | aggregation:all | similarity:cosine``. The similarity
        is left out if all scores are of pair scorers, which compute none. Empty if there are no
        parts.
    """
    parts = sorted(parts)
    distinct = list(dict.fromkeys(parts))
    if not distinct:
        return ""
    tasks = list(dict.fromkeys(part.task for part in distinct))
    joined_tasks = "+".join(tasks)
    if short and len(tasks) > 1:
        joined_tasks = f"{tasks[0]}+{len(tasks) - 1}"
    card_hash, data_hash = distinct[0].task_card, distinct[0].data
    # Several tasks have one hash over the hashes of their cards, and one over those of their data.
    if len(distinct) > 1:
        card_hash = _sha256_of_json([part.task_card for part in distinct])
        data_hash = _sha256_of_json([part.data for part in distinct])
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
    """Return the fields of the protocols of scores, with all distinct values of each field.

    Args:
        parts: What each score was made with. ``protocol`` of each is pairs of a field's name and
            its value in JSON.

    Returns:
        The distinct values of a field, joined by ``+`` in the order of the parts, by the field's
        label. The label of the field ``name`` is ``protocol``; other fields are their own labels.
    """
    # A pair scorer computes no similarity: its field, NO_SIMILARITY, has the value null and is left
    # out.
    protocols = [dict(field for field in part.protocol if field != NO_SIMILARITY) for part in parts]
    names = dict.fromkeys(name for protocol in protocols for name in protocol)
    values_by_label = {}
    for name in names:
        label = "protocol" if name == "name" else name
        values = [protocol[name] for protocol in protocols if name in protocol]
        values_by_label[label] = _join_distinct(map(_compact_json, values))
    return values_by_label


def _compact_json(json_value: str) -> str:
    """Return a value in JSON as short as a signature can hold it.

    * A text loses its quotes, ``"cosine"`` becomes ``cosine``. It keeps them if it holds a quote, a
      backslash, or a character that has a meaning in a signature: bar, plus, colon, blank.
    * Any other value loses its blanks.
    """
    if not json_value.startswith('"'):
        return json_value.replace(" ", "")
    text = json_value[1:-1]
    needs_quotes = bool(set(text) & set('"\\|+: '))
    return json_value if needs_quotes else text


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
    """Return the second part of a signature: what made scores, which need not be equal to compare.

    Args:
        results: The results of one encoder, at least one. ``run`` of each holds what it records of
            the run that made it: prompt, number type, versions, cut texts.
        short: Print short labels.

    Returns:
        For example ``prompt:none | dtype:float32 | version:0.1.0 | cut:0``, where ``version`` is
        that of stsbench, and ``cut`` the number of texts that were cut at the encoder's maximum
        length. Different values are joined by ``+``. A question mark stands for what results do not
        record.
    """
    runs = [result.run for result in results]
    # Results of one task by several protocols are of the same texts, which are counted once.
    cut_by_task = {(result.task, result.split): result.run.get("cut") for result in results}
    counts = [count for count in cut_by_task.values() if isinstance(count, int)]
    fields = {
        "prompt": _join_distinct(map(_format_prompt, runs)),
        "dtype": _join_distinct(str(run.get("dtype") or UNKNOWN) for run in runs),
        "version": _join_distinct(_stsbench_versions(runs)),
        "cut": str(sum(counts)) if len(counts) == len(cut_by_task) else UNKNOWN,
    }
    return _format_fields(fields, short=short)


def _format_prompt(run: Mapping[str, Any]) -> str:
    if run.get("prompt") is None:
        return UNKNOWN
    return json.dumps(run["prompt"], ensure_ascii=False) if run["prompt"] else "none"


def _stsbench_versions(runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for run in runs:
        versions = run.get("versions")
        yield str(versions.get("stsbench", UNKNOWN)) if isinstance(versions, dict) else UNKNOWN


def join_parts(compared: str, shown: str) -> str:
    """Return a signature of both parts as text."""
    return compared + PART_SEPARATOR + shown


def format_signature(results: Sequence[Result], *, short: bool = False) -> str:
    """Return the signature of a score, or of a mean over several: it says how the score is made.

    Its first part holds what scores must share to be compared: tasks, data and protocol. After
    ``||`` follows what is only shown: prompt, number type, version and cut texts.

    Args:
        results: The result of the score, or the results that the mean is over, of one encoder; at
            least one.
        short: Print short labels, and not all fields.
    """
    compared = format_compared(map(compared_part, results), short=short)
    return join_parts(compared, format_shown(results, short=short))
