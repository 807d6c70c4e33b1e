"""Write the table of MTEB's public STS scores from a clone of embeddings-benchmark/results.

    git clone https://github.com/embeddings-benchmark/results
    python benchmarks/mteb_scores.py results

The repository is CC0. The table holds its scores as they are: which of them fit each other is
decided where they are shown. The commit is written beside it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from stsbench.boards.mteb.scores import SCORE_DIGITS, TABLE_FILE, MtebResult, read_mteb_files
from stsbench.core.files import write_atomically

REPOSITORY = "https://github.com/embeddings-benchmark/results"
TABLE_COLUMNS = "model revision task data_revision mteb_version split subset score".split()


def encode_table(results: Iterable[MtebResult]) -> bytes:
    """Return results as a table in CSV, compressed by gzip, with one row for each score.

    The same results make the same bytes, as the compressed file has no time in it.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(TABLE_COLUMNS)
    # A result is a tuple whose last field is its scores; the others are the first columns.
    for result in sorted(results, key=lambda result: result[:-1]):
        first_columns = result[:-1]
        for (split, subset), score in sorted(result.scores.items()):
            writer.writerow([*first_columns, split, subset, f"{score:.{SCORE_DIGITS}f}"])
    return gzip.compress(text.getvalue().encode(), mtime=0)


def main() -> None:
    """Read all result files of a clone and write the table and its source."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--commit", help="the commit, if the folder is no clone of git's")
    arguments = parser.parse_args()
    commit = (
        arguments.commit
        or subprocess.check_output(
            ["git", "-C", arguments.clone, "rev-parse", "HEAD"], text=True
        ).strip()
    )
    results, problems = read_mteb_files(arguments.clone / "results")
    for problem in problems:
        print(problem)
    write_atomically(TABLE_FILE, encode_table(results))
    source = {"repository": REPOSITORY, "commit": commit, "license": "CC0-1.0"}
    write_atomically(TABLE_FILE.with_name("source.json"), (json.dumps(source) + "\n").encode())
    n_scores = sum(len(result.scores) for result in results)
    n_models = len({result.model for result in results})
    print(f"{n_scores} scores of {len(results)} files and {n_models} models")


if __name__ == "__main__":
    main()
