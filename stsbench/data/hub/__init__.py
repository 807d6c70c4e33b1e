"""The Hub as a source: files, checkpoints, rows and archives, at a known commit."""

from stsbench.data.hub.repository import fetch_checkpoint, fetch_file, fetch_tokenizer, open_repository
from stsbench.data.hub.rows import fetch_archive, fetch_rows

__all__ = ["fetch_archive", "fetch_checkpoint", "fetch_file", "fetch_rows", "fetch_tokenizer", "open_repository"]
