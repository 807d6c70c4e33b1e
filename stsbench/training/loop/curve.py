"""The curve of a run as a file that grows while it is trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stsbench.encoders.unfinished import CURVE
from stsbench.files.whole import append_line, write_whole

Point = Mapping[str, Any]
"""What was seen at one validation: numbers by name, ``step`` among them."""


class CurveFile:
    """Writes points into a run's folder, each as soon as it is seen."""

    def __init__(self, folder: Path, points: Iterable[Point] = ()) -> None:
        """Hold no more than these points: what came after a checkpoint is done again by the run that goes on from it."""
        self.path = folder / CURVE
        text = "".join(f"{json.dumps(point)}\n" for point in points)
        if text:
            write_whole(self.path, text.encode())
        else:
            # A run that fails before its first point leaves nothing.
            self.path.unlink(missing_ok=True)

    def add(self, point: Point) -> None:
        """Write one more."""
        append_line(self.path, json.dumps(point))
