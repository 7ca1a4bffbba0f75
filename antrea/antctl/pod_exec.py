"""Runs a command in a container, through kube-apiserver.

Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets
"""

from __future__ import annotations

import asyncio
import json
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from antrea.antctl.failure import Failure
from antrea.decoding import guarded
from antrea.errors import AntreaError, Invalid

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from antrea.antctl.request import Server

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, VERDICT = 1, 2, 3
"""Channels: the first byte of every message."""
CLOSE_TIMEOUT = 0.5
"""Seconds for the end of a connection whose command did not end in time."""


class Overdue(Failure):
    """A command that did not end in time."""


class Done(NamedTuple):
    """How a command ended; `code` 0 is success."""

    code: int
    stdout: str
    stderr: str


def run_in_pod(
    server: Server, pod: str, command: Sequence[str], *, container: str = "", seconds: float = 30.0
) -> Done:
    """Run `command` in `pod`, which is namespace/name. Raises Failure if it could not be run or did not end in time."""
    return _ended(pod, _run(server, pod, command, container, seconds), seconds)


def _ended(pod: str, work: Coroutine[Any, Any, Done], seconds: float) -> Done:
    """Raises Failure."""
    import aiohttp  # noqa: PLC0415 (start-up time: agents import this module, and run no command)

    try:
        return asyncio.run(work)
    except TimeoutError as error:
        raise Overdue(f"command in Pod {pod} did not end within {seconds:g} s") from error
    except aiohttp.WSServerHandshakeError as error:
        raise Failure(f"no command can be run in Pod {pod}: {error.status} {error.message}") from error
    except (aiohttp.ClientError, OSError, AntreaError) as error:
        raise Failure(f"no command can be run in Pod {pod}: {error}") from error


def read_file(
    server: Server, pod: str, path: str, copy: IO[bytes], *, container: str = "", seconds: float = 30.0
) -> None:
    """Write the file at `path` in `pod` into `copy`. Raises Failure."""
    done = _ended(pod, _run(server, pod, ("cat", path), container, seconds, copy), seconds)
    if done.code:
        raise Failure(
            f"{path} in Pod {pod} cannot be read: {done.stderr.strip() or f'exit code {done.code}'}"
        )


async def _run(
    server: Server,
    pod: str,
    command: Sequence[str],
    container: str,
    seconds: float,
    output: IO[bytes] | None = None,
) -> Done:
    """Its output goes into `output`, if that is given, instead of the result."""
    import aiohttp  # noqa: PLC0415 (start-up time)

    from antrea.outside.kube.user_agent import user_agent  # noqa: PLC0415

    namespace, _, name = pod.partition("/")
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    if container:
        query.append(("container", container))
    url = f"{server.access.url}/api/v1/namespaces/{namespace}/pods/{name}/exec?{urlencode(query)}"
    headers = server.access.authorization()
    headers["User-Agent"] = user_agent()
    said: dict[int, list[bytes]] = {STDOUT: [], STDERR: [], VERDICT: []}
    async with (
        asyncio.timeout(seconds),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=server.access.tls())) as session,
        session.ws_connect(
            url,
            headers=headers,
            protocols=PROTOCOLS,
            proxy=server.access.proxy() or None,
            server_hostname=server.access.server_name or None,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT),
        ) as socket,
    ):
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data[:1]:
                continue
            if message.data[0] == STDOUT and output is not None:
                output.write(message.data[1:])
            else:
                said.setdefault(message.data[0], []).append(message.data[1:])
    out, err, verdict = (b"".join(said[channel]).decode(errors="replace") for channel in (1, 2, 3))
    return Done(_code(pod, verdict), out, err)


def _code(pod: str, verdict: str) -> int:
    """The exit code in the last message. Raises Failure for another end."""
    if not verdict:
        raise Failure(f"command in Pod {pod}: the connection ended before the command")
    try:
        code = guarded("status of the command", _exit_code, verdict)
    except Invalid as error:
        raise Failure(f"command in Pod {pod}: {error}") from error
    if isinstance(code, str):
        raise Failure(f"command in Pod {pod}: {code}")
    return code


def _exit_code(verdict: str) -> int | str:
    """The exit code in a Status of kube-apiserver, or its message. Raises what a decoder raises."""
    status = json.loads(verdict)
    if status.get("status") == "Success":
        return 0
    for cause in status.get("details", {}).get("causes", []):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    return str(status.get("message", verdict))
