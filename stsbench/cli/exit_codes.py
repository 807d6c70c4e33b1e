"""Exit codes of every command; 0 is fine, 1 a regression that ``check`` found, or two encoders that ``parity`` tells apart."""

NOT_SAME, MISTAKE, BUG, STOPPED = 1, 2, 3, 130
