"""The probe: SentEval's transfer and probing tasks, scored by classifiers on frozen embeddings."""
