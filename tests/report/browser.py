"""Headless Chromium over its debugging pipe: pages from disk, what they log and ask for, screenshots.

The DevTools protocol is JSON messages that end with a zero byte, on file descriptors 3 and 4: no port that others could
reach and no package to install.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
NO_CHROMIUM = "no Chromium here: apt-get install chromium"
TIMEOUT_S = 60
_FLAGS = (
    "--headless",
    "--no-sandbox",  # CI runs as root in containers, where Chromium's own sandbox cannot start
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
_ATTACH = """
import os, sys
for mine, its in zip(map(int, sys.argv[1:3]), (3, 4)):
    os.dup2(mine, its)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One browser with one page. A context manager; ends the process it started."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None, NO_CHROMIUM
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        # Above 9, so that none of them is 3 or 4 itself.
        passed = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (commands, answers)]
        command = [sys.executable, "-c", _ATTACH, *map(str, passed), CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=passed, stdin=quiet, stdout=quiet, stderr=quiet)
        for descriptor in (commands, answers, *passed):
            os.close(descriptor)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        try:
            target = self._send("Target.createTarget", {"url": "about:blank"})["targetId"]
            self._session = self._send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.send(f"{domain}.enable")
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._send("Browser.close", {})
            self._process.wait(10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._out)
            os.close(self._in)

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file at this size of the window, and wait until it is there. Forgets earlier events."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.send("Emulation.setEmulatedMedia", features=[scheme, still])
        self.send("Emulation.setScrollbarsHidden", hidden=True)
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        self._until(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page; AssertionError if it throws."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key such as `Tab`, `Enter` or `ArrowRight`."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        about = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def hover(self, x: float, y: float) -> None:
        """Move the mouse to a point of the window."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, target: Path, *, whole: bool = True) -> None:
        """Write a PNG of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        target.write_bytes(base64.b64decode(data))

    def requests(self) -> list[str]:
        """Return every address that the page asked for since `open`."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def complaints(self) -> list[str]:
        """Return errors, warnings and uncaught exceptions since `open`."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to the page and return its result."""
        return self._send(method, params, self._session)

    def _send(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer: dict[str, Any] = {}
        number = self._number

        def answered() -> bool:
            nonlocal answer
            for event in self.events:
                if event.get("id") == number:
                    answer = event
                    self.events.remove(event)
                    return True
            return False

        self._until(answered)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, done: Any) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not done():
            assert self._process.poll() is None, f"Chromium ended with {self._process.returncode}"
            left = deadline - time.monotonic()
            assert left > 0, "Chromium did not answer in time"
            if not select.select([self._in], [], [], min(left, 1.0))[0]:
                continue
            self._buffer += os.read(self._in, 1 << 20)
            *messages, self._buffer = self._buffer.split(b"\0")
            for text in messages:
                message = json.loads(text)
                self.events.append({"method": "", "params": {}, **message})
