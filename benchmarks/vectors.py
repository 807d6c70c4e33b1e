"""Memory and time of encoding the seven STS tests with a file of millions of word vectors.

    STSBENCH_DATA=DIR python benchmarks/vectors.py --words 2000000 --size 300

Writes a synthetic fastText file (a header line, the tests' own words first; a thousand random
vectors over and over, so that writing it takes no longer than it must) into a temporary folder,
and encodes all distinct sentences of the seven tests twice, each time in a process of its own:
the first time the file is converted, the second time it is found converted. Peak memory is that
of the process, above what it had when the libraries were loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def main() -> None:
    """Write the file, encode twice, and print the numbers of each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--encode", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.encode:
        print(json.dumps(encode(options.encode)))
        return
    with tempfile.TemporaryDirectory(prefix="stsbench-vectors-") as folder:
        os.environ["STSBENCH_CACHE"] = f"{folder}/cache"
        path = Path(folder) / "synthetic.vec"
        started = time.perf_counter()
        write(path, options.words, options.size)
        seconds = time.perf_counter() - started
        vector_mib = options.words * options.size * 4 / 2**20
        print(
            f"{options.words:,} words x {options.size}: {path.stat().st_size / 2**30:.2f} GiB, "
            f"written in {seconds:.0f} s"
        )
        print(f"the vectors alone would take {vector_mib:,.0f} MiB")
        for label in ("first run (converts)", "second run"):
            command = [sys.executable, __file__, "--encode", str(path)]
            numbers = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            print(
                f"{label}: {numbers['sentences']:,} sentences, {numbers['seconds']:.1f} s, peak "
                f"{numbers['peak']:,.0f} MiB, "
                f"{numbers['above']:,.0f} above the libraries' {numbers['start']:,.0f}; "
                f"{numbers['zero']} zero vectors"
            )


def write(path: Path, words: int, size: int) -> None:
    """Write a fastText file: a header, the tests' words, then invented ones."""
    rng = np.random.default_rng(0)
    lines = [
        " ".join(f"{value:.4f}" for value in vector) for vector in rng.normal(size=(1000, size))
    ]
    test_words = sorted({word for sentence in sentences() for word in sentence.split()})[:words]
    with path.open("w", encoding="utf-8") as stream:
        stream.write(f"{words} {size}\n")
        for i in range(words):
            stream.write(
                f"{test_words[i] if i < len(test_words) else f'word{i}'} {lines[i % 1000]}\n"
            )


def sentences() -> list[str]:
    """Return the distinct sentences of the seven tests."""
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.task import expand_names, load_task

    texts = {
        text
        for name in expand_names("sts", Catalogue())
        for text in load_task(name).texts(["test"])
    }
    return sorted(texts)


def encode(path: Path) -> dict[str, float]:
    """Encode all sentences; return their number, the seconds, and the memory in MiB."""
    import scipy.sparse  # noqa: F401 - loaded before memory is first looked at

    from stsbench.encoders.words.words import WordsEncoder

    texts = sentences()
    start = resident()
    started = time.perf_counter()
    embeddings = WordsEncoder(str(path)).encode(texts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {
        "sentences": len(texts),
        "seconds": time.perf_counter() - started,
        "start": start,
        "peak": peak,
        "above": peak - start,
        "zero": int((~embeddings.any(axis=1)).sum()),
    }


def resident() -> float:
    """Return the MiB of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
