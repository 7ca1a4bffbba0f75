"""The web page is everybody's and has nothing of anybody's; its files are those of the package, under a strict policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest
from test_flow_visibility import asked, serving

if TYPE_CHECKING:
    from pathlib import Path

PAGE = {
    "/ui/": ("text/html", b'src="app.js"'),
    "/ui/index.html": ("text/html", b'src="app.js"'),
    "/ui/app.js": ("text/javascript", b"sign"),
    "/ui/style.css": ("text/css", b"prefers-color-scheme: dark"),
    "/ui/icon.svg": ("image/svg+xml", b"<svg"),
    "/ui/vendor/htm-preact.js": ("text/javascript", b"export"),
}
CLOSED = (
    "/ui/vendor",
    "/ui/vendor/manifest.json",
    "/ui/../flows",
    "/ui/%2e%2e/main.py",
    "/ui/../../pyproject.toml",
)


async def test_the_page_is_served_without_a_token_and_all_else_is_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, store, _), aiohttp.ClientSession() as session:
        assert (await asked(url, "", ""))[0] == 403
        for path, (media, words) in PAGE.items():
            async with session.get(f"{url}{path}", ssl=False) as found:
                assert (found.status, found.content_type, found.charset) == (200, media, "utf-8"), path
                assert words in await found.read()
                policy = found.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'self';")
                assert "unsafe" not in policy
                assert found.headers["X-Content-Type-Options"] == "nosniff"
                known = {"If-None-Match": found.headers["ETag"]}
            async with session.get(f"{url}{path}", ssl=False, headers=known) as again:
                assert (again.status, await again.read()) == (304, b"")
        assert store.asked == []


@pytest.mark.parametrize("path", CLOSED)
async def test_nothing_else_below_the_page_is_open(tmp_path: Path, path: str) -> None:
    from yarl import URL

    async with serving(tmp_path) as (url, store, _):
        await asked(url, "", "")  # it listens
        async with aiohttp.ClientSession() as session:
            whole = URL(f"{url}{path}", encoded=True)
            async with session.get(whole, ssl=False, allow_redirects=False) as found:
                assert found.status in (400, 403, 404), await found.text()
        assert store.asked == []


async def test_the_page_without_its_slash_leads_to_it_also_behind_a_prefix(tmp_path: Path) -> None:
    async with serving(tmp_path) as (url, _, _), aiohttp.ClientSession() as session:
        await asked(url, "", "")
        async with session.get(f"{url}/ui", ssl=False, allow_redirects=False) as found:
            assert (found.status, found.headers["Location"]) == (308, "ui/")
        async with session.get(f"{url}/ui", ssl=False) as found:
            assert (found.status, found.url.path) == (200, "/ui/")
