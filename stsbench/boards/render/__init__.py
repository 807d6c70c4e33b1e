"""Formats of tables and figures."""
