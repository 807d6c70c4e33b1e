"""Ray with two workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stsbench.bench.ray_cluster import QUIET_OPTIONS
from stsbench.core import settings as places


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    places.keep_ray_silent()
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, **QUIET_OPTIONS)
    yield ray
    ray.shutdown()
