"""Ray, started on this machine or joined where it runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stsbench import settings
from stsbench.errors import StsbenchError, one_line

Ray = Any
"""The package ``ray``, which may be missing and has no types, or an object of it."""
Reference = Any
"""Ray's reference of an object that it holds."""
QUIET = {"log_to_driver": False, "logging_level": "error"}


@contextmanager
def joined(on: str) -> Iterator[Ray]:
    """The package ``ray``, connected: to ``ray://HOST:PORT``, to ``RAY_ADDRESS``, or to a Ray that starts here and ends here.

    Raises:
        StsbenchError: Ray is not installed, or no cluster answers at the address.
    """
    if find_spec("ray") is None:
        raise StsbenchError("--on ray needs Ray, which is not installed; run: pip install 'stsbench[ray]'")
    settings.keep_ray_silent()
    ray = import_module("ray")
    address = on if "://" in on else settings.ray_address() or "local"
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    if address != "local":
        options = {"runtime_env": {"env_vars": settings.for_workers()}}
    try:
        with warnings.catch_warnings():
            # What it warns of while it waits for an answer, its error says too.
            warnings.simplefilter("ignore")
            ray.init(address, **options, **QUIET)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        what = f"no Ray cluster answers at '{address}'" if address != "local" else "Ray does not start"
        raise StsbenchError(f"{what}: {one_line(error)[:200]}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def is_alone(on: str) -> bool:
    """Whether :func:`joined` starts a Ray of its own, on this machine alone."""
    return "://" not in on and settings.ray_address() in ("", "local")
