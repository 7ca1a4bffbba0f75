"""Files of this package as paths of a server, with headers that let a page run its own scripts and no others."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from antrea.outside.http.handlers import Handler

MEDIA: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""Other files are not served."""
INDEX: Final = "index.html"
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No script, style or request but of this server's files; none that is in a page, and no text that becomes markup."""
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def static_files(folder: Traversable, path: str) -> dict[str, Handler]:
    """Handlers by path, read once: `path`/name for each file below `folder`, and `path`/ for its index.

    Nothing of a request becomes a file's name.
    """
    handlers = {f"{path}/{name}": _handler(name, content) for name, content in _files(folder, "")}
    return {**handlers, path: _index(path, handlers[f"{path}/{INDEX}"])}


def _files(folder: Traversable, above: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _files(entry, f"{above}{entry.name}/")
        elif PurePosixPath(entry.name).suffix in MEDIA:
            yield above + entry.name, entry.read_bytes()


def _handler(name: str, content: bytes) -> Handler:
    media = f"{MEDIA[PurePosixPath(name).suffix]}; charset=utf-8"
    headers = {
        **HEADERS,
        "Cache-Control": "no-cache",
        "Content-Type": media,
        "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    }

    async def handler(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, headers=headers)

    return handler


def _index(path: str, page: Handler) -> Handler:
    """The page refers to its files relative to `path`/, so that it also works below a proxy's prefix."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.rel_url.raw_path.endswith("/"):
            return await page(request)
        return web.Response(status=308, headers={**HEADERS, "Location": f"{path.rpartition('/')[2]}/"})

    return handler
