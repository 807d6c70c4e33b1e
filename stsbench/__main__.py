"""``python -m stsbench``: call the command line."""

import os
import sys

# For -m, Python puts the current folder before all others; what lies there is no module of ours or
# of a library. pathlib, which ruff would prefer here, is to come from Python's own folder.
if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109
    del sys.path[0]

from stsbench.cli.main import main  # noqa: E402

sys.exit(main())
