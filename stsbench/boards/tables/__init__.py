"""The one way to a table: from results and published rows."""
