"""What everything stands on: errors, settings, cards and their catalogue, names to objects, files, what a number was made with."""
