"""Where evaluation data comes from, how its files are read, and what a split holds."""
