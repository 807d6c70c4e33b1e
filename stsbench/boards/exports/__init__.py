"""Scores as other tools read them, and theirs as rows of ours."""
