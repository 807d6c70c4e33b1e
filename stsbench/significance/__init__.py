"""Paired comparisons of encoders from per-item columns."""
