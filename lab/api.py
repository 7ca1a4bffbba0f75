"""Read the lab's API server directly: a poll with kubectl would cost half a second of processor time."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Unavailable
from lab import control_plane, namespace
from lab.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lab.record import Record
    from lab.topology import Topology


class Connection(http.client.HTTPSConnection):
    """The administrator's HTTPS connection to a server beside the API server, from within the control plane's network."""

    def __init__(self, record: Record, topology: Topology, port: int = 6443, *, seconds: float = 10) -> None:
        """`seconds` for each answer."""
        files = control_plane.pki(record)
        self._tls = ssl.create_default_context(cafile=str(files / "ca.crt"))
        self._tls.load_cert_chain(files / "admin.crt", files / "admin.key")
        self._netns = namespace.path(record, topology.control_plane.name)
        super().__init__(control_plane.endpoint(topology), port, timeout=seconds, context=self._tls)

    def connect(self) -> None:
        plain = namespace.connect(self._netns, (self.host, self.port), seconds=5)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are two writes
        plain.settimeout(self.timeout)  # the other was for connecting
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class Api:
    """The cluster's API as its administrator, and kubectl for what changes it."""

    def __init__(self, record: Record, topology: Topology, kubectl: Path) -> None:
        self._record, self._topology = record, topology
        self._kubectl = kubectl
        self._netns = namespace.path(record, topology.control_plane.name)

    def get(self, path: str) -> Any:
        """The decoded answer to GET `path`; raises Unavailable when there is none or it is not a success."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request with a body in JSON, and return the answer like `get`."""
        connection = Connection(self._record, self._topology)
        try:
            sent = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"} if sent else {})
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the API server: {error}") from error
        finally:
            connection.close()
        if answer.status not in (200, 201):
            raise Unavailable(f"the API server answers {answer.status} to {path}")
        if answer.headers.get_content_type() == "application/json":
            return msgspec.json.decode(body)
        return body.decode()

    def items(self, path: str) -> list[dict[str, Any]]:
        """The items of a list, an empty list while the API server does not answer."""
        try:
            items: list[dict[str, Any]] = self.get(path)["items"]
        except Unavailable:
            return []
        return items

    def ready(self) -> bool:
        try:
            return bool(self.get("/readyz") == "ok")
        except Unavailable:
            return False

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The kubectl command line, run beside the API server."""
        config = control_plane.kubeconfig(self._record)
        return namespace.inside(self._netns, [self._kubectl, f"--kubeconfig={config}", *arguments])

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Return the output of kubectl. Raises Unavailable with its message when it fails."""
        return run(self.command(arguments), record=self._record, stdin=stdin, seconds=seconds)

    def apply(self, manifest: str) -> None:
        self.kubectl("apply", "-f", "-", stdin=manifest)
