"""Pickles written byte by byte: what readers must read, and what they must refuse and never run."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np


@singledispatch
def python2(value: Any) -> bytes:
    """What Python 2's cPickle writes of a value at protocol 2, without its first and last byte codes.

    bytes stand for its ``str``, str for its ``unicode``.
    """
    return {None: b"N", False: b"\x89", True: b"\x88"}[value]


python2.register(int, lambda value: b"J" + struct.pack("<i", value))
python2.register(bytes, lambda value: b"T" + struct.pack("<i", len(value)) + value)
python2.register(str, lambda value: b"X" + struct.pack("<I", len(value.encode())) + value.encode())
python2.register(tuple, lambda value: b"(" + b"".join(map(python2, value)) + b"t")
python2.register(list, lambda value: b"](" + b"".join(map(python2, value)) + b"e")
python2.register(
    dict,
    lambda value: b"}(" + b"".join(python2(part) for item in value.items() for part in item) + b"u",
)


@python2.register
def _(value: np.integer) -> bytes:
    return (
        b"cnumpy.core.multiarray\nscalar\n"
        + python2_dtype(value.dtype)
        + python2(value.tobytes())
        + b"\x86R"
    )


@dataclass(frozen=True)
class Call:
    """What reads this calls a function; the function's name is written as protocol 2 does, or as protocol 4 does."""

    module: str
    name: str
    arguments: tuple[Any, ...]
    by_protocol_4: bool = False


@python2.register
def _(value: Call) -> bytes:
    if value.by_protocol_4:
        names = b"".join(
            b"\x8c" + bytes([len(name)]) + name.encode() for name in (value.module, value.name)
        )
        return names + b"\x93" + python2(value.arguments) + b"R"
    return f"c{value.module}\n{value.name}\n".encode() + python2(value.arguments) + b"R"


@python2.register
def _(value: np.ndarray) -> bytes:
    made = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + python2((0,))
        + python2(b"b")
        + b"\x87R"
    )
    fortran = not value.flags.c_contiguous
    data = (
        value.ravel().tolist() if value.dtype.hasobject else value.tobytes("F" if fortran else "C")
    )
    state = (
        python2(1)
        + python2(value.shape)
        + python2_dtype(value.dtype)
        + (b"\x88" if fortran else b"\x89")
    )
    return made + b"(" + state + python2(data) + b"tb"


def python2_dtype(dtype: np.dtype[Any]) -> bytes:
    named = python2((dtype.str[1:].encode(), 0, 1))
    return (
        b"cnumpy\ndtype\n"
        + named
        + b"R"
        + python2((3, dtype.str[:1].encode(), None, None, None, -1, -1, 0))
        + b"b"
    )


def written(value: Any) -> bytes:
    return b"\x80\x02" + python2(value) + b"."


SAVED_ANEW = {
    3: (
        b"\x80\x03}q\x00(X\x08\x00\x00\x00featuresq\x01cnumpy._core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K"
        b"\x00\x85q\x04C\x01bq\x05\x87q\x06Rq\x07(K\x01K\x02K\x02\x86q\x08cnumpy\ndtype\nq\tX\x02\x00\x00\x00f4q\n\x89"
        b"\x88\x87q\x0bRq\x0c(K\x03X\x01\x00\x00\x00<q\rNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0eb\x89C\x10\x00\x00"
        b"\x00\x00\x00\x00\x80?\x00\x00\x00@\x00\x00@@q\x0ftq\x10bX\x14\x00\x00\x00image_to_caption_idsq\x11ccollections\n"
        b"defaultdict\nq\x12cbuiltins\nlist\nq\x13\x85q\x14Rq\x15(K\x00]q\x16K\naK\x01]q\x17K\x0bauX\x08\x00\x00\x00captions"
        b"q\x18ccollections\nOrderedDict\nq\x19)Rq\x1a(K\n}q\x1bX\x0f\x00\x00\x00cleaned_captionq\x1cX\x05\x00\x00\x00a cat"
        b"q\x1dsK\x0b}q\x1eh\x1cX\n\x00\x00\x00two caf\xc3\xa9sq\x1fsuu."
    ),
    4: (
        b"\x80\x04\x95\\\x01\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08features\x94\x8c\x16numpy._core.multiarray\x94\x8c\x0c"
        b"_reconstruct\x94\x93\x94\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\x01K"
        b"\x02K\x02\x86\x94h\x05\x8c\x05dtype\x94\x93\x94\x8c\x02f4\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\xff"
        b"\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89C\x10\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x94t\x94b\x8c\x14"
        b"image_to_caption_ids\x94\x8c\x0bcollections\x94\x8c\x0bdefaultdict\x94\x93\x94\x8c\x08builtins\x94\x8c\x04list"
        b"\x94\x93\x94\x85\x94R\x94(K\x00]\x94K\naK\x01]\x94K\x0bau\x8c\x08captions\x94h\x17\x8c\x0bOrderedDict\x94\x93"
        b"\x94)R\x94(K\n}\x94\x8c\x0fcleaned_caption\x94\x8c\x05a cat\x94sK\x0b}\x94h&\x8c\ntwo caf\xc3\xa9s\x94suu."
    ),
}
"""By protocol what Python 3 writes of the structure, with a defaultdict of ids and an OrderedDict of captions:
features [[0, 1], [2, 3]], captions "a cat" and "two caf\u00e9s"."""
