"""The bytes of files that a Hub serves: rows, archives, a checkpoint."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.cli.commands import write

ROWS = [
    {
        "sentence1": "A man plays a guitar.",
        "sentence2": "Someone plays music.",
        "score": 3.4,
        "genre": "captions",
    },
    {"sentence1": "Zwei Hunde rennen.", "sentence2": "Two dogs run.", "score": 5, "genre": "news"},
    {
        "sentence1": "It rains.",
        "sentence2": "The stock fell\u2028again.",
        "score": 0.0,
        "genre": "news",
    },
]
"""Three pairs; a gold score without decimals and a Unicode line end among them."""


def jsonl(rows: Sequence[Mapping[str, object]], *, zipped: bool = True) -> bytes:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    return gzip.compress(text, mtime=0) if zipped else text


def parquet(rows: Sequence[Mapping[str, object]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), stream)
    return stream.getvalue()


def tar(members: Mapping[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in extra:
            archive.addfile(info)
    return stream.getvalue()


WORDS = list(
    dict.fromkeys(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.,", "the"]
    )
)


def tiny_bert(*, hidden: int = 16, layers: int = 2) -> dict[str, bytes]:
    """The files of a BERT of random weights that transformers opens: config, tokenizer, safetensors."""
    vocabulary = [*WORDS, *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "vocab_size": len(vocabulary),
        "pad_token_id": 0,
    }
    return {
        "config.json": json.dumps(config).encode(),
        "vocab.txt": "".join(f"{word}\n" for word in vocabulary).encode(),
        "tokenizer_config.json": json.dumps(
            {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
        ).encode(),
        "model.safetensors": safetensors(bert_shapes(len(vocabulary), hidden, layers)),
    }


def bert_shapes(words: int, hidden: int, layers: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of BERT's tensors."""
    dense = {"pooler.dense": (hidden, hidden)}
    norms = ["embeddings.LayerNorm"]
    for at in range(layers):
        layer = f"encoder.layer.{at}"
        names = (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
        )
        dense |= {f"{layer}.{name}": (hidden, hidden) for name in names}
        dense |= {
            f"{layer}.intermediate.dense": (2 * hidden, hidden),
            f"{layer}.output.dense": (hidden, 2 * hidden),
        }
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (rows, hidden)
        for name, rows in (("word", words), ("position", 64), ("token_type", 2))
    }
    for name, (rows, columns) in dense.items():
        shapes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    for name in norms:
        shapes |= {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}
    return shapes


def safetensors(shapes: Mapping[str, tuple[int, ...]], *, seed: int = 0) -> bytes:
    """Random tensors in the safetensors format: a header's length, the header, the numbers."""
    rng = np.random.default_rng(seed)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, shape in shapes.items():
        values = rng.normal(0, 0.05, size=shape).astype("<f4")
        values = values + 1 if name.endswith("LayerNorm.weight") else values
        data = values.astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def sha256(data: bytes) -> str:
    """The name of a large file's blob."""
    return hashlib.sha256(data).hexdigest()


def git_hash(data: bytes) -> str:
    """The name of a small file's blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def write_bert(folder: Path, *, hidden: int = 16, **files: Any) -> Path:
    """A checkpoint of the same random weights each time: ``__`` in a file's name is the dot, None leaves it out, else JSON."""
    for name, content in {
        **tiny_bert(hidden=hidden),
        **{key.replace("__", "."): one for key, one in files.items()},
    }.items():
        if content is not None:
            write(
                folder / name, content if isinstance(content, str | bytes) else json.dumps(content)
            )
    return folder
