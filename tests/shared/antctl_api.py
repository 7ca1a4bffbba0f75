"""antctl run in this process against an API server on loopback that a test has written."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, TypeVar

from click.testing import CliRunner, Result

from antrea.antctl.main import antctl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import HTTPServer
    from pathlib import Path

    from antrea.antctl.mode import Mode

    S = TypeVar("S", bound=HTTPServer)


class JsonHandler(BaseHTTPRequestHandler):
    """Handler of requests whose bodies and answers are JSON."""

    def body(self) -> Any:
        """Return the body of the request."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status: int, body: object) -> None:
        """Send the answer."""
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextmanager
def serving(server: S) -> Iterator[S]:
    """Serve in a thread until the context ends."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def run_antctl(mode: Mode, server: HTTPServer, folder: Path, command: str, *words: str) -> Result:
    """Run `antctl command -k KUBECONFIG words...` with a kubeconfig in `folder` that leads to the server."""
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    arguments = [command, "-k", str(folder / "kubeconfig"), *words]
    return CliRunner().invoke(antctl(mode), arguments, prog_name="antctl")
