"""A client of the lab's API server that keeps its connection: thousands of small requests in seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.errors import Unavailable
from lab.api import Connection

if TYPE_CHECKING:
    from lab.cluster import Lab

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Answer(NamedTuple):
    """Status, body, and what the server warns of."""

    status: int
    body: Any
    warnings: tuple[str, ...]


def takes(lab: Lab, text: str) -> bool:
    """Whether `kubectl apply` of it went through: the API server may not know yet where the controller is by now."""
    try:
        lab.api.apply(text)
    except Unavailable:
        return False
    return True


class ApiClient(Connection):
    """With a minute for each answer: reviewing what one request deletes takes a while on a busy machine."""

    def __init__(self, lab: Lab, port: int = 6443) -> None:
        super().__init__(lab.record, lab.topology, port, seconds=60)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str = "application/json",
        kind: str = "application/json",
    ) -> Answer:
        """One request; `body` is sent as JSON."""
        headers = {"Accept": accept, "Content-Type": kind}
        self.request(method, path, None if body is None else json.dumps(body), headers)
        found = self.getresponse()
        warnings = found.headers.get_all("Warning") or []
        text = found.read()
        # the API server speaks plain text for an API whose program does not answer
        plain = found.status >= 400 and found.headers.get_content_type() == "text/plain"
        body = text.decode() if plain else json.loads(text or b"null")
        return Answer(found.status, body, tuple(warnings))
