"""A headless browser: Debian's chromium over the Chrome DevTools protocol, for tests and for pictures of pages.

It needs only `websockets`, which Airflow's API server installs. Selenium and Playwright would add a driver of some ten
megabytes for the few commands used here.
"""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 30.0


def chromium() -> str | None:
    """The path of the browser; None if it is not installed (Debian: apt-get install chromium)."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class BrowserError(Exception):
    """A command of the browser failed or timed out."""


class Browser:
    """One page of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.requested: list[str] = []
        """Addresses requested by the page and its content."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.complaints: list[str] = []
        """Errors in the browser's console: blocked by a policy, not found, …"""

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": arguments}))
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = json.loads(self._socket.recv(max(0.1, deadline - time.monotonic())))
            self._note(message)
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    def go(self, address: str, until: str = "document.readyState === 'complete'") -> None:
        """Open an address, and wait until a JavaScript expression is true."""
        self.ask("Page.navigate", url=address)
        time.sleep(0.2)  # the previous page is complete, too
        self.wait(until)

    def wait(self, expression: str) -> None:
        """Wait until the expression is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise BrowserError(
                    f"not true within {PATIENCE_S:.0f} s: {expression}\n{self.value('document.body.innerText')}"
                )
            time.sleep(0.1)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; None if it raises, for example while a page loads."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    def text(self) -> str:
        """The visible text of the page."""
        return str(self.value("document.body.innerText"))

    def theme(self, dark: bool) -> None:
        """Emulate the system's preference for a dark or light theme."""
        self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def size(self, width: int, height: int) -> None:
        """Set the size of the window, in pixels."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, file: Path, part: Mapping[str, float] | None = None) -> None:
        """Write a PNG of the window, or of a part of it.

        Args:
            part: x, y, width and height in the page, and the scale of the picture.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        clip = {} if part is None else {"clip": dict(part)}
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png", **clip)["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(message["params"]["entry"]["text"])


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser with an empty profile until the end of the block. Raises BrowserError if none is installed."""
    if (command := chromium()) is None:
        raise BrowserError("no chromium is installed (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(prefix="tussock-browser-", ignore_cleanup_errors=True) as profile:
        # No sandbox: it needs rights that containers lack, and the pages are our own.
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
        ]
        quiet = [
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-sync",
        ]
        process = subprocess.Popen(
            [command, *options, *quiet, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_page(Path(profile)), max_size=None, open_timeout=PATIENCE_S) as socket:
                yield Browser(socket)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _page(profile: Path) -> str:
    """The WebSocket address of the browser's page."""
    deadline = time.monotonic() + PATIENCE_S
    port_file = profile / "DevToolsActivePort"
    while time.monotonic() < deadline:
        if port_file.exists() and (lines := port_file.read_text().splitlines()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=PATIENCE_S) as answer:
                for target in json.load(answer):
                    if target["type"] == "page":
                        return str(target["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise BrowserError(f"chromium did not start within {PATIENCE_S:.0f} s")
