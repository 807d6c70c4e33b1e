"""docs/commands.md lists the commands and options that there are."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_is_written_from_the_commands():
    script = runpy.run_path(str(ROOT / ".ci/commands.py"))
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert page == script["make_page"](), "run: python .ci/commands.py"
