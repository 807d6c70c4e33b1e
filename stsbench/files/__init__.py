"""What is written whole, and what a file becomes when it is read."""
