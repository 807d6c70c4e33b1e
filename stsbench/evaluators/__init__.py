"""Evaluators: splits and embeddings in, scores out."""
