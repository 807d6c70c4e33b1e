"""The STS tasks of MTEB, and which of our tasks have their data."""
