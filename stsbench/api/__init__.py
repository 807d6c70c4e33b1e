"""The interface for programs and notebooks: scoring, results, comparisons and tables."""
