"""A visit to the flow aggregator's web page, run in the network of the workstation: signs in and prints the text of each view.

python tests/lab/page_visit.py FOLDER URL TOKEN NAMESPACES WORDS
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from browser import browser

VIEWS = {"map?by=workload": "svg.map circle", "top": "meter", "policies": "canvas"}
"""With what each draws."""


async def visit(folder: Path, url: str, token: str, namespaces: str, words: str) -> dict[str, str]:
    """Texts by views, once `words` are among the connections; pictures are beside the browser's profile."""
    async with browser(folder) as page:
        await page.send("Page.navigate", url=f"{url}/ui")
        await page.until("document.querySelector('input[name=token]')")
        await page.type("input[name=token]", token)
        await page.type("input[name=namespaces]", namespaces)
        await page.press("Enter", 13)
        shown = "document.body.innerText"
        await page.until(f"{shown}.includes({json.dumps(words)})")
        found = {"flows": await page.value(shown)}
        (folder / "flows.png").write_bytes(await page.picture())
        for view, drawn in VIEWS.items():
            name = view.partition("?")[0]
            await page.value(f"document.querySelector('nav a[href^=\"#/{name}\"]').click()")
            await page.until(f"document.querySelector('{drawn}')")
            found[name] = await page.value(shown)
            (folder / f"{name}.png").write_bytes(await page.picture())
        assert page.errors == []
        return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(visit(Path(sys.argv[1]), *sys.argv[2:]))))
