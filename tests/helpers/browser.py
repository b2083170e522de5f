"""A real browser, driven over WebDriver's plain HTTP: nothing to install but the browser itself."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "google-chrome")) if p), None)
DRIVER = shutil.which("chromedriver")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


class Browser:
    """A window of Chromium."""

    def __init__(self, address: str) -> None:
        self.address = address
        options = {"binary": CHROMIUM, "args": FLAGS}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.address += f"/session/{made['sessionId']}"

    def open(self, page: Path) -> None:
        self._ask("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def devtools(self, command: str, **parameters: Any) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._ask("POST", "/goog/cdp/execute", body)

    def resize(self, width: int, height: int, scale: float = 1, *, touch: bool = False) -> None:
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=scale, mobile=touch)  # fmt: skip

    def colours(self, scheme: str, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", media=media, features=features)

    def point(self, x: float, y: float) -> None:
        self.devtools("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.devtools("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def errors(self) -> list[str]:
        """What the page wrote to the console."""
        return [line["message"] for line in self._ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, whole: bool = False) -> bytes:
        found = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def close(self) -> None:
        self._ask("DELETE", "", None)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with DIRECT.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, closed at the end."""
    assert DRIVER is not None
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        port = next(
            m[1] for line in driver.stdout if (m := re.search(r"successfully on port (\d+)", line))
        )
        window = Browser(f"http://127.0.0.1:{port}")
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait()
