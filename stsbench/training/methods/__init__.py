"""Training methods, one file per family."""
