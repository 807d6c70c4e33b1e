"""Cards and methods of a user's own, drafted from what is found in data and checkpoints."""
