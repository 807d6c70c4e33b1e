"""How fast a server is asked: so many requests and tokens a minute, and not before the time that it names."""

from __future__ import annotations

import threading
import time


class RateLimit:
    """The pace of all threads that ask one server."""

    def __init__(self, *, requests_a_minute: float = 0, tokens_a_minute: float = 0) -> None:
        """Keep the limits; 0 is none."""
        self._a_request = 60 / requests_a_minute if requests_a_minute else 0.0
        self._a_token = 60 / tokens_a_minute if tokens_a_minute else 0.0
        self._lock = threading.Lock()
        self._free_at = self._held_until = 0.0

    def __getstate__(self) -> dict[str, float]:
        """The limits alone: another process has a pace of its own."""
        return {"_a_request": self._a_request, "_a_token": self._a_token}

    def __setstate__(self, limits: dict[str, float]) -> None:
        """Begin with these limits."""
        self._a_request, self._a_token = limits["_a_request"], limits["_a_token"]
        self._lock = threading.Lock()
        self._free_at = self._held_until = 0.0

    def wait(self, tokens: int, stop: threading.Event) -> None:
        """Wait until a request of so many tokens may be sent; no longer than until ``stop`` is set."""
        with self._lock:
            start = max(time.monotonic(), self._free_at)
            self._free_at = start + max(self._a_request, tokens * self._a_token)
        # Others may be told to wait longer while this one waits.
        while (left := max(start, self._held_until) - time.monotonic()) > 0 and not stop.wait(left):
            pass

    def hold(self, seconds: float) -> None:
        """Let nobody ask for so long."""
        with self._lock:
            self._held_until = max(self._held_until, time.monotonic() + seconds)
