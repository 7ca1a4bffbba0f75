"""A client of the lab's API server that keeps its connection: thousands of small requests in seconds."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.lab import control_plane, namespace

if TYPE_CHECKING:
    from antrea.lab.cluster import Lab

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Answer(NamedTuple):
    """Status, body, and what the server warns of."""

    status: int
    body: Any
    warnings: tuple[str, ...]


class ApiClient(http.client.HTTPSConnection):
    """The administrator's HTTPS connection from within the control plane's network."""

    def __init__(self, lab: Lab, port: int = 6443) -> None:
        files = control_plane.pki(lab.record)
        self._tls = ssl.create_default_context(cafile=str(files / "ca.crt"))
        self._tls.load_cert_chain(files / "admin.crt", files / "admin.key")
        self._netns = namespace.path(lab.record, lab.topology.control_plane.name)
        super().__init__(control_plane.endpoint(lab.topology), port, timeout=30, context=self._tls)

    def connect(self) -> None:
        plain = namespace.connect(self._netns, (self.host, self.port), seconds=5)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are two writes
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)

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
