"""One request to an API server; imports its HTTP client only when it is needed, so that antctl starts quickly."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.failure import Failure
from antrea.decoding import guarded
from antrea.errors import Invalid

if TYPE_CHECKING:
    import http.client
    import ssl
    from collections.abc import Mapping, MutableMapping, Sequence
    from email.message import Message
    from pathlib import Path

    from antrea.outside.kube.access import Access

_QUOTED = re.compile(r'^299 \S+ "((?:[^"\\]|\\.)*)"')
"""Text of a header `Warning`: RFC 7234, 5.5."""
_ESCAPED = re.compile(r"\\(.)")
JSON = "application/json"


class Loopback(NamedTuple):
    """The API of this Pod's program, as an Access without what only kube-apiserver needs (start-up time)."""

    url: str
    token_file: Path
    server_name: str = ""

    def proxy(self) -> str:
        """Empty: there is none to a program of the same Pod."""
        return ""

    def authorization(self) -> MutableMapping[str, str]:
        """The header that authenticates us. Raises Failure if the token file cannot be read."""
        try:
            return {"Authorization": f"Bearer {self.token_file.read_text(encoding='ascii').strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"token file {self.token_file}: {error}") from error

    def tls(self) -> ssl.SSLContext | bool:
        """The certificate signs itself: the token is the proof. True (unused) for plain http."""
        import ssl  # noqa: PLC0415 (start-up time)

        if self.url.startswith("http://"):
            return True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class Server(NamedTuple):
    """Where to ask and as whom; `seconds` None waits as long as it takes."""

    access: Access | Loopback
    seconds: float | None
    verbose: bool = False


class Unreachable(Failure):
    """Error of a request that the server did not answer."""


class ErrorResponse(Failure):
    """The server answered, but not with success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def loopback(address: str, token_file: Path) -> Loopback:
    """The API of this Pod's program: its certificate signs itself, the token is the proof, as upstream."""
    return Loopback(f"https://{address}", token_file)


def ask(
    server: Server,
    path: str,
    query: Mapping[str, str],
    body: Any = None,
    *,
    method: str = "",
    content: str = JSON,
    accept: str = JSON,
) -> Any:
    """The JSON answer, None for an empty one; a `body` is POSTed, unless another `method` is given.

    Raises Failure, Answered with the server's message.
    """
    from urllib.parse import urlencode  # noqa: PLC0415 (start-up time)

    target = path + ("?" + urlencode(query) if query else "")
    sent = None if body is None else json.dumps(body)
    method = method or ("GET" if sent is None else "POST")
    status, _, answer = _exchange(server, method, target, sent, content, accept)
    return _read(path, status, answer)


def ask_each(server: Server, path: str, bodies: Sequence[Any], *, limit: float) -> list[Any]:
    """POST each body as JSON on one connection, and return the answers.

    Raises Failure, ErrorResponse; Failure as well if `limit` seconds are over before the last body is sent.
    """
    import http.client  # noqa: PLC0415 (start-up time)

    from antrea.errors import AntreaError  # noqa: PLC0415

    answers: list[Any] = []
    end = time.monotonic() + limit
    try:
        with contextlib.closing(_connection(server)) as connection:
            connection.auto_open = 0  # http.client would connect again without TLS
            for body in bodies:
                if time.monotonic() > end:
                    raise Failure(
                        f"{len(answers)} of {len(bodies)} requests were answered within {limit:g} s"
                    )
                headers = server.access.authorization()
                headers.update({"Accept": JSON, "Content-Type": JSON})
                _send(server, connection, "POST", path, headers, json.dumps(body))
                answer = connection.getresponse()
                answers.append(_read(path, answer.status, answer.read()))
    except AntreaError as error:
        raise Failure(str(error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"request to server failed: {server.access.url}{path}: {error}") from error
    return answers


def ask_warned(server: Server, path: str) -> tuple[Any, list[str]]:
    """Send a request as `ask` does, and also return the texts of its headers `Warning`."""
    status, headers, answer = _exchange(server, "GET", path, None, "")
    said = (_QUOTED.search(header) for header in headers.get_all("Warning", []))
    return _read(path, status, answer), [_ESCAPED.sub(r"\1", match[1]) for match in said if match]


def _read(path: str, status: int, answer: bytes) -> Any:
    if status not in (200, 201, 202):
        raise ErrorResponse(f"request to server failed: {_message_of(status, answer)}", status)
    try:
        return guarded(path, json.loads, answer) if answer.strip() else None
    except Invalid as error:
        raise Failure(f"answer of {path} is not JSON: {error.why}") from error


def date(server: Server, path: str) -> str:
    """The Date header of an answer, of any status. Raises Failure."""
    _, headers, _ = _exchange(server, "GET", path, None, "")
    if not headers.get("Date"):
        raise Failure(f"{server.access.url} tells no Date")
    return headers["Date"]


def text(server: Server, target: str) -> str:
    """Return the answer to a GET as text, such as a log. Raises Failure, ErrorResponse."""
    status, _, answer = _exchange(server, "GET", target, None, "", "*/*")
    if status != 200:
        raise ErrorResponse(f"request to server failed: {_message_of(status, answer)}", status)
    return answer.decode(errors="replace")


def save(server: Server, target: str, file: IO[bytes]) -> None:
    """Write the answer to a GET into a file, piece by piece. Raises Failure, Answered."""
    import http.client  # noqa: PLC0415 (start-up time)
    import shutil  # noqa: PLC0415

    from antrea.errors import AntreaError  # noqa: PLC0415

    if server.verbose:
        print(f"GET {server.access.url}{target}", file=sys.stderr)
    try:
        with contextlib.closing(_connection(server)) as connection:
            _send(server, connection, "GET", target, server.access.authorization())
            answer = connection.getresponse()
            if answer.status != 200:
                raise ErrorResponse(
                    f"request to server failed: {_message_of(answer.status, answer.read())}", answer.status
                )
            shutil.copyfileobj(answer, file)
    except AntreaError as error:
        raise Failure(str(error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"request to server failed: {server.access.url}{target}: {error}") from error


def _exchange(
    server: Server, method: str, target: str, body: str | None, content: str, accept: str = JSON
) -> tuple[int, Message, bytes]:
    import http.client  # noqa: PLC0415 (start-up time)

    from antrea.errors import AntreaError  # noqa: PLC0415

    url = f"{server.access.url}{target}"
    if server.verbose:
        print(f"{method} {url}", file=sys.stderr)
    try:
        headers = server.access.authorization()
        headers["Accept"] = accept
        if body is not None:
            headers["Content-Type"] = content
        with contextlib.closing(_connection(server)) as connection:
            _send(server, connection, method, target, headers, body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
    except AntreaError as error:
        raise Failure(str(error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"request to server failed: {url}: {error}") from error


def _connection(server: Server) -> http.client.HTTPConnection:
    """Connected already, because http.client cannot ask for another name than the host's in the certificate."""
    import http.client  # noqa: PLC0415 (start-up time)
    import ssl  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    context, proxy = server.access.tls(), server.access.proxy()
    parts = urlsplit(server.access.url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    hop = urlsplit(proxy)
    first = (hop.hostname or "", hop.port or 80) if proxy else (host, port)
    connection = http.client.HTTPConnection(*first, timeout=server.seconds)
    if proxy and parts.scheme == "https":
        connection.set_tunnel(host, port, headers=_proxy_authorization(proxy))
    connection.connect()
    if isinstance(context, ssl.SSLContext):
        name = server.access.server_name or host
        connection.sock = context.wrap_socket(connection.sock, server_hostname=name)
    return connection


def _send(
    server: Server,
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: MutableMapping[str, str],
    body: str | None = None,
) -> None:
    """Send a request; to a proxy that does not tunnel it, with the whole URL."""
    from antrea.outside.kube.user_agent import user_agent  # noqa: PLC0415 (start-up time)

    proxy = server.access.proxy()
    headers["User-Agent"] = user_agent()
    if proxy and server.access.url.startswith("http://"):
        target = f"{server.access.url}{target}"
        headers.update(_proxy_authorization(proxy))
    connection.request(method, target, body=body, headers=headers)


def _proxy_authorization(proxy: str) -> dict[str, str]:
    """The header with the user of the proxy's URL, if there is one."""
    import base64  # noqa: PLC0415 (start-up time)
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _message_of(status: int, answer: bytes) -> str:
    """The message of a Kubernetes Status, else the HTTP status and the body."""
    import http.client  # noqa: PLC0415 (start-up time)

    try:
        body = guarded("status", json.loads, answer)
        if isinstance(body, dict) and body.get("kind") == "Status" and body.get("message"):
            return str(body["message"])
    except Invalid:
        pass
    return f"{http.client.responses.get(status, str(status))}: {answer.decode(errors='replace').strip()}"
