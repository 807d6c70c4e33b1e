"""``python -m stsbench``."""

import sys

from stsbench.cli import main

sys.exit(main())
