"""Runs on many workers by Ray: on this machine, or on a cluster."""
