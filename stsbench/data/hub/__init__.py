"""The Hub as a source: files, checkpoints, rows and archives, at a known commit."""
