"""Read the lab's API server directly: a poll with kubectl would cost half a second of processor time."""

from __future__ import annotations

import http.client
import ssl
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Unavailable
from antrea.lab import control_plane, namespace
from antrea.lab.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from antrea.lab.record import Record
    from antrea.lab.topology import Topology


class _Connection(http.client.HTTPSConnection):
    """HTTPS whose socket is made inside a network namespace."""

    def __init__(self, netns: Path, host: str, tls: ssl.SSLContext) -> None:
        super().__init__(host, 6443, timeout=10)
        self._netns, self._tls = netns, tls

    def connect(self) -> None:
        plain = namespace.connect(self._netns, (self.host, self.port), seconds=5)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class Api:
    """The cluster's API as its administrator, and kubectl for what changes it."""

    def __init__(self, record: Record, topology: Topology, kubectl: Path) -> None:
        self._record, self._topology = record, topology
        self._kubectl = kubectl
        self._netns = namespace.path(record, topology.control_plane.name)

    def get(self, path: str) -> Any:
        """The decoded answer to GET `path`; raises Unavailable when there is none or it is not a success."""
        files = control_plane.pki(self._record)
        tls = ssl.create_default_context(cafile=str(files / "ca.crt"))
        tls.load_cert_chain(files / "admin.crt", files / "admin.key")
        connection = _Connection(self._netns, control_plane.endpoint(self._topology), tls)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as e:
            raise Unavailable(f"the API server: {e}") from e
        finally:
            connection.close()
        if answer.status != 200:
            raise Unavailable(f"the API server answers {answer.status} to {path}")
        if answer.headers.get_content_type() == "application/json":
            return msgspec.json.decode(body)
        return body.decode()

    def items(self, path: str) -> list[dict[str, Any]]:
        """The items of a list, an empty list while the API server does not answer."""
        try:
            found: list[dict[str, Any]] = self.get(path)["items"]
        except Unavailable:
            return []
        return found

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
        """What kubectl printed; raises Unavailable with its message when it fails."""
        return run(self.command(arguments), record=self._record, stdin=stdin, seconds=seconds)

    def apply(self, manifest: str) -> None:
        self.kubectl("apply", "-f", "-", stdin=manifest)
