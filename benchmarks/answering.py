"""A server over TLS on loopback, in a process of its own, for a client to be measured against."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from aiohttp import web

from antrea.outside.tls import authority
from antrea.outside.tls.server_context import server_tls

if TYPE_CHECKING:
    from typing import NoReturn


async def serve(app: web.Application) -> NoReturn:
    """Until it is killed; prints its port and its CA as JSON first."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    pair = authority.make(("localhost",), ("127.0.0.1",))
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_tls(pair)).start()
    print(json.dumps({"port": runner.addresses[0][1], "ca": pair.certificate_pem}), flush=True)
    while True:
        await asyncio.Event().wait()
