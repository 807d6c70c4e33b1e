"""Chromium without a window, driven over a pipe: no driver, no port, no network."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
).split()


def find_browser() -> str | None:
    """Where Chromium or Chrome is; None where there is none, or no pipe to drive it by."""
    if os.name != "posix":
        return None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page in the browser."""

    def __init__(self, requests: int, replies: int) -> None:
        self._requests, self._replies = requests, replies
        self._number, self._rest, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        while (reply := self._read()).get("id") != self._number:
            self.events.append(reply)
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._replies, 1 << 16)
            assert more, "the browser is gone"
            self._rest += more
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def open(
        self,
        path: Path,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        paper: bool = False,
        script: bool = True,
        state: str = "",
    ) -> None:
        """Load a file in a window of this size, with the system's colours light or dark, or as it is printed.

        ``state`` is what stands behind the # of the address.
        """
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])
        self._call("Emulation.setScriptExecutionDisabled", value=not script)
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.events.clear()
        # A page of which only what stands behind the # is another would not be loaded again.
        self._call(
            "Page.navigate", url=path.as_uri() + (f"?{self._number}#{state}" if state else "")
        )
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script: str) -> Any:
        done = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str) -> None:
        text = {"Enter": "\r", "Space": " "}.get(key, "")
        code = {"Tab": 9, "Enter": 13, "Space": 32}[key]
        facts = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **facts)
        self._call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def requests(self) -> list[str]:
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Errors of script and console, and what the page's policy has refused."""
        errors = [
            event["params"] for event in self.events if event["method"] == "Runtime.exceptionThrown"
        ]
        entries = [
            event["params"]["entry"] for event in self.events if event["method"] == "Log.entryAdded"
        ]
        return [json.dumps(one) for one in errors] + [one["text"] for one in entries]

    def names(self) -> list[tuple[str, str]]:
        """The role and the name of each thing in the page, as those who hear it are told."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node["ignored"]]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown]

    def save_downloads(self, folder: Path) -> None:
        """Keep what the page hands to download."""
        self._call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))


LAUNCH = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
"""Chromium reads commands from descriptor 3 and answers on 4."""


@contextlib.contextmanager
def open_browser(program: str, profile: Path) -> Iterator[Page]:
    """A browser with a fresh profile, closed at the end."""
    import fcntl  # not everywhere; find_browser says so first

    pipes = [end for _ in range(2) for end in os.pipe()]
    # Above 4, that none stands where another has to go.
    reads, ours_out, ours_in, writes = (
        fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pipes
    )
    for end in pipes:
        os.close(end)
    command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(reads), str(writes), *command],
        pass_fds=(reads, writes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(reads)
    os.close(writes)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.close(ours_out)
        os.close(ours_in)
        process.terminate()
        process.wait(timeout=20)
