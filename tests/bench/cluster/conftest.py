"""Ray with two workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stsbench import settings as places
from stsbench.bench.cluster.joining import QUIET


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """Ray with two workers, for all tests here."""
    places.keep_ray_silent()
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, **QUIET)
    yield ray
    ray.shutdown()
