"""Per-item values of a locked cell, packed into text: what the paired test needs of an encoder that is not at hand.

Gold scores, which may not be redistributed, are not among them: they are those of the other side, whose data are the same.
A rank or level takes as few bits as do; nothing is compressed, so that what is unpacked is never larger than the count of
items says.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.compare.items import tested_column
from stsbench.numbers.arrays import Float64Array

PackedKind = Literal["ranks", "levels", "right"]
LEVEL_BITS = 16
"""A value that is no rank is one of 65,536 levels between the lowest and the highest."""
MOST_BITS = 32
Codes = npt.NDArray[np.uint32]


class Packed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One per-item column of n items, in their order.

    ``ranks``: dense ranks from 0, all that Spearman's correlation sees of similarities. ``levels``: from ``low`` (0)
    to ``high`` (65,535). ``right``: 1 for an item that is right. ``text`` holds n codes of ``bits`` bits, the highest
    first, filled up with zeros to whole bytes, in base64.
    """

    column: str
    kind: PackedKind
    bits: int
    low: float = 0.0
    high: float = 1.0
    text: str


def pack(columns: Mapping[str, npt.NDArray[Any]], protocol: Mapping[str, Any]) -> Packed | None:
    """Pack the column that a paired test compares; None where no paired test is known."""
    tested = tested_column(columns, protocol)
    if tested is None:
        return None
    name, values = tested.name, np.asarray(columns[tested.name])
    if tested.metric is not None and tested.metric.by_rank:
        _, ranks = np.unique(values, return_inverse=True)
        codes = ranks.astype(np.uint32)
        return Packed(column=name, kind="ranks", bits=_bits(codes), text=_text(codes, _bits(codes)))
    if values.dtype == np.bool_:
        return Packed(column=name, kind="right", bits=1, text=_text(values.astype(np.uint32), 1))
    low, high = float(values.min()), float(values.max())
    steps = (values.astype(np.float64) - low) / ((high - low) or 1.0) * (2**LEVEL_BITS - 1)
    codes = np.rint(steps).astype(np.uint32)
    return Packed(column=name, kind="levels", bits=LEVEL_BITS, low=low, high=high, text=_text(codes, LEVEL_BITS))


def unpack(packed: Packed, n: int) -> Float64Array | npt.NDArray[np.bool_]:
    """The column, (n,): ranks, levels as values, or whether items are right.

    Raises:
        ValueError: it is no such column of n items.
    """
    codes = _codes(packed, n)
    if packed.kind == "right":
        return codes.astype(np.bool_)
    if packed.kind == "ranks":
        return codes.astype(np.float64)
    levels: Float64Array = packed.low + codes.astype(np.float64) / (2**LEVEL_BITS - 1) * (packed.high - packed.low)
    return levels


def packed_problem(packed: Packed, n: int) -> str | None:
    """What is wrong with a packed column of n items; None where it can be unpacked."""
    try:
        codes = _codes(packed, n)
    except ValueError as error:
        return str(error)
    wanted = {"ranks": _bits(codes), "levels": LEVEL_BITS, "right": 1}[packed.kind]
    if packed.bits != wanted:
        return f"{packed.kind} of {packed.bits} bits, these are of {wanted}"
    if packed.kind == "ranks" and len(np.unique(codes)) != int(codes.max()) + 1:
        return "its ranks have gaps"
    if not -np.inf < packed.low <= packed.high < np.inf:
        return f"levels from {packed.low:.6g} to {packed.high:.6g}"
    return None


def _bits(codes: Codes) -> int:
    """The fewest bits that hold each of these codes."""
    return max(1, int(codes.max()).bit_length())


def _text(codes: Codes, bits: int) -> str:
    each = np.unpackbits(codes.astype(">u4").view(np.uint8).reshape(-1, 4), axis=1)
    return base64.b64encode(np.packbits(each[:, MOST_BITS - bits :]).tobytes()).decode()


def _codes(packed: Packed, n: int) -> Codes:
    if not 1 <= packed.bits <= MOST_BITS:
        raise ValueError(f"codes of {packed.bits} bits")
    try:
        content = base64.b64decode(packed.text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"is not base64: {error}") from error
    wanted = -(-n * packed.bits // 8)
    if len(content) != wanted:
        raise ValueError(f"{len(content)} bytes, {n} items of {packed.bits} bits are {wanted}")
    each = np.unpackbits(np.frombuffer(content, dtype=np.uint8))
    if each[n * packed.bits :].any():
        raise ValueError("more than its items")
    rows = np.zeros((n, MOST_BITS), dtype=np.uint8)
    rows[:, MOST_BITS - packed.bits :] = each[: n * packed.bits].reshape(n, packed.bits)
    codes: Codes = np.packbits(rows, axis=1).view(">u4").ravel().astype(np.uint32)
    return codes
