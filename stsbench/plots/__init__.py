"""Figures, in the one style that all of them have; they need matplotlib, which the extra ``plots`` installs."""
