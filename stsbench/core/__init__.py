"""The base of all packages: errors, settings, cards, registries, files and provenance."""
