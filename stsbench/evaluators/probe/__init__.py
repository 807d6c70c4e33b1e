"""The linear probe: SentEval's transfer and probing tasks, scored by a classifier on frozen embeddings."""
