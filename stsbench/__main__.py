"""``python -m stsbench``."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - pathlib is to come from where Python's own modules do
    # Python puts the current folder before all others for -m; what lies there is no module of ours or a library's.
    del sys.path[0]

from stsbench.cli.main import main  # noqa: E402

sys.exit(main())
