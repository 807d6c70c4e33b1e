"""Print how large the package is, and fail if it has more code than its budget.

Run it as ``python .ci/size.py``. Code is counted in tokens, without docstrings, comments, line
ends and indentation: neither long names nor short lines cost anything. Counts are of Python 3.11;
other versions cut f-strings into more tokens.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "stsbench"
MAX_TOKENS, MAX_FILES = 417_000, 262
ALLOWANCE = 1.03
"""A change may exceed the budget by so much; the next one makes up for it."""
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count_tokens(source: str) -> int:
    """Count the tokens of a file that are code."""
    docstring_lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstring_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(
        token.type not in NOT_CODE and token.start[0] not in docstring_lines for token in tokens
    )


def main() -> int:
    """Print the figures; return 1 if one exceeds its budget by more than the allowance."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))]
    tokens_by_file = [count_tokens(source) for source in sources]
    tokens = sum(tokens_by_file)
    # The faces of packages hold a docstring alone.
    files = sum(map(bool, tokens_by_file))
    most_tokens, most_files = int(ALLOWANCE * MAX_TOKENS), int(ALLOWANCE * MAX_FILES)
    print(f"tokens of code: {tokens:,}; the budget is {MAX_TOKENS:,}, the limit {most_tokens:,}")
    print(f"files with code: {files}; the budget is {MAX_FILES}, the limit {most_files}")
    if sys.version_info[:2] != (3, 11):
        print("not judged: counts are of Python 3.11")
        return 0
    return int(tokens > most_tokens or files > most_files)


if __name__ == "__main__":
    sys.exit(main())
