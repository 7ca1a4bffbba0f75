"""New HTTP connections to one address, RATE a second until standard input ends; then what came of them, as JSON.

Words: address, port, connections a second. `failed` has seconds after the start and the error of each request that got no answer
with status 200 within 5 s; `milliseconds` has the durations of the others; `servers` counts their answers.
"""

from __future__ import annotations

import asyncio
import collections
import json
import sys
import time

SECONDS = 5.0


async def request(address: str, port: int) -> str:
    """The body. Raises OSError, TimeoutError, ValueError."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            writer.write(b"GET /hostname HTTP/1.0\r\nHost: web\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    if " 200 " not in head.partition("\r\n")[0]:
        raise ValueError(f"answered {head.partition(chr(13))[0]!r}")
    return body


async def main() -> None:
    address, port, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    begun, failed = time.monotonic(), list[tuple[float, str]]()
    took, servers = list[float](), collections.Counter[str]()

    async def one() -> None:
        start = time.monotonic()
        try:
            servers[await request(address, port)] += 1
            took.append(1000 * (time.monotonic() - start))
        except (OSError, TimeoutError, ValueError) as error:
            failed.append((start - begun, f"{type(error).__name__} {error}"))

    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    print("begun", flush=True)
    number = 0
    async with asyncio.TaskGroup() as tasks:
        while not ended.done():
            tasks.create_task(one())
            number += 1
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
    print(json.dumps({"sent": number, "failed": failed, "milliseconds": took, "servers": len(servers)}))


if __name__ == "__main__":
    asyncio.run(main())
