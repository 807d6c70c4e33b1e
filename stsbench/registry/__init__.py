"""Names to objects, values to types."""
