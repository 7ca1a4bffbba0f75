"""A real browser, driven over the Chrome DevTools Protocol, which needs no package of its own.

Source: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PACKAGE = "chromium-headless-shell"
PROGRAM = "/usr/lib/chromium/chromium-headless-shell"
"""Of that package; the one in PATH is a shell that stays before it, and would die alone."""
TIMEOUT = 30.0
OPTIONS = (
    "--no-sandbox", "--remote-debugging-port=0", "--ignore-certificate-errors", "--disable-background-networking",
    "--disable-component-update", "--no-first-run", "--window-size=1400,1000", "about:blank",
)  # fmt: skip


class Page:
    """One tab. `errors` are exceptions of its scripts, and what the browser logged as errors, such as what the policy blocked."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []

    async def read(self) -> None:
        """Until the tab is closed."""
        async for message in self._socket:
            found = json.loads(message.data)
            if "id" in found:
                if not (answer := self._answers.pop(found["id"])).done():
                    answer.set_result(found)
            elif found.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(found["params"]["exceptionDetails"]))
            elif found.get("method") == "Log.entryAdded" and found["params"]["entry"]["level"] == "error":
                self.errors.append(json.dumps(found["params"]["entry"]))

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; fails with the browser's words."""
        number = next(self._numbers)
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(TIMEOUT):
            found = await answer
        assert "error" not in found, (method, found["error"])
        result: dict[str, Any] = found["result"]
        return result

    async def value(self, expression: str) -> Any:
        """Of an expression of JavaScript, as JSON has it."""
        found = await self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Until it is true."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while not await self.value(f"Boolean({expression})"):  # noqa: ASYNC110 (the page is another process)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            raise AssertionError(f"not in time: {expression}\n{shown}\n{self.errors}") from None

    async def type(self, selector: str, text: str) -> None:
        """As keys into the field that it focuses."""
        await self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.send("Input.insertText", text=text)

    async def press(self, key: str, code: int) -> None:
        """`code` is that of Windows' virtual keys."""
        text = {"text": {"Enter": "\r"}.get(key, key)} if key in ("Enter", " ") else {}
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text
            )

    async def picture(self) -> bytes:
        """A PNG of what is seen."""
        found = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A page of a fresh profile below `folder`; the test fails where the browser is not installed."""
    if not shutil.which(PROGRAM):
        pytest.fail(f"{PROGRAM} is not on this machine: apt-get install --no-install-recommends {PACKAGE}")
    profile = folder / "browser"
    with (folder / "browser.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, f"--user-data-dir={profile}", *OPTIONS, stdout=log, stderr=log
        )
        try:
            port = await _port(profile / "DevToolsActivePort", process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as found:
                    [tab] = [one for one in await found.json() if one["type"] == "page"]
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    reading = asyncio.create_task(page.read())
                    for domain in ("Runtime", "Log", "Page"):
                        await page.send(f"{domain}.enable")
                    yield page
                    await socket.close()
                    await reading
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _port(path: Path, process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(TIMEOUT):
        while not (port := _first_line(path)):
            assert process.returncode is None, "the browser ended: see browser.log"
            await asyncio.sleep(0.05)
    return int(port)


def _first_line(path: Path) -> str:
    """Empty until it is there as a whole."""
    line, end, _ = path.read_text().partition("\n") if path.exists() else ("", "", "")
    return line if end else ""
