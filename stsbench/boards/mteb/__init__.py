"""Public results of MTEB: its tasks and benchmarks, its result files, boards of its scores."""
