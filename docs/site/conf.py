"""Build the documentation as a site: ``sphinx-build -W -c docs/site . build/site``.

The pages are the repository's own markdown files, where they stand. Three pages are made at each
build, beside this file: the table of contents, the reference of the Python calls from the
docstrings, and the project's boards, which are made from ``results/project``.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import stsbench

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REPOSITORY = Path(__file__).parents[2]
PAGES = Path(__file__).parent
EXTRA = REPOSITORY / "build/site-extra"

project = "stsbench"
author = "The stsbench authors"
version = release = stsbench.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/site/index"
include_patterns = [
    "docs/site/*.md",
    "docs/*.md",
    "results/project/*.md",
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
html_theme = "furo"
html_title = f"stsbench {version}"
html_extra_path = [str(EXTRA)]
html_copy_source = False
html_show_copyright = False
# Headings down to this level can be linked to, as on the pages of a repository.
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"

CONTENTS = """# stsbench

Scores of sentence encoders on STS and SentEval that can be trusted, compared and reproduced:
[what it does, and how to start](/README.md).

```{toctree}
:maxdepth: 1
:caption: Start
What it does, and how to start </README>
/docs/choosing
boards
/CHANGELOG
```
"""
FIRST_PAGES = {"/docs/choosing"}
"""The pages of docs that stand in the section above."""
SECTION = """
```{{toctree}}
:maxdepth: 1
:caption: {title}
{pages}
```
"""
BOARD_PAGES = {
    "sts.html": ("The seven STS tasks", ["--suite", "sts", "--results", "results/project"]),
    "transfer.html": (
        "SentEval's transfer tasks",
        ["--suite", "transfer", "--protocol", "senteval", "--results", "results/project"],
    ),
    "mteb-eng-v2-sts.html": (
        "MTEB's English STS tasks: all public results",
        ["--suite", "mteb-eng-v2-sts", "--show", "published"],
    ),
    "mteb-multilingual-v2-sts.html": (
        "MTEB's multilingual STS tasks: all public results",
        ["--suite", "mteb-multilingual-v2-sts", "--show", "published"],
    ),
}
"""File -> title and arguments of ``stsbench leaderboard``."""


def make_contents() -> str:
    """Return the first page, with the sections and pages that docs/README.md lists.

    Pages of docs that it does not list, and the project's results, follow at the end.
    """
    contents = CONTENTS
    listed = set()
    overview = (REPOSITORY / "docs/README.md").read_text(encoding="utf-8")
    for section in overview.split("\n**")[1:]:
        title, _, text = section.partition("**")
        pages = []
        for line in text.splitlines():
            if line.startswith("* [") and ".md](" in line:
                target = line.partition("](")[2].partition(".md)")[0]
                page = f"/{target[3:]}" if target.startswith("../") else f"/docs/{target}"
                if page not in FIRST_PAGES:
                    pages.append(page)
        listed.update(pages)
        if title == "Use it":
            pages.append("api")
        contents += SECTION.format(title=title, pages="\n".join(pages))
    listed |= FIRST_PAGES | {"/docs/README"}
    other_pages = [
        f"/docs/{path.stem}"
        for path in sorted((REPOSITORY / "docs").glob("*.md"))
        if f"/docs/{path.stem}" not in listed
    ]
    boards = sorted(
        f"/results/project/{path.stem}"
        for path in (REPOSITORY / "results/project").glob("[a-z]*.md")
    )
    rest = [*other_pages, "/results/project/README", *boards, "/CODE_OF_CONDUCT", "/docs/README"]
    return contents + SECTION.format(title="More", pages="\n".join(rest))


def make_api() -> str:
    """Return the reference of all that ``import stsbench`` gives, from the docstrings."""
    blocks = ["# Python reference\n\n[python.md](/docs/python.md) shows them in use.\n"]
    for name in sorted(stsbench.__all__, key=str.lower):
        member = getattr(stsbench, name)
        if inspect.isclass(member):
            # The docstring of an error lists its attributes.
            is_error = issubclass(member, Exception)
            directive, options = "autoclass", "" if is_error else "   :members:\n"
        elif callable(member):
            directive, options = "autofunction", ""
        else:
            continue
        blocks.append(
            f"## {name}\n\n```{{eval-rst}}\n.. {directive}:: stsbench.{name}\n{options}```\n"
        )
    return "\n".join(blocks)


def make_boards() -> str:
    """Write the boards as pages of their own, and return the page that links to them."""
    page = (
        "# Boards\n\nEach can be searched, sorted and filtered. A cell opens to what it was "
        "measured with.\n\n"
    )
    boards = EXTRA / "boards"
    boards.mkdir(parents=True, exist_ok=True)
    for file, (title, arguments) in BOARD_PAGES.items():
        path = boards / file
        command = ["leaderboard", *arguments, "--format", "html"]
        board = subprocess.run(
            [sys.executable, "-m", "stsbench", *command],
            cwd=REPOSITORY,
            check=True,
            stdout=subprocess.PIPE,
        )
        path.write_bytes(board.stdout)
        page += f'* <a href="../../boards/{file}">{title}</a>: `stsbench {" ".join(command)}`\n'
    return page


def make_pages(app: Sphinx) -> None:
    """Write the pages that are made at each build."""
    PAGES.mkdir(parents=True, exist_ok=True)
    pages = {"index": make_contents(), "api": make_api(), "boards": make_boards()}
    first_page = '<meta http-equiv="refresh" content="0; url=docs/site/index.html">\n'
    (EXTRA / "index.html").write_text(first_page, encoding="utf-8")
    for name, text in pages.items():
        (PAGES / f"{name}.md").write_text(text, encoding="utf-8")


def add_heading(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the file's name as a heading above a board that begins with its table.

    Args:
        app: The build.
        page: The page's path without its ending.
        source: Its text, as the only element, which is replaced.
    """
    if page.startswith("results/project/") and not source[0].startswith("#"):
        source[0] = f"# Measured here: {Path(page).name}\n\n{source[0]}"


def setup(app: Sphinx) -> None:
    """Have the pages made before Sphinx looks for sources."""
    app.connect("source-read", add_heading)
    app.connect("config-inited", lambda app, config: make_pages(app))
