"""The Hub as a source: files, checkpoints, sentence pairs and archives, at a known commit."""

from __future__ import annotations

from stsbench.data.hub.archives import fetch_archive
from stsbench.data.hub.failures import WITHOUT
from stsbench.data.hub.files import CHECKPOINT, HubFile, HubFolder, fetch_checkpoint, fetch_file, fetch_tokenizer
from stsbench.data.hub.pairs import fetch_pairs, fetch_rows
from stsbench.data.hub.shards import Shards, find_shards

__all__ = [
    "CHECKPOINT",
    "WITHOUT",
    "HubFile",
    "HubFolder",
    "Shards",
    "fetch_archive",
    "fetch_checkpoint",
    "fetch_file",
    "fetch_pairs",
    "fetch_rows",
    "fetch_tokenizer",
    "find_shards",
]
