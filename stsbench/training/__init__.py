"""Training: what makes a batch and a loss of each method, and the loop that runs it."""
