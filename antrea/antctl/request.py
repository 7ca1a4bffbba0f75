"""One GET to a program's own API; imports its HTTP client only when it is needed, so that antctl starts quickly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.antctl.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Server(NamedTuple):
    """Where to ask and as whom; `seconds` None waits as long as it takes."""

    address: str
    token_file: Path
    seconds: float | None


def ask(server: Server, path: str, query: Mapping[str, str]) -> Any:
    """The JSON answer, None for an empty one. Raises Failure with what the server said."""
    import http.client  # noqa: PLC0415 (start-up time)
    import ssl  # noqa: PLC0415
    from urllib.parse import urlencode  # noqa: PLC0415

    # the server is on this machine's loopback and its certificate signs itself: the token is the proof, as upstream
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        token = server.token_file.read_text(encoding="ascii").strip()
    except OSError as why:
        raise Failure(f"token file {server.token_file}: {why.strerror}") from why
    connection = http.client.HTTPSConnection(server.address, timeout=server.seconds, context=context)
    try:
        connection.request(
            "GET",
            path + ("?" + urlencode(query) if query else ""),
            headers={"Authorization": f"Bearer {token}"},
        )
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as why:
        raise Failure(f"request to server failed: https://{server.address}{path}: {why}") from why
    finally:
        connection.close()
    if answer.status != 200:
        words = http.client.responses.get(answer.status, str(answer.status))
        raise Failure(f"request to server failed: {words}: {body.decode(errors='replace').strip()}")
    try:
        return json.loads(body) if body.strip() else None
    except ValueError as why:
        raise Failure(f"answer of {path} is not JSON: {why}") from why
