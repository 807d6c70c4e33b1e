"""Readers: one function per format of evaluation data."""
