"""Figures, in the one style that all of them have; they need matplotlib, which the extra ``plots`` installs."""

FIGURES = ("svg", "png", "pdf")
"""The formats of their files."""
