"""One request to an API server; imports its HTTP client only when it is needed, so that antctl starts quickly."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.failure import Failure

if TYPE_CHECKING:
    import http.client
    from collections.abc import Mapping
    from pathlib import Path

    from antrea.outside.kube_access import Access


class Server(NamedTuple):
    """Where to ask and as whom; `seconds` None waits as long as it takes."""

    access: Access
    seconds: float | None
    verbose: bool = False


def loopback(address: str, token_file: Path) -> Access:
    """The API of this Pod's program: its certificate signs itself, the token is the proof, as upstream."""
    from antrea.outside.kube_access import Access  # noqa: PLC0415 (start-up time)

    return Access(url=f"https://{address}", token_file=str(token_file), insecure=True)


def ask(server: Server, path: str, query: Mapping[str, str], body: Any = None) -> Any:
    """The JSON answer, None for an empty one; a `body` is POSTed. Raises Failure with what the server said."""
    from urllib.parse import urlencode  # noqa: PLC0415 (start-up time)

    target = path + ("?" + urlencode(query) if query else "")
    status, answer = _exchange(server, target, None if body is None else json.dumps(body))
    if status not in (200, 201):
        raise Failure(f"request to server failed: {_words(status, answer)}")
    try:
        return json.loads(answer) if answer.strip() else None
    except ValueError as why:
        raise Failure(f"answer of {path} is not JSON: {why}") from why


def _exchange(server: Server, target: str, body: str | None) -> tuple[int, bytes]:
    import http.client  # noqa: PLC0415 (start-up time)

    from antrea.errors import AntreaError  # noqa: PLC0415

    url = f"{server.access.url}{target}"
    method = "GET" if body is None else "POST"
    if server.verbose:
        print(f"{method} {url}", file=sys.stderr)
    try:
        headers = {"Accept": "application/json", **server.access.authorization()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        with contextlib.closing(_connection(server)) as connection:
            connection.request(method, target, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
    except AntreaError as why:
        raise Failure(str(why)) from why
    except (OSError, http.client.HTTPException) as why:
        raise Failure(f"request to server failed: {url}: {why}") from why


def _connection(server: Server) -> http.client.HTTPConnection:
    """Connected already, because http.client cannot ask for another name than the host's in the certificate."""
    import http.client  # noqa: PLC0415 (start-up time)
    import socket  # noqa: PLC0415
    import ssl  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(server.access.url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    context = server.access.tls()
    connection = http.client.HTTPConnection(host, port, timeout=server.seconds)
    plain = socket.create_connection((host, port), timeout=server.seconds)
    if isinstance(context, ssl.SSLContext):
        connection.sock = context.wrap_socket(plain, server_hostname=server.access.server_name or host)
    else:
        connection.sock = plain
    return connection


def _words(status: int, answer: bytes) -> str:
    """The message of a Kubernetes Status, else the HTTP status and the body."""
    import http.client  # noqa: PLC0415 (start-up time)

    try:
        told = json.loads(answer)
        if isinstance(told, dict) and told.get("kind") == "Status" and told.get("message"):
            return str(told["message"])
    except ValueError:
        pass
    return f"{http.client.responses.get(status, str(status))}: {answer.decode(errors='replace').strip()}"
