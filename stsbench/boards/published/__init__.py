"""Published scores: what papers printed, read from TOML and JSON files."""
